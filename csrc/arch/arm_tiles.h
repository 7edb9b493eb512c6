/* SPDX-License-Identifier: MIT */
/* The tiles of the NEON levels as far as packing asks: what their kernels and arm_packing.c have in common. */
#ifndef MP_ARM_TILES_H
#define MP_ARM_TILES_H
#define ARM_ROWS 8
#define ARM_LANES 4
#define ARM_S8_TILE .mr = 4, .nr = 4, .kstep = 16, .a_bytes = 1, .weight_type = MP_W_I8
/* Of Winograd where int8 has the tile above; few tiles would read each weight, eight times as many bytes, from memory for little. */
#define ARM_S16_TILE .mr = 8, .nr = 8, .kstep = 2, .steps = 4, .a_bytes = 2, .weight_type = MP_W_I16
#define ARM_S16_WINOGRAD .least_channels = 16, .least_tiles = 24
#define ARM_DOT_TILE .mr = 8, .nr = 8, .kstep = 4, .a_bytes = 1, .weight_type = MP_W_I8
#define ARM_MMLA_TILE .mr = 6, .nr = 16, .kstep = 8, .a_bytes = 1, .weight_type = MP_W_I8
#define ARM_F16_TILE .mr = 8, .nr = 16, .kstep = 1, .a_bytes = 2, .weight_type = MP_W_F16
#endif
