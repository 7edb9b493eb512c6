/* int8 tile with SMMLA: 8 pixels x 12 channels, eight depth positions an instruction, a 2 x 2 block of sums each.
 * Twelve channels, not eight: 24 multiplications then share 8 half loads of activations and 3 pairs of loads of weights.
 * Weights: [step][channel][8], so two channels' eight positions are one vector. */
#include "arm_neon_rows.h"
#include "arm_stage_s8.h"

#define PAIRS(M) M(0, 0, 1) M(1, 2, 3) M(2, 4, 5) M(3, 6, 7)
#define MMLA_DECLARE(P, i, j)                                                                                          \
    int32x4_t c##P##0 = vdupq_n_s32(0), c##P##1 = c##P##0, c##P##2 = c##P##0, c##P##3 = c##P##0, c##P##4 = c##P##0,    \
              c##P##5 = c##P##0;
/* A row that is missing multiplies row 0 again; its sums are not stored. */
#define MMLA_POINT(P, i, j)                                                                                            \
    const int8_t *p##i = (const int8_t *)(a[R > i ? i : 0] + at), *p##j = (const int8_t *)(a[R > j ? j : 0] + at);
#define MMLA_LOAD(P, i, j)                                                                                             \
    const int8x16_t x##P = R > i ? vcombine_s8(vld1_s8(p##i), vld1_s8(p##j)) : vdupq_n_s8(0);                          \
    p##i += 8, p##j += 8;
#define MMLA_MAC(q, P, i, j)                                                                                           \
    if (R > i)                                                                                                         \
        c##P##q = vmmlaq_s32(c##P##q, x##P, y);
#define MMLA_MAC0(P, i, j) MMLA_MAC(0, P, i, j)
#define MMLA_MAC1(P, i, j) MMLA_MAC(1, P, i, j)
#define MMLA_MAC2(P, i, j) MMLA_MAC(2, P, i, j)
#define MMLA_MAC3(P, i, j) MMLA_MAC(3, P, i, j)
#define MMLA_MAC4(P, i, j) MMLA_MAC(4, P, i, j)
#define MMLA_MAC5(P, i, j) MMLA_MAC(5, P, i, j)
#define MMLA_COLUMNS(q)                                                                                                \
    {                                                                                                                  \
        const int8x16_t y = vld1q_s8(w + 16 * q);                                                                      \
        PAIRS(MMLA_MAC##q)                                                                                             \
    }
#define MMLA_ADD(i, q, HALF, sums)                                                                                     \
    if (R > i) {                                                                                                       \
        int32_t *to = (int32_t *)acc + 12 * i + 2 * q;                                                                 \
        vst1_s32(to, vadd_s32(vld1_s32(init ? (const int32_t *)init + 2 * q : to), HALF(sums)));                       \
    }
#define MMLA_STORE_ONE(P, i, j, q) MMLA_ADD(i, q, vget_low_s32, c##P##q) MMLA_ADD(j, q, vget_high_s32, c##P##q)
#define MMLA_STORE(P, i, j)                                                                                            \
    MMLA_STORE_ONE(P, i, j, 0) MMLA_STORE_ONE(P, i, j, 1) MMLA_STORE_ONE(P, i, j, 2)                                   \
    MMLA_STORE_ONE(P, i, j, 3) MMLA_STORE_ONE(P, i, j, 4) MMLA_STORE_ONE(P, i, j, 5)

static inline __attribute__((always_inline)) void tile_mmla_rows(const int R, TILE_ARGUMENTS)
{
    const int8_t *w = b;
    PAIRS(MMLA_DECLARE)
    for (int s = 0; s < segments; s++) {
        const ptrdiff_t at = seg[s];
        PAIRS(MMLA_POINT)
        for (const int8_t *end = w + 12 * run; w < end; w += 96) {
            PAIRS(MMLA_LOAD)
            MMLA_COLUMNS(0)
            MMLA_COLUMNS(1)
            MMLA_COLUMNS(2)
            MMLA_COLUMNS(3)
            MMLA_COLUMNS(4)
            MMLA_COLUMNS(5)
        }
    }
    PAIRS(MMLA_STORE)
}
TILE_ENTRY(tile_mmla, CASES8)
