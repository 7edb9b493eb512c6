/* Weights from (out, in / groups, ky, kx) to the order in which tiles read them. */
#include "pack.h"
#include <string.h>
#include <stdlib.h>
#include "../half.h"
#include "groups.h"
#include "narrow.h"

/* weights[index] as the products see it; codes are exact. */
static float weight_at(const mp_conv_plan *plan, const void *weights, size_t index)
{
    const int type = plan->traits->type;
    if (plan->codes) return ((const int8_t *)weights)[index];
    if (plan->stored_weights) return mp_real_at(weights, index, type);
    return mp_round_real(((const float *)weights)[index], type);
}

static void put(const mp_conv_plan *plan, float weight, char *packed, size_t at)
{
    if (plan->traits->bits) {
        mp_narrow_put(packed, at, plan->traits->bits, (int)weight);
        return;
    }
    switch (plan->weight_type) {
    case MP_W_F32: ((float *)packed)[at] = weight; break;
    case MP_W_F16: ((uint16_t *)packed)[at] = mp_float_to_half(weight); break;
    case MP_W_I16: ((int16_t *)packed)[at] = (int16_t)weight; break;
    case MP_W_I8: ((int8_t *)packed)[at] = (int8_t)weight; break;
    }
}

/* Index of weight (channel, depth position) in the source; depth runs over (ky, kx, c). */
static size_t source_index(const mp_conv_plan *plan, int channel, int depth)
{
    const int taps = plan->shape.size * plan->shape.size, tap = depth / plan->group_in, c = depth % plan->group_in;
    return ((size_t)channel * plan->group_in + c) * taps + tap;
}

static void pack_panel(const mp_conv_plan *plan, const void *weights, int group, int panel, char *out)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep, first = panel * nr;
    for (int j = 0; j < nr && first + j < plan->group_out; j++) {
        if (plan->traits->bits) {
            mp_pack_narrow(plan, weights, group * plan->group_out + first + j, j, out);
            continue;
        }
        for (int segment = 0; segment < plan->segments; segment++)
            for (int k = 0; k < plan->run; k++) {
                const size_t from = source_index(plan, group * plan->group_out + first + j, segment * plan->run + k);
                const size_t step = (size_t)segment * (plan->run_padded / kstep) + k / kstep;
                put(plan, weight_at(plan, weights, from), out, (step * nr + j) * kstep + k % kstep);
            }
    }
}

static const int ROW[6][3] = {{1, 0, 0}, {1, 1, 1}, {1, -1, 1}, {1, 2, 4}, {1, -2, 4}, {0, 0, 1}};
static const int DENOMINATOR[6] = {4, -6, -6, 24, 24, 1};

/* Position (i, j) of a transformed kernel; codes leave out the denominators. */
static float transformed(const mp_conv_plan *plan, const float kernel[9], int i, int j)
{
    double total = 0.0;
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++) total += (double)(ROW[i][y] * ROW[j][x]) * kernel[y * 3 + x];
    return (float)(plan->codes ? total : total / (DENOMINATOR[i] * DENOMINATOR[j]));
}

static void pack_winograd(const mp_conv_plan *plan, const void *weights, char *packed)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep;
    const size_t position_elements = (size_t)plan->run_padded * nr;
    for (int k = 0; k < plan->shape.out_c; k++) {
        if (plan->traits->bits) { /* as they are: [panel][step][tap][nr][kstep] */
            mp_pack_narrow(plan, weights, k, k % nr, packed + k / nr * plan->stored_bytes);
            continue;
        }
        for (int c = 0; c < plan->shape.in_c; c++) {
            float kernel[9];
            for (int t = 0; t < 9; t++)
                kernel[t] = weight_at(plan, weights, ((size_t)k * plan->shape.in_c + c) * 9 + t);
            const size_t at =
                (size_t)(k / nr) * position_elements + ((size_t)(c / kstep) * nr + k % nr) * kstep + c % kstep;
            for (int position = 0; position < MP_POSITIONS; position++)
                put(plan, transformed(plan, kernel, position / 6, position % 6), packed,
                    at + position * position_elements * plan->total_panels);
        }
    }
}

/* Of each channel's codes, at the packed channel. */
static void sum_weights(const mp_conv_plan *plan, const int8_t *weights, int32_t *sums)
{
    const int width = plan->depthwise ? 1 : plan->panels * plan->micro->nr; /* packed channels of a group */
    for (int channel = 0; channel < plan->shape.out_c; channel++) {
        int32_t *sum = sums + (size_t)(channel / plan->group_out) * width + channel % plan->group_out;
        for (int i = 0; i < plan->depth; i++) *sum += weights[(size_t)channel * plan->depth + i];
    }
}

int mp_conv_packable(const mp_conv_plan *plan, const int8_t *weights)
{
    const size_t count = (size_t)plan->depth * plan->shape.out_c;
    const int largest = mp_largest_code(plan->traits), taps = plan->shape.size * plan->shape.size;
    if (!plan->grouped) {
        for (size_t i = 0; i < count; i++)
            if (abs(weights[i]) > largest) return 0;
        return 1;
    }
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
    header->version = MP_PACK_VERSION;
    header->nr = plan->depthwise ? 0 : plan->micro->nr;
    header->kstep = plan->depthwise ? 0 : plan->micro->kstep;
    header->weight_type = plan->weight_type;
    header->grouped = plan->grouped;
}

void mp_conv_pack(const mp_conv_plan *plan, const mp_table *table, const void *weights, void *packed)
{
    memset(packed, 0, mp_conv_packed_bytes(plan));
    mp_packed_header header;
    mp_packed_header_of(plan, table, &header);
    memcpy(packed, &header, sizeof header);
    if (plan->codes) sum_weights(plan, weights, (int32_t *)((char *)packed + MP_HEADER_BYTES));
    char *out = (char *)packed + (mp_packed_weights(plan, packed) - (const char *)packed);
    if (plan->winograd)
        pack_winograd(plan, weights, out);
    else if (plan->depthwise)
        for (int c = 0; c < plan->shape.out_c; c++)
            for (int tap = 0; tap < plan->depth; tap++)
                put(plan, weight_at(plan, weights, (size_t)c * plan->depth + tap), out,
                    (size_t)tap * plan->packed_channels + c);
    else
        for (int panel = 0; panel < plan->total_panels; panel++)
            pack_panel(plan, weights, panel / plan->panels, panel % plan->panels, out + panel * plan->stored_bytes);
}
