/* SPDX-License-Identifier: MIT */
/* How one call is cut into items and passes, and where its scratch memory lies; changes speed only. Internal. */
#ifndef MP_CONV_SCHEDULE_H
#define MP_CONV_SCHEDULE_H
#include "plan.h"

enum {
    MP_PAST_STAGE = 4 * MP_ALIGN
}; /* what may be read past the last staged element: a kstep in tiles, or a vector */

/* One thread's scratch: where each part begins, and the length of all. What an algorithm does not use is empty. */
enum { MP_ITEM_BYTES = 1024 }; /* at most */
typedef struct {
    size_t item;              /* mp_item */
    size_t stage;             /* input rows; of int16 in byte planes the lower one behind the upper one */
    size_t unpaired;          /* two of them, on their way into a pair */
    size_t converted;         /* one row of the input as the precision stores it, on its way into stage */
    size_t split_bytes;       /* and as two of bytes */
    size_t transformed;       /* Winograd: input tiles of a block, [position][tile] */
    size_t sums;              /* direct: of a tile or a block; Winograd: products, [panel][position][tile] */
    size_t part;              /* direct, where the plan carries: of a unit and a part of the depth */
    size_t tile;              /* Winograd: sums of a few finished tiles side by side */
    size_t bias, scale, init; /* per packed channel */
    size_t zeros;             /* Winograd: what products start from; depthwise: a pixel beyond the input */
    size_t segments;          /* direct: offsets */
    size_t weights;           /* narrow ones, unpacked: of a pass; Winograd: of a group; */
    size_t kernels;           /* Winograd: those of some channels, transformed */
    size_t multipliers;       /* grouped: of a panel, unpacked */
    size_t integer_output;    /* output in integers: bias, factor and shift of each channel */
    size_t pool;              /* results on their way into pooling */
    size_t bytes;
} mp_scratch;

typedef struct {
    int blocks;       /* an image's result is cut into blocks: direct rows, Winograd tiles; */
    int chunks;       /* and the panels into ranges */
    size_t stage_row; /* bytes of one staged row, or of a pair */
    size_t lower_stage, lower_transformed, lower_sums, lower_tile,
        lower_init; /* int16: bytes from what belongs to the upper byte plane to what belongs to the lower one */
    /* Direct. */
    int rows;          /* output rows per block at most */
    int windows;       /* 1: pixels go by 2x2 windows, which the output stage pools: none is incomplete */
    int first_layer;   /* 1: by mp_micro.windows */
    int unit;          /* rows of sums for the output stage at once: some tiles; the last have up to one more */
    int pool_rows;     /* before pooling: computed at a time, so that they are pooled in the caches; even */
    int passes;        /* parts of the depth */
    int pass_segments; /* whole segments per pass, or 0: */
    int pass_run;      /* pieces of one run */
    /* Winograd. */
    int tiles;                /* of MP_TILE x MP_TILE pixels per block at most */
    int tiles_x;              /* in a row of the image */
    int group;                /* panels whose products are kept at a time */
    int shares;               /* 1: threads transform a block together, then each multiplies it by chunks of panels */
    size_t transformed_bytes; /* one tile and position */
    mp_scratch scratch;
} mp_schedule;
void mp_conv_schedule(const mp_conv_plan *plan, int pooled, int threads, mp_schedule *schedule);
#endif
