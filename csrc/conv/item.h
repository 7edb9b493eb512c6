/* SPDX-License-Identifier: MIT */
/* One item of a convolution: (image, block of the result, range of panels), and what every algorithm does with it. Internal. */
#ifndef MP_CONV_ITEM_H
#define MP_CONV_ITEM_H
#include "pack.h"
#include "schedule.h"

typedef struct {
    const mp_conv_plan *plan;
    const mp_table *table;
    const mp_conv_args *args;
    const mp_schedule *schedule;
    int image, block;
    int first_panel, last_panel; /* before last_panel */
    /* Parts of the thread's scratch, as mp_scratch has them. */
    char *stage, *unpaired, *converted, *split_bytes, *transformed, *sums, *part, *tile, *weights, *kernels,
        *multipliers, *pool;
    const char *unpacked;       /* stored weights that stand in `weights` */
    const char *multipliers_of; /* the stored panel whose multipliers stand unpacked in `multipliers` */
    float *bias, *scale;
    void *init; /* starting values per packed channel: bias, 0 or the zero point's correction */
    char *zeros;
    ptrdiff_t *segments;
    mp_output output;
    mp_requantized requantized; /* in place of it where args->multiplier says so */
    int matrix_rows;            /* of the matrix unit's tiles; 0: it is not in use */
} mp_item;
_Static_assert(sizeof(mp_item) <= MP_ITEM_BYTES, "an item has its place in scratch");

static inline int mp_is_staged(const mp_item *item)
{
    return item->plan->staged || (item->plan->codes && item->args->converts);
}

/* What an item leaves behind; combined afterwards in any order, which changes nothing. */
typedef struct {
    float minimum, maximum;
    int bad;
} mp_summary;

/* Full tiles, and the last two of about equal height: small tiles leave the multipliers waiting. */
static inline int mp_tile_rows(int left, int mr)
{
    if (left >= 2 * mr || left <= mr || left - mr > mr / 2) return left < mr ? left : mr;
    return (left + 1) / 2;
}

/* The stored weights after those at b (depth x nr of them) are needed next: each of the tiles that use b fetches its share. */
typedef struct {
    const char *from;
    ptrdiff_t step, per_tile;
} mp_ahead;
static inline mp_ahead mp_ahead_of(const mp_conv_plan *plan, const void *b, int depth, int pixels)
{
    const int steps = depth / plan->step, tiles = (pixels + plan->micro->mr - 1) / plan->micro->mr;
    const ptrdiff_t per_step = (ptrdiff_t)plan->micro->nr * plan->step * plan->stored_bits / 8;
    mp_ahead ahead = {(const char *)b + steps * per_step, per_step / tiles, 0};
    ahead.per_tile = steps * ahead.step;
    return ahead;
}

/* Scratch, bias, scale, starting values: the same for all items of an image that a thread runs. */
void mp_item_prepare(mp_item *item, char *scratch);
/* The next of them. chunk: of the schedule's ranges of panels. */
void mp_item_begin(mp_item *item, int block, int chunk);
/* Multipliers of a panel's groups as they were unpacked, NULL without groups; valid until the next panel. */
const int8_t *mp_item_multipliers(mp_item *item, const char *stored);
/* Direct: weights first .. first + count of a panel that is stored at `stored`, as tiles read them; valid until the next call. */
const char *mp_item_weights(mp_item *item, const char *stored, size_t first, size_t count);
/* Of codes: the zero point of this image; else 0. */
int mp_item_zero_point(const mp_item *item);
/* A pixel of the real 0 as lines of the input hold it (mp_depthwise.lines). */
const char *mp_item_zeros(const mp_item *item);
/* Pads and converts `count` input rows, from the first that output row oy reads. */
void mp_item_stage(const mp_item *item, int oy, int count);
/* Pools rows x width results of some channels, dense in item->pool, whose first pixel is (oy, ox), both even,
 * and measures them where that is asked for. */
void mp_item_pool(mp_item *item, int oy, int ox, int rows, int width, int channel, int channels);
mp_summary mp_item_summarise(const mp_item *item);

/* The output stage of this item: rows x channels sums of packed channels from `channel` on. */
static inline void mp_item_output(mp_item *item, const void *sums, size_t acc_ld, int rows, int channels, int channel,
                                  void *out, size_t out_ld)
{
    const mp_conv_plan *plan = item->plan;
    if (!item->args->multiplier) {
        item->table->output(&item->output, sums, acc_ld, rows, channels, channel, out, out_ld);
        return;
    }
    const int width = plan->panels * plan->micro->nr; /* packed channels of a group */
    if (!plan->depthwise) channel = channel / width * plan->group_out + channel % width;
    item->table->requantize(&item->requantized, sums, acc_ld, rows, channels, channel, out, out_ld);
}
#endif
