/* SPDX-License-Identifier: MIT */
/* Stored types and precisions: a row each, and everything else asks. Internal. */
#ifndef MP_TYPES_H
#define MP_TYPES_H
#include <stddef.h>
#include "mpnet.h"

/* Types that hold reals, and types that hold codes, which need a scale. ROW(name after MP_TYPE_, how C stores it, the words of
 * the vocabulary (arch/vec_scalar.h) that load it as floats, store floats in it and round floats to it, what ROW is given). */
#define MP_REAL_TYPES(ROW, ...)                                                                                        \
    ROW(F32, float, vf_load, vf_store, vf_same, __VA_ARGS__)                                                           \
    ROW(F16, uint16_t, vf_load_half, vf_store_half, vf_round_half, __VA_ARGS__)                                        \
    ROW(BF16, uint16_t, vf_load_bf16, vf_store_bf16, vf_round_bf16, __VA_ARGS__)
#define MP_CODE_TYPES(ROW, ...)                                                                                        \
    ROW(I8, int8_t, vf_load_s8, vf_store_s8, vf_same, __VA_ARGS__)                                                     \
    ROW(I16, int16_t, vf_load_s16, vf_store_s16, vf_same, __VA_ARGS__)
#define MP_STORED_TYPES(ROW, ...) MP_REAL_TYPES(ROW, __VA_ARGS__) MP_CODE_TYPES(ROW, __VA_ARGS__)

#define MP_CASE(NAME, ...) case MP_TYPE_##NAME:
#define MP_CASE_BYTES(NAME, STORAGE, ...)                                                                              \
    case MP_TYPE_##NAME: return sizeof(STORAGE);

/* Of one element; 0: there is no such type. */
static inline size_t mp_type_bytes(int type)
{
    switch (type) {
        MP_STORED_TYPES(MP_CASE_BYTES)
    default: return 0;
    }
}
static inline int mp_is_type(int type) { return mp_type_bytes(type) != 0; }
static inline int mp_is_real(int type)
{
    switch (type) {
        MP_REAL_TYPES(MP_CASE)
        return 1;
    default: return 0;
    }
}

/* Whether low to high are codes of this type. */
static inline int mp_are_its_codes(int type, int low, int high)
{
    const int most = type == MP_TYPE_I8 ? INT8_MAX : type == MP_TYPE_I16 ? INT16_MAX : -1;
    return most > 0 && -most - 1 <= low && low <= high && high <= most;
}

/* Codes of 16 bits lie around the real 0. */
static inline int mp_is_zero_point(int type, int zero_point)
{
    return type == MP_TYPE_I8 ? zero_point >= INT8_MIN && zero_point <= INT8_MAX : zero_point == 0;
}

/* The largest shift of a factor of their steps, which times 2^shift have to fit 32 bits. */
static inline int mp_most_rescaling(int type) { return type == MP_TYPE_I8 ? 22 : 14; }

enum mp_sum_kind {
    MP_SUM_FLOAT, /* float sums that started from the bias */
    MP_SUM_HALF,  /* half-precision sums held as floats, bias still to be added */
    MP_SUM_INT,   /* int32 sums */
    MP_SUM_BYTE_PAIRS /* two int32 sums for each, of the upper and of the lower bytes of codes: 256 times the first plus the second */
};

typedef struct {
    int type;  /* what its convolutions read. Weights come as int8 for codes, else as floats that are rounded to it */
    int sums;  /* enum mp_sum_kind */
    int tiles; /* the precision whose kernels multiply, in every table; */
    int depthwise; /* and that whose kernels do so for filters of one channel */
    int bits; /* of a weight in memory where that is fewer than its code's eight (conv/narrow.h); 0: as the kernels read it */
} mp_precision;
/* clang-format off */
static const mp_precision mp_precisions[] = {
    [MP_FP32] = {MP_TYPE_F32, MP_SUM_FLOAT, MP_FP32, MP_FP32, 0},
    [MP_FP16] = {MP_TYPE_F16, MP_SUM_FLOAT, MP_FP16, MP_FP16, 0},
    [MP_INT8] = {MP_TYPE_I8, MP_SUM_INT, MP_INT8, MP_INT8, 0},
    [MP_FP32_WINOGRAD] = {MP_TYPE_F32, MP_SUM_FLOAT, MP_FP32_WINOGRAD, MP_FP32_WINOGRAD, 0},
    [MP_FP16_HALF] = {MP_TYPE_F16, MP_SUM_HALF, MP_FP16_HALF, MP_FP16_HALF, 0},
    [MP_INT4] = {MP_TYPE_I8, MP_SUM_INT, MP_INT8, MP_INT8, 4},
    [MP_INT5] = {MP_TYPE_I8, MP_SUM_INT, MP_INT8, MP_INT8, 5},
    [MP_INT6] = {MP_TYPE_I8, MP_SUM_INT, MP_INT8, MP_INT8, 6},
    [MP_BF16] = {MP_TYPE_BF16, MP_SUM_FLOAT, MP_BF16, MP_BF16, 0},
    [MP_INT3] = {MP_TYPE_I8, MP_SUM_INT, MP_INT8, MP_INT8, 3},
    [MP_INT16] = {MP_TYPE_I16, MP_SUM_BYTE_PAIRS, MP_INT8, MP_INT16, 0},
    [MP_INT16W6] = {MP_TYPE_I16, MP_SUM_BYTE_PAIRS, MP_INT8, MP_INT16, 6},
    [MP_INT16W5] = {MP_TYPE_I16, MP_SUM_BYTE_PAIRS, MP_INT8, MP_INT16, 5},
    [MP_INT16W4] = {MP_TYPE_I16, MP_SUM_BYTE_PAIRS, MP_INT8, MP_INT16, 4},
    [MP_INT16W3] = {MP_TYPE_I16, MP_SUM_BYTE_PAIRS, MP_INT8, MP_INT16, 3},
    [MP_FP16_HALF_WINOGRAD] = {MP_TYPE_F16, MP_SUM_HALF, MP_FP16_HALF_WINOGRAD, MP_FP16_HALF, 0},
};
/* clang-format on */
/* How weights of a precision come. */
static inline int mp_weights_type(int precision)
{
    const int type = mp_precisions[precision].type;
    return mp_is_real(type) ? type : MP_TYPE_I8;
}
enum { MP_PRECISIONS = sizeof mp_precisions / sizeof *mp_precisions };
enum {
    MP_GROUP = 32
}; /* input channels of a tap that share a multiplier, where narrow weights have such (conv/groups.h) */

/* Less this, a multiplier of weights of so many bits is a code of the 8 - bits bits that they leave. */
static inline int mp_multiplier_base(int bits) { return (1 << (7 - bits)) + 1; }

/* Largest magnitude of a code of this precision's weights. */
static inline int mp_largest_code(const mp_precision *precision)
{
    return (1 << ((precision->bits ? precision->bits : 8) - 1)) - 1;
}
#endif
