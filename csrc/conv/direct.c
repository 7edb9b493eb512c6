/* SPDX-License-Identifier: MIT */
/* Direct convolutions. For an item's rows the input is staged once: padded, converted to what the tiles multiply. Each panel
 * then runs over all tiles of the block, so that its weights stay in the first cache level; when the depth is long, in several
 * passes over parts of the depth, with the sums kept in between. A sum is one chain in depth order whatever the cuts are. */
#include "direct.h"
#include "../team.h"
#include "matrix.h"

/* Pixels of so many bytes are fetched before their results are stored: ARM's cores see by themselves that lines follow each other. */
#if defined(__aarch64__)
enum { FETCHED_FROM = 1024 };
#else
enum { FETCHED_FROM = 0 };
#endif

/* The next block's input, fetched ahead where tiles need not fetch weights. */
typedef struct {
    const char *from;
    ptrdiff_t step; /* bytes per step of a tile; 0: weights are fetched */
} next_input;

/* Where all weights stay in the second cache level, tiles fetch the input of the thread's next block, if there is one. */
static next_input next_input_of(const mp_item *item, int oy, int rows)
{
    enum { KEPT_BYTES = 96 << 10 };
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const mp_conv_shape *s = &plan->shape;
    const int next = oy + item->schedule->rows * mp_share_step(args->threads, item->block, item->schedule->blocks);
    if (!mp_is_staged(item) || plan->depthwise || item->schedule->passes > 1 || next < 0 || next >= plan->out_h ||
        plan->stored_bytes * plan->total_panels > KEPT_BYTES)
        return (next_input){0};
    const size_t in_row =
        (size_t)s->in_w * s->in_c * mp_type_bytes(args->converts ? args->in_type : plan->traits->type);
    const size_t tiles = (size_t)rows * mp_sums_w(plan) / plan->micro->mr + 1;
    const size_t steps = tiles * plan->total_panels * ((size_t)plan->segments * plan->run_padded / plan->step);
    const size_t row = (size_t)item->image * s->in_h + (size_t)next * s->stride;
    return (next_input){(const char *)args->in + row * in_row, (ptrdiff_t)(rows * s->stride * in_row / steps + 1)};
}

/* Pointers to the staged pixels of tiles, moving along the output row by row, or by rows of windows. */
typedef struct {
    const char *line, *at;
    int x;
} cursor;

static inline void next_pixels(const mp_depth_pass *pass, int out_w, cursor *at, int rows, const char **a)
{
    if (at->x + rows < out_w) {
        const size_t step = pass->pixel;
        const char *pixel = at->at;
        int r = 0;
        for (; r + 4 <= rows; r += 4, pixel += 4 * step) {
            a[r] = pixel;
            a[r + 1] = pixel + step;
            a[r + 2] = pixel + 2 * step;
            a[r + 3] = pixel + 3 * step;
        }
        for (; r < rows; r++, pixel += step) a[r] = pixel;
        at->at = pixel;
        at->x += rows;
    } else {
        for (int r = 0; r < rows; r++) {
            a[r] = at->at;
            at->at += pass->pixel;
            if (++at->x == out_w) {
                at->x = 0;
                at->at = at->line += pass->row;
            }
        }
    }
}

static inline void next_windows(const mp_depth_pass *pass, int out_w, cursor *at, int rows, const char **a)
{
    for (int r = 0; r < rows; r += 4) {
        a[r] = at->at;
        a[r + 1] = at->at + pass->pixel;
        a[r + 2] = at->at + pass->row;
        a[r + 3] = at->at + pass->row + pass->pixel;
        at->at += 2 * pass->pixel;
        if ((at->x += 2) == out_w) {
            at->x = 0;
            at->at = at->line += 2 * pass->row;
        }
    }
}

static inline void run_tile(const mp_item *item, const mp_depth_pass *pass, const char *const *a, const void *init,
                            void *sums, int rows, const char *fetched)
{
    const mp_micro *m = item->plan->micro;
    if (item->plan->blocks)
        m->tile_blocks(a, item->segments, pass->segments, pass->run, pass->block, pass->b, init, sums, rows);
    else
        m->tile(a, item->segments, pass->segments, pass->run, pass->b, init, sums, rows, pass->channels, fetched,
                pass->ahead.step);
}

/* The same for the lower bytes of codes, whose staged pixels lie as those of the upper ones do. */
static inline void run_lower_tile(const mp_item *item, const mp_depth_pass *pass, const char *const *a, char *sums,
                                  int rows, const char *fetched)
{
    const mp_schedule *schedule = item->schedule;
    const char *lower[MP_MAX_ROWS];
    for (int r = 0; r < item->plan->micro->mr; r++) lower[r] = a[r] + schedule->lower_stage;
    run_tile(item, pass, lower, pass->init ? (const char *)pass->init + schedule->lower_init : 0,
             sums + schedule->lower_sums, rows, fetched);
}

/* The full tiles of `count` pixels with their output stage; so many pixels, 0: not by this kernel. */
static inline int run_tiles_output(const mp_item *item, const mp_depth_pass *pass, const char *const *a,
                                   const char *sums, int count, const char *fetched, char *out, int fetches)
{
    const mp_micro *m = item->plan->micro;
    int tiles = count / m->mr;
    if (!m->tile_output || !pass->output || item->plan->sums == MP_SUM_BYTE_PAIRS) return 0;
    while (tiles > 0 && mp_tile_rows(count - (tiles - 1) * m->mr, m->mr) < m->mr) tiles--;
    const int rows = tiles * m->mr, shift = item->schedule->windows ? 2 : 0;
    const size_t step = pass->out_ld * pass->out_bytes;
    const mp_tile_run run = {.a = a,
                             .tiles = tiles,
                             .seg = item->segments,
                             .segments = pass->segments,
                             .run = pass->run,
                             .b = pass->b,
                             .init = pass->init,
                             .acc = sums,
                             .acc_tile = (size_t)m->nr * 4 * m->mr,
                             .ahead = fetched,
                             .ahead_step = pass->ahead.step,
                             .ahead_tile = pass->ahead.per_tile,
                             .output = pass->output,
                             .channel = pass->packed_channel,
                             .channels = pass->channels,
                             .out = out,
                             .out_ld = pass->out_ld,
                             .out_tile = (size_t)(m->mr >> shift) * step,
                             .results = m->mr >> shift,
                             .fetched_bytes = fetches ? pass->channels * pass->out_bytes : 0};
    return tiles && m->tile_output(&run) ? rows : 0;
}

/* Whole results of a short depth; 0: not by this kernel. */
static int run_points(const mp_item *item, const mp_depth_pass *pass)
{
    enum { SHORT = 64, LONG_ROW = 2 * MP_LEAST_POINTS };
    const mp_conv_plan *plan = item->plan;
    const mp_micro *m = plan->micro;
    const int row = mp_sums_w(plan), joined = pass->row == row * pass->pixel, steps = pass->run / m->kstep;
    if (!m->points || plan->byte_planes > 1 || plan->sums == MP_SUM_BYTE_PAIRS || item->schedule->windows ||
        !pass->output || !pass->init || pass->segments * steps > SHORT || (!joined && row < LONG_ROW))
        return 0;
    mp_points points = {.a = pass->a,
                        .pixel = pass->pixel,
                        .pixels = joined ? pass->pixels : row,
                        .seg = item->segments,
                        .segments = pass->segments,
                        .steps = steps,
                        .b = pass->b,
                        .init = pass->init,
                        .output = pass->output,
                        .channel = pass->packed_channel,
                        .channels = pass->channels,
                        .out = pass->out,
                        .out_ld = pass->out_ld};
    for (int at = 0; at < pass->pixels; at += points.pixels) {
        if (!m->points(&points)) return 0;
        points.a += pass->row;
        points.out += points.pixels * pass->out_ld * pass->out_bytes;
    }
    return 1;
}

static void run_pass(mp_item *item, const mp_depth_pass *pass)
{
    if (run_points(item, pass)) return;
    const mp_micro *m = item->plan->micro;
    const mp_ahead ahead = pass->ahead;
    const int carries = item->plan->carries;
    const size_t row_bytes = (size_t)m->nr * 4,
                 sums_step = item->schedule->passes > 1 ? row_bytes : 0; /* of all, or of a unit */
    /* Rows that follow each other without a gap are one. */
    const int row_w = mp_sums_w(item->plan), windows = item->schedule->windows, unit = item->schedule->unit;
    const int out_w = !windows && pass->row == row_w * pass->pixel ? pass->pixels + 1 : row_w;
    const int shift = windows ? 2 : 0; /* a result has 1 << shift rows of sums */
    const size_t out_step = pass->out_ld * pass->out_bytes;
    /* Smaller results stay in the second cache level by themselves. */
    const int fetches =
        out_step > FETCHED_FROM &&
        (size_t)item->plan->out_h * item->plan->out_w * item->plan->shape.out_c * pass->out_bytes > 256 << 10;
    const char *a[MP_MAX_UNIT + MP_MAX_ROWS];
    const char *fetched = ahead.from;
    cursor at = {pass->a, pass->a, 0};
    for (int pixel = 0; pixel < pass->pixels;) {
        const int left = pass->pixels - pixel, count = left <= unit + m->mr ? left : unit;
        (windows ? next_windows : next_pixels)(pass, out_w, &at, count, a);
        for (int r = 0; r < m->mr; r++) a[count + r] = a[count - 1];
        char *sums = item->sums + pixel * sums_step, *out = pass->out + (size_t)(pixel >> shift) * out_step;
        char *products = carries ? item->part : sums;
        if (pass->sums) mp_begin_sums(pass, pixel, count, m->nr, sums);
        const int finished = run_tiles_output(item, pass, a, sums, count, fetched, out, fetches); /* rows */
        fetched += finished / m->mr * ahead.per_tile;
        for (int first = finished, rows; first < count; first += rows, fetched += ahead.per_tile) {
            rows = mp_tile_rows(count - first, m->mr);
            if (pass->output && fetches)
                mp_fetch_results(out + (size_t)(first >> shift) * out_step, rows >> shift, out_step,
                                 pass->channels * pass->out_bytes);
            run_tile(item, pass, a + first, pass->init, products + first * row_bytes, rows, fetched);
            if (item->plan->byte_planes > 1)
                run_lower_tile(item, pass, a + first, sums + first * row_bytes, rows, fetched);
        }
        if (carries)
            m->carry((const int32_t *)products, (size_t)count * m->nr, (int32_t *)sums,
                     (int32_t *)(sums + item->schedule->lower_sums), pass->begins);
        /* Soon: they are in the first cache level, and the multipliers start on the next tile meanwhile. */
        if (pass->output && finished < count)
            mp_item_output(item, sums + finished * row_bytes, (size_t)m->nr, count - finished, pass->channels,
                           pass->packed_channel, out + (size_t)(finished >> shift) * out_step, pass->out_ld);
        if (pass->gives_sums) mp_end_sums(pass, pixel, count, m->nr, sums);
        pixel += count;
    }
}

/* Byte offsets of segments first, first + 1, ... shifted by k elements of their run. */
static void segment_offsets(const mp_item *item, int first, int count, int k)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const int rows = mp_tap_rows(plan), per_row = plan->segments / rows; /* segments of one kernel row */
    for (int i = 0; i < count; i++) {
        const int ky = (plan->empty.top + (first + i) / per_row) * s->dilation,
                  x = (plan->empty.left + (first + i) % per_row) * s->dilation;
        const size_t elements = plan->blocks
                                    ? (size_t)mp_stage_place(plan, x) * plan->micro->kstep + (size_t)k * plan->stage_w
                                    : (size_t)x * s->in_c + k;
        item->segments[i] = (ptrdiff_t)(ky * item->schedule->stage_row + elements * plan->a_bytes);
    }
}

/* The output channels of a panel, of all interleaved pixels. Depthwise: all. */
static int first_channel(const mp_conv_plan *plan, int panel)
{
    return plan->depthwise ? 0 : panel / plan->panels * plan->group_out + panel % plan->panels * plan->micro->nr;
}
static int channel_count(const mp_conv_plan *plan, int panel)
{
    return plan->depthwise
               ? plan->shape.out_c
               : clamp(plan->interleave * plan->group_out - panel % plan->panels * plan->micro->nr, 1, plan->micro->nr);
}

/* What a panel's sums begin from, for the first pixel of an item that is not pooled; NULL: nothing. */
static const int32_t *panel_sums(const mp_item *item, int panel)
{
    const mp_conv_plan *plan = item->plan;
    const size_t row = (size_t)item->image * plan->out_h + (size_t)item->block * item->schedule->rows;
    return item->args->sums ? item->args->sums + row * plan->out_w * plan->shape.out_c + first_channel(plan, panel) : 0;
}

/* out: the first pixel at the panel's first channel, pixels out_ld elements apart. */
static void run_panel(mp_item *item, int panel, next_input *next, const char *staged, char *out, int out_ld, int rows)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const mp_micro *m = plan->micro;
    const char *weights = mp_packed_weights(plan, item->args->packed) + panel * plan->stored_bytes;
    const int32_t *sums = panel_sums(item, panel), *start = (const int32_t *)item->init + (size_t)panel * m->nr;
    mp_depth_pass pass = {
        .a = staged + (size_t)(panel / plan->panels) * plan->group_in * plan->a_bytes,
        .block = (ptrdiff_t)plan->stage_w * m->kstep * (ptrdiff_t)plan->a_bytes,
        .pixel = (size_t)(plan->blocks ? m->kstep : plan->interleave * plan->shape.stride * plan->shape.in_c) *
                 plan->a_bytes,
        .row = plan->shape.stride * schedule->stage_row,
        .pixels = rows * mp_sums_w(plan),
        .channels = channel_count(plan, panel),
        .packed_channel = panel * m->nr,
        .start = start,
        .out = out,
        .out_ld = (size_t)out_ld * plan->interleave,
        .out_bytes = mp_type_bytes(item->args->out_type),
    };
    for (int segment = 0, k = 0; segment < plan->segments;) {
        pass.segments = 1;
        if (schedule->pass_segments) {
            pass.segments = clamp(plan->segments - segment, 1, schedule->pass_segments);
            pass.run = plan->run_padded;
        } else {
            pass.run = clamp(plan->run_padded - k, 1, schedule->pass_run);
        }
        segment_offsets(item, segment, pass.segments, k);
        const size_t first = ((size_t)segment * plan->run_padded + k) * m->nr,
                     count = (size_t)pass.segments * pass.run * m->nr;
        const char *stored = weights + first * plan->stored_bits / 8;
        pass.b = mp_item_weights(item, weights, first, count);
        pass.begins = segment == 0 && k == 0;
        pass.init = (pass.begins && !sums) || plan->carries ? start : 0;
        pass.sums = pass.begins ? sums : 0;
        k += pass.run;
        if (k == plan->run_padded) {
            k = 0;
            segment += pass.segments;
        }
        const int ends = segment == plan->segments;
        pass.output = ends && !item->args->gives_sums ? &item->output : 0;
        pass.gives_sums = ends && item->args->gives_sums;
        if (next->step) {
            pass.ahead = (mp_ahead){next->from, next->step, pass.segments * pass.run / plan->step * next->step};
            next->from += pass.pixels / m->mr * pass.ahead.per_tile;
        } else {
            pass.ahead = mp_ahead_of(plan, stored, pass.segments * pass.run, pass.pixels);
        }
        (m->matrix ? mp_matrix_pass : run_pass)(item, &pass);
    }
}

static void run_first_layer(mp_item *item, int panel, const char *staged, char *out, int rows)
{
    const mp_conv_plan *plan = item->plan;
    const int pooled_w = plan->out_w / 2, out_c = plan->shape.out_c;
    const char *weights = mp_packed_weights(plan, item->args->packed) + panel * plan->stored_bytes;
    mp_window_row row = {
        .staged = staged,
        .stage_row = item->schedule->stage_row,
        .windows = pooled_w,
        .steps = plan->run_padded / plan->micro->kstep,
        .b = mp_item_weights(item, weights, 0, (size_t)plan->segments * plan->run_padded * plan->micro->nr),
        .init = (const char *)item->init + (size_t)panel * plan->micro->nr * 4,
        .channels = channel_count(plan, panel),
        .channel = panel * plan->micro->nr,
        .out = out,
        .out_ld = (size_t)out_c,
    };
    for (int y = 0; y < rows; y += 2) {
        plan->micro->windows(&item->output, &row);
        row.staged += 2 * row.stage_row;
        row.out += (size_t)pooled_w * out_c * mp_type_bytes(item->args->out_type);
    }
}

/* Of the taps of both phases. */
static void pair_offsets(const mp_item *item)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    ptrdiff_t *offset = item->segments;
    for (int phase = 0; phase < 2; phase++)
        for (int i = 0; i < mp_pair_rows(s); i++)
            for (int x = 0; x < s->size; x++)
                *offset++ = (ptrdiff_t)(mp_pair_of(s, phase, i) * item->schedule->stage_row +
                                        2 * (size_t)x * s->dilation * s->in_c * plan->a_bytes);
}

/* The lines that row y of the block reads. staged: padded rows, or lines of codes that were converted, or those of the input. */
static void find_lines(const mp_item *item, const char *staged, const char *zeros, int y, mp_depthwise_row *row)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const int top = (item->block * item->schedule->rows + y) * s->stride - s->padding,
              before = mp_is_staged(item) ? 0 : s->padding;
    for (int k = 0; k < s->size; k++) {
        const int inside = plan->staged || (top + k >= 0 && top + k < s->in_h);
        const ptrdiff_t line = y * s->stride + k - before;
        row->line[k] = inside ? staged + line * (ptrdiff_t)item->schedule->stage_row : zeros;
        row->step[k] = inside ? s->in_c * plan->a_bytes : 0;
    }
}

/* Result rows from the item's row `first` on, by mp_depthwise.lines. */
static void run_lines(mp_item *item, const char *staged, char *out, int first, int rows)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const size_t channels = (size_t)s->out_c, out_row = plan->out_w * channels * mp_type_bytes(item->args->out_type);
    const char *zeros = plan->staged ? 0 : mp_item_zeros(item);
    mp_depthwise_row row = {
        .size = s->size,
        .stride = s->stride,
        .padding = plan->staged ? 0 : s->padding,
        .width = plan->stage_w,
        .pixels = plan->out_w,
        .channels = s->out_c,
        .zero_point = mp_item_zero_point(item),
        .weights = mp_item_weights(item, mp_packed_weights(plan, item->args->packed), 0,
                                   plan->panel_bytes / plan->weight_bytes),
        .weights_ld = (size_t)plan->packed_channels,
        .init = item->init,
        .out_ld = channels,
    };
    for (int y = first; y < first + rows; y++, out += out_row) {
        find_lines(item, staged, zeros, y, &row);
        row.output = &item->output;
        row.out = out;
        if (plan->depthwise->lines(&row)) continue;
        row.output = 0;
        row.out = item->sums;
        plan->depthwise->lines(&row);
        mp_item_output(item, item->sums, channels, plan->out_w, s->out_c, 0, out, channels);
    }
}

/* Result rows from the item's row `first` on. */
static void run_depthwise(mp_item *item, const char *staged, char *out, int first, int rows)
{
    if (item->plan->lines) {
        run_lines(item, staged, out, first, rows);
        return;
    }
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const size_t out_row = (size_t)plan->out_w * s->out_c * mp_type_bytes(item->args->out_type);
    const size_t phases = plan->pairs ? 2 : 1, taps = plan->segments / phases;
    const char *weights =
        mp_item_weights(item, mp_packed_weights(plan, item->args->packed), 0, plan->panel_bytes / plan->weight_bytes);
    if (plan->pairs)
        pair_offsets(item);
    else
        segment_offsets(item, 0, plan->segments, 0);
    for (int y = 0; y < rows; y++) {
        const size_t t = (size_t)(first + y) * s->stride, phase = t % phases;
        const char *from = staged + t / phases * item->schedule->stage_row,
                   *w = weights + phase * (plan->panel_bytes / 2);
        const ptrdiff_t *tap = item->segments + phase * taps;
        const size_t step = phases * plan->interleave * s->stride * s->in_c * plan->a_bytes;
        const int pixels = mp_sums_w(plan), channels = plan->packed_channels, out_c = plan->interleave * s->out_c;
        if (plan->depthwise->row_output &&
            plan->depthwise->row_output(from, tap, (int)taps, step, pixels, channels, w, item->init, &item->output,
                                        out_c, out + y * out_row))
            continue;
        plan->depthwise->row(from, tap, (int)taps, step, pixels, channels, w, item->init, item->sums);
        mp_item_output(item, item->sums, (size_t)channels, pixels, out_c, 0, out + y * out_row, (size_t)out_c);
    }
}

static void run_rows(mp_item *item, int panel, next_input *next, const char *staged, char *out, int out_ld, int first,
                     int rows)
{
    if (item->plan->depthwise)
        run_depthwise(item, staged, out, first, rows);
    else
        run_panel(item, panel, next, staged + (size_t)first * item->plan->shape.stride * item->schedule->stage_row, out,
                  out_ld, rows);
}

/* Of panels whose results lie in the same pixels: a few rows at a time, which are pooled while they are in the caches. */
static void run_pooled(mp_item *item, int panel, int panels, next_input *next, const char *staged, int oy, int rows)
{
    const mp_conv_plan *plan = item->plan;
    const int channel = first_channel(plan, panel),
              channels = plan->interleave > 1 ? plan->shape.out_c : channel_count(plan, panel);
    for (int y = 0; y < rows; y += item->schedule->pool_rows) {
        const int count = clamp(rows - y, 1, item->schedule->pool_rows);
        for (int each = panel; each < panel + panels; each++) {
            const int at = first_channel(plan, each) - channel;
            run_rows(item, each, next, staged, item->pool + at * mp_type_bytes(item->args->out_type), channels, y,
                     count);
        }
        mp_item_pool(item, oy + y, 0, count, plan->out_w, channel, channels);
    }
}

void mp_direct_item(mp_item *item)
{
    const mp_conv_plan *plan = item->plan;
    const mp_schedule *schedule = item->schedule;
    const mp_conv_args *args = item->args;
    const mp_conv_shape *s = &plan->shape;
    const int oy = item->block * schedule->rows, rows = clamp(schedule->rows, 0, plan->out_h - oy);
    const char *staged = item->stage;
    if (mp_is_staged(item))
        mp_item_stage(item, oy, (rows - 1) * s->stride + plan->row_span);
    else
        staged =
            (const char *)args->in + ((size_t)item->image * s->in_h + (size_t)oy * s->stride) * schedule->stage_row;
    next_input next = next_input_of(item, oy, rows);
    /* Of the result, pooled or not. */
    const size_t pixel = schedule->windows ? ((size_t)item->image * args->pool_h + oy / 2) * args->pool_w
                                           : ((size_t)item->image * plan->out_h + oy) * plan->out_w;
    const int pooled = args->pool_h && !schedule->windows;
    /* Interleaved pixels may end within a panel, so all are pooled together. */
    const int together = pooled && plan->interleave > 1 ? plan->total_panels : 1;
    for (int panel = item->first_panel; panel < item->last_panel; panel += together) {
        char *out = (char *)args->out + (pixel * s->out_c + first_channel(plan, panel)) * mp_type_bytes(args->out_type);
        if (pooled)
            run_pooled(item, panel, together, &next, staged, oy, rows);
        else if (schedule->first_layer && !args->multiplier)
            run_first_layer(item, panel, staged, out, rows);
        else
            run_rows(item, panel, &next, staged, out, s->out_c, 0, rows);
    }
    mp_matrix_end(item);
}
