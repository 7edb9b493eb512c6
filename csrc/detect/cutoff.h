/* SPDX-License-Identifier: MIT */
/* Which raw values of a yolo layer need no logistic to be told off. Internal. */
#ifndef MP_DETECT_CUTOFF_H
#define MP_DETECT_CUTOFF_H
#include <math.h>

/* A raw value below which logistic(value) <= probability is certain. Only saves work: it lies 0.01 below the exact
 * bound, far more than any libm is off, and stops at probability 0.999, where the bound is still well conditioned. */
static inline float mp_cutoff(float probability)
{
    if (probability < 1e-30f) return -1e30f;
    const float p = probability > 0.999f ? 0.999f : probability;
    return logf(p / (1.0f - p)) - 0.01f;
}
#endif
