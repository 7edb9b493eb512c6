/* SPDX-License-Identifier: MIT */
/* Leaves that a level takes from another one, MP_SHARED, to which it has nothing to add: machine code stands once, and is compiled once. */
static void output(mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,
                   size_t out_ld)
{
    MP_SHARED.output(o, acc, acc_ld, rows, channels, channel, out, out_ld);
}

static void quantize(const void *x, int type, void *out, int out_type, size_t count, float inv_scale, int zero_point,
                     int rounding, int low, int high)
{
    MP_SHARED.quantize(x, type, out, out_type, count, inv_scale, zero_point, rounding, low, high);
}

static void local_mean(const char *x, size_t row_bytes, int count, int w, int channels, int type, int size, int stride,
                       int offset, int out_w, void *out)
{
    MP_SHARED.local_mean(x, row_bytes, count, w, channels, type, size, stride, offset, out_w, out);
}

static void layer_norm(const void *x, void *out, int type, size_t rows, size_t row, size_t length, float epsilon)
{
    MP_SHARED.layer_norm(x, out, type, rows, row, length, epsilon);
}

static void attention(const float *queries, size_t count, const float *keys, const float *values, size_t row,
                      size_t positions, int key, int value, float scale, float *out, size_t out_row)
{
    MP_SHARED.attention(queries, count, keys, values, row, positions, key, value, scale, out, out_row);
}

static void requantize(const mp_requantized *o, const void *acc, size_t acc_ld, int rows, int channels, int channel,
                       void *out, size_t out_ld)
{
    MP_SHARED.requantize(o, acc, acc_ld, rows, channels, channel, out, out_ld);
}

static void rescale(const mp_rescaling *o, const void *x, int type, void *out, int out_type, size_t count)
{
    MP_SHARED.rescale(o, x, type, out, out_type, count);
}

static void add_codes(const mp_adding *o, const void *a, const void *b, void *out, int type, size_t count)
{
    MP_SHARED.add_codes(o, a, b, out, type, count);
}

static float divide(const float *x, void *out, int type, size_t count, float scale, int zero_point, int low, int high)
{
    return MP_SHARED.divide(x, out, type, count, scale, zero_point, low, high);
}
