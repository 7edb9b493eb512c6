/* int8 tile on ARMv8.0: 4 pixels x 4 channels, 16 depth positions at a time. SMULL multiplies the low eight, SMLAL2
 * adds the high eight in the same 16 bits: two products of at most 128 * 127 stay below 2^15. SADALP widens pairs. Each
 * sum is spread over four lanes until the end; the order does not matter, since int32 sums are exact. */
#include "arm_neon_rows.h"
#include "arm_stage_s8.h"

#define S8_DECLARE(i) int32x4_t c##i##0 = vdupq_n_s32(0), c##i##1 = c##i##0, c##i##2 = c##i##0, c##i##3 = c##i##0;
#define S8_POINT(i) const int8_t *p##i = (const int8_t *)(a[R > i ? i : 0] + at);
#define S8_LOAD(i) const int8x16_t x##i = R > i ? vld1q_s8(p##i + k) : vdupq_n_s8(0);
#define S8_MAC(i, j)                                                                                                   \
    if (R > i)                                                                                                         \
        c##i##j = vpadalq_s16(c##i##j, vmlal_high_s8(vmull_s8(vget_low_s8(x##i), vget_low_s8(y)), x##i, y));
#define S8_MAC0(i) S8_MAC(i, 0)
#define S8_MAC1(i) S8_MAC(i, 1)
#define S8_MAC2(i) S8_MAC(i, 2)
#define S8_MAC3(i) S8_MAC(i, 3)
#define S8_COLUMN(MAC, AT)                                                                                             \
    {                                                                                                                  \
        const int8x16_t y = vld1q_s8(w + AT);                                                                          \
        ROWS4(MAC)                                                                                                     \
    }
/* Four spread sums -> one vector of four channels, on top of what the row starts from. */
#define S8_STORE(i)                                                                                                    \
    if (R > i) {                                                                                                       \
        const int32x4_t sum = vpaddq_s32(vpaddq_s32(c##i##0, c##i##1), vpaddq_s32(c##i##2, c##i##3));                  \
        vst1q_s32((int32_t *)acc + 4 * i, vaddq_s32(init ? vld1q_s32(init) : vld1q_s32((int32_t *)acc + 4 * i), sum)); \
    }

static inline __attribute__((always_inline)) void tile_s8_rows(const int R, TILE_ARGUMENTS)
{
    const int8_t *w = b;
    ROWS4(S8_DECLARE)
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        ROWS4(S8_POINT)
        for (ptrdiff_t k = 0; k < run; k += 16, w += 64) {
            ROWS4(S8_LOAD)
            S8_COLUMN(S8_MAC0, 0)
            S8_COLUMN(S8_MAC1, 16)
            S8_COLUMN(S8_MAC2, 32)
            S8_COLUMN(S8_MAC3, 48)
        }
    }
    ROWS4(S8_STORE)
}
TILE_ENTRY(tile_s8, CASES4)
