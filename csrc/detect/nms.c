#include "../mp_math.h"
#include "../mpnet.h"
#include "mp_detect.h"

enum { MAX_HEADS = 16 };

/* A kept box: corners, area, centre; relative to the picture. */
typedef struct {
    float left, top, right, bottom, area, x, y, unused;
} kept_box;

static inline float smaller(float a, float b) { return a < b ? a : b; }
static inline float larger(float a, float b) { return a > b ? a : b; }

static kept_box corners(const float *box)
{
    const float half_w = box[2] / 2.0f, half_h = box[3] / 2.0f;
    const kept_box result = {box[0] - half_w, box[1] - half_h, box[0] + half_w, box[1] + half_h,
                             box[2] * box[3], box[0],          box[1],          0.0f};
    return result;
}

static int suppresses(const kept_box *a, const kept_box *b, int kind, float threshold, float beta)
{
    const float w = smaller(a->right, b->right) - larger(a->left, b->left);
    const float h = smaller(a->bottom, b->bottom) - larger(a->top, b->top);
    /* Boxes apart have IoU 0, and the distance term only lowers it. */
    if (!(w > 0.0f) || !(h > 0.0f))
        return 0;
    const float shared = w * h;
    float overlap = shared / (a->area + b->area - shared);
    if (!(overlap > threshold))
        return 0;
    if (kind == MP_NMS_DISTANCE) {
        const float cw = larger(a->right, b->right) - smaller(a->left, b->left);
        const float ch = larger(a->bottom, b->bottom) - smaller(a->top, b->top);
        const float dx = a->x - b->x, dy = a->y - b->y;
        const float diagonal = cw * cw + ch * ch;
        if (diagonal > 0.0f)
            overlap -= mp_powf((dx * dx + dy * dy) / diagonal, beta);
    }
    return overlap > threshold;
}

/* The head whose next entry comes first: lowest class, then highest score, then lowest head. -1 at the end. */
static int next_head(const mp_candidates *heads, int32_t head_count, const int64_t *at, const int64_t *end)
{
    int best = -1;
    int32_t best_category = 0;
    float best_score = 0.0f;
    for (int h = 0; h < head_count; h++) {
        if (at[h] == end[h])
            continue;
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

int mp_nms(const mp_candidates *heads, int32_t head_count, int kind, float threshold, float beta,
           const float *picture_wh, float *scratch, int64_t *out_offsets, int32_t *out_category, float *out_score,
           float *out_box)
{
    if (head_count < 1 || head_count > MAX_HEADS || (kind != MP_NMS_IOU && kind != MP_NMS_DISTANCE) ||
        !(threshold >= 0.0f) || !(beta > 0.0f))
        return MP_BAD_ARGUMENT;
    for (int h = 1; h < head_count; h++)
        if (heads[h].images != heads[0].images)
            return MP_BAD_SHAPE;
    int64_t out = 0, at[MAX_HEADS], end[MAX_HEADS];
    out_offsets[0] = 0;
    for (int32_t image = 0; image < heads[0].images; image++) {
        kept_box *kept = (kept_box *)scratch;
        int64_t kept_count = 0;
        int32_t category = -1;
        const float width = picture_wh[2 * (int64_t)image], height = picture_wh[2 * (int64_t)image + 1];
        for (int h = 0; h < head_count; h++) {
            at[h] = heads[h].offsets[image];
            end[h] = heads[h].offsets[image + 1];
        }
        for (int h; (h = next_head(heads, head_count, at, end)) >= 0;) {
            const int64_t entry = at[h]++;
            const float *box = heads[h].box + 4 * entry;
            if (heads[h].category[entry] != category) {
                category = heads[h].category[entry];
                kept_count = 0;
            }
            const kept_box candidate = corners(box);
            int64_t k = 0;
            while (k < kept_count && !suppresses(&kept[k], &candidate, kind, threshold, beta))
                k++;
            if (k < kept_count)
                continue;
            kept[kept_count++] = candidate;
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
