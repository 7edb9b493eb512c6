/* SPDX-License-Identifier: MIT */
/* The output stage of a full tile whose sums are still in registers: MP_MR pixels, an even number, x one or two vectors of channels,
 * named as in tile.h. For what `finishes_vectors` (output.h); the level chooses the copy. last: channels of the last vector; sums behind them are 0. */
#ifndef MP_FINISH_H
#define MP_FINISH_H

#define FINISH_SUMS_vf(i) vf c##i##0, vf c##i##1,
#define FINISH_SUMS_vi(i) vi c##i##0, vi c##i##1,
#define FINISH_ARGUMENTS(i) c##i##0, c##i##1,
#define FINISH_REAL_vf(V, SUM) SUM
/* Sums leave registers for scales and biases where there are 32. */
#define FINISH_REAL_vi(V, SUM)                                                                                         \
    scaled(SUM, VL < 16 ? vf_load(scale + V * VL) : scale##V, VL < 16 ? vf_load(bias + V * VL) : bias##V)
/* In several chains: one would wait for itself longer than the tile's products take. */
#define FINISH_CHECK_vf(V, i) bad##V[(i) & 1] = note_bad(bad##V[(i) & 1], x##V);
#define FINISH_CHECK_vi(V, i)
/* What rises is finite. */
#define FINISH_CHECKS_vf 1
#define FINISH_CHECKS_vi 0
#define FINISH_ONE(SUM, V, i, OF, LANES)                                                                               \
    vf x##V = FINISH_REAL_##SUM(V, OF);                                                                                \
    FINISH_CHECK_##SUM(V, i) x##V = activated_here(x##V, activation, activation);                                      \
    if (measured) {                                                                                                    \
        const vf measured##V = (LANES) == VL ? x##V : vf_keep_n(x##V, LANES);                                          \
        minimum = vf_min_any(measured##V, minimum);                                                                    \
        maximum = vf_max_any(measured##V, maximum);                                                                    \
    }                                                                                                                  \
    if (codes)                                                                                                         \
        code[i % 2][V] = finished_code(&q, x##V, codes);                                                               \
    else if (halves)                                                                                                   \
        bad##V[(i) & 1] = store_real(out, V * VL, MP_TYPE_F16, x##V, LANES, bad##V[(i) & 1]);                          \
    else                                                                                                               \
        store_as(out, V *VL, MP_TYPE_F32, x##V, LANES);
#define FINISH_VECTORS(SUM, i, OF0, OF1)                                                                               \
    FINISH_ONE(SUM, 0, i, OF0, vectors > 1 ? VL : last)                                                                \
    if (vectors > 1) {                                                                                                 \
        FINISH_ONE(SUM, 1, i, OF1, last)                                                                               \
    }
/* Codes of two rows are packed together. */
#define FINISH_ROW(SUM, i)                                                                                             \
    {                                                                                                                  \
        FINISH_VECTORS(SUM, i, c##i##0, c##i##1)                                                                       \
        if (codes && i % 2) {                                                                                          \
            int8_t *const before = (int8_t *)out - step;                                                               \
            if (vectors > 1)                                                                                           \
                vi_pack_two_by_two_s8(before, step, code[0][0], code[0][1], code[1][0], code[1][1], zero, last);       \
            else                                                                                                       \
                vi_pack_two_s8(before, step, code[0][0], code[1][0], zero, last);                                      \
        }                                                                                                              \
        out += step;                                                                                                   \
    }
#define FINISH_ROW_vf(i) FINISH_ROW(vf, i)
#define FINISH_ROW_vi(i) FINISH_ROW(vi, i)
/* Every four rows are a window. */
#define FINISH_WINDOW_vf(i)
#define FINISH_WINDOW_vi(i)                                                                                            \
    largest[0] = i % 4 ? vi_max(largest[0], c##i##0) : c##i##0;                                                        \
    if (vectors > 1) largest[1] = i % 4 ? vi_max(largest[1], c##i##1) : c##i##1;                                       \
    if (i % 4 == 3) {                                                                                                  \
        FINISH_VECTORS(vi, i, largest[0], largest[1])                                                                  \
        if (codes) {                                                                                                   \
            vi_store_s8_n((int8_t *)out, vi_add(code[1][0], q.zero), vectors > 1 ? VL : last);                         \
            if (vectors > 1) vi_store_s8_n((int8_t *)out + VL, vi_add(code[1][1], q.zero), last);                      \
        }                                                                                                              \
        out += step;                                                                                                   \
    }
#define FINISH_AS(SUM)                                                                                                 \
    static inline __attribute__((always_inline)) void finish_as_##SUM(                                                 \
        TILE_ROWS(FINISH_SUMS_##SUM) const tile_results *results, const int vectors, const int last,                   \
        const int activation, const int codes, const int halves, const int windows)                                    \
    {                                                                                                                  \
        mp_output *o = results->output;                                                                                \
        char *out = results->out;                                                                                      \
        const size_t step = results->out_ld * (codes ? 1 : halves ? sizeof(uint16_t) : sizeof(float));                 \
        const out_scale q = out_scale_of(o);                                                                           \
        const vi zero = zero_words(o);                                                                                 \
        const float *scale = o->scale + results->channel, *bias = o->bias + results->channel;                          \
        const vf scale0 = vf_load(scale), bias0 = vf_load(bias), scale1 = vectors > 1 ? vf_load(scale + VL) : scale0,  \
                 bias1 = vectors > 1 ? vf_load(bias + VL) : bias0;                                                     \
        const int measured = codes ? 0 : o->measured;                                                                  \
        vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);                                               \
        vf bad0[2] = {vf_load(o->bad), vf_set1(0.0f)}, bad1[2] = {vf_set1(0.0f), vf_set1(0.0f)};                       \
        vi code[2][2] = {{zero, zero}, {zero, zero}}, largest[2] = {zero, zero};                                       \
        (void)scale0, (void)scale1, (void)bias0, (void)bias1, (void)code, (void)largest;                               \
        if (windows) {                                                                                                 \
            TILE_ROWS(FINISH_WINDOW_##SUM)                                                                             \
        } else {                                                                                                       \
            TILE_ROWS(FINISH_ROW_##SUM)                                                                                \
        }                                                                                                              \
        if (measured) {                                                                                                \
            vf_store(o->minimum, minimum);                                                                             \
            vf_store(o->maximum, maximum);                                                                             \
        }                                                                                                              \
        if (FINISH_CHECKS_##SUM) vf_store(o->bad, vf_add(vf_add(bad0[0], bad0[1]), vf_add(bad1[0], bad1[1])));         \
    }
FINISH_AS(vf)
FINISH_AS(vi)
#endif
