/* int8 tile with SMMLA: 6 pixels x 16 channels, eight depth positions an instruction, a 2 x 2 block of sums each.
 * Weights: [step][channel][8], so two channels' eight positions are one vector. A vector of two pixels has to be put
 * together, which takes the multipliers' pipes on most cores: 3 of these for 24 SMMLA, and no channels are lost where their
 * number is a multiple of 16. */
#include "arm_neon_asm.h"
#include "arm_neon_rows.h"
#include "arm_stage_s8.h"

/* v8-v31 sums, eight for each pair of pixels; v0-v2 pairs, v4-v7 weights. x9-x14 end of each row's run, x17 from -run to 0. */
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

static void tile_mmla_full(TILE_ARGUMENTS)
{
    const void *from = init ? init : acc;
    const ptrdiff_t step = init ? 0 : 64, length = run;
    ptrdiff_t left = segments;
    __asm__ volatile(
        MMLA_ALL_PAIRS(MMLA_START)
        "1: ldr x17, [%[seg]], #8\n"
        "add x17, x17, %[length]\n"
        "ldp x9, x10, [%[a]]\n"
        "ldp x11, x12, [%[a], #16]\n"
        "ldp x13, x14, [%[a], #32]\n"
        "add x9, x9, x17\n"
        "add x10, x10, x17\n"
        "add x11, x11, x17\n"
        "add x12, x12, x17\n"
        "add x13, x13, x17\n"
        "add x14, x14, x17\n"
        "neg x17, %[length]\n"
        "2: ldr d0, [x9, x17]\n"
        "ldr d1, [x11, x17]\n"
        "ldr d2, [x13, x17]\n"
        "ldr d3, [x10, x17]\n"
        "ldr d4, [x12, x17]\n"
        "ldr d5, [x14, x17]\n"
        "ins v0.d[1], v3.d[0]\n"
        "ldp q6, q7, [%[b]], #32\n"
        "ins v1.d[1], v4.d[0]\n"
        "ins v2.d[1], v5.d[0]\n"
        MMLA_CHANNELS(6, 8, 16, 24) MMLA_CHANNELS(7, 9, 17, 25)
        "ldp q4, q5, [%[b]], #32\n"
        MMLA_CHANNELS(4, 10, 18, 26) MMLA_CHANNELS(5, 11, 19, 27)
        "ldp q6, q7, [%[b]], #32\n"
        MMLA_CHANNELS(6, 12, 20, 28) MMLA_CHANNELS(7, 13, 21, 29)
        "ldp q4, q5, [%[b]], #32\n"
        MMLA_CHANNELS(4, 14, 22, 30) MMLA_CHANNELS(5, 15, 23, 31)
        "adds x17, x17, #8\n"
        "b.ne 2b\n"
        "subs %[left], %[left], #1\n"
        "b.ne 1b\n"
        MMLA_ALL_PAIRS(MMLA_END)
        : [b] "+r"(b), [seg] "+r"(seg), [left] "+r"(left), [from] "+r"(from), [acc] "+r"(acc)
        : [a] "r"(a), [length] "r"(length), [step] "r"(step)
        : "memory", "cc", ASM_ROWS, ASM_VECTORS);
}

/* Pointers of missing rows repeat the last one: all rows are computed, those that exist are kept. */
static void tile_mmla(TILE_ARGUMENTS, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)
{
    enum { ROWS = 6, ROW_BYTES = 64 };
    (void)channels, (void)ahead, (void)ahead_step; /* these cores prefetch by themselves */
    if (rows == ROWS) {
        tile_mmla_full(a, seg, segments, run, b, init, acc);
        return;
    }
    int32_t sums[ROWS * ROW_BYTES / 4] = {0};
    if (!init)
        memcpy(sums, acc, (size_t)rows * ROW_BYTES);
    tile_mmla_full(a, seg, segments, run, b, init, sums);
    memcpy(acc, sums, (size_t)rows * ROW_BYTES);
}

static const mp_micro micro_i8 = {ARM_MMLA_TILE,
                                  .needs_stage = 1, .stage = stage_s8, .tile = tile_mmla};
#define MP_OWN_I8
#define UNPACK_NR 16
#define UNPACK_CHANNEL 8
