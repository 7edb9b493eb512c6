/* SPDX-License-Identifier: MIT */
#include "../mp_math.h"
#include "../mpnet.h"
#include "mp_detect.h"

enum { MAX_HEADS = 16, BLOCK = MP_NMS_BLOCK, FEW = 6 }; /* fewer boxes are quicker one by one */

/* Boxes kept so far of one class, relative to the image; arrays of their own, so that a block is compared at once.
 * The last block is filled up with boxes that overlap nothing. */
typedef struct {
    float *left, *top, *right, *bottom, *area, *x, *y;
    int64_t count;
} kept_boxes;

typedef struct {
    float left, top, right, bottom, area, x, y;
} corner_box;

typedef struct {
    int kind;
    float threshold, beta;
} overlap_rule;

static inline float smaller(float a, float b) { return a < b ? a : b; }
static inline float larger(float a, float b) { return a > b ? a : b; }

static corner_box corners(const float *box)
{
    const float half_w = box[2] / 2.0f, half_h = box[3] / 2.0f;
    const corner_box result = {box[0] - half_w, box[1] - half_h, box[0] + half_w, box[1] + half_h,
                               box[2] * box[3], box[0],          box[1]};
    return result;
}

static void keep(kept_boxes *kept, const corner_box *box)
{
    const int64_t k = kept->count++;
    if (k % BLOCK == 0)
        for (int64_t i = k; i < k + BLOCK; i++) {
            kept->left[i] = kept->top[i] = INFINITY;
            kept->right[i] = kept->bottom[i] = -INFINITY;
            kept->area[i] = 1.0f;
        }
    kept->left[k] = box->left;
    kept->top[k] = box->top;
    kept->right[k] = box->right;
    kept->bottom[k] = box->bottom;
    kept->area[k] = box->area;
    kept->x[k] = box->x;
    kept->y[k] = box->y;
}

/* Whether kept box k suppresses b. */
static int suppresses(const kept_boxes *kept, int64_t k, const corner_box *b, const overlap_rule *rule)
{
    const float w = smaller(kept->right[k], b->right) - larger(kept->left[k], b->left);
    const float h = smaller(kept->bottom[k], b->bottom) - larger(kept->top[k], b->top);
    /* Boxes apart have IoU 0, and the distance term only lowers it. */
    if (!(w > 0.0f) || !(h > 0.0f)) return 0;
    const float shared = w * h;
    float overlap = shared / (kept->area[k] + b->area - shared);
    if (!(overlap > rule->threshold)) return 0;
    if (rule->kind == MP_NMS_DISTANCE) {
        const float cw = larger(kept->right[k], b->right) - smaller(kept->left[k], b->left);
        const float ch = larger(kept->bottom[k], b->bottom) - smaller(kept->top[k], b->top);
        const float dx = kept->x[k] - b->x, dy = kept->y[k] - b->y;
        const float diagonal = cw * cw + ch * ch;
        if (diagonal > 0.0f) overlap -= mp_powf((dx * dx + dy * dy) / diagonal, rule->beta);
    }
    return overlap > rule->threshold;
}

/* Whether any box of the block that begins at k may suppress b. Only saves work: it asks for 0.999 of the IoU and so
 * never misses one, whatever the roundings. No branches, so that compilers make vectors of it. */
static int block_overlaps(const kept_boxes *kept, int64_t k, const corner_box *b, float threshold)
{
    const float *left = kept->left + k, *top = kept->top + k, *right = kept->right + k, *bottom = kept->bottom + k;
    const float *area = kept->area + k;
    const float bound = 0.999f * threshold;
    int any = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float w = smaller(right[i], b->right) - larger(left[i], b->left);
        const float h = smaller(bottom[i], b->bottom) - larger(top[i], b->top);
        const float shared = larger(w, 0.0f) * larger(h, 0.0f);
        any |= shared >= bound * (area[i] + b->area - shared);
    }
    return any;
}

static int is_suppressed(const kept_boxes *kept, const corner_box *b, const overlap_rule *rule)
{
    for (int64_t first = 0; first < kept->count; first += BLOCK) {
        const int64_t last = first + BLOCK < kept->count ? first + BLOCK : kept->count;
        if (last - first >= FEW && !block_overlaps(kept, first, b, rule->threshold)) continue;
        for (int64_t k = first; k < last; k++)
            if (suppresses(kept, k, b, rule)) return 1;
    }
    return 0;
}

/* The head whose next entry comes first: lowest class, then highest score, then lowest head. -1 at the end. */
static int next_head(const mp_candidates *heads, int32_t head_count, const int64_t *at, const int64_t *end)
{
    int best = -1;
    int32_t best_category = 0;
    float best_score = 0.0f;
    for (int h = 0; h < head_count; h++) {
        if (at[h] == end[h]) continue;
        const int32_t category = heads[h].category[at[h]];
        const float score = heads[h].score[at[h]];
        if (best < 0 || category < best_category || (category == best_category && score > best_score)) {
            best = h;
            best_category = category;
            best_score = score;
        }
    }
    return best;
}

int mp_nms(const mp_candidates *heads, int32_t head_count, int kind, float threshold, float beta, const float *image_wh,
           int64_t fullest, float *scratch, int64_t *out_offsets, int32_t *out_category, float *out_score,
           float *out_box)
{
    if (head_count < 1 || head_count > MAX_HEADS || (kind != MP_NMS_IOU && kind != MP_NMS_DISTANCE) ||
        !(threshold >= 0.0f) || !(beta > 0.0f) || fullest < 0)
        return MP_BAD_ARGUMENT;
    for (int h = 1; h < head_count; h++)
        if (heads[h].images != heads[0].images) return MP_BAD_SHAPE;
    const overlap_rule rule = {kind, threshold, beta};
    const int64_t room = fullest + BLOCK;
    kept_boxes kept = {scratch,
                       scratch + room,
                       scratch + 2 * room,
                       scratch + 3 * room,
                       scratch + 4 * room,
                       scratch + 5 * room,
                       scratch + 6 * room,
                       0};
    int64_t out = 0, at[MAX_HEADS], end[MAX_HEADS];
    out_offsets[0] = 0;
    for (int32_t image = 0; image < heads[0].images; image++) {
        int32_t category = -1;
        int64_t entries = 0;
        const float width = image_wh[2 * (int64_t)image], height = image_wh[2 * (int64_t)image + 1];
        for (int h = 0; h < head_count; h++) {
            at[h] = heads[h].offsets[image];
            end[h] = heads[h].offsets[image + 1];
            entries += end[h] - at[h];
        }
        if (entries > fullest) return MP_BAD_ARGUMENT;
        for (int h; (h = next_head(heads, head_count, at, end)) >= 0;) {
            const int64_t entry = at[h]++;
            const float *box = heads[h].box + 4 * entry;
            if (heads[h].category[entry] != category) {
                category = heads[h].category[entry];
                kept.count = 0;
            }
            const corner_box candidate = corners(box);
            if (is_suppressed(&kept, &candidate, &rule)) continue;
            keep(&kept, &candidate);
            out_category[out] = category;
            out_score[out] = heads[h].score[entry];
            out_box[4 * out] = candidate.left * width;
            out_box[4 * out + 1] = candidate.top * height;
            out_box[4 * out + 2] = box[2] * width;
            out_box[4 * out + 3] = box[3] * height;
            out++;
        }
        out_offsets[image + 1] = out;
    }
    return MP_OK;
}
