/* Winograd F(4x4, 3x3): the transforms of input and output tiles, written once with vector types of the compiler (no
 * intrinsics). Points 0, 1, -1, 2, -2, infinity; docs/arithmetic.md, section 2, gives the order of operations.
 *
 * int8 uses whole numbers throughout: weights are transformed without the denominators 4, -6, -6, 24, 24, 1, and the
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

/* m: 36 positions, position_bytes apart, nr sums each -> y[4][4][nr], rows y_row elements apart: a 4x4 tile of sums, started
 * from init. */
#define WINOGRAD_OUTPUT(NAME, TYPE, LINE, FINISH)                                                                      \
    static inline void NAME(const char *m, size_t position_bytes, const void *init, void *y, size_t y_row, int nr)     \
    {                                                                                                                  \
        for (int c = 0; c < nr; c += VL) {                                                                             \
            TYPE t[4][6];                                                                                              \
            for (int x = 0; x < 6; x++) {                                                                              \
                TYPE d[6];                                                                                             \
                for (int i = 0; i < 6; i++)                                                                            \
                    memcpy(&d[i], m + (size_t)(i * 6 + x) * position_bytes + (size_t)c * 4, sizeof d[i]);              \
                LINE(d[0], d[1], d[2], d[3], d[4], d[5], t[0][x], t[1][x], t[2][x], t[3][x]);                          \
            }                                                                                                          \
            TYPE first;                                                                                                \
            memcpy(&first, (const char *)init + (size_t)c * 4, sizeof first);                                          \
            for (int i = 0; i < 4; i++) {                                                                              \
                TYPE r[4];                                                                                             \
                LINE(t[i][0], t[i][1], t[i][2], t[i][3], t[i][4], t[i][5], r[0], r[1], r[2], r[3]);                    \
                for (int x = 0; x < 4; x++) {                                                                          \
                    const TYPE sum = FINISH(r[x], i, x) + first;                                                       \
                    memcpy((char *)y + (i * y_row + (size_t)x * nr + c) * 4, &sum, sizeof sum);                        \
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

#define WINOGRAD_WEIGHT_LINE(W0, W1, W2, U0, U1, U2, U3, U4, U5)                                                       \
    do {                                                                                                               \
        const wv_s16 w0_ = W0, w1_ = W1, w2_ = W2, s_ = w0_ + w2_, q_ = w0_ + w2_ * 4;                                 \
        U0 = w0_;                                                                                                      \
        U1 = s_ + w1_;                                                                                                 \
        U2 = s_ - w1_;                                                                                                 \
        U3 = q_ + w1_ * 2;                                                                                             \
        U4 = q_ - w1_ * 2;                                                                                             \
        U5 = w2_;                                                                                                      \
    } while (0)

static void winograd_weights(const int16_t *taps, int steps, int width, int16_t *out, size_t position_elements)
{
    enum { LANES = sizeof(wv_s16) / sizeof(int16_t) };
    for (int step = 0; step < steps; step++, taps += 9 * width, out += width)
        for (int at = 0; at < width; at += LANES) {
            wv_s16 t[6][3];
            for (int x = 0; x < 3; x++) {
                wv_s16 w[3];
                for (int y = 0; y < 3; y++) memcpy(&w[y], taps + (y * 3 + x) * width + at, sizeof w[y]);
                WINOGRAD_WEIGHT_LINE(w[0], w[1], w[2], t[0][x], t[1][x], t[2][x], t[3][x], t[4][x], t[5][x]);
            }
            int16_t *to = out + at;
            for (int y = 0; y < 6; y++) {
                wv_s16 u[6];
                WINOGRAD_WEIGHT_LINE(t[y][0], t[y][1], t[y][2], u[0], u[1], u[2], u[3], u[4], u[5]);
                for (int x = 0; x < 6; x++, to += position_elements) memcpy(to, &u[x], sizeof u[x]);
            }
        }
}
