/* SPDX-License-Identifier: MIT */
/* Full tiles of 8 pixels x 2 vectors of channels in assembly: compilers spill accumulators and copy lanes where none of
 * that is needed (gcc 12: 87 instructions for 64 FMLA, 243 for 128 FMLA .8h). Tiles with fewer rows stay in C.
 *
 * v16-v31 sums, two a row; v0-v7 a vector of each row's depth positions; v8-v15 weights. x9-x16 the rows, x17 a counter.
 * MAC8X2(c, b, x, lane) multiplies vectors b and b + 1 by one lane of x and adds to c and c + 1. */
#ifndef MP_ARM_NEON_ASM_H
#define MP_ARM_NEON_ASM_H

#define ASM_ROW_POINTERS                                                                                               \
    "ldr x17, [%[seg]], #8\n"                                                                                          \
    "ldp x9, x10, [%[a]]\n"                                                                                            \
    "ldp x11, x12, [%[a], #16]\n"                                                                                      \
    "ldp x13, x14, [%[a], #32]\n"                                                                                      \
    "ldp x15, x16, [%[a], #48]\n"                                                                                      \
    "add x9, x9, x17\n"                                                                                                \
    "add x10, x10, x17\n"                                                                                              \
    "add x11, x11, x17\n"                                                                                              \
    "add x12, x12, x17\n"                                                                                              \
    "add x13, x13, x17\n"                                                                                              \
    "add x14, x14, x17\n"                                                                                              \
    "add x15, x15, x17\n"                                                                                              \
    "add x16, x16, x17\n"

/* All rows times one lane, weights in vectors b0 and b1. */
#define ASM_STEP(MAC, b0, b1, lane)                                                                                    \
    MAC(16, 17, b0, b1, 0, lane)                                                                                       \
    MAC(18, 19, b0, b1, 1, lane)                                                                                       \
    MAC(20, 21, b0, b1, 2, lane)                                                                                       \
    MAC(22, 23, b0, b1, 3, lane)                                                                                       \
    MAC(24, 25, b0, b1, 4, lane)                                                                                       \
    MAC(26, 27, b0, b1, 5, lane)                                                                                       \
    MAC(28, 29, b0, b1, 6, lane)                                                                                       \
    MAC(30, 31, b0, b1, 7, lane)
/* The first step of an iteration, whose loads go between the multiplications: cores that keep the order wait less. */
#define ASM_FIRST_STEP(MAC)                                                                                            \
    "ldp q8, q9, [%[b]], #32\n"                                                                                        \
    "ldr q0, [x9], #16\n"                                                                                              \
    "ldr q1, [x10], #16\n"                                                                                             \
    "ldr q2, [x11], #16\n"                                                                                             \
    MAC(16, 17, 8, 9, 0, 0)                                                                                            \
    "ldr q3, [x12], #16\n"                                                                                             \
    MAC(18, 19, 8, 9, 1, 0)                                                                                            \
    "ldr q4, [x13], #16\n"                                                                                             \
    MAC(20, 21, 8, 9, 2, 0)                                                                                            \
    "ldr q5, [x14], #16\n"                                                                                             \
    MAC(22, 23, 8, 9, 3, 0)                                                                                            \
    "ldr q6, [x15], #16\n"                                                                                             \
    MAC(24, 25, 8, 9, 4, 0)                                                                                            \
    "ldr q7, [x16], #16\n"                                                                                             \
    MAC(26, 27, 8, 9, 5, 0)                                                                                            \
    "ldp q10, q11, [%[b]], #32\n"                                                                                      \
    MAC(28, 29, 8, 9, 6, 0)                                                                                            \
    "ldp q12, q13, [%[b]], #32\n"                                                                                      \
    MAC(30, 31, 8, 9, 7, 0)
#define ASM_FOUR_STEPS(MAC)                                                                                            \
    ASM_FIRST_STEP(MAC)                                                                                                \
    "ldp q14, q15, [%[b]], #32\n"                                                                                      \
    ASM_STEP(MAC, 10, 11, 1)                                                                                           \
    ASM_STEP(MAC, 12, 13, 2)                                                                                           \
    ASM_STEP(MAC, 14, 15, 3)
#define ASM_EIGHT_STEPS(MAC)                                                                                           \
    ASM_FIRST_STEP(MAC)                                                                                                \
    "ldp q14, q15, [%[b]], #32\n"                                                                                      \
    ASM_STEP(MAC, 10, 11, 1)                                                                                           \
    "ldp q8, q9, [%[b]], #32\n"                                                                                        \
    ASM_STEP(MAC, 12, 13, 2)                                                                                           \
    "ldp q10, q11, [%[b]], #32\n"                                                                                      \
    ASM_STEP(MAC, 14, 15, 3)                                                                                           \
    "ldp q12, q13, [%[b]], #32\n"                                                                                      \
    ASM_STEP(MAC, 8, 9, 4)                                                                                             \
    "ldp q14, q15, [%[b]], #32\n"                                                                                      \
    ASM_STEP(MAC, 10, 11, 5)                                                                                           \
    ASM_STEP(MAC, 12, 13, 6)                                                                                           \
    ASM_STEP(MAC, 14, 15, 7)

#define ASM_ALL_ROWS(ROW) ROW(16, 17) ROW(18, 19) ROW(20, 21) ROW(22, 23) ROW(24, 25) ROW(26, 27) ROW(28, 29) ROW(30, 31)
#define ASM_VECTORS                                                                                                    \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17",\
        "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"
#define ASM_ROWS "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17"

/* Defines NAME##_full, a tile of 8 rows. START(c0, c1) loads a row of sums from %[from] and moves it by %[step], END stores
 * one to %[acc]; STEPS multiplies AT_ONCE depth positions of LANE bytes, each ELEMENTS elements; the rest goes one by one. ROW: bytes of
 * a row of sums. */
#define TILE_8X2(NAME, START, STEPS, MAC, LANE, AT_ONCE, ELEMENTS, ROW, END)                                           \
    static void NAME##_full(TILE_ARGUMENTS)                                                                            \
    {                                                                                                                  \
        const void *from = init ? init : acc;                                                                          \
        const ptrdiff_t step = init ? 0 : ROW;                                                                         \
        const ptrdiff_t full = run / (AT_ONCE * ELEMENTS), rest = run % (AT_ONCE * ELEMENTS) / ELEMENTS;              \
        ptrdiff_t left = segments;                                                                                     \
        __asm__ volatile(ASM_ALL_ROWS(START)                                                                           \
                         "1:\n" ASM_ROW_POINTERS                                                                       \
                         "mov x17, %[full]\n"                                                                         \
                         "cbz x17, 3f\n"                                                                               \
                         "2:\n" STEPS(MAC)                                                                             \
                         "subs x17, x17, #1\n"                                                                         \
                         "b.ne 2b\n"                                                                                   \
                         "3: mov x17, %[rest]\n"                                                                       \
                         "cbz x17, 5f\n"                                                                               \
                         "4: ldp q8, q9, [%[b]], #32\n"                                                                \
                         ASM_LANES(LANE)                                                                               \
                         ASM_STEP(MAC, 8, 9, 0)                                                                        \
                         "subs x17, x17, #1\n"                                                                         \
                         "b.ne 4b\n"                                                                                   \
                         "5: subs %[left], %[left], #1\n"                                                              \
                         "b.ne 1b\n" ASM_ALL_ROWS(END)                                                                 \
                         : [b] "+r"(b), [seg] "+r"(seg), [left] "+r"(left), [from] "+r"(from), [acc] "+r"(acc)         \
                         : [a] "r"(a), [full] "r"(full), [rest] "r"(rest), [step] "r"(step)                          \
                         : "memory", "cc", ASM_ROWS, ASM_VECTORS);                                                     \
    }
/* One depth position of each row: LANE is "s" and 4 bytes or "h" and 2. */
#define ASM_LANES(LANE) LANE(0, 9) LANE(1, 10) LANE(2, 11) LANE(3, 12) LANE(4, 13) LANE(5, 14) LANE(6, 15) LANE(7, 16)
#define ASM_LANE4(x, row) "ldr s" #x ", [x" #row "], #4\n"
#define ASM_LANE2(x, row) "ldr h" #x ", [x" #row "], #2\n"

#define ASM_START_4S(c0, c1) "ld1 {v" #c0 ".4s, v" #c1 ".4s}, [%[from]], %[step]\n"
#define ASM_END_4S(c0, c1) "stp q" #c0 ", q" #c1 ", [%[acc]], #32\n"
#endif
