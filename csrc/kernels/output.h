/* SPDX-License-Identifier: MIT */
/* The output stage of a convolution: sums -> float -> bias -> activation -> range -> stored type. */

static inline vf round_by(vf x, int rounding)
{
    switch (rounding) {
    case MP_HALF_AWAY: return vf_trunc(vf_add(x, vf_copysign(vf_set1(0x1.fffffep-2f), x))); /* the float below 0.5 */
    case MP_TRUNCATE: return vf_trunc(x);
    default: return vf_round(x);
    }
}

/* A value that is not finite makes it NaN: x * 0 is 0 or -0 otherwise, and adding that leaves 0. */
static inline vf note_bad(vf bad, vf x) { return vf_fma(x, vf_set1(0.0f), bad); }

/* Besides MP_TYPE_*: int8 rounded half to even, the usual rule, without asking at every value. */
enum { OUT_I8_EVEN = -1 };

/* What quantising needs, out of the way of stores, which might change memory. */
typedef struct {
    vf inv_scale, low, high, zero_point;
    vi zero;
} out_scale;
static inline out_scale out_scale_of(const mp_output *o)
{
    return (out_scale){vf_set1(o->inv_scale), vf_set1(o->low), vf_set1(o->high), vf_set1(o->zero_point),
                       vi_set1((int32_t)o->zero_point)};
}

/* Code of t, which is clamped: rounded half to even, by the conversion itself. */
static inline __attribute__((always_inline)) void store_code(void *out, size_t at, vf t, vi zero, int n)
{
    const vi code = vi_add(vi_near(t), zero);
    if (n == VL)
        vi_store_s8((int8_t *)out + at, code);
    else
        vi_store_s8_n((int8_t *)out + at, code, n);
}

/* The first n lanes of x to element `at` of out, as out_type; returns bad with what rounding to a narrow type made infinite. */
static inline __attribute__((always_inline)) vf store_finished(const out_scale *q, const int rounding, char *out,
                                                               size_t at, const int out_type, vf x, int n, vf bad)
{
    if (!mp_is_real(out_type)) {
        const vf t = vf_min_any(vf_max_any(vf_mul(x, q->inv_scale), q->low), q->high);
        if (out_type == OUT_I8_EVEN) {
            store_code(out, at, t, q->zero, n);
            return bad;
        }
        x = vf_add(round_by(t, rounding), q->zero_point);
    } else if (mp_type_bytes(out_type) < sizeof(float)) {
        x = round_as(out_type, x);
        bad = note_bad(bad, x);
    }
    store_as(out, at, out_type, x, n);
    return bad;
}

static inline vf scaled(vi sum, vf scale, vf bias) { return vf_fma(vi_to_float(sum), scale, bias); }

/* n lanes of sums -> real, the other lanes as the first. */
static inline __attribute__((always_inline)) vf real_of(const int kind, const int32_t *sums, vf scale, vf bias, int n)
{
    const vf x = kind == MP_SUM_INT    ? scaled(vi_load(sums), scale, bias)
                 : kind == MP_SUM_HALF ? vf_add(vf_load((const float *)sums), bias)
                                       : vf_load((const float *)sums);
    return n == VL ? x : vf_keep_n(x, n);
}

/* The first of the largest, in row order, of a window's four. */
static inline vf largest_of(vf x0, vf x1, vf x2, vf x3) { return vf_max(x3, vf_max(x2, vf_max(x1, x0))); }

/* Larger inputs never give smaller results, whatever the roundings, and no zero but 0 comes from inputs above 2^-100. */
static inline int never_falls(int activation)
{
    return activation == MP_LINEAR || activation == MP_LEAKY || activation == MP_RELU || activation == MP_RELU6;
}

/* Only what is computed for every value of every layer is worth a copy of the code in each of its loops. */
static inline __attribute__((always_inline)) vf activated(vf x, int activation)
{
    const int cheap = activation == MP_LINEAR || activation == MP_LEAKY || activation == MP_RELU;
    return cheap ? vf_activate(x, activation) : vf_activate_apart(x, activation);
}

static inline __attribute__((always_inline)) void output_rows(mp_output *o, const int kind, const int activation,
                                                              const int out_type, const int32_t *acc, size_t acc_ld,
                                                              int rows, int channels, int channel, char *out,
                                                              size_t out_ld)
{
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum), bad = vf_load(o->bad);
    const float *biases = o->bias + channel, *scales = o->scale + channel;
    const out_scale q = out_scale_of(o);
    const int rounding = o->rounding, measured = o->measured, windows = o->windows;
    const int rising = kind == MP_SUM_INT && o->rising;
    const int narrow = mp_is_real(out_type) && mp_type_bytes(out_type) < sizeof(float);
    const int by_sums = rising && !narrow && never_falls(activation);
    const int step = windows ? 4 : 1;
    const int32_t *sums = acc;
    size_t row = 0;
#define REAL(AT, ROW, N) real_of(kind, sums + (ROW) * acc_ld + AT, vf_load(scales + AT), vf_load(biases + AT), N)
#define ACTIVATED(X, AT, ROW, N)                                                                                       \
    vf X = REAL(AT, ROW, N);                                                                                           \
    bad = note_bad(bad, X);                                                                                            \
    X = activated(X, activation);                                                                                      \
    if (narrow) {                                                                                                      \
        X = round_as(out_type, X);                                                                                     \
        bad = note_bad(bad, X);                                                                                        \
    }
#define FINISH(X, AT, N)                                                                                               \
    if (measured) {                                                                                                    \
        minimum = vf_min_any(X, minimum);                                                                              \
        maximum = vf_max_any(X, maximum);                                                                              \
    }                                                                                                                  \
    bad = store_finished(&q, rounding, out, row + AT, out_type, X, N, bad);
#define LARGEST_SUM(AT, N)                                                                                             \
    {                                                                                                                  \
        const int32_t *at = sums + AT;                                                                                 \
        const vi upper = vi_max(vi_load(at), vi_load(at + acc_ld));                                                    \
        const vi lower = vi_max(vi_load(at + 2 * acc_ld), vi_load(at + 3 * acc_ld));                                   \
        vf x = scaled(vi_max(upper, lower), vf_load(scales + AT), vf_load(biases + AT));                               \
        x = activated(N == VL ? x : vf_keep_n(x, N), activation);                                                      \
        FINISH(x, AT, N)                                                                                               \
    }
#define LARGEST(AT, N)                                                                                                 \
    {                                                                                                                  \
        ACTIVATED(x0, AT, 0, N)                                                                                        \
        ACTIVATED(x1, AT, 1, N)                                                                                        \
        ACTIVATED(x2, AT, 2, N)                                                                                        \
        ACTIVATED(x3, AT, 3, N)                                                                                        \
        const vf x = largest_of(x0, x1, x2, x3);                                                                       \
        FINISH(x, AT, N)                                                                                               \
    }
#define UNCHECKED(AT, N)                                                                                               \
    {                                                                                                                  \
        const vf x = vf_activate(REAL(AT, 0, N), activation);                                                          \
        FINISH(x, AT, N)                                                                                               \
    }
#define CHECKED(AT, N)                                                                                                 \
    {                                                                                                                  \
        const vf y = REAL(AT, 0, N), x = vf_activate(y, activation);                                                   \
        bad = note_bad(bad, y);                                                                                        \
        FINISH(x, AT, N)                                                                                               \
    }
    for (int r = 0; r < rows; r += step, sums += step * acc_ld, row += out_ld) {
        if (windows && by_sums)
            FOR_VECTORS((size_t)channels, LARGEST_SUM);
        else if (windows)
            FOR_VECTORS((size_t)channels, LARGEST);
        else if (rising)
            FOR_VECTORS((size_t)channels, UNCHECKED);
        else
            FOR_VECTORS((size_t)channels, CHECKED);
    }
#undef CHECKED
#undef UNCHECKED
#undef LARGEST
#undef LARGEST_SUM
#undef FINISH
#undef ACTIVATED
#undef REAL
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
    vf_store(o->bad, bad);
}

/* CALL(type, ...) with the type as a constant, for o->out_type. */
#define BY_OUT_TYPE(CALL, ...)                                                                                         \
    do {                                                                                                               \
        switch (o->out_type) {                                                                                         \
            MP_REAL_TYPES(TYPE_CASE, CALL, __VA_ARGS__)                                                                \
        default:                                                                                                       \
            if (o->rounding == MP_HALF_TO_EVEN)                                                                        \
                CALL(OUT_I8_EVEN, __VA_ARGS__);                                                                        \
            else                                                                                                       \
                CALL(MP_TYPE_I8, __VA_ARGS__);                                                                         \
        }                                                                                                              \
    } while (0)
/* The same with constants for what is written most: the others are asked at every vector, which is little beside an exponential
 * or the sums of an int8 layer, and each constant is a copy of all loops. */
#define BY_USUAL_OUT_TYPE(CALL, ...)                                                                                   \
    do {                                                                                                               \
        if (o->out_type == MP_TYPE_F32)                                                                                \
            CALL(MP_TYPE_F32, __VA_ARGS__);                                                                            \
        else if (o->out_type == MP_TYPE_I8 && o->rounding == MP_HALF_TO_EVEN)                                          \
            CALL(OUT_I8_EVEN, __VA_ARGS__);                                                                            \
        else                                                                                                           \
            CALL(o->out_type, __VA_ARGS__);                                                                            \
    } while (0)
#define OUTPUT_CASE(TYPE, KIND, ACTIVATION)                                                                            \
    output_rows(o, KIND, ACTIVATION, TYPE, acc, acc_ld, rows, channels, channel, out, out_ld)
#define OUTPUT_ACTIVATIONS(KIND, BY_TYPE)                                                                              \
    do {                                                                                                               \
        if (o->activation == MP_LINEAR)                                                                                \
            BY_TYPE(OUTPUT_CASE, KIND, MP_LINEAR);                                                                     \
        else if (o->activation == MP_LEAKY)                                                                            \
            BY_TYPE(OUTPUT_CASE, KIND, MP_LEAKY);                                                                      \
        else                                                                                                           \
            BY_USUAL_OUT_TYPE(OUTPUT_CASE, KIND, o->activation);                                                       \
    } while (0)

static void output(mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,
                   size_t out_ld)
{
    if (o->kind == MP_SUM_FLOAT)
        OUTPUT_ACTIVATIONS(MP_SUM_FLOAT, BY_OUT_TYPE);
    else if (o->kind == MP_SUM_INT)
        OUTPUT_ACTIVATIONS(MP_SUM_INT, BY_USUAL_OUT_TYPE);
    else if (o->out_type == MP_TYPE_F16)
        OUTPUT_CASE(MP_TYPE_F16, MP_SUM_HALF, o->activation);
    else
        OUTPUT_CASE(o->out_type, MP_SUM_HALF, o->activation);
}
#undef OUTPUT_CASE
#undef OUTPUT_ACTIVATIONS
