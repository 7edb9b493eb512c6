/* SPDX-License-Identifier: MIT */
/* Convolutions of one way to sum, which definitions say when this is compiled:
 *   SUMS       CHAIN, HALVES, INTEGERS, LONG_INTEGERS, WINOGRAD or HALF_WINOGRAD
 *   STORED     the type of the input, TYPE_*
 *   CHANNELS   output channels of one work item; weights are packed for it
 *   BYTE_PRODUCTS  whether the device adds four products of bytes at once
 * A work item computes these channels of PIXELS consecutive pixels (or of the four of a 2x2 window), so that a weight that was read
 * serves several pixels and an input several channels; in which order an output sums does not hang on either. */
#define CHAIN 0
#define HALVES 1
#define INTEGERS 2
#define LONG_INTEGERS 3
#define WINOGRAD 4
#define HALF_WINOGRAD 5
#define PIXELS 4

#if SUMS == INTEGERS
typedef i32 sum_t;
typedef i32 value_t;
typedef i8 weight_t;
#elif SUMS == LONG_INTEGERS
typedef i64 sum_t;
typedef i32 value_t;
typedef i8 weight_t;
#else
typedef float sum_t;
typedef float value_t;
typedef float weight_t;
#endif
#define IS_WINOGRAD (SUMS == WINOGRAD || SUMS == HALF_WINOGRAD)
#define IS_INTEGER (SUMS == INTEGERS || SUMS == LONG_INTEGERS)

/* The numbers of a call; mpnet/kernels/gpu/source.py reads this declaration. *_start: the byte at which a tensor begins. */
typedef struct {
    i64 x_start, weights_start, out_start, bias_start, weight_scale_start, weight_sum_start, in_scale_start, in_zero_point_start;
    i64 in_offset_start, out_inv_scale_start, out_zero_point_start, ranges_start, sums_start, integer_bias_start, multiplier_start;
    i64 shift_start, leaky_multiplier_start, leaky_shift_start, items;
    i32 in_h, in_w, in_channels, out_channels, size, stride, padding, dilation, groups, out_h, out_w;
    i32 padded_channels, top, bottom, left, right, activation, out_type, out_rounding, out_low, out_high, result_h, result_w;
    i32 is_pooled, has_ranges, has_sums, gives_sums, integer_rule, is_leaky, leaky_low, leaky_high;
} convolution;

/* What a call reads and writes, beside the numbers. */
#define MEMORIES                                                                                                       \
    GLOBAL const u8 *x_memory, GLOBAL const u8 *weights_memory, GLOBAL u8 *out_memory, GLOBAL const u8 *bias_memory,   \
        GLOBAL const u8 *weight_scale_memory, GLOBAL const u8 *weight_sum_memory, GLOBAL const u8 *in_scale_memory,    \
        GLOBAL const u8 *in_zero_point_memory, GLOBAL const u8 *in_offset_memory,                                      \
        GLOBAL const u8 *out_inv_scale_memory, GLOBAL const u8 *out_zero_point_memory, GLOBAL u8 *ranges_memory,       \
        GLOBAL const u8 *sums_memory, GLOBAL const u8 *integer_bias_memory, GLOBAL const u8 *multiplier_memory,        \
        GLOBAL const u8 *shift_memory, GLOBAL const u8 *leaky_multiplier_memory, GLOBAL const u8 *leaky_shift_memory,  \
        GLOBAL i32 *status, const i32 number
#define THEIR_NAMES                                                                                                    \
    x_memory, weights_memory, out_memory, bias_memory, weight_scale_memory, weight_sum_memory, in_scale_memory,        \
        in_zero_point_memory, in_offset_memory, out_inv_scale_memory, out_zero_point_memory, ranges_memory, sums_memory, \
        integer_bias_memory, multiplier_memory, shift_memory, leaky_multiplier_memory, leaky_shift_memory, status, \
        number
#define READ(type, name, i) (((GLOBAL const type *)(name##_memory + a->name##_start))[i])

/* Extremes of a work item, and whether one of its results is not finite. */
typedef struct {
    i32 low, high, is_bad;
} outcome;

#if IS_INTEGER
/* The code of a sum by integers alone. */
FN i32 integer_code(const convolution *a, i64 sum, i32 n, i32 k, MEMORIES)
{
    const i32 multiplier = READ(i32, multiplier, k), shift = READ(i32, shift, k);
    i64 steps;
    if (a->integer_rule == 64) steps = times_64(sum + READ(i64, integer_bias, k), multiplier, shift);
    else steps = times_32(sum + READ(i32, integer_bias, k), multiplier, shift);
    if (a->is_leaky) {
        int below;
        steps = within(steps, a->leaky_low, a->leaky_high);
        below = steps < 0;
        steps = times_32(steps, READ(i32, leaky_multiplier, below), READ(i32, leaky_shift, below));
    }
    return (i32)within(steps + READ(i32, out_zero_point, n), a->out_low, a->out_high);
}
#endif

/* The real that a finished sum stands for, before the activation. */
FN float to_real(const convolution *a, sum_t sum, i32 n, i32 k, MEMORIES)
{
#if SUMS == CHAIN
    return sum;
#elif SUMS == HALVES || IS_WINOGRAD
    return ADD(sum, READ(float, bias, k));
#else
    const float offset = READ(float, in_offset, n), weight_scale = READ(float, weight_scale, k);
    const float factor = MUL(READ(float, in_scale, n), weight_scale);
    float shifted = READ(float, bias, k);
    if (offset != 0.0f) shifted = FMA(offset, MUL(weight_scale, READ(float, weight_sum, k)), shifted);
#if SUMS == INTEGERS
    return FMA(FROM_I32(sum), factor, shifted);
#else
    return FMA(FROM_I64(sum), factor, shifted);
#endif
#endif
}

/* Store one result of channel k: what `members` sums become, or the largest of what they become. */
FN void store_result(const convolution *a, const sum_t *sums, int members, i32 n, i32 k, i64 at, outcome *result, MEMORIES)
{
    GLOBAL u8 *out = out_memory + a->out_start;
    float best = 0.0f;
    i32 best_code = 0;
    int i;
    for (i = 0; i < members; i++) {
        sum_t sum = sums[i];
        float r;
#if IS_INTEGER
        if (a->has_sums) sum += READ(i32, sums, at);
        if (a->gives_sums) {
            ((GLOBAL i32 *)out)[at] = (i32)sum;
            return;
        }
        if (a->integer_rule) {
            const i32 code = integer_code(a, sum, n, k, THEIR_NAMES);
            if (!i || code > best_code) best_code = code;
            continue;
        }
#endif
        r = to_real(a, sum, n, k, THEIR_NAMES);
        result->is_bad |= not_finite(r);
        r = activate(r, a->activation);
        if (is_real(a->out_type)) {
            const float rounded = rounded_to(r, a->out_type);
            result->is_bad |= a->out_type != TYPE_F32 && not_finite(rounded);
            if (a->is_pooled) r = rounded; /* what is measured of pooled reals is what is stored */
            if (!i || r > best) best = r;
        } else {
            const i32 code = quantized(r, READ(float, out_inv_scale, n), READ(i32, out_zero_point, n), a->out_rounding, a->out_low, a->out_high);
            if (!i || code > best_code) best_code = code;
            best = r;
        }
    }
    if (is_real(a->out_type)) store_real(out, at, a->out_type, best);
    else store_code(out, at, a->out_type, best_code);
    if (a->has_ranges) {
        const i32 key = ordered(best);
        result->low = key < result->low ? key : result->low;
        result->high = key > result->high ? key : result->high;
    }
}

FN outcome no_outcome(void)
{
    outcome result;
    result.low = 0x7fffffff;
    result.high = -0x7fffffff - 1;
    result.is_bad = 0;
    return result;
}
FN void leave(const convolution *a, const outcome *result, i32 n, MEMORIES)
{
    if (result->is_bad) FAIL(MP_NONFINITE);
    if (a->has_ranges) {
        GLOBAL i32 *ranges = (GLOBAL i32 *)(ranges_memory + a->ranges_start) + 2 * n;
        ATOMIC_MIN(ranges, result->low);
        ATOMIC_MAX(ranges + 1, result->high);
    }
}

/* The pixels of a work item: `tile` of the result, four in a row, or those of one window where the result is pooled. */
typedef struct {
    i32 y[PIXELS], x[PIXELS];
    int is_inside[PIXELS];
    i64 first; /* of the results, in the image */
} tile_pixels;
FN i32 tiles_of(const convolution *a)
{
    const i32 results = a->result_h * a->result_w;
    return a->is_pooled ? results : (results + PIXELS - 1) / PIXELS;
}
FN i32 row_of(const convolution *a, i32 tile, int p)
{
    return a->is_pooled ? 2 * (tile / a->result_w) + (p >> 1) : (tile * PIXELS + p) / a->out_w;
}
FN i32 column_of(const convolution *a, i32 tile, int p)
{
    return a->is_pooled ? 2 * (tile % a->result_w) + (p & 1) : (tile * PIXELS + p) % a->out_w;
}
FN tile_pixels pixels_of(const convolution *a, i32 tile)
{
    tile_pixels pixels;
    int p;
    pixels.first = a->is_pooled ? tile : (i64)tile * PIXELS;
    for (p = 0; p < PIXELS; p++) {
        pixels.y[p] = row_of(a, tile, p);
        pixels.x[p] = column_of(a, tile, p);
        pixels.is_inside[p] = pixels.y[p] < a->out_h && pixels.x[p] < a->out_w;
    }
    return pixels;
}
FN void store_tile(const convolution *a, sum_t sums[PIXELS][CHANNELS], const tile_pixels *pixels, i32 n, i32 k0, int channels, MEMORIES)
{
    const i64 image = (i64)n * a->result_h * a->result_w;
    outcome result = no_outcome();
    int p, q;
    for (q = 0; q < channels; q++) {
        sum_t members[PIXELS];
        int count = 0;
        for (p = 0; p < PIXELS; p++)
            if (pixels->is_inside[p]) members[count++] = sums[p][q];
        if (a->is_pooled) {
            store_result(a, members, count, n, k0 + q, (image + pixels->first) * a->out_channels + k0 + q, &result, THEIR_NAMES);
        } else {
            for (p = 0; p < count; p++)
                store_result(a, members + p, 1, n, k0 + q, (image + pixels->first + p) * a->out_channels + k0 + q, &result, THEIR_NAMES);
        }
    }
    leave(a, &result, n, THEIR_NAMES);
}

#if IS_INTEGER
#define LOAD(at) ((i32)(load_code(x_memory + a->x_start, at, STORED) - zero_point))
#define STEP(value, weight, sum) ((sum) + (value) * (weight))
#define OUTSIDE 0
#else
#define LOAD(at) load_real(x_memory + a->x_start, at, STORED)
#if SUMS == HALVES || SUMS == HALF_WINOGRAD
#define STEP(value, weight, sum) half_fma(value, weight, sum)
#else
#define STEP(value, weight, sum) FMA(value, weight, sum)
#endif
#define OUTSIDE 0.0f
#endif

FN sum_t start_of(const convolution *a, i32 k, MEMORIES)
{
#if SUMS == CHAIN
    return READ(float, bias, k);
#else
    return 0;
#endif
}

/* What a work item computes: `channels` channels of a group from k0 on, of some pixels of image n. */
typedef struct {
    tile_pixels pixels;
    i32 n, group, block, k0, zero_point;
    int channels;
} work_item;
FN work_item work_at(const convolution *a, i32 n, i32 tile, i32 groups, i32 group, i32 block, MEMORIES)
{
    const i32 out_group = a->out_channels / groups;
    work_item work;
    work.block = block;
    work.group = group;
    work.n = n;
    work.k0 = group * out_group + block * CHANNELS;
    work.channels = out_group - block * CHANNELS < CHANNELS ? out_group - block * CHANNELS : CHANNELS;
    work.pixels = pixels_of(a, tile);
    work.zero_point = 0;
#if IS_INTEGER
    work.zero_point = READ(i32, in_zero_point, work.n);
    if (!is_zero_point(STORED, work.zero_point)) FAIL(MP_BAD_ARGUMENT);
#endif
    if (!is_real(a->out_type) && !a->gives_sums && !is_zero_point(a->out_type, READ(i32, out_zero_point, work.n))) FAIL(MP_BAD_ARGUMENT);
    return work;
}
FN work_item work_of(const convolution *a, i64 item, i32 groups, MEMORIES)
{
    const i32 blocks = a->padded_channels / CHANNELS, tiles = tiles_of(a);
    const i64 rest = item / blocks, pixels = rest / groups;
    return work_at(a, (i32)(pixels / tiles), (i32)(pixels % tiles), groups, (i32)(rest % groups), (i32)(item % blocks), THEIR_NAMES);
}
FN void begin_sums(const convolution *a, const work_item *work, sum_t sums[PIXELS][CHANNELS], MEMORIES)
{
    int p, q;
    for (q = 0; q < CHANNELS; q++) {
        const sum_t start = start_of(a, work->k0 + (q < work->channels ? q : 0), THEIR_NAMES);
        for (p = 0; p < PIXELS; p++) sums[p][q] = start;
    }
}
/* The first value of the input's pixel under a tap, counted over all images; -1 outside. */
FN i64 pixel_under(const convolution *a, i32 n, int is_inside, i32 out_y, i32 out_x, i32 ky, i32 kx)
{
    const i32 y = out_y * a->stride - a->padding + ky * a->dilation, x = out_x * a->stride - a->padding + kx * a->dilation;
    if (!is_inside || y < 0 || y >= a->in_h || x < 0 || x >= a->in_w) return -1;
    return (((i64)n * a->in_h + y) * a->in_w + x) * a->in_channels;
}
#define PIXEL_UNDER(a, work, p, ky, kx) \
    pixel_under(a, (work).n, (work).pixels.is_inside[p], (work).pixels.y[p], (work).pixels.x[p], ky, kx)

#if !IS_WINOGRAD
/* weights: of each group, (tap, input channel, padded_channels). */
KERNEL void mp_convolve(const convolution arguments, MEMORIES)
{
    const convolution *a = &arguments;
    const i32 in_group = a->in_channels / a->groups;
    work_item work;
    sum_t sums[PIXELS][CHANNELS];
    i32 ky, kx, c, zero_point;
    int p, q;
    if (ITEM >= a->items) return;
    work = work_of(a, ITEM, a->groups, THEIR_NAMES);
    zero_point = work.zero_point;
    begin_sums(a, &work, sums, THEIR_NAMES);
    for (ky = a->top; ky <= a->bottom; ky++) {
        for (kx = a->left; kx <= a->right; kx++) {
            GLOBAL const weight_t *w = (GLOBAL const weight_t *)(weights_memory + a->weights_start) +
                                       ((i64)(work.group * a->size + ky) * a->size + kx) * in_group * a->padded_channels +
                                       work.block * CHANNELS;
            i64 at[PIXELS];
            int any = 0;
            for (p = 0; p < PIXELS; p++) {
                at[p] = PIXEL_UNDER(a, work, p, ky, kx);
                any |= at[p] >= 0;
                if (at[p] >= 0) at[p] += work.group * in_group;
            }
#if IS_INTEGER
            if (!any) continue; /* codes outside are the zero point, whose products are 0 */
#endif
            for (c = 0; c < in_group; c++) {
                value_t values[PIXELS];
                for (p = 0; p < PIXELS; p++) values[p] = at[p] >= 0 ? LOAD(at[p] + c) : OUTSIDE;
                for (p = 0; p < PIXELS; p++)
                    for (q = 0; q < CHANNELS; q++) sums[p][q] = STEP(values[p], w[q], sums[p][q]);
                w += a->padded_channels;
            }
        }
    }
    store_tile(a, sums, &work.pixels, work.n, work.k0, work.channels, THEIR_NAMES);
}

/* One input channel for each output channel. weights: (tap, padded_channels). */
KERNEL void mp_convolve_depthwise(const convolution arguments, MEMORIES)
{
    const convolution *a = &arguments;
    work_item work;
    sum_t sums[PIXELS][CHANNELS];
    i32 ky, kx, zero_point;
    int p, q;
    if (ITEM >= a->items) return;
    work = work_of(a, ITEM, 1, THEIR_NAMES);
    zero_point = work.zero_point;
    begin_sums(a, &work, sums, THEIR_NAMES);
    for (ky = a->top; ky <= a->bottom; ky++) {
        for (kx = a->left; kx <= a->right; kx++) {
            GLOBAL const weight_t *w = (GLOBAL const weight_t *)(weights_memory + a->weights_start) +
                                       (i64)(ky * a->size + kx) * a->padded_channels + work.k0;
            for (p = 0; p < PIXELS; p++) {
                const i64 at = PIXEL_UNDER(a, work, p, ky, kx);
                for (q = 0; q < work.channels; q++) {
                    const value_t value = at >= 0 ? LOAD(at + work.k0 + q) : OUTSIDE;
                    sums[p][q] = STEP(value, w[q], sums[p][q]);
                }
            }
        }
    }
    store_tile(a, sums, &work.pixels, work.n, work.k0, work.channels, THEIR_NAMES);
}
#else

#if SUMS == HALF_WINOGRAD
#define ROOT 0x1.6a09e6p+0f /* of 2 */
#define HALF_ROOT 0x1.6a09e6p-1f
/* Six values, `step` apart, to six; section 2, fp16_half_winograd. */
FN void transform_input(const float *d, int step, float *v, int v_step)
{
    const float a = FMA(-2.0f, d[2 * step], d[4 * step]), b = FMA(-2.0f, d[step], d[3 * step]);
    const float c = FMA(-0.5f, d[2 * step], d[4 * step]), e = FMA(-0.5f, d[step], d[3 * step]);
    v[0] = ADD(FMA(-2.5f, d[2 * step], d[0]), d[4 * step]);
    v[v_step] = FMA(HALF_ROOT, b, a);
    v[2 * v_step] = FMA(-HALF_ROOT, b, a);
    v[3 * v_step] = FMA(ROOT, e, c);
    v[4 * v_step] = FMA(-ROOT, e, c);
    v[5 * v_step] = ADD(FMA(-2.5f, d[3 * step], d[step]), d[5 * step]);
}
/* Six values to four. */
FN void transform_output(const float *m, int step, float *y, int y_step)
{
    const float p = ADD(m[step], m[2 * step]), q = SUB(m[step], m[2 * step]);
    const float s = ADD(m[3 * step], m[4 * step]), t = SUB(m[3 * step], m[4 * step]);
    y[0] = ADD(ADD(m[0], p), s);
    y[y_step] = FMA(ROOT, t, MUL(HALF_ROOT, q));
    y[2 * y_step] = FMA(2.0f, s, MUL(0.5f, p));
    y[3 * y_step] = FMA(2.0f * ROOT, t, FMA(0.5f * HALF_ROOT, q, m[5 * step]));
}
#define AS_PRODUCT(x) half_to_float(float_to_half(x))
#else
#define AS_PRODUCT(x) (x)
/* Six values, `step` apart, to six; section 2, fp32_winograd. */
FN void transform_input(const float *d, int step, float *v, int v_step)
{
    const float a = SUB(d[4 * step], MUL(4.0f, d[2 * step])), b = SUB(d[3 * step], MUL(4.0f, d[step]));
    const float c = SUB(d[4 * step], d[2 * step]), e = MUL(2.0f, SUB(d[3 * step], d[step]));
    v[0] = ADD(SUB(MUL(4.0f, d[0]), MUL(5.0f, d[2 * step])), d[4 * step]);
    v[v_step] = ADD(a, b);
    v[2 * v_step] = SUB(a, b);
    v[3 * v_step] = ADD(c, e);
    v[4 * v_step] = SUB(c, e);
    v[5 * v_step] = ADD(SUB(MUL(4.0f, d[step]), MUL(5.0f, d[3 * step])), d[5 * step]);
}
/* Six values to four. */
FN void transform_output(const float *m, int step, float *y, int y_step)
{
    const float p = ADD(m[step], m[2 * step]), q = SUB(m[step], m[2 * step]);
    const float r = ADD(m[3 * step], m[4 * step]), s = SUB(m[3 * step], m[4 * step]);
    y[0] = ADD(ADD(m[0], p), r);
    y[y_step] = ADD(q, MUL(2.0f, s));
    y[2 * y_step] = ADD(p, MUL(4.0f, r));
    y[3 * y_step] = ADD(ADD(q, MUL(8.0f, s)), m[5 * step]);
}
#endif
/* weights: (36, input channel, padded_channels). A work item: CHANNELS channels of a tile of 4x4 pixels. */
KERNEL void mp_convolve_winograd(const convolution arguments, MEMORIES)
{
    const convolution *a = &arguments;
    const i32 blocks = a->padded_channels / CHANNELS, tiles_w = (a->out_w + 3) / 4, tiles = tiles_w * ((a->out_h + 3) / 4);
    const i64 item = ITEM;
    GLOBAL const float *weights = (GLOBAL const float *)(weights_memory + a->weights_start);
    i32 n, k0, y0, x0, c;
    int i, q, channels;
    float m[36][CHANNELS];
    outcome result = no_outcome();
    if (item >= a->items) return;
    k0 = (i32)(item % blocks) * CHANNELS;
    y0 = (i32)(item / blocks % tiles) / tiles_w * 4;
    x0 = (i32)(item / blocks % tiles) % tiles_w * 4;
    n = (i32)(item / blocks / tiles);
    channels = a->out_channels - k0 < CHANNELS ? a->out_channels - k0 : CHANNELS;
    for (i = 0; i < 36; i++)
        for (q = 0; q < CHANNELS; q++) m[i][q] = 0.0f;
    for (c = 0; c < a->in_channels; c++) {
        float d[36], v[36];
        for (i = 0; i < 36; i++) {
            const i32 y = y0 - a->padding + i / 6, x = x0 - a->padding + i % 6;
            const int is_inside = y >= 0 && y < a->in_h && x >= 0 && x < a->in_w;
            d[i] = is_inside ? LOAD((((i64)n * a->in_h + y) * a->in_w + x) * a->in_channels + c) : 0.0f;
        }
        for (i = 0; i < 6; i++) transform_input(d + i, 6, v + i, 6);
        for (i = 0; i < 6; i++) transform_input(v + 6 * i, 1, d + 6 * i, 1);
        for (i = 0; i < 36; i++) d[i] = AS_PRODUCT(d[i]);
        for (i = 0; i < 36; i++) {
            GLOBAL const float *w = weights + ((i64)i * a->in_channels + c) * a->padded_channels + k0;
            for (q = 0; q < CHANNELS; q++) m[i][q] = STEP(d[i], w[q], m[i][q]);
        }
    }
    for (q = 0; q < channels; q++) {
        float lines[36], half_way[24], y[16];
        int row, column;
        for (i = 0; i < 36; i++) lines[i] = m[i][q];
        for (i = 0; i < 6; i++) transform_output(lines + i, 6, half_way + i, 6);
        for (i = 0; i < 4; i++) transform_output(half_way + 6 * i, 1, y + 4 * i, 1);
        if (a->is_pooled) {
            for (i = 0; i < 4; i++) {
                const i32 top = y0 + 2 * (i >> 1), left = x0 + 2 * (i & 1), ry = top / 2, rx = left / 2;
                float members[4];
                int count = 0;
                if (ry >= a->result_h || rx >= a->result_w) continue;
                for (row = 0; row < 2; row++)
                    for (column = 0; column < 2; column++)
                        if (top + row < a->out_h && left + column < a->out_w)
                            members[count++] = y[4 * (2 * (i >> 1) + row) + 2 * (i & 1) + column];
                store_result(a, members, count, n, k0 + q, (((i64)n * a->result_h + ry) * a->result_w + rx) * a->out_channels + k0 + q,
                             &result, THEIR_NAMES);
            }
        } else {
            for (i = 0; i < 16; i++)
                if (y0 + i / 4 < a->out_h && x0 + i % 4 < a->out_w)
                    store_result(a, y + i, 1, n, k0 + q,
                                 (((i64)n * a->out_h + y0 + i / 4) * a->out_w + x0 + i % 4) * a->out_channels + k0 + q, &result, THEIR_NAMES);
        }
    }
    leave(a, &result, n, THEIR_NAMES);
}
#endif
