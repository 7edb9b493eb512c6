/* SPDX-License-Identifier: MIT */
/* int8 tile with SDOT: 8 pixels x 8 channels, four depth positions an instruction, 16 an iteration. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"
#include "arm_stage_s8.h"

#define DOT_ASM_MAC(c0, c1, b0, b1, x, lane)                                                                           \
    "sdot v" #c0 ".4s, v" #b0 ".16b, v" #x ".4b[" #lane "]\n"                                                          \
    "sdot v" #c1 ".4s, v" #b1 ".16b, v" #x ".4b[" #lane "]\n"
TILE_8X2(tile_dot, ASM_START_4S, ASM_FOUR_STEPS, DOT_ASM_MAC, ASM_LANE4, 4, 4, 32, ASM_END_4S)

/* Four bytes in every lane; staged pixels start at any address. */
static inline int8x16_t dot_four(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

#define DOT_DECLARE(i) int32x4_t c##i##0 = vdupq_n_s32(0), c##i##1 = c##i##0;
#define DOT_INIT(i)                                                                                                    \
    if (R > i)                                                                                                         \
        c##i##0 = i0, c##i##1 = i1;
#define DOT_RESUME(i)                                                                                                  \
    if (R > i)                                                                                                         \
        c##i##0 = vld1q_s32((int32_t *)acc + 8 * i), c##i##1 = vld1q_s32((int32_t *)acc + 8 * i + 4);
#define DOT_STORE(i)                                                                                                   \
    if (R > i)                                                                                                         \
        vst1q_s32((int32_t *)acc + 8 * i, c##i##0), vst1q_s32((int32_t *)acc + 8 * i + 4, c##i##1);
#define DOT_POINT(i) const int8_t *p##i = (const int8_t *)(a[R > i ? i : 0] + at);
#define DOT_LOAD16(i) const int8x16_t x##i = R > i ? vld1q_s8(p##i + k) : vdupq_n_s8(0);
#define DOT_LOAD4(i)                                                                                                   \
    const int8x16_t x##i = R > i ? dot_four(p##i + k) : vdupq_n_s8(0);
#define DOT_MAC(i, LANE)                                                                                               \
    if (R > i) {                                                                                                       \
        c##i##0 = vdotq_laneq_s32(c##i##0, b0, x##i, LANE);                                                            \
        c##i##1 = vdotq_laneq_s32(c##i##1, b1, x##i, LANE);                                                            \
    }
#define DOT_MAC0(i) DOT_MAC(i, 0)
#define DOT_MAC1(i) DOT_MAC(i, 1)
#define DOT_MAC2(i) DOT_MAC(i, 2)
#define DOT_MAC3(i) DOT_MAC(i, 3)
#define DOT_STEP(MAC, AT)                                                                                              \
    {                                                                                                                  \
        const int8x16_t b0 = vld1q_s8(w + AT), b1 = vld1q_s8(w + AT + 16);                                             \
        ROWS8(MAC)                                                                                                     \
    }

static inline __attribute__((always_inline)) void tile_dot_rows(const int R, TILE_ARGUMENTS)
{
    const int8_t *w = b;
    ROWS8(DOT_DECLARE)
    if (init) {
        const int32x4_t i0 = vld1q_s32(init), i1 = vld1q_s32((const int32_t *)init + 4);
        ROWS8(DOT_INIT)
    } else {
        ROWS8(DOT_RESUME)
    }
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        ROWS8(DOT_POINT)
        ptrdiff_t k = 0;
        for (; k + 16 <= run; k += 16, w += 128) {
            ROWS8(DOT_LOAD16)
            DOT_STEP(DOT_MAC0, 0)
            DOT_STEP(DOT_MAC1, 32)
            DOT_STEP(DOT_MAC2, 64)
            DOT_STEP(DOT_MAC3, 96)
        }
        for (; k < run; k += 4, w += 32) {
            ROWS8(DOT_LOAD4)
            DOT_STEP(DOT_MAC0, 0)
        }
    }
    ROWS8(DOT_STORE)
}
TILE_ENTRY(tile_dot, CASES7)

static inline uint32x4_t dot_window_step(const int8_t *b, int row, int k, int first)
{
    return vreinterpretq_u32_s8(vld1q_s8(b + ((row * 3 + k) * 8 + first) * 4));
}
#include "arm_neon_window_dot.h"

static const mp_micro micro_i8 = {ARM_DOT_TILE,
                                  .needs_stage = 1, .stage = stage_s8, .tile = tile_dot, .windows = windows_i8};
#define MP_OWN_I8
