/* SPDX-License-Identifier: MIT */
/* What the levels above ARMv8.0 have nothing to add to: that level's leaves, so that the program for boards holds them once. */
static void output(mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,
                   size_t out_ld)
{
    mp_table_neon.output(o, acc, acc_ld, rows, channels, channel, out, out_ld);
}

#define MP_OWN_DEPTHWISE
static void depthwise_s16(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,
                          const void *w, const void *init, void *acc)
{
    mp_table_neon.depthwise[MP_INT8]->row(a, tap, taps, step, pixels, channels, w, init, acc);
}

static void quantize(const void *x, int type, void *out, int out_type, size_t count, float inv_scale, int zero_point,
                     int rounding, int low, int high)
{
    mp_table_neon.quantize(x, type, out, out_type, count, inv_scale, zero_point, rounding, low, high);
}

static void local_mean(const char *x, size_t row_bytes, int count, int w, int channels, int type, int size, int stride,
                       int offset, int out_w, void *out)
{
    mp_table_neon.local_mean(x, row_bytes, count, w, channels, type, size, stride, offset, out_w, out);
}

static void layer_norm(const void *x, void *out, int type, size_t rows, size_t row, size_t length, float epsilon)
{
    mp_table_neon.layer_norm(x, out, type, rows, row, length, epsilon);
}

static void attention(const float *queries, size_t count, const float *keys, const float *values, size_t row,
                      size_t positions, int key, int value, float scale, float *out, size_t out_row)
{
    mp_table_neon.attention(queries, count, keys, values, row, positions, key, value, scale, out, out_row);
}
#include "arm_neon_integer.h"
