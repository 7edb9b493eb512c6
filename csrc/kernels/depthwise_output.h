/* SPDX-License-Identifier: MIT */
/* Depthwise rows with their output stage, of whole vectors of channels: sums become results in registers (`finishes_vectors`, output.h). */

/* Codes less their zero, clamped here or by packing. */
#define DW_CODE(i) finished_code(&q, x##i, codes)
#define DW_RESULT(i)                                                                                                   \
    vf x##i = DW_REAL(s##i);                                                                                           \
    if (DW_CHECKED) bad[i & 1] = note_bad(bad[i & 1], x##i);                                                           \
    x##i = activated_here(x##i, activation, activation);                                                               \
    if (measured) {                                                                                                    \
        minimum = vf_min_any(x##i, minimum);                                                                           \
        maximum = vf_max_any(x##i, maximum);                                                                           \
    }
#define DW_PUT(i)                                                                                                      \
    if (!codes) vf_store((float *)(to + i * ld), x##i);
#define DW_PUT_8                                                                                                       \
    if (codes) {                                                                                                       \
        vi_pack_four_s8((int8_t *)to, ld, DW_CODE(0), DW_CODE(1), DW_CODE(2), DW_CODE(3), zero);                       \
        vi_pack_four_s8((int8_t *)to + 4 * ld, ld, DW_CODE(4), DW_CODE(5), DW_CODE(6), DW_CODE(7), zero);              \
    }
#define DW_PUT_4                                                                                                       \
    if (codes) vi_pack_four_s8((int8_t *)to, ld, DW_CODE(0), DW_CODE(1), DW_CODE(2), DW_CODE(3), zero);
#define DW_PUT_1                                                                                                       \
    if (codes) vi_pack_s8((int8_t *)to, DW_CODE(0), zero);
#define DEPTHWISE_OUTPUT(NAME, W_TYPE, A_BYTES)                                                                        \
    static inline __attribute__((always_inline)) void NAME##_as(                                                       \
        const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels, const void *w,           \
        const void *init, mp_output *o, int out_c, char *out, const int activation, const int codes)                   \
    {                                                                                                                  \
        const W_TYPE *weights = w;                                                                                     \
        const out_scale q = out_scale_of(o);                                                                           \
        const vi zero = zero_words(o);                                                                                 \
        const int measured = codes ? 0 : o->measured;                                                                  \
        vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum), bad[2] = {vf_load(o->bad), vf_set1(0.0f)};    \
        const size_t bytes = codes ? 1 : sizeof(float), ld = (size_t)out_c * bytes;                                    \
        for (int c = 0; c < out_c; c += VL) {                                                                          \
            const DW_SUM first = DW_LOAD((const char *)init + (size_t)c * 4);                                          \
            const vf scale = vf_load(o->scale + c), bias = vf_load(o->bias + c);                                       \
            const char *at = a + (size_t)c * A_BYTES;                                                                  \
            char *to = out + c * bytes;                                                                                \
            int p = 0;                                                                                                 \
            (void)zero;                                                                                                \
            (void)scale;                                                                                               \
            (void)bias;                                                                                                \
            DW_PIXELS(8, DW_EIGHT, DW_EIGHT(DW_RESULT) DW_EIGHT(DW_PUT) DW_PUT_8)                                      \
            DW_PIXELS(4, DW_FOUR, DW_FOUR(DW_RESULT) DW_FOUR(DW_PUT) DW_PUT_4)                                         \
            DW_PIXELS(1, DW_ONE, DW_ONE(DW_RESULT) DW_ONE(DW_PUT) DW_PUT_1)                                            \
        }                                                                                                              \
        vf_store(o->minimum, minimum);                                                                                 \
        vf_store(o->maximum, maximum);                                                                                 \
        vf_store(o->bad, vf_add(bad[0], bad[1]));                                                                      \
    }                                                                                                                  \
    static int NAME##_output(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,     \
                             const void *w, const void *init, mp_output *o, int out_c, void *out)                      \
    {                                                                                                                  \
        if (!finishes_vectors(o) || out_c % VL || mp_type_bytes(o->out_type) == 2) return 0;                           \
        if (o->out_type == MP_TYPE_F32) {                                                                              \
            switch (o->activation) {                                                                                   \
                DW_CASES(NAME##_as, 0)                                                                                 \
            }                                                                                                          \
        } else if (!DW_CHECKED && o->packs) {                                                                          \
            switch (o->activation) {                                                                                   \
                DW_CASES(NAME##_as, 2)                                                                                 \
            }                                                                                                          \
        } else if (!DW_CHECKED) {                                                                                      \
            switch (o->activation) {                                                                                   \
                DW_CASES(NAME##_as, 1)                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
#define DW_CASE(F, ACTIVATION, CODES)                                                                                  \
    F(a, tap, taps, step, pixels, channels, w, init, o, out_c, out, ACTIVATION, CODES);                                \
    break;
#define DW_CASES(F, CODES)                                                                                             \
    case MP_LINEAR: DW_CASE(F, MP_LINEAR, CODES)                                                                       \
    case MP_LEAKY: DW_CASE(F, MP_LEAKY, CODES)                                                                         \
    case MP_RELU: DW_CASE(F, MP_RELU, CODES)                                                                           \
    case MP_HARD_SWISH: DW_CASE(F, MP_HARD_SWISH, CODES)                                                               \
    case MP_SWISH: DW_CASE(F, MP_SWISH, CODES)                                                                         \
    default: DW_CASE(F, MP_RELU6, CODES)
