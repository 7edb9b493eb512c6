/* SPDX-License-Identifier: MIT */
/* Portable C, one lane: the reference of all other levels. Tiles are written out plainly, not from the template. */
#include "../table.h"
#include "vec_scalar.h"
#define MP_REFERENCE
#include "../kernels/all.h"

enum { MR = 4, NR = 2 };

#define SCALAR_TILE(NAME, X, SUM, MAC)                                                                                 \
    static void NAME(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b,                 \
                     const void *init, void *acc, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)     \
    {                                                                                                                  \
        (void)channels, (void)ahead, (void)ahead_step;                                                                 \
        for (int r = 0; r < rows; r++)                                                                                 \
            for (int j = 0; j < NR; j++) {                                                                             \
                SUM sum = init ? ((const SUM *)init)[j] : ((const SUM *)acc)[r * NR + j];                              \
                const X *w = (const X *)b + j;                                                                         \
                for (int s = 0; s < segments; s++) {                                                                   \
                    const X *x = (const X *)(a[r] + seg[s]);                                                           \
                    for (int k = 0; k < run; k++, w += NR) sum = MAC(x[k], *w, sum);                                   \
                }                                                                                                      \
                ((SUM *)acc)[r * NR + j] = sum;                                                                        \
            }                                                                                                          \
    }
#define MAC_S16(x, w, sum) ((sum) + (int32_t)(x) * (w))
SCALAR_TILE(tile_f32, float, float, fmaf)
SCALAR_TILE(tile_half, float, float, vf_fma_half)
SCALAR_TILE(tile_s16, int16_t, int32_t, MAC_S16)

#define MP_LEVEL scalar
#define MP_FP16_WORDS "storage only, converted without instructions"
#define MP_INT8_RATE 1
#define MP_MR MR
#include "../kernels/table.h"
