/* SPDX-License-Identifier: MIT */
#include "../mpnet.h"
#include "mp_detect.h"
#include "sort.h"

int mp_order_by_category(int32_t categories, int64_t count, const int32_t *category, const float *score, void *scratch,
                         int64_t *order, int64_t *start)
{
    mp_sort_item *items = scratch, *spare = items + count;
    for (int32_t c = 0; c <= categories; c++) start[c] = 0;
    for (int64_t d = 0; d < count; d++) {
        if (category[d] < 0 || category[d] >= categories) return MP_BAD_ARGUMENT;
        start[category[d] + 1]++;
    }
    for (int32_t c = 0; c < categories; c++) start[c + 1] += start[c];
    /* Into its category first: start serves as the cursor and ends one category further. */
    for (int64_t d = 0; d < count; d++) {
        mp_sort_item *item = &items[start[category[d]]++];
        item->key = mp_sort_key(0, score[d]);
        item->index = d;
    }
    for (int32_t c = categories; c > 0; c--) start[c] = start[c - 1];
    start[0] = 0;
    for (int32_t c = 0; c < categories; c++) {
        const mp_sort_item *sorted = mp_sort(items + start[c], spare, start[c + 1] - start[c]);
        for (int64_t i = start[c]; i < start[c + 1]; i++) order[i] = sorted[i - start[c]].index;
    }
    return MP_OK;
}

enum { RECALL_POINTS = 101 };

/* Recall k of 0, 0.01, ... 1. The product has the rounding of numpy.linspace(0, 1, 101), the last is exactly 1. */
static inline double recall_point(int k) { return k == RECALL_POINTS - 1 ? 1.0 : k * 0.01; }

/* How many of the 101 recall points are <= recall. */
static inline int points_reached(double recall)
{
    int k = (int)(recall * (RECALL_POINTS - 1)); /* right or one off */
    while (k + 1 < RECALL_POINTS && recall_point(k + 1) <= recall) k++;
    while (k >= 0 && recall_point(k) > recall) k--;
    return k + 1;
}

/* The counts after one true positive; later its precision in the place of the false ones. */
typedef struct {
    int64_t right;
    union {
        int64_t wrong;
        double precision;
    } u;
} step;

/* times: per detection of this category how often it counts. given: truths found before all detections. points: by the
 * number of right ones, see points_reached. steps: room for count + 1. */
static void category_precision(int64_t count, const uint16_t *matched, const uint16_t *ignored, const int32_t *times,
                               int bit, int64_t given, int64_t positives, const uint8_t *points, step *steps,
                               double *precision, double *recall)
{
    int64_t right = given, wrong = 0, found = 0;
    steps[0].right = right;
    steps[0].u.wrong = 0;
    found += given > 0;
    /* Without branches: whether a detection is right is as good as random. */
    for (int64_t d = 0; d < count; d++) {
        const int64_t hit = matched[d] >> bit & 1, kept = ~(ignored[d] >> bit) & 1;
        const int64_t weight = kept ? times[d] : 0;
        right += hit * weight;
        wrong += weight - hit * weight;
        steps[found].right = right;
        steps[found].u.wrong = wrong;
        found += hit & (weight > 0);
    }
    for (int64_t s = 0; s < found; s++)
        steps[s].u.precision = (double)steps[s].right / (double)(steps[s].right + steps[s].u.wrong);
    /* The precision at a recall point is the highest at that recall or beyond; it can only be one of a true positive. */
    double sum = 0, highest = 0;
    for (int64_t s = found - 1; s >= 0; s--) {
        highest = steps[s].u.precision > highest ? steps[s].u.precision : highest;
        sum += highest * (points[steps[s].right] - (s > 0 ? points[steps[s - 1].right] : 0));
    }
    *precision = sum / RECALL_POINTS;
    *recall = (double)right / (double)positives;
}

int mp_average_precision(int32_t images, int32_t categories, int32_t threshold_count, const int64_t *start,
                         const uint16_t *matched, const uint16_t *ignored, const int32_t *rank, const int32_t *image,
                         const int32_t *positives, const int32_t *given, int32_t draws, const int32_t *weight,
                         int32_t max_rank, void *scratch, double *precision, double *recall)
{
    if (images < 0 || categories < 1 || threshold_count < 1 || threshold_count > 16 || draws < 0 ||
        (!weight && draws != 1))
        return MP_BAD_ARGUMENT;
    for (int32_t draw = 0; draw < draws; draw++) {
        const int32_t *drawn = weight ? weight + (int64_t)draw * images : NULL;
        for (int32_t c = 0; c < categories; c++) {
            const int64_t first = start[c], count = start[c + 1] - first;
            step *steps = scratch;
            int32_t *times = (int32_t *)(steps + count + 1);
            const int64_t first_right = given ? given[c] : 0;
            int64_t total = first_right;
            for (int32_t i = 0; i < images; i++)
                total += (int64_t)positives[(int64_t)i * categories + c] * (drawn ? drawn[i] : 1);
            for (int64_t d = 0; d < count; d++)
                times[d] = rank[first + d] >= max_rank ? 0 : drawn ? drawn[image[first + d]] : 1;
            /* No more than `total` detections can be right, each truth being found once. */
            uint8_t *points = (uint8_t *)(times + count);
            for (int64_t right = 0; right <= total && total > 0; right++)
                points[right] = (uint8_t)points_reached((double)right / (double)total);
            for (int32_t t = 0; t < threshold_count; t++) {
                const int64_t out = ((int64_t)draw * categories + c) * threshold_count + t;
                precision[out] = recall[out] = -1;
                if (total > 0)
                    category_precision(count, matched + first, ignored + first, times, t, first_right, total, points,
                                       steps, &precision[out], &recall[out]);
            }
        }
    }
    return MP_OK;
}
