/* SPDX-License-Identifier: MIT */
/* Weights from (out, in / groups, ky, kx) to the order in which tiles read them. */
#include "pack.h"
#include <string.h>
#include "../half.h"
#include "groups.h"
#include "narrow.h"

static inline __attribute__((always_inline)) void put_as(int type, float weight, char *packed, size_t at)
{
    switch (type) {
    case MP_W_F32: ((float *)packed)[at] = weight; break;
    case MP_W_F16: ((uint16_t *)packed)[at] = mp_float_to_half(weight); break;
    case MP_W_I16: ((int16_t *)packed)[at] = (int16_t)weight; break;
    case MP_W_I8: ((int8_t *)packed)[at] = (int8_t)weight; break;
    }
}

static void put(const mp_conv_plan *plan, float weight, char *packed, size_t at)
{
    if (plan->traits->bits)
        mp_narrow_put(packed, at, plan->traits->bits, 8 * (int)plan->weight_bytes, (int)weight);
    else
        put_as(plan->weight_type, weight, packed, at);
}

/* Depth runs over (ky, kx, c). Counting on is what makes it quick: a division for each weight would take most of the time. */
static inline __attribute__((always_inline)) void pack_as(const mp_conv_plan *plan, const void *weights, size_t source,
                                                          int j, char *out, int codes, int type)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep, size = plan->shape.size, taps = size * size;
    const int columns = mp_tap_columns(plan), between = mp_tap_rows(plan) * columns;
    const size_t segment = (size_t)(plan->run_padded / kstep);
    size_t step = 0, next = segment;
    int k = 0, part = 0; /* of a segment; of a step */
    for (int i = 0; i < between; i++)
        for (int c = 0; c < plan->group_in; c++) {
            const int tap = (plan->empty.top + i / columns) * size + plan->empty.left + i % columns;
            const size_t from = source + (size_t)c * taps + tap, to = (step * nr + j) * kstep + part;
            put_as(type, codes ? ((const int8_t *)weights)[from] : mp_weight_at(plan, weights, from), out, to);
            part = part + 1 == kstep ? 0 : part + 1;
            step += part == 0;
            if (++k < plan->run) continue;
            step = next; /* the rest of a segment is padding */
            next += segment;
            k = part = 0;
        }
}

/* Once for codes of either size, which most weights are, and once for all. */
static void pack_channel(const mp_conv_plan *plan, const void *weights, size_t source, int j, char *out)
{
    if (plan->codes && plan->weight_type == MP_W_I8)
        pack_as(plan, weights, source, j, out, 1, MP_W_I8);
    else if (plan->codes && plan->weight_type == MP_W_I16)
        pack_as(plan, weights, source, j, out, 1, MP_W_I16);
    else
        pack_as(plan, weights, source, j, out, 0, plan->weight_type);
}

/* Of interleaved pixels: channel by channel of each, where its pixel's taps lie in the run. */
static void pack_interleaved(const mp_conv_plan *plan, const void *weights, char *out)
{
    const mp_conv_shape *s = &plan->shape;
    const int nr = plan->micro->nr, kstep = plan->micro->kstep;
    for (int pixel = 0; pixel < plan->interleave; pixel++)
        for (int channel = 0; channel < s->out_c; channel++)
            for (int y = 0; y < s->size; y++)
                for (int x = 0; x < s->size; x++)
                    for (int c = 0; c < s->in_c; c++) {
                        const int j = pixel * s->out_c + channel, k = (x + pixel * s->stride) * s->in_c + c;
                        const size_t from = (((size_t)channel * s->in_c + c) * s->size + y) * s->size + x;
                        const size_t step = (size_t)y * plan->run_padded / kstep + k / kstep;
                        put(plan, mp_weight_at(plan, weights, from), out + j / nr * plan->stored_bytes,
                            (step * nr + j % nr) * kstep + k % kstep);
                    }
}

static void pack_panel(const mp_conv_plan *plan, const void *weights, int group, int panel, char *out)
{
    const int nr = plan->micro->nr, first = panel * nr;
    for (int j = 0; j < nr && first + j < plan->group_out; j++) {
        const int channel = group * plan->group_out + first + j;
        if (plan->traits->bits)
            mp_pack_narrow(plan, weights, channel, j, out);
        else
            pack_channel(plan, weights, (size_t)channel * plan->depth, j, out);
    }
}

/* How weights become positions of a tile: sums of them by rows, one over the other, divided. */
typedef struct {
    double row[6][3], denominator[6];
} transform;
static const transform USUAL = {{{1, 0, 0}, {1, 1, 1}, {1, -1, 1}, {1, 2, 4}, {1, -2, 4}, {0, 0, 1}},
                                {4, -6, -6, 24, 24, 1}};
/* Of products in halves: points 0, +-sqrt(1/2), +-sqrt(2), infinity, which keep the sums of one size. */
#define ROOT 0x1.6a09e667f3bcdp0
static const transform IN_HALVES = {
    {{1, 0, 0}, {1, ROOT / 2, 0.5}, {1, -ROOT / 2, 0.5}, {1, ROOT, 2}, {1, -ROOT, 2}, {0, 0, 1}},
    {1, -1.5, -1.5, 6, 6, 1}};

/* Position (i, j) of a transformed kernel; codes leave out the denominators. */
static float transformed(const mp_conv_plan *plan, const float kernel[9], int i, int j)
{
    const transform *t = plan->precision == MP_FP16_HALF_WINOGRAD ? &IN_HALVES : &USUAL;
    double total = 0.0;
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++) total += t->row[i][y] * t->row[j][x] * kernel[y * 3 + x];
    if (plan->codes) return (float)total;
    return mp_round_real((float)(total / (t->denominator[i] * t->denominator[j])), plan->traits->type);
}

/* Three lines of codes -> six, `apart` elements from one to the next. */
static void transform_codes(const int16_t *w0, const int16_t *w1, const int16_t *w2, int width, int16_t *out,
                            size_t apart)
{
    for (int i = 0; i < width; i++) {
        const int sum = w0[i] + w2[i], wide = w0[i] + 4 * w2[i];
        out[i] = w0[i];
        out[apart + i] = (int16_t)(sum + w1[i]);
        out[2 * apart + i] = (int16_t)(sum - w1[i]);
        out[3 * apart + i] = (int16_t)(wide + 2 * w1[i]);
        out[4 * apart + i] = (int16_t)(wide - 2 * w1[i]);
        out[5 * apart + i] = w2[i];
    }
}

/* The same numbers as pack_winograd's where they are codes: a step of a panel at a time, whose channels lie side by side. */
static void pack_winograd_codes(const mp_conv_plan *plan, const int8_t *weights, int16_t *packed)
{
    enum { MOST = 4 * MP_MAX_LANES };
    const int nr = plan->micro->nr, kstep = plan->micro->kstep, width = nr * kstep, depth = plan->shape.in_c;
    const size_t panel_elements = (size_t)plan->run_padded * nr, apart = panel_elements * plan->total_panels;
    int16_t taps[9 * MOST], lines[3 * 6 * MOST];
    for (int panel = 0; panel < plan->total_panels; panel++)
        for (int step = 0; step < plan->run_padded / kstep; step++) {
            const int channels = clamp(depth - step * kstep, 0, kstep);
            memset(taps, 0, sizeof taps);
            for (int j = 0; j < nr && panel * nr + j < plan->shape.out_c; j++) {
                const int8_t *kernel = weights + ((size_t)(panel * nr + j) * depth + (size_t)step * kstep) * 9;
                for (int c = 0; c < channels; c++, kernel += 9)
                    for (int t = 0; t < 9; t++) taps[t * width + j * kstep + c] = kernel[t];
            }
            for (int x = 0; x < 3; x++)
                transform_codes(taps + x * width, taps + (3 + x) * width, taps + (6 + x) * width, width,
                                lines + x * width, 3 * (size_t)width);
            for (int y = 0; y < 6; y++) {
                const int16_t *line = lines + y * 3 * width;
                transform_codes(line, line + width, line + 2 * width, width,
                                packed + panel * panel_elements + (size_t)step * width + y * 6 * apart, apart);
            }
        }
}

static void pack_winograd(const mp_conv_plan *plan, const void *weights, char *packed)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep;
    const size_t position_elements = (size_t)plan->run_padded * nr;
    for (int k = 0; k < plan->shape.out_c; k++) {
        if (plan->traits->bits) { /* as they are */
            mp_pack_narrow(plan, weights, k, k % nr, packed + k / nr * plan->stored_bytes);
            continue;
        }
        for (int c = 0; c < plan->shape.in_c; c++) {
            float kernel[9];
            for (int t = 0; t < 9; t++)
                kernel[t] = mp_weight_at(plan, weights, ((size_t)k * plan->shape.in_c + c) * 9 + t);
            const size_t at =
                (size_t)(k / nr) * position_elements + ((size_t)(c / kstep) * nr + k % nr) * kstep + c % kstep;
            for (int position = 0; position < MP_POSITIONS; position++)
                put(plan, transformed(plan, kernel, position / 6, position % 6), packed,
                    at + position * position_elements * plan->total_panels);
        }
    }
}

/* Depthwise, [phase][pair][kx][channel][row of the pair]. */
static void pack_pairs(const mp_conv_plan *plan, const void *weights, char *out)
{
    const mp_conv_shape *s = &plan->shape;
    const int taps = plan->segments / 2;
    for (int tap = 0; tap < plan->depth; tap++)
        for (int phase = 0; phase < 2; phase++) {
            const int y = tap / s->size, row = phase + y * s->dilation;
            const int pair = s->dilation > 1 ? y : row / 2;
            const size_t at = (size_t)(phase * taps + pair * s->size + tap % s->size) * plan->packed_channels;
            for (int c = 0; c < plan->interleave * s->out_c; c++)
                put(plan, mp_weight_at(plan, weights, (size_t)(c % s->out_c) * plan->depth + tap), out,
                    2 * (at + c) + row % 2);
        }
}

/* Depthwise, [block of channels][four lines][kx][channel of the block][line of the four]. */
static void pack_columns(const mp_conv_plan *plan, const void *weights, char *out)
{
    const int size = plan->shape.size, width = plan->columns;
    for (int c = 0; c < plan->shape.out_c; c++)
        for (int tap = 0; tap < plan->depth; tap++) {
            const int y = tap / size, column = y / MP_COLUMN_LINES * size + tap % size;
            const size_t at = (c / width * mp_column_taps(&plan->shape) + column) * width + c % width;
            put(plan, mp_weight_at(plan, weights, (size_t)c * plan->depth + tap), out,
                at * MP_COLUMN_LINES + y % MP_COLUMN_LINES);
        }
}

/* Of each channel's codes, at the packed channel. */
static void sum_weights(const mp_conv_plan *plan, const int8_t *weights, int32_t *sums)
{
    const int width = plan->depthwise ? 1 : plan->panels * plan->micro->nr; /* packed channels of a group */
    for (int channel = 0; channel < plan->shape.out_c; channel++) {
        int32_t *sum = sums + (size_t)(channel / plan->group_out) * width + channel % plan->group_out;
        for (int i = 0; i < plan->depth; i++) *sum += weights[(size_t)channel * plan->depth + i];
        for (int pixel = 1; pixel < plan->interleave; pixel++) sum[pixel * plan->shape.out_c] = *sum;
    }
}

int mp_conv_packable(const mp_conv_plan *plan, const int8_t *weights)
{
    const int taps = plan->shape.size * plan->shape.size;
    if (!plan->grouped) return mp_are_codes(plan, weights);
    for (int channel = 0; channel < plan->shape.out_c; channel++)
        for (int tap = 0; tap < taps; tap++)
            for (int group = 0; group < mp_groups(plan); group++)
                if (!mp_group_multiplier(plan, weights, channel, tap, group)) return 0;
    return 1;
}

size_t mp_conv_packed_bytes(const mp_conv_plan *plan)
{
    return MP_HEADER_BYTES + mp_align((size_t)plan->packed_channels * sizeof(int32_t)) +
           mp_align(plan->stored_bytes * plan->total_panels);
}

void mp_packed_header_of(const mp_conv_plan *plan, const mp_table *table, mp_packed_header *header)
{
    memset(header, 0, sizeof *header);
    header->magic = MP_PACKED_MAGIC;
    strncpy(header->table, table->name, sizeof header->table - 1);
    header->bytes = mp_conv_packed_bytes(plan);
    header->shape = plan->shape;
    header->precision = plan->precision;
    header->winograd = plan->winograd != 0;
    header->version = plan->traits->bits ? MP_NARROW_VERSION : MP_PACK_VERSION;
    header->nr = plan->depthwise ? 0 : plan->micro->nr;
    header->kstep = plan->columns ? MP_COLUMN_LINES : plan->pairs ? 2 : plan->depthwise ? 0 : plan->micro->kstep;
    header->weight_type = plan->weight_type;
    header->grouped = plan->grouped;
    header->interleave = plan->interleave - 1;
    header->empty = plan->empty;
}

/* Zeros, which are no zero bytes. */
static void clear_narrow(const mp_conv_plan *plan, char *out)
{
    const int bits = plan->traits->bits;
    for (int panel = 0; panel < plan->total_panels; panel++, out += plan->stored_bytes) {
        mp_narrow_clear(out, plan->codes_bytes / (size_t)bits * 8, bits);
        if (plan->grouped) mp_narrow_clear(out + plan->codes_bytes, mp_multipliers(plan), mp_multiplier_bits(plan));
    }
}

void mp_conv_pack(const mp_conv_plan *plan, const mp_table *table, const void *weights, void *packed)
{
    memset(packed, 0, mp_conv_packed_bytes(plan));
    mp_packed_header header;
    mp_packed_header_of(plan, table, &header);
    memcpy(packed, &header, sizeof header);
    if (plan->codes) sum_weights(plan, weights, (int32_t *)((char *)packed + MP_HEADER_BYTES));
    char *out = (char *)packed + (mp_packed_weights(plan, packed) - (const char *)packed);
    if (plan->traits->bits) clear_narrow(plan, out);
    if (plan->winograd && plan->codes && plan->weight_type == MP_W_I16 && !plan->traits->bits)
        pack_winograd_codes(plan, weights, (int16_t *)out);
    else if (plan->winograd)
        pack_winograd(plan, weights, out);
    else if (plan->columns)
        pack_columns(plan, weights, out);
    else if (plan->pairs)
        pack_pairs(plan, weights, out);
    else if (plan->depthwise)
        for (int c = 0; c < plan->interleave * plan->shape.out_c; c++)
            for (int tap = 0; tap < plan->depth; tap++)
                put(plan, mp_weight_at(plan, weights, (size_t)(c % plan->shape.out_c) * plan->depth + tap), out,
                    (size_t)tap * plan->packed_channels + c);
    else if (plan->interleave > 1)
        pack_interleaved(plan, weights, out);
    else
        for (int panel = 0; panel < plan->total_panels; panel++)
            pack_panel(plan, weights, panel / plan->panels, panel % plan->panels, out + panel * plan->stored_bytes);
}
