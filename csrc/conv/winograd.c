/* SPDX-License-Identifier: MIT */
/* Winograd convolutions. An item's input tiles are transformed once; then for a group of panels all 36 products
 * transformed[position] x weights[panel][position] run through the ordinary tile kernels, and the output transform brings
 * 4x4 pixels back, which go through the ordinary output stage. */
#include "winograd.h"
#include <string.h>
#include "groups.h"
#include "narrow.h"

/* All tiles of one panel at one position, over `depth` channels from the first on: sums[tile][nr]. */
static void multiply(const mp_item *item, const char *transformed, int tiles, int position, int first, int depth,
                     const char *weights, char *sums, mp_ahead *ahead)
{
    const mp_conv_plan *plan = item->plan;
    const mp_micro *micro = plan->micro;
    const size_t tile_bytes = item->schedule->transformed_bytes;
    const char *from = transformed + (size_t)position * tiles * tile_bytes + (size_t)first * plan->a_bytes,
               *a[MP_MAX_ROWS];
    const ptrdiff_t segment = 0;
    for (int tile = 0; tile < tiles; ahead->from += ahead->per_tile) {
        const int rows = mp_tile_rows(tiles - tile, micro->mr);
        for (int r = 0; r < micro->mr; r++) a[r] = from + (size_t)(tile + (r < rows ? r : rows - 1)) * tile_bytes;
        micro->tile(a, &segment, 1, depth, weights, first ? 0 : item->zeros, sums + (size_t)tile * micro->nr * 4, rows,
                    micro->nr, ahead->from, ahead->step);
        tile += rows;
    }
}

/* Products of panels first .. first + panels, whose transformed weights lie in memory: [position][panel]. */
static void multiply_stored(mp_item *item, int tiles, int first, int panels)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const size_t panel_bytes = (size_t)plan->run_padded * plan->micro->nr * plan->weight_bytes,
                 position_bytes = (size_t)tiles * plan->micro->nr * 4;
    const char *stored = mp_packed_weights(plan, item->args->packed);
    for (int position = 0; position < MP_POSITIONS; position++)
        for (int i = 0; i < panels; i++) {
            const char *weights = stored + ((size_t)position * plan->total_panels + first + i) * panel_bytes;
            mp_ahead ahead = mp_ahead_of(plan, weights, plan->run_padded, tiles * plan->byte_planes);
            for (int plane = 0; plane < plan->byte_planes; plane++)
                multiply(item, item->transformed + plane * schedule->lower_transformed, tiles, position, 0,
                         plan->run_padded, weights,
                         item->sums + plane * schedule->lower_sums +
                             (size_t)(i * MP_POSITIONS + position) * position_bytes,
                         &ahead);
        }
}

/* Narrow weights of a panel's channels first .. first + depth, a group after the other: [position][step][nr][kstep]. */
static void transform_narrow(mp_item *item, const char *stored, int first, int depth)
{
    const mp_conv_plan *plan = item->plan;
    const int bits = plan->traits->bits, nr = plan->micro->nr;
    const int8_t *multipliers = mp_item_multipliers(item, stored);
    for (int c = first; c < first + depth; c += MP_GROUP) {
        const size_t tap = mp_winograd_tap(plan, c);
        item->table->unpack(stored + mp_narrow_bytes(mp_winograd_codes(plan, c), bits), mp_narrow_blocks(9 * tap), bits,
                            MP_W_I8, plan->micro, multipliers ? multipliers + c / MP_GROUP * 9 * nr : 0,
                            mp_narrow_blocks(tap), item->weights);
        item->table->winograd_weights((const int8_t *)item->weights, tap,
                                      (size_t)clamp(first + depth - c, 0, MP_GROUP) * nr,
                                      (int16_t *)item->kernels + (size_t)(c - first) * nr);
    }
}

/* The same of narrow weights, which lie as they are. */
static void multiply_narrow(mp_item *item, int tiles, int panel)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const int nr = plan->micro->nr;
    const size_t position_bytes = (size_t)tiles * nr * 4;
    const char *stored = mp_packed_weights(plan, item->args->packed) + panel * plan->stored_bytes;
    for (int first = 0, depth; first < plan->run_padded; first += depth) {
        depth = clamp(plan->run_padded - first, 1, mp_kernel_channels(nr));
        transform_narrow(item, stored, first, depth);
        /* The input of all positions is read again for every panel, and may have left the second cache level. */
        const int steps = depth / plan->micro->kstep * ceil_div(tiles, plan->micro->mr);
        const size_t input = tiles * schedule->transformed_bytes;
        for (int position = 0; position < MP_POSITIONS; position++) {
            for (int plane = 0; plane < plan->byte_planes; plane++) {
                const char *transformed = item->transformed + plane * schedule->lower_transformed;
                mp_ahead ahead = {transformed + (position + 1) % MP_POSITIONS * input, (ptrdiff_t)input / steps + 1, 0};
                ahead.per_tile = depth / plan->micro->kstep * ahead.step;
                multiply(item, transformed, tiles, position, first, depth,
                         item->kernels + position * mp_kernel_elements() * sizeof(int16_t),
                         item->sums + plane * schedule->lower_sums + (size_t)position * position_bytes, &ahead);
            }
        }
    }
}

/* Sums of rows x width pixels from (oy, ox) on, row_bytes from one row to the next, with those that they begin from. */
static void add_sums(const mp_item *item, char *tile, size_t row_bytes, int oy, int ox, int rows, int width,
                     int channel, int channels)
{
    const mp_conv_plan *plan = item->plan;
    const size_t first = ((size_t)item->image * plan->out_h + oy) * plan->out_w + ox;
    for (int r = 0; r < rows; r++, tile += row_bytes)
        for (int x = 0; x < width; x++) {
            const uint32_t *from = (const uint32_t *)item->args->sums +
                                   (first + (size_t)r * plan->out_w + x) * plan->shape.out_c + channel;
            uint32_t *to = (uint32_t *)tile + (size_t)x * plan->micro->nr; /* unsigned: they may wrap, and wrap back */
            for (int c = 0; c < channels; c++) to[c] += from[c];
        }
}

/* One panel of all tiles, from t0 on: products -> pixels -> the result, or pooled tiles of a row. A few tiles side by side go
 * through the output stage at once. */
static void finish(mp_item *item, int t0, int tiles, int panel, const char *products)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const mp_schedule *schedule = item->schedule;
    const int nr = plan->micro->nr, tiles_x = schedule->tiles_x, windows = schedule->windows,
              apart = args->pool_h && !windows, side = windows ? 2 : 1; /* pooled apart; of what makes a result */
    const int channel = panel * nr, channels = clamp(plan->shape.out_c - channel, 1, nr);
    const size_t out_bytes = mp_type_bytes(args->out_type), position_bytes = (size_t)tiles * nr * 4;
    const size_t tile_row = (size_t)MP_TILES_TOGETHER * MP_TILE * nr;
    /* Tiles of one row, from ox0 to ox1: pooled together. */
    for (int t = 0, count, ox0 = 0, ox1 = 0; t < tiles; t += count) {
        const int oy = (t0 + t) / tiles_x * MP_TILE, ox = (t0 + t) % tiles_x * MP_TILE;
        if (t == 0 || ox == 0) ox0 = ox, ox1 = clamp(plan->out_w, 1, ox + (tiles - t) * MP_TILE);
        count = clamp(ceil_div(ox1 - ox, MP_TILE), 1, MP_TILES_TOGETHER);
        const int height = clamp(plan->out_h - oy, 1, MP_TILE), width = clamp(ox1 - ox, 1, count * MP_TILE);
        const int out_h = plan->out_h / side, out_w = plan->out_w / side; /* windows are whole */
        const size_t pixel = ((size_t)item->image * out_h + oy / side) * out_w + ox / side;
        char *to = apart ? item->pool + (size_t)(ox - ox0) * channels * out_bytes
                         : (char *)args->out + (pixel * plan->shape.out_c + channel) * out_bytes;
        const size_t to_ld = (size_t)(apart ? channels : plan->shape.out_c);
        const size_t to_row = to_ld * (size_t)(apart ? ox1 - ox0 : out_w);
        for (int r = 0; r < height / side && !apart; r++)
            mp_fetch_results(to + r * to_row * out_bytes, width / side, to_ld * out_bytes, channels * out_bytes);
        for (int i = 0; i < count * plan->byte_planes; i++) {
            const size_t plane = i >= count, at = plane ? i - count : i;
            plan->winograd->output(products + plane * schedule->lower_sums + (t + at) * nr * 4, position_bytes,
                                   (const char *)item->init + plane * schedule->lower_init + (size_t)channel * 4,
                                   item->tile + plane * schedule->lower_tile + at * MP_TILE * side * nr * 4, tile_row,
                                   nr, windows);
        }
        if (args->sums) add_sums(item, item->tile, tile_row * 4, oy, ox, height, width, channel, channels);
        for (int r = 0; r < height / side; r++) {
            const char *sums = item->tile + r * side * tile_row * 4;
            char *results = to + r * to_row * out_bytes;
            if (args->gives_sums)
                for (int x = 0; x < width; x++)
                    memcpy(results + x * to_ld * 4, sums + (size_t)x * nr * 4, (size_t)channels * 4);
            else
                mp_item_output(item, sums, (size_t)nr, width * side, channels, channel, results, to_ld);
        }
        if (apart && ox + width == ox1) mp_item_pool(item, oy, ox0, height, ox1 - ox0, channel, channels);
    }
}

/* Of the item's block. */
static int block_tiles(const mp_item *item)
{
    const mp_schedule *schedule = item->schedule;
    const int all = ceil_div(item->plan->out_h, MP_TILE) * schedule->tiles_x;
    return clamp(schedule->tiles, 0, all - item->block * schedule->tiles);
}

void mp_winograd_transform(mp_item *item, int part, int parts)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const int tiles_x = schedule->tiles_x, tiles = block_tiles(item), t0 = item->block * schedule->tiles;
    const int first = (int)((int64_t)tiles * part / parts), last = (int)((int64_t)tiles * (part + 1) / parts);
    if (first == last) return;
    const int ty0 = (t0 + first) / tiles_x, tile_rows = (t0 + last - 1) / tiles_x - ty0 + 1;
    mp_item_stage(item, ty0 * MP_TILE, tile_rows * MP_TILE + 2);
    const size_t pixel = (size_t)plan->shape.in_c * plan->a_bytes;
    for (int plane = 0; plane < plan->byte_planes; plane++) {
        const char *stage = item->stage + plane * schedule->lower_stage;
        char *transformed = item->transformed + plane * schedule->lower_transformed;
        for (int t = first; t < last; t++) {
            const int ty = (t0 + t) / tiles_x - ty0, tx = (t0 + t) % tiles_x;
            const char *from = stage + (size_t)ty * MP_TILE * schedule->stage_row + (size_t)tx * MP_TILE * pixel;
            plan->winograd->input(from, pixel, schedule->stage_row, plan->shape.in_c,
                                  transformed + (size_t)t * schedule->transformed_bytes,
                                  (size_t)tiles * schedule->transformed_bytes);
        }
    }
}

void mp_winograd_multiply(mp_item *item)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const int nr = plan->micro->nr, tiles = block_tiles(item), t0 = item->block * schedule->tiles;
    const size_t position_bytes = (size_t)tiles * nr * 4;
    memset(item->zeros, 0, (size_t)nr * 4);
    for (int first = item->first_panel; first < item->last_panel; first += schedule->group) {
        const int panels = clamp(item->last_panel - first, 1, schedule->group);
        if (plan->traits->bits)
            multiply_narrow(item, tiles, first); /* groups are of one panel */
        else
            multiply_stored(item, tiles, first, panels);
        for (int i = 0; i < panels; i++)
            finish(item, t0, tiles, first + i, item->sums + (size_t)i * MP_POSITIONS * position_bytes);
    }
}
