/* SPDX-License-Identifier: MIT */
/* Cuts a convolution into items that fit the caches and feed the threads. */
#include "schedule.h"
#include "groups.h"
#include "narrow.h"

enum {
    STAGE_BYTES = 192 << 10, /* staged rows of a block: they share the second cache level with weights and results */
    STAGE_BYTES_DEEP = 384 << 10, /* when the weights are the larger part, and every block reads all of them */
    PANEL_BYTES = 80 << 10,       /* weights per pass over the tiles: they stay in the second level, fetched ahead */
    WIDE_PANEL_BYTES = 256 << 10, /* of WIDE panels: CPUs with such vectors have a second level of 1 MB or more */
    WIDE = 32,
    FEW_ROWS = 6,                  /* of a tile; more such tiles go through the output stage together */
    POOL_BYTES = 64 << 10,         /* results on their way into pooling */
    TRANSFORMED_BYTES = 256 << 10, /* Winograd: input tiles of a block */
    PRODUCT_BYTES = 512 << 10      /* Winograd: products of a group of panels */
};

static size_t pooled_row_bytes(const mp_conv_plan *plan)
{
    const int all = plan->depthwise || plan->interleave > 1, channels = all ? plan->shape.out_c : plan->micro->nr;
    return (size_t)plan->out_w * channels * 4;
}

/* Or pairs of them, as far as any phase reads. */
static size_t staged_rows(const mp_conv_plan *plan, int out_rows)
{
    const size_t rows = (size_t)(out_rows - 1) * plan->shape.stride + plan->row_span;
    return mp_stages_pairs(plan) ? rows / 2 + 1 : rows;
}

static void cut_direct(const mp_conv_plan *plan, int pooled, int threads, mp_schedule *schedule)
{
    const size_t all_rows = schedule->stage_row * staged_rows(plan, plan->out_h) * plan->byte_planes;
    const size_t weights = plan->panel_bytes * plan->total_panels;
    const size_t budget = weights > STAGE_BYTES ? STAGE_BYTES_DEEP : STAGE_BYTES;
    int blocks = (int)((all_rows + budget - 1) / budget);
    if (threads > 1) {
        if (weights > all_rows && plan->total_panels >= 2 * threads && plan->interleave == 1)
            schedule->chunks = threads;
        else
            blocks = ceil_div(clamp(blocks, 1, plan->out_h), threads) * threads;
    }
    blocks = clamp(blocks, 1, plan->out_h);
    schedule->rows = ceil_div(plan->out_h, blocks);
    if (pooled) schedule->rows += schedule->rows % 2; /* a window lies in one block */
    schedule->blocks = ceil_div(plan->out_h, schedule->rows);
    schedule->first_layer = schedule->windows && plan->micro->windows && plan->byte_planes == 1 &&
                            plan->shape.size == 3 && plan->segments == 3 && mp_has_all_taps(plan) &&
                            plan->shape.stride == 1 && plan->shape.in_c == MP_WINDOW_CHANNELS &&
                            plan->out_w / 2 >= MP_LEAST_WINDOWS;
    schedule->unit = (plan->micro->mr < FEW_ROWS ? 8 : 4) * plan->micro->mr;
    schedule->pool_rows =
        clamp((int)(POOL_BYTES / pooled_row_bytes(plan)), 2, schedule->rows + schedule->rows % 2) / 2 * 2;

    schedule->passes = 1;
    schedule->pass_segments = plan->segments;
    schedule->pass_run = plan->run_padded;
    const size_t pass_bytes = plan->carries ? (size_t)MP_INT16_MAX_DEPTH * plan->micro->nr * plan->weight_bytes
                              : plan->micro->nr < WIDE ? PANEL_BYTES
                                                       : WIDE_PANEL_BYTES;
    if (plan->depthwise || plan->panel_bytes <= pass_bytes) return;
    const size_t segment_bytes = plan->panel_bytes / plan->segments;
    if (segment_bytes <= pass_bytes) {
        schedule->pass_segments = clamp((int)(pass_bytes / segment_bytes), 1, plan->segments);
        schedule->passes = ceil_div(plan->segments, schedule->pass_segments);
    } else {
        const int pieces = (int)((segment_bytes + pass_bytes - 1) / pass_bytes);
        int unit = plan->step;
        while (plan->grouped && unit % MP_GROUP) unit += plan->step;
        schedule->pass_run = ceil_div(ceil_div(plan->run_padded, pieces), unit) * unit;
        if (plan->carries) /* whose sums fit int32, up to whole groups or not */
            schedule->pass_run = clamp(schedule->pass_run, unit, MP_INT16_MAX_DEPTH / unit * unit);
        schedule->pass_segments = 0;
        schedule->passes = plan->segments * ceil_div(plan->run_padded, schedule->pass_run);
    }
}

static void cut_winograd(const mp_conv_plan *plan, int threads, mp_schedule *schedule)
{
    const int tiles_x = ceil_div(plan->out_w, MP_TILE), tiles_y = ceil_div(plan->out_h, MP_TILE),
              tiles = tiles_y * tiles_x;
    schedule->transformed_bytes = mp_align((size_t)plan->shape.in_c * plan->a_bytes);
    if (schedule->transformed_bytes % 4096 == 0)
        schedule->transformed_bytes += MP_ALIGN; /* else the tiles of a register block share their cache sets */
    const size_t tile_bytes = MP_POSITIONS * schedule->transformed_bytes * plan->byte_planes,
                 weights = plan->panel_bytes * plan->total_panels;
    /* Weights that leave the second cache level should be read once, whatever the transformed input then needs. */
    const size_t budget = weights > TRANSFORMED_BYTES ? 8 * TRANSFORMED_BYTES * plan->byte_planes : TRANSFORMED_BYTES;
    schedule->tiles_x = tiles_x;
    schedule->tiles =
        clamp((int)(budget / (tile_bytes * tiles_x)), 1, tiles_y) * tiles_x; /* whole rows are staged once */
    if (threads > 1) {
        /* Few tiles and many weights: each thread multiplies all tiles by its panels. Else blocks of equal size, wherever
         * in a row they end. */
        schedule->shares =
            weights > tile_bytes * tiles && tiles < 4 * plan->micro->mr * threads && plan->total_panels >= 2 * threads;
        if (schedule->shares)
            schedule->chunks = clamp(plan->total_panels / 2, threads, 4 * threads);
        else
            schedule->tiles = ceil_div(tiles, ceil_div(ceil_div(tiles, schedule->tiles), threads) * threads);
    }
    schedule->blocks = ceil_div(tiles, schedule->tiles);
    const size_t panel_bytes = (size_t)MP_POSITIONS * schedule->tiles * plan->micro->nr * 4 * plan->byte_planes;
    schedule->group =
        clamp((int)(PRODUCT_BYTES * plan->byte_planes / panel_bytes), 1, plan->traits->bits ? 1 : plan->total_panels);
}

static size_t reserve(size_t *end, size_t bytes)
{
    const size_t offset = *end;
    *end += mp_align(bytes);
    return offset;
}

/* Of a pass, with the rest of its first and last block; Winograd: of a group. */
static size_t narrow_bytes(const mp_conv_plan *plan, const mp_schedule *schedule)
{
    const size_t run = (size_t)plan->micro->nr * (size_t)plan->run_padded;
    const size_t pass =
        schedule->pass_segments ? schedule->pass_segments * run : (size_t)plan->micro->nr * (size_t)schedule->pass_run;
    const size_t count = plan->winograd    ? mp_winograd_codes(plan, clamp(plan->run, 1, MP_GROUP))
                         : plan->depthwise ? plan->panel_bytes / plan->weight_bytes
                                           : pass;
    const size_t multipliers = plan->micro->multiplies_groups ? count / plan->step * sizeof(int32_t) : 0;
    return (count + 2 * MP_NARROW_BLOCK) * plan->weight_bytes + multipliers;
}

/* Pixels of rows that a matrix unit's tiles cover, whichever way matrix.c cuts them: whole tiles of pixels, or of windows. */
static size_t matrix_pixels(const mp_conv_plan *plan, int rows)
{
    enum { PAIR = 2 * MP_MATRIX_ROWS };
    return (size_t)(rows + rows % 2) * ceil_div(plan->out_w, PAIR) * PAIR;
}

/* The only layout of scratch memory: who asks for its size and who runs in it both come here. */
static void lay_out(const mp_conv_plan *plan, int pooled, mp_schedule *schedule)
{
    const size_t panel = (size_t)plan->micro->nr * 4, channels = (size_t)plan->packed_channels * 4;
    const int sum_parts = plan->sums == MP_SUM_BYTE_PAIRS ? 2 : 1;
    size_t rows, transformed = 0, sums, tile = 0, zeros = 0, pool, end = 0;
    if (plan->winograd) {
        /* Tiles of a block may start anywhere in their first row. */
        rows = (size_t)((schedule->tiles + schedule->tiles_x - 2) / schedule->tiles_x + 1) * MP_TILE + 2;
        transformed = MP_POSITIONS * schedule->transformed_bytes * schedule->tiles;
        sums = MP_POSITIONS * panel * schedule->tiles * schedule->group;
        tile = MP_TILES_TOGETHER * MP_TILE * MP_TILE * panel;
        zeros = panel;
        pool = MP_TILE * MP_TILE * panel * schedule->tiles_x; /* a row of tiles */
    } else {
        rows = staged_rows(plan, schedule->rows);
        sums = plan->depthwise         ? plan->out_w * channels
               : schedule->passes == 1 ? (schedule->unit + plan->micro->mr) * panel
               : plan->micro->matrix   ? matrix_pixels(plan, schedule->rows) * panel
                                       : (size_t)schedule->rows * plan->out_w * panel;
        pool = schedule->pool_rows * pooled_row_bytes(plan);
    }
    mp_scratch *offsets = &schedule->scratch;
    schedule->lower_stage = mp_align(schedule->stage_row * rows + MP_PAST_STAGE);
    schedule->lower_transformed = mp_align(transformed);
    schedule->lower_sums = mp_align(sums);
    schedule->lower_tile = mp_align(tile);
    schedule->lower_init = mp_align(channels);
    offsets->item = reserve(&end, MP_ITEM_BYTES);
    offsets->stage = reserve(&end, plan->staged || plan->codes ? schedule->lower_stage * plan->byte_planes : 0);
    offsets->unpaired = reserve(&end, mp_stages_pairs(plan) ? schedule->stage_row + MP_PAST_STAGE : 0);
    offsets->converted = reserve(&end, plan->staged || plan->codes ? (size_t)plan->shape.in_w * plan->shape.in_c *
                                                                         mp_type_bytes(plan->traits->type)
                                                                   : 0);
    offsets->split_bytes =
        reserve(&end, plan->byte_planes > 1 ? 2 * mp_align((size_t)plan->shape.in_w * plan->shape.in_c) : 0);
    offsets->transformed = reserve(&end, schedule->lower_transformed * plan->byte_planes);
    offsets->sums = reserve(&end, schedule->lower_sums * sum_parts);
    offsets->part = reserve(&end, plan->carries ? (schedule->unit + plan->micro->mr) * panel : 0);
    offsets->tile = reserve(&end, schedule->lower_tile * plan->byte_planes);
    offsets->bias = reserve(&end, channels);
    offsets->scale = reserve(&end, channels);
    offsets->init = reserve(&end, schedule->lower_init * plan->byte_planes);
    offsets->zeros = reserve(&end, plan->depthwise && !plan->staged ? channels : zeros);
    offsets->segments = reserve(&end, plan->segments * sizeof(ptrdiff_t));
    offsets->weights = reserve(&end, plan->traits->bits ? narrow_bytes(plan, schedule) : 0);
    offsets->kernels =
        reserve(&end, plan->traits->bits && plan->winograd ? MP_POSITIONS * mp_kernel_elements() * sizeof(int16_t) : 0);
    offsets->multipliers = reserve(&end, plan->grouped ? mp_narrow_blocks(mp_multipliers(plan)) * MP_NARROW_BLOCK : 0);
    offsets->integer_output = reserve(&end, plan->codes ? 4 * channels : 0);
    offsets->pool = reserve(&end, pooled && !schedule->windows ? pool : 0);
    offsets->bytes = end;
}

void mp_conv_schedule(const mp_conv_plan *plan, int pooled, int threads, mp_schedule *schedule)
{
    *schedule = (mp_schedule){.chunks = 1, .stage_row = (size_t)plan->stage_w * plan->shape.in_c * plan->a_bytes};
    if (mp_stages_pairs(plan)) schedule->stage_row *= 2;
    schedule->windows =
        pooled && !plan->depthwise && plan->interleave == 1 && plan->out_h % 2 == 0 && plan->out_w % 2 == 0;
    if (plan->winograd)
        cut_winograd(plan, threads, schedule);
    else
        cut_direct(plan, pooled, threads, schedule);
    lay_out(plan, pooled, schedule);
}
