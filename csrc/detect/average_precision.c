#include "../mpnet.h"
#include "mp_detect.h"
#include "sort.h"

int mp_order_by_category(int32_t categories, int64_t count, const int32_t *category, const float *score, void *scratch,
                         int64_t *order, int64_t *start)
{
    mp_sort_item *items = scratch, *spare = items + count;
    for (int32_t c = 0; c <= categories; c++)
        start[c] = 0;
    for (int64_t d = 0; d < count; d++) {
        if (category[d] < 0 || category[d] >= categories)
            return MP_BAD_ARGUMENT;
        start[category[d] + 1]++;
    }
    for (int32_t c = 0; c < categories; c++)
        start[c + 1] += start[c];
    /* Into its category first: start serves as the cursor and ends one category further. */
    for (int64_t d = 0; d < count; d++) {
        mp_sort_item *item = &items[start[category[d]]++];
        item->key = mp_sort_key(0, score[d]);
        item->index = d;
    }
    for (int32_t c = categories; c > 0; c--)
        start[c] = start[c - 1];
    start[0] = 0;
    for (int32_t c = 0; c < categories; c++) {
        const mp_sort_item *sorted = mp_sort(items + start[c], spare, start[c + 1] - start[c]);
        for (int64_t i = start[c]; i < start[c + 1]; i++)
            order[i] = sorted[i - start[c]].index;
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
    while (k + 1 < RECALL_POINTS && recall_point(k + 1) <= recall)
        k++;
    while (k >= 0 && recall_point(k) > recall)
        k--;
    return k + 1;
}

/* The state after one true positive. */
typedef struct {
    double precision;
    int64_t points;
} step;

static void category_precision(int64_t first, int64_t last, int bit, const uint16_t *matched, const uint16_t *ignored,
                               const int32_t *rank, const int32_t *image, const int32_t *weight, int32_t max_rank,
                               int64_t positives, step *steps, double *precision, double *recall)
{
    int64_t true_positives = 0, false_positives = 0, count = 0;
    for (int64_t d = first; d < last; d++) {
        if ((ignored[d] >> bit & 1) || rank[d] >= max_rank)
            continue;
        const int64_t times = weight ? weight[image[d]] : 1;
        if (!(matched[d] >> bit & 1)) {
            false_positives += times;
        } else if (times > 0) {
            true_positives += times;
            steps[count].precision = (double)true_positives / (double)(true_positives + false_positives);
            steps[count].points = points_reached((double)true_positives / (double)positives);
            count++;
        }
    }
    /* The precision at a recall point is the highest at that recall or beyond; it can only be one of a true positive. */
    double sum = 0, highest = 0;
    for (int64_t s = count - 1; s >= 0; s--) {
        if (steps[s].precision > highest)
            highest = steps[s].precision;
        sum += highest * (double)(steps[s].points - (s > 0 ? steps[s - 1].points : 0));
    }
    *precision = sum / RECALL_POINTS;
    *recall = (double)true_positives / (double)positives;
}

int mp_average_precision(int32_t images, int32_t categories, int32_t threshold_count, const int64_t *start,
                         const uint16_t *matched, const uint16_t *ignored, const int32_t *rank, const int32_t *image,
                         const int32_t *positives, int32_t draws, const int32_t *weight, int32_t max_rank,
                         void *scratch, double *precision, double *recall)
{
    if (images < 0 || categories < 1 || threshold_count < 1 || threshold_count > 16 || draws < 0 ||
        (!weight && draws != 1))
        return MP_BAD_ARGUMENT;
    for (int32_t draw = 0; draw < draws; draw++) {
        const int32_t *times = weight ? weight + (int64_t)draw * images : NULL;
        for (int32_t c = 0; c < categories; c++) {
            int64_t total = 0;
            for (int32_t i = 0; i < images; i++)
                total += (int64_t)positives[(int64_t)i * categories + c] * (times ? times[i] : 1);
            for (int32_t t = 0; t < threshold_count; t++) {
                const int64_t out = ((int64_t)draw * categories + c) * threshold_count + t;
                precision[out] = recall[out] = -1;
                if (total > 0)
                    category_precision(start[c], start[c + 1], t, matched, ignored, rank, image, times, max_rank,
                                       total, scratch, &precision[out], &recall[out]);
            }
        }
    }
    return MP_OK;
}
