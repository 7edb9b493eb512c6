/* How a convolution is cut into tiles: shared by packing and by the driver, so that both agree. Internal. */
#ifndef MP_CONV_PLAN_H
#define MP_CONV_PLAN_H
#include "table.h"

static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
static inline int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

enum {
    MP_ALIGN = 64,
    MP_HEADER_BYTES = 128,
    MP_INT8_MAX_DEPTH = 66311 /* largest depth with 255 * 127 * depth < 2^31 */
};

typedef struct {
    mp_conv_shape s;
    int precision;
    const mp_micro *micro;
    const mp_depthwise *dw;   /* set: depthwise path */
    const mp_winograd *winograd; /* set: Winograd path */
    int out_h, out_w;
    int cg, kg;               /* channels per group: in, out */
    int depth;
    int segments, run;        /* depth = segments runs of contiguous staged elements */
    int run_padded;           /* run, up to a whole number of ksteps */
    int panels;               /* per group: ceil(kg / nr) */
    int total_panels;         /* groups * panels */
    int packed_channels;      /* total_panels * nr; depthwise: channels up to whole vectors */
    size_t weight_bytes;      /* one element of packed weights */
    size_t panel_bytes;       /* packed weights of one panel */
    int stage_w;              /* staged pixels per row */
    int row_span;             /* staged rows for one output row */
    int staged;               /* 0: read the input in place */
} mp_conv_plan;

/* Starts every packed buffer, so that a mismatch of table, shape or precision is noticed instead of computed. */
typedef struct {
    uint64_t magic;
    const mp_table *table;
    mp_conv_shape shape;
    int32_t precision;
    int32_t winograd;
} mp_packed_header;
#define MP_PACKED_MAGIC 0x6d706e657470616bull

enum mp_algorithm {
    MP_DIRECT,
    MP_WINOGRAD,
    MP_BY_WEIGHTS /* int8: Winograd if the shape allows and these weights cannot make a result wrap; else direct */
};
/* MP_OK, MP_BAD_SHAPE, MP_OVERFLOW or MP_UNSUPPORTED. weights: for MP_BY_WEIGHTS only. */
int mp_conv_plan_make(mp_conv_plan *p, const mp_table *table, const mp_conv_shape *shape, int precision, int algorithm,
                      const void *weights);
size_t mp_conv_packed_bytes(const mp_conv_plan *p);
/* Sum of each packed channel's weights (int8), and the weights themselves. */
static inline const int32_t *mp_packed_sums(const void *packed)
{
    return (const int32_t *)((const char *)packed + MP_HEADER_BYTES);
}
static inline size_t mp_align(size_t bytes) { return (bytes + MP_ALIGN - 1) / MP_ALIGN * MP_ALIGN; }
static inline const char *mp_packed_weights(const mp_conv_plan *p, const void *packed)
{
    return (const char *)packed + MP_HEADER_BYTES + mp_align((size_t)p->packed_channels * sizeof(int32_t));
}
void mp_conv_pack(const mp_conv_plan *p, const mp_table *table, const void *weights, void *packed);
/* How one call is cut into items and passes; changes speed only. */
typedef struct {
    int row_blocks, rows;   /* blocks, output rows per block at most; Winograd: tiles of 4x4 per block */
    int chunks;             /* ranges of panels */
    int pool_rows;          /* before pooling: computed at a time, so that they are pooled in the caches; even */
    int passes;             /* parts of the depth */
    int pass_segments;      /* whole segments per pass, or 0: */
    int pass_run;           /* pieces of one run */
    size_t stage_bytes, sums_bytes, channel_bytes, pool_bytes, thread_bytes;
    size_t a_bytes, stage_row; /* of one element, of one staged row */
    size_t v_row, v_bytes;  /* Winograd: one transformed tile and position; all of a block */
} mp_schedule;
void mp_conv_schedule(const mp_conv_plan *p, int pooled, int threads, mp_schedule *c);
size_t mp_conv_scratch(const mp_conv_plan *p, int pooled, int threads);
int mp_winograd_fits_int8(const mp_conv_shape *s, const int8_t *weights);
void mp_winograd_pack(const mp_conv_plan *p, const void *weights, void *packed, int32_t *sums);
void mp_winograd_schedule(const mp_conv_plan *p, int pooled, int threads, mp_schedule *c);
int mp_conv_run(const mp_conv_plan *p, const mp_table *table, const mp_conv_args *a);
#endif
