/* SPDX-License-Identifier: MIT */
/* mp_depthwise.lines of codes with VNNI: the codes of a column of taps stand in the bytes of a lane, four lines at a time, and one
 * instruction multiplies them. Up to 64 channels at once, which are one load of each line, and four results beside each other, which
 * share what they load; the last four of a row begin early where they would not be full. */
#ifndef MP_X86_AVX512_COLUMNS_H
#define MP_X86_AVX512_COLUMNS_H

enum { COLUMNS_CHANNELS = 4 * VL, COLUMNS_RESULTS = 4 };

/* acc + the products of unsigned by signed bytes, which stand so many vectors behind `weights`. Not as a memory operand: gcc then gives
 * many of them an address of their own, for which there are not registers enough. */
#define COLUMNS_DOT_BY(acc, x, weights, vectors)                                                                       \
    __asm__("vpdpbusd %c3(%2), %1, %0" : "+v"(acc) : "v"(x), "r"(weights), "i"((vectors) * sizeof(vi)))

typedef struct {
    const char *from[MP_MOST_LINES]; /* column 0, of the block's first channel */
    const char *weights;
    __mmask64 kept;  /* of the block's channels */
    int left, right; /* columns before, and from, are outside */
    vi outside;      /* the real 0 */
} columns_block;

/* 64 codes, unsigned, so that interleaving in lanes of 128 bits leaves channels in order. */
static inline vi columns_codes(const columns_block *block, const char *p, const int full)
{
    const vi codes = full ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(block->kept, p);
    return v_transpose(_mm512_xor_si512(codes, _mm512_set1_epi8(-128)));
}

#define COLUMNS_VECTORS(M, ...) M(0, __VA_ARGS__) M(1, __VA_ARGS__) M(2, __VA_ARGS__) M(3, __VA_ARGS__)
#define COLUMNS_OF(M) M(0) M(1) M(2) M(3)
#define COLUMNS_ALL(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10)
#define COLUMNS_DOT(v, i, j)                                                                                           \
    if (v < VECTORS) COLUMNS_DOT_BY(s##i##v, x##v, w, j < i * STRIDE ? 0 : (j - i * STRIDE) * 4 + v);
/* Column j meets tap j - i * stride of result i. */
#define COLUMNS_TAP(i, j)                                                                                              \
    if (j >= i * STRIDE && j < i * STRIDE + SIZE) {                                                                    \
        COLUMNS_VECTORS(COLUMNS_DOT, i, j)                                                                             \
    }
/* What stands in the bytes of lines that there are not meets weights that are 0. */
#define COLUMNS_COLUMN(j)                                                                                              \
    if (j < WIDTH) {                                                                                                   \
        vi x0 = block->outside, x1 = x0, x2 = x0, x3 = x0;                                                             \
        if (!EDGE || (j >= block->left && j < block->right)) {                                                         \
            const vi a = columns_codes(block, block->from[FIRST] + j * step[0], FULL);                                 \
            const vi b = LINES > 1 ? columns_codes(block, block->from[FIRST + 1] + j * step[1], FULL) : a;             \
            const vi c = LINES > 1 ? columns_codes(block, block->from[FIRST + 2] + j * step[2], FULL) : a;             \
            const vi d = LINES > 3 ? columns_codes(block, block->from[FIRST + 3] + j * step[3], FULL) : c;             \
            const vi ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);                                 \
            x0 = _mm512_unpacklo_epi16(ab, cd);                                                                        \
            if (VECTORS > 1) x1 = _mm512_unpackhi_epi16(ab, cd);                                                       \
            if (VECTORS > 2) {                                                                                         \
                const vi ab_high = _mm512_unpackhi_epi8(a, b), cd_high = _mm512_unpackhi_epi8(c, d);                   \
                x2 = _mm512_unpacklo_epi16(ab_high, cd_high);                                                          \
                if (VECTORS > 3) x3 = _mm512_unpackhi_epi16(ab_high, cd_high);                                         \
            }                                                                                                          \
        }                                                                                                              \
        COLUMNS_TAP(0, j)                                                                                              \
        COLUMNS_TAP(1, j) COLUMNS_TAP(2, j) COLUMNS_TAP(3, j)                                                          \
    }
/* Lines FIRST and so many more. */
#define COLUMNS_LINES(FIRST_LINE, COUNT)                                                                               \
    {                                                                                                                  \
        enum { FIRST = FIRST_LINE, LINES = COUNT };                                                                    \
        const size_t *const step = row->step + FIRST;                                                                  \
        const char *const w = block->weights + (FIRST / 4) * SIZE * 4 * sizeof(vi);                                    \
        COLUMNS_ALL(COLUMNS_COLUMN)                                                                                    \
    }
#define COLUMNS_BEGIN(i) vi s##i##0 = first0, s##i##1 = first1, s##i##2 = first2, s##i##3 = first3;
#define COLUMNS_FIRST(v) const vi first##v = vi_load(init + (v < VECTORS ? v * VL : 0));
#define COLUMNS_KEEP(v, i)                                                                                             \
    if (v < VECTORS)                                                                                                   \
        _mm512_mask_storeu_epi32(out + i * out_row + v * sizeof(vi), (__mmask16)(block->kept >> v * VL), s##i##v);
#define COLUMNS_KEEP_ALL(i) COLUMNS_VECTORS(COLUMNS_KEEP, i)
#define COLUMNS_REAL(v, i)                                                                                             \
    vf y##i##v =                                                                                                       \
        scaled(s##i##v, vf_load(scale + (v < VECTORS ? v * VL : 0)), vf_load(bias + (v < VECTORS ? v * VL : 0)));
#define COLUMNS_REAL_ALL(i) COLUMNS_VECTORS(COLUMNS_REAL, i)
#define COLUMNS_ACTIVATE(v, i, ACTIVATION) y##i##v = vf_activate(y##i##v, ACTIVATION);
#define COLUMNS_CODES(i)                                                                                               \
    {                                                                                                                  \
        const vi words01 = v_words(finished_code(&q, y##i##0, 2), finished_code(&q, y##i##1, 2), zero),                \
                 words23 = VECTORS > 2 ? v_words(finished_code(&q, y##i##2, 2), finished_code(&q, y##i##3, 2), zero)   \
                                       : words01;                                                                      \
        _mm512_mask_storeu_epi8(out + i * out_row, block->kept, v_rows_s8(words01, words23));                          \
    }
#define COLUMNS_STORE(v, i)                                                                                            \
    if (v < VECTORS) {                                                                                                 \
        const __mmask16 kept = (__mmask16)(block->kept >> v * VL);                                                     \
        if (o->measured) {                                                                                             \
            const vf measured =                                                                                        \
                _mm512_mask_mov_ps(_mm512_broadcastss_ps(_mm512_castps512_ps128(y##i##0)), kept, y##i##v);             \
            minimum = vf_min_any(measured, minimum);                                                                   \
            maximum = vf_max_any(measured, maximum);                                                                   \
        }                                                                                                              \
        _mm512_mask_storeu_ps(out + i * out_row + v * sizeof(vf), kept, y##i##v);                                      \
    }
#define COLUMNS_STORE_ALL(i) COLUMNS_VECTORS(COLUMNS_STORE, i)
#define COLUMNS_CASE(ACTIVATION)                                                                                       \
    COLUMNS_VECTORS(COLUMNS_ACTIVATE, 0, ACTIVATION)                                                                   \
    COLUMNS_VECTORS(COLUMNS_ACTIVATE, 1, ACTIVATION)                                                                   \
    COLUMNS_VECTORS(COLUMNS_ACTIVATE, 2, ACTIVATION) COLUMNS_VECTORS(COLUMNS_ACTIVATE, 3, ACTIVATION) break;

/* Four results; out: the first's, at the block's first channel c. */
static inline __attribute__((always_inline)) void columns_results(const mp_depthwise_row *row,
                                                                  const columns_block *block, int c, char *out,
                                                                  size_t out_row, const int SIZE, const int STRIDE,
                                                                  const int VECTORS, const int FULL, const int EDGE)
{
    const int WIDTH = (COLUMNS_RESULTS - 1) * STRIDE + SIZE;
    const int32_t *init = (const int32_t *)row->init + c;
    COLUMNS_OF(COLUMNS_FIRST)
    COLUMNS_OF(COLUMNS_BEGIN)
    if (SIZE == 3) {
        COLUMNS_LINES(0, 3)
    } else {
        COLUMNS_LINES(0, 4)
        COLUMNS_LINES(4, 1)
    }
    mp_output *o = row->output;
    if (!o) {
        COLUMNS_OF(COLUMNS_KEEP_ALL)
        return;
    }
    const float *scale = o->scale + c, *bias = o->bias + c;
    COLUMNS_OF(COLUMNS_REAL_ALL)
    switch (o->activation) {
    case MP_LINEAR: break;
    case MP_LEAKY: COLUMNS_CASE(MP_LEAKY)
    case MP_RELU: COLUMNS_CASE(MP_RELU)
    default: COLUMNS_CASE(MP_RELU6)
    }
    if (o->packs) {
        const out_scale q = out_scale_of(o);
        const vi zero = zero_words(o);
        COLUMNS_OF(COLUMNS_CODES)
        return;
    }
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);
    COLUMNS_OF(COLUMNS_STORE_ALL)
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
}

/* Of a channel's weights. */
#define COLUMN_BYTES(SIZE) ((SIZE + 3) / 4 * SIZE * 4)
static inline size_t columns_bytes(const mp_depthwise_row *row)
{
    return !row->output || row->output->out_type == MP_TYPE_F32 ? 4 : 1;
}
#define COLUMNS_ROW(SIZE, STRIDE, VECTORS)                                                                             \
    static __attribute__((noinline)) void columns_##SIZE##_##STRIDE##_##VECTORS(const mp_depthwise_row *row, int c)    \
    {                                                                                                                  \
        const size_t bytes = columns_bytes(row), out_row = row->out_ld * bytes;                                        \
        const int rest = row->channels - c < VECTORS * VL ? row->channels - c : VECTORS * VL;                          \
        columns_block block = {.weights = (const char *)row->weights + (size_t)c * COLUMN_BYTES(SIZE),                 \
                               .kept = rest < COLUMNS_CHANNELS ? ((__mmask64)1 << rest) - 1 : ~(__mmask64)0,           \
                               .outside = _mm512_set1_epi8((char)(row->zero_point ^ -128))};                           \
        for (int x = 0; x < row->pixels; x += COLUMNS_RESULTS) {                                                       \
            if (x + COLUMNS_RESULTS > row->pixels) x = row->pixels - COLUMNS_RESULTS;                                  \
            const int column = x * STRIDE - row->padding;                                                              \
            for (int k = 0; k < SIZE; k++) block.from[k] = row->line[k] + column * (ptrdiff_t)row->step[k] + c;        \
            block.left = -column;                                                                                      \
            block.right = row->width - column;                                                                         \
            char *const out = row->out + (size_t)x * out_row + c * bytes;                                              \
            if (block.left > 0 || block.right < (COLUMNS_RESULTS - 1) * STRIDE + SIZE)                                 \
                columns_results(row, &block, c, out, out_row, SIZE, STRIDE, VECTORS, 0, 1);                            \
            else if (VECTORS == 4 && rest == COLUMNS_CHANNELS)                                                         \
                columns_results(row, &block, c, out, out_row, SIZE, STRIDE, VECTORS, 1, 0);                            \
            else                                                                                                       \
                columns_results(row, &block, c, out, out_row, SIZE, STRIDE, VECTORS, 0, 0);                            \
        }                                                                                                              \
    }
#define COLUMNS_ROWS(SIZE, STRIDE)                                                                                     \
    COLUMNS_ROW(SIZE, STRIDE, 1)                                                                                       \
    COLUMNS_ROW(SIZE, STRIDE, 2)                                                                                       \
    COLUMNS_ROW(SIZE, STRIDE, 3)                                                                                       \
    COLUMNS_ROW(SIZE, STRIDE, 4)                                                                                       \
    static void columns_##SIZE##_##STRIDE(const mp_depthwise_row *row)                                                 \
    {                                                                                                                  \
        int c = 0;                                                                                                     \
        for (; c + COLUMNS_CHANNELS <= row->channels; c += COLUMNS_CHANNELS) columns_##SIZE##_##STRIDE##_4(row, c);    \
        switch ((row->channels - c + VL - 1) / VL) {                                                                   \
        case 1: columns_##SIZE##_##STRIDE##_1(row, c); break;                                                          \
        case 2: columns_##SIZE##_##STRIDE##_2(row, c); break;                                                          \
        case 3: columns_##SIZE##_##STRIDE##_3(row, c); break;                                                          \
        case 4: columns_##SIZE##_##STRIDE##_4(row, c); break;                                                          \
        }                                                                                                              \
    }
COLUMNS_ROWS(3, 1)
COLUMNS_ROWS(3, 2)
COLUMNS_ROWS(5, 1)
COLUMNS_ROWS(5, 2)
static inline int columns_finish(const mp_output *o)
{
    return finishes_vectors(o) && never_falls(o->activation) && (o->out_type == MP_TYPE_F32 || o->packs);
}
static void columns(const mp_depthwise_row *row)
{
    if (row->size == 3)
        (row->stride == 1 ? columns_3_1 : columns_3_2)(row);
    else
        (row->stride == 1 ? columns_5_1 : columns_5_2)(row);
}
#endif
