/* SPDX-License-Identifier: MIT */
/* AMX: int8 sums of two tiles of pixels x 32 channels at a time, 64 deep. Everything else of the table is that of AVX-512 with
 * VNNI (x86_avx512vnni.c). Weights lie as VNNI's do, [step of 4][32 channels][4], where a tile of 16 channels is 64 bytes of every
 * line of 128. */
#include "../table.h"
#ifdef MP_HAS_AMX
#include <string.h>
#include "x86_amx_tiles.h"

/* Tiles 0 to 3: sums, [pixels of a][half of the channels]; 4 and 5 pixels; 6 and 7 weights. */
static void begin(int rows, int step)
{
    tile_shapes shapes = {.palette = 1};
    for (int t = 0; t < TILES; t++) {
        shapes.rows[t] = (uint8_t)(t < 6 ? rows : step / 4);
        shapes.bytes[t] = (uint16_t)(t == 4 || t == 5 ? step : TILE_BYTES);
    }
    tile_configure(&shapes);
}

static void end(void) { tile_release(); }

enum { WEIGHT_ROW = 128, COLUMN_BYTES = 64, LINE = 64, MANY_LINES = 6 };

/* tiles, column_tiles: 1 or 2; lines: of memory to fetch at each step. Constants, so that each has a loop of its own. */
static inline __attribute__((always_inline)) void block_of(const mp_matrix_block *block, const int tiles,
                                                           const int column_tiles, const int lines)
{
    const mp_matrix_block m = *block; /* stores of tiles don't change it */
    const ptrdiff_t row = m.row, step = m.step, b_step = step / 4 * WEIGHT_ROW, start_row = m.init ? 0 : m.acc_row;
    const char *start0 = m.init ? m.init : m.acc[0], *start1 = m.init ? m.init : m.acc[1], *b = m.b, *ahead = m.ahead;
    tile_load(0, start0, start_row);
    if (column_tiles > 1) tile_load(1, start0 + COLUMN_BYTES, start_row);
    if (tiles > 1) tile_load(2, start1, start_row);
    if (tiles > 1 && column_tiles > 1) tile_load(3, start1 + COLUMN_BYTES, start_row);
    for (int s = 0; s < m.segments; s++) {
        const char *a0 = m.a[0] + m.seg[s], *a1 = m.a[1] + m.seg[s], *const last = a0 + m.run;
        for (; a0 < last; a0 += step, a1 += step, b += b_step, ahead += m.ahead_step) {
            tile_load(4, a0, row);
            tile_load(6, b, WEIGHT_ROW);
            tile_dot(0, 4, 6);
            if (tiles > 1) {
                tile_load(5, a1, row);
                tile_dot(2, 5, 6);
            }
            if (column_tiles > 1) {
                tile_load(7, b + COLUMN_BYTES, WEIGHT_ROW);
                tile_dot(1, 4, 7);
                if (tiles > 1) tile_dot(3, 5, 7);
            }
            for (int line = 0; line < lines; line++) __builtin_prefetch(ahead + line * LINE, 0, 2);
        }
    }
    tile_store(0, m.acc[0], m.acc_row);
    if (column_tiles > 1) tile_store(1, m.acc[0] + COLUMN_BYTES, m.acc_row);
    if (tiles > 1) tile_store(2, m.acc[1], m.acc_row);
    if (tiles > 1 && column_tiles > 1) tile_store(3, m.acc[1] + COLUMN_BYTES, m.acc_row);
}

static void block(const mp_matrix_block *block)
{
    const int two = block->tiles > 1, wide = block->channels > TILE_ROWS;
    if (two && wide && block->ahead_step > LINE)
        block_of(block, 2, 2, MANY_LINES);
    else if (two && wide)
        block_of(block, 2, 2, 1);
    else if (two)
        block_of(block, 2, 1, 1);
    else if (wide)
        block_of(block, 1, 2, 1);
    else
        block_of(block, 1, 1, 1);
}

static void stage(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    memcpy(staged, source, count);
}

static const mp_matrix matrix = {.begin = begin, .end = end, .block = block};
const mp_micro mp_micro_amx = {.mr = 2 * MP_MATRIX_ROWS,
                               .nr = 32,
                               .kstep = 4,
                               .a_bytes = 1,
                               .weight_type = MP_W_I8,
                               .stage = stage,
                               .matrix = &matrix};
#endif
