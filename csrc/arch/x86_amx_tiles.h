/* SPDX-License-Identifier: MIT */
/* The seven operations on tile registers that kernels use, and nothing else of AMX. In assembly rather than intrinsics, which older
 * compilers lack; no compiler uses tile registers by itself, so none has to be told that they change.
 * MP_EMULATED_TILES: the same in C, for CPUs without them, emulators and sanitizers, which see what is read and written. */
#ifndef MP_X86_AMX_TILES_H
#define MP_X86_AMX_TILES_H
#include <stddef.h>
#include <stdint.h>

enum { TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 /* of a row */ };

/* Palette 1, as LDTILECFG reads it. */
typedef struct {
    uint8_t palette, start_row, unused[14];
    uint16_t bytes[16]; /* of a tile's rows */
    uint8_t rows[16];
} tile_shapes;
_Static_assert(sizeof(tile_shapes) == 64, "LDTILECFG reads 64 bytes");

#ifdef MP_EMULATED_TILES
#include <assert.h>
#include <string.h>

static _Thread_local struct {
    tile_shapes shapes;
    int8_t data[TILES][TILE_ROWS][TILE_BYTES];
} emulated;

static void tile_configure(const tile_shapes *shapes)
{
    for (int t = 0; t < TILES; t++) assert(shapes->rows[t] <= TILE_ROWS && shapes->bytes[t] <= TILE_BYTES);
    memset(&emulated, 0, sizeof emulated);
    emulated.shapes = *shapes;
}
static void tile_release(void) { memset(&emulated, 0, sizeof emulated); }
static void tile_load(int t, const void *from, ptrdiff_t row)
{
    assert(emulated.shapes.palette == 1);
    memset(emulated.data[t], 0, sizeof emulated.data[t]);
    for (int r = 0; r < emulated.shapes.rows[t]; r++)
        memcpy(emulated.data[t][r], (const char *)from + r * row, emulated.shapes.bytes[t]);
}
static void tile_store(int t, void *to, ptrdiff_t row)
{
    assert(emulated.shapes.palette == 1);
    for (int r = 0; r < emulated.shapes.rows[t]; r++)
        memcpy((char *)to + r * row, emulated.data[t][r], emulated.shapes.bytes[t]);
}
/* Sums wrap. */
static void tile_dot(int sum, int a, int b)
{
    const tile_shapes *s = &emulated.shapes;
    assert(s->palette == 1 && s->rows[sum] == s->rows[a] && s->bytes[sum] == s->bytes[b] &&
           s->bytes[a] == 4 * s->rows[b]);
    for (int m = 0; m < s->rows[a]; m++) {
        enum { COLUMNS = TILE_BYTES / 4 };
        uint32_t sums[COLUMNS]; /* all of them: what a tile lacks is 0 */
        memcpy(sums, emulated.data[sum][m], sizeof sums);
        for (int k = 0; k < s->rows[b]; k++) {
            const int8_t *x = emulated.data[a][m] + 4 * k, *y = emulated.data[b][k];
            for (int n = 0; n < COLUMNS; n++)
                sums[n] +=
                    (uint32_t)(x[0] * y[4 * n] + x[1] * y[4 * n + 1] + x[2] * y[4 * n + 2] + x[3] * y[4 * n + 3]);
        }
        memcpy(emulated.data[sum][m], sums, sizeof sums);
    }
}
#else
static inline void tile_configure(const tile_shapes *shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(*shapes)); }
static inline void tile_release(void) { __asm__ volatile("tilerelease"); }
/* A register's number is part of an instruction. */
#define tile_load(t, from, row)                                                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((ptrdiff_t)(row)) : "memory")
#define tile_store(t, to, row)                                                                                         \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((ptrdiff_t)(row)) : "memory")
#define tile_dot(sum, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)
#endif
#endif
