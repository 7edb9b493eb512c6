/* SPDX-License-Identifier: MIT */
/* What a convolution is: its geometry, its kernels, whether Winograd computes it. Packing and running agree through it. Internal. */
#ifndef MP_CONV_PLAN_H
#define MP_CONV_PLAN_H
#include "../table.h"

static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
static inline int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

enum {
    MP_ALIGN = 64,
    MP_INT8_MAX_DEPTH = 66311, /* largest depth with 255 * 127 * depth < 2^31 */
    MP_INT16_MAX_DEPTH = 516,  /* and with 32768 * 127 * depth */
    MP_POSITIONS = 36,         /* Winograd: of a transformed tile, */
    MP_TILE = 4,               /* pixels per side of a finished one */
    MP_TILES_TOGETHER = 4      /* finished together */
};
static inline size_t mp_align(size_t bytes) { return (bytes + MP_ALIGN - 1) / MP_ALIGN * MP_ALIGN; }

/* Outer rows and columns of taps that have no weight but 0: those of a filter of 1 x 7 in a square of 7 x 7. */
typedef struct {
    int16_t top, bottom, left, right;
} mp_edges;

typedef struct {
    mp_conv_shape shape;
    int precision;
    const mp_precision *traits;
    const mp_micro *micro;
    const mp_depthwise *depthwise; /* set: depthwise path */
    int lines;                     /* 1: by mp_depthwise.lines */
    int columns;                   /* whose weights go by four lines and so many channels (mp_depthwise.columns) */
    const mp_winograd *winograd;   /* set: Winograd path */
    int codes;                     /* 1: codes in, weights with scales; 0: reals */
    int sums;                      /* enum mp_sum_kind */
    int byte_planes; /* 2: int16, whose upper and lower bytes are staged as two planes and multiplied one after the other; else 1 */
    int carries;        /* 1: int16 multiplied as it is, in parts of the depth whose sums fit int32 (mp_micro.carry) */
    int stored_weights; /* packing: they come as the precision stores them, else reals as floats */
    int out_h, out_w;
    int group_in, group_out; /* channels per group */
    int depth;
    mp_edges empty;    /* direct: taps that are neither packed nor multiplied */
    int segments, run; /* direct: depth = segments runs of contiguous staged elements; depthwise: its taps */
    int pairs;         /* 1: depthwise, staged rows and weights go by pairs; taps of both phases (below) */
    int run_padded;    /* run, up to a whole number of these: */
    int step;          /* depth that a tile takes at once: ksteps; of a matrix unit a divisor of run_padded */
    int interleave; /* output pixels of a row whose channels lie side by side in one row of sums: 1, or more where channels are few */
    int panels;                 /* per group: ceil(interleave * group_out / nr) */
    int total_panels;           /* groups * panels */
    int packed_channels;        /* total_panels * nr; depthwise: channels up to whole vectors */
    int weight_type;            /* enum mp_weight_type */
    size_t weight_bytes;        /* one element of packed weights */
    size_t panel_bytes;         /* packed weights of one panel, as tiles read them; */
    int grouped;                /* 1: narrow weights with multipliers */
    size_t stored_bytes;        /* as they lie in memory: the same, or narrow, */
    size_t codes_bytes;         /* without multipliers, */
    int stored_bits;            /* with this many bits for each */
    int staged;                 /* 0: read the input in place, unless it has to be converted */
    int stage_w;                /* staged pixels per row */
    int blocks;                 /* 1: their channels in blocks, for mp_micro.tile_blocks */
    int row_span;               /* staged rows for one output row */
    size_t a_bytes;             /* one staged element */
    int subtracts_zero, bias_q; /* as in mp_micro; Winograd: 0, codes as they are make results of the smaller bound */
    void (*stage)(void *staged, const void *source, size_t count, int zero_point);
} mp_conv_plan;

/* Rows and columns of the input that one output pixel reads, from the first to the last. */
static inline int64_t mp_reach(const mp_conv_shape *s) { return (int64_t)s->dilation * (s->size - 1) + 1; }

/* Where column x lies in a row of a block: side by side are those that one tap meets, stride columns apart in the image. */
static inline int mp_stage_place(const mp_conv_plan *plan, int x)
{
    const int stride = plan->shape.stride;
    return x % stride * (plan->stage_w / stride) + x / stride;
}

/* Depthwise in pairs: staged row 2 i and the next are pair i. An output row whose first staged row is t reads pairs from t / 2 on and has the
 * phase t % 2, with weights of its own: zeros stand beside the first or the last of its rows. So many pairs: */
static inline int mp_pair_rows(const mp_conv_shape *s) { return s->dilation > 1 ? s->size : s->size / 2 + 1; }
/* Whether staged rows go by pairs: where its lines are read as they are only weights do, those of phase 0. */
static inline int mp_stages_pairs(const mp_conv_plan *plan) { return plan->pairs && !plan->lines; }
/* The pair, from the first, that holds its i-th row of taps; without dilation two share one. */
static inline int mp_pair_of(const mp_conv_shape *s, int phase, int i)
{
    return s->dilation > 1 ? (phase + i * s->dilation) / 2 : i;
}

/* Depthwise in columns: of so many lines, taps side by side; so many of these for each channel. */
enum { MP_COLUMN_LINES = 4 };
static inline size_t mp_column_taps(const mp_conv_shape *s)
{
    return (size_t)((s->size + MP_COLUMN_LINES - 1) / MP_COLUMN_LINES) * s->size;
}

/* The taps between empty edges. */
static inline int mp_tap_rows(const mp_conv_plan *plan)
{
    return plan->shape.size - plan->empty.top - plan->empty.bottom;
}
static inline int mp_tap_columns(const mp_conv_plan *plan)
{
    return plan->shape.size - plan->empty.left - plan->empty.right;
}

static inline int mp_has_all_taps(const mp_conv_plan *plan)
{
    return mp_tap_rows(plan) * mp_tap_columns(plan) == plan->shape.size * plan->shape.size;
}

/* Rows of sums of an output row. */
static inline int mp_sums_w(const mp_conv_plan *plan) { return plan->out_w / plan->interleave; }

/* Bits of what is asked of a plan. */
enum mp_algorithm {
    MP_DIRECT = 0,
    MP_WINOGRAD = 1,
    MP_GROUPED = 2,
    /* int8: Winograd if the shape allows and these weights cannot make a result wrap, else direct; narrow weights: grouped
     * if one of these is beyond their codes */
    MP_BY_WEIGHTS = 4,
    MP_STORED_WEIGHTS = 8 /* they come as the precision stores them */
};
/* MP_OK, MP_BAD_ARGUMENT, MP_BAD_SHAPE, MP_OVERFLOW or MP_UNSUPPORTED. weights: for MP_BY_WEIGHTS only; empty: what those had, or NULL. */
int mp_conv_plan_make(mp_conv_plan *plan, const mp_table *table, const mp_conv_shape *shape, int precision,
                      int requested, const void *weights, const mp_edges *empty);

/* weights[index] as the products see it; codes are exact. */
float mp_weight_at(const mp_conv_plan *plan, const void *weights, size_t index);

/* Whether all weights are codes of the precision. */
int mp_are_codes(const mp_conv_plan *plan, const int8_t *weights);

/* Of narrow weights in groups (groups.h): bits of a multiplier; */
static inline int mp_multiplier_bits(const mp_conv_plan *plan) { return 8 - plan->traits->bits; }
/* groups of the input channels that a filter reads; */
static inline int mp_groups(const mp_conv_plan *plan) { return ceil_div(plan->group_in, MP_GROUP); }
/* multipliers of a panel. */
static inline size_t mp_multipliers(const mp_conv_plan *plan)
{
    return (size_t)plan->shape.size * plan->shape.size * mp_groups(plan) * plan->micro->nr;
}
/* Winograd, narrow weights (groups.h): codes of a panel at one tap in the group of channel c; all those of groups before c, or that c ends. */
size_t mp_winograd_tap(const mp_conv_plan *plan, int c);
size_t mp_winograd_codes(const mp_conv_plan *plan, int c);
#endif
