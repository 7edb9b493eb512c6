/* SPDX-License-Identifier: MIT */
/* How far one tensor is from another, image by image: sums of squares whose bits depend on nothing but the values. */
#ifndef MP_SIGNAL_H
#define MP_SIGNAL_H
#include <stdint.h>

/* cdef begin */
/* sum[image] of (a - b)^2 over the image's `values` elements, of a^2 where b is NULL. Differences, products and sums of
 * up to 128 of them in float32, in 16 fixed lanes; those sums are added in double. The relative error is below 1e-5. */
int mp_squared_difference(int32_t images, int64_t values, const float *a, const float *b, double *sum);
/* cdef end */
#endif
