/* SPDX-License-Identifier: MIT */
#include "../mpnet.h"
#include "mp_detect.h"

enum { MAX_THRESHOLDS = 16 }; /* one bit of uint16_t each */

static inline double smaller(double a, double b) { return a < b ? a : b; }
static inline double larger(double a, double b) { return a > b ? a : b; }

/* Intersection over union in double; over the detection's own area when the truth is a crowd. */
static double overlap(const float *detection, const double *truth, int crowd)
{
    const double x = detection[0], y = detection[1], dw = detection[2], dh = detection[3];
    const double w = smaller(dw + x, truth[2] + truth[0]) - larger(x, truth[0]);
    if (w <= 0) return 0;
    const double h = smaller(dh + y, truth[3] + truth[1]) - larger(y, truth[1]);
    if (h <= 0) return 0;
    const double shared = w * h, area = dw * dh;
    return shared / (crowd ? area : area + truth[2] * truth[3] - shared);
}

/* Cuts x, y, width, height at 0 and `limit` along one axis, with the roundings of Detections.clipped. */
static void clip(float *box, float limit, int axis)
{
    const float low = box[axis], high = low + box[axis + 2];
    float new_low = low > 0 ? low : 0, new_high = high > 0 ? high : 0;
    new_low = new_low < limit ? new_low : limit;
    new_high = new_high < limit ? new_high : limit;
    if (new_low != low || new_high != high) { /* an uncut width keeps its bits */
        box[axis] = new_low;
        box[axis + 2] = new_high - new_low;
    }
}

/* The truths of one image and category, those that count first (stable). */
typedef struct {
    const double *box;
    const uint8_t *crowd;
    int64_t count, counted;
    double *iou;     /* with the detection at hand */
    int32_t *order;  /* position -> truth */
    uint16_t *taken; /* per position, bit t: found at threshold t */
} cell;

static void open_cell(cell *c, const double *area, double low, double high)
{
    c->counted = 0;
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = c->counted;
        for (int64_t g = 0; g < c->count; g++) {
            const int ignored = c->crowd[g] || area[g] < low || area[g] > high;
            if (ignored == pass) c->order[at++] = (int32_t)g;
        }
        if (pass == 0) c->counted = at;
    }
    for (int64_t g = 0; g < c->count; g++) c->taken[g] = 0;
}

/* The position matched at one threshold, or -1: the highest overlap (the later one of equals) among free truths that
 * count; only without one among the ignored, of which crowds are never used up. */
static int64_t find_match(const cell *c, double threshold, int bit)
{
    int64_t match = -1;
    double best = smaller(threshold, 1 - 1e-10);
    for (int64_t p = 0; p < c->count; p++) {
        if (p == c->counted && match >= 0) break;
        if ((c->taken[p] >> bit & 1) && !c->crowd[c->order[p]]) continue;
        if (c->iou[p] >= best) {
            best = c->iou[p];
            match = p;
        }
    }
    return match;
}

int mp_match_coco(int32_t runs, int32_t images, int32_t categories, const int64_t *offsets, const int32_t *category,
                  const float *box, const float *image_wh, const int64_t *cell_offsets, const double *truth_box,
                  const double *truth_area, const uint8_t *truth_crowd, double area_low, double area_high,
                  const double *iou_thresholds, int32_t threshold_count, int32_t max_rank, void *scratch,
                  uint16_t *matched, uint16_t *ignored, int32_t *rank, int32_t *truth)
{
    if (runs < 0 || images < 0 || categories < 1 || threshold_count < 1 || threshold_count > MAX_THRESHOLDS ||
        max_rank < 0)
        return MP_BAD_ARGUMENT;
    const uint16_t all = (uint16_t)((1u << threshold_count) - 1);
    double lowest = iou_thresholds[0];
    for (int t = 1; t < threshold_count; t++) lowest = smaller(lowest, iou_thresholds[t]);
    lowest = smaller(lowest, 1 - 1e-10);
    for (int64_t looked_at = 0; looked_at < (int64_t)runs * images; looked_at++) {
        const int64_t image = looked_at % images;
        int32_t current = -1, position = 0;
        cell c = {0};
        int64_t first = 0;
        for (int64_t d = offsets[looked_at]; d < offsets[looked_at + 1]; d++, position++) {
            if (category[d] < 0 || category[d] >= categories || category[d] < current) return MP_BAD_ARGUMENT;
            if (category[d] != current) {
                current = category[d];
                position = 0;
                const int64_t *at = cell_offsets + image * categories + current;
                first = at[0];
                c.count = at[1] - at[0];
                c.box = truth_box + 4 * first;
                c.crowd = truth_crowd + first;
                c.iou = scratch;
                c.order = (int32_t *)(c.iou + c.count);
                c.taken = (uint16_t *)(c.order + c.count);
                open_cell(&c, truth_area + first, area_low, area_high);
            }
            rank[d] = position;
            matched[d] = 0;
            truth[d] = -1;
            if (position >= max_rank) {
                ignored[d] = all;
                continue;
            }
            float cut[4] = {box[4 * d], box[4 * d + 1], box[4 * d + 2], box[4 * d + 3]};
            if (image_wh) {
                clip(cut, image_wh[2 * image], 0);
                clip(cut, image_wh[2 * image + 1], 1);
            }
            const double area = (double)cut[2] * (double)cut[3];
            const uint16_t outside = area < area_low || area > area_high ? all : 0;
            double highest = -1;
            for (int64_t p = 0; p < c.count; p++) {
                c.iou[p] = overlap(cut, c.box + 4 * (int64_t)c.order[p], c.crowd[c.order[p]]);
                highest = larger(highest, c.iou[p]);
            }
            uint16_t hit = 0, hit_ignored = 0;
            if (highest >= lowest)
                for (int t = 0; t < threshold_count; t++) {
                    const int64_t match = find_match(&c, iou_thresholds[t], t);
                    if (match < 0) continue;
                    hit |= (uint16_t)(1u << t);
                    c.taken[match] |= (uint16_t)(1u << t);
                    if (match >= c.counted) hit_ignored |= (uint16_t)(1u << t);
                    if (t == 0) truth[d] = (int32_t)(first + c.order[match]);
                }
            matched[d] = hit;
            ignored[d] = (uint16_t)(hit_ignored | (outside & ~hit));
        }
    }
    return MP_OK;
}

int mp_best_overlap(int32_t images, int32_t categories, const int64_t *offsets, const int32_t *category,
                    const float *box, const int64_t *cell_offsets, const double *truth_box, double minimum,
                    int32_t *truth)
{
    if (images < 0 || categories < 1) return MP_BAD_ARGUMENT;
    for (int32_t image = 0; image < images; image++)
        for (int64_t d = offsets[image]; d < offsets[image + 1]; d++) {
            if (category[d] < 0 || category[d] >= categories) return MP_BAD_ARGUMENT;
            const int64_t *at = cell_offsets + (int64_t)image * categories + category[d];
            double best = minimum;
            truth[d] = -1;
            for (int64_t g = at[0]; g < at[1]; g++) {
                const double iou = overlap(box + 4 * d, truth_box + 4 * g, 0);
                if (iou > best) {
                    best = iou;
                    truth[d] = (int32_t)g;
                }
            }
        }
    return MP_OK;
}
