/* SPDX-License-Identifier: MIT */
/* int8 tile on ARMv8.0: 4 pixels x 4 channels, 16 depth positions at a time. SMULL multiplies the low eight, SMLAL2
 * adds the high eight in the same 16 bits: two products of at most 128 * 127 stay below 2^15. SADALP widens pairs. Each
 * sum is spread over four lanes until the end; the order does not matter, since int32 sums are exact. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"
#include "arm_neon_window.h"
#include "arm_stage_s8.h"

#define MP_INT8_WORDS "no dot product: int8 computes about twice as fast as fp32"

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

/* All four rows in assembly (see arm_neon_asm.h): v16-v31 sums, v0-v3 rows, v4-v7 columns; v8-v15 products, eight at a time
 * so that none waits for its own. */
#define S8_ASM_EIGHT(OP, y0, y1)                                                                                       \
    OP(8, 0, y0) OP(9, 1, y0) OP(10, 2, y0) OP(11, 3, y0)                                                              \
    OP(12, 0, y1) OP(13, 1, y1) OP(14, 2, y1) OP(15, 3, y1)
#define S8_ASM_LOW(t, row, column) "smull v" #t ".8h, v" #row ".8b, v" #column ".8b\n"
#define S8_ASM_HIGH(t, row, column) "smlal2 v" #t ".8h, v" #row ".16b, v" #column ".16b\n"
#define S8_ASM_TWO_COLUMNS(y0, y1, c00, c10, c20, c30, c01, c11, c21, c31)                                             \
    S8_ASM_EIGHT(S8_ASM_LOW, y0, y1)                                                                                   \
    S8_ASM_EIGHT(S8_ASM_HIGH, y0, y1)                                                                                  \
    S8_ASM_ADD(c00, 8) S8_ASM_ADD(c10, 9) S8_ASM_ADD(c20, 10) S8_ASM_ADD(c30, 11)                                      \
    S8_ASM_ADD(c01, 12) S8_ASM_ADD(c11, 13) S8_ASM_ADD(c21, 14) S8_ASM_ADD(c31, 15)
#define S8_ASM_ADD(c, t) "sadalp v" #c ".4s, v" #t ".8h\n"
#define S8_ASM_ZERO(c) "movi v" #c ".4s, #0\n"
#define S8_ASM_END(c0, c1, c2, c3)                                                                                     \
    "addp v0.4s, v" #c0 ".4s, v" #c1 ".4s\n"                                                                           \
    "addp v1.4s, v" #c2 ".4s, v" #c3 ".4s\n"                                                                           \
    "ld1 {v2.4s}, [%[from]], %[step]\n"                                                                                \
    "addp v0.4s, v0.4s, v1.4s\n"                                                                                       \
    "add v0.4s, v0.4s, v2.4s\n"                                                                                        \
    "str q0, [%[acc]], #16\n"
static void tile_s8_full(TILE_ARGUMENTS)
{
    const void *from = init ? init : acc;
    const ptrdiff_t step = init ? 0 : 16, steps = run / 16;
    ptrdiff_t left = segments;
    __asm__ volatile(
        S8_ASM_ZERO(16) S8_ASM_ZERO(17) S8_ASM_ZERO(18) S8_ASM_ZERO(19) S8_ASM_ZERO(20) S8_ASM_ZERO(21)
        S8_ASM_ZERO(22) S8_ASM_ZERO(23) S8_ASM_ZERO(24) S8_ASM_ZERO(25) S8_ASM_ZERO(26) S8_ASM_ZERO(27)
        S8_ASM_ZERO(28) S8_ASM_ZERO(29) S8_ASM_ZERO(30) S8_ASM_ZERO(31)
        "1: ldr x17, [%[seg]], #8\n"
        "ldp x9, x10, [%[a]]\n"
        "ldp x11, x12, [%[a], #16]\n"
        "add x9, x9, x17\n"
        "add x10, x10, x17\n"
        "add x11, x11, x17\n"
        "add x12, x12, x17\n"
        "mov x17, %[steps]\n"
        "2: ldr q0, [x9], #16\n"
        "ldp q4, q5, [%[b]], #32\n"
        "ldr q1, [x10], #16\n"
        "ldr q2, [x11], #16\n"
        "ldr q3, [x12], #16\n"
        "ldp q6, q7, [%[b]], #32\n"
        S8_ASM_TWO_COLUMNS(4, 5, 16, 20, 24, 28, 17, 21, 25, 29)
        S8_ASM_TWO_COLUMNS(6, 7, 18, 22, 26, 30, 19, 23, 27, 31)
        "subs x17, x17, #1\n"
        "b.ne 2b\n"
        "subs %[left], %[left], #1\n"
        "b.ne 1b\n"
        S8_ASM_END(16, 17, 18, 19) S8_ASM_END(20, 21, 22, 23) S8_ASM_END(24, 25, 26, 27) S8_ASM_END(28, 29, 30, 31)
        : [b] "+r"(b), [seg] "+r"(seg), [left] "+r"(left), [from] "+r"(from), [acc] "+r"(acc)
        : [a] "r"(a), [steps] "r"(steps), [step] "r"(step)
        : "memory", "cc", "x9", "x10", "x11", "x12", "x17", ASM_VECTORS);
}
TILE_ENTRY(tile_s8, CASES3)

/* First layers: one window x 4 channels. */
typedef struct {
    int8x16_t bytes[4][2]; /* of each channel, as a left pixel's */
} s8_window;
static inline s8_window s8_window_of(const int8_t *b)
{
    s8_window w;
    for (int j = 0; j < 4; j++, b += 16) {
        const int8x16x2_t upper = {{vld1q_s8(b), vld1q_s8(b + 64)}}, lower = {{upper.val[1], vld1q_s8(b + 128)}};
        w.bytes[j][0] = vqtbl2q_s8(upper, vld1q_u8(WINDOW_ORDER[0]));
        w.bytes[j][1] = vqtbl2q_s8(lower, vld1q_u8(WINDOW_ORDER[1]));
    }
    return w;
}

/* Channels whose weights are at AT and AT + 32: sums of both pixels for one and for the other. */
#define S8_WINDOW_CHANNELS(AT0, AT1, l0, r0, l1, r1)                                                                   \
    "ldp q16, q17, [%[weights], #" #AT0 "]\n"                                                                          \
    "ldp q18, q19, [%[weights], #" #AT1 "]\n"                                                                          \
    S8_WINDOW_FOUR(S8_ASM_LOW, 4, 6, 16, 18)                                                                           \
    S8_WINDOW_FOUR(S8_ASM_HIGH, 4, 6, 16, 18)                                                                          \
    "saddlp v" #l0 ".4s, v0.8h\n"                                                                                      \
    "saddlp v" #r0 ".4s, v1.8h\n"                                                                                      \
    "saddlp v" #l1 ".4s, v2.8h\n"                                                                                      \
    "saddlp v" #r1 ".4s, v3.8h\n"                                                                                      \
    S8_WINDOW_FOUR(S8_ASM_LOW, 5, 7, 17, 19)                                                                           \
    S8_WINDOW_FOUR(S8_ASM_HIGH, 5, 7, 17, 19)                                                                          \
    S8_ASM_ADD(l0, 0) S8_ASM_ADD(r0, 1) S8_ASM_ADD(l1, 2) S8_ASM_ADD(r1, 3)                                            \
    "addp v" #l0 ".4s, v" #l0 ".4s, v" #l1 ".4s\n"                                                                     \
    "addp v" #r0 ".4s, v" #r0 ".4s, v" #r1 ".4s\n"
#define S8_WINDOW_FOUR(OP, left, right, y0, y1)                                                                        \
    OP(0, left, y0) OP(1, right, y0) OP(2, left, y1) OP(3, right, y1)
#define S8_WINDOW_PAIR(LEFT, RIGHT, ROW)                                                                               \
    __asm__(WINDOW_ASM_PIXELS                                                                                          \
            S8_WINDOW_CHANNELS(0, 32, 20, 21, 22, 23)                                                                  \
            S8_WINDOW_CHANNELS(64, 96, 22, 23, 24, 25)                                                                 \
            "addp %[left].4s, v20.4s, v22.4s\n"                                                                        \
            "addp %[right].4s, v21.4s, v23.4s\n"                                                                       \
            : [left] "=w"(LEFT), [right] "=w"(RIGHT)                                                                   \
            : [row] "r"(ROW), [last] "r"((ROW) + 2 * row->stage_row), [stage_row] "r"(row->stage_row),                 \
              [order] "r"(WINDOW_ORDER), [weights] "r"(&weights)                                                       \
            : "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21",      \
              "v22", "v23", "v24", "v25")
#define WINDOW_SUMS(M) M(0, 0)
#define WINDOWS_TOGETHER 1
#define WINDOW_VECTORS 1
#define WINDOW_PREPARE const s8_window weights = s8_window_of(row->b);
#define WINDOW_MULTIPLY                                                                                                   \
    vi c000, c001, c002, c003;                                                                                         \
    S8_WINDOW_PAIR(c000, c001, upper);                                                                                 \
    S8_WINDOW_PAIR(c002, c003, upper + row->stage_row);                                                                \
    c000 = vi_add(c000, i0), c001 = vi_add(c001, i0), c002 = vi_add(c002, i0), c003 = vi_add(c003, i0);

static const mp_micro micro_i8 = {ARM_S8_TILE,
                                  .needs_stage = 1, .stage = stage_s8, .tile = tile_s8, .windows = windows_i8};
#define MP_OWN_I8
#define UNPACK_NR 4
#define UNPACK_CHANNEL 16
