/* What direct and Winograd convolutions share while they run one item. Internal. */
#ifndef MP_CONV_ITEM_H
#define MP_CONV_ITEM_H
#include "conv_plan.h"

/* Pointers into one thread's part of the scratch. */
typedef struct {
    char *stage, *sums, *pool;
    float *bias, *scale;
    void *init;           /* starting values per packed channel: bias, 0 or the zero point's correction */
    ptrdiff_t *seg;
    const char *soon;     /* what the thread's next block will stage, fetched ahead, */
    ptrdiff_t soon_step;  /* so many bytes per step of a tile; 0: weights are fetched instead */
} mp_workspace;

/* What an item leaves behind; combined afterwards in any order, which changes nothing. */
typedef struct {
    float minimum, maximum;
    int bad;
} mp_summary;

/* Of one input element at a precision. */
static inline size_t mp_source_bytes(int precision)
{
    return precision == MP_INT8 ? 1 : precision == MP_FP16 || precision == MP_FP16_HALF ? 2 : 4;
}
static inline size_t mp_type_bytes(int type) { return type == MP_TYPE_F32 ? 4 : type == MP_TYPE_F16 ? 2 : 1; }

/* Full tiles, and the last two of about equal height: small tiles leave the multipliers waiting. */
static inline int mp_tile_rows(int left, int mr)
{
    if (left >= 2 * mr || left <= mr || left - mr > mr / 2)
        return left < mr ? left : mr;
    return (left + 1) / 2;
}

/* The weights after those at b (depth x nr of them) are needed next: each of the tiles that use b fetches its share. */
typedef struct {
    const char *from;
    ptrdiff_t step, per_tile;
} mp_ahead;
static inline mp_ahead mp_ahead_of(const mp_conv_plan *p, const void *b, int depth, int pixels)
{
    const int steps = depth / p->micro->kstep, tiles = (pixels + p->micro->mr - 1) / p->micro->mr;
    const ptrdiff_t per_step = (ptrdiff_t)p->micro->nr * p->micro->kstep * (ptrdiff_t)p->weight_bytes;
    mp_ahead ahead = {(const char *)b + steps * per_step, per_step / tiles, 0};
    ahead.per_tile = steps * ahead.step;
    return ahead;
}

/* Bias, scale, starting values and the output stage's state for one image. */
void mp_prepare_channels(const mp_conv_plan *p, const mp_conv_args *a, int image, mp_workspace *w, mp_output *o);
/* Pads and converts `count` input rows, from the first that output row oy reads. */
void mp_stage_rows(const mp_conv_plan *p, const mp_conv_args *a, const mp_schedule *c, int image, int oy, int count,
                   char *staged);
mp_summary mp_summarise(const mp_output *o);
/* Pools rows x width results of some channels, dense in `block`, whose first pixel is (oy, ox), both even. */
void mp_pool_block(const mp_table *table, const mp_conv_args *a, int image, int oy, int ox, int rows, int width,
                   int channel, int channels, const char *block);
mp_summary mp_winograd_item(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c,
                            int image, int block, int chunk, char *scratch);
#endif
