#include "groups.h"
#include <stdlib.h>
#include <string.h>
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
    size_t step;
    if (plan->winograd) {
        step = (size_t)(c / kstep) * 9 + tap;
    } else {
        const int depth = tap * plan->group_in + c, k = depth % plan->run;
        step = (size_t)(depth / plan->run) * (plan->run_padded / kstep) + k / kstep;
        c = k;
    }
    return (step * nr + j) * kstep + c % kstep;
}

void mp_pack_narrow(const mp_conv_plan *plan, const int8_t *weights, int channel, int j, char *panel)
{
    const int taps = plan->shape.size * plan->shape.size, groups = mp_groups(plan), bits = plan->traits->bits;
    for (int tap = 0; tap < taps; tap++)
        for (int group = 0; group < groups; group++) {
            const int multiplier = plan->grouped ? mp_group_multiplier(plan, weights, channel, tap, group) : 1;
            if (plan->grouped)
                mp_narrow_put(panel + plan->codes_bytes, ((size_t)tap * groups + group) * plan->micro->nr + j,
                              mp_multiplier_bits(plan), multiplier - 1);
            for (int c = group * MP_GROUP; c < plan->group_in && c < (group + 1) * MP_GROUP; c++)
                mp_narrow_put(panel, mp_narrow_at(plan, j, tap, c), bits,
                              *source(plan, weights, channel, tap, c) / multiplier);
        }
}

size_t mp_multiplier_scratch(const mp_conv_plan *plan, size_t *codes)
{
    *codes = mp_narrow_blocks(mp_multipliers(plan)) * MP_NARROW_BLOCK;
    return *codes + mp_multipliers(plan) * plan->micro->kstep + 8;
}

void mp_spread_multipliers(const mp_conv_plan *plan, const mp_table *table, const char *panel, int8_t *codes,
                           int8_t *multipliers)
{
    const int bits = mp_multiplier_bits(plan), kstep = plan->micro->kstep;
    const size_t count = mp_multipliers(plan);
    table->unpack(panel + plan->codes_bytes, mp_narrow_blocks(count), bits, MP_W_I8, codes);
    for (size_t i = 0; i < count; i++, multipliers += kstep) {
        const uint64_t eight = ((codes[i] & ((1u << bits) - 1)) + 1) * UINT64_C(0x0101010101010101);
        for (int k = 0; k < kstep; k += 8) memcpy(multipliers + k, &eight, sizeof eight);
    }
}

void mp_multiply_groups(const mp_conv_plan *plan, const mp_table *table, const int8_t *multipliers, size_t first,
                        size_t count, char *weights)
{
    const int kstep = plan->micro->kstep, groups = mp_groups(plan);
    const size_t width = (size_t)plan->micro->nr * kstep, steps = count / width;
    const size_t run_steps = (size_t)plan->run_padded / kstep;
    for (size_t done = 0, some; done < steps; done += some) {
        const size_t step = first / width + done;
        size_t tap, c;
        if (plan->winograd) { /* a step is all taps of kstep channels */
            tap = step % 9;
            c = step / 9 * kstep;
            some = 1;
        } else { /* a segment is a tap, or as many as its run holds */
            const size_t k = step % run_steps * kstep, end = (size_t)plan->group_in;
            tap = step / run_steps * (plan->run / plan->group_in) + k / end;
            c = k % end;
            /* to the end of the group, the tap, the run, or of what there is */
            const size_t to = (c / MP_GROUP + 1) * MP_GROUP, last = to < end ? to : end;
            some = (last - c + kstep - 1) / kstep;
            if (some > steps - done) some = steps - done;
        }
        table->multiply_codes(weights + done * width * plan->weight_bytes,
                              multipliers + (tap * groups + c / MP_GROUP) * width, width, some, plan->weight_type);
    }
}
