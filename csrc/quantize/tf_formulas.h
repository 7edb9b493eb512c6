/* SPDX-License-Identifier: MIT */
/* TensorFlow's range adjustment and scales for qint8, shared by the files of this folder. Not part of the C API. */
#ifndef MP_TF_FORMULAS_H
#define MP_TF_FORMULAS_H
#include <float.h>
#include <math.h>
#include "mp_quantize.h"

/* Denormals as zeros of their sign: TensorFlow's threads run so. */
static inline float mp_flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

static inline float mp_smaller(float a, float b) { return b < a ? b : a; }
static inline float mp_larger(float a, float b) { return a < b ? b : a; }

/* Half away from zero. 0.49999997 is the largest float below 0.5: adding 0.5 itself would lift 0.49999997 to 1. */
static inline float mp_round_away(float x) { return truncf(x + copysignf(0x1.fffffep-2f, x)); }

/* Fills params for a finite range with min <= max. MP_BAD_ARGUMENT when no finite scale exists. */
int mp_tf_params(float minimum, float maximum, const mp_activation_scheme *scheme, mp_quant_params *params);
#endif
