/* SPDX-License-Identifier: MIT */
/* Runs parts of YOLOv3-tiny on one kernel table between marks that plugin.c counts: kernels LEVEL PRECISION...
 * For each precision one full register tile, then whole convolutions with all that belongs to them: padding, conversion,
 * activation, range, quantisation. A line per part on standard output, in the order of the plugin's regions, separated by
 * tabs: precision, part, multiply-accumulates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpnet.h"
#include "table.h"

#define MARK(N) __asm__ volatile("hint #" #N ::: "memory")

static const struct {
    const char *name;
    mp_conv_shape shape;
    int pooled; /* 2x2/2 */
} LAYERS[] = {
    /* in_h, in_w, in_c, out_c, size, stride, padding, dilation, groups */
    {"3x3, 26x26, 128 to 256", {26, 26, 128, 256, 3, 1, 1, 1, 1}, 0},
    {"1x1, 13x13, 1024 to 256", {13, 13, 1024, 256, 1, 1, 0, 1, 1}, 0},
    {"3x3, 104x104, 3 to 16, pooled", {104, 104, 3, 16, 3, 1, 1, 1, 1}, 1},
};
static const struct {
    const char *name;
    int precision, type;
    int weight; /* all of them, of codes: 1, or what only multiples of narrow codes are */
} PRECISIONS[] = {
    {"fp32", MP_FP32, MP_TYPE_F32, 0},
    {"fp32_winograd", MP_FP32_WINOGRAD, MP_TYPE_F32, 0},
    {"fp16", MP_FP16, MP_TYPE_F16, 0},
    {"fp16_half", MP_FP16_HALF, MP_TYPE_F16, 0},
    {"int8", MP_INT8, MP_TYPE_I8, 1},
    {"int6", MP_INT6, MP_TYPE_I8, 1},
    {"int5", MP_INT5, MP_TYPE_I8, 1},
    {"int4", MP_INT4, MP_TYPE_I8, 1},
    {"int6_groups", MP_INT6, MP_TYPE_I8, 62},
    {"int5_groups", MP_INT5, MP_TYPE_I8, 30},
    {"int4_groups", MP_INT4, MP_TYPE_I8, 14},
    {"int16", MP_INT16, MP_TYPE_I16, 1},
    {"fp16_half_winograd", MP_FP16_HALF_WINOGRAD, MP_TYPE_F16, 0},
};

static void *buffer(size_t bytes)
{
    void *made = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!made) exit(1);
    memset(made, 0, bytes);
    return made;
}

static int run(const mp_table *table, int number, int layer)
{
    const mp_conv_shape *s = &LAYERS[layer].shape;
    const int precision = PRECISIONS[number].precision, type = PRECISIONS[number].type;
    const int h = (s->in_h + 2 * s->padding - s->size) / s->stride + 1,
              w = (s->in_w + 2 * s->padding - s->size) / s->stride + 1;
    const size_t taps = (size_t)s->out_c * s->in_c * s->size * s->size;
    float *bias = buffer(s->out_c * 4), *scale = buffer(s->out_c * 4), in_scale = 0.01f, in_offset = 0, inverse = 10,
          ranges[2];
    int32_t zero = type == MP_TYPE_I16 ? 0 : -3;
    void *weights = buffer(taps * 4);
    /* None is 0: rows and columns of taps without weights are left out. */
    if (mp_is_real(mp_precisions[precision].type))
        for (size_t i = 0; i < taps; i++) ((float *)weights)[i] = 1.0f;
    else
        memset(weights, PRECISIONS[number].weight, taps);
    const size_t bytes = mp_pack_bytes(table, s, precision, weights);
    void *packed = buffer(bytes);
    if (!bytes || mp_pack_conv(table, s, precision, weights, packed, bytes)) return 1;
    const int pooled = LAYERS[layer].pooled;
    const size_t scratch_bytes = mp_conv_scratch_bytes(table, packed, pooled, 1);
    mp_conv_args a = {
        .shape = *s,
        .precision = precision,
        .activation = MP_LEAKY,
        .out_type = type,
        .out_low = type == MP_TYPE_I16 ? INT16_MIN : INT8_MIN,
        .out_high = type == MP_TYPE_I16 ? INT16_MAX : INT8_MAX,
        .images = 1,
        .threads = 1,
        .packed = packed,
        .pool_h = pooled ? h / 2 : 0,
        .pool_w = pooled ? w / 2 : 0,
        .in = buffer((size_t)s->in_h * s->in_w * s->in_c * 4),
        .out = buffer((size_t)h * w * s->out_c * 4),
        .bias = bias,
        .weight_scale = scale,
        .in_scale = &in_scale,
        .in_zero_point = &zero,
        .in_offset = &in_offset,
        .out_inv_scale = &inverse,
        .out_zero_point = &zero,
        .ranges = pooled && !mp_is_real(type) ? 0 : ranges,
        .scratch = buffer(scratch_bytes),
        .scratch_bytes = scratch_bytes,
    };
    MARK(0x70);
    const int status = mp_conv(table, &a);
    MARK(0x71);
    printf("%s\t%s\t%llu\n", PRECISIONS[number].name, LAYERS[layer].name, (unsigned long long)taps * h * w);
    return status; /* what was allocated goes with the process */
}

/* The micro-kernel alone: 3 runs of 384 depth positions, as in a 3x3 convolution of 128 channels. */
static void run_tile(const mp_table *table, int number)
{
    enum { RUNS = 3, RUN = 384 };
    const int precision = PRECISIONS[number].precision;
    const mp_micro *m = table->micro[table->micro[precision] ? precision : mp_precisions[precision].tiles];
    const ptrdiff_t runs[RUNS] = {0, RUN * 4, RUN * 8}, step = (ptrdiff_t)m->kstep * m->a_bytes, block = 28 * step;
    const char *pixels = buffer((size_t)RUN * 4 * (RUNS + MP_MAX_ROWS)), *rows[MP_MAX_ROWS];
    for (int r = 0; r < MP_MAX_ROWS; r++) rows[r] = pixels + (m->tile_blocks ? step : 128 * m->a_bytes) * r;
    void *weights = buffer((size_t)RUNS * RUN * m->nr * 4), *start = buffer((size_t)m->nr * 4);
    void *sums = buffer((size_t)m->nr * m->mr * 4);
    MARK(0x70);
    if (m->tile_blocks)
        m->tile_blocks(rows, runs, RUNS, RUN, block, weights, start, sums, m->mr);
    else
        m->tile(rows, runs, RUNS, RUN, weights, start, sums, m->mr, m->nr, 0, 0);
    MARK(0x71);
    printf("%s\ttile\t%d\n", PRECISIONS[number].name, RUNS * RUN * m->nr * m->mr);
}

int main(int argc, char **argv)
{
    const mp_table *table = 0;
    for (int i = 0; argc > 2 && i < mp_table_count(); i++)
        if (strcmp(mp_table_name(mp_table_at(i)), argv[1]) == 0) table = mp_table_at(i);
    if (!table || !mp_table_usable(table))
        return fprintf(stderr, "usage: kernels LEVEL PRECISION... with a level that this CPU has\n"), 2;
    for (int k = 2; k < argc; k++)
        for (int number = 0; number < (int)(sizeof PRECISIONS / sizeof *PRECISIONS); number++)
            if (strcmp(argv[k], PRECISIONS[number].name) == 0) {
                run_tile(table, number);
                for (int layer = 0; layer < (int)(sizeof LAYERS / sizeof *LAYERS); layer++)
                    if (run(table, number, layer))
                        return fprintf(stderr, "%s: %s did not run\n", argv[k], LAYERS[layer].name), 1;
            }
    return 0;
}
