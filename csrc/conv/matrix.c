/* SPDX-License-Identifier: MIT */
/* A tile of a matrix unit is pixels that lie evenly apart: up to 16 of one output row, or of all rows where they lie so. A row is
 * cut into tiles of equal height, of which the last begins where it ends with the row, and computes again what it shares with the
 * one before. Where 2x2 windows are pooled, a tile is every other pixel of a row, and four tiles are its windows. */
#include "matrix.h"

enum { WINDOW = 4 }; /* pixels */

typedef struct {
    int lines, width;    /* tiles do not cross lines; pixels of a line, or windows */
    int tiles, rows;     /* of a line; of a tile */
    ptrdiff_t row, line; /* bytes from pixel to pixel, line to line */
} tiling;

static tiling tiling_of(const mp_item *item, const mp_depth_pass *pass)
{
    const int out_w = item->plan->out_w, windows = item->schedule->windows, lines = pass->pixels / out_w;
    tiling t = {lines, out_w, 0, 0, (ptrdiff_t)pass->pixel, (ptrdiff_t)pass->row};
    if (windows)
        t = (tiling){lines / 2, out_w / 2, 0, 0, 2 * t.row, 2 * t.line};
    else if (t.line == out_w * t.row)
        t = (tiling){1, pass->pixels, 0, 0, t.row, t.line};
    t.tiles = ceil_div(t.width, MP_MATRIX_ROWS);
    t.rows = ceil_div(t.width, t.tiles);
    return t;
}

/* Tile number `number` of all lines. */
typedef struct {
    const char *a;
    int first;  /* its first result */
    int shared; /* with the tile before */
} tile_place;

static inline tile_place place_of(const mp_depth_pass *pass, const tiling *t, int number)
{
    const int line = number / t->tiles, nominal = number % t->tiles * t->rows,
              x = nominal < t->width - t->rows ? nominal : t->width - t->rows;
    return (tile_place){pass->a + line * t->line + x * t->row, line * t->width + x, nominal - x};
}

/* Results of the rows of sums from `shared` results on, `each` rows for a result. */
static void finish(mp_item *item, const mp_depth_pass *pass, const char *sums, int first, int shared, int results,
                   int each)
{
    const size_t nr = (size_t)item->plan->micro->nr;
    mp_item_output(item, sums + (size_t)shared * each * nr * 4, nr, (results - shared) * each, pass->channels,
                   pass->packed_channel, pass->out + (first + shared) * pass->out_ld * pass->out_bytes, pass->out_ld);
}

static void fetch(const mp_depth_pass *pass, int first, int results)
{
    const size_t step = pass->out_ld * pass->out_bytes;
    mp_fetch_results(pass->out + first * step, results, step, pass->channels * pass->out_bytes);
}

/* Of lower bytes as well. */
static void run_block(const mp_item *item, const mp_matrix_block *block)
{
    const mp_schedule *schedule = item->schedule;
    item->plan->micro->matrix->block(block);
    if (item->plan->byte_planes == 1) return;
    mp_matrix_block lower = *block;
    for (int i = 0; i < block->tiles; i++) {
        lower.a[i] += schedule->lower_stage;
        lower.acc[i] += schedule->lower_sums;
    }
    if (lower.init) lower.init = (const char *)lower.init + schedule->lower_init;
    item->plan->micro->matrix->block(&lower);
}

static void run_windows(mp_item *item, const mp_depth_pass *pass, const tiling *t, mp_matrix_block *block)
{
    const ptrdiff_t pixel = (ptrdiff_t)item->plan->micro->nr * 4;
    const size_t unit = item->schedule->passes > 1 ? (size_t)t->rows * WINDOW * pixel : 0;
    char *sums = item->sums;
    block->acc_row = WINDOW * pixel;
    for (int number = 0; number < t->lines * t->tiles; number++, sums += unit) {
        const tile_place at = place_of(pass, t, number);
        if (pass->output) fetch(pass, at.first, t->rows);
        for (int y = 0; y < 2; y++, block->ahead += pass->ahead.per_tile)
            for (int x = 0; x < 2; x++) {
                block->a[x] = at.a + y * pass->row + x * pass->pixel;
                block->acc[x] = sums + (2 * y + x) * pixel;
                if (x) run_block(item, block);
            }
        if (pass->output) finish(item, pass, sums, at.first, at.shared, t->rows, WINDOW);
    }
}

static void run_pixels(mp_item *item, const mp_depth_pass *pass, const tiling *t, mp_matrix_block *block)
{
    const ptrdiff_t pixel = (ptrdiff_t)item->plan->micro->nr * 4, tile = t->rows * pixel;
    const size_t unit = item->schedule->passes > 1 ? 2 * (size_t)tile : 0;
    const int count = t->lines * t->tiles;
    char *sums = item->sums;
    block->acc_row = pixel;
    for (int number = 0; number < count; number += 2, sums += unit, block->ahead += pass->ahead.per_tile) {
        tile_place at[2];
        block->tiles = clamp(count - number, 1, 2);
        for (int i = 0; i < 2; i++) {
            at[i] = place_of(pass, t, number + (i < block->tiles ? i : 0));
            block->a[i] = at[i].a;
            block->acc[i] = sums + i * tile;
            if (pass->sums) mp_begin_sums(pass, at[i].first, t->rows, item->plan->micro->nr, sums + i * tile);
            if (pass->output) fetch(pass, at[i].first, t->rows);
        }
        run_block(item, block);
        for (int i = 0; pass->gives_sums && i < block->tiles; i++)
            mp_end_sums(pass, at[i].first, t->rows, item->plan->micro->nr, sums + i * tile);
        if (!pass->output) continue;
        const int joined = block->tiles > 1 && at[1].shared == 0;
        finish(item, pass, sums, at[0].first, at[0].shared, joined ? 2 * t->rows : t->rows, 1);
        if (block->tiles > 1 && !joined) finish(item, pass, sums + tile, at[1].first, at[1].shared, t->rows, 1);
    }
}

void mp_matrix_pass(mp_item *item, const mp_depth_pass *pass)
{
    const mp_conv_plan *plan = item->plan;
    const tiling t = tiling_of(item, pass);
    if (item->matrix_rows != t.rows) plan->micro->matrix->begin(t.rows, plan->step);
    item->matrix_rows = t.rows;
    mp_matrix_block block = {
        .tiles = 2,
        .row = t.row,
        .seg = item->segments,
        .segments = pass->segments,
        .run = pass->run,
        .step = plan->step,
        .b = pass->b,
        .init = pass->init,
        .channels = pass->channels,
        .ahead = pass->ahead.from,
        .ahead_step = pass->ahead.step,
    };
    (item->schedule->windows ? run_windows : run_pixels)(item, pass, &t, &block);
}

void mp_matrix_end(mp_item *item)
{
    if (item->matrix_rows) item->plan->micro->matrix->end();
    item->matrix_rows = 0;
}
