#ifndef MP_CONV_DEPTH_PASS_H
#define MP_CONV_DEPTH_PASS_H
#include "item.h"

/* One pass over all tiles of a block. */
typedef struct {
    const char *a;     /* staged rows, at the group's first channel */
    int segments, run; /* of the depth */
    const void *b, *init;
    ptrdiff_t block;   /* bytes between ksteps of a pixel, where blocks are staged */
    size_t pixel, row; /* bytes between output pixels of a row, between rows */
    int pixels;
    mp_output *output; /* NULL before the last pass */
    int channels, packed_channel;
    char *out; /* first pixel of the block, at the panel's first channel */
    size_t out_ld, out_bytes;
    mp_ahead ahead;
} mp_depth_pass;
#endif
