/* SPDX-License-Identifier: MIT */
/* Codes in integers alone. Plain C, which compilers turn into this level's vectors: a few values at a time become int32,
 * and these codes again. */
#include "../fixed_point.h"

enum { CHUNK = 64 };

static inline size_t chunk_of(size_t left) { return left < CHUNK ? left : CHUNK; }
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

#ifdef VI_FIXED_POINT
/* Of whole vectors, as what follows says it. */
static inline __attribute__((always_inline)) void rescale_steps(const mp_rescaling *o, const int count, int32_t *codes)
{
    vi m[2], left[2], right[2], down[2];
    for (int i = 0; i < 2; i++) {
        m[i] = vi_set1(o->multiplier[i]);
        left[i] = vi_set1(mp_shift_left(o->shift[i]));
        right[i] = vi_set1(mp_shift_right(o->shift[i]));
        down[i] = vi_set1(o->shift[i] >> 31);
    }
    const vi low = vi_set1(o->low), high = vi_set1(o->high), zero_point = vi_set1(o->out_zero_point);
    for (int i = 0; i < count; i += VL) {
        const vi x = vi_load(codes + i);
        const vi y = vi_times_by(x, vi_by_sign(x, m[0], m[1]), vi_by_sign(x, left[0], left[1]),
                                 vi_by_sign(x, right[0], right[1]), vi_by_sign(x, down[0], down[1]));
        vi_store(codes + i, vi_add(vi_within(y, low, high), zero_point));
    }
}
#else
/* Steps from the real 0 -> codes. */
static inline __attribute__((always_inline)) void rescale_steps(const mp_rescaling *o, const int count,
                                                                int32_t *restrict codes)
{
    const int32_t m = o->multiplier[0], left = mp_shift_left(o->shift[0]), right = mp_shift_right(o->shift[0]),
                  down = o->shift[0] >> 31;
    /* What else there is below 0, as bits that differ. */
    const int32_t m_below = m ^ o->multiplier[1], left_below = left ^ mp_shift_left(o->shift[1]),
                  right_below = right ^ mp_shift_right(o->shift[1]), down_below = down ^ (o->shift[1] >> 31);
    const int32_t low = o->low, high = o->high, zero_point = o->out_zero_point;
    for (int i = 0; i < count; i++) {
        const int32_t x = codes[i], below = x >> 31;
        const int32_t y = mp_times_by(x, m ^ (m_below & below), left ^ (left_below & below),
                                      right ^ (right_below & below), down ^ (down_below & below));
        codes[i] = within(y, low, high) + zero_point;
    }
}
#endif

static void rescale(const mp_rescaling *o, const void *x, int type, void *out, int out_type, size_t count)
{
    int32_t codes[CHUNK] = {0};
    for (size_t at = 0; at < count; at += CHUNK) {
        const int length = (int)chunk_of(count - at);
        load_codes(x, type, at, length, codes);
        for (int i = 0; i < length; i++) codes[i] -= o->zero_point;
        rescale_steps(o, length, codes);
        store_codes(out, out_type, at, length, codes);
    }
}

static void add_codes(const mp_adding *o, const void *a, const void *b, void *out, int type, size_t count)
{
    int32_t x[CHUNK], y[CHUNK];
    const mp_adding of = *o;
    for (size_t at = 0; at < count; at += CHUNK) {
        const int length = (int)chunk_of(count - at);
        load_codes(a, type, at, length, x);
        load_codes(b, type, at, length, y);
        for (int i = 0; i < length; i++) {
            const int32_t p = (x[i] - of.zero_point[0]) * (1 << of.left),
                          q = (y[i] - of.zero_point[1]) * (1 << of.left);
            const int32_t sum =
                mp_times_32(p, of.multiplier[0], of.shift[0]) + mp_times_32(q, of.multiplier[1], of.shift[1]);
            x[i] = within(mp_times_32(sum, of.multiplier[2], of.shift[2]), of.low, of.high) + of.zero_point[2];
        }
        store_codes(out, type, at, length, x);
    }
}

static float divide(const float *restrict x, void *restrict out, int type, size_t count, float scale, int zero_point,
                    int low, int high)
{
    int32_t codes[CHUNK];
    float bad = 0.0f;
    const float least = (float)low, most = (float)high;
    for (size_t at = 0; at < count; at += CHUNK) {
        const int length = (int)chunk_of(count - at);
        float odd = 0.0f;
        for (int i = 0; i < length; i++) {
            const float t = x[at + i] / scale, u = t < least ? least : t > most ? most : t;
            codes[i] = (int32_t)(u + copysignf(0x1.fffffep-2f, u)) + zero_point; /* the float below 0.5 */
        }
        for (int i = 0; i < length; i++) odd += x[at + i] * 0.0f;
        bad += odd;
        store_codes(out, type, at, length, codes);
    }
    return bad;
}

/* The output stage takes a few channels of all rows at a time: what belongs to a channel is loaded once, and loops of a constant
 * length become straight code. No more than a tile has: lanes behind the last channel are read, and mean nothing. */
enum { BLOCK_CHANNELS = VL < 8 ? 2 * VL : 16 };
#define STRAIGHT static inline __attribute__((always_inline))

STRAIGHT void sums_of(const int32_t *restrict sums, size_t acc_ld, const int windows, const int lanes,
                      int32_t *restrict x)
{
    for (int i = 0; i < lanes; i++) {
        if (windows) { /* larger sums never give smaller codes */
            const int32_t a = sums[i], b = sums[acc_ld + i], c = sums[2 * acc_ld + i], d = sums[3 * acc_ld + i];
            const int32_t upper = a > b ? a : b, lower = c > d ? c : d;
            x[i] = upper > lower ? upper : lower;
        } else {
            x[i] = sums[i];
        }
    }
}

/* Of a window's sums in byte pairs, 256 * upper + lower, the largest. */
STRAIGHT void largest_byte_pairs(const int32_t *restrict sums, size_t apart, size_t acc_ld, const int lanes,
                                 int32_t *restrict upper, int32_t *restrict lower)
{
    for (int i = 0; i < lanes; i++) {
        int64_t most = (int64_t)sums[i] * 256 + sums[apart + i];
        for (int k = 1; k < 4; k++) {
            const int64_t other = (int64_t)sums[k * acc_ld + i] * 256 + sums[k * acc_ld + apart + i];
            most = most > other ? most : other;
        }
        upper[i] = (int32_t)(most >> 8);
        lower[i] = (int32_t)(most & 255);
    }
}

STRAIGHT void put_codes(const int32_t *restrict codes, int n, const int lanes, int out_type, void *out, size_t at)
{
#ifdef VI_STORES_TWO
    if (out_type == MP_TYPE_I8 && n == 2 * VL) { /* which compilers pack byte by byte */
        vi_store_two_s8((int8_t *)out + at, vi_load(codes), vi_load(codes + VL));
        return;
    }
#endif
    int16_t words[BLOCK_CHANNELS];
    int8_t bytes[BLOCK_CHANNELS];
    if (out_type == MP_TYPE_I8) {
        for (int i = 0; i < lanes; i++) bytes[i] = (int8_t)codes[i];
        if (n == lanes)
            memcpy((int8_t *)out + at, bytes, lanes * sizeof *bytes);
        else
            for (int i = 0; i < n; i++) ((int8_t *)out)[at + i] = bytes[i];
    } else {
        for (int i = 0; i < lanes; i++) words[i] = (int16_t)codes[i];
        if (n == lanes)
            memcpy((int16_t *)out + at, words, lanes * sizeof *words);
        else
            for (int i = 0; i < n; i++) ((int16_t *)out)[at + i] = words[i];
    }
}

/* n channels of all rows, of at most `lanes`. */
STRAIGHT void requantize_32(const mp_requantized *of, const int32_t *sums, size_t acc_ld, int rows, int n, int channel,
                            void *out, size_t at, size_t out_ld, const int lanes, const int windows, const int leaky)
{
    const mp_requantized o = *of;
    int32_t bias[BLOCK_CHANNELS] = {0}, multiplier[BLOCK_CHANNELS] = {0}, left[BLOCK_CHANNELS] = {0},
            right[BLOCK_CHANNELS] = {0}, down[BLOCK_CHANNELS] = {0};
    for (int i = 0; i < n; i++) {
        const int32_t shift = o.shift[channel + i];
        bias[i] = ((const int32_t *)o.bias)[channel + i];
        multiplier[i] = o.multiplier[channel + i];
        left[i] = mp_shift_left(shift);
        right[i] = mp_shift_right(shift);
        down[i] = shift >> 31;
    }
    for (int r = 0; r < rows; r += windows ? 4 : 1, sums += (windows ? 4 : 1) * acc_ld, at += out_ld) {
        int32_t codes[BLOCK_CHANNELS];
        sums_of(sums, acc_ld, windows, lanes, codes);
#ifdef VI_FIXED_POINT
        for (int i = 0; i < lanes; i += VL) {
            const vi x = vi_times_by(vi_add(vi_load(codes + i), vi_load(bias + i)), vi_load(multiplier + i),
                                     vi_load(left + i), vi_load(right + i), vi_load(down + i));
            vi_store(codes + i, vi_add(vi_within(x, vi_set1(o.low), vi_set1(o.high)), vi_set1(o.add)));
        }
#else
        /* unsigned: what stands behind the last channel may be anything */
        for (int i = 0; i < lanes; i++) {
            const int32_t x = (int32_t)((uint32_t)codes[i] + (uint32_t)bias[i]);
            codes[i] = within(mp_times_by(x, multiplier[i], left[i], right[i], down[i]), o.low, o.high) + o.add;
        }
#endif
        if (leaky) rescale_steps(&o.after, lanes, codes);
        put_codes(codes, n, lanes, o.out_type, out, at);
    }
}

STRAIGHT void requantize_64(const mp_requantized *of, const int32_t *sums, size_t acc_ld, int rows, int n, int channel,
                            void *out, size_t at, size_t out_ld, const int lanes, const int windows, const int leaky)
{
    const mp_requantized o = *of;
    int64_t bias[BLOCK_CHANNELS] = {0},
            shift[BLOCK_CHANNELS] = {0}; /* as wide as what is shifted, which compilers want */
    int32_t factor[BLOCK_CHANNELS] = {0};
    const int64_t low = o.low, high = o.high;
    const int32_t add = o.add;
    for (int i = 0; i < n; i++) {
        bias[i] = ((const int64_t *)o.bias)[channel + i];
        factor[i] = o.multiplier[channel + i];
        shift[i] = o.shift[channel + i];
    }
    for (int r = 0; r < rows; r += windows ? 4 : 1, sums += (windows ? 4 : 1) * acc_ld, at += out_ld) {
        int32_t codes[BLOCK_CHANNELS], upper[BLOCK_CHANNELS], lower[BLOCK_CHANNELS];
        const int32_t *restrict u = sums, *restrict l = sums + o.lower;
        if (windows && o.lower) {
            largest_byte_pairs(sums, o.lower, acc_ld, lanes, upper, lower);
            u = upper;
            l = lower;
        } else if (windows) {
            sums_of(sums, acc_ld, windows, lanes, upper);
            u = upper;
        }
        if (o.lower)
            for (int i = 0; i < lanes; i++) {
                int64_t x = ((int64_t)u[i] * factor[i] * 256 + (int64_t)l[i] * factor[i] + bias[i]) >> shift[i];
                x = x < low ? low : x > high ? high : x;
                codes[i] = (int32_t)x + add;
            }
        else
            for (int i = 0; i < lanes; i++) {
                int64_t x = ((int64_t)u[i] * factor[i] + bias[i]) >> shift[i];
                x = x < low ? low : x > high ? high : x;
                codes[i] = (int32_t)x + add;
            }
        if (leaky) rescale_steps(&o.after, lanes, codes);
        put_codes(codes, n, lanes, o.out_type, out, at);
    }
}

#define REQUANTIZE(NAME, LANES, WINDOWS, LEAKY)                                                                        \
    static void NAME(const mp_requantized *o, const int32_t *sums, size_t acc_ld, int rows, int n, int channel,        \
                     void *out, size_t at, size_t out_ld)                                                              \
    {                                                                                                                  \
        if (o->wide)                                                                                                   \
            requantize_64(o, sums, acc_ld, rows, n, channel, out, at, out_ld, LANES, WINDOWS, LEAKY);                  \
        else                                                                                                           \
            requantize_32(o, sums, acc_ld, rows, n, channel, out, at, out_ld, LANES, WINDOWS, LEAKY);                  \
    }
REQUANTIZE(requantize_linear, BLOCK_CHANNELS, 0, 0)
REQUANTIZE(requantize_leaky, BLOCK_CHANNELS, 0, 1)
REQUANTIZE(requantize_windows, BLOCK_CHANNELS, 1, 0)
REQUANTIZE(requantize_leaky_windows, BLOCK_CHANNELS, 1, 1)

static void requantize(const mp_requantized *o, const void *acc, size_t acc_ld, int rows, int channels, int channel,
                       void *out, size_t out_ld)
{
    for (int first = 0; first < channels; first += BLOCK_CHANNELS) {
        const int n = channels - first < BLOCK_CHANNELS ? channels - first : BLOCK_CHANNELS;
        const int32_t *sums = (const int32_t *)acc + first;
        if (o->windows)
            (o->leaky ? requantize_leaky_windows : requantize_windows)(o, sums, acc_ld, rows, n, channel + first, out,
                                                                       (size_t)first, out_ld);
        else
            (o->leaky ? requantize_leaky : requantize_linear)(o, sums, acc_ld, rows, n, channel + first, out,
                                                              (size_t)first, out_ld);
    }
}
