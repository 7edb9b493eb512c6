/* Register tiles, MR pixels x 2 VL channels. The including file defines TILE_ROWS(M) = M(0) M(1) ... M(MR - 1), and
 * TILE_CASES(F, ...) which calls F(R, ...) with the number of rows as a constant, and MP_MR.
 * Accumulators are named, not an array: gcc spills arrays.
 * A level may bring the loop of its full tiles in assembly: TILE_LOOP_F32, TILE_LOOP_I8 set the sums, and then `summed`.
 * A tile either stores its sums, or (NAME##_out: full tiles only) goes through the output stage while in registers. */

/* Where a finished tile goes. */
typedef struct {
    mp_output *o;
    char *out;
    size_t out_ld;
    const float *scale, *bias;
} tile_target;

#define TILE(NAME, ELEMENT, SUM, KSTEP, B_STEP, LOOP)                                                                  \
    static inline __attribute__((always_inline)) void NAME##_rows(                                                     \
        const int R, const int finish, const int activation, const int out_type, const char *const *a,                 \
        const ptrdiff_t *seg, int segments, int run, const ELEMENT *b, const void *init, char *acc, const char *ahead, \
        ptrdiff_t ahead_step, const tile_target *target)                                                               \
    {                                                                                                                  \
        TILE_ROWS(TILE_DECLARE_##SUM)                                                                                  \
        const size_t ld = 2 * VL * 4;                                                                                  \
        int summed = 0;                                                                                                \
        if (R == MP_MR) {                                                                                              \
            LOOP                                                                                                       \
        }                                                                                                              \
        if (!summed && init) {                                                                                         \
            const SUM i0 = TILE_LOAD_##SUM(init), i1 = TILE_LOAD_##SUM((const char *)init + VL * 4);                   \
            TILE_ROWS(TILE_INIT)                                                                                       \
        } else if (!summed) {                                                                                          \
            TILE_ROWS(TILE_RESUME_##SUM)                                                                               \
        }                                                                                                              \
        for (int s = 0; s < segments && !summed; s++) {                                                                \
            const ptrdiff_t at = seg[s];                                                                               \
            TILE_ROWS(TILE_POINT_##SUM)                                                                                \
            for (ptrdiff_t k = 0; k < run; k += KSTEP) {                                                               \
                const SUM b0 = TILE_LOAD_##SUM(b), b1 = TILE_LOAD_##SUM(b + B_STEP / 2);                               \
                b += B_STEP;                                                                                           \
                __builtin_prefetch(ahead, 0, 2);                                                                       \
                ahead += ahead_step;                                                                                   \
                TILE_ROWS(TILE_MAC_##NAME)                                                                             \
            }                                                                                                          \
        }                                                                                                              \
        if (!finish) {                                                                                                 \
            TILE_ROWS(TILE_STORE_##SUM)                                                                                \
            return;                                                                                                    \
        }                                                                                                              \
        mp_output *o = target->o;                                                                                      \
        const out_scale q = out_scale_of(o);                                                                           \
        vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum), bad = vf_load(o->bad);                        \
        char *to = target->out;                                                                                        \
        TILE_ROWS(TILE_FINISH_##SUM)                                                                                   \
        vf_store(o->minimum, minimum);                                                                                 \
        vf_store(o->maximum, maximum);                                                                                 \
        vf_store(o->bad, bad);                                                                                         \
    }                                                                                                                  \
    static void NAME(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b,                 \
                     const void *init, void *acc, int rows, const char *ahead, ptrdiff_t ahead_step)                   \
    {                                                                                                                  \
        TILE_CASES(NAME##_rows, 0, 0, 0, a, seg, segments, run, b, init, acc, ahead, ahead_step, 0)                    \
    }

/* The output stage's variants of a tile: one each for the usual activations and stored types. */
#define TILE_OUT(NAME)                                                                                                 \
    static void NAME##_out(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b,           \
                           const void *init, void *acc, const char *ahead, ptrdiff_t ahead_step, mp_output *o,         \
                           int channel, void *out, size_t out_ld)                                                      \
    {                                                                                                                  \
        const tile_target target = {o, out, out_ld, o->scale + channel, o->bias + channel};                            \
        BY_OUT_TYPE(TILE_OUT_ACTIVATIONS, NAME##_rows);                                                                \
    }
#define TILE_OUT_CASE(F, ACTIVATION, TYPE)                                                                             \
    F(MP_MR, 1, ACTIVATION, TYPE, a, seg, segments, run, b, init, acc, ahead, ahead_step, &target)
#define TILE_OUT_ACTIVATIONS(TYPE, F)                                                                                  \
    do {                                                                                                               \
        if (o->activation == MP_LEAKY)                                                                                 \
            TILE_OUT_CASE(F, MP_LEAKY, TYPE);                                                                          \
        else if (o->activation == MP_LINEAR)                                                                           \
            TILE_OUT_CASE(F, MP_LINEAR, TYPE);                                                                         \
        else                                                                                                           \
            TILE_OUT_CASE(F, o->activation, TYPE);                                                                     \
    } while (0)
#define TILE_FINISH(x, AT)                                                                                             \
    {                                                                                                                  \
        vf y_ = x;                                                                                                     \
        bad = note_bad(bad, y_);                                                                                       \
        y_ = vf_activate(y_, activation);                                                                              \
        minimum = vf_min_any(y_, minimum);                                                                             \
        maximum = vf_max_any(y_, maximum);                                                                             \
        bad = store_finished(&q, o->rounding, to, AT, out_type, y_, VL, bad);                                          \
    }
#define TILE_FINISH_vf(i)                                                                                              \
    if (R > i) {                                                                                                       \
        TILE_FINISH(c##i##0, i * target->out_ld)                                                                       \
        TILE_FINISH(c##i##1, i * target->out_ld + VL)                                                                  \
    }
#define TILE_FINISH_vi(i)                                                                                              \
    if (R > i) {                                                                                                       \
        TILE_FINISH(vf_fma(vi_to_float(c##i##0), vf_load(target->scale), vf_load(target->bias)), i * target->out_ld)   \
        TILE_FINISH(vf_fma(vi_to_float(c##i##1), vf_load(target->scale + VL), vf_load(target->bias + VL)),             \
                    i * target->out_ld + VL)                                                                           \
    }

#define TILE_DECLARE_vf(i) vf c##i##0 = vf_set1(0.0f), c##i##1 = c##i##0;
#define TILE_INIT(i)                                                                                                   \
    if (R > i)                                                                                                         \
        c##i##0 = i0, c##i##1 = i1;
#define TILE_RESUME_vf(i)                                                                                              \
    if (R > i)                                                                                                         \
        c##i##0 = vf_load((const float *)(acc + i * ld)), c##i##1 = vf_load((const float *)(acc + i * ld) + VL);
#define TILE_POINT_vf(i) const float *p##i = (const float *)(a[i] + at);
#define TILE_STORE_vf(i)                                                                                               \
    if (R > i)                                                                                                         \
        vf_store((float *)(acc + i * ld), c##i##0), vf_store((float *)(acc + i * ld) + VL, c##i##1);
#define TILE_MAC_tile_f32(i)                                                                                           \
    if (R > i) {                                                                                                       \
        const vf x = vf_set1(p##i[k]);                                                                                 \
        c##i##0 = vf_fma(x, b0, c##i##0);                                                                              \
        c##i##1 = vf_fma(x, b1, c##i##1);                                                                              \
    }
#define TILE_MAC_tile_half(i)                                                                                          \
    if (R > i) {                                                                                                       \
        const vf x = vf_set1(p##i[k]);                                                                                 \
        c##i##0 = vf_fma_half(x, b0, c##i##0);                                                                         \
        c##i##1 = vf_fma_half(x, b1, c##i##1);                                                                         \
    }
#define TILE_LOAD_vf(p) vf_load((const float *)(p))
#define TILE_LOAD_vi(p) vi_load(p)
#ifndef TILE_LOOP_F32
#define TILE_LOOP_F32
#endif
#ifndef TILE_LOOP_I8
#define TILE_LOOP_I8
#endif
TILE(tile_f32, float, vf, 1, (2 * VL), TILE_LOOP_F32)
TILE_OUT(tile_f32)
TILE(tile_half, float, vf, 1, (2 * VL), )

#define TILE_DECLARE_vi(i) vi c##i##0 = vi_set1(0), c##i##1 = c##i##0;
#define TILE_RESUME_vi(i)                                                                                              \
    if (R > i)                                                                                                         \
        c##i##0 = vi_load(acc + i * ld), c##i##1 = vi_load(acc + i * ld + VL * 4);
#define TILE_POINT_vi(i) const char *p##i = a[i] + at;
#define TILE_STORE_vi(i)                                                                                               \
    if (R > i)                                                                                                         \
        vi_store(acc + i * ld, c##i##0), vi_store(acc + i * ld + VL * 4, c##i##1);
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
        c##i##1 = vi_dot16(c##i##1, x, b1);                                                                            \
    }
#ifndef MP_HAS_DOT8
TILE(tile_s16, int16_t, vi, 2, (4 * VL), TILE_LOOP_I8)
TILE_OUT(tile_s16)
#else
#define TILE_MAC_tile_u8(i)                                                                                            \
    if (R > i) {                                                                                                       \
        const vi x = vi_set1(load_group(p##i + k));                                                                    \
        c##i##0 = vi_dot8(c##i##0, x, b0);                                                                             \
        c##i##1 = vi_dot8(c##i##1, x, b1);                                                                             \
    }
TILE(tile_u8, int8_t, vi, 4, (8 * VL), TILE_LOOP_I8)
TILE_OUT(tile_u8)
#endif
