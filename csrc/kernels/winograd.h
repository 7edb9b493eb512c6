/* SPDX-License-Identifier: MIT */
/* Winograd F(4x4, 3x3): the transforms of input and output tiles, written once with vector types of the compiler (no
 * intrinsics). Points 0, 1, -1, 2, -2, infinity; docs/arithmetic.md, section 2, gives the order of operations.
 *
 * int8 uses integers throughout: weights are transformed without the denominators 4, -6, -6, 24, 24, 1, and the
 * output transform multiplies by what is left of 24 and finally divides by 576, 288, ... exactly. Sums may wrap modulo
 * 2^32 in between; the packing made sure that 64 times the true result fits, so dividing brings it back. */

typedef float wv_f32 __attribute__((vector_size(4 * VL)));
typedef int16_t wv_s16 __attribute__((vector_size(4 * VL)));
typedef uint32_t wv_u32 __attribute__((vector_size(4 * VL)));
typedef int32_t wv_s32 __attribute__((vector_size(4 * VL)));

/* One line of six inputs -> six transformed ones. */
#define WINOGRAD_INPUT_LINE(TYPE, D0, D1, D2, D3, D4, D5, V0, V1, V2, V3, V4, V5)                                      \
    do {                                                                                                               \
        const TYPE d0_ = D0, d1_ = D1, d2_ = D2, d3_ = D3, d4_ = D4, d5_ = D5;                                         \
        const TYPE a_ = d4_ - d2_ * 4, b_ = d3_ - d1_ * 4, c_ = d4_ - d2_, e_ = (d3_ - d1_) * 2;                       \
        V0 = (d0_ * 4 - d2_ * 5) + d4_;                                                                                \
        V1 = a_ + b_;                                                                                                  \
        V2 = a_ - b_;                                                                                                  \
        V3 = c_ + e_;                                                                                                  \
        V4 = c_ - e_;                                                                                                  \
        V5 = (d1_ * 4 - d3_ * 5) + d5_;                                                                                \
    } while (0)

#define WINOGRAD_INPUT(NAME, TYPE, ELEMENT)                                                                            \
    static inline void NAME(const char *pixel, size_t pixel_bytes, size_t row_bytes, int channels, char *v,            \
                            size_t position_bytes)                                                                     \
    {                                                                                                                  \
        enum { LANES = sizeof(TYPE) / sizeof(ELEMENT) };                                                               \
        for (int c = 0; c < channels; c += LANES) {                                                                    \
            TYPE t[6][6];                                                                                              \
            for (int x = 0; x < 6; x++) {                                                                              \
                TYPE d[6];                                                                                             \
                for (int y = 0; y < 6; y++)                                                                            \
                    memcpy(&d[y], pixel + y * row_bytes + x * pixel_bytes + c * sizeof(ELEMENT), sizeof d[y]);         \
                WINOGRAD_INPUT_LINE(TYPE, d[0], d[1], d[2], d[3], d[4], d[5], t[0][x], t[1][x], t[2][x], t[3][x],      \
                                    t[4][x], t[5][x]);                                                                 \
            }                                                                                                          \
            char *to = v + c * sizeof(ELEMENT);                                                                        \
            for (int y = 0; y < 6; y++) {                                                                              \
                TYPE r[6];                                                                                             \
                WINOGRAD_INPUT_LINE(TYPE, t[y][0], t[y][1], t[y][2], t[y][3], t[y][4], t[y][5], r[0], r[1], r[2],      \
                                    r[3], r[4], r[5]);                                                                 \
                for (int x = 0; x < 6; x++, to += position_bytes) memcpy(to, &r[x], sizeof r[x]);                      \
            }                                                                                                          \
        }                                                                                                              \
    }
WINOGRAD_INPUT(winograd_input_f32, wv_f32, float)
WINOGRAD_INPUT(winograd_input_s16, wv_s16, int16_t)

#define WINOGRAD_OUTPUT_F32(M0, M1, M2, M3, M4, M5, Y0, Y1, Y2, Y3)                                                    \
    do {                                                                                                               \
        const wv_f32 p_ = M1 + M2, q_ = M1 - M2, r_ = M3 + M4, s_ = M3 - M4;                                           \
        Y0 = (M0 + p_) + r_;                                                                                           \
        Y1 = q_ + s_ * 2;                                                                                              \
        Y2 = p_ + r_ * 4;                                                                                              \
        Y3 = (q_ + s_ * 8) + M5;                                                                                       \
    } while (0)
/* The same times 24, 12, 6, 6, over products that lack the denominators 4, -6, -6, 24, 24, 1. */
#define WINOGRAD_OUTPUT_U32(M0, M1, M2, M3, M4, M5, Y0, Y1, Y2, Y3)                                                    \
    do {                                                                                                               \
        const wv_u32 p_ = M1 + M2, q_ = M1 - M2, r_ = M3 + M4, s_ = M3 - M4;                                           \
        Y0 = ((M0 << 1) + (M0 << 2)) - (p_ << 2) + r_;                                                                 \
        Y1 = s_ - (q_ << 1);                                                                                           \
        Y2 = r_ - p_;                                                                                                  \
        Y3 = (s_ << 1) - q_ + ((M5 << 1) + (M5 << 2));                                                                 \
    } while (0)

/* As mp_winograd has it: m -> y, a 4x4 tile of sums, started from init. */
#define WINOGRAD_OUTPUT(NAME, TYPE, LINE, FINISH)                                                                      \
    static inline void NAME(const char *m, size_t position_bytes, const void *init, void *y, size_t y_row, int nr,     \
                            int windows)                                                                               \
    {                                                                                                                  \
        const size_t below = windows ? (size_t)2 * nr : y_row, right = (size_t)(windows ? 4 : 2) * nr;                 \
        for (int c = 0; c < nr; c += VL) {                                                                             \
            TYPE t[4][6];                                                                                              \
            _Pragma("GCC unroll 6") for (int x = 0; x < 6; x++)                                                        \
            {                                                                                                          \
                TYPE d[6];                                                                                             \
                _Pragma("GCC unroll 6") for (int i = 0; i < 6; i++)                                                    \
                    memcpy(&d[i], m + (size_t)(i * 6 + x) * position_bytes + (size_t)c * 4, sizeof d[i]);              \
                LINE(d[0], d[1], d[2], d[3], d[4], d[5], t[0][x], t[1][x], t[2][x], t[3][x]);                          \
            }                                                                                                          \
            TYPE first;                                                                                                \
            memcpy(&first, (const char *)init + (size_t)c * 4, sizeof first);                                          \
            _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)                                                        \
            {                                                                                                          \
                TYPE r[4];                                                                                             \
                LINE(t[i][0], t[i][1], t[i][2], t[i][3], t[i][4], t[i][5], r[0], r[1], r[2], r[3]);                    \
                _Pragma("GCC unroll 4") for (int x = 0; x < 4; x++)                                                    \
                {                                                                                                      \
                    const TYPE sum = FINISH(r[x], i, x) + first;                                                       \
                    const size_t at = i / 2 * 2 * y_row + i % 2 * below + x / 2 * right + (size_t)(x % 2) * nr;        \
                    memcpy((char *)y + (at + c) * 4, &sum, sizeof sum);                                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define WINOGRAD_AS_IT_IS(R, I, X) (R)
WINOGRAD_OUTPUT(winograd_output_f32, wv_f32, WINOGRAD_OUTPUT_F32, WINOGRAD_AS_IT_IS)
/* 24 = 8 * 3, 12 = 4 * 3, 6 = 2 * 3 in each direction: 9 goes by its inverse modulo 2^32, the powers of two by a shift. */
#define WINOGRAD_DIVIDE(R, I, X) ((wv_u32)((wv_s32)((R) * 0x38e38e39u) >> (winograd_shift[I] + winograd_shift[X])))
static const int winograd_shift[4] = {3, 2, 1, 1};
WINOGRAD_OUTPUT(winograd_output_s32, wv_u32, WINOGRAD_OUTPUT_U32, WINOGRAD_DIVIDE)

/* Products in halves: points 0, +-sqrt(1/2), +-sqrt(2), infinity. Transforms are in floats; what comes in is rounded to halves once. */
#define WINOGRAD_ROOT 0x1.6a09e6p0f
#define WINOGRAD_HALF_INPUT_LINE(D0, D1, D2, D3, D4, D5, V0, V1, V2, V3, V4, V5)                                       \
    do {                                                                                                               \
        const vf d0_ = D0, d1_ = D1, d2_ = D2, d3_ = D3, d4_ = D4, d5_ = D5;                                           \
        const vf a_ = vf_fma(vf_set1(-2), d2_, d4_), b_ = vf_fma(vf_set1(-2), d1_, d3_);                               \
        const vf c_ = vf_fma(vf_set1(-0.5f), d2_, d4_), e_ = vf_fma(vf_set1(-0.5f), d1_, d3_);                         \
        V0 = vf_add(vf_fma(vf_set1(-2.5f), d2_, d0_), d4_);                                                            \
        V1 = vf_fma(vf_set1(WINOGRAD_ROOT / 2), b_, a_);                                                               \
        V2 = vf_fma(vf_set1(-WINOGRAD_ROOT / 2), b_, a_);                                                              \
        V3 = vf_fma(vf_set1(WINOGRAD_ROOT), e_, c_);                                                                   \
        V4 = vf_fma(vf_set1(-WINOGRAD_ROOT), e_, c_);                                                                  \
        V5 = vf_add(vf_fma(vf_set1(-2.5f), d3_, d1_), d5_);                                                            \
    } while (0)
/* ELEMENT: what halves are held as. */
#define WINOGRAD_HALF_INPUT(NAME, ELEMENT, LOAD, STORE)                                                                \
    static inline void NAME(const char *pixel, size_t pixel_bytes, size_t row_bytes, int channels, char *v,            \
                            size_t position_bytes)                                                                     \
    {                                                                                                                  \
        for (int c = 0; c < channels; c += VL) {                                                                       \
            vf t[6][6];                                                                                                \
            for (int x = 0; x < 6; x++) {                                                                              \
                vf d[6];                                                                                               \
                _Pragma("GCC unroll 6") for (int y = 0; y < 6; y++) d[y] =                                             \
                    LOAD((const ELEMENT *)(pixel + y * row_bytes + x * pixel_bytes) + c);                              \
                WINOGRAD_HALF_INPUT_LINE(d[0], d[1], d[2], d[3], d[4], d[5], t[0][x], t[1][x], t[2][x], t[3][x],       \
                                         t[4][x], t[5][x]);                                                            \
            }                                                                                                          \
            char *to = v + c * sizeof(ELEMENT);                                                                        \
            for (int y = 0; y < 6; y++) {                                                                              \
                vf r[6];                                                                                               \
                WINOGRAD_HALF_INPUT_LINE(t[y][0], t[y][1], t[y][2], t[y][3], t[y][4], t[y][5], r[0], r[1], r[2], r[3], \
                                         r[4], r[5]);                                                                  \
                _Pragma("GCC unroll 6") for (int x = 0; x < 6; x++, to += position_bytes) STORE((ELEMENT *)to, r[x]);  \
            }                                                                                                          \
        }                                                                                                              \
    }
#define WINOGRAD_STORE_ROUNDED(P, X) vf_store(P, vf_round_half(X))
WINOGRAD_HALF_INPUT(winograd_input_half, float, vf_load, WINOGRAD_STORE_ROUNDED)
WINOGRAD_HALF_INPUT(winograd_input_f16, uint16_t, vf_load_half, vf_store_half)

#define WINOGRAD_OUTPUT_HALF(M0, M1, M2, M3, M4, M5, Y0, Y1, Y2, Y3)                                                   \
    do {                                                                                                               \
        const vf p_ = vf_add(M1, M2), q_ = vf_sub(M1, M2), r_ = vf_add(M3, M4), s_ = vf_sub(M3, M4);                   \
        Y0 = vf_add(vf_add(M0, p_), r_);                                                                               \
        Y1 = vf_fma(vf_set1(WINOGRAD_ROOT), s_, vf_mul(vf_set1(WINOGRAD_ROOT / 2), q_));                               \
        Y2 = vf_fma(vf_set1(2), r_, vf_mul(vf_set1(0.5f), p_));                                                        \
        Y3 = vf_fma(vf_set1(2 * WINOGRAD_ROOT), s_, vf_fma(vf_set1(WINOGRAD_ROOT / 4), q_, M5));                       \
    } while (0)
WINOGRAD_OUTPUT(winograd_output_half, vf, WINOGRAD_OUTPUT_HALF, WINOGRAD_AS_IT_IS)

/* Vectors of eight-bit weights as wide ones. */
static inline __attribute__((always_inline)) wv_s16 winograd_tap(const int8_t *taps)
{
#ifdef MP_LONG_VECTORS
    return (wv_s16)vi_widen_s8(taps);
#else
    wv_s16 w;
    for (int i = 0; i < 2 * VL; i++) w[i] = taps[i];
    return w;
#endif
}

/* A row of transformed weights from what a row of taps became, position by position. */
static inline __attribute__((always_inline)) void winograd_weights_row(wv_s16 w0, wv_s16 w1, wv_s16 w2, int16_t *to)
{
    const wv_s16 sum = w0 + w2, wide = w0 + w2 * 4, twice = w1 * 2;
    const wv_s16 u[6] = {w0, sum + w1, sum - w1, wide + twice, wide - twice, w2};
    _Pragma("GCC unroll 6") for (int x = 0; x < 6; x++) memcpy(to + x * mp_kernel_elements(), &u[x], sizeof u[x]);
}

/* Row by row, so that what is live at a time fits 16 registers; distances are constants, since 36 addresses do not. */
static void winograd_weights(const int8_t *taps, size_t tap_bytes, size_t count, int16_t *out)
{
    enum { LANES = sizeof(wv_s16) / sizeof(int16_t) };
    const size_t row = 6 * mp_kernel_elements();
    for (const int8_t *end = taps + count; taps < end; taps += LANES, out += LANES) {
        wv_s16 w[9];
        _Pragma("GCC unroll 9") for (int t = 0; t < 9; t++) w[t] = winograd_tap(taps + t * tap_bytes);
        winograd_weights_row(w[0], w[1], w[2], out);
        const wv_s16 s0 = w[0] + w[6], s1 = w[1] + w[7], s2 = w[2] + w[8];
        winograd_weights_row(s0 + w[3], s1 + w[4], s2 + w[5], out + row);
        winograd_weights_row(s0 - w[3], s1 - w[4], s2 - w[5], out + 2 * row);
        const wv_s16 q0 = w[0] + w[6] * 4, q1 = w[1] + w[7] * 4, q2 = w[2] + w[8] * 4;
        winograd_weights_row(q0 + w[3] * 2, q1 + w[4] * 2, q2 + w[5] * 2, out + 3 * row);
        winograd_weights_row(q0 - w[3] * 2, q1 - w[4] * 2, q2 - w[5] * 2, out + 4 * row);
        winograd_weights_row(w[6], w[7], w[8], out + 5 * row);
    }
}
