/* SPDX-License-Identifier: MIT */
/* Ranges to scales, and TensorFlow's codes, one parameter set per image.
 *
 * The formulas and their order stand in docs/arithmetic.md, section 9; mpnet/quantization/scheme.py is the second implementation and
 * gives the same bits. Plain C that compilers vectorise: clamped in float before converting, no libm call per element. */
#ifndef MP_QUANTIZE_H
#define MP_QUANTIZE_H
#include <stddef.h>
#include <stdint.h>
#include "../mpnet.h"

/* cdef begin */
/* Same order as MODES in mpnet/model/quantization.py; SCHEME_ROUNDINGS there as in mpnet.h, and MP_HALF_UP after them. */
enum {
    MP_AFFINE = 0,
    MP_SYMMETRIC = 1,
    MP_POWER_OF_TWO = 2,
    MP_TF_MIN_COMBINED = 3,
    MP_TF_MIN_FIRST = 4,
    MP_TF_SCALED = 5,
    MP_TF_FAKE_QUANT = 6,
    MP_TF_BOTH_WAYS = 7 /* quantize_and_dequantize */
};
enum { MP_HALF_UP = 3 }; /* rounding of the last two only */

typedef struct {
    int32_t mode, rounding;
    int32_t narrow_range;       /* MP_TF_SCALED and what follows it */
    float ensure_minimum_range; /* MP_TF_* up to MP_TF_SCALED */
    int32_t bits;               /* of a code: 8; or 16, of MP_SYMMETRIC and MP_POWER_OF_TWO */
} mp_activation_scheme;

typedef struct {
    int32_t mode, rounding, zero_point, low, high;
    float scale, inv_scale, offset, range_min, range_max;
} mp_quant_params;

/* params[i] from the range (ranges[2*i], ranges[2*i+1]) of image i.
 * MP_NONFINITE: a bound is not finite. MP_BAD_ARGUMENT: min > max, an unknown mode or rounding, or a range that a
 * TensorFlow mode cannot scale. *bad_image tells which image. */
int mp_ranges_to_params(const float *ranges, size_t images, const mp_activation_scheme *scheme, mp_quant_params *params,
                        size_t *bad_image);

/* TensorFlow's modes; the others are mp_quantize and mp_dequantize of a table.
 * q = the codes of x; both images * size values, image after image.
 * MP_NONFINITE: x holds NaN or infinity (q is then filled, but means nothing). Threads never change a bit. */
int mp_tf_quantize(const float *x, int8_t *q, size_t images, size_t size, const mp_quant_params *params, int threads);

/* The reals of the codes q by TensorFlow's own order of operations, as a Dequantize step gives them. */
int mp_tf_dequantize(const int8_t *q, float *x, size_t images, size_t size, const mp_quant_params *params, int threads);
/* cdef end */

static inline int mp_known_mode(int32_t mode, int32_t rounding)
{
    return mode >= MP_AFFINE && mode <= MP_TF_BOTH_WAYS && rounding >= MP_HALF_TO_EVEN &&
           rounding <= (mode >= MP_TF_FAKE_QUANT ? MP_HALF_UP : MP_TRUNCATE);
}
/* Whether there are codes of such a scheme. */
static inline int mp_known_scheme(const mp_activation_scheme *s)
{
    return mp_known_mode(s->mode, s->rounding) &&
           (s->bits == 8 || (s->bits == 16 && (s->mode == MP_SYMMETRIC || s->mode == MP_POWER_OF_TWO)));
}
#endif
