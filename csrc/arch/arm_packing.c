/* SPDX-License-Identifier: MIT */
/* The NEON levels on other machines: tables that only pack, so that a workstation can write what a board maps. */
#include "../table.h"
#if !defined(__aarch64__)
#include "arm_tiles.h"

/* As kernels/table.h has them for vectors of ARM_LANES. */
static const mp_micro f32 = {.mr = ARM_ROWS, .nr = 2 * ARM_LANES, .kstep = 1, .a_bytes = 4, .weight_type = MP_W_F32};
static const mp_micro f16 = {ARM_F16_TILE}, s8 = {ARM_S8_TILE}, dot = {ARM_DOT_TILE}, mmla = {ARM_MMLA_TILE},
                      s16 = {ARM_S16_TILE};
static const mp_depthwise depthwise_f32 = {.a_bytes = 4, .weight_type = MP_W_F32};
static const mp_depthwise depthwise_s8 = {.a_bytes = 2, .weight_type = MP_W_I16};
static const mp_winograd winograd_f32 = {.micro = &f32}, winograd_f16 = {.micro = &f16},
                         winograd_s16 = {.micro = &s16, ARM_S16_WINOGRAD};

#define PACKING_TABLE(NAME, FP16_HALF, CODES, WIDE, WINOGRAD)                                                          \
    const mp_table mp_packing_##NAME = {                                                                               \
        .name = #NAME,                                                                                                 \
        .micro = {[MP_FP32] = &f32,                                                                                    \
                  [MP_FP16] = &f32,                                                                                    \
                  [MP_INT8] = &CODES,                                                                                  \
                  [MP_FP16_HALF] = &FP16_HALF,                                                                         \
                  [MP_FP32_WINOGRAD] = &f32,                                                                           \
                  [MP_BF16] = &f32,                                                                                    \
                  [MP_INT16] = WIDE,                                                                                   \
                  [MP_FP16_HALF_WINOGRAD] = &FP16_HALF},                                                               \
        .depthwise = {[MP_FP32] = &depthwise_f32,                                                                      \
                      [MP_FP16] = &depthwise_f32,                                                                      \
                      [MP_INT8] = &depthwise_s8,                                                                       \
                      [MP_FP16_HALF] = &depthwise_f32,                                                                 \
                      [MP_FP32_WINOGRAD] = &depthwise_f32,                                                             \
                      [MP_BF16] = &depthwise_f32,                                                                      \
                      [MP_INT16] = &depthwise_s8},                                                                     \
        .winograd = {[MP_FP32_WINOGRAD] = &winograd_f32,                                                               \
                     [MP_FP16_HALF_WINOGRAD] = &winograd_##FP16_HALF,                                                  \
                     [MP_INT8] = WINOGRAD},                                                                            \
        .lanes = ARM_LANES,                                                                                            \
    }
PACKING_TABLE(neon, f32, s8, &s16, &winograd_s16);
PACKING_TABLE(neon_fp16, f16, s8, &s16, &winograd_s16);
PACKING_TABLE(neon_dotprod, f16, dot, 0, 0);
PACKING_TABLE(neon_i8mm, f16, mmla, 0, 0);
#endif
