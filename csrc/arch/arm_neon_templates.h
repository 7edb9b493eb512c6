/* SPDX-License-Identifier: MIT */
/* The templates that every NEON level uses. */
#include "vec_neon.h"
#ifdef MP_SHARED
#define MP_OWN_DEPTHWISE
static void depthwise_s16(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,
                          const void *w, const void *init, void *acc)
{
    MP_SHARED.depthwise[MP_INT8]->row(a, tap, taps, step, pixels, channels, w, init, acc);
}
#endif
#include "../kernels/all.h"
#include "arm_neon_f32.h"
#include "arm_tiles.h"

#define MP_MR ARM_ROWS
