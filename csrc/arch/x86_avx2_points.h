/* SPDX-License-Identifier: MIT */
/* mp_micro.points on AVX2: layers whose depth is so short that a tile's beginning and end cost more than its products. Six pixels
 * x two vectors of channels, or twelve x one, whose second six stand in the second vectors' sums; the last tile begins early where it
 * would not be full, and computes some results once more. */
#define POINTS_AT(i) (const char *)((i < 3 ? near : far) + i % 3 * pixel) + (k * POINTS_STEP)
#define POINTS_BEYOND(i) (const char *)((i < 3 ? near : far) + (6 + i % 3) * pixel) + (k * POINTS_STEP)
#define POINTS_DECLARE_vf(i) vf c##i##0 = first, c##i##1 = second;
#define POINTS_DECLARE_vi(i) vi c##i##0 = first, c##i##1 = second;
#define POINTS_ADD_vf(x, w, sum) sum = vf_fma(vf_set1(*(const float *)(x)), w, sum);
#define POINTS_ADD_vi(x, w, sum) sum = vi_dot16(sum, vi_set1(load_group(x)), w);
#define POINTS_TWO_vf(i) POINTS_ADD_vf(POINTS_AT(i), w0, c##i##0) POINTS_ADD_vf(POINTS_AT(i), w1, c##i##1)
#define POINTS_TWO_vi(i) POINTS_ADD_vi(POINTS_AT(i), w0, c##i##0) POINTS_ADD_vi(POINTS_AT(i), w1, c##i##1)
#define POINTS_ONE_vf(i) POINTS_ADD_vf(POINTS_AT(i), w0, c##i##0) POINTS_ADD_vf(POINTS_BEYOND(i), w0, c##i##1)
#define POINTS_ONE_vi(i) POINTS_ADD_vi(POINTS_AT(i), w0, c##i##0) POINTS_ADD_vi(POINTS_BEYOND(i), w0, c##i##1)
#define POINTS_SECOND(i) c##i##1, c##i##1,
enum { POINTS_STEP = 4, POINTS_PANEL = 2 * VL * POINTS_STEP };

#define POINTS(NAME, SUM)                                                                                              \
    static inline __attribute__((always_inline)) void NAME##_of(const mp_points *t, const int vectors)                 \
    {                                                                                                                  \
        enum { SIX = 6 };                                                                                              \
        const int count = vectors == 2 ? SIX : 2 * SIX;                                                                \
        const size_t pixel = t->pixel, out_pixel = t->out_ld * mp_type_bytes(t->output->out_type);                     \
        const SUM first = TILE_LOAD_##SUM(t->init), second = vectors == 2 ? TILE_LOAD_##SUM(t->init + VL * 4) : first; \
        for (int at = 0; at < t->pixels; at += count) {                                                                \
            if (at + count > t->pixels) at = t->pixels - count;                                                        \
            const char *b = t->b;                                                                                      \
            TILE_ROWS(POINTS_DECLARE_##SUM)                                                                            \
            for (int s = 0; s < t->segments; s++) {                                                                    \
                const char *near = t->a + t->seg[s] + at * pixel, *far = near + 3 * pixel;                             \
                for (int k = 0; k < t->steps; k++, b += POINTS_PANEL) {                                                \
                    const SUM w0 = TILE_LOAD_##SUM(b);                                                                 \
                    if (vectors == 2) {                                                                                \
                        const SUM w1 = TILE_LOAD_##SUM(b + VL * 4);                                                    \
                        TILE_ROWS(POINTS_TWO_##SUM)                                                                    \
                    } else {                                                                                           \
                        TILE_ROWS(POINTS_ONE_##SUM)                                                                    \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            tile_results results = {t->output, t->channel, t->out + at * out_pixel, t->out_ld};                        \
            finish_##SUM(TILE_ROWS(FINISH_ARGUMENTS) vectors > 1 ? 2 : 1, vectors ? VL : VL / 2, &results);            \
            if (vectors == 2) continue;                                                                                \
            results.out += SIX * out_pixel;                                                                            \
            finish_##SUM(TILE_ROWS(POINTS_SECOND) 1, vectors ? VL : VL / 2, &results);                                 \
        }                                                                                                              \
    }                                                                                                                  \
    static int NAME(const mp_points *t)                                                                                \
    {                                                                                                                  \
        if (!finishes_vectors(t->output) || t->pixels < MP_LEAST_POINTS) return 0;                                     \
        if (t->channels == 2 * VL)                                                                                     \
            NAME##_of(t, 2);                                                                                           \
        else if (t->channels == VL)                                                                                    \
            NAME##_of(t, 1);                                                                                           \
        else if (POINTS_HALF_VECTOR_##SUM && t->channels == VL / 2)                                                    \
            NAME##_of(t, 0);                                                                                           \
        else                                                                                                           \
            return 0;                                                                                                  \
        return 1;                                                                                                      \
    }
#define POINTS_HALF_VECTOR_vf 1
#define POINTS_HALF_VECTOR_vi 0
POINTS(points_f32, vf)
POINTS(points_s16, vi)
