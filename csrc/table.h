/* SPDX-License-Identifier: MIT */
/* What one ISA level provides: leaf kernels, each single-threaded, without allocation, on memory that its driver
 * prepared. Drivers (conv/, ops.c) are compiled once and know nothing of the ISA; leaf kernels know nothing of
 * threads, images or geometry. docs/adding-a-kernel.md walks through all of it. */
#ifndef MP_TABLE_H
#define MP_TABLE_H
#include "cpu.h"
#include "mpnet.h"
#include "types.h"

enum { MP_MAX_ROWS = 16, MP_MAX_UNIT = 5 * MP_MAX_ROWS, MP_MAX_LANES = 16 };

/* The output stage: sums -> float -> bias -> activation -> pooling -> range -> stored type. One per thread and image. */
typedef struct {
    int kind; /* enum mp_sum_kind */
    int activation, out_type, rounding;
    int windows;  /* 1: every four rows of sums are a 2x2 window, and become one of results: the largest */
    int measured; /* 0: nobody reads the range */
    int rising;   /* MP_SUM_INT: every result is finite, none is -0, and larger sums never give smaller results */
    int packs; /* 1: rising, and codes are clamped by packing alone: the range is int8's, and no rounded value leaves int32 */
    const float *bias;  /* per packed channel (panel * nr + j) */
    const float *scale; /* integer sums: in_scale * weight_scale, per packed channel */
    size_t lower;       /* MP_SUM_BYTE_PAIRS: from sums of upper bytes to those of lower ones, in elements */
    float inv_scale, low, high, zero_point; /* codes as output: clamp to [low, high] before adding zero_point */
    /* Running state, one value per lane. bad: 0 until something was not finite. */
    float minimum[MP_MAX_LANES], maximum[MP_MAX_LANES], bad[MP_MAX_LANES];
} mp_output;

/* Codes -> codes in integers, by a factor for what lies above the real 0 and one for what lies below. */
typedef struct {
    int32_t zero_point, out_zero_point;
    int32_t low, high; /* clamp to them before adding out_zero_point */
    int32_t multiplier[2], shift[2];
} mp_rescaling;
/* Of two terms and their sum. left: the shift of terms. */
typedef struct {
    int left;
    int32_t low, high, zero_point[3], multiplier[3], shift[3];
} mp_adding;
/* The output stage in integers (mp_conv_args.multiplier); channels count through all interleaved pixels. */
typedef struct {
    int wide;         /* 1: by the rule of 64 bits; */
    const void *bias; /* int32; or int64, times the factor, with half of what is shifted out */
    const int32_t *multiplier, *shift;
    size_t lower;           /* from sums of upper bytes to those of lower ones, in elements; 0: there are none */
    int windows;            /* as in mp_output */
    int32_t low, high, add; /* clamp to [low, high] before adding */
    int leaky;              /* 1: then `after` follows */
    mp_rescaling after;
    int out_type;
} mp_requantized;

enum mp_weight_type { MP_W_F32, MP_W_I16, MP_W_I8, MP_W_F16 };
static const uint8_t mp_weight_bytes[] = {[MP_W_F32] = 4, [MP_W_I16] = 2, [MP_W_I8] = 1, [MP_W_F16] = 2};

enum { MP_WINDOW_CHANNELS = 3, MP_LEAST_WINDOWS = 4 }; /* of first layers; in a row */

/* A row of 2x2 windows of a 3x3 convolution over MP_WINDOW_CHANNELS channels at stride 1: four staged rows -> pooled results. */
typedef struct {
    const char *staged;
    size_t stage_row; /* bytes */
    int windows;      /* at least MP_LEAST_WINDOWS */
    int steps;        /* of a kernel row, kstep deep each */
    const void *b, *init;
    int channels, channel; /* of a panel; its first packed one */
    char *out;
    size_t out_ld; /* elements */
} mp_window_row;

/* Tiles of a matrix unit: rows x channels of sums at once, of rows of pixels that lie evenly apart. */
enum { MP_MATRIX_ROWS = 16, MP_MATRIX_DEPTH = 64 };
typedef struct {
    int tiles;        /* one or two */
    const char *a[2]; /* their first pixels */
    ptrdiff_t row;    /* bytes from a pixel of a tile to the next */
    const ptrdiff_t *seg;
    int segments, run, step; /* run: whole steps */
    const void *b, *init;    /* as for mp_micro.tile */
    char *acc[2];            /* their sums, pixels acc_row bytes apart */
    ptrdiff_t acc_row;
    int channels;      /* those that need be computed */
    const char *ahead; /* memory worth fetching, ahead_step bytes further with every step */
    ptrdiff_t ahead_step;
} mp_matrix_block;
typedef struct {
    void (*begin)(int rows, int step); /* of tiles from here on: pixels, depth. For the calling thread, */
    void (*end)(void);                 /* which leaves nothing behind */
    void (*block)(const mp_matrix_block *block);
} mp_matrix;

/* Memory that results of `bytes` bytes will overwrite, `step` bytes apart: fetched while a tile multiplies, since the stores
 * of a panel, a few lines of each pixel, are what no hardware fetches ahead. */
static inline void mp_fetch_results(const char *out, int count, size_t step, size_t bytes)
{
    enum { LINE = 64 };
    for (; count > 0; count--, out += step) {
        __builtin_prefetch(out, 1, 3);
        if (bytes > LINE) __builtin_prefetch(out + LINE, 1, 3);
        __builtin_prefetch(out + bytes - 1, 1, 3);
    }
}

/* Full tiles beside each other in a panel, with their results; names as of mp_micro.tile. */
typedef struct {
    const char *const *a; /* tiles * mr */
    int tiles;
    const ptrdiff_t *seg;
    int segments, run;
    const void *b, *init;
    const char *acc; /* sums to continue from, where init is NULL */
    size_t acc_tile; /* bytes from a tile's to the next one's */
    const char *ahead;
    ptrdiff_t ahead_step, ahead_tile; /* with every step; from a tile's to the next one's */
    mp_output *output;
    int channel, channels; /* the panel's first, packed, and how many of its there are */
    char *out;             /* results of the first pixel, from `channel` on; */
    size_t out_ld;         /* elements from a pixel to the next, */
    size_t out_tile;       /* bytes from a tile to the next */
    int results;           /* of a tile: pixels; */
    size_t fetched_bytes;  /* and of one of them what is worth fetching before it is overwritten, 0: nothing */
} mp_tile_run;

/* Pixels that lie evenly apart, with their results; names as of mp_tile_run. */
enum { MP_LEAST_POINTS = 12 };
typedef struct {
    const char *a;
    size_t pixel; /* bytes from one to the next */
    int pixels;   /* at least MP_LEAST_POINTS */
    const ptrdiff_t *seg;
    int segments, steps; /* steps: ksteps of a segment */
    const char *b, *init;
    mp_output *output;
    int channel, channels;
    char *out;
    size_t out_ld;
} mp_points;

/* One way to compute tiles of `mr` output pixels x `nr` output channels. */
typedef struct mp_micro {
    int mr, nr;
    int kstep;       /* depth is consumed in steps of this many; a segment's rest meets zero weights */
    int steps;       /* and in so many steps at a time; 0: one */
    int a_bytes;     /* size of a staged activation */
    int weight_type; /* enum mp_weight_type: how packed weights are stored */
    int needs_stage; /* 0: input of whole steps without padding may be read in place */
    /* int8 only: the staged value is q - zero_point * subtracts_zero + bias_q; the driver starts sums so that they
     * come out as sum((q - zero_point) * w). */
    int subtracts_zero, bias_q;
    /* count source elements -> staged elements. zero_point: int8 only. */
    void (*stage)(void *staged, const void *source, size_t count, int zero_point);
    /* acc[r][j] (+)= sum over segments s and k < run of a[r][seg[s] + k] * b[...]. Pointers in bytes; seg in bytes.
     * a has mr valid pointers even when rows < mr. run is a whole number of steps. b: [segment][run / kstep][nr][kstep].
     * init: nr starting values (float or int32) for every row, or NULL to continue from acc. acc: rows x nr, of which
     * only `channels` need be computed.
     * ahead: memory worth prefetching meanwhile, ahead_step bytes further with every step, or `steps` of them; no effect. */
    void (*tile)(const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b, const void *init,
                 void *acc, int rows, int channels, const char *ahead, ptrdiff_t ahead_step);
    /* int16 alone, or NULL: only depths whose sums fit int32. Such sums of a part of the depth -> upper and lower bytes of those of the
     * whole depth (enum mp_sum_kind), which they are added to, or which they begin. */
    void (*carry)(const int32_t *sums, size_t count, int32_t *upper, int32_t *lower, int begins);
    /* The last pass of full tiles and its output stage in one, without storing the sums; or NULL. 0: it has none for such an
     * output, and has done nothing. */
    int (*tile_output)(const mp_tile_run *run);
    /* The same of a short depth, for which tiles begin and end too often; or NULL. */
    int (*points)(const mp_points *points);
    /* The same where channels are staged in blocks of kstep, each a row of pixels, so that neighbours lie side by side; or NULL.
     * block: bytes from a kstep of a pixel to its next. run: whole ksteps of a tap. */
    void (*tile_blocks)(const char *const *a, const ptrdiff_t *seg, int segments, int run, ptrdiff_t block,
                        const void *b, const void *init, void *acc, int rows);
    /* `blocks` blocks of pixels that lie `step` bytes apart -> blocks that do `block` bytes. */
    void (*stage_blocks)(char *staged, const char *source, size_t step, int pixels, int blocks, size_t block);
    /* Tiles and output stage of first layers in one, or NULL. */
    void (*windows)(mp_output *o, const mp_window_row *row);
    /* Where this stands, it multiplies instead of `tile`, and mr is two tiles' pixels. */
    const mp_matrix *matrix;
    /* Narrow weights in groups (conv/groups.h): the tiles for them, or NULL; and of those: 1: b holds codes, and behind all of a call
     * come nr multipliers, each twice as int16, for every `steps` steps. */
    const struct mp_micro *grouped;
    int multiplies_groups;
} mp_micro;

/* Of depth, that a tile consumes at a time. */
static inline int mp_micro_depth(const mp_micro *micro) { return micro->kstep * (micro->steps ? micro->steps : 1); }

/* A row of results of a depthwise convolution of MP_MOST_LINES or 3 taps squared, at stride 1 or 2 and without dilation. */
enum { MP_MOST_LINES = 5, MP_LEAST_PIXELS = 4 };
typedef struct {
    int size, stride;
    int padding; /* columns of zeros before and behind each line: at most size / 2 */
    /* What its rows of taps read: a line's first pixel, or one pixel of zeros for all of it; */
    const char *line[MP_MOST_LINES];
    size_t step[MP_MOST_LINES]; /* bytes from a pixel to the next: of zeros 0 */
    int width;                  /* pixels of a line */
    int pixels;                 /* of the result, at least MP_LEAST_PIXELS */
    int channels;               /* whole vectors, unless mp_depthwise.partial */
    int zero_point;             /* of codes */
    const void *weights, *init;
    size_t weights_ld, out_ld; /* elements from a tap to the next, from a result's pixel to the next */
    mp_output *output;         /* NULL: sums are asked for */
    char *out;
} mp_depthwise_row;

/* Depthwise: channels are the vector, taps the depth. */
typedef struct {
    int a_bytes, weight_type, needs_stage, subtracts_zero, bias_q;
    void (*stage)(void *staged, const void *source, size_t count, int zero_point);
    /* Where this stands (int8), staged rows go by pairs, the int16 of either row side by side, and so do weights (conv/plan.h): an
     * instruction then multiplies two taps, one below the other. It makes a pair of two rows of `count` codes as they come. */
    void (*pair)(void *staged, const void *upper, const void *lower, size_t count, int zero_point);
    /* acc[p][c] = init[c] then for each tap t in order: += a[p * step + tap[t] + c] * w[t * channels + c].
     * step and tap in bytes. channels is a multiple of MP_MAX_LANES; a may be read up to that many elements past. */
    void (*row)(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels, const void *w,
                const void *init, void *acc);
    /* The same with its output stage, without storing the sums; or NULL. 0: it has none for such an output, and has done nothing.
     * out: pixels of out_c results. */
    int (*row_output)(const char *a, const ptrdiff_t *tap, int taps, size_t step, int pixels, int channels,
                      const void *w, const void *init, mp_output *o, int out_c, void *out);
    /* The same for the usual squares of taps, faster, from lines that need no padding; or NULL. 0: as above. */
    int (*lines)(const mp_depthwise_row *row);
    int in_place; /* 1: which may be those of the input */
    int partial;  /* 1: of any number of channels, not of whole vectors alone */
    int columns;  /* not 0: so many channels at once; weights are bytes, four lines' side by side, and codes + 128 */
    int least_channels; /* from which on it is faster at stride 1 */
} mp_depthwise;

/* Winograd: so many narrow weights of a panel are transformed at a time, whole groups of channels (types.h), so that all positions stay
 * in the second cache level; int16 from one position to the next: an odd number of cache lines, since all are written side by side and
 * would else share their cache sets. */
enum { MP_KERNEL_CODES = 4096 };
static inline int mp_kernel_channels(int nr) { return MP_KERNEL_CODES / nr; }
static inline size_t mp_kernel_elements(void) { return MP_KERNEL_CODES + 32; }

/* Winograd F(4x4, 3x3) around an ordinary tile kernel. */
typedef struct {
    const mp_micro *micro;
    int least_channels,
        least_tiles; /* codes: of the input, and tiles of the output, from which on it is faster than direct */
    /* A 6x6 tile of staged pixels -> 36 positions, position_bytes apart; may read and write whole vectors past channels. */
    void (*input)(const char *pixel, size_t pixel_bytes, size_t row_bytes, int channels, char *v,
                  size_t position_bytes);
    /* 36 positions of nr sums -> y[4][4][nr], rows y_row elements apart, each started from init[nr]. windows: 1: y[2][2][4][nr],
     * 2x2 windows, whose rows are 2 y_row apart. */
    void (*output)(const char *m, size_t position_bytes, const void *init, void *y, size_t y_row, int nr, int windows);
} mp_winograd;

/* Leaf kernels that are one function of a level: LEAF(its result, its name, its arguments). In all of them `type` and `out_type` say how
 * x (or a and b) and out are stored (MP_TYPE_*), counts are elements, and lengths that end in _ld or are called `row` are elements from
 * one row to the next. */
/* clang-format off */
#define MP_LEAVES(LEAF)                                                                                                \
    /* The output stage: rows x channels sums, acc_ld apart -> results, out_ld apart, a row for each row or, where o->windows says        \
     * so, for each window of sums. channel: the first, packed. */                                                     \
    LEAF(void, output, (mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,  \
                        size_t out_ld))                                                                                \
    /* The same into codes in integers alone. channel: the first, of the layer's. */                                   \
    LEAF(void, requantize, (const mp_requantized *o, const void *acc, size_t acc_ld, int rows, int channels,           \
                            int channel, void *out, size_t out_ld))                                                    \
    /* Codes -> codes, and the sum of two tensors of codes, in integers alone: mpnet.h. */                             \
    LEAF(void, rescale, (const mp_rescaling *o, const void *x, int type, void *out, int out_type, size_t count))       \
    LEAF(void, add_codes, (const mp_adding *o, const void *a, const void *b, void *out, int type, size_t count))       \
    /* Reals over scale, rounded half away from zero, within [low, high] before zero_point is added. Not 0: one is not finite. */          \
    LEAF(float, divide, (const float *x, void *out, int type, size_t count, float scale, int zero_point, int low,      \
                         int high))                                                                                    \
    /* Widens the ranges in minimum and maximum by x, a range for each lane; bad, of each lane: not 0 once one was not finite. */ \
    LEAF(void, range, (const void *x, int type, size_t count, float *minimum, float *maximum, float *bad))             \
    /* Reals -> codes, codes -> reals, reals -> reals of another type: mpnet.h, for one image. */                      \
    LEAF(void, quantize, (const void *x, int type, void *out, int out_type, size_t count, float inv_scale,             \
                          int zero_point, int rounding, int low, int high))                                            \
    LEAF(void, dequantize, (const void *x, int type, void *out, int out_type, size_t count, float scale,               \
                            int zero_point, float offset))                                                             \
    LEAF(void, cast, (const void *x, int type, void *out, int out_type, size_t count))                                 \
    /* Elementwise, with an activation: mpnet.h. combine without b: a * a_weight; without a_weight: a. */              \
    LEAF(void, add, (const void *a, const void *b, void *out, int type, int out_type, int activation, size_t count))   \
    LEAF(void, map, (const void *x, void *out, int type, int out_type, int activation, float scale, float shift,       \
                     size_t count))                                                                                    \
    LEAF(void, combine, (const void *a, const void *b, const float *a_weight, const float *b_weight, void *out,        \
                         int type, int out_type, int activation, size_t count))                                        \
    LEAF(void, multiply, (const void *a, const void *b, void *out, int type, int out_type, int activation,             \
                          size_t count))                                                                               \
    /* One output row of a pool: out[ox * out_ld + c] = the largest of rows[r][ox * stride - offset + k][c], r < count and k < size,       \
     * where that lies in [0, w); minus infinity (int8: -128) where nothing does. */                                   \
    LEAF(void, maxpool, (const char *const *rows, int count, int w, int channels, int type, int size, int stride,      \
                         int offset, int out_w, void *out, size_t out_ld))                                             \
    /* Winograd: 9 taps of `count` weights -> 36 positions, mp_kernel_elements apart, without the denominators. */     \
    LEAF(void, winograd_weights, (const int8_t *taps, size_t tap_bytes, size_t count, int16_t *out))                   \
    /* Blocks of conv/narrow.h -> codes as weight_type, int8 or int16. multipliers: NULL, or for every `run` blocks the nr of their        \
     * channels, as they were unpacked (conv/groups.h), in the order of these tiles, whose step is that of int8's or a part of it. */      \
    LEAF(void, unpack, (const void *packed, size_t blocks, int bits, int weight_type, const mp_micro *tiles,           \
                        const int8_t *multipliers, size_t run, void *out))                                             \
    /* out[c] = (the sum of x[pixel][c] over pixels, in their order) / pixels. */                                      \
    LEAF(void, mean, (const void *x, void *out, int type, size_t pixels, size_t channels))                             \
    /* One output row of a pool: the means of windows of `size` columns, as maxpool has them, over `count` rows row_bytes apart. */        \
    LEAF(void, local_mean, (const char *x, size_t row_bytes, int count, int w, int channels, int type, int size,       \
                            int stride, int offset, int out_w, void *out))                                             \
    /* Rows `row` elements apart, of each the first `length`, to mean 0 and variance 1. */                             \
    LEAF(void, layer_norm, (const void *x, void *out, int type, size_t rows, size_t row, size_t length,                \
                            float epsilon))                                                                            \
    /* `count` queries, `row` elements apart as keys and values are, of which `positions` follow each other -> their values. */            \
    LEAF(void, attention, (const float *queries, size_t count, const float *keys, const float *values, size_t row,     \
                           size_t positions, int key, int value, float scale, float *out, size_t out_row))             \
    /* `rounds` times 12 vectors of multiply-adds on start[12][lanes], for measuring the machine. */                   \
    LEAF(float, multiply_adds, (const float *start, int64_t rounds))
#define MP_LEAF_FIELD(RESULT, NAME, ARGUMENTS) RESULT (*NAME) ARGUMENTS;
/* clang-format on */

struct mp_table {
    const char *name;
    const char *fp16, *int8; /* what these cost on this level, in words */
    /* NULL: this table lacks the precision; of narrow weights and int16, which have those of their mp_precision.tiles and depthwise: it
     * has none for them alone. */
    const mp_micro *micro[MP_PRECISIONS];
    const mp_micro *matrix; /* int8 by a matrix unit, for shapes where that pays (conv/plan.c); or NULL */
    const mp_depthwise *depthwise[MP_PRECISIONS];
    const mp_winograd *winograd[MP_PRECISIONS]; /* int8: where it is faster than direct; the integers are the same */
    MP_LEAVES(MP_LEAF_FIELD)
    int lanes, int8_rate;
};

#if defined(__x86_64__)
/* gcc 10 may come with an assembler that does not know tiles. */
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define MP_HAS_AMX
extern const mp_micro mp_micro_amx;
#endif
#define X86_LEVEL(NAME, ...) extern const mp_table mp_table_##NAME;
#elif defined(__aarch64__)
#define ARM_LEVEL(NAME, ...) extern const mp_table mp_table_##NAME;
#endif
#if !defined(__aarch64__)
#define ARM_LEVEL(NAME, ...) extern const mp_table mp_packing_##NAME;
#endif
#define REFERENCE_LEVEL(NAME, ...) extern const mp_table mp_table_##NAME;
#include "isa.def"
#endif
