/* SPDX-License-Identifier: MIT */
/* Everything but convolutions. A kernel takes what the function of its name in csrc/mpnet.h takes: a tensor's memory and first byte
 * for an address, the number of a stored type for a type, without the number of threads; `items` work items do something. */

/* ---- ranges: [min, max] per image; while they are measured, as `ordered` integers ---- */
KERNEL void mp_begin_ranges(const i64 items, TENSOR(ranges))
{
    const i64 i = ITEM;
    if (i < items) VALUES(i32, ranges)[i] = i & 1 ? -0x7fffffff - 1 : 0x7fffffff;
}
KERNEL void mp_end_ranges(const i64 items, TENSOR(ranges))
{
    const i64 i = ITEM;
    if (i < items) VALUES(float, ranges)[i] = from_ordered(VALUES(i32, ranges)[i]);
}
/* A work item measures STRETCH values, so that few of them meet at an image's range. */
#define STRETCH 64
KERNEL void mp_value_range(const i64 items, TENSOR(x), const i64 type, const i64 images, const i64 count, TENSOR(ranges), STATUS)
{
    const i64 item = ITEM, stretches = (count + STRETCH - 1) / STRETCH, n = item / stretches, first = item % stretches * STRETCH;
    const i64 end = first + STRETCH < count ? first + STRETCH : count;
    i32 low = 0x7fffffff, high = -0x7fffffff - 1, is_bad = 0;
    i64 i;
    if (item >= items) return;
    for (i = first; i < end; i++) {
        const float x = load_real(VALUES(u8, x), n * count + i, type);
        const i32 key = ordered(x);
        is_bad |= not_finite(x);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    if (is_bad) FAIL(MP_NONFINITE);
    ATOMIC_MIN(VALUES(i32, ranges) + 2 * n, low);
    ATOMIC_MAX(VALUES(i32, ranges) + 2 * n + 1, high);
}

/* Of mp_quant_params, whose fields are all of 32 bits. */
enum { MODE_AFFINE = 0, MODE_SYMMETRIC = 1, MODE_POWER_OF_TWO = 2 };
enum { P_MODE, P_ROUNDING, P_ZERO_POINT, P_LOW, P_HIGH, P_SCALE, P_INV_SCALE, P_OFFSET, P_RANGE_MIN, P_RANGE_MAX, P_COUNT };
/* Section 9, without TensorFlow's modes. */
KERNEL void mp_ranges_to_params(const i64 items, TENSOR(ranges), TENSOR(params), TENSOR(scale), TENSOR(inv_scale), TENSOR(zero_point),
                             TENSOR(offset), const i64 mode, const i64 rounding, const i64 bits, STATUS)
{
    const i64 n = ITEM;
    GLOBAL i32 *words = VALUES(i32, params) + n * P_COUNT;
    GLOBAL float *reals = VALUES(float, params) + n * P_COUNT;
    float minimum, maximum, mn, mx, s;
    i32 most, zero = 0;
    if (n >= items) return;
    minimum = VALUES(float, ranges)[2 * n];
    maximum = VALUES(float, ranges)[2 * n + 1];
    if (not_finite(minimum) || not_finite(maximum)) {
        FAIL(MP_NONFINITE);
        return;
    }
    if (minimum > maximum) {
        FAIL(MP_BAD_ARGUMENT);
        return;
    }
    mn = minimum < 0.0f ? minimum : 0.0f;
    mx = maximum > 0.0f ? maximum : 0.0f;
    most = bits == 16 ? 32767 : 127;
    if (mode == MODE_AFFINE) {
        s = SUB(DIV(mx, 255.0f), DIV(mn, 255.0f));
    } else {
        s = DIV(-mn > mx ? -mn : mx, FROM_I32(most));
        /* The smallest power of two that is not less; below 2^-100 all become that. */
        if (mode == MODE_POWER_OF_TWO && s > 0x1p-100f) s = REAL(BITS(s) & 0x7fffffu ? (BITS(s) & 0x7f800000u) + 0x800000u : BITS(s));
    }
    s = mn == mx ? 1.0f : s > 0x1p-100f ? s : 0x1p-100f;
    words[P_MODE] = (i32)mode;
    words[P_ROUNDING] = (i32)rounding;
    words[P_LOW] = mode == MODE_AFFINE ? -128 : bits == 16 ? -32768 : -most;
    words[P_HIGH] = most;
    reals[P_SCALE] = s;
    reals[P_INV_SCALE] = DIV(1.0f, s);
    reals[P_OFFSET] = 0.0f;
    if (mode == MODE_AFFINE) {
        float position = SUB(-128.0f, MUL(mn, reals[P_INV_SCALE]));
        position = position > -128.0f ? position : -128.0f;
        position = position < 127.0f ? position : 127.0f;
        zero = (i32)ROUND_EVEN(position);
    }
    words[P_ZERO_POINT] = zero;
    reals[P_RANGE_MIN] = MUL(FROM_I32(words[P_LOW] - zero), s);
    reals[P_RANGE_MAX] = MUL(FROM_I32(words[P_HIGH] - zero), s);
    VALUES(float, scale)[n] = s;
    VALUES(float, inv_scale)[n] = reals[P_INV_SCALE];
    VALUES(i32, zero_point)[n] = zero;
    VALUES(float, offset)[n] = 0.0f;
}

/* ---- values one by one ---- */
KERNEL void mp_quantize(const i64 items, TENSOR(x), const i64 type, TENSOR(out), const i64 out_type, const i64 images, const i64 count,
                     TENSOR(inv_scale), TENSOR(zero_point), const i64 rounding, const i64 low, const i64 high)
{
    const i64 i = ITEM, n = i / count;
    if (i >= items) return;
    store_code(VALUES(u8, out), i, out_type,
               quantized(load_real(VALUES(u8, x), i, type), VALUES(float, inv_scale)[n], VALUES(i32, zero_point)[n], rounding, low, high));
}
KERNEL void mp_dequantize(const i64 items, TENSOR(x), const i64 type, TENSOR(out), const i64 out_type, const i64 images, const i64 count,
                       TENSOR(scale), TENSOR(zero_point), TENSOR(offset))
{
    const i64 i = ITEM, n = i / count;
    float steps;
    if (i >= items) return;
    steps = FROM_I32(load_code(VALUES(u8, x), i, type) - VALUES(i32, zero_point)[n]);
    store_real(VALUES(u8, out), i, out_type, ADD(MUL(steps, VALUES(float, scale)[n]), VALUES(float, offset)[n]));
}
KERNEL void mp_cast(const i64 items, TENSOR(x), const i64 type, TENSOR(out), const i64 out_type, const i64 count)
{
    const i64 i = ITEM;
    if (i < items) store_real(VALUES(u8, out), i, out_type, load_real(VALUES(u8, x), i, type));
}
KERNEL void mp_add(const i64 items, TENSOR(a), TENSOR(b), TENSOR(out), const i64 type, const i64 out_type, const i64 activation,
                const i64 count)
{
    const i64 i = ITEM;
    if (i >= items) return;
    store_real(VALUES(u8, out), i, out_type,
               activate(ADD(load_real(VALUES(u8, a), i, type), load_real(VALUES(u8, b), i, type)), activation));
}
KERNEL void mp_map(const i64 items, TENSOR(x), const i64 type, TENSOR(out), const i64 out_type, const i64 activation, const float scale,
                const float shift, const i64 count)
{
    const i64 i = ITEM;
    float value;
    if (i >= items) return;
    value = MUL(load_real(VALUES(u8, x), i, type), scale);
    if (shift != 0.0f) value = ADD(value, shift);
    store_real(VALUES(u8, out), i, out_type, activate(value, activation));
}
KERNEL void mp_combine(const i64 items, TENSOR(a), TENSOR(b), TENSOR(out), const i64 type, const i64 out_type, const i64 activation,
                    TENSOR(a_weight), TENSOR(b_weight), const i64 images, const i64 h, const i64 w, const i64 c, const i64 b_h,
                    const i64 b_w, const i64 b_c)
{
    const i64 i = ITEM, k = i % c, x = i / c % w, y = i / c / w % h, n = i / c / w / h;
    const i64 skip = b_w / w > 1 ? b_w / w : 1, spread = w / b_w > 1 ? w / b_w : 1, column = x / spread, row = y / spread;
    float value;
    if (i >= items) return;
    value = load_real(VALUES(u8, a), i, type);
    if (x % spread == 0 && y % spread == 0 && row < b_h && column < b_w && row * skip < b_h && column * skip < b_w) {
        value = MUL(value, VALUES(float, a_weight)[k]);
        if (k < b_c) {
            const i64 at = ((n * b_h + row * skip) * b_w + column * skip) * b_c + k;
            value = FMA(load_real(VALUES(u8, b), at, type), VALUES(float, b_weight)[k], value);
        }
    }
    store_real(VALUES(u8, out), i, out_type, activate(value, activation));
}
enum { OPERAND_SAME = 0, OPERAND_PER_CHANNEL = 1 };
KERNEL void mp_multiply(const i64 items, TENSOR(a), TENSOR(b), TENSOR(out), const i64 type, const i64 out_type, const i64 activation,
                     const i64 kind, const i64 images, const i64 h, const i64 w, const i64 c)
{
    const i64 i = ITEM, other = kind == OPERAND_SAME ? i : kind == OPERAND_PER_CHANNEL ? i / (h * w * c) * c + i % c : i / c;
    if (i >= items) return;
    store_real(VALUES(u8, out), i, out_type,
               activate(MUL(load_real(VALUES(u8, a), i, type), load_real(VALUES(u8, b), other, type)), activation));
}

/* ---- windows ---- */
KERNEL void mp_maxpool(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 images, const i64 h, const i64 w, const i64 c,
                    const i64 out_h, const i64 out_w, const i64 size, const i64 stride, const i64 padding)
{
    const i64 i = ITEM, k = i % c, n = i / c / out_w / out_h;
    const i64 left = i / c % out_w * stride - padding / 2, top = i / c / out_w % out_h * stride - padding / 2;
    float best = -REAL(INFINITE);
    i32 best_code = type == TYPE_I8 ? -128 : -32768;
    i64 y, column;
    if (i >= items) return;
    for (y = top < 0 ? 0 : top; y < top + size && y < h; y++)
        for (column = left < 0 ? 0 : left; column < left + size && column < w; column++) {
            const i64 at = ((n * h + y) * w + column) * c + k;
            if (is_real(type)) {
                const float value = load_real(VALUES(u8, x), at, type);
                best = value > best ? value : best;
            } else {
                const i32 code = load_code(VALUES(u8, x), at, type);
                best_code = code > best_code ? code : best_code;
            }
        }
    if (is_real(type)) store_real(VALUES(u8, out), i, type, best);
    else store_code(VALUES(u8, out), i, type, best_code);
}
KERNEL void mp_avgpool(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 images, const i64 h, const i64 w, const i64 c)
{
    const i64 i = ITEM, k = i % c, n = i / c;
    float sum = 0.0f;
    i64 pixel;
    if (i >= items) return;
    for (pixel = 0; pixel < h * w; pixel++) sum = ADD(sum, load_real(VALUES(u8, x), (n * h * w + pixel) * c + k, type));
    store_real(VALUES(u8, out), i, type, DIV(sum, FROM_I64(h * w)));
}
KERNEL void mp_local_avgpool(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 images, const i64 h, const i64 w,
                          const i64 c, const i64 out_h, const i64 out_w, const i64 size, const i64 stride_x, const i64 stride_y,
                          const i64 padding)
{
    const i64 i = ITEM, k = i % c, n = i / c / out_w / out_h;
    const i64 left = i / c % out_w * stride_x - padding / 2, top = i / c / out_w % out_h * stride_y - padding / 2;
    float sum = 0.0f;
    i64 y, column, count = 0;
    if (i >= items) return;
    for (y = top < 0 ? 0 : top; y < top + size && y < h; y++)
        for (column = left < 0 ? 0 : left; column < left + size && column < w; column++, count++)
            sum = ADD(sum, load_real(VALUES(u8, x), ((n * h + y) * w + column) * c + k, type));
    store_real(VALUES(u8, out), i, type, DIV(sum, FROM_I64(count)));
}
KERNEL void mp_channel_max(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 pixels, const i64 c, const i64 out_c)
{
    const i64 i = ITEM, pixel = i / out_c;
    i64 k = i % out_c, best = pixel * c + k;
    if (i >= items) return;
    for (k += out_c; k < c; k += out_c) {
        const i64 at = pixel * c + k;
        const int is_larger = is_real(type) ? load_real(VALUES(u8, x), at, type) > load_real(VALUES(u8, x), best, type)
                                            : load_code(VALUES(u8, x), at, type) > load_code(VALUES(u8, x), best, type);
        best = is_larger ? at : best;
    }
    if (is_real(type)) store_real(VALUES(u8, out), i, type, load_real(VALUES(u8, x), best, type));
    else store_code(VALUES(u8, out), i, type, load_code(VALUES(u8, x), best, type));
}

/* ---- copies, of values of one, two or four bytes ---- */
FN void copy_value(GLOBAL const u8 *x, i64 from, GLOBAL u8 *out, i64 to, i64 type)
{
    if (type == TYPE_F32) ((GLOBAL u32 *)out)[to] = ((GLOBAL const u32 *)x)[from];
    else if (type == TYPE_I8) out[to] = x[from];
    else ((GLOBAL u16 *)out)[to] = ((GLOBAL const u16 *)x)[from];
}
KERNEL void mp_upsample(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 images, const i64 h, const i64 w, const i64 c,
                     const i64 factor)
{
    const i64 i = ITEM, column = i / c % (w * factor), y = i / c / (w * factor) % (h * factor), n = i / c / (w * factor) / (h * factor);
    if (i < items) copy_value(VALUES(u8, x), ((n * h + y / factor) * w + column / factor) * c + i % c, VALUES(u8, out), i, type);
}
KERNEL void mp_copy_channels(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 pixels, const i64 in_c, const i64 from,
                          const i64 out_c, const i64 to, const i64 c)
{
    const i64 i = ITEM;
    if (i < items) copy_value(VALUES(u8, x), i / c * in_c + from + i % c, VALUES(u8, out), i / c * out_c + to + i % c, type);
}
KERNEL void mp_shuffle(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 pixels, const i64 c, const i64 groups)
{
    const i64 i = ITEM, k = i % c;
    if (i < items) copy_value(VALUES(u8, x), i - k + k % groups * (c / groups) + k / groups, VALUES(u8, out), i, type);
}
KERNEL void mp_gather(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 images, const i64 in_count, const i64 out_count,
                   TENSOR(index), TENSOR(fill), STATUS)
{
    const i64 i = ITEM, n = i / out_count;
    i32 at;
    if (i >= items) return;
    at = VALUES(i32, index)[i % out_count];
    if (at >= in_count) FAIL(MP_BAD_SHAPE);
    else if (at >= 0) copy_value(VALUES(u8, x), n * in_count + at, VALUES(u8, out), i, type);
    else if (is_real(type)) store_real(VALUES(u8, out), i, type, 0.0f);
    else store_code(VALUES(u8, out), i, type, VALUES(i32, fill)[n]);
}

/* ---- section 10 ---- */
KERNEL void mp_rescale(const i64 items, TENSOR(x), const i64 type, TENSOR(out), const i64 out_type, const i64 zero_point,
                    const i64 out_zero_point, const i64 low, const i64 high, const i64 multiplier, const i64 shift,
                    const i64 below_multiplier, const i64 below_shift, const i64 count)
{
    const i64 i = ITEM;
    i64 steps;
    if (i >= items) return;
    steps = load_code(VALUES(u8, x), i, type) - zero_point;
    steps = steps < 0 ? times_32(steps, (i32)below_multiplier, (i32)below_shift) : times_32(steps, (i32)multiplier, (i32)shift);
    store_code(VALUES(u8, out), i, out_type, (i32)within(steps + out_zero_point, low, high));
}
KERNEL void mp_add_codes(const i64 items, TENSOR(a), TENSOR(b), TENSOR(out), const i64 type, TENSOR(zero_points), TENSOR(multipliers),
                      TENSOR(shifts), const i64 low, const i64 high, const i64 count, STATUS)
{
    const i64 i = ITEM;
    GLOBAL const i32 *zero = VALUES(i32, zero_points), *multiplier = VALUES(i32, multipliers), *shift = VALUES(i32, shifts);
    const i64 one = (i64)1 << (type == TYPE_I8 ? 20 : 15);
    i64 sum;
    int k;
    if (i >= items) return;
    for (k = 0; !i && k < 3; k++)
        if (!is_zero_point(type, zero[k]) || !is_factor(multiplier[k], shift[k]) || shift[k] > 0) FAIL(MP_BAD_ARGUMENT);
    sum = times_32((load_code(VALUES(u8, a), i, type) - zero[0]) * one, multiplier[0], shift[0]) +
          times_32((load_code(VALUES(u8, b), i, type) - zero[1]) * one, multiplier[1], shift[1]);
    store_code(VALUES(u8, out), i, type, (i32)within(times_32(sum, multiplier[2], shift[2]) + zero[2], low, high));
}
KERNEL void mp_quantize_by_division(const i64 items, TENSOR(x), TENSOR(out), const i64 out_type, const float scale, const i64 zero_point,
                                 const i64 count, STATUS)
{
    const i64 i = ITEM, lowest = out_type == TYPE_I8 ? -128 : -32768;
    const float least = FROM_I64(lowest - zero_point), most = FROM_I64(-1 - lowest - zero_point);
    float t;
    if (i >= items) return;
    t = VALUES(float, x)[i];
    if (not_finite(t)) FAIL(MP_NONFINITE);
    t = DIV(t, scale);
    t = t > least ? t : least;
    t = t < most ? t : most;
    t = TRUNCATE(ADD(t, REAL(0x3effffffu | (BITS(t) & 0x80000000u))));
    store_code(VALUES(u8, out), i, out_type, (i32)t + (i32)zero_point);
}
