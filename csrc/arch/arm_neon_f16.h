/* SPDX-License-Identifier: MIT */
/* Half arithmetic (FMLA .8h): 8 pixels x 16 channels, eight depth positions of a row loaded at once. Sums stay halves
 * inside a tile; between passes they rest as floats, which is exact. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"

#define MP_FP16_WORDS "arithmetic: fp16_half computes twice as many products as fp32"

#define H_ASM_MAC(c0, c1, b0, b1, x, lane)                                                                             \
    "fmla v" #c0 ".8h, v" #b0 ".8h, v" #x ".h[" #lane "]\n"                                                            \
    "fmla v" #c1 ".8h, v" #b1 ".8h, v" #x ".h[" #lane "]\n"
#define H_ASM_START(c0, c1)                                                                                            \
    "ld1 {v0.4s, v1.4s, v2.4s, v3.4s}, [%[from]], %[step]\n"                                                           \
    "fcvtn v" #c0 ".4h, v0.4s\n"                                                                                       \
    "fcvtn2 v" #c0 ".8h, v1.4s\n"                                                                                      \
    "fcvtn v" #c1 ".4h, v2.4s\n"                                                                                       \
    "fcvtn2 v" #c1 ".8h, v3.4s\n"
#define H_ASM_END(c0, c1)                                                                                              \
    "fcvtl v0.4s, v" #c0 ".4h\n"                                                                                       \
    "fcvtl2 v1.4s, v" #c0 ".8h\n"                                                                                      \
    "fcvtl v2.4s, v" #c1 ".4h\n"                                                                                       \
    "fcvtl2 v3.4s, v" #c1 ".8h\n"                                                                                      \
    "st1 {v0.4s, v1.4s, v2.4s, v3.4s}, [%[acc]], #64\n"
TILE_8X2(tile_f16, H_ASM_START, ASM_EIGHT_STEPS, H_ASM_MAC, ASM_LANE2, 8, 1, 64, H_ASM_END)

#define H_DECLARE(i) float16x8_t c##i##0 = vdupq_n_f16(0), c##i##1 = c##i##0;
#define H_FROM_FLOATS(p) vcombine_f16(vcvt_f16_f32(vld1q_f32(p)), vcvt_f16_f32(vld1q_f32((p) + 4)))
#define H_INIT(i)                                                                                                      \
    if (R > i)                                                                                                         \
        c##i##0 = i0, c##i##1 = i1;
#define H_RESUME(i)                                                                                                    \
    if (R > i)                                                                                                         \
        c##i##0 = H_FROM_FLOATS((float *)acc + 16 * i), c##i##1 = H_FROM_FLOATS((float *)acc + 16 * i + 8);
#define H_STORE_ONE(p, x) vst1q_f32(p, vcvt_f32_f16(vget_low_f16(x))), vst1q_f32((p) + 4, vcvt_f32_f16(vget_high_f16(x)))
#define H_STORE(i)                                                                                                     \
    if (R > i)                                                                                                         \
        H_STORE_ONE((float *)acc + 16 * i, c##i##0), H_STORE_ONE((float *)acc + 16 * i + 8, c##i##1);
#define H_POINT(i) const __fp16 *p##i = (const __fp16 *)(a[R > i ? i : 0] + at);
#define H_LOAD8(i) const float16x8_t x##i = R > i ? vld1q_f16(p##i + k) : vdupq_n_f16(0);
#define H_LOAD1(i) const float16x8_t x##i = R > i ? vld1q_dup_f16(p##i + k) : vdupq_n_f16(0);
#define H_MAC(i, LANE)                                                                                                 \
    if (R > i) {                                                                                                       \
        c##i##0 = vfmaq_laneq_f16(c##i##0, b0, x##i, LANE);                                                            \
        c##i##1 = vfmaq_laneq_f16(c##i##1, b1, x##i, LANE);                                                            \
    }
#define H_MAC0(i) H_MAC(i, 0)
#define H_MAC1(i) H_MAC(i, 1)
#define H_MAC2(i) H_MAC(i, 2)
#define H_MAC3(i) H_MAC(i, 3)
#define H_MAC4(i) H_MAC(i, 4)
#define H_MAC5(i) H_MAC(i, 5)
#define H_MAC6(i) H_MAC(i, 6)
#define H_MAC7(i) H_MAC(i, 7)
#define H_STEP(MAC, AT)                                                                                                \
    {                                                                                                                  \
        const float16x8_t b0 = vld1q_f16(w + AT), b1 = vld1q_f16(w + AT + 8);                                          \
        ROWS8(MAC)                                                                                                     \
    }

static inline __attribute__((always_inline)) void tile_f16_rows(const int R, TILE_ARGUMENTS)
{
    const __fp16 *w = b;
    ROWS8(H_DECLARE)
    if (init) {
        const float16x8_t i0 = H_FROM_FLOATS((const float *)init), i1 = H_FROM_FLOATS((const float *)init + 8);
        ROWS8(H_INIT)
    } else {
        ROWS8(H_RESUME)
    }
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        ROWS8(H_POINT)
        ptrdiff_t k = 0;
        for (; k + 8 <= run; k += 8, w += 128) {
            ROWS8(H_LOAD8)
            H_STEP(H_MAC0, 0)
            H_STEP(H_MAC1, 16)
            H_STEP(H_MAC2, 32)
            H_STEP(H_MAC3, 48)
            H_STEP(H_MAC4, 64)
            H_STEP(H_MAC5, 80)
            H_STEP(H_MAC6, 96)
            H_STEP(H_MAC7, 112)
        }
        for (; k < run; k++, w += 16) {
            ROWS8(H_LOAD1)
            H_STEP(H_MAC0, 0)
        }
    }
    ROWS8(H_STORE)
}
TILE_ENTRY(tile_f16, CASES7)

static void stage_half(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    memcpy(staged, source, count * 2);
}
static const mp_micro micro_half = {ARM_F16_TILE,
                                    .needs_stage = 1, .stage = stage_half, .tile = tile_f16};
#define MP_HAS_FP16_HALF
#define MP_HALF_WINOGRAD_INPUT winograd_input_f16
