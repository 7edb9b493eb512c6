/* SPDX-License-Identifier: MIT */
#ifndef MP_CONV_DEPTH_PASS_H
#define MP_CONV_DEPTH_PASS_H
#include <string.h>
#include "item.h"

/* One pass over all tiles of a block. */
typedef struct {
    const char *a;     /* staged rows, at the group's first channel */
    int segments, run; /* of the depth */
    const void *b, *init;
    ptrdiff_t block;   /* bytes between ksteps of a pixel, where blocks are staged */
    size_t pixel, row; /* bytes between output pixels of a row, between rows */
    int pixels;
    int begins;        /* 1: the first */
    mp_output *output; /* NULL before the last pass, and where the last one */
    int gives_sums;    /* stores sums instead */
    const int32_t *sums,
        *start; /* what sums begin from (rows as those of out), and what is added to it; init is NULL then */
    int channels, packed_channel;
    char *out; /* first pixel of the block, at the panel's first channel */
    size_t out_ld, out_bytes;
    mp_ahead ahead;
} mp_depth_pass;

/* Rows of nr sums of `count` pixels from number `pixel` of the block on. */
static inline void mp_begin_sums(const mp_depth_pass *pass, int pixel, int count, int nr, void *sums)
{
    const uint32_t *from = (const uint32_t *)pass->sums + pixel * pass->out_ld,
                   *start = (const uint32_t *)pass->start; /* unsigned: they may wrap, and wrap back */
    uint32_t *to = sums;
    for (int i = 0; i < count; i++, from += pass->out_ld, to += nr) {
        for (int c = 0; c < pass->channels; c++) to[c] = from[c] + start[c];
        for (int c = pass->channels; c < nr; c++) to[c] = start[c];
    }
}

static inline void mp_end_sums(const mp_depth_pass *pass, int pixel, int count, int nr, const void *sums)
{
    const int32_t *from = sums;
    int32_t *to = (int32_t *)pass->out + pixel * pass->out_ld;
    for (int i = 0; i < count; i++, from += nr, to += pass->out_ld)
        memcpy(to, from, (size_t)pass->channels * sizeof *to);
}
#endif
