/* SPDX-License-Identifier: MIT */
/* First layers in int8 (kernels/window.h): the 27 staged bytes of a pixel, 9 of each of three rows, go through as 16 and 11, so that
 * no multiplier works on padding between them. Two neighbours at a time, in assembly, since compilers keep copies of halves of
 * vectors and of tables. */
#ifndef MP_ARM_NEON_WINDOW_H
#define MP_ARM_NEON_WINDOW_H

/* Where the bytes of a left and a right neighbour lie in their first two rows, and in their last two; 255 gives zeros. */
enum { WINDOW_NONE = 255 };
static const uint8_t WINDOW_ORDER[4][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 19, 20, 21, 22},
    {7, 8, 16, 17, 18, 19, 20, 21, 22, 23, 24, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE},
    {3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 20, 21, 22, 23, 24, 25},
    {10, 11, 19, 20, 21, 22, 23, 24, 25, 26, 27, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE, WINDOW_NONE},
};

/* v4, v5: the left one's bytes; v6, v7: the right one's. Rows in v0-v2. */
#define WINDOW_ASM_PIXELS                                                                                              \
    "ldp q4, q5, [%[order]]\n"                                                                                         \
    "ldr q0, [%[row]]\n"                                                                                               \
    "ldr q1, [%[row], %[stage_row]]\n"                                                                                 \
    "ldp q6, q7, [%[order], #32]\n"                                                                                    \
    "ldr q2, [%[last]]\n"                                                                                              \
    "tbl v4.16b, {v0.16b, v1.16b}, v4.16b\n"                                                                           \
    "tbl v6.16b, {v0.16b, v1.16b}, v6.16b\n"                                                                           \
    "tbl v5.16b, {v1.16b, v2.16b}, v5.16b\n"                                                                           \
    "tbl v7.16b, {v1.16b, v2.16b}, v7.16b\n"

/* Before tables (kernels/table.h) it is declared only. */
static void windows_i8(mp_output *o, const mp_window_row *row);
#endif
