/* SPDX-License-Identifier: MIT */
/* Arithmetic in whole numbers of the levels above ARMv8.0, which have nothing to add to it: that level's, so that the program for
 * boards holds it once. */
static void requantize(const mp_requantized *o, const void *acc, size_t acc_ld, int rows, int channels, int channel,
                       void *out, size_t out_ld)
{
    mp_table_neon.requantize(o, acc, acc_ld, rows, channels, channel, out, out_ld);
}

static void rescale(const mp_rescaling *o, const void *x, int type, void *out, int out_type, size_t count)
{
    mp_table_neon.rescale(o, x, type, out, out_type, count);
}

static void add_codes(const mp_adding *o, const void *a, const void *b, void *out, int type, size_t count)
{
    mp_table_neon.add_codes(o, a, b, out, type, count);
}

static float divide(const float *x, void *out, int type, size_t count, float scale, int zero_point, int low, int high)
{
    return mp_table_neon.divide(x, out, type, count, scale, zero_point, low, high);
}
