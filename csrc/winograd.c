/* The driver of Winograd convolutions, F(4x4, 3x3): 36 multiplications where direct convolution has 144.
 *
 * An item is (image, block of tiles, range of channel panels). Its input tiles are transformed once (V); then for a
 * group of panels all 36 products V[position] x U[panel][position] run through the ordinary tile kernels into M, and the
 * output transform brings 4x4 pixels back, which go through the ordinary output stage. */
#include <string.h>
#include "conv_plan.h"
#include "conv_item.h"

enum { POSITIONS = 36, TILE = 4 };

static const int ROW[6][3] = {{1, 0, 0}, {1, 1, 1}, {1, -1, 1}, {1, 2, 4}, {1, -2, 4}, {0, 0, 1}};
static const int DENOMINATOR[6] = {4, -6, -6, 24, 24, 1};

/* Each output must fit 26 bits, because 64 times it must fit 32: |q| <= 128. */
int mp_winograd_fits_int8(const mp_conv_shape *s, const int8_t *weights)
{
    const size_t depth = (size_t)s->in_c * 9;
    for (int k = 0; k < s->out_c; k++) {
        int64_t sum = 0;
        for (size_t i = 0; i < depth; i++)
            sum += weights[k * depth + i] < 0 ? -weights[k * depth + i] : weights[k * depth + i];
        if (sum * 128 >= 1 << 25)
            return 0;
    }
    return 1;
}

void mp_winograd_pack(const mp_conv_plan *p, const void *weights, void *packed, int32_t *sums)
{
    const int nr = p->micro->nr, kstep = p->micro->kstep;
    const size_t position_elements = (size_t)p->run_padded * nr;
    for (int k = 0; k < p->s.out_c; k++)
        for (int c = 0; c < p->s.in_c; c++) {
            const size_t from = ((size_t)k * p->s.in_c + c) * 9;
            const size_t at = (size_t)(k / nr) * position_elements +
                              ((size_t)(c / kstep) * nr + k % nr) * kstep + c % kstep;
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 6; j++) {
                    const size_t to = at + (size_t)(i * 6 + j) * position_elements * p->total_panels;
                    if (p->precision == MP_INT8) {
                        const int8_t *g = (const int8_t *)weights + from;
                        int total = 0;
                        for (int y = 0; y < 3; y++)
                            for (int x = 0; x < 3; x++)
                                total += ROW[i][y] * ROW[j][x] * g[y * 3 + x];
                        ((int16_t *)packed)[to] = (int16_t)total;
                        continue;
                    }
                    const float *g = (const float *)weights + from;
                    double total = 0.0;
                    for (int y = 0; y < 3; y++)
                        for (int x = 0; x < 3; x++)
                            total += (double)(ROW[i][y] * ROW[j][x]) * g[y * 3 + x];
                    ((float *)packed)[to] = (float)(total / (DENOMINATOR[i] * DENOMINATOR[j]));
                }
            if (p->precision == MP_INT8)
                for (int t = 0; t < 9; t++)
                    sums[k] += ((const int8_t *)weights)[from + t];
        }
}

/* Speed only. */
void mp_winograd_schedule(const mp_conv_plan *p, int pooled, int threads, mp_schedule *c)
{
    enum { V_BYTES = 256 << 10, M_BYTES = 2 << 20 };
    const int tiles_x = ceil_div(p->out_w, TILE), tiles = ceil_div(p->out_h, TILE) * tiles_x;
    c->a_bytes = p->micro->a_bytes;
    c->stage_row = (size_t)p->stage_w * p->s.in_c * c->a_bytes;
    c->v_row = mp_align((size_t)p->s.in_c * c->a_bytes);
    if (c->v_row % 4096 == 0)
        c->v_row += MP_ALIGN; /* else the tiles of a register block share their cache sets */
    const size_t tile_bytes = POSITIONS * c->v_row, weights = p->panel_bytes * p->total_panels;
    /* Weights that leave the second cache level should be read once, whatever V then needs. */
    const size_t budget = weights > V_BYTES ? 8 * V_BYTES : V_BYTES;
    const int rows = clamp((int)(budget / (tile_bytes * tiles_x)), 1, tiles / tiles_x); /* whole rows are staged once */
    int blocks = ceil_div(tiles, rows * tiles_x);
    c->chunks = 1;
    c->rows = rows * tiles_x;
    if (threads > 1) {
        /* Few tiles and many weights: each thread transforms all tiles for its panels. Else blocks of equal size, wherever
         * in a row they end. */
        if (weights > tile_bytes * tiles && tiles < 4 * p->micro->mr * threads && p->total_panels >= 2 * threads)
            c->chunks = threads;
        else
            blocks = ceil_div(blocks, threads) * threads, c->rows = ceil_div(tiles, blocks);
    }
    c->row_blocks = ceil_div(tiles, c->rows);
    const size_t panel_m = (size_t)POSITIONS * c->rows * p->micro->nr * 4;
    c->passes = clamp((int)(M_BYTES / panel_m), 1, p->total_panels); /* panels per group */
    const int staged_rows = (c->rows + tiles_x - 2) / tiles_x + 1;    /* of tiles, from anywhere in the first */
    c->stage_bytes = mp_align(c->stage_row * ((size_t)staged_rows * TILE + 2) + 4 * MP_ALIGN);
    c->v_bytes = mp_align(tile_bytes * c->rows);
    c->sums_bytes = mp_align(panel_m * c->passes) + (size_t)TILE * TILE * p->micro->nr * 4;
    c->pool_bytes = pooled ? (size_t)TILE * TILE * tiles_x * p->micro->nr * 4 : 0; /* a row of tiles */
    c->channel_bytes = mp_align((size_t)p->packed_channels * 4);
    c->thread_bytes = c->stage_bytes + c->v_bytes + c->sums_bytes + 3 * c->channel_bytes + mp_align((size_t)p->micro->nr * 4) +
                      mp_align(c->pool_bytes);
}

/* All positions of one panel: m[position][tile][nr]. */
static void multiply(const mp_conv_plan *p, const mp_schedule *c, const char *v, int tiles, int position, const char *weights,
                     const void *zeros, char *m)
{
    const mp_micro *micro = p->micro;
    const ptrdiff_t seg = 0;
    const char *a[MP_MAX_ROWS];
    const mp_ahead ahead = mp_ahead_of(p, weights, p->run_padded, tiles);
    v += (size_t)position * tiles * c->v_row;
    for (int tile = 0, count = 0; tile < tiles; count++) {
        const int rows = mp_tile_rows(tiles - tile, micro->mr);
        for (int r = 0; r < micro->mr; r++)
            a[r] = v + (size_t)(tile + (r < rows ? r : rows - 1)) * c->v_row;
        micro->tile(a, &seg, 1, p->run_padded, weights, zeros, m + (size_t)tile * micro->nr * 4, rows,
                    ahead.from + ahead.per_tile * count, ahead.step);
        tile += rows;
    }
}

mp_summary mp_winograd_item(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a, const mp_schedule *c,
                            int image, int block, int chunk, char *scratch)
{
    const int nr = p->micro->nr, tiles_x = ceil_div(p->out_w, TILE);
    const int t0 = block * c->rows, tiles = clamp(c->rows, 0, ceil_div(p->out_h, TILE) * tiles_x - t0);
    const int ty0 = t0 / tiles_x, tile_rows = (t0 + tiles - 1) / tiles_x - ty0 + 1;
    mp_workspace w;
    w.stage = scratch;
    char *v = w.stage + c->stage_bytes;
    w.sums = v + c->v_bytes;
    w.bias = (float *)(w.sums + c->sums_bytes);
    w.scale = (float *)((char *)w.bias + c->channel_bytes);
    w.init = (char *)w.scale + c->channel_bytes;
    char *zeros = (char *)w.init + c->channel_bytes;
    memset(zeros, 0, (size_t)nr * 4);
    w.pool = zeros + mp_align((size_t)nr * 4);
    mp_output o;
    mp_prepare_channels(p, a, image, &w, &o);
    mp_stage_rows(p, a, c, image, ty0 * TILE, tile_rows * TILE + 2, w.stage);
    const size_t pixel = (size_t)p->s.in_c * c->a_bytes, position_v = (size_t)tiles * c->v_row;
    for (int t = 0; t < tiles; t++) {
        const int ty = (t0 + t) / tiles_x - ty0, tx = (t0 + t) % tiles_x;
        p->winograd->input(w.stage + (size_t)ty * TILE * c->stage_row + (size_t)tx * TILE * pixel, pixel, c->stage_row, p->s.in_c,
                           v + (size_t)t * c->v_row, position_v);
    }

    const size_t out_bytes = mp_type_bytes(a->out_type), position_m = (size_t)tiles * nr * 4;
    char *y = w.sums + c->sums_bytes - (size_t)TILE * TILE * nr * 4;
    const int64_t all = p->total_panels;
    const int last = (int)(all * (chunk + 1) / c->chunks);
    for (int first = (int)(all * chunk / c->chunks); first < last; first += c->passes) {
        const int panels = clamp(last - first, 1, c->passes);
        for (int position = 0; position < POSITIONS; position++)
            for (int i = 0; i < panels; i++)
                multiply(p, c, v, tiles, position,
                         mp_packed_weights(p, a->packed) +
                             ((size_t)position * p->total_panels + first + i) * p->run_padded * nr * p->weight_bytes,
                         zeros, w.sums + (size_t)(i * POSITIONS + position) * position_m);
        for (int i = 0; i < panels; i++) {
            const int channel = (first + i) * nr, channels = clamp(p->s.out_c - channel, 1, nr);
            /* Tiles of one row, from ox0 to ox1: pooled together. */
            for (int t = 0, ox0 = 0, ox1 = 0; t < tiles; t++) {
                const int oy = (t0 + t) / tiles_x * TILE, ox = (t0 + t) % tiles_x * TILE;
                p->winograd->output(w.sums + (size_t)i * POSITIONS * position_m + (size_t)t * nr * 4, position_m,
                                    (const char *)w.init + (size_t)channel * 4, y, nr);
                const int height = clamp(p->out_h - oy, 1, TILE), width = clamp(p->out_w - ox, 1, TILE);
                if (t == 0 || ox == 0)
                    ox0 = ox, ox1 = clamp(p->out_w, 1, ox + (tiles - t) * TILE);
                const size_t pixel = ((size_t)image * p->out_h + oy) * p->out_w + ox;
                char *to = a->pool_h ? w.pool + (size_t)(ox - ox0) * channels * out_bytes
                                     : (char *)a->out + (pixel * p->s.out_c + channel) * out_bytes;
                const size_t to_ld = (size_t)(a->pool_h ? channels : p->s.out_c);
                const size_t to_row = to_ld * (size_t)(a->pool_h ? ox1 - ox0 : p->out_w);
                for (int r = 0; r < height; r++)
                    table->output(&o, y + (size_t)r * TILE * nr * 4, (size_t)nr, width, channels, channel,
                                  to + r * to_row * out_bytes, to_ld);
                if (a->pool_h && ox + width == ox1)
                    mp_pool_block(table, a, image, oy, ox0, height, ox1 - ox0, channel, channels, w.pool);
            }
        }
    }
    return mp_summarise(&o);
}
