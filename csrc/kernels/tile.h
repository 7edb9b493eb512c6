/* SPDX-License-Identifier: MIT */
/* Register tiles, MR pixels x 2 VL channels. The including file defines TILE_ROWS(M) = M(0) M(1) ... M(MR - 1), and
 * TILE_CASES(F, ...) which calls F(R, ...) with the number of rows as a constant, and MP_MR.
 * Accumulators are named, not an array: gcc spills arrays.
 * TILE_SINGLE: 1: panels of at most VL channels are half a tile.
 * TILE_FINISH: what makes results of a tile's sums, for TILE_OUTPUT.
 * A level may bring full tiles of its own: TILE_FULL_F32, TILE_FULL_S16, TILE_FULL_U8 do them and return, and leave the rest. */
/* Bytes. A tile of one row waits for its own weights, and those of the next panel are too far away to stay near. */
enum { TILE_NEAR = 4096 };
#define TILE_OPERANDS(ELEMENT)                                                                                         \
    const char *const *a, const ptrdiff_t *seg, int segments, int run, const ELEMENT *b, const void *init, char *acc,  \
        const char *ahead, ptrdiff_t ahead_step
#define TILE(NAME, ELEMENT, SUM, KSTEP, B_STEP, FULL)                                                                  \
    static inline __attribute__((always_inline)) void NAME##_rows(const int R, const int C, TILE_OPERANDS(ELEMENT),    \
                                                                  const tile_results *results)                         \
    {                                                                                                                  \
        TILE_ROWS(TILE_DECLARE_##SUM)                                                                                  \
        const size_t ld = 2 * VL * 4;                                                                                  \
        if (init) {                                                                                                    \
            const SUM i0 = TILE_LOAD_##SUM(init), i1 = TILE_LOAD_##SUM((const char *)init + VL * 4);                   \
            TILE_ROWS(TILE_INIT)                                                                                       \
        } else {                                                                                                       \
            TILE_ROWS(TILE_RESUME_##SUM)                                                                               \
        }                                                                                                              \
        for (int s = 0; s < segments; s++) {                                                                           \
            const ptrdiff_t at = seg[s];                                                                               \
            TILE_ROWS(TILE_POINT_##SUM)                                                                                \
            for (ptrdiff_t k = 0; k < run; k += KSTEP) {                                                               \
                const SUM b0 = TILE_LOAD_##SUM(b), b1 = TILE_LOAD_##SUM(b + B_STEP / 2);                               \
                b += B_STEP;                                                                                           \
                if (R == 1)                                                                                            \
                    for (int line = 0; line < B_STEP; line += 64) __builtin_prefetch(b + TILE_NEAR + line, 0, 3);      \
                else                                                                                                   \
                    __builtin_prefetch(ahead, 0, 2);                                                                   \
                ahead += ahead_step;                                                                                   \
                TILE_ROWS(TILE_MAC_##NAME)                                                                             \
            }                                                                                                          \
        }                                                                                                              \
        if (results) {                                                                                                 \
            TILE_FINISH(SUM);                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        TILE_ROWS(TILE_STORE_##SUM)                                                                                    \
    }                                                                                                                  \
    static void NAME(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b,                 \
                     const void *init, void *acc, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)     \
    {                                                                                                                  \
        if (TILE_SINGLE && channels <= VL) {                                                                           \
            TILE_CASES(NAME##_rows, 1, a, seg, segments, run, b, init, acc, ahead, ahead_step, 0)                      \
            return;                                                                                                    \
        }                                                                                                              \
        FULL TILE_CASES(NAME##_rows, 2, a, seg, segments, run, b, init, acc, ahead, ahead_step, 0)                     \
    }

/* The same with the output stage, of full tiles of one or two vectors of channels; HALF_VECTOR: 1: or of half of one. */
#define TILE_OUTPUT(NAME, HALF_VECTOR)                                                                                 \
    static inline __attribute__((always_inline)) void NAME##_run(const mp_tile_run *t, const int C)                    \
    {                                                                                                                  \
        tile_results results = {t->output, t->channel, t->out, t->out_ld};                                             \
        const char *acc = t->acc, *ahead = t->ahead;                                                                   \
        for (int i = 0; i < t->tiles; i++) {                                                                           \
            if (t->fetched_bytes)                                                                                      \
                mp_fetch_results(results.out, t->results, t->out_tile / t->results, t->fetched_bytes);                 \
            NAME##_rows(MP_MR, C, t->a + i * MP_MR, t->seg, t->segments, t->run, t->b, t->init, (char *)acc, ahead,    \
                        t->ahead_step, &results);                                                                      \
            acc += t->acc_tile;                                                                                        \
            ahead += t->ahead_tile;                                                                                    \
            results.out += t->out_tile;                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static int NAME##_output(const mp_tile_run *t)                                                                     \
    {                                                                                                                  \
        if (!finishes_vectors(t->output)) return 0;                                                                    \
        if (t->channels == 2 * VL)                                                                                     \
            NAME##_run(t, 2);                                                                                          \
        else if (t->channels == VL)                                                                                    \
            NAME##_run(t, 1);                                                                                          \
        else if (HALF_VECTOR && t->channels == VL / 2)                                                                 \
            NAME##_run(t, 0);                                                                                          \
        else                                                                                                           \
            return 0;                                                                                                  \
        return 1;                                                                                                      \
    }

#ifndef TILE_SINGLE
#define TILE_SINGLE 0
#endif
#ifndef TILE_FINISH
#define TILE_FINISH(SUM) (void)0
#endif
#define TILE_DECLARE_vf(i) vf c##i##0 = vf_set1(0.0f), c##i##1 = c##i##0;
#define TILE_INIT(i)                                                                                                   \
    if (R > i) c##i##0 = i0;                                                                                           \
    if (R > i && C > 1) c##i##1 = i1;
#define TILE_RESUME_vf(i)                                                                                              \
    if (R > i) c##i##0 = vf_load((const float *)(acc + i * ld));                                                       \
    if (R > i && C > 1) c##i##1 = vf_load((const float *)(acc + i * ld) + VL);
#define TILE_POINT_vf(i) const float *p##i = (const float *)(a[i] + at);
#define TILE_STORE_vf(i)                                                                                               \
    if (R > i) vf_store((float *)(acc + i * ld), c##i##0);                                                             \
    if (R > i && C > 1) vf_store((float *)(acc + i * ld) + VL, c##i##1);
#define TILE_MAC_tile_f32(i)                                                                                           \
    if (R > i) {                                                                                                       \
        const vf x = vf_set1(p##i[k]);                                                                                 \
        c##i##0 = vf_fma(x, b0, c##i##0);                                                                              \
        if (C > 1) c##i##1 = vf_fma(x, b1, c##i##1);                                                                   \
    }
#define TILE_MAC_tile_half(i)                                                                                          \
    if (R > i) {                                                                                                       \
        const vf x = vf_set1(p##i[k]);                                                                                 \
        c##i##0 = vf_fma_half(x, b0, c##i##0);                                                                         \
        if (C > 1) c##i##1 = vf_fma_half(x, b1, c##i##1);                                                              \
    }
#define TILE_LOAD_vf(p) vf_load((const float *)(p))
#define TILE_LOAD_vi(p) vi_load(p)
#ifndef TILE_FULL_F32
#define TILE_FULL_F32
#endif
#ifndef TILE_FULL_S16
#define TILE_FULL_S16
#endif
#ifndef TILE_FULL_U8
#define TILE_FULL_U8
#endif
TILE(tile_f32, float, vf, 1, (2 * VL), TILE_FULL_F32)
TILE(tile_half, float, vf, 1, (2 * VL), )

#define TILE_DECLARE_vi(i) vi c##i##0 = vi_set1(0), c##i##1 = c##i##0;
#define TILE_RESUME_vi(i)                                                                                              \
    if (R > i) c##i##0 = vi_load(acc + i * ld);                                                                        \
    if (R > i && C > 1) c##i##1 = vi_load(acc + i * ld + VL * 4);
#define TILE_POINT_vi(i) const char *p##i = a[i] + at;
#define TILE_STORE_vi(i)                                                                                               \
    if (R > i) vi_store(acc + i * ld, c##i##0);                                                                        \
    if (R > i && C > 1) vi_store(acc + i * ld + VL * 4, c##i##1);
static inline int32_t load_group(const char *p)
{
    int32_t group;
    memcpy(&group, p, sizeof group);
    return group;
}
#define TILE_MAC_tile_s16(i)                                                                                           \
    if (R > i) {                                                                                                       \
        const vi x = vi_set1(load_group(p##i + 2 * k));                                                                \
        c##i##0 = vi_dot16(c##i##0, x, b0);                                                                            \
        if (C > 1) c##i##1 = vi_dot16(c##i##1, x, b1);                                                                 \
    }
TILE(tile_s16, int16_t, vi, 2, (4 * VL), TILE_FULL_S16)
#ifdef MP_DOT_PAIRS
/* mp_micro.carry. unsigned: lanes behind the last channel may hold anything */
static inline void carry(const int32_t *restrict sums, size_t count, int32_t *restrict upper, int32_t *restrict lower,
                         int begins)
{
    if (begins)
        for (size_t i = 0; i < count; i++) {
            upper[i] = sums[i] >> 8;
            lower[i] = sums[i] & 255;
        }
    else
        for (size_t i = 0; i < count; i++) {
            upper[i] = (int32_t)((uint32_t)upper[i] + (uint32_t)(sums[i] >> 8));
            lower[i] = (int32_t)((uint32_t)lower[i] + (uint32_t)(sums[i] & 255));
        }
}
#endif
#ifdef MP_HAS_DOT8
#define TILE_MAC_tile_u8(i)                                                                                            \
    if (R > i) {                                                                                                       \
        const vi x = vi_set1(load_group(p##i + k));                                                                    \
        c##i##0 = vi_dot8(c##i##0, x, b0);                                                                             \
        if (C > 1) c##i##1 = vi_dot8(c##i##1, x, b1);                                                                  \
    }
TILE(tile_u8, int8_t, vi, 4, (8 * VL), TILE_FULL_U8)
#endif
