/* SPDX-License-Identifier: MIT */
/* int16 tile of ARMv8.0, for Winograd in integers and for int16 where its sums fit: 8 pixels x 8 channels, eight depth positions of a row
 * loaded at once. SMLAL makes four products of int16 in the time in which SMULL or SMLAL2 makes eight of bytes, of which Winograd needs a
 * quarter, and int16 half as many as its two bytes do. Weights lie in pairs of positions, [channel][2]; UZP1 and UZP2 take them apart. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"

#define S16_ASM_MAC(c0, c1, b0, b1, x, lane)                                                                           \
    "smlal v" #c0 ".4s, v" #b0 ".4h, v" #x ".h[" #lane "]\n"                                                           \
    "smlal2 v" #c1 ".4s, v" #b0 ".8h, v" #x ".h[" #lane "]\n"
#define S16_ASM_PAIR(b0, b1, t0, t1)                                                                                   \
    "uzp1 v" #b0 ".8h, v" #t0 ".8h, v" #t1 ".8h\n"                                                                     \
    "uzp2 v" #b1 ".8h, v" #t0 ".8h, v" #t1 ".8h\n"
#define S16_ASM_STEPS(MAC)                                                                                             \
    "ldp q12, q13, [%[b]], #32\n"                                                                                      \
    "ldr q0, [x9], #16\n"                                                                                              \
    "ldr q1, [x10], #16\n"                                                                                             \
    "ldr q2, [x11], #16\n" S16_ASM_PAIR(8, 9, 12, 13)                                                                  \
    MAC(16, 17, 8, 8, 0, 0)                                                                                            \
    "ldr q3, [x12], #16\n"                                                                                             \
    MAC(18, 19, 8, 8, 1, 0)                                                                                            \
    "ldr q4, [x13], #16\n"                                                                                             \
    MAC(20, 21, 8, 8, 2, 0)                                                                                            \
    "ldr q5, [x14], #16\n"                                                                                             \
    MAC(22, 23, 8, 8, 3, 0)                                                                                            \
    "ldr q6, [x15], #16\n"                                                                                             \
    MAC(24, 25, 8, 8, 4, 0)                                                                                            \
    "ldr q7, [x16], #16\n"                                                                                             \
    MAC(26, 27, 8, 8, 5, 0)                                                                                            \
    "ldp q14, q15, [%[b]], #32\n"                                                                                      \
    MAC(28, 29, 8, 8, 6, 0)                                                                                            \
    MAC(30, 31, 8, 8, 7, 0)                                                                                            \
    ASM_STEP(MAC, 9, 9, 1)                                                                                             \
    "ldp q12, q13, [%[b]], #32\n" S16_ASM_PAIR(10, 11, 14, 15)                                                         \
    ASM_STEP(MAC, 10, 10, 2)                                                                                           \
    ASM_STEP(MAC, 11, 11, 3)                                                                                           \
    "ldp q14, q15, [%[b]], #32\n" S16_ASM_PAIR(8, 9, 12, 13)                                                           \
    ASM_STEP(MAC, 8, 8, 4)                                                                                             \
    ASM_STEP(MAC, 9, 9, 5) S16_ASM_PAIR(10, 11, 14, 15)                                                                \
    ASM_STEP(MAC, 10, 10, 6)                                                                                           \
    ASM_STEP(MAC, 11, 11, 7)
TILE_8X2(tile_s16, ASM_START_4S, S16_ASM_STEPS, S16_ASM_MAC, ASM_LANE2, 8, 1, 32, ASM_END_4S)

#define S16_DECLARE(i) int32x4_t c##i##0 = vdupq_n_s32(0), c##i##1 = c##i##0;
#define S16_BEGIN(i)                                                                                                   \
    if (R > i)                                                                                                         \
        c##i##0 = vld1q_s32(from + (init ? 0 : 8 * i)), c##i##1 = vld1q_s32(from + (init ? 0 : 8 * i) + 4);
#define S16_POINT(i) const int16_t *p##i = (const int16_t *)(a[R > i ? i : 0] + at);
#define S16_LOAD(i) const int16x8_t x##i = R > i ? vld1q_s16(p##i + k) : vdupq_n_s16(0);
#define S16_MAC(i, W, LANE)                                                                                            \
    if (R > i) {                                                                                                       \
        c##i##0 = vmlal_laneq_s16(c##i##0, vget_low_s16(W), x##i, LANE);                                               \
        c##i##1 = vmlal_high_laneq_s16(c##i##1, W, x##i, LANE);                                                        \
    }
#define S16_MAC0(i) S16_MAC(i, y.val[0], 0)
#define S16_MAC1(i) S16_MAC(i, y.val[1], 1)
#define S16_MAC2(i) S16_MAC(i, y.val[0], 2)
#define S16_MAC3(i) S16_MAC(i, y.val[1], 3)
#define S16_MAC4(i) S16_MAC(i, y.val[0], 4)
#define S16_MAC5(i) S16_MAC(i, y.val[1], 5)
#define S16_MAC6(i) S16_MAC(i, y.val[0], 6)
#define S16_MAC7(i) S16_MAC(i, y.val[1], 7)
#define S16_TWO(EVEN, ODD, AT)                                                                                         \
    {                                                                                                                  \
        const int16x8x2_t y = vld2q_s16(w + AT);                                                                       \
        ROWS8(EVEN)                                                                                                    \
        ROWS8(ODD)                                                                                                     \
    }
#define S16_STORE(i)                                                                                                   \
    if (R > i)                                                                                                         \
        vst1q_s32((int32_t *)acc + 8 * i, c##i##0), vst1q_s32((int32_t *)acc + 8 * i + 4, c##i##1);

static inline __attribute__((always_inline)) void tile_s16_rows(const int R, TILE_ARGUMENTS)
{
    const int16_t *w = b;
    const int32_t *from = init ? init : acc;
    ROWS8(S16_DECLARE)
    ROWS8(S16_BEGIN)
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        ROWS8(S16_POINT)
        for (ptrdiff_t k = 0; k < run; k += 8, w += 64) {
            ROWS8(S16_LOAD)
            S16_TWO(S16_MAC0, S16_MAC1, 0)
            S16_TWO(S16_MAC2, S16_MAC3, 16)
            S16_TWO(S16_MAC4, S16_MAC5, 32)
            S16_TWO(S16_MAC6, S16_MAC7, 48)
        }
    }
    ROWS8(S16_STORE)
}
TILE_ENTRY(tile_s16, CASES7)

static const mp_micro micro_s16 = {ARM_S16_TILE, .needs_stage = 1, .subtracts_zero = 1, .stage = stage_s16, .tile = tile_s16};
static const mp_micro micro_i16 = {ARM_S16_TILE, .subtracts_zero = 1, .stage = stage_i16, .tile = tile_s16};
#define MP_OWN_S16
#define MP_INT16_TILES &micro_i16
#define MP_INT8_WINOGRAD ARM_S16_WINOGRAD
