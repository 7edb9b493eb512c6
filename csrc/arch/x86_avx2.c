/* SPDX-License-Identifier: MIT */
/* AVX2 + FMA + F16C: tiles of 6 pixels x 16 channels, 12 sums in 16 registers. */
#include "../table.h"
#if defined(__x86_64__)
#include "vec_avx2.h"
#include "../kernels/all.h"

#define MP_MR 6
#define TILE_SINGLE 1
#define TILE_ROWS(M) M(0) M(1) M(2) M(3) M(4) M(5)
#define TILE_CASES(F, ...)                                                                                             \
    switch (rows) {                                                                                                    \
    case 1: F(1, __VA_ARGS__); break;                                                                                  \
    case 2: F(2, __VA_ARGS__); break;                                                                                  \
    case 3: F(3, __VA_ARGS__); break;                                                                                  \
    case 4: F(4, __VA_ARGS__); break;                                                                                  \
    case 5: F(5, __VA_ARGS__); break;                                                                                  \
    default: F(6, __VA_ARGS__); break;                                                                                 \
    }
#include "x86_avx2_finish.h"
#include "../kernels/tile.h"
TILE_OUTPUT(tile_f32, 1)
TILE_OUTPUT(tile_s16, 0)
#define TILE_OUTPUT_F32 tile_f32_output
#define TILE_OUTPUT_I8 tile_s16_output
#include "x86_avx2_points.h"
#define MP_POINTS(SUMS) .points = points_##SUMS
#include "x86_avx2_bytes.h"
/* First layers: one window x 16 channels. */
#define WINDOW_SUMS(M) M(0, 0) M(0, 1)
#define WINDOWS_TOGETHER 1
#define WINDOW_VECTORS 2
/* A quarter of the products, and vpmaddwd takes int16 anyway. */
#define MP_INT8_WINOGRAD .least_channels = 16

#define MP_LEVEL avx2
#include "../kernels/table.h"
#endif
