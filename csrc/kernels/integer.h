/* SPDX-License-Identifier: MIT */
/* Codes in whole numbers alone. Plain C, which compilers turn into this level's vectors: a few values at a time become int32,
 * and these codes again. */
#include "../fixed_point.h"

enum { WHOLE = 64 };

static inline size_t whole_part(size_t left) { return left < WHOLE ? left : WHOLE; }
static inline int32_t within(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

static inline void load_codes(const void *restrict x, int type, size_t at, int count, int32_t *restrict codes)
{
    if (type == MP_TYPE_I8) {
        const int8_t *from = (const int8_t *)x + at;
        for (int i = 0; i < count; i++) codes[i] = from[i];
    } else {
        const int16_t *from = (const int16_t *)x + at;
        for (int i = 0; i < count; i++) codes[i] = from[i];
    }
}

static inline void store_codes(void *restrict out, int type, size_t at, int count, const int32_t *restrict codes)
{
    if (type == MP_TYPE_I8) {
        int8_t *to = (int8_t *)out + at;
        for (int i = 0; i < count; i++) to[i] = (int8_t)codes[i];
    } else {
        int16_t *to = (int16_t *)out + at;
        for (int i = 0; i < count; i++) to[i] = (int16_t)codes[i];
    }
}

/* Steps from the real 0 -> codes. */
static inline void rescale_steps(const mp_rescaling *o, int count, int32_t *codes)
{
    const int32_t above = o->multiplier[0], below = o->multiplier[1], above_shift = o->shift[0],
                  below_shift = o->shift[1];
    const int32_t low = o->low, high = o->high, zero_point = o->out_zero_point;
    for (int i = 0; i < count; i++) {
        const int32_t x = codes[i];
        codes[i] =
            within(mp_times_32(x, x < 0 ? below : above, x < 0 ? below_shift : above_shift), low, high) + zero_point;
    }
}

static void rescale(const mp_rescaling *o, const void *x, int type, void *out, int out_type, size_t count)
{
    int32_t codes[WHOLE];
    for (size_t at = 0; at < count; at += WHOLE) {
        const int part = (int)whole_part(count - at);
        load_codes(x, type, at, part, codes);
        for (int i = 0; i < part; i++) codes[i] -= o->zero_point;
        rescale_steps(o, part, codes);
        store_codes(out, out_type, at, part, codes);
    }
}

static void add_codes(const mp_adding *o, const void *a, const void *b, void *out, int type, size_t count)
{
    int32_t x[WHOLE], y[WHOLE];
    const mp_adding of = *o;
    for (size_t at = 0; at < count; at += WHOLE) {
        const int part = (int)whole_part(count - at);
        load_codes(a, type, at, part, x);
        load_codes(b, type, at, part, y);
        for (int i = 0; i < part; i++) {
            const int32_t p = (x[i] - of.zero_point[0]) * (1 << of.left),
                          q = (y[i] - of.zero_point[1]) * (1 << of.left);
            const int32_t sum =
                mp_times_32(p, of.multiplier[0], of.shift[0]) + mp_times_32(q, of.multiplier[1], of.shift[1]);
            x[i] = within(mp_times_32(sum, of.multiplier[2], of.shift[2]), of.low, of.high) + of.zero_point[2];
        }
        store_codes(out, type, at, part, x);
    }
}

static float divide(const float *restrict x, void *restrict out, int type, size_t count, float scale, int zero_point,
                    int low, int high)
{
    int32_t codes[WHOLE];
    float bad = 0.0f;
    const float least = (float)low, most = (float)high;
    for (size_t at = 0; at < count; at += WHOLE) {
        const int part = (int)whole_part(count - at);
        float odd = 0.0f;
        for (int i = 0; i < part; i++) {
            const float t = x[at + i] / scale, u = t < least ? least : t > most ? most : t;
            codes[i] = (int32_t)(u + copysignf(0x1.fffffep-2f, u)) + zero_point; /* the float below 0.5 */
        }
        for (int i = 0; i < part; i++) odd += x[at + i] * 0.0f;
        bad += odd;
        store_codes(out, type, at, part, codes);
    }
    return bad;
}

/* A pixel's sums -> codes, or what LeakyReLU makes of them: its steps from the real 0. */
static inline void requantize_32(const mp_requantized *o, const int32_t *restrict sums, int channels, int channel,
                                 int32_t *restrict codes)
{
    const int32_t *restrict bias = (const int32_t *)o->bias + channel, *restrict multiplier = o->multiplier + channel,
                            *restrict shift = o->shift + channel;
    const int32_t low = o->low, high = o->high, add = o->add;
    for (int c = 0; c < channels; c++)
        codes[c] = within(mp_times_32(sums[c] + bias[c], multiplier[c], shift[c]), low, high) + add;
}

static inline void requantize_64(const mp_requantized *o, const int32_t *restrict upper, const int32_t *restrict lower,
                                 int channels, int channel, int32_t *restrict codes)
{
    const int64_t *restrict bias =
        (const int64_t *)o->bias + channel; /* times the factor, with half of what is shifted out */
    const int32_t *restrict factor = o->multiplier + channel, *restrict shift = o->shift + channel;
    const int64_t low = o->low, high = o->high;
    if (lower)
        for (int c = 0; c < channels; c++) {
            const int64_t x =
                ((int64_t)upper[c] * factor[c] * 256 + (int64_t)lower[c] * factor[c] + bias[c]) >> shift[c];
            codes[c] = (int32_t)(x < low ? low : x > high ? high : x);
        }
    else
        for (int c = 0; c < channels; c++) {
            const int64_t x = ((int64_t)upper[c] * factor[c] + bias[c]) >> shift[c];
            codes[c] = (int32_t)(x < low ? low : x > high ? high : x);
        }
}

static inline void requantize_pixel(const mp_requantized *o, const int32_t *sums, int channels, int channel,
                                    int32_t *codes)
{
    if (o->wide)
        requantize_64(o, sums, o->lower ? sums + o->lower : 0, channels, channel, codes);
    else
        requantize_32(o, sums, channels, channel, codes);
}

static void requantize(const mp_requantized *o, const void *acc, size_t acc_ld, int rows, int channels, int channel,
                       void *out, size_t out_ld)
{
    int32_t codes[WHOLE], others[WHOLE];
    const int32_t *sums = acc;
    const int each = o->windows ? 4 : 1;
    for (int r = 0; r < rows; r += each, sums += each * acc_ld)
        for (int first = 0, count; first < channels; first += count) {
            count = (int)whole_part((size_t)(channels - first));
            requantize_pixel(o, sums + first, count, channel + first, codes);
            for (int i = 1; i < each; i++) { /* larger sums never give smaller codes */
                requantize_pixel(o, sums + i * acc_ld + first, count, channel + first, others);
                for (int c = 0; c < count; c++) codes[c] = codes[c] > others[c] ? codes[c] : others[c];
            }
            if (o->leaky) rescale_steps(&o->after, count, codes);
            store_codes(out, o->out_type, (size_t)(r / each) * out_ld + (size_t)first, count, codes);
        }
}
