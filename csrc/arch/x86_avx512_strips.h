/* SPDX-License-Identifier: MIT */
/* mp_depthwise.lines of codes with VNNI, 3x3 at stride 1, of 8, 16 or 32 channels: interleaved pixels lie in memory as one of 64
 * channels would. The columns of each strip of 64 codes are made once, as in x86_avx512_columns.h; what a tap further right meets lies
 * as many lanes further as there are channels. */
#ifndef MP_X86_AVX512_STRIPS_H
#define MP_X86_AVX512_STRIPS_H
#include "x86_avx512_columns.h"

enum { STRIP = COLUMNS_CHANNELS };
typedef struct {
    const char *line[3]; /* NULL: outside */
    ptrdiff_t bytes;     /* of a line */
    vi outside;          /* the real 0 */
} strip_lines;

/* Which of a strip's codes, from `at` on, are among so many. */
static inline __mmask64 strip_inside(ptrdiff_t at, ptrdiff_t count)
{
    const __mmask64 up_to = count <= at ? 0 : vb_first(count - at < STRIP ? (int)(count - at) : STRIP);
    return at < 0 ? up_to & ~(((__mmask64)1 << -at) - 1) : up_to;
}
static inline vi strip_codes(const strip_lines *from, int k, ptrdiff_t at)
{
    if (!from->line[k]) return from->outside;
    const vi flip = _mm512_set1_epi8(-128);
    const vi codes = at >= 0 && at + STRIP <= from->bytes
                         ? _mm512_loadu_si512(from->line[k] + at)
                         : _mm512_mask_loadu_epi8(_mm512_xor_si512(from->outside, flip), strip_inside(at, from->bytes),
                                                  from->line[k] + at);
    return v_transpose(_mm512_xor_si512(codes, flip));
}
#define STRIP_COLUMNS(AT, c0, c1, c2, c3)                                                                              \
    {                                                                                                                  \
        const vi a = strip_codes(&lines, 0, AT), b = strip_codes(&lines, 1, AT), c = strip_codes(&lines, 2, AT);       \
        const vi ab = _mm512_unpacklo_epi8(a, b), cc = _mm512_unpacklo_epi8(c, c);                                     \
        const vi ab_high = _mm512_unpackhi_epi8(a, b), cc_high = _mm512_unpackhi_epi8(c, c);                           \
        c0 = _mm512_unpacklo_epi16(ab, cc), c1 = _mm512_unpackhi_epi16(ab, cc);                                        \
        c2 = _mm512_unpacklo_epi16(ab_high, cc_high), c3 = _mm512_unpackhi_epi16(ab_high, cc_high);                    \
    }
/* Of the even or odd vectors of a strip; a table's values, `step` vectors behind the first. */
#define STRIP_VALUES(from, step, odd)                                                                                  \
    strip_values((const char *)(from) + (step) * sizeof(vi) + (CHANNELS > VL ? odd * sizeof(vi) : 0), CHANNELS)
static inline vi strip_values(const char *p, const int channels)
{
    const vi values = _mm512_loadu_si512(p);
    return channels < VL ? _mm512_shuffle_i64x2(values, values, 0x44) : values; /* of half a vector twice */
}
#define STRIP_CHANNELS(odd)                                                                                            \
    const vi left##odd = STRIP_VALUES(row->weights, 0, odd), centre##odd = STRIP_VALUES(row->weights, 4, odd),         \
             right##odd = STRIP_VALUES(row->weights, 8, odd), init##odd = STRIP_VALUES(row->init, 0, odd);             \
    const vf scale##odd = _mm512_castsi512_ps(STRIP_VALUES(o->scale, 0, odd)),                                         \
             bias##odd = _mm512_castsi512_ps(STRIP_VALUES(o->bias, 0, odd));
/* c0: the vector's own columns; c1, c2, c4: those so many vectors further. */
#define STRIP_RESULT(v, odd, c0, c1, c2, c4)                                                                           \
    vf y0##v;                                                                                                          \
    {                                                                                                                  \
        const vi second = CHANNELS > VL    ? c2                                                                        \
                          : CHANNELS == VL ? c1                                                                        \
                                           : _mm512_alignr_epi32(c1, c0, VL / 2),                                      \
                 third = CHANNELS > VL    ? c4                                                                         \
                         : CHANNELS == VL ? c2                                                                         \
                                          : c1;                                                                        \
        const vi sum = vi_dot8(vi_dot8(vi_dot8(init##odd, c0, left##odd), second, centre##odd), third, right##odd);    \
        y0##v = scaled(sum, scale##odd, bias##odd);                                                                    \
    }
#define STRIP_CASE(ACTIVATION) COLUMNS_VECTORS(COLUMNS_ACTIVATE, 0, ACTIVATION) break;

static inline __attribute__((always_inline)) void strips_of(const mp_depthwise_row *row, const int CHANNELS)
{
    enum { VECTORS = 4, out_row = 0 };
    mp_output *const o = row->output;
    const ptrdiff_t count = (ptrdiff_t)row->pixels * CHANNELS, before = (ptrdiff_t)row->padding * CHANNELS;
    strip_lines lines = {.bytes = (ptrdiff_t)row->width * CHANNELS,
                         .outside = _mm512_set1_epi8((char)(row->zero_point ^ -128))};
    for (int k = 0; k < 3; k++) lines.line[k] = row->step[k] ? row->line[k] : 0;
    const size_t bytes = columns_bytes(row);
    const out_scale q = out_scale_of(o);
    const vi zero = zero_words(o);
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);
    columns_block kept, *const block = &kept;
    STRIP_CHANNELS(0)
    STRIP_CHANNELS(1)
    vi c0, c1, c2, c3;
    STRIP_COLUMNS(-before, c0, c1, c2, c3)
    for (ptrdiff_t at = 0; at < count; at += STRIP) {
        vi c4, c5, c6, c7;
        STRIP_COLUMNS(at + STRIP - before, c4, c5, c6, c7)
        STRIP_RESULT(0, 0, c0, c1, c2, c4)
        STRIP_RESULT(1, 1, c1, c2, c3, c5)
        STRIP_RESULT(2, 0, c2, c3, c4, c6)
        STRIP_RESULT(3, 1, c3, c4, c5, c7)
        switch (o->activation) {
        case MP_LINEAR: break;
        case MP_LEAKY: STRIP_CASE(MP_LEAKY)
        case MP_RELU: STRIP_CASE(MP_RELU)
        default: STRIP_CASE(MP_RELU6)
        }
        kept.kept = strip_inside(at, count);
        char *const out = row->out + (size_t)at * bytes;
        if (o->packs) {
            COLUMNS_CODES(0)
        } else {
            COLUMNS_STORE_ALL(0)
        }
        c0 = c4, c1 = c5, c2 = c6, c3 = c7;
    }
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
}
static __attribute__((noinline)) void strips_8(const mp_depthwise_row *row) { strips_of(row, 8); }
static __attribute__((noinline)) void strips_16(const mp_depthwise_row *row) { strips_of(row, 16); }
static __attribute__((noinline)) void strips_32(const mp_depthwise_row *row) { strips_of(row, 32); }

/* Whether it did them. */
static int strips(const mp_depthwise_row *row)
{
    const size_t channels = (size_t)row->channels;
    if (row->size != 3 || row->stride > 1 || row->out_ld != channels || !row->output) return 0;
    switch (channels) {
    case VL / 2: strips_8(row); return 1;
    case VL: strips_16(row); return 1;
    case 2 * VL: strips_32(row); return 1;
    default: return 0;
    }
}
static int depthwise_codes(const mp_depthwise_row *row)
{
    if (row->output && !columns_finish(row->output)) return 0;
    if (!strips(row)) columns(row);
    return 1;
}
#endif
