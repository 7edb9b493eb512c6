/* SPDX-License-Identifier: MIT */
/* Depthwise rows: one vector of channels, taps in order; eight pixels at a time, so that none of their sums waits for its own last
 * product. */
#define DW_EIGHT(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define DW_FOUR(M) M(0) M(1) M(2) M(3)
#define DW_ONE(M) M(0)
#define DW_BEGIN(i) DW_SUM s##i = first;
#define DW_ADD(i) s##i = DW_MAC(DW_LOAD_X(x + i * step), v, s##i);
#define DW_END(i) DW_STORE(to + i * ld, s##i);
/* As many as there are still COUNT of; then what becomes of their sums. */
#define DW_PIXELS(COUNT, EACH, ...)                                                                                    \
    for (; p + COUNT <= pixels; p += COUNT, at += COUNT * step, to += COUNT * ld) {                                    \
        EACH(DW_BEGIN)                                                                                                 \
        for (int t = 0; t < taps; t++) {                                                                               \
            const DW_VALUE v = DW_LOAD_W(weights + (size_t)t * channels + c);                                          \
            const char *x = at + tap[t];                                                                               \
            EACH(DW_ADD)                                                                                               \
        }                                                                                                              \
        __VA_ARGS__                                                                                                    \
    }
#define DEPTHWISE(NAME, W_TYPE, A_BYTES)                                                                               \
    static void NAME(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,             \
                     const void *w, const void *init, void *acc)                                                       \
    {                                                                                                                  \
        const W_TYPE *weights = w;                                                                                     \
        for (int c = 0; c < channels; c += VL) {                                                                       \
            const DW_SUM first = DW_LOAD((const char *)init + (size_t)c * 4);                                          \
            const char *at = a + (size_t)c * A_BYTES;                                                                  \
            char *to = (char *)acc + (size_t)c * 4;                                                                    \
            const size_t ld = (size_t)channels * 4;                                                                    \
            int p = 0;                                                                                                 \
            DW_PIXELS(8, DW_EIGHT, DW_EIGHT(DW_END))                                                                   \
            DW_PIXELS(4, DW_FOUR, DW_FOUR(DW_END))                                                                     \
            DW_PIXELS(1, DW_ONE, DW_ONE(DW_END))                                                                       \
        }                                                                                                              \
    }

#ifdef MP_FINISHES
#include "depthwise_output.h"
#else
#define DEPTHWISE_OUTPUT(NAME, W_TYPE, A_BYTES)
#define depthwise_f32_output 0
#define depthwise_pairs_output 0
#endif

#define DW_SUM vf
#define DW_VALUE vf
#define DW_CHECKED 1
#define DW_REAL(sum) sum
#define DW_LOAD(p) vf_load((const float *)(p))
#define DW_STORE(p, x) vf_store((float *)(p), x)
#define DW_LOAD_X DW_LOAD
#define DW_LOAD_W vf_load
#define DW_MAC vf_fma
DEPTHWISE(depthwise_f32, float, 4)
DEPTHWISE_OUTPUT(depthwise_f32, float, 4)
#undef DW_MAC
#define DW_MAC vf_fma_half
DEPTHWISE(depthwise_half, float, 4)
#undef DW_CHECKED
#undef DW_REAL
#undef DW_SUM
#undef DW_VALUE
#undef DW_LOAD
#undef DW_STORE
#undef DW_LOAD_X
#undef DW_LOAD_W
#undef DW_MAC

#define DW_SUM vi
#define DW_CHECKED 0
#define DW_REAL(sum) scaled(sum, scale, bias)
#define DW_LOAD vi_load
#define DW_STORE vi_store
#ifdef MP_DOT_PAIRS
#define DW_VALUE vi
#define DW_LOAD_X vi_load
#define DW_LOAD_W vi_load
#define DW_MAC(x, w, s) vi_dot16(s, x, w)
DEPTHWISE(depthwise_pairs, int32_t, 4)
DEPTHWISE_OUTPUT(depthwise_pairs, int32_t, 4)
static void pair_s16(void *staged, const void *upper, const void *lower, size_t count, int zero_point)
{
    (void)zero_point;
    uint32_t *to = staged;
    const uint16_t *first = upper, *second = lower;
    for (size_t i = 0; i < count; i++) to[i] = first[i] | (uint32_t)second[i] << 16;
}
static void pair_s8(void *staged, const void *upper, const void *lower, size_t count, int zero_point)
{
    uint32_t *to = staged;
    const int8_t *first = upper, *second = lower;
    for (size_t i = 0; i < count; i++)
        to[i] = (uint16_t)(first[i] - zero_point) | (uint32_t)(second[i] - zero_point) << 16;
}
#elif !defined MP_OWN_DEPTHWISE
#define DW_VALUE vs
#define DW_LOAD_X vs_load
#define DW_LOAD_W vs_load
#define DW_MAC(x, w, s) vi_multiply_add(s, x, w)
DEPTHWISE(depthwise_s16, int16_t, 2)
#endif

#ifdef MP_DOT_PAIRS
#include "depthwise_lines.h"
#ifndef MP_COLUMNS
#define LINES_INT
#include "depthwise_lines.h"
#undef LINES_INT
#endif
#define MP_LINES(SUMS) .lines = depthwise_lines_##SUMS
#else
#define MP_LINES(SUMS) .lines = 0
#endif
