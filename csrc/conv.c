/* The convolution driver: cuts the work, stages activations, calls the table's leaf kernels. Knows no ISA.
 *
 * An item is (image, block of output rows, range of channel panels). For its rows the input is staged once: padded,
 * converted to what the tiles multiply. Each panel then runs over all tiles of the block, so that its weights stay in
 * the first cache level; when the depth is long, in several passes over parts of the depth, with the sums kept in
 * between. A sum is one chain in depth order whatever the cuts are. */
#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "conv_item.h"

/* Spreads `values` (or 0) over packed channels. */
static void spread(const mp_conv_plan *p, const float *values, float factor, float *out)
{
    memset(out, 0, (size_t)p->packed_channels * sizeof *out);
    if (p->dw) {
        for (int c = 0; c < p->s.out_c; c++)
            out[c] = values[c] * factor;
        return;
    }
    for (int group = 0; group < p->s.groups; group++)
        for (int k = 0; k < p->kg; k++)
            out[(size_t)group * p->panels * p->micro->nr + k] = values[group * p->kg + k] * factor;
}

void mp_prepare_channels(const mp_conv_plan *p, const mp_conv_args *a, int image, mp_workspace *w, mp_output *o)
{
    spread(p, a->bias, 1.0f, w->bias);
    o->kind = p->dw ? p->dw->sum_kind : p->micro->sum_kind;
    o->activation = a->activation;
    o->out_type = a->out_type;
    o->rounding = a->out_rounding;
    o->bias = w->bias;
    o->scale = w->scale;
    /* Float sums start from the bias; Winograd adds it to the finished ones. */
    w->init = o->kind == MP_SUM_FLOAT ? w->bias : w->init;
    if (o->kind == MP_SUM_HALF)
        memset(w->init, 0, (size_t)p->packed_channels * 4);
    if (o->kind == MP_SUM_INT) {
        const int32_t *sums = mp_packed_sums(a->packed);
        const int zero = a->in_zero_point[image];
        const float offset = a->in_offset[image];
        const int correction = p->winograd ? zero
                               : p->dw ? (p->dw->subtracts_zero ? 0 : zero + p->dw->bias_q)
                                     : (p->micro->subtracts_zero ? 0 : zero + p->micro->bias_q);
        spread(p, a->weight_scale, a->in_scale[image], w->scale);
        for (int c = 0; c < p->packed_channels; c++) {
            /* Unsigned: the correction may wrap, and wraps back when the products are added. */
            ((uint32_t *)w->init)[c] = 0u - (uint32_t)correction * (uint32_t)sums[c];
        }
        if (offset != 0.0f) {
            float *factor = w->scale; /* reused below: weight scale alone */
            spread(p, a->weight_scale, 1.0f, factor);
            for (int c = 0; c < p->packed_channels; c++)
                w->bias[c] = fmaf(offset, factor[c] * (float)sums[c], w->bias[c]);
            spread(p, a->weight_scale, a->in_scale[image], w->scale);
        }
    }
    if (a->out_type == MP_TYPE_I8) {
        o->inv_scale = a->out_inv_scale[image];
        o->zero_point = (float)a->out_zero_point[image];
        o->low = (float)(a->out_low - a->out_zero_point[image]);
        o->high = (float)(a->out_high - a->out_zero_point[image]);
    }
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        o->minimum[lane] = INFINITY;
        o->maximum[lane] = -INFINITY;
        o->bad[lane] = 0.0f;
    }
}

/* One pass over all tiles of a block: depth positions in segments [s0, s0 + segments) x [k0, k0 + run). */
typedef struct {
    const char *a;         /* staged rows, at the group's first channel */
    const ptrdiff_t *seg;  /* bytes from a pixel to each segment of this pass */
    int segments, run;
    const void *b, *init;
    size_t pixel, row;     /* bytes between output pixels of a row, between rows */
    int out_w, pixels;
    char *sums;
    int keep_sums;         /* sums hold the whole block, else one tile */
    mp_output *output;     /* NULL before the last pass */
    int channels, packed_channel;
    char *out;             /* first pixel of the block, at the panel's first channel */
    size_t out_ld, out_bytes;
    mp_ahead ahead;
} pass;

/* Pointers to the staged pixels of a tile, moving along the output row by row. */
typedef struct {
    const char *line, *at;
    int x;
} cursor;

static inline void next_pixels(const pass *w, cursor *at, int rows, int mr, const char **a)
{
    if (at->x + rows < w->out_w) {
        for (int r = 0; r < rows; r++)
            a[r] = at->at + r * w->pixel;
        at->at += rows * w->pixel;
        at->x += rows;
    } else {
        for (int r = 0; r < rows; r++) {
            a[r] = at->at;
            at->at += w->pixel;
            if (++at->x == w->out_w) {
                at->x = 0;
                at->at = at->line += w->row;
            }
        }
    }
    for (int r = rows; r < mr; r++)
        a[r] = a[rows - 1];
}

static void run_pass(const mp_conv_plan *p, const mp_table *table, const pass *w)
{
    const mp_micro *m = p->micro;
    const char *a[MP_MAX_ROWS];
    const mp_ahead ahead = w->ahead;
    const size_t row_bytes = (size_t)m->nr * 4;
    cursor at = {w->a, w->a, 0};
    const int fused = w->output && m->tile_out && w->channels == m->nr;
    int tile = 0;
    for (int pixel = 0; pixel < w->pixels; tile++) {
        const int rows = mp_tile_rows(w->pixels - pixel, m->mr);
        next_pixels(w, &at, rows, m->mr, a);
        char *sums = w->keep_sums ? w->sums + pixel * row_bytes : w->sums;
        char *out = w->out + (size_t)pixel * w->out_ld * w->out_bytes;
        if (fused && rows == m->mr) {
            m->tile_out(a, w->seg, w->segments, w->run, w->b, w->init, sums, ahead.from + ahead.per_tile * tile, ahead.step,
                        w->output, w->packed_channel, out, w->out_ld);
            pixel += rows;
            continue;
        }
        m->tile(a, w->seg, w->segments, w->run, w->b, w->init, sums, rows, ahead.from + ahead.per_tile * tile, ahead.step);
        /* At once: the multipliers start on the next tile while this one is stored. */
        if (w->output)
            table->output(w->output, sums, (size_t)m->nr, rows, w->channels, w->packed_channel, out, w->out_ld);
        pixel += rows;
    }
}

/* Byte offsets of segments first, first + 1, ... shifted by k elements of their run. */
static void segment_offsets(const mp_conv_plan *p, const mp_schedule *c, int first, int count, int k, ptrdiff_t *seg)
{
    const mp_conv_shape *s = &p->s;
    for (int i = 0; i < count; i++) {
        const int segment = first + i;
        const int per_row = p->segments > s->size ? s->size : 1; /* segments of one kernel row */
        const int ky = segment / per_row, kx = segment % per_row;
        seg[i] = (ptrdiff_t)(ky * s->dilation * c->stage_row + ((size_t)kx * s->dilation * s->in_c + k) * c->a_bytes);
    }
}

/* The output channels of a panel. Depthwise: all. */
static int first_channel(const mp_conv_plan *p, int panel)
{
    return p->dw ? 0 : panel / p->panels * p->kg + panel % p->panels * p->micro->nr;
}
static int channel_count(const mp_conv_plan *p, int panel)
{
    return p->dw ? p->s.out_c : clamp(p->kg - panel % p->panels * p->micro->nr, 1, p->micro->nr);
}

/* out: the first pixel at the panel's first channel, pixels out_ld elements apart. */
static void run_panel(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c, int panel,
                      const char *staged, char *out, int out_ld, int rows, mp_workspace *w, mp_output *o)
{
    const mp_micro *m = p->micro;
    const int group = panel / p->panels;
    const char *weights = mp_packed_weights(p, a->packed) + panel * p->panel_bytes;
    pass q = {
        .a = staged + (size_t)group * p->cg * c->a_bytes,
        .seg = w->seg,
        .pixel = (size_t)p->s.stride * p->s.in_c * c->a_bytes,
        .row = p->s.stride * c->stage_row,
        .out_w = p->out_w,
        .pixels = rows * p->out_w,
        .sums = w->sums,
        .keep_sums = c->passes > 1,
        .channels = channel_count(p, panel),
        .packed_channel = panel * m->nr,
        .out = out,
        .out_ld = (size_t)out_ld,
        .out_bytes = mp_type_bytes(a->out_type),
    };
    const size_t run_bytes = (size_t)p->run_padded * m->nr * p->weight_bytes;
    for (int segment = 0, k = 0; segment < p->segments;) {
        int count = 1, run = p->run_padded;
        if (c->pass_segments) {
            count = c->pass_segments < p->segments - segment ? c->pass_segments : p->segments - segment;
        } else {
            run = c->pass_run < p->run_padded - k ? c->pass_run : p->run_padded - k;
        }
        segment_offsets(p, c, segment, count, k, w->seg);
        q.segments = count;
        q.run = run;
        q.b = weights + segment * run_bytes + (size_t)k * m->nr * p->weight_bytes;
        q.init = segment == 0 && k == 0 ? (const char *)w->init + (size_t)q.packed_channel * 4 : 0;
        k += run;
        if (k == p->run_padded) {
            k = 0;
            segment += count;
        }
        q.output = segment == p->segments ? o : 0;
        q.ahead = mp_ahead_of(p, q.b, q.segments * q.run, q.pixels);
        if (w->soon_step) {
            q.ahead = (mp_ahead){w->soon, w->soon_step, q.segments * q.run / m->kstep * w->soon_step};
            w->soon += q.pixels / m->mr * q.ahead.per_tile;
        }
        run_pass(p, table, &q);
    }
}

static void run_depthwise(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c,
                          const char *staged, char *out, int rows, mp_workspace *w, mp_output *o)
{
    const size_t out_bytes = mp_type_bytes(a->out_type);
    const mp_conv_shape *s = &p->s;
    for (int tap = 0; tap < p->depth; tap++)
        w->seg[tap] = (ptrdiff_t)(tap / s->size * s->dilation * c->stage_row +
                                  (size_t)(tap % s->size) * s->dilation * s->in_c * c->a_bytes);
    for (int y = 0; y < rows; y++) {
        p->dw->row(staged + (size_t)y * s->stride * c->stage_row, w->seg, p->depth, (size_t)s->stride * s->in_c * c->a_bytes,
                   p->out_w, p->packed_channels, mp_packed_weights(p, a->packed), w->init, w->sums);
        table->output(o, w->sums, (size_t)p->packed_channels, p->out_w, s->out_c, 0,
                      out + (size_t)y * p->out_w * s->out_c * out_bytes, (size_t)s->out_c);
    }
}

mp_summary mp_summarise(const mp_output *o)
{
    mp_summary r = {INFINITY, -INFINITY, 0};
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        uint32_t bits;
        memcpy(&bits, &o->bad[lane], sizeof bits);
        r.bad |= bits != 0;
        r.minimum = o->minimum[lane] < r.minimum ? o->minimum[lane] : r.minimum;
        r.maximum = o->maximum[lane] > r.maximum ? o->maximum[lane] : r.maximum;
    }
    return r;
}

void mp_pool_block(const mp_table *table, const mp_conv_args *a, int image, int oy, int ox, int rows, int width,
                   int channel, int channels, const char *block)
{
    const size_t bytes = mp_type_bytes(a->out_type), row = (size_t)width * channels * bytes;
    const int out_w = clamp((width + 1) / 2, 0, a->pool_w - ox / 2);
    for (int y = 0; y < rows && (oy + y) / 2 < a->pool_h; y += 2) {
        const char *lines[2] = {block + y * row, block + (y + 1) * row};
        const size_t pixel = ((size_t)image * a->pool_h + (oy + y) / 2) * a->pool_w + ox / 2;
        table->maxpool(lines, rows - y < 2 ? 1 : 2, width, channels, a->out_type, 2, 2, 0, out_w,
                       (char *)a->out + (pixel * a->shape.out_c + channel) * bytes, a->shape.out_c);
    }
}

/* One panel (depthwise: all channels) of a block, a few rows at a time, which are pooled while they are in the caches. */
static void run_pooled(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c, int image,
                       int panel, const char *staged, int oy, int rows, mp_workspace *w, mp_output *o)
{
    const int channel = first_channel(p, panel), channels = channel_count(p, panel);
    for (int y = 0; y < rows; y += c->pool_rows) {
        const int count = clamp(rows - y, 1, c->pool_rows);
        const char *from = staged + (size_t)y * p->s.stride * c->stage_row;
        if (p->dw)
            run_depthwise(p, table, a, c, from, w->pool, count, w, o);
        else
            run_panel(p, table, a, c, panel, from, w->pool, channels, count, w, o);
        mp_pool_block(table, a, image, oy + y, 0, count, p->out_w, channel, channels, w->pool);
    }
}

/* Where all weights stay in the second cache level, tiles need not fetch them: they fetch the input of the next block. */
static void fetch_next_block(const mp_conv_plan *p, const mp_conv_args *a, const mp_schedule *c, int image, int oy, int rows,
                             mp_workspace *w)
{
    enum { KEPT_BYTES = 96 << 10 };
    const mp_conv_shape *s = &p->s;
    w->soon_step = 0;
    if (!p->staged || p->dw || c->passes > 1 || p->panel_bytes * p->total_panels > KEPT_BYTES)
        return;
    const size_t in_row = (size_t)s->in_w * s->in_c * mp_source_bytes(p->precision);
    const size_t tiles = (size_t)rows * p->out_w / p->micro->mr + 1, depth = (size_t)p->segments * p->run_padded;
    const size_t steps = tiles * p->total_panels * (depth / p->micro->kstep);
    w->soon = (const char *)a->in + ((size_t)image * s->in_h + (size_t)(oy + c->rows * a->threads) * s->stride) * in_row;
    w->soon_step = (ptrdiff_t)(rows * s->stride * in_row / steps + 1);
}

static mp_summary run_item(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c,
                        int image, int block, int chunk, char *scratch)
{
    if (p->winograd)
        return mp_winograd_item(p, table, a, c, image, block, chunk, scratch);
    const mp_conv_shape *s = &p->s;
    mp_workspace w;
    w.stage = scratch;
    w.sums = w.stage + c->stage_bytes;
    w.bias = (float *)(w.sums + c->sums_bytes);
    w.scale = (float *)((char *)w.bias + c->channel_bytes);
    w.init = (char *)w.scale + c->channel_bytes;
    w.seg = (ptrdiff_t *)((char *)w.init + c->channel_bytes);
    w.pool = (char *)w.seg + mp_align(p->segments * sizeof(ptrdiff_t));
    mp_output o;
    mp_prepare_channels(p, a, image, &w, &o);
    const int oy = block * c->rows, rows = clamp(c->rows, 0, p->out_h - oy);
    const char *staged = w.stage;
    if (p->staged)
        mp_stage_rows(p, a, c, image, oy, (rows - 1) * s->stride + p->row_span, w.stage);
    else
        staged = (const char *)a->in + ((size_t)image * s->in_h + (size_t)oy * s->stride) * s->in_w * s->in_c * c->a_bytes;
    fetch_next_block(p, a, c, image, oy, rows, &w);
    const size_t out_bytes = mp_type_bytes(a->out_type), pixel = ((size_t)image * p->out_h + oy) * p->out_w;
    const int64_t all = p->total_panels;
    const int first = (int)(all * chunk / c->chunks), last = (int)(all * (chunk + 1) / c->chunks);
    for (int panel = first; panel < last; panel++) {
        if (a->pool_h) {
            run_pooled(p, table, a, c, image, panel, staged, oy, rows, &w, &o);
            continue;
        }
        char *out = (char *)a->out + (pixel * s->out_c + first_channel(p, panel)) * out_bytes;
        if (p->dw)
            run_depthwise(p, table, a, c, staged, out, rows, &w, &o);
        else
            run_panel(p, table, a, c, panel, staged, out, s->out_c, rows, &w, &o);
    }
    return mp_summarise(&o);
}

int mp_conv_run(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a)
{
    mp_schedule c;
    mp_conv_schedule(p, a->pool_h, a->threads, &c);
    if (a->scratch_bytes < c.thread_bytes * a->threads)
        return MP_BAD_ARGUMENT;
    const int per_image = c.row_blocks * c.chunks;
    const int64_t items = (int64_t)a->images * per_image;
    int bad = 0;
    if (a->ranges)
        for (int i = 0; i < a->images; i++) {
            a->ranges[2 * i] = INFINITY;
            a->ranges[2 * i + 1] = -INFINITY;
        }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads) if (a->threads > 1 && items > 1) reduction(| : bad)
#endif
    for (int64_t item = 0; item < items; item++) {
#ifdef _OPENMP
        const int thread = omp_get_thread_num();
#else
        const int thread = 0;
#endif
        const int image = (int)(item / per_image), rest = (int)(item % per_image);
        const mp_summary r = run_item(p, table, a, &c, image, rest / c.chunks, rest % c.chunks,
                                   (char *)a->scratch + thread * c.thread_bytes);
        bad |= r.bad;
        if (a->ranges) {
#ifdef _OPENMP
#pragma omp critical(mp_conv_ranges)
#endif
            {
                float *range = a->ranges + 2 * image;
                range[0] = r.minimum < range[0] ? r.minimum : range[0];
                range[1] = r.maximum > range[1] ? r.maximum : range[1];
            }
        }
    }
    if (a->ranges)
        for (int i = 0; i < 2 * a->images; i++)
            a->ranges[i] += 0.0f; /* -0 and 0 compare equal: leave one of them */
    return bad ? MP_NONFINITE : MP_OK;
}
