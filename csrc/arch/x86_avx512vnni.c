/* SPDX-License-Identifier: MIT */
/* AVX-512 with VNNI: int8 tiles multiply bytes, unsigned (q + 128) by signed. And the table of CPUs with AMX, which is this one with other int8 tiles
 * (x86_avx512amx.c). */
#include "../table.h"
#if defined(__x86_64__)
#define MP_SHARED mp_table_avx512
#include "vec_avx512.h"
/* Instead of the two instructions of AVX-512. */
static inline vi vi_dot16_vnni(vi acc, vi a, vi b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}
#define vi_dot16 vi_dot16_vnni
#define MP_COLUMNS depthwise_codes
#include "../kernels/all.h"
#include "x86_avx512_rows.h"

#define MP_HAS_DOT8
/* Not the intrinsic, at which gcc 12 stores and loads every sum. */
static inline vi vi_dot8(vi acc, vi a, vi b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

#include "x86_avx512_asm.h"
#include "../kernels/tile.h"
ASM_POINTS(points_f32, tile_f32, 1)
ASM_POINTS(points_u8, tile_u8, 4)
#include "x86_avx512_strips.h"

#ifdef MP_HAS_AMX
#define MP_MATRIX_LEVEL avx512amx
#define MP_MATRIX_RATE 32
#define MP_MATRIX_WORDS "matrix instructions (AMX)"
#define MP_MATRIX_MICRO &mp_micro_amx
#endif

/* A quarter of the products, of which an instruction makes half as many; below these bounds transforms cost what that saves, and with
 * few tiles each transformed weight, eight times as many bytes, comes from memory for too few products. */
#define MP_INT8_WINOGRAD .least_channels = 64, .least_tiles = 24
#define MP_LEVEL avx512vnni
#define MP_INT8_RATE 4
#define MP_INT8_WORDS "dot product (VNNI)"
#include "../kernels/table.h"
#endif
