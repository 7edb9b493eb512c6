/* SPDX-License-Identifier: MIT */
/* int8 tile with SMMLA: 6 pixels x 16 channels, eight depth positions an instruction, a 2 x 2 block of sums each.
 * Weights: [step][channel][8], so two channels' eight positions are one vector. A vector of two pixels is one load where pixels are
 * staged in blocks of eight channels and the two lie side by side: all but those where a row of an odd number ends. Else it is put
 * together, which takes the multipliers' pipes on most cores: 3 of these for 24 SMMLA. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"
#include "arm_stage_s8.h"

/* v8-v31 sums, eight for each pair of pixels; v0-v2 pairs, v4-v7 weights. x9-x14 end of each row's run, x17 from minus its bytes
 * to 0, `block` at a time. */
#define MMLA_CHANNELS(y, c0, c1, c2)                                                                                   \
    "smmla v" #c0 ".4s, v0.16b, v" #y ".16b\n"                                                                         \
    "smmla v" #c1 ".4s, v1.16b, v" #y ".16b\n"                                                                         \
    "smmla v" #c2 ".4s, v2.16b, v" #y ".16b\n"
/* Two pixels' starting values -> the eight sums of the pair, and back. */
#define MMLA_START(c0, c1, c2, c3, c4, c5, c6, c7)                                                                     \
    "ld1 {v0.4s, v1.4s, v2.4s, v3.4s}, [%[from]], %[step]\n"                                                           \
    "ld1 {v4.4s, v5.4s, v6.4s, v7.4s}, [%[from]], %[step]\n"                                                           \
    MMLA_PAIR(c0, c1, 0, 4) MMLA_PAIR(c2, c3, 1, 5) MMLA_PAIR(c4, c5, 2, 6) MMLA_PAIR(c6, c7, 3, 7)
#define MMLA_END(c0, c1, c2, c3, c4, c5, c6, c7)                                                                       \
    MMLA_PAIR(0, 4, c0, c1) MMLA_PAIR(1, 5, c2, c3) MMLA_PAIR(2, 6, c4, c5) MMLA_PAIR(3, 7, c6, c7)                    \
    "st1 {v0.4s, v1.4s, v2.4s, v3.4s}, [%[acc]], #64\n"                                                                \
    "st1 {v4.4s, v5.4s, v6.4s, v7.4s}, [%[acc]], #64\n"
#define MMLA_PAIR(low, high, a, b)                                                                                     \
    "zip1 v" #low ".2d, v" #a ".2d, v" #b ".2d\n"                                                                      \
    "zip2 v" #high ".2d, v" #a ".2d, v" #b ".2d\n"
#define MMLA_ALL_PAIRS(F)                                                                                              \
    F(8, 9, 10, 11, 12, 13, 14, 15) F(16, 17, 18, 19, 20, 21, 22, 23) F(24, 25, 26, 27, 28, 29, 30, 31)


/* From a segment's offset, counted from its end, in x17: the rows' ends, or those of pairs, whose first rows stay in x9, x11, x13. */
#define MMLA_ROWS_APART                                                                                                \
    "ldp x9, x10, [%[a]]\n"                                                                                            \
    "ldp x11, x12, [%[a], #16]\n"                                                                                      \
    "ldp x13, x14, [%[a], #32]\n"                                                                                      \
    "add x9, x9, x17\n"                                                                                                \
    "add x10, x10, x17\n"                                                                                              \
    "add x11, x11, x17\n"                                                                                              \
    "add x12, x12, x17\n"                                                                                              \
    "add x13, x13, x17\n"                                                                                              \
    "add x14, x14, x17\n"
#define MMLA_LOAD_APART                                                                                                \
    "ldr d0, [x9, x17]\n"                                                                                              \
    "ldr d1, [x11, x17]\n"                                                                                             \
    "ldr d2, [x13, x17]\n"                                                                                             \
    "ldr d3, [x10, x17]\n"                                                                                             \
    "ldr d4, [x12, x17]\n"                                                                                             \
    "ldr d5, [x14, x17]\n"                                                                                             \
    "ins v0.d[1], v3.d[0]\n"                                                                                           \
    "ldp q6, q7, [%[b]], #32\n"                                                                                        \
    "ins v1.d[1], v4.d[0]\n"                                                                                           \
    "ins v2.d[1], v5.d[0]\n"
#define MMLA_FIRST_PAIRS                                                                                               \
    "ldr x9, [%[a]]\n"                                                                                                 \
    "ldr x11, [%[a], #16]\n"                                                                                           \
    "ldr x13, [%[a], #32]\n"
#define MMLA_ROWS_PAIRS                                                                                                \
    "add x10, x9, x17\n"                                                                                               \
    "add x12, x11, x17\n"                                                                                              \
    "add x14, x13, x17\n"
#define MMLA_LOAD_PAIRS                                                                                                \
    "ldr q0, [x10, x17]\n"                                                                                             \
    "ldp q6, q7, [%[b]], #32\n"                                                                                        \
    "ldr q1, [x12, x17]\n"                                                                                             \
    "ldr q2, [x14, x17]\n"

#define TILE_MMLA(NAME, FIRST, ROWS, LOAD)                                                                             \
    static __attribute__((noinline)) void NAME(TILE_ARGUMENTS, ptrdiff_t block)                                        \
    {                                                                                                                  \
        const void *from = init ? init : acc;                                                                          \
        const ptrdiff_t step = init ? 0 : 64, length = run / 8 * block;                                                \
        ptrdiff_t left = segments;                                                                                     \
        __asm__ volatile(MMLA_ALL_PAIRS(MMLA_START) FIRST                                                              \
                         "1: ldr x17, [%[seg]], #8\n"                                                                  \
                         "add x17, x17, %[length]\n" ROWS                                                              \
                         "neg x17, %[length]\n"                                                                        \
                         "2:\n" LOAD MMLA_CHANNELS(6, 8, 16, 24) MMLA_CHANNELS(7, 9, 17, 25)                           \
                         "ldp q4, q5, [%[b]], #32\n"                                                                   \
                         MMLA_CHANNELS(4, 10, 18, 26) MMLA_CHANNELS(5, 11, 19, 27)                                     \
                         "ldp q6, q7, [%[b]], #32\n"                                                                   \
                         MMLA_CHANNELS(6, 12, 20, 28) MMLA_CHANNELS(7, 13, 21, 29)                                     \
                         "ldp q4, q5, [%[b]], #32\n"                                                                   \
                         MMLA_CHANNELS(4, 14, 22, 30) MMLA_CHANNELS(5, 15, 23, 31)                                     \
                         "adds x17, x17, %[block]\n"                                                                   \
                         "b.ne 2b\n"                                                                                   \
                         "subs %[left], %[left], #1\n"                                                                 \
                         "b.ne 1b\n" MMLA_ALL_PAIRS(MMLA_END)                                                          \
                         : [b] "+r"(b), [seg] "+r"(seg), [left] "+r"(left), [from] "+r"(from), [acc] "+r"(acc)         \
                         : [a] "r"(a), [length] "r"(length), [step] "r"(step), [block] "r"(block)                      \
                         : "memory", "cc", ASM_ROWS, ASM_VECTORS);                                                     \
    }
TILE_MMLA(tile_mmla_apart, , MMLA_ROWS_APART, MMLA_LOAD_APART)
TILE_MMLA(tile_mmla_pairs, MMLA_FIRST_PAIRS, MMLA_ROWS_PAIRS, MMLA_LOAD_PAIRS)

enum { MMLA_ROWS = 6, MMLA_ROW_BYTES = 64 };

/* All rows are computed, those that exist are kept. */
typedef void mmla_tile(TILE_ARGUMENTS, ptrdiff_t block);
static inline void mmla_rows(mmla_tile *tile, TILE_ARGUMENTS, ptrdiff_t block, int rows)
{
    if (rows == MMLA_ROWS) {
        tile(a, seg, segments, run, b, init, acc, block);
        return;
    }
    int32_t sums[MMLA_ROWS * MMLA_ROW_BYTES / 4] = {0};
    if (!init)
        memcpy(sums, acc, (size_t)rows * MMLA_ROW_BYTES);
    tile(a, seg, segments, run, b, init, sums, block);
    memcpy(acc, sums, (size_t)rows * MMLA_ROW_BYTES);
}

/* Pointers of missing rows repeat the last one. */
static void tile_mmla(TILE_ARGUMENTS, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)
{
    (void)channels, (void)ahead, (void)ahead_step; /* these cores prefetch by themselves */
    mmla_rows(tile_mmla_apart, a, seg, segments, run, b, init, acc, 8, rows);
}

static inline int mmla_pairs(const char *const *a)
{
    return a[1] == a[0] + 8 && a[3] == a[2] + 8 && a[5] == a[4] + 8;
}

static void tile_mmla_blocks(const char *const *a, const ptrdiff_t *seg, int segments, int run, ptrdiff_t block,
                             const void *b, const void *init, void *acc, int rows)
{
    const char *all[MMLA_ROWS];
    if (rows < MMLA_ROWS) {
        /* Missing rows are the last one's neighbours, as far as a pair goes. */
        for (int r = 0; r < MMLA_ROWS; r += 2) {
            all[r] = a[r < rows ? r : 0];
            all[r + 1] = r + 1 < rows ? a[r + 1] : all[r] + 8;
        }
        a = all;
    }
    mmla_rows(mmla_pairs(a) ? tile_mmla_pairs : tile_mmla_apart, a, seg, segments, run, b, init, acc, block, rows);
}

static void stage_mmla_blocks(char *staged, const char *source, size_t step, int pixels, int blocks, size_t block)
{
    for (; blocks > 0; blocks--, staged += block, source += 8)
        for (int x = 0; x < pixels; x++) memcpy(staged + x * 8, source + x * step, 8);
}

/* First layers have too few channels for SMMLA. */
static inline uint32x4_t dot_window_step(const int8_t *b, int row, int k, int first)
{
    const int8_t *channels = b + ((row * 2 + k / 2) * 16 + first) * 8;
    const uint32x4_t two = vreinterpretq_u32_s8(vld1q_s8(channels)), more = vreinterpretq_u32_s8(vld1q_s8(channels + 16));
    return k % 2 ? vuzp2q_u32(two, more) : vuzp1q_u32(two, more);
}
#include "arm_neon_window_dot.h"

static const mp_micro micro_i8 = {ARM_MMLA_TILE,
                                  .needs_stage = 1, .stage = stage_s8, .tile = tile_mmla, .windows = windows_i8,
                                  .tile_blocks = tile_mmla_blocks, .stage_blocks = stage_mmla_blocks};
#define MP_OWN_I8
#define UNPACK_NR 16
#define UNPACK_CHANNEL 8
