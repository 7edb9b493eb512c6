/* SPDX-License-Identifier: MIT */
/* First layers with SDOT: one window x 8 channels. The level says where four depth positions of four channels lie in its packed
 * weights: dot_window_step(b, row of the kernel, step, first of the channels), zeros behind the ninth position. */
#include "arm_neon_window.h"

typedef struct {
    uint32x4_t steps[7][2]; /* of both halves of the channels, in the order of a pixel's bytes */
} dot_window;
static inline dot_window dot_window_of(const int8_t *b, int first)
{
    dot_window w;
    for (int vector = 0; vector < 2; vector++, first += 4) {
        uint32x4_t step[3][3];
        for (int row = 0; row < 3; row++)
            for (int k = 0; k < 3; k++) step[row][k] = dot_window_step(b, row, k, first);
        w.steps[0][vector] = step[0][0];
        w.steps[1][vector] = step[0][1];
        w.steps[2][vector] = vsliq_n_u32(step[0][2], step[1][0], 8);
        w.steps[3][vector] = vsliq_n_u32(vshrq_n_u32(step[1][0], 24), step[1][1], 8);
        w.steps[4][vector] =
            vsliq_n_u32(vsliq_n_u32(vshrq_n_u32(step[1][1], 24), step[1][2], 8), step[2][0], 16);
        w.steps[5][vector] = vsliq_n_u32(vshrq_n_u32(step[2][0], 16), step[2][1], 16);
        w.steps[6][vector] = vsliq_n_u32(vshrq_n_u32(step[2][1], 16), step[2][2], 16);
    }
    return w;
}

#define DOT_WINDOW_STEP(AT, y0, y1, left, right, lane)                                                                 \
    "ldp q" #y0 ", q" #y1 ", [%[weights], #" #AT "]\n"                                                                 \
    "sdot %[l0].4s, v" #y0 ".16b, v" #left ".4b[" #lane "]\n"                                                          \
    "sdot %[r0].4s, v" #y0 ".16b, v" #right ".4b[" #lane "]\n"                                                         \
    "sdot %[l1].4s, v" #y1 ".16b, v" #left ".4b[" #lane "]\n"                                                          \
    "sdot %[r1].4s, v" #y1 ".16b, v" #right ".4b[" #lane "]\n"
#define DOT_WINDOW_PAIR(L0, L1, R0, R1, ROW)                                                                           \
    __asm__(WINDOW_ASM_PIXELS                                                                                          \
            DOT_WINDOW_STEP(0, 16, 17, 4, 6, 0)                                                                        \
            DOT_WINDOW_STEP(32, 18, 19, 4, 6, 1)                                                                       \
            DOT_WINDOW_STEP(64, 16, 17, 4, 6, 2)                                                                       \
            DOT_WINDOW_STEP(96, 18, 19, 4, 6, 3)                                                                       \
            DOT_WINDOW_STEP(128, 16, 17, 5, 7, 0)                                                                      \
            DOT_WINDOW_STEP(160, 18, 19, 5, 7, 1)                                                                      \
            DOT_WINDOW_STEP(192, 16, 17, 5, 7, 2)                                                                      \
            : [l0] "+w"(L0), [l1] "+w"(L1), [r0] "+w"(R0), [r1] "+w"(R1)                                               \
            : [row] "r"(ROW), [last] "r"((ROW) + 2 * row->stage_row), [stage_row] "r"(row->stage_row),                 \
              [order] "r"(WINDOW_ORDER), [weights] "r"(&weights)                                                       \
            : "memory", "v0", "v1", "v2", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19")
#define WINDOW_SUMS(M) M(0, 0) M(0, 1)
#define WINDOWS_TOGETHER 1
#define WINDOW_VECTORS 2
#define WINDOW_PREPARE const dot_window weights = dot_window_of(row->b, first);
#define WINDOW_MULTIPLY                                                                                                   \
    vi c000 = i0, c001 = i0, c002 = i0, c003 = i0, c010 = i1, c011 = i1, c012 = i1, c013 = i1;                         \
    DOT_WINDOW_PAIR(c000, c010, c001, c011, upper);                                                                    \
    DOT_WINDOW_PAIR(c002, c012, c003, c013, upper + row->stage_row);
