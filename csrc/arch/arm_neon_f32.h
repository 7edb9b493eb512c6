/* SPDX-License-Identifier: MIT */
/* fp32 tile on NEON: 8 pixels x 8 channels. Four depth positions of a row are loaded at once and multiplied by
 * element, so that each FMLA needs no broadcast: 64 FMLA for 8 loads of activations and 4 pairs of loads of weights. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"

#define F32_ASM_MAC(c0, c1, b0, b1, x, lane)                                                                           \
    "fmla v" #c0 ".4s, v" #b0 ".4s, v" #x ".s[" #lane "]\n"                                                            \
    "fmla v" #c1 ".4s, v" #b1 ".4s, v" #x ".s[" #lane "]\n"
TILE_8X2(tile_f32, ASM_START_4S, ASM_FOUR_STEPS, F32_ASM_MAC, ASM_LANE4, 4, 1, 32, ASM_END_4S)

#define F32_DECLARE(i) float32x4_t c##i##0 = vdupq_n_f32(0.0f), c##i##1 = c##i##0;
#define F32_INIT(i)                                                                                                    \
    if (R > i)                                                                                                         \
        c##i##0 = i0, c##i##1 = i1;
#define F32_RESUME(i)                                                                                                  \
    if (R > i)                                                                                                         \
        c##i##0 = vld1q_f32((float *)acc + 8 * i), c##i##1 = vld1q_f32((float *)acc + 8 * i + 4);
#define F32_STORE(i)                                                                                                   \
    if (R > i)                                                                                                         \
        vst1q_f32((float *)acc + 8 * i, c##i##0), vst1q_f32((float *)acc + 8 * i + 4, c##i##1);
#define F32_POINT(i) const float *p##i = (const float *)(a[R > i ? i : 0] + at);
#define F32_LOAD4(i) const float32x4_t x##i = R > i ? vld1q_f32(p##i + k) : vdupq_n_f32(0.0f);
#define F32_MAC(i, LANE)                                                                                               \
    if (R > i) {                                                                                                       \
        c##i##0 = vfmaq_laneq_f32(c##i##0, b0, x##i, LANE);                                                            \
        c##i##1 = vfmaq_laneq_f32(c##i##1, b1, x##i, LANE);                                                            \
    }
#define F32_MAC0(i) F32_MAC(i, 0)
#define F32_MAC1(i) F32_MAC(i, 1)
#define F32_MAC2(i) F32_MAC(i, 2)
#define F32_MAC3(i) F32_MAC(i, 3)
#define F32_STEP(MAC, AT)                                                                                              \
    {                                                                                                                  \
        const float32x4_t b0 = vld1q_f32(w + AT), b1 = vld1q_f32(w + AT + 4);                                          \
        ROWS8(MAC)                                                                                                     \
    }
#define F32_LOAD1(i) const float32x4_t x##i = R > i ? vld1q_dup_f32(p##i + k) : vdupq_n_f32(0.0f);

static inline __attribute__((always_inline)) void tile_f32_rows(const int R, TILE_ARGUMENTS)
{
    const float *w = b;
    ROWS8(F32_DECLARE)
    if (init) {
        const float32x4_t i0 = vld1q_f32(init), i1 = vld1q_f32((const float *)init + 4);
        ROWS8(F32_INIT)
    } else {
        ROWS8(F32_RESUME)
    }
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        ROWS8(F32_POINT)
        ptrdiff_t k = 0;
        for (; k + 4 <= run; k += 4, w += 32) {
            ROWS8(F32_LOAD4)
            F32_STEP(F32_MAC0, 0)
            F32_STEP(F32_MAC1, 8)
            F32_STEP(F32_MAC2, 16)
            F32_STEP(F32_MAC3, 24)
        }
        for (; k < run; k++, w += 8) {
            ROWS8(F32_LOAD1)
            F32_STEP(F32_MAC0, 0)
        }
    }
    ROWS8(F32_STORE)
}
TILE_ENTRY(tile_f32, CASES7)
