/* SPDX-License-Identifier: MIT */
/* Stable merge sort of (key, index) pairs by rising key. No allocation: the caller gives a second buffer. */
#ifndef MP_DETECT_SORT_H
#define MP_DETECT_SORT_H
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t key;
    int64_t index;
} mp_sort_item;

/* Key that rises with the category and falls with the score. Scores are finite. */
static inline uint64_t mp_sort_key(int32_t category, float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and +0 are equal scores */
    memcpy(&bits, &score, sizeof bits);
    /* Positive floats order like their bits, negative ones the other way round. */
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)(uint32_t)category << 32 | (uint32_t)~bits;
}

enum { MP_SORT_RUN = 12 }; /* below this length insertion beats merging */

/* Sorts items[0 .. count) and returns where the result lies: items or spare. */
static inline mp_sort_item *mp_sort(mp_sort_item *items, mp_sort_item *spare, int64_t count)
{
    for (int64_t first = 0; first < count; first += MP_SORT_RUN) {
        const int64_t last = first + MP_SORT_RUN < count ? first + MP_SORT_RUN : count;
        for (int64_t i = first + 1; i < last; i++) {
            const mp_sort_item item = items[i];
            int64_t j = i;
            for (; j > first && items[j - 1].key > item.key; j--) items[j] = items[j - 1];
            items[j] = item;
        }
    }
    for (int64_t width = MP_SORT_RUN; width < count; width *= 2) {
        for (int64_t first = 0; first < count; first += 2 * width) {
            const int64_t middle = first + width < count ? first + width : count;
            const int64_t last = middle + width < count ? middle + width : count;
            int64_t a = first, b = middle, out = first;
            while (a < middle && b < last) spare[out++] = items[b].key < items[a].key ? items[b++] : items[a++];
            while (a < middle) spare[out++] = items[a++];
            while (b < last) spare[out++] = items[b++];
        }
        mp_sort_item *swap = items;
        items = spare;
        spare = swap;
    }
    return items;
}
#endif
