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
/* As many rows together as a level has registers for: x[row], and behind those of all rows the second vectors. */
enum { FINISH_GROUP = VL < 16 ? 2 : 4 };
#define FINISH_TAKE(SUM, V, i, OF)                                                                                     \
    {                                                                                                                  \
        const vf x##V = FINISH_REAL_##SUM(V, OF);                                                                      \
        FINISH_CHECK_##SUM(V, i) x[i % FINISH_GROUP + V * FINISH_GROUP] = x##V;                                        \
    }
#define FINISH_ACTIVATE                                                                                                \
    if (activation == MP_SWISH && FINISH_GROUP == 4) {                                                                 \
        if (vectors > 1)                                                                                               \
            vf_swish_eight(x);                                                                                         \
        else                                                                                                           \
            vf_swish_four(x);                                                                                          \
    } else {                                                                                                           \
        FINISH_ACTIVATE_ROW(0)                                                                                         \
        FINISH_ACTIVATE_ROW(1)                                                                                         \
        if (FINISH_GROUP == 4) {                                                                                       \
            FINISH_ACTIVATE_ROW(2)                                                                                     \
            FINISH_ACTIVATE_ROW(3)                                                                                     \
        }                                                                                                              \
    }
#define FINISH_X(row, V) x[(row) % FINISH_GROUP + V * FINISH_GROUP]
#define FINISH_ACTIVATE_ONE(row, V) FINISH_X(row, V) = activated_here(FINISH_X(row, V), activation, activation);
#define FINISH_ACTIVATE_ROW(row)                                                                                       \
    FINISH_ACTIVATE_ONE(row, 0)                                                                                        \
    if (vectors > 1) FINISH_ACTIVATE_ONE(row, 1)
#define FINISH_STORE(V, row, LANES)                                                                                    \
    if (measured) {                                                                                                    \
        const vf kept = (LANES) == VL ? FINISH_X(row, V) : vf_keep_n(FINISH_X(row, V), LANES);                         \
        minimum = vf_min_any(kept, minimum);                                                                           \
        maximum = vf_max_any(kept, maximum);                                                                           \
    }                                                                                                                  \
    if (fp16)                                                                                                          \
        bad##V[(row) & 1] = store_real(out, V * VL, MP_TYPE_F16, FINISH_X(row, V), LANES, bad##V[(row) & 1]);          \
    else if (!codes)                                                                                                   \
        store_as(out, V *VL, MP_TYPE_F32, FINISH_X(row, V), LANES);
#define FINISH_STORE_ROW(row)                                                                                          \
    FINISH_STORE(0, row, vectors > 1 ? VL : last)                                                                      \
    if (vectors > 1) {                                                                                                 \
        FINISH_STORE(1, row, last)                                                                                     \
    }                                                                                                                  \
    out += step;
#define FINISH_CODE(row, V) finished_code(&q, FINISH_X(row, V), codes)
/* Codes of two rows are packed together. */
#define FINISH_STORE_ROWS(row)                                                                                         \
    if (codes && vectors > 1)                                                                                          \
        vi_pack_two_by_two_s8((int8_t *)out, step, FINISH_CODE(row, 0), FINISH_CODE(row, 1), FINISH_CODE(row + 1, 0),  \
                              FINISH_CODE(row + 1, 1), zero, last);                                                    \
    else if (codes)                                                                                                    \
        vi_pack_two_s8((int8_t *)out, step, FINISH_CODE(row, 0), FINISH_CODE(row + 1, 0), zero, last);                 \
    FINISH_STORE_ROW(row)                                                                                              \
    FINISH_STORE_ROW(row + 1)
#define FINISH_ROW(SUM, i)                                                                                             \
    FINISH_TAKE(SUM, 0, i, c##i##0)                                                                                    \
    if (vectors > 1) FINISH_TAKE(SUM, 1, i, c##i##1)                                                                   \
    if (i % FINISH_GROUP == FINISH_GROUP - 1) {                                                                        \
        FINISH_ACTIVATE                                                                                                \
        FINISH_STORE_ROWS(0)                                                                                           \
        if (FINISH_GROUP == 4) {                                                                                       \
            FINISH_STORE_ROWS(2)                                                                                       \
        }                                                                                                              \
    }
#define FINISH_ROW_vf(i) FINISH_ROW(vf, i)
#define FINISH_ROW_vi(i) FINISH_ROW(vi, i)
/* Every four rows are a window. */
#define FINISH_WINDOW_vf(i)
#define FINISH_WINDOW_vi(i)                                                                                            \
    largest[0] = i % 4 ? vi_max(largest[0], c##i##0) : c##i##0;                                                        \
    if (vectors > 1) largest[1] = i % 4 ? vi_max(largest[1], c##i##1) : c##i##1;                                       \
    if (i % 4 == 3) {                                                                                                  \
        FINISH_TAKE(vi, 0, 0, largest[0])                                                                              \
        if (vectors > 1) FINISH_TAKE(vi, 1, 0, largest[1])                                                             \
        FINISH_ACTIVATE_ROW(0)                                                                                         \
        if (codes) {                                                                                                   \
            vi_store_s8_n((int8_t *)out, vi_add(FINISH_CODE(0, 0), q.zero), vectors > 1 ? VL : last);                  \
            if (vectors > 1) vi_store_s8_n((int8_t *)out + VL, vi_add(FINISH_CODE(0, 1), q.zero), last);               \
        }                                                                                                              \
        FINISH_STORE_ROW(0)                                                                                            \
    }
#define FINISH_AS(SUM)                                                                                                 \
    static inline __attribute__((always_inline)) void finish_as_##SUM(                                                 \
        TILE_ROWS(FINISH_SUMS_##SUM) const tile_results *results, const int vectors, const int last,                   \
        const int activation, const int codes, const int fp16, const int windows)                                      \
    {                                                                                                                  \
        mp_output *o = results->output;                                                                                \
        char *out = results->out;                                                                                      \
        const size_t step = results->out_ld * (codes ? 1 : fp16 ? sizeof(uint16_t) : sizeof(float));                   \
        const out_scale q = out_scale_of(o);                                                                           \
        const vi zero = zero_words(o);                                                                                 \
        const float *scale = o->scale + results->channel, *bias = o->bias + results->channel;                          \
        const vf scale0 = vf_load(scale), bias0 = vf_load(bias), scale1 = vectors > 1 ? vf_load(scale + VL) : scale0,  \
                 bias1 = vectors > 1 ? vf_load(bias + VL) : bias0;                                                     \
        const int measured = codes ? 0 : o->measured;                                                                  \
        vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);                                               \
        vf bad0[2] = {vf_load(o->bad), vf_set1(0.0f)}, bad1[2] = {vf_set1(0.0f), vf_set1(0.0f)};                       \
        vf x[2 * FINISH_GROUP] = {minimum};                                                                            \
        vi largest[2] = {zero, zero};                                                                                  \
        (void)scale0, (void)scale1, (void)bias0, (void)bias1, (void)x, (void)largest;                                  \
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
