/* SPDX-License-Identifier: MIT */
#include "groups.h"
#include <stdlib.h>
#include "narrow.h"

static const int8_t *source(const mp_conv_plan *plan, const int8_t *weights, int channel, int tap, int c)
{
    return weights + ((size_t)channel * plan->group_in + c) * plan->shape.size * plan->shape.size + tap;
}

int mp_group_multiplier(const mp_conv_plan *plan, const int8_t *weights, int channel, int tap, int group)
{
    const int first = group * MP_GROUP, count = clamp(plan->group_in - first, 0, MP_GROUP);
    const int largest = mp_largest_code(plan->traits), taps = plan->shape.size * plan->shape.size;
    const int8_t *w = source(plan, weights, channel, tap, first);
    for (int multiplier = 1; multiplier <= 1 << mp_multiplier_bits(plan); multiplier++) {
        int fits = 1;
        for (int c = 0; c < count && fits; c++)
            fits = w[c * taps] % multiplier == 0 && abs(w[c * taps]) / multiplier <= largest;
        if (fits) return multiplier;
    }
    return 0;
}

size_t mp_narrow_at(const mp_conv_plan *plan, int j, int tap, int c)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep;
    size_t before = 0, step;
    if (plan->winograd) {
        const int first = c / MP_GROUP * MP_GROUP;
        before = mp_winograd_codes(plan, first) + tap * mp_winograd_tap(plan, first);
        step = (size_t)(c - first) / kstep;
    } else {
        const int depth = tap * plan->group_in + c, k = depth % plan->run;
        step = (size_t)(depth / plan->run) * (plan->run_padded / kstep) + k / kstep;
        c = k;
    }
    return before + (step * nr + j) * kstep + c % kstep;
}

void mp_pack_narrow(const mp_conv_plan *plan, const int8_t *weights, int channel, int j, char *panel)
{
    const int taps = plan->shape.size * plan->shape.size, groups = mp_groups(plan), nr = plan->micro->nr,
              bits = plan->traits->bits, spare = mp_multiplier_bits(plan);
    for (int tap = 0; tap < taps; tap++)
        for (int group = 0; group < groups; group++) {
            const int multiplier = plan->grouped ? mp_group_multiplier(plan, weights, channel, tap, group) : 1;
            const size_t at = plan->winograd ? (size_t)group * taps + tap : (size_t)tap * groups + group;
            if (plan->grouped)
                mp_narrow_put(panel + plan->codes_bytes, at * nr + j, spare, 8, multiplier - mp_multiplier_base(bits));
            for (int c = group * MP_GROUP; c < plan->group_in && c < (group + 1) * MP_GROUP; c++)
                mp_narrow_put(panel, mp_narrow_at(plan, j, tap, c), bits,
                              plan->winograd ? 8 : 8 * (int)plan->weight_bytes,
                              *source(plan, weights, channel, tap, c) / multiplier);
        }
}

/* Whether the weights of every group fill whole blocks. */
static int fills_blocks(const mp_conv_plan *plan)
{
    return plan->group_in % plan->micro->kstep == 0 && plan->group_in * plan->micro->nr % MP_NARROW_BLOCK == 0 &&
           MP_GROUP * plan->micro->nr % MP_NARROW_BLOCK == 0;
}

/* As many groups of a tap at a time as are whole, and the rest. */
static void unpack_groups(const mp_conv_plan *plan, const mp_table *table, const char *stored,
                          const int8_t *multipliers, size_t first, size_t count, char *weights)
{
    const int nr = plan->micro->nr, bits = plan->traits->bits;
    for (size_t at = first, end = first + count, codes; at < end; at += codes) {
        const int channel = (int)(at / nr), tap = channel / plan->group_in, c = channel % plan->group_in,
                  full_groups = c % MP_GROUP ? 0 : (plan->group_in - c) / MP_GROUP,
                  run = full_groups ? MP_GROUP : clamp(MP_GROUP - c % MP_GROUP, 1, plan->group_in - c);
        codes = (size_t)(full_groups ? full_groups * MP_GROUP : run) * nr;
        if (codes > end - at) codes = end - at;
        table->unpack(stored + mp_narrow_bytes(at, bits), mp_narrow_blocks(codes), bits, plan->weight_type, plan->micro,
                      multipliers + ((size_t)tap * mp_groups(plan) + c / MP_GROUP) * nr,
                      mp_narrow_blocks((size_t)run * nr), weights + (at - first) * plan->weight_bytes);
    }
}

/* Unpacked codes times their multipliers, where a step may hold channels of several groups or taps. */
static void multiply_groups(const mp_conv_plan *plan, const int8_t *multipliers, size_t first, size_t count,
                            char *weights)
{
    const int nr = plan->micro->nr, kstep = plan->micro->kstep, base = mp_multiplier_base(plan->traits->bits);
    const size_t run = (size_t)plan->run, padded = (size_t)plan->run_padded;
    for (size_t k = first / nr; k < (first + count) / nr; k++) {
        const size_t depth = k / padded * run + k % padded, tap = depth / plan->group_in;
        const int8_t *of = multipliers + (tap * mp_groups(plan) + depth % plan->group_in / MP_GROUP) * nr;
        if (k % padded >= run) continue; /* zeros */
        const size_t at = k / kstep * kstep * nr + k % kstep - first;
        for (int j = 0; j < nr; j++)
            if (plan->weight_type == MP_W_I16)
                ((int16_t *)weights)[at + j * kstep] = (int16_t)(((int16_t *)weights)[at + j * kstep] * (of[j] + base));
            else
                ((int8_t *)weights)[at + j * kstep] = (int8_t)(((int8_t *)weights)[at + j * kstep] * (of[j] + base));
    }
}

void mp_unpack_groups(const mp_conv_plan *plan, const mp_table *table, const char *stored, const int8_t *multipliers,
                      size_t first, size_t count, char *weights)
{
    const int bits = plan->traits->bits;
    const size_t before = first % MP_NARROW_BLOCK;
    if (fills_blocks(plan)) {
        unpack_groups(plan, table, stored, multipliers, first, count, weights);
    } else {
        table->unpack(stored + mp_narrow_bytes(first - before, bits), mp_narrow_blocks(before + count), bits,
                      plan->weight_type, 0, 0, 0, weights - before * plan->weight_bytes);
        multiply_groups(plan, multipliers, first, count, weights);
    }
}

void mp_spread_multipliers(const mp_conv_plan *plan, const int8_t *multipliers, size_t first, size_t count,
                           int32_t *out)
{
    const int nr = plan->micro->nr, base = mp_multiplier_base(plan->traits->bits);
    for (size_t at = first / nr, end = at + count / nr; at < end; at += plan->step, out += nr) {
        const size_t tap = at / plan->group_in, group = at % plan->group_in / MP_GROUP;
        const int8_t *from = multipliers + (tap * mp_groups(plan) + group) * nr;
        for (int j = 0; j < nr; j++) out[j] = (from[j] + base) * 0x00010001;
    }
}
