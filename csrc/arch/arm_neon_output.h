/* SPDX-License-Identifier: MIT */
/* What is asked most of output stages, in assembly: of integer sums that they rise with floats and their range, or codes;
 * of floats codes. Four rows at a time of one or two vectors of channels; what a compiler makes of `output_columns` moves each
 * address by itself and asks in every row whether the range is wanted: 16 instructions a vector instead of 8, for codes 18
 * instead of 11.
 *
 * v0-v7 sums, v16-v23 results; a vector of channels has every second of them where there are two. */
#ifndef MP_ARM_NEON_OUTPUT_H
#define MP_ARM_NEON_OUTPUT_H

typedef struct {
    float32x4_t scale[2], bias[2], minimum, maximum;
    float32x4_t inv_scale;
    int16x8_t zero_point;
    int8x16_t low, high;
    const int32_t *sums;
    char *out;
    ptrdiff_t sums_ld, out_ld; /* bytes */
    int rows;
} output_block;

#define O_EIGHT(M) M(0, 16, 0) M(1, 17, 1) M(2, 18, 0) M(3, 19, 1) M(4, 20, 0) M(5, 21, 1) M(6, 22, 0) M(7, 23, 1)
#define O_FOUR(M) M(0, 16, 0) M(1, 17, 0) M(2, 18, 0) M(3, 19, 0)
#define O_TWO(M) M(0, 16, 0) M(1, 17, 1)
#define O_ONE(M) M(0, 16, 0)

#define O_LOAD_2(s0, s1) "ld1 {v" #s0 ".4s, v" #s1 ".4s}, [%[sums]], %[sums_ld]\n"
#define O_LOAD_1(s) "ld1 {v" #s ".4s}, [%[sums]], %[sums_ld]\n"
#define O_STORE_2(x0, x1) "st1 {v" #x0 ".4s, v" #x1 ".4s}, [%[out]], %[out_ld]\n"
#define O_STORE_1(x) "st1 {v" #x ".4s}, [%[out]], %[out_ld]\n"
#define O_FLOAT(s, x, v) "scvtf v" #s ".4s, v" #s ".4s\n"
#define O_BIAS(s, x, v) "mov v" #x ".16b, %[bias" #v "].16b\n"
#define O_SCALED(s, x, v) "fmla v" #x ".4s, v" #s ".4s, %[scale" #v "].4s\n"
#define O_LINEAR(s, x, v)
#define O_LEAKY(s, x, v)                                                                                               \
    "fmul v" #s ".4s, v" #x ".4s, %[tenth].4s\n"                                                                       \
    "fmax v" #x ".4s, v" #x ".4s, v" #s ".4s\n"
#define O_RELU(s, x, v) "fmax v" #x ".4s, v" #x ".4s, %[zero].4s\n"
#define O_RELU6(s, x, v) O_RELU(s, x, v) "fmin v" #x ".4s, v" #x ".4s, %[six].4s\n"
/* Of two vectors of results, whose sums are no longer needed. */
#define O_RANGE(s0, s1, x0, x1)                                                                                        \
    "fmin v" #s0 ".4s, v" #x0 ".4s, v" #x1 ".4s\n"                                                                     \
    "fmax v" #s1 ".4s, v" #x0 ".4s, v" #x1 ".4s\n"                                                                     \
    "fmin %[minimum].4s, %[minimum].4s, v" #s0 ".4s\n"                                                                 \
    "fmax %[maximum].4s, %[maximum].4s, v" #s1 ".4s\n"
#define O_RANGE_1                                                                                                      \
    "fmin %[minimum].4s, %[minimum].4s, v16.4s\n"                                                                      \
    "fmax %[maximum].4s, %[maximum].4s, v16.4s\n"
#define O_REAL(ALL, ACTIVATED) ALL(O_FLOAT) ALL(O_BIAS) ALL(O_SCALED) ALL(ACTIVATED)

#define O_ROWS_2(ACTIVATED)                                                                                            \
    O_LOAD_2(0, 1) O_LOAD_2(2, 3) O_LOAD_2(4, 5) O_LOAD_2(6, 7)                                                        \
    O_REAL(O_EIGHT, ACTIVATED)                                                                                         \
    O_RANGE(0, 1, 16, 17) O_RANGE(2, 3, 18, 19) O_RANGE(4, 5, 20, 21) O_RANGE(6, 7, 22, 23)                            \
    O_STORE_2(16, 17) O_STORE_2(18, 19) O_STORE_2(20, 21) O_STORE_2(22, 23)
#define O_ROW_2(ACTIVATED) O_LOAD_2(0, 1) O_REAL(O_TWO, ACTIVATED) O_RANGE(0, 1, 16, 17) O_STORE_2(16, 17)
#define O_ROWS_1(ACTIVATED)                                                                                            \
    O_LOAD_1(0) O_LOAD_1(1) O_LOAD_1(2) O_LOAD_1(3)                                                                    \
    O_REAL(O_FOUR, ACTIVATED)                                                                                          \
    O_RANGE(0, 1, 16, 17) O_RANGE(2, 3, 18, 19)                                                                        \
    O_STORE_1(16) O_STORE_1(17) O_STORE_1(18) O_STORE_1(19)
#define O_ROW_1(ACTIVATED) O_LOAD_1(0) O_REAL(O_ONE, ACTIVATED) O_RANGE_1 O_STORE_1(16)

/* Results as codes: narrowing clamps to what 16 and 8 bits hold, bytes are clamped further. */
#define O_NEAR(s, x, v)                                                                                                \
    "fmul v" #x ".4s, v" #x ".4s, %[inv].4s\n"                                                                         \
    "fcvtns v" #x ".4s, v" #x ".4s\n"
#define O_TO_INT16(x) "sqxtn v" #x ".4h, v" #x ".4s\n"
#define O_TO_INT16_2(x, other) "sqxtn2 v" #x ".8h, v" #other ".4s\n"
#define O_ZERO(x) "sqadd v" #x ".8h, v" #x ".8h, %[zero_point].8h\n"
#define O_BYTE(x) "sqxtn v" #x ".8b, v" #x ".8h\n"
#define O_BYTE_2(x, other) "sqxtn2 v" #x ".16b, v" #other ".8h\n"
#define O_CLAMP(x)                                                                                                     \
    "smax v" #x ".16b, v" #x ".16b, %[low].16b\n"                                                                      \
    "smin v" #x ".16b, v" #x ".16b, %[high].16b\n"
#define O_PUT(x, lane) "st1 {v" #x "." #lane ", [%[out]], %[out_ld]\n"
#define O_CODES_2(ACTIVATED)                                                                                           \
    O_LOAD_2(0, 1) O_LOAD_2(2, 3) O_LOAD_2(4, 5) O_LOAD_2(6, 7)                                                        \
    O_REAL(O_EIGHT, ACTIVATED) O_EIGHT(O_NEAR)                                                                         \
    O_TO_INT16(16) O_TO_INT16(18) O_TO_INT16(20) O_TO_INT16(22)                                                                        \
    O_TO_INT16_2(16, 17) O_TO_INT16_2(18, 19) O_TO_INT16_2(20, 21) O_TO_INT16_2(22, 23)                                                \
    O_ZERO(16) O_ZERO(18) O_ZERO(20) O_ZERO(22)                                                                        \
    O_BYTE(16) O_BYTE(20) O_BYTE_2(16, 18) O_BYTE_2(20, 22) O_CLAMP(16) O_CLAMP(20)                                    \
    O_PUT(16, d}[0]) O_PUT(16, d}[1]) O_PUT(20, d}[0]) O_PUT(20, d}[1])
#define O_CODE_2(ACTIVATED)                                                                                            \
    O_LOAD_2(0, 1) O_REAL(O_TWO, ACTIVATED) O_TWO(O_NEAR)                                                              \
    O_TO_INT16(16) O_TO_INT16_2(16, 17) O_ZERO(16) O_BYTE(16) O_CLAMP(16) O_PUT(16, d}[0])
#define O_CODES_1(ACTIVATED)                                                                                           \
    O_LOAD_1(0) O_LOAD_1(1) O_LOAD_1(2) O_LOAD_1(3)                                                                    \
    O_REAL(O_FOUR, ACTIVATED) O_FOUR(O_NEAR)                                                                           \
    O_TO_INT16(16) O_TO_INT16(18) O_TO_INT16_2(16, 17) O_TO_INT16_2(18, 19) O_ZERO(16) O_ZERO(18)                                      \
    O_BYTE(16) O_BYTE_2(16, 18) O_CLAMP(16)                                                                            \
    O_PUT(16, s}[0]) O_PUT(16, s}[1]) O_PUT(16, s}[2]) O_PUT(16, s}[3])
#define O_CODE_1(ACTIVATED)                                                                                            \
    O_LOAD_1(0) O_REAL(O_ONE, ACTIVATED) O_ONE(O_NEAR) O_TO_INT16(16) O_ZERO(16) O_BYTE(16) O_CLAMP(16) O_PUT(16, s}[0])

/* All rows; MANY: four of them, ONE: one. */
#define OUTPUT_BLOCK(MANY, ONE)                                                                                        \
    __asm__ volatile("subs %w[rows], %w[rows], #4\n"                                                                   \
                     "b.lt 2f\n"                                                                                       \
                     "1:\n" MANY                                                                                       \
                     "subs %w[rows], %w[rows], #4\n"                                                                   \
                     "b.ge 1b\n"                                                                                       \
                     "2: adds %w[rows], %w[rows], #4\n"                                                                \
                     "b.eq 4f\n"                                                                                       \
                     "3:\n" ONE                                                                                        \
                     "subs %w[rows], %w[rows], #1\n"                                                                   \
                     "b.ne 3b\n"                                                                                       \
                     "4:\n"                                                                                            \
                     : [sums] "+r"(k.sums), [out] "+r"(k.out), [rows] "+r"(k.rows), [minimum] "+w"(k.minimum),         \
                       [maximum] "+w"(k.maximum)                                                                       \
                     : [sums_ld] "r"(k.sums_ld), [out_ld] "r"(k.out_ld), [scale0] "w"(k.scale[0]),                     \
                       [scale1] "w"(k.scale[1]), [bias0] "w"(k.bias[0]), [bias1] "w"(k.bias[1]),                       \
                       [tenth] "w"(vdupq_n_f32(0.1f)), [zero] "w"(vdupq_n_f32(0.0f)), [six] "w"(vdupq_n_f32(6.0f)),    \
                       [inv] "w"(k.inv_scale), [zero_point] "w"(k.zero_point), [low] "w"(k.low), [high] "w"(k.high)    \
                     : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",     \
                       "v20", "v21", "v22", "v23")
/* RESULT: ROW or CODE. */
#define OUTPUT_COLUMNS(RESULT, VECTORS, ACTIVATED)                                                                     \
    for (; c + VECTORS * VL <= channels; c += VECTORS * VL) {                                                          \
        output_block k = all;                                                                                          \
        k.sums += c, k.out += c * bytes;                                                                               \
        k.scale[0] = vf_load(o->scale + channel + c);                                                                  \
        k.bias[0] = vf_load(o->bias + channel + c);                                                                    \
        k.scale[1] = VECTORS > 1 ? vf_load(o->scale + channel + c + VL) : k.scale[0];                                  \
        k.bias[1] = VECTORS > 1 ? vf_load(o->bias + channel + c + VL) : k.bias[0];                                     \
        OUTPUT_BLOCK(O_##RESULT##S_##VECTORS(ACTIVATED), O_##RESULT##_##VECTORS(ACTIVATED));                           \
        all.minimum = k.minimum, all.maximum = k.maximum;                                                              \
    }
#define O_CASE(ACTIVATION)                                                                                             \
    case MP_##ACTIVATION:                                                                                              \
        if (codes) {                                                                                                   \
            OUTPUT_COLUMNS(CODE, 2, O_##ACTIVATION) OUTPUT_COLUMNS(CODE, 1, O_##ACTIVATION)                            \
        } else {                                                                                                       \
            OUTPUT_COLUMNS(ROW, 2, O_##ACTIVATION) OUTPUT_COLUMNS(ROW, 1, O_##ACTIVATION)                              \
        }                                                                                                              \
        break;

/* The first channels of `output`'s in whole vectors; how many. */
static __attribute__((noinline)) int output_usual(mp_output *o, const int32_t *sums, size_t acc_ld, int rows,
                                                  int channels, int channel, void *to, size_t out_ld)
{
    const int codes = o->out_type == MP_TYPE_I8 && o->rounding == MP_HALF_TO_EVEN && !o->measured;
    if (o->kind != MP_SUM_INT || !o->rising || o->windows || !(codes || o->out_type == MP_TYPE_F32)) return 0;
    const int bytes = codes ? 1 : 4, zero_point = codes ? (int)o->zero_point : 0;
    output_block all = {.minimum = vf_load(o->minimum),
                        .maximum = vf_load(o->maximum),
                        .inv_scale = vdupq_n_f32(o->inv_scale),
                        .zero_point = vdupq_n_s16((int16_t)zero_point),
                        .low = vdupq_n_s8((int8_t)(codes ? (int)o->low + zero_point : 0)),
                        .high = vdupq_n_s8((int8_t)(codes ? (int)o->high + zero_point : 0)),
                        .sums = sums,
                        .out = to,
                        .sums_ld = (ptrdiff_t)acc_ld * 4,
                        .out_ld = (ptrdiff_t)out_ld * bytes,
                        .rows = rows};
    int c = 0;
    switch (o->activation) {
        O_CASE(LINEAR)
        O_CASE(LEAKY)
        O_CASE(RELU)
        O_CASE(RELU6)
    default: return 0;
    }
    if (o->measured) {
        vf_store(o->minimum, all.minimum);
        vf_store(o->maximum, all.maximum);
    }
    return c;
}
#undef O_CASE

/* Reals -> codes: how many, whole blocks of 32. Narrowing clamps to what 16 and 8 bits hold, bytes are clamped further. */
static inline size_t quantize_usual(const float *x, int8_t *out, size_t count, float inv_scale, int zero_point, int low,
                                    int high)
{
    size_t blocks = count / 32;
    if (!blocks) return 0;
    const float32x4_t inv = vdupq_n_f32(inv_scale);
    const int16x8_t zero = vdupq_n_s16((int16_t)zero_point);
    const int8x16_t bottom = vdupq_n_s8((int8_t)low), top = vdupq_n_s8((int8_t)high);
#define Q_EIGHT(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define Q_SCALE(v) "fmul v" #v ".4s, v" #v ".4s, %[inv].4s\n"
#define Q_TO_INT32(v) "fcvtns v" #v ".4s, v" #v ".4s\n"
#define Q_TO_INT16(v) "sqxtn v" #v ".4h, v" #v ".4s\n"
#define Q_SHORT(v, other) "sqxtn2 v" #v ".8h, v" #other ".4s\n"
#define Q_ZERO(v) "sqadd v" #v ".8h, v" #v ".8h, %[zero].8h\n"
    __asm__ volatile("1: ld1 {v0.4s-v3.4s}, [%[x]], #64\n"
                     "ld1 {v4.4s-v7.4s}, [%[x]], #64\n"
                     Q_EIGHT(Q_SCALE) Q_EIGHT(Q_TO_INT32)
                     Q_TO_INT16(0) Q_TO_INT16(2) Q_TO_INT16(4) Q_TO_INT16(6) Q_SHORT(0, 1) Q_SHORT(2, 3) Q_SHORT(4, 5) Q_SHORT(6, 7)
                     Q_ZERO(0) Q_ZERO(2) Q_ZERO(4) Q_ZERO(6)
                     "sqxtn v0.8b, v0.8h\n"
                     "sqxtn v4.8b, v4.8h\n"
                     "sqxtn2 v0.16b, v2.8h\n"
                     "sqxtn2 v4.16b, v6.8h\n"
                     "subs %[blocks], %[blocks], #1\n"
                     "smax v0.16b, v0.16b, %[bottom].16b\n"
                     "smax v4.16b, v4.16b, %[bottom].16b\n"
                     "smin v0.16b, v0.16b, %[top].16b\n"
                     "smin v4.16b, v4.16b, %[top].16b\n"
                     "stp q0, q4, [%[out]], #32\n"
                     "b.ne 1b\n"
                     : [x] "+r"(x), [out] "+r"(out), [blocks] "+r"(blocks)
                     : [inv] "w"(inv), [zero] "w"(zero), [bottom] "w"(bottom), [top] "w"(top)
                     : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
    return count / 32 * 32;
}
#endif
