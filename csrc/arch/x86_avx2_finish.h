/* SPDX-License-Identifier: MIT */
/* The output stage of a full tile whose sums are still in registers, of one or two vectors of channels, or half of one: what
 * `finishes_vectors` (output.h). */
#ifndef MP_X86_AVX2_FINISH_H
#define MP_X86_AVX2_FINISH_H

#define FINISH_SUMS_vf(i) vf c##i##0, vf c##i##1,
#define FINISH_SUMS_vi(i) vi c##i##0, vi c##i##1,
#define FINISH_REAL_vf(V, SUM) SUM
#define FINISH_REAL_vi(V, SUM) scaled(SUM, vf_load(scale + V * VL), vf_load(bias + V * VL))
/* In several chains: one would wait for itself longer than the tile's products take. */
#define FINISH_CHECK_vf(V, i) bad##V[(i) & 1] = note_bad(bad##V[(i) & 1], x##V);
#define FINISH_CHECK_vi(V, i) /* what rises is finite */
#define FINISH_ONE(SUM, V, i)                                                                                          \
    vf x##V = FINISH_REAL_##SUM(V, c##i##V);                                                                           \
    if (vectors == 0) x##V = vf_keep_n(x##V, VL / 2);                                                                  \
    FINISH_CHECK_##SUM(V, i) x##V = activated_here(x##V, activation, activation);                                      \
    if (measured) {                                                                                                    \
        minimum = vf_min_any(x##V, minimum);                                                                           \
        maximum = vf_max_any(x##V, maximum);                                                                           \
    }
#define FINISH_HALF(V, i, N) bad##V[(i) & 1] = store_real(out, V * VL, MP_TYPE_F16, x##V, N, bad##V[(i) & 1]);
#define FINISH_ROW(SUM, i)                                                                                             \
    {                                                                                                                  \
        FINISH_ONE(SUM, 0, i)                                                                                          \
        if (vectors > 1) {                                                                                             \
            FINISH_ONE(SUM, 1, i)                                                                                      \
            if (codes) {                                                                                               \
                vi_pack_two_s8((int8_t *)out, finished_code(&q, x0, codes), finished_code(&q, x1, codes), zero);       \
            } else if (halves) {                                                                                       \
                FINISH_HALF(0, i, VL)                                                                                  \
                FINISH_HALF(1, i, VL)                                                                                  \
            } else {                                                                                                   \
                vf_store((float *)out, x0);                                                                            \
                vf_store((float *)out + VL, x1);                                                                       \
            }                                                                                                          \
        } else if (halves) {                                                                                           \
            FINISH_HALF(0, i, vectors ? VL : VL / 2)                                                                   \
        } else if (vectors == 0) {                                                                                     \
            vf_store_n((float *)out, x0, VL / 2);                                                                      \
        } else if (codes) {                                                                                            \
            vi_pack_s8((int8_t *)out, finished_code(&q, x0, codes), zero);                                             \
        } else {                                                                                                       \
            vf_store((float *)out, x0);                                                                                \
        }                                                                                                              \
        out += step;                                                                                                   \
    }
#define FINISH_ROW_vf(i) FINISH_ROW(vf, i)
#define FINISH_ROW_vi(i) FINISH_ROW(vi, i)
#define FINISH_AS(SUM)                                                                                                 \
    static inline __attribute__((always_inline)) void finish_as_##SUM(                                                 \
        TILE_ROWS(FINISH_SUMS_##SUM) const tile_results *results, const int vectors, const int activation,             \
        const int codes, const int halves)                                                                             \
    {                                                                                                                  \
        mp_output *o = results->output;                                                                                \
        char *out = results->out;                                                                                      \
        const size_t step = results->out_ld * (codes ? 1 : halves ? sizeof(uint16_t) : sizeof(float));                 \
        const out_scale q = out_scale_of(o);                                                                           \
        const vi zero = zero_words(o);                                                                                 \
        const float *scale = o->scale + results->channel, *bias = o->bias + results->channel;                          \
        const int measured = o->measured;                                                                              \
        vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);                                               \
        vf bad0[2] = {vf_load(o->bad), vf_set1(0.0f)}, bad1[2] = {vf_set1(0.0f), vf_set1(0.0f)};                       \
        (void)zero;                                                                                                    \
        (void)scale;                                                                                                   \
        (void)bias;                                                                                                    \
        TILE_ROWS(FINISH_ROW_##SUM)                                                                                    \
        if (measured) {                                                                                                \
            vf_store(o->minimum, minimum);                                                                             \
            vf_store(o->maximum, maximum);                                                                             \
        }                                                                                                              \
        vf_store(o->bad, vf_add(vf_add(bad0[0], bad0[1]), vf_add(bad1[0], bad1[1])));                                  \
    }
FINISH_AS(vf)
FINISH_AS(vi)

#define FINISH_ARGUMENTS(i) c##i##0, c##i##1,
#define FINISH_ACTIVATIONS(SUM, VECTORS, CODES, HALVES)                                                                \
    switch (results->output->activation) {                                                                             \
    case MP_LINEAR: finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_LINEAR, CODES, HALVES); break;    \
    case MP_LEAKY: finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_LEAKY, CODES, HALVES); break;      \
    case MP_RELU: finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_RELU, CODES, HALVES); break;        \
    case MP_HARD_SWISH:                                                                                                \
        finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_HARD_SWISH, CODES, HALVES);                   \
        break;                                                                                                         \
    case MP_SWISH: finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_SWISH, CODES, HALVES); break;      \
    default: finish_as_##SUM(TILE_ROWS(FINISH_ARGUMENTS) results, VECTORS, MP_RELU6, CODES, HALVES); break;            \
    }
static inline __attribute__((always_inline)) void finish_vf(TILE_ROWS(FINISH_SUMS_vf) const int vectors,
                                                            const tile_results *results)
{
    if (results->output->out_type == MP_TYPE_F32) {
        FINISH_ACTIVATIONS(vf, vectors, 0, 0)
    } else {
        FINISH_ACTIVATIONS(vf, vectors, 0, 1)
    }
}
static inline __attribute__((always_inline)) void finish_vi(TILE_ROWS(FINISH_SUMS_vi) const int vectors,
                                                            const tile_results *results)
{
    if (results->output->out_type == MP_TYPE_F32) {
        FINISH_ACTIVATIONS(vi, vectors, 0, 0)
    } else if (results->output->packs) {
        FINISH_ACTIVATIONS(vi, vectors, 2, 0)
    } else {
        FINISH_ACTIVATIONS(vi, vectors, 1, 0)
    }
}
#define TILE_FINISH(SUM) finish_##SUM(TILE_ROWS(FINISH_ARGUMENTS) C, results)
#endif
