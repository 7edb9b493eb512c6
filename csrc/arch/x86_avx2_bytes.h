/* SPDX-License-Identifier: MIT */
/* Tiles for weights of so few bits that sums of products of bytes are exact: vpmaddubsw adds two products, q + 128 by a weight, in
 * an int16, and a few steps' are added there before they are widened: 2 * 255 * 31 twice for int6, 2 * 255 * 15 four times for int5.
 * Twice the products of vpmaddwd an instruction, but for the widening. What widens multiplies: by 1, or by groups' multipliers, which
 * lie behind the codes.
 *
 * A row's steps are assembly, since 12 sums, the ones that widen and three of its own are all 16 registers: an activation is spread
 * once more for the second vector of weights rather than kept, and weights come from memory. Compilers keep either and spill. */
#ifndef MP_X86_AVX2_BYTES_H
#define MP_X86_AVX2_BYTES_H

enum { BYTES_KSTEP = 4, BYTES_B = 2 * VL * BYTES_KSTEP /* bytes of weights of a step */ };

#define BYTES_FIRST "vpbroadcastd %[x0], %[t]\n vpmaddubsw %[b0], %[t], %[s0]\n vpmaddubsw %[c0], %[t], %[s1]\n"
#define BYTES_NEXT(I)                                                                                                  \
    "vpbroadcastd %[x" #I "], %[t]\n vpmaddubsw %[b" #I "], %[t], %[t]\n vpaddw %[t], %[s0], %[s0]\n"                  \
    "vpbroadcastd %[x" #I "], %[t]\n vpmaddubsw %[c" #I "], %[t], %[t]\n vpaddw %[t], %[s1], %[s1]\n"
#define BYTES_WIDEN                                                                                                    \
    "vpmaddwd %[m0], %[s0], %[s0]\n vpmaddwd %[m1], %[s1], %[s1]\n"                                                    \
    "vpaddd %[s0], %[sum0], %[sum0]\n vpaddd %[s1], %[sum1], %[sum1]\n"
/* Operands of step I of a row. */
#define BYTES_OPERANDS(I, P)                                                                                           \
    [x##I] "m"(*(const char(*)[4])((P) + k + I * BYTES_KSTEP)), [b##I] "m"(*(const char(*)[32])(b + I * BYTES_B)),     \
        [c##I] "m"(*(const char(*)[32])(b + I * BYTES_B + 32))
#define BYTES_ASM(i, STEPS, ...)                                                                                       \
    __asm__(BYTES_FIRST STEPS BYTES_WIDEN                                                                              \
            : [sum0] "+x"(c##i##0), [sum1] "+x"(c##i##1), [s0] "=&x"(s0), [s1] "=&x"(s1), [t] "=&x"(t)                 \
            : __VA_ARGS__)
#define BYTES_ROW(i, STEPS, ...)                                                                                       \
    if (R > i) {                                                                                                       \
        vi s0, s1, t;                                                                                                  \
        if (grouped)                                                                                                   \
            BYTES_ASM(i, STEPS, [m0] "m"(*(const char(*)[32])m), [m1] "m"(*(const char(*)[32])(m + 32)), __VA_ARGS__); \
        else                                                                                                           \
            BYTES_ASM(i, STEPS, [m0] "x"(ones), [m1] "x"(ones), __VA_ARGS__);                                          \
    }
#define BYTES_ROW_2(i) BYTES_ROW(i, BYTES_NEXT(1), BYTES_OPERANDS(0, p##i), BYTES_OPERANDS(1, p##i))
#define BYTES_ROW_4(i)                                                                                                 \
    BYTES_ROW(i, BYTES_NEXT(1) BYTES_NEXT(2) BYTES_NEXT(3), BYTES_OPERANDS(0, p##i), BYTES_OPERANDS(1, p##i),          \
              BYTES_OPERANDS(2, p##i), BYTES_OPERANDS(3, p##i))

#define BYTES_STEPS(N)                                                                                                 \
    for (ptrdiff_t k = 0; k < run; k += N * BYTES_KSTEP, b += N * BYTES_B, m += 2 * VL * 4) {                          \
        TILE_ROWS(BYTES_ROW_##N)                                                                                       \
        __builtin_prefetch(ahead, 0, 2);                                                                               \
        ahead += ahead_step;                                                                                           \
    }
/* A tile of kernels/tile.h, which adds N steps in int16. */
#define BYTES_TILE(N)                                                                                                  \
    static inline                                                                                                      \
        __attribute__((always_inline)) void tile_bytes_##N##_rows(const int R, const int grouped, TILE_OPERANDS(char)) \
    {                                                                                                                  \
        TILE_ROWS(TILE_DECLARE_vi)                                                                                     \
        const size_t ld = 2 * VL * 4;                                                                                  \
        const int C = 2;                                                                                               \
        const char *m = b + (ptrdiff_t)segments * run * 2 * VL;                                                        \
        const vi ones = _mm256_set1_epi16(1);                                                                          \
        if (init) {                                                                                                    \
            const vi i0 = vi_load(init), i1 = vi_load((const char *)init + VL * 4);                                    \
            TILE_ROWS(TILE_INIT)                                                                                       \
        } else {                                                                                                       \
            TILE_ROWS(TILE_RESUME_vi)                                                                                  \
        }                                                                                                              \
        for (int s = 0; s < segments; s++) {                                                                           \
            const ptrdiff_t at = seg[s];                                                                               \
            TILE_ROWS(TILE_POINT_vi)                                                                                   \
            BYTES_STEPS(N)                                                                                             \
        }                                                                                                              \
        TILE_ROWS(TILE_STORE_vi)                                                                                       \
    }                                                                                                                  \
    BYTES_TILE_AS(tile_bytes_##N, tile_bytes_##N##_rows, 0)                                                            \
    BYTES_TILE_AS(tile_bytes_groups_##N, tile_bytes_##N##_rows, 1)
#define BYTES_TILE_AS(NAME, ROWS, GROUPED)                                                                             \
    static void NAME(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b,                 \
                     const void *init, void *acc, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)     \
    {                                                                                                                  \
        (void)channels;                                                                                                \
        TILE_CASES(ROWS, GROUPED, a, seg, segments, run, b, init, acc, ahead, ahead_step)                              \
    }
BYTES_TILE(2)
BYTES_TILE(4)

/* clang-format off */
#define BYTES_MICRO(STEPS, ...) {.mr = MP_MR, .nr = 2 * VL, .kstep = BYTES_KSTEP, .steps = STEPS, .a_bytes = 1, \
                                 .weight_type = MP_W_I8, .needs_stage = 1, .bias_q = 128, .stage = stage_u8, __VA_ARGS__}
static const mp_micro micro_groups_2 = BYTES_MICRO(2, .tile = tile_bytes_groups_2, .multiplies_groups = 1),
                      micro_groups_4 = BYTES_MICRO(4, .tile = tile_bytes_groups_4, .multiplies_groups = 1),
                      micro_bytes_2 = BYTES_MICRO(2, .tile = tile_bytes_2, .grouped = &micro_groups_2),
                      micro_bytes_4 = BYTES_MICRO(4, .tile = tile_bytes_4, .grouped = &micro_groups_4);
#define MP_NARROW_TILES [MP_INT3] = &micro_bytes_4, [MP_INT4] = &micro_bytes_4, [MP_INT5] = &micro_bytes_4, [MP_INT6] = &micro_bytes_2
/* clang-format on */
#endif
