/* SPDX-License-Identifier: MIT */
/* Depthwise rows: one vector of channels, four pixels at a time, taps in order. */
#define DEPTHWISE(NAME, SUM, VALUE, LOAD_SUM, STORE_SUM, LOAD_X, LOAD_W, MAC, A_BYTES, W_TYPE)                         \
    static void NAME(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,             \
                     const void *w, const void *init, void *acc)                                                       \
    {                                                                                                                  \
        const W_TYPE *weights = w;                                                                                     \
        for (int c = 0; c < channels; c += VL) {                                                                       \
            const SUM first = LOAD_SUM((const char *)init + (size_t)c * 4);                                            \
            const char *at = a + (size_t)c * A_BYTES;                                                                  \
            char *to = (char *)acc + (size_t)c * 4;                                                                    \
            const size_t ld = (size_t)channels * 4;                                                                    \
            int p = 0;                                                                                                 \
            for (; p + 4 <= pixels; p += 4, at += 4 * step, to += 4 * ld) {                                            \
                SUM s0 = first, s1 = first, s2 = first, s3 = first;                                                    \
                for (int t = 0; t < taps; t++) {                                                                       \
                    const VALUE v = LOAD_W(weights + (size_t)t * channels + c);                                        \
                    const char *x = at + tap[t];                                                                       \
                    s0 = MAC(LOAD_X(x), v, s0);                                                                        \
                    s1 = MAC(LOAD_X(x + step), v, s1);                                                                 \
                    s2 = MAC(LOAD_X(x + 2 * step), v, s2);                                                             \
                    s3 = MAC(LOAD_X(x + 3 * step), v, s3);                                                             \
                }                                                                                                      \
                STORE_SUM(to, s0);                                                                                     \
                STORE_SUM(to + ld, s1);                                                                                \
                STORE_SUM(to + 2 * ld, s2);                                                                            \
                STORE_SUM(to + 3 * ld, s3);                                                                            \
            }                                                                                                          \
            for (; p < pixels; p++, at += step, to += ld) {                                                            \
                SUM s = first;                                                                                         \
                for (int t = 0; t < taps; t++)                                                                         \
                    s = MAC(LOAD_X(at + tap[t]), LOAD_W(weights + (size_t)t * channels + c), s);                       \
                STORE_SUM(to, s);                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define DW_LOAD(p) vf_load((const float *)(p))
#define DW_STORE(p, x) vf_store((float *)(p), x)
DEPTHWISE(depthwise_f32, vf, vf, DW_LOAD, DW_STORE, DW_LOAD, vf_load, vf_fma, 4, float)
DEPTHWISE(depthwise_half, vf, vf, DW_LOAD, DW_STORE, DW_LOAD, vf_load, vf_fma_half, 4, float)
#ifdef MP_DOT_PAIRS
#define DW_MAC(x, w, s) vi_dot16(s, x, w)
DEPTHWISE(depthwise_pairs, vi, vi, vi_load, vi_store, vi_load, vi_load, DW_MAC, 4, int32_t)
static void pair_s16(void *staged, const void *upper, const void *lower, size_t count)
{
    uint32_t *to = staged;
    const uint16_t *first = upper, *second = lower;
    for (size_t i = 0; i < count; i++) to[i] = first[i] | (uint32_t)second[i] << 16;
}
#else
#define DW_MAC(x, w, s) vi_multiply_add(s, x, w)
DEPTHWISE(depthwise_s16, vi, vs, vi_load, vi_store, vs_load, vs_load, DW_MAC, 2, int16_t)
#endif
