/* Cuts a convolution into items that fit the caches and feed the threads. */
#include "conv_plan.h"

enum {
    STAGE_BYTES = 192 << 10,      /* staged rows of a block: they share the second cache level with weights and results */
    STAGE_BYTES_DEEP = 384 << 10, /* when the weights are the larger part, and every block reads all of them */
    PANEL_BYTES = 80 << 10,       /* weights per pass over the tiles: they stay in the second level, fetched ahead */
    POOL_BYTES = 64 << 10         /* results on their way into pooling */
};

static void direct_schedule(const mp_conv_plan *p, int pooled, int threads, mp_schedule *c)
{
    c->a_bytes = p->dw ? p->dw->a_bytes : p->micro->a_bytes;
    c->stage_row = (size_t)p->stage_w * p->s.in_c * c->a_bytes;
    const size_t all_rows = c->stage_row * ((size_t)(p->out_h - 1) * p->s.stride + p->row_span);
    const size_t weights = p->panel_bytes * p->total_panels;
    const size_t budget = weights > STAGE_BYTES ? STAGE_BYTES_DEEP : STAGE_BYTES;
    int blocks = p->staged || weights > 0 ? (int)((all_rows + budget - 1) / budget) : 1;
    c->chunks = 1;
    if (threads > 1) {
        if (weights > all_rows && p->total_panels >= 2 * threads)
            c->chunks = threads;
        else
            blocks = ceil_div(clamp(blocks, 1, p->out_h), threads) * threads;
    }
    blocks = clamp(blocks, 1, p->out_h);
    c->rows = ceil_div(p->out_h, blocks);
    if (pooled)
        c->rows += c->rows % 2; /* a window lies in one block */
    c->row_blocks = ceil_div(p->out_h, c->rows);

    c->passes = 1;
    c->pass_segments = p->segments;
    c->pass_run = p->run_padded;
    if (!p->dw && p->panel_bytes > PANEL_BYTES) {
        const size_t segment_bytes = p->panel_bytes / p->segments;
        if (segment_bytes <= PANEL_BYTES) {
            c->pass_segments = clamp((int)(PANEL_BYTES / segment_bytes), 1, p->segments);
            c->passes = ceil_div(p->segments, c->pass_segments);
        } else {
            const int pieces = (int)((segment_bytes + PANEL_BYTES - 1) / PANEL_BYTES);
            c->pass_run = ceil_div(ceil_div(p->run_padded, pieces), p->micro->kstep) * p->micro->kstep;
            c->pass_segments = 0;
            c->passes = p->segments * ceil_div(p->run_padded, c->pass_run);
        }
    }
    /* Reading may run past the last staged element: a kstep in tiles, a vector in depthwise. */
    c->stage_bytes = mp_align(c->stage_row * ((size_t)(c->rows - 1) * p->s.stride + p->row_span) + 4 * MP_ALIGN);
    const size_t pixels = (size_t)c->rows * p->out_w;
    if (p->dw)
        c->sums_bytes = mp_align((size_t)p->out_w * p->packed_channels * 4);
    else
        c->sums_bytes = mp_align((c->passes > 1 ? pixels : (size_t)p->micro->mr) * p->micro->nr * 4);
    c->channel_bytes = mp_align((size_t)p->packed_channels * 4);
    const size_t row_bytes = (size_t)p->out_w * (p->dw ? p->s.out_c : p->micro->nr) * 4;
    c->pool_rows = clamp((int)(POOL_BYTES / row_bytes), 2, c->rows + c->rows % 2) / 2 * 2;
    c->pool_bytes = pooled ? mp_align(c->pool_rows * row_bytes) : 0;
    c->thread_bytes = c->stage_bytes + c->sums_bytes + 3 * c->channel_bytes + mp_align(p->segments * sizeof(ptrdiff_t)) +
                      c->pool_bytes;
}

void mp_conv_schedule(const mp_conv_plan *p, int pooled, int threads, mp_schedule *c)
{
    if (p->winograd)
        mp_winograd_schedule(p, pooled, threads, c);
    else
        direct_schedule(p, pooled, threads, c);
}

size_t mp_conv_scratch(const mp_conv_plan *p, int pooled, int threads)
{
    mp_schedule c;
    mp_conv_schedule(p, pooled, threads, &c);
    return c.thread_bytes * threads;
}
