/* SPDX-License-Identifier: MIT */
/* AVX-512 F, BW, VL, DQ. */
#include "../table.h"
#if defined(__x86_64__)
#include "vec_avx512.h"
#include "../kernels/all.h"
#include "x86_avx512_rows.h"
#include "x86_avx512_asm.h"
#include "../kernels/tile.h"
ASM_POINTS(points_f32, tile_f32, 1)
ASM_POINTS(points_s16, tile_s16, 2)
/* A quarter of the products, and vpmaddwd takes int16 anyway. */
#define MP_INT8_WINOGRAD .least_channels = 16

#define MP_LEVEL avx512
#include "../kernels/table.h"
#endif
