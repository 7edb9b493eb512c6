/* SPDX-License-Identifier: MIT */
/* Depthwise rows of int16, eight channels at a time, in assembly: a load feeds two multiplications, and loads and stores move their
 * own addresses. Where taps of neighbours are each other's, as of 3x3 at stride 1, a column is loaded once and the weights stay in
 * registers. */
#ifndef MP_ARM_NEON_DEPTHWISE_H
#define MP_ARM_NEON_DEPTHWISE_H

/* What belongs to eight channels; step, sums_ld and weights_ld in bytes. */
typedef struct {
    const char *from;
    const ptrdiff_t *tap;
    int taps;
    const int16_t *weights;
    const int32_t *init;
    ptrdiff_t step, weights_ld, sums_ld;
} dw_columns;

/* M(pixel, its input, its sums): v7 weights, v16-v31 sums. */
#define DW_ASM_1(M) M(0, 16, 17)
#define DW_ASM_4(M) M(0, 16, 17) M(1, 18, 19) M(2, 20, 21) M(3, 22, 23)
#define DW_ASM_8(M) DW_ASM_4(M) M(4, 24, 25) M(5, 26, 27) M(6, 28, 29) M(0, 30, 31)
#define DW_ASM_BEGIN(x, s0, s1) "ldp q" #s0 ", q" #s1 ", [%[init]]\n"
#define DW_ASM_ADD(s0, s1, x, w)                                                                                       \
    "smlal v" #s0 ".4s, v" #x ".4h, v" #w ".4h\n"                                                                      \
    "smlal2 v" #s1 ".4s, v" #x ".8h, v" #w ".8h\n"
#define DW_ASM_TAP(x, s0, s1) "ld1 {v" #x ".8h}, [x9], %[step]\n" DW_ASM_ADD(s0, s1, x, 7)
#define DW_ASM_END(x, s0, s1) "st1 {v" #s0 ".4s, v" #s1 ".4s}, [%[to]], %[sums_ld]\n"
#define DW_ASM_CHANGED                                                                                                 \
    "memory", "cc", "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21",    \
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"
#define DW_ROWS(PIXELS)                                                                                                \
    static inline void dw_pixels_##PIXELS(const dw_columns *k, int pixel, char *to)                                    \
    {                                                                                                                  \
        const char *at = k->from + pixel * k->step;                                                                    \
        const ptrdiff_t *tap = k->tap;                                                                                 \
        const int16_t *weights = k->weights;                                                                           \
        int left = k->taps;                                                                                            \
        to += pixel * k->sums_ld;                                                                                      \
        __asm__ volatile(DW_ASM_##PIXELS(DW_ASM_BEGIN)                                                                 \
                         "1: ldr x9, [%[tap]], #8\n"                                                                   \
                         "ld1 {v7.8h}, [%[weights]], %[weights_ld]\n"                                                  \
                         "add x9, x9, %[at]\n"                                                                         \
                         "subs %w[left], %w[left], #1\n"                                                               \
                         DW_ASM_##PIXELS(DW_ASM_TAP)                                                                   \
                         "b.ne 1b\n" DW_ASM_##PIXELS(DW_ASM_END)                                                       \
                         : [tap] "+r"(tap), [weights] "+r"(weights), [left] "+r"(left), [to] "+r"(to)                  \
                         : [at] "r"(at), [step] "r"(k->step), [weights_ld] "r"(k->weights_ld), [init] "r"(k->init),    \
                           [sums_ld] "r"(k->sums_ld)                                                                   \
                         : DW_ASM_CHANGED);                                                                            \
    }
DW_ROWS(1)
DW_ROWS(4)
DW_ROWS(8)

/* Any taps; the last pixels once more where fewer are left than go together. */
static inline void dw_row(const dw_columns *k, int pixels, char *to)
{
    int p = 0;
    for (; p + 8 <= pixels; p += 8) dw_pixels_8(k, p, to);
    if (p == pixels) return;
    if (pixels - p > 4 && pixels >= 8)
        dw_pixels_8(k, pixels - 8, to);
    else if (pixels >= 4)
        for (; p < pixels; p += 4) dw_pixels_4(k, p + 4 <= pixels ? p : pixels - 4, to);
    else
        for (; p < pixels; p++) dw_pixels_1(k, p, to);
}

/* 3x3: v16-v24 weights, v0-v2 a column, v25-v30 sums of the three pixels that read it: of one as its last, middle and first. */
#define DW_LOAD_COLUMN                                                                                                 \
    "ld1 {v0.8h}, [%[row0]], %[step]\n"                                                                                \
    "ld1 {v1.8h}, [%[row1]], %[step]\n"                                                                                \
    "ld1 {v2.8h}, [%[row2]], %[step]\n"
#define DW_COLUMN_OF(s0, s1, w0, w1, w2) DW_ASM_ADD(s0, s1, 0, w0) DW_ASM_ADD(s0, s1, 1, w1) DW_ASM_ADD(s0, s1, 2, w2)
#define DW_FIRST(s0, s1) DW_ASM_BEGIN(0, s0, s1) DW_COLUMN_OF(s0, s1, 16, 19, 22)
#define DW_MIDDLE(s0, s1) DW_COLUMN_OF(s0, s1, 17, 20, 23)
#define DW_LAST(s0, s1) DW_COLUMN_OF(s0, s1, 18, 21, 24) DW_ASM_END(0, s0, s1)
#define DW_PIXEL(l0, l1, m0, m1, f0, f1)                                                                               \
    DW_LOAD_COLUMN DW_MIDDLE(m0, m1) DW_LAST(l0, l1) DW_FIRST(f0, f1)
#define DW_WEIGHT(v) "ld1 {v" #v ".8h}, [%[weights]], %[weights_ld]\n"
static inline void dw_row_3x3(const dw_columns *k, int pixels, char *to)
{
    const char *row0 = k->from + k->tap[0], *row1 = k->from + k->tap[3], *row2 = k->from + k->tap[6];
    const int16_t *weights = k->weights;
    __asm__ volatile(DW_WEIGHT(16) DW_WEIGHT(17) DW_WEIGHT(18) DW_WEIGHT(19) DW_WEIGHT(20) DW_WEIGHT(21) DW_WEIGHT(22)
                     DW_WEIGHT(23) DW_WEIGHT(24)
                     DW_LOAD_COLUMN DW_FIRST(25, 26)
                     DW_LOAD_COLUMN DW_MIDDLE(25, 26) DW_FIRST(27, 28)
                     "subs %w[left], %w[left], #3\n"
                     "b.lt 2f\n"
                     "1:\n"
                     DW_PIXEL(25, 26, 27, 28, 29, 30) DW_PIXEL(27, 28, 29, 30, 25, 26) DW_PIXEL(29, 30, 25, 26, 27, 28)
                     "subs %w[left], %w[left], #3\n"
                     "b.ge 1b\n"
                     "2: adds %w[left], %w[left], #3\n"
                     "b.eq 3f\n" DW_PIXEL(25, 26, 27, 28, 29, 30)
                     "subs %w[left], %w[left], #1\n"
                     "b.eq 3f\n" DW_PIXEL(27, 28, 29, 30, 25, 26)
                     "3:\n"
                     : [row0] "+r"(row0), [row1] "+r"(row1), [row2] "+r"(row2), [weights] "+r"(weights),
                       [left] "+r"(pixels), [to] "+r"(to)
                     : [step] "r"(k->step), [weights_ld] "r"(k->weights_ld), [init] "r"(k->init),
                       [sums_ld] "r"(k->sums_ld)
                     : DW_ASM_CHANGED);
}

static void depthwise_s16(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,
                          const void *w, const void *init, void *acc)
{
    ptrdiff_t pixel_step = (ptrdiff_t)step;
    /* Pixels beside each other, whose filters are equal, are as many pixels of fewer channels. */
    const ptrdiff_t column = taps > 1 ? tap[1] - tap[0] : 0;
    const int interleave = column > 0 && pixel_step == (ptrdiff_t)channels * 2 ? (int)(pixel_step / column) : 1;
    const ptrdiff_t weights_ld = (ptrdiff_t)channels * 2;
    if (interleave > 1 && interleave * column == pixel_step && column % 16 == 0)
        channels /= interleave, pixels *= interleave, pixel_step = column;
    const int shared = taps == 9 && column == pixel_step && tap[2] - tap[1] == pixel_step;
    for (int c = 0; c < channels; c += 8) {
        const dw_columns k = {.from = a + (size_t)c * 2,
                              .tap = tap,
                              .taps = taps,
                              .weights = (const int16_t *)w + c,
                              .init = (const int32_t *)init + c,
                              .step = pixel_step,
                              .weights_ld = weights_ld,
                              .sums_ld = (ptrdiff_t)channels * 4};
        (shared ? dw_row_3x3 : dw_row)(&k, pixels, (char *)acc + (size_t)c * 4);
    }
}
#endif
