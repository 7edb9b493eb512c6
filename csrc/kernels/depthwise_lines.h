/* SPDX-License-Identifier: MIT */
/* Depthwise rows of 3x3 and 5x5 from the input's own lines, with their output stage where there is one: mp_depthwise.lines.
 * Seven or four results beside each other share what they load, and channels follow each other, so that lines are read as they
 * lie. The last group of a row begins early where it would not be full: it computes some results once more.
 *
 * Included once per kind of sums: floats, or with LINES_INT integers: codes, two lines at a time (mp_depthwise.pair). Sums are
 * named, not an array: gcc spills arrays. */
#ifdef LINES_INT
#define LINES_NAME(NAME) NAME##_codes
#define LINES_SUM vi
#define LINES_VALUE vi
#define LINES_BYTES 1
#define LINES_PARTS (SIZE / 2 + 1)
#define LINES_LINES(M) M(0) M(1) M(2)
#define LINES_ZERO zero_point
#define LINES_LOAD vi_load
#define LINES_WEIGHT int32_t
/* One sum after the other: gcc adds what it may add in any order in trees, for which there are not registers enough. */
#define LINES_MAC(i, x, w)                                                                                             \
    s##i = vi_dot16(s##i, x, w);                                                                                       \
    __asm__("" : "+v"(s##i));
#define LINES_REAL(i) scaled(s##i, scale, bias)
#define LINES_KEEP_SUM(p, s) vi_store(p, s);
#define LINES_READ(j) vi_pair_s8(upper + j * step, lower + j * below)
#else
#define LINES_NAME(NAME) NAME##_reals
#define LINES_SUM vf
#define LINES_VALUE vf
#define LINES_BYTES 4
#define LINES_PARTS SIZE
#define LINES_LINES(M) M(0) M(1) M(2) M(3) M(4)
#define LINES_ZERO vf_set1(0.0f)
#define LINES_LOAD(p) vf_load((const float *)(p))
#define LINES_WEIGHT float
#define LINES_MAC(i, x, w) s##i = vf_fma(x, w, s##i);
#define LINES_REAL(i) s##i
#define LINES_KEEP_SUM(p, s) store_as(p, 0, MP_TYPE_F32, s, lanes);
#define LINES_READ(j) LINES_PART_OF(vf_load, (const float *)(upper + j * step))
#endif
/* The last vector may be a part where a level loads and stores parts as quickly: then all do. */
#ifdef MP_PARTIAL_VECTORS
#define LINES_PART_OF(F, ...) F##_n(__VA_ARGS__, lanes)
#else
#define LINES_PART_OF(F, ...) F(__VA_ARGS__)
#endif
#define LINES_SEVEN(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6)
#define LINES_COLUMNS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16)
/* Column j meets tap j - i * stride of result i. */
#define LINES_TAP(i, j)                                                                                                \
    if (COUNT > i && j >= i * STRIDE && j < i * STRIDE + SIZE) {                                                       \
        LINES_MAC(i, x, LINES_LOAD(w + (j - i * STRIDE) * row->weights_ld))                                            \
    }
/* Outside of the line are zeros, which are multiplied as well: 0 * w may change the sign of a sum that is -0. */
#define LINES_COLUMN(j)                                                                                                \
    if (j < WIDTH) {                                                                                                   \
        const int outside = (j < SIZE / 2 && j < left) || (j >= WIDTH - SIZE / 2 && j >= right);                       \
        const LINES_VALUE x = outside ? LINES_ZERO : LINES_READ(j);                                                    \
        LINES_TAP(0, j)                                                                                                \
        LINES_TAP(1, j) LINES_TAP(2, j) LINES_TAP(3, j) LINES_TAP(4, j) LINES_TAP(5, j) LINES_TAP(6, j)                \
    }
/* A line, or two; the last has none below itself, and weights that are 0 for it. */
#define LINES_PART(k)                                                                                                  \
    if (k < LINES_PARTS) {                                                                                             \
        const int first_line = LINES_BYTES == 1 ? 2 * k : k,                                                           \
                  next = first_line + 1 < SIZE ? first_line + 1 : first_line;                                          \
        const ptrdiff_t step = (ptrdiff_t)row->step[first_line], below = (ptrdiff_t)row->step[next];                   \
        const char *upper = from[first_line] + c * LINES_BYTES, *lower = from[next] + c * LINES_BYTES;                 \
        const LINES_WEIGHT *w = (const LINES_WEIGHT *)row->weights + k * SIZE * row->weights_ld + c;                   \
        (void)lower, (void)below;                                                                                      \
        LINES_COLUMNS(LINES_COLUMN)                                                                                    \
    }
#define LINES_BEGIN(i) LINES_SUM s##i = first;
#define LINES_KEEP(i)                                                                                                  \
    if (COUNT > i) LINES_KEEP_SUM(out + c * 4 + i * out_row, s##i)
#define LINES_RESULT(i) vf x##i = LINES_REAL(i);
#define LINES_CHECK(i)                                                                                                 \
    if (COUNT > i) measures->bad[i & 1] = note_bad(measures->bad[i & 1], x##i);
#define LINES_ACTIVATE(i, ACTIVATION)                                                                                  \
    if (COUNT > i) x##i = activated_here(x##i, ACTIVATION, ACTIVATION);
#define LINES_CASE(A)                                                                                                  \
    LINES_ACTIVATE(0, A)                                                                                               \
    LINES_ACTIVATE(1, A)                                                                                               \
    LINES_ACTIVATE(2, A) LINES_ACTIVATE(3, A) LINES_ACTIVATE(4, A) LINES_ACTIVATE(5, A) LINES_ACTIVATE(6, A) break;
#define LINES_MEASURE(i)                                                                                               \
    if (COUNT > i) {                                                                                                   \
        const vf measured##i = lanes == VL ? x##i : vf_keep_n(x##i, lanes);                                            \
        measures->minimum = vf_min_any(measured##i, measures->minimum);                                                \
        measures->maximum = vf_max_any(measured##i, measures->maximum);                                                \
    }
#define LINES_STORE(i)                                                                                                 \
    if (COUNT > i) store_as(out + i * out_row, (size_t)c, MP_TYPE_F32, x##i, lanes);
#define LINES_STORE_FP16(i)                                                                                            \
    if (COUNT > i)                                                                                                     \
        measures->bad[i & 1] = store_real(out + i * out_row, (size_t)c, MP_TYPE_F16, x##i, lanes, measures->bad[i & 1]);
#ifdef VI_PACKS_FOUR
#define LINES_FOUR(a, b, d, e, CODES)                                                                                  \
    vi_pack_four_s8((int8_t *)out + c + a * out_row, out_row, finished_code(&q, x##a, CODES),                          \
                    finished_code(&q, x##b, CODES), finished_code(&q, x##d, CODES), finished_code(&q, x##e, CODES),    \
                    zero);
#define LINES_CODES(CODES)                                                                                             \
    LINES_FOUR(0, 1, 2, 3, CODES)                                                                                      \
    if (COUNT > 4) LINES_FOUR(3, 4, 5, 6, CODES)
#else
#define LINES_CODE(i)                                                                                                  \
    if (COUNT > i) vi_store_s8((int8_t *)out + c + i * out_row, code_of(&q, x##i));
#define LINES_CODES(CODES) LINES_SEVEN(LINES_CODE)
#endif

#ifndef LINES_INT
typedef struct {
    vf minimum, maximum, bad[2];
} lines_measures;
#endif

/* COUNT results from x on. */
static inline __attribute__((always_inline)) void LINES_NAME(lines_group)(const mp_depthwise_row *row, const int SIZE,
                                                                          const int STRIDE, const int COUNT, int x,
                                                                          lines_measures *measures)
{
    const int WIDTH = (COUNT - 1) * STRIDE + SIZE, column = x * STRIDE - row->padding, left = -column,
              right = row->width - column;
    const char *from[MP_MOST_LINES];
    for (int k = 0; k < SIZE; k++) from[k] = row->line[k] + column * (ptrdiff_t)row->step[k];
    mp_output *o = row->output;
    const size_t out_row = row->out_ld * (o ? mp_type_bytes(o->out_type) : 4);
    char *out = row->out + (size_t)x * out_row;
#ifdef LINES_INT
    const vi zero_point = vi_set1((row->zero_point & 0xffff) | (int32_t)((uint32_t)row->zero_point << 16));
    static const mp_output none;
    const out_scale q = out_scale_of(o ? o : &none);
#ifdef VI_PACKS_FOUR
    const vi zero = zero_words(o ? o : &none);
#endif
#endif
    for (int c = 0; c < row->channels; c += VL) {
#if defined MP_PARTIAL_VECTORS && !defined LINES_INT
        const int lanes = row->channels - c < VL ? row->channels - c : VL;
#else
        const int lanes = VL;
#endif
        const LINES_SUM first = LINES_LOAD((const char *)row->init + c * 4);
        LINES_SEVEN(LINES_BEGIN)
        LINES_LINES(LINES_PART)
        if (!o) {
            LINES_SEVEN(LINES_KEEP)
            continue;
        }
#ifdef LINES_INT
        const vf scale = vf_load(o->scale + c), bias = vf_load(o->bias + c);
#endif
        LINES_SEVEN(LINES_RESULT)
#ifndef LINES_INT
        LINES_SEVEN(LINES_CHECK)
#endif
        /* Asked of each group: a copy of the products for each would be some 50 kB more. */
        switch (o->activation) {
        case MP_LINEAR: break;
        case MP_LEAKY: LINES_CASE(MP_LEAKY)
        case MP_RELU: LINES_CASE(MP_RELU)
        case MP_HARD_SWISH: LINES_CASE(MP_HARD_SWISH)
        case MP_SWISH: LINES_CASE(MP_SWISH)
        default: LINES_CASE(MP_RELU6)
        }
        if (o->measured) {
            LINES_SEVEN(LINES_MEASURE)
        }
#ifdef LINES_INT
        if (o->out_type == MP_TYPE_I8) {
            if (o->packs) {
                LINES_CODES(2)
            } else {
                LINES_CODES(1)
            }
            continue;
        }
#else
        if (o->out_type == MP_TYPE_F16) {
            LINES_SEVEN(LINES_STORE_FP16)
            continue;
        }
#endif
        LINES_SEVEN(LINES_STORE)
    }
}

static inline __attribute__((always_inline)) void LINES_NAME(lines_row)(const mp_depthwise_row *row, const int size,
                                                                        const int stride)
{
    mp_output *o = row->output;
    lines_measures measures = {vf_set1(0.0f), vf_set1(0.0f), {vf_set1(0.0f), vf_set1(0.0f)}};
    if (o) measures = (lines_measures){vf_load(o->minimum), vf_load(o->maximum), {vf_load(o->bad), vf_set1(0.0f)}};
    for (int x = 0, count; x < row->pixels; x += count) {
        const int rest = row->pixels - x;
        count = rest > 4 && row->pixels >= 7 ? 7 : 4;
        if (rest < count) x = row->pixels - count;
        if (count == 7)
            LINES_NAME(lines_group)(row, size, stride, 7, x, &measures);
        else
            LINES_NAME(lines_group)(row, size, stride, 4, x, &measures);
    }
    if (!o) return;
    vf_store(o->minimum, measures.minimum);
    vf_store(o->maximum, measures.maximum);
    vf_store(o->bad, vf_add(measures.bad[0], measures.bad[1]));
}

#define LINES_ROW(SIZE, STRIDE)                                                                                        \
    static __attribute__((noinline)) void LINES_NAME(lines_##SIZE##_##STRIDE)(const mp_depthwise_row *row)             \
    {                                                                                                                  \
        LINES_NAME(lines_row)(row, SIZE, STRIDE);                                                                      \
    }
LINES_ROW(3, 1)
LINES_ROW(3, 2)
LINES_ROW(5, 1)
LINES_ROW(5, 2)
static int LINES_NAME(depthwise_lines)(const mp_depthwise_row *row)
{
    if (row->output && !finishes_vectors(row->output)) return 0;
    if (row->size == 3)
        (row->stride == 1 ? LINES_NAME(lines_3_1) : LINES_NAME(lines_3_2))(row);
    else
        (row->stride == 1 ? LINES_NAME(lines_5_1) : LINES_NAME(lines_5_2))(row);
    return 1;
}
#undef LINES_NAME
#undef LINES_SUM
#undef LINES_VALUE
#undef LINES_BYTES
#undef LINES_PARTS
#undef LINES_LINES
#undef LINES_ZERO
#undef LINES_LOAD
#undef LINES_WEIGHT
#undef LINES_MAC
#undef LINES_REAL
#undef LINES_READ
#undef LINES_KEEP_SUM
#undef LINES_PART_OF
