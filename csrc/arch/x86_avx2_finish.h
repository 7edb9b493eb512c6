/* SPDX-License-Identifier: MIT */
/* The copy of kernels/finish.h for a tile's results, asked for each tile: a function for each would cost more than the question. */
#ifndef MP_X86_AVX2_FINISH_H
#define MP_X86_AVX2_FINISH_H
#include "../kernels/finish.h"

#define FINISH_CASE(SUM, ACTIVATION, CODES, FP16)                                                                      \
    finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, vectors, last, ACTIVATION, CODES, FP16, 0);                   \
    break;
#define FINISH_ACTIVATIONS(SUM, CODES, FP16)                                                                           \
    switch (results->output->activation) {                                                                             \
    case MP_LINEAR: FINISH_CASE(SUM, MP_LINEAR, CODES, FP16)                                                           \
    case MP_LEAKY: FINISH_CASE(SUM, MP_LEAKY, CODES, FP16)                                                             \
    case MP_RELU: FINISH_CASE(SUM, MP_RELU, CODES, FP16)                                                               \
    case MP_HARD_SWISH: FINISH_CASE(SUM, MP_HARD_SWISH, CODES, FP16)                                                   \
    case MP_SWISH: FINISH_CASE(SUM, MP_SWISH, CODES, FP16)                                                             \
    default: FINISH_CASE(SUM, MP_RELU6, CODES, FP16)                                                                   \
    }
static inline __attribute__((always_inline)) void finish_vf(TILE_ROWS(FINISH_SUMS_vf) const int vectors, const int last,
                                                            const tile_results *results)
{
    if (results->output->out_type == MP_TYPE_F32) {
        FINISH_ACTIVATIONS(vf, 0, 0)
    } else {
        FINISH_ACTIVATIONS(vf, 0, 1)
    }
}
static inline __attribute__((always_inline)) void finish_vi(TILE_ROWS(FINISH_SUMS_vi) const int vectors, const int last,
                                                            const tile_results *results)
{
    if (results->output->out_type == MP_TYPE_F32) {
        FINISH_ACTIVATIONS(vi, 0, 0)
    } else if (results->output->packs) {
        FINISH_ACTIVATIONS(vi, 2, 0)
    } else {
        FINISH_ACTIVATIONS(vi, 1, 0)
    }
}
/* Half a vector of channels: C = 0. */
#define TILE_FINISH(SUM) finish_##SUM(TILE_ROWS(FINISH_ARGUMENTS) C > 1 ? 2 : 1, C ? VL : VL / 2, results)
#endif
