/* SPDX-License-Identifier: MIT */
/* Operations whose sums are doubles: for devices that have them. */
#ifdef __OPENCL_VERSION__
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define WIDE_ADD(a, b) ((a) + (b))
#define WIDE_SUB(a, b) ((a) - (b))
#define WIDE_MUL(a, b) ((a) * (b))
#define WIDE_DIV(a, b) ((a) / (b))
#define WIDE_ROOT(x) sqrt(x)
#define WIDE_BITS(x) as_long(x)
#define WIDE_REAL(bits) as_double(bits)
#define NARROW(x) convert_float_rte(x)
#else
#define WIDE_ADD(a, b) __dadd_rn(a, b)
#define WIDE_SUB(a, b) __dsub_rn(a, b)
#define WIDE_MUL(a, b) __dmul_rn(a, b)
#define WIDE_DIV(a, b) __ddiv_rn(a, b)
#define WIDE_ROOT(x) __dsqrt_rn(x)
#define WIDE_BITS(x) __double_as_longlong(x)
#define WIDE_REAL(bits) __longlong_as_double(bits)
#define NARROW(x) __double2float_rn(x)
#endif

enum { SOFTMAX = 0, SHARES = 1, SHARES_OF_EXP = 2, SHARES_OF_EXP_MAX = 3, L2_NORM = 4, LOCAL_RESPONSE = 5, LAYER_NORM = 6 };

/* mp_log of csrc/mp_math.h. */
FN double logarithm(double x)
{
    i64 bits = WIDE_BITS(x);
    i32 exponent = (i32)(bits >> 52) - 1023;
    double m, s, square, sum;
    m = WIDE_REAL((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
    if (m > 1.4142135623730951) {
        m = WIDE_MUL(m, 0.5);
        exponent += 1;
    }
    s = WIDE_DIV(WIDE_SUB(m, 1.0), WIDE_ADD(m, 1.0));
    square = WIDE_MUL(s, s);
    sum = 1.0 / 13.0;
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0 / 11.0);
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0 / 9.0);
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0 / 7.0);
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0 / 5.0);
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0 / 3.0);
    sum = WIDE_ADD(WIDE_MUL(sum, square), 1.0);
    return WIDE_ADD(WIDE_MUL(WIDE_MUL(2.0, s), sum), WIDE_MUL((double)exponent, 0.6931471805599453));
}

FN void local_response(GLOBAL const u8 *x, GLOBAL u8 *out, i64 type, i64 row, i64 length, float size, float alpha, float beta, float kappa)
{
    const i64 first = row * length, reach = (i64)size;
    double norm = kappa;
    i64 k;
    for (k = 0; k < reach / 2 && k < length; k++) {
        const double value = load_real(x, first + k, type);
        norm = WIDE_ADD(norm, WIDE_MUL((double)alpha, WIDE_MUL(value, value)));
    }
    for (k = 0; k < length; k++) {
        const i64 gone = k - (reach - 1) / 2 - 1, come = k + reach / 2;
        float power;
        if (k > 0 && gone >= 0) {
            const double value = load_real(x, first + gone, type);
            norm = WIDE_SUB(norm, WIDE_MUL((double)alpha, WIDE_MUL(value, value)));
        }
        if (k > 0 && come < length) {
            const double value = load_real(x, first + come, type);
            norm = WIDE_ADD(norm, WIDE_MUL((double)alpha, WIDE_MUL(value, value)));
        }
        power = norm > 0.0 ? exponential(NARROW(WIDE_MUL(-(double)beta, logarithm(norm)))) : REAL(0x7fc00000u);
        store_real(out, first + k, type, MUL(load_real(x, first + k, type), power));
    }
}

/* A work item: a segment of a row. */
KERNEL void mp_normalize(const i64 items, TENSOR(x), TENSOR(out), const i64 type, const i64 kind, const i64 rows, const i64 length,
                      TENSOR(starts), const i64 segments, const float p0, const float p1, const float p2, const float p3)
{
    const i64 item = ITEM, row = item / segments, segment = item % segments;
    GLOBAL const u8 *x = VALUES(u8, x);
    GLOBAL u8 *out = VALUES(u8, out);
    i64 first, end, i;
    double sum = 0.0, mean = 0.0;
    float largest;
    if (item >= items) return;
    if (kind == LOCAL_RESPONSE) {
        if (segment == 0) local_response(x, out, type, row, length, p0, p1, p2, p3);
        return;
    }
    first = row * length + VALUES(i32, starts)[segment];
    end = row * length + VALUES(i32, starts)[segment + 1];
    largest = load_real(x, first, type);
    for (i = first + 1; i < end; i++) {
        const float value = load_real(x, i, type);
        largest = value > largest ? value : largest;
    }
    if (kind == LAYER_NORM) {
        for (i = first; i < end; i++) mean = WIDE_ADD(mean, (double)load_real(x, i, type));
        mean = WIDE_DIV(mean, (double)(end - first));
    }
    if (kind == SHARES || kind == SHARES_OF_EXP || kind == SHARES_OF_EXP_MAX) sum = 0.0001f;
#define PART(value)                                                                                                    \
    (kind == SHARES                ? ((value) > 0.0f ? (value) : 0.0f)                                                 \
     : kind == SHARES_OF_EXP       ? exponential(value)                                                                \
     : kind == SHARES_OF_EXP_MAX   ? exponential(SUB(value, largest))                                                  \
                                   : exponential(DIV(SUB(value, largest), p0)))
    for (i = first; i < end; i++) {
        const float value = load_real(x, i, type);
        if (kind == L2_NORM || kind == LAYER_NORM) {
            const double wide = kind == L2_NORM ? (double)value : WIDE_SUB((double)value, mean);
            sum = WIDE_ADD(sum, WIDE_MUL(wide, wide));
        } else {
            sum = WIDE_ADD(sum, (double)PART(value));
        }
    }
    if (kind == L2_NORM) sum = WIDE_ROOT(sum);
    if (kind == LAYER_NORM) sum = WIDE_ROOT(WIDE_ADD(WIDE_DIV(sum, (double)(end - first)), (double)p0));
    for (i = first; i < end; i++) {
        const float value = load_real(x, i, type);
        double wide;
        if (kind == L2_NORM) wide = (double)value;
        else if (kind == LAYER_NORM) wide = WIDE_SUB((double)value, mean);
        else wide = (double)PART(value);
        store_real(out, i, type, NARROW(WIDE_DIV(wide, sum)));
    }
}

/* The score of a key for a query, both of `key` values: eight sums beside each other, in float. */
FN float score(GLOBAL const float *query, GLOBAL const float *other, i64 key, float scale)
{
    float sums[8];
    i64 d;
    int i;
    for (i = 0; i < 8; i++) sums[i] = 0.0f;
    for (d = 0; d < key; d++) sums[d & 7] = ADD(sums[d & 7], MUL(query[d], other[d]));
    for (i = 0; i < 4; i++) sums[i] = ADD(sums[i], sums[i + 4]);
    for (i = 0; i < 2; i++) sums[i] = ADD(sums[i], sums[i + 2]);
    return MUL(ADD(sums[0], sums[1]), scale);
}
/* A work item: a query of a head and up to ATTENDED of its values. Scores are computed again instead of being kept. */
#define ATTENDED 32
KERNEL void mp_attention(const i64 items, TENSOR(x), TENSOR(out), const i64 images, const i64 pixels, const i64 heads, const i64 key,
                      const i64 value, const i64 areas, const float scale)
{
    const i64 item = ITEM, pieces = (value + ATTENDED - 1) / ATTENDED, piece = item % pieces, head = item / pieces % heads;
    const i64 pixel = item / pieces / heads, positions = pixels / areas, first = pixel / positions * positions;
    const i64 width = heads * (2 * key + value), v0 = piece * ATTENDED;
    const i64 count = value - v0 < ATTENDED ? value - v0 : ATTENDED;
    GLOBAL const float *keys = VALUES(float, x) + first * width + heads * key + head * key;
    GLOBAL const float *values = VALUES(float, x) + first * width + 2 * heads * key + head * value + v0;
    GLOBAL const float *query = VALUES(float, x) + pixel * width + head * key;
    GLOBAL float *out = VALUES(float, out) + pixel * heads * value + head * value + v0;
    float largest, sums[ATTENDED];
    double total = 0.0;
    i64 i;
    int d;
    if (item >= items) return;
    largest = score(query, keys, key, scale);
    for (i = 1; i < positions; i++) {
        const float s = score(query, keys + i * width, key, scale);
        largest = s > largest ? s : largest;
    }
    for (i = 0; i < positions; i++)
        total = WIDE_ADD(total, (double)exponential(SUB(score(query, keys + i * width, key, scale), largest)));
    for (d = 0; d < ATTENDED; d++) sums[d] = 0.0f;
    for (i = 0; i < positions; i++) {
        const float part = exponential(SUB(score(query, keys + i * width, key, scale), largest));
        const float share = NARROW(WIDE_DIV((double)part, total));
        for (d = 0; d < (int)count; d++) sums[d] = ADD(sums[d], MUL(share, values[i * width + d]));
    }
    for (d = 0; d < (int)count; d++) out[d] = sums[d];
}
