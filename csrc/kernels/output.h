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

static inline vf clamped(const out_scale *q, vf x)
{
    return vf_min_any(vf_max_any(vf_mul(x, q->inv_scale), q->low), q->high);
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
static inline vi code_of(const out_scale *q, vf x) { return vi_add(vi_near(clamped(q, x)), q->zero); }

/* The first n lanes of x to element `at` of out, as a real type; returns bad with what rounding to a narrow one made infinite. */
static inline __attribute__((always_inline)) vf store_real(char *out, size_t at, const int type, vf x, int n, vf bad)
{
    if (mp_type_bytes(type) < sizeof(float)) bad = note_bad(bad, round_as(type, x));
    store_as(out, at, type, x, n);
    return bad;
}

/* The same as any type. */
static inline __attribute__((always_inline)) vf store_finished(const out_scale *q, const int rounding, char *out,
                                                               size_t at, const int out_type, vf x, int n, vf bad)
{
    if (out_type == OUT_I8_EVEN) {
        store_code(out, at, clamped(q, x), q->zero, n);
        return bad;
    }
    if (mp_is_real(out_type)) return store_real(out, at, out_type, x, n, bad);
    store_as(out, at, out_type, vf_add(round_by(clamped(q, x), rounding), q->zero_point), n);
    return bad;
}

/* Where the results of a tile go whose sums are still in registers. */
typedef struct {
    mp_output *output;
    int channel; /* of the panel's first, packed */
    char *out;
    size_t out_ld;
} tile_results;

static inline vf scaled(vi sum, vf scale, vf bias) { return vf_fma(vi_to_float(sum), scale, bias); }

/* n lanes of sums -> real, the other lanes as the first. lower: as in mp_output. */
static inline __attribute__((always_inline)) vf real_of(const int kind, const int32_t *sums, size_t lower, vf scale,
                                                        vf bias, int n)
{
    const vf x = kind == MP_SUM_INT ? scaled(vi_load(sums), scale, bias)
                 : kind == MP_SUM_BYTE_PAIRS
                     ? vf_fma(vi_byte_pairs_to_float(vi_load(sums), vi_load(sums + lower)), scale, bias)
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

/* Besides MP_LINEAR ...: any, asked at each value. */
enum { OUT_ASKED = -1 };

/* Only what is computed for every value of every layer is worth a copy of the code in each of its loops. asked: o->activation. */
static inline __attribute__((always_inline)) vf activated(vf x, int activation, int asked)
{
    if (activation == OUT_ASKED) activation = asked;
    return activation <= MP_RELU6 ? vf_activate(x, activation) : vf_activate_apart(x, asked);
}

/* The same for a result that is no window's. What is no constant is none behind MP_SWISH; without optimisation nothing is one. */
static inline __attribute__((always_inline)) vf activated_here(vf x, const int activation, int asked)
{
#ifdef __OPTIMIZE__
    if (!__builtin_constant_p(activation)) return vf_activate(x, activation);
#endif
    if (activation == MP_HARD_SWISH) return vf_hard_swish(x);
    return activation == OUT_ASKED ? activated(x, OUT_ASKED, asked) : vf_activate(x, activation);
}

/* The program for boards is small: what a loop could be copied for is asked in each of its rounds there, 100 kB less in all. So it is
 * without optimisation (sanitizers), where each copy takes stack of its own, more than a helper's in all. */
#if defined(__aarch64__) || !defined(__OPTIMIZE__) || defined(MP_REFERENCE)
enum { OUT_SMALL = 1 };
#define MP_ASKED_EACH_TIME(x) __asm__("" : "+r"(x))
#else
enum { OUT_SMALL = 0 };
#define MP_ASKED_EACH_TIME(x) (void)(x)
#endif
#ifdef VI_STORES_TWO
#define store_two_codes vi_store_two_s8
#else
static inline void store_two_codes(int8_t *out, vi a, vi b)
{
    vi_store_s8(out, a);
    vi_store_s8(out + VL, b);
}
#endif

/* One vector of channels of all rows, or two whose results are codes (OUT_I8_EVEN): what belongs to a channel stays in registers. */
static inline __attribute__((always_inline)) void output_columns(mp_output *o, const int kind, const int activation,
                                                                 const int out_type, const int32_t *sums, size_t acc_ld,
                                                                 int rows, int channel, char *out, size_t at,
                                                                 size_t out_ld, const int vectors, const int n)
{
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum), bad = vf_load(o->bad);
    const out_scale q = out_scale_of(o);
    const vf scale0 = vf_load(o->scale + channel), bias0 = vf_load(o->bias + channel);
    const vf scale1 = vectors > 1 ? vf_load(o->scale + channel + VL) : scale0,
             bias1 = vectors > 1 ? vf_load(o->bias + channel + VL) : bias0;
    const int rounding = o->rounding, measured = o->measured, windows = o->windows, asked = o->activation;
    const size_t lower = o->lower;
    const int rising = kind == MP_SUM_INT && o->rising;
    const int narrow = mp_is_real(out_type) && mp_type_bytes(out_type) < sizeof(float);
    const int by_sums = rising && !narrow && never_falls(activation == OUT_ASKED ? asked : activation);
#define REAL(V, ROW) real_of(kind, sums + (ROW) * acc_ld + V * VL, lower, scale##V, bias##V, lanes)
#define ACTIVATED(X, V, ROW)                                                                                           \
    vf X = REAL(V, ROW);                                                                                               \
    bad = note_bad(bad, X);                                                                                            \
    X = activated(X, activation, asked);                                                                               \
    if (narrow) {                                                                                                      \
        X = round_as(out_type, X);                                                                                     \
        bad = note_bad(bad, X);                                                                                        \
    }
#define LARGEST_SUM(V)                                                                                                 \
    const int32_t *sums##V = sums + V * VL;                                                                            \
    const vi upper##V = vi_max(vi_load(sums##V), vi_load(sums##V + acc_ld));                                           \
    const vi lower##V = vi_max(vi_load(sums##V + 2 * acc_ld), vi_load(sums##V + 3 * acc_ld));                          \
    const vf largest##V = scaled(vi_max(upper##V, lower##V), scale##V, bias##V);                                       \
    const vf x##V = activated(lanes == VL ? largest##V : vf_keep_n(largest##V, lanes), activation, asked);
#define LARGEST(V)                                                                                                     \
    ACTIVATED(x0##V, V, 0)                                                                                             \
    ACTIVATED(x1##V, V, 1)                                                                                             \
    ACTIVATED(x2##V, V, 2)                                                                                             \
    ACTIVATED(x3##V, V, 3)                                                                                             \
    const vf x##V = largest_of(x0##V, x1##V, x2##V, x3##V);
#define UNCHECKED(V) const vf x##V = activated_here(REAL(V, 0), activation, asked);
#define CHECKED(V)                                                                                                     \
    const vf y##V = REAL(V, 0), x##V = activated_here(y##V, activation, asked);                                        \
    bad = note_bad(bad, y##V);
#define MEASURE(V)                                                                                                     \
    minimum = vf_min_any(x##V, minimum);                                                                               \
    maximum = vf_max_any(x##V, maximum);
#define EACH_ROW(STEP, RESULT)                                                                                         \
    for (int r = 0; r < rows; r += STEP, sums += STEP * acc_ld, at += out_ld) {                                        \
        int measures = measured, lanes = n;                                                                            \
        MP_ASKED_EACH_TIME(measures);                                                                                  \
        if (!__builtin_constant_p(n)) MP_ASKED_EACH_TIME(lanes);                                                       \
        RESULT(0)                                                                                                      \
        if (measures) {                                                                                                \
            MEASURE(0)                                                                                                 \
        }                                                                                                              \
        if (vectors == 1) {                                                                                            \
            bad = store_finished(&q, rounding, out, at, out_type, x0, lanes, bad);                                     \
        } else {                                                                                                       \
            RESULT(1)                                                                                                  \
            if (measures) {                                                                                            \
                MEASURE(1)                                                                                             \
            }                                                                                                          \
            store_two_codes((int8_t *)out + at, code_of(&q, x0), code_of(&q, x1));                                     \
        }                                                                                                              \
    }
    if (windows && by_sums)
        EACH_ROW(4, LARGEST_SUM)
    else if (windows)
        EACH_ROW(4, LARGEST)
    else if (rising)
        EACH_ROW(1, UNCHECKED)
    else
        EACH_ROW(1, CHECKED)
#undef EACH_ROW
#undef MEASURE
#undef CHECKED
#undef UNCHECKED
#undef LARGEST
#undef LARGEST_SUM
#undef ACTIVATED
#undef REAL
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
    vf_store(o->bad, bad);
}

/* CALL(type, ...) with the type as a constant, for o->out_type, which is not int16. */
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

#ifndef MP_SHARED
#define OUTPUT_VECTORS(KIND, ACTIVATION, TYPE, VECTORS, N)                                                             \
    output_columns(o, KIND, ACTIVATION, TYPE, (const int32_t *)acc + c, acc_ld, rows, channel + c, out, (size_t)c,     \
                   out_ld, VECTORS, N)
#define OUTPUT_ARGUMENTS                                                                                               \
    mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, char *out, size_t out_ld

/* From channel `c` on: type and activation asked at each vector, which may be a part of one. */
static inline __attribute__((always_inline)) void output_asked(const int kind, int c, OUTPUT_ARGUMENTS)
{
    for (; c < channels; c += VL)
        OUTPUT_VECTORS(kind, OUT_ASKED, o->out_type, 1, channels - c < VL ? channels - c : VL);
}
static __attribute__((noinline)) void output_from(int c, OUTPUT_ARGUMENTS)
{
    switch (o->kind) {
    case MP_SUM_FLOAT: output_asked(MP_SUM_FLOAT, c, o, acc, acc_ld, rows, channels, channel, out, out_ld); break;
    case MP_SUM_INT: output_asked(MP_SUM_INT, c, o, acc, acc_ld, rows, channels, channel, out, out_ld); break;
    case MP_SUM_BYTE_PAIRS:
        output_asked(MP_SUM_BYTE_PAIRS, c, o, acc, acc_ld, rows, channels, channel, out, out_ld);
        break;
    default: output_asked(MP_SUM_HALF, c, o, acc, acc_ld, rows, channels, channel, out, out_ld);
    }
}

#ifndef MP_REFERENCE
/* Whole vectors of what is written most, each with a copy of the loops. The result: how many channels that are. */
static inline __attribute__((always_inline)) int output_vectors(const int kind, const int activation,
                                                                const int out_type, OUTPUT_ARGUMENTS)
{
    int c = 0;
    if (!OUT_SMALL && out_type == OUT_I8_EVEN) /* whose codes are packed two vectors at a time */
        for (; c + 2 * VL <= channels; c += 2 * VL) OUTPUT_VECTORS(kind, activation, out_type, 2, VL);
    for (; c + VL <= channels; c += VL) OUTPUT_VECTORS(kind, activation, out_type, 1, VL);
    return c;
}
#endif

#ifdef MP_OUTPUT_USUAL /* a level brings what is asked most: `output_usual` */
#include MP_OUTPUT_USUAL
#define OUTPUT_REST __attribute__((noinline))
#else
#define OUTPUT_REST inline
#endif
#define OUTPUT_CASE(TYPE, KIND, ACTIVATION)                                                                            \
    done = output_vectors(KIND, ACTIVATION, TYPE, o, acc, acc_ld, rows, channels, channel, out, out_ld)
/* Where tiles are finished in registers, exponentials have their copies there. */
#ifdef MP_FINISHES
enum { OUT_SWISHES = 0 };
#else
enum { OUT_SWISHES = !OUT_SMALL };
#endif
#define OUTPUT_ACTIVATIONS(TYPE, KIND)                                                                                 \
    do {                                                                                                               \
        if (o->activation == MP_LINEAR)                                                                                \
            OUTPUT_CASE(TYPE, KIND, MP_LINEAR);                                                                        \
        else if (o->activation == MP_LEAKY)                                                                            \
            OUTPUT_CASE(TYPE, KIND, MP_LEAKY);                                                                         \
        else if (OUT_SWISHES && o->activation == MP_SWISH)                                                             \
            OUTPUT_CASE(TYPE, KIND, MP_SWISH);                                                                         \
        else if (OUT_SWISHES && o->activation == MP_HARD_SWISH)                                                        \
            OUTPUT_CASE(TYPE, KIND, MP_HARD_SWISH);                                                                    \
        else if (o->activation <= MP_SWISH)                                                                            \
            OUTPUT_CASE(TYPE, KIND, o->activation);                                                                    \
    } while (0)
#define OUTPUT_TYPES(KIND)                                                                                             \
    do {                                                                                                               \
        if (o->out_type == MP_TYPE_F32)                                                                                \
            OUTPUT_ACTIVATIONS(MP_TYPE_F32, KIND);                                                                     \
        else if (o->out_type == MP_TYPE_I8 && o->rounding == MP_HALF_TO_EVEN)                                          \
            OUTPUT_ACTIVATIONS(OUT_I8_EVEN, KIND);                                                                     \
    } while (0)

static OUTPUT_REST void output_rest(OUTPUT_ARGUMENTS)
{
    int done = 0;
#ifndef MP_REFERENCE
    if (o->kind == MP_SUM_FLOAT && o->out_type == MP_TYPE_F16) {
        OUTPUT_ACTIVATIONS(MP_TYPE_F16, MP_SUM_FLOAT);
    } else if (o->kind == MP_SUM_FLOAT) {
        OUTPUT_TYPES(MP_SUM_FLOAT);
    } else if (o->kind == MP_SUM_INT) {
        OUTPUT_TYPES(MP_SUM_INT);
    } else if (o->kind == MP_SUM_HALF && o->out_type == MP_TYPE_F16 && o->activation <= MP_SWISH) {
        OUTPUT_CASE(MP_TYPE_F16, MP_SUM_HALF, o->activation);
    }
#endif
    if (done < channels) output_from(done, o, acc, acc_ld, rows, channels, channel, out, out_ld);
}

static void output(mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,
                   size_t out_ld)
{
    int done = 0;
#ifdef MP_OUTPUT_USUAL
    done = output_usual(o, acc, acc_ld, rows, channels, channel, out, out_ld);
    if (done == channels) return;
#endif
    output_rest(o, (const int32_t *)acc + done, acc_ld, rows, channels - done, channel + done,
                (char *)out + done * mp_type_bytes(o->out_type), out_ld);
}
#undef OUTPUT_CASE
#undef OUTPUT_ACTIVATIONS
#undef OUTPUT_TYPES
#undef OUTPUT_ARGUMENTS
#undef OUTPUT_VECTORS
#endif

/* What becomes results while its sums are in registers, of whole vectors of channels: what is asked most. The rest goes through memory
 * to `output`, which gives the same bits. */
#ifndef MP_FINISHES_WINDOWS
#define MP_FINISHES_WINDOWS 0
#endif
static inline int finishes_vectors(const mp_output *o)
{
    const int falls = !never_falls(o->activation) && o->activation != MP_HARD_SWISH && o->activation != MP_SWISH;
    if (falls || (o->windows && (!MP_FINISHES_WINDOWS || !o->rising || !never_falls(o->activation)))) return 0;
    if (o->kind == MP_SUM_FLOAT) return o->out_type == MP_TYPE_F32 || o->out_type == MP_TYPE_F16;
    return o->kind == MP_SUM_INT && o->rising &&
           (o->out_type == MP_TYPE_F32 ||
            (o->out_type == MP_TYPE_I8 && o->rounding == MP_HALF_TO_EVEN && !o->measured));
}

#ifdef MP_FINISHES
/* The code's distance from its zero; codes: 1: clamped, 2: clamped where it is packed (mp_output.packs). */
static inline __attribute__((always_inline)) vi finished_code(const out_scale *q, vf x, const int codes)
{
    return vi_near(codes == 2 ? vf_mul(x, q->inv_scale) : clamped(q, x));
}
static inline vi zero_words(const mp_output *o) { return vi_set1_s16((int16_t)o->zero_point); }
#endif
