/* Weights from (out, in / groups, ky, kx) to the order in which tiles read them. */
#include <string.h>
#include "conv_plan.h"
#include "half.h"

/* weights[index] as the packed type, to packed[at]. */
static void put(const mp_conv_plan *p, int type, const void *weights, size_t index, char *packed, size_t at)
{
    if (p->precision == MP_INT8) {
        const int8_t w = ((const int8_t *)weights)[index];
        if (type == MP_W_I16)
            ((int16_t *)packed)[at] = w;
        else
            ((int8_t *)packed)[at] = w;
        return;
    }
    float w = ((const float *)weights)[index];
    uint16_t half = 0;
    if (p->precision == MP_FP16 || p->precision == MP_FP16_HALF) {
        half = mp_float_to_half(w);
        w = mp_half_to_float(half);
    }
    if (type == MP_W_F16)
        ((uint16_t *)packed)[at] = half;
    else
        ((float *)packed)[at] = w;
}

/* Index of weight (channel, depth position) in the source; depth runs over (ky, kx, c). */
static size_t source_index(const mp_conv_plan *p, int channel, int depth)
{
    const int taps = p->s.size * p->s.size, tap = depth / p->cg, c = depth % p->cg;
    return ((size_t)channel * p->cg + c) * taps + tap;
}

static void pack_panel(const mp_conv_plan *p, const void *weights, int group, int panel, char *out, int32_t *sums)
{
    const int nr = p->micro->nr, kstep = p->micro->kstep;
    for (int j = 0; j < nr; j++) {
        const int within = panel * nr + j;
        if (within >= p->kg)
            break;
        const int channel = group * p->kg + within;
        for (int segment = 0; segment < p->segments; segment++)
            for (int k = 0; k < p->run; k++) {
                const size_t index = source_index(p, channel, segment * p->run + k);
                const size_t step = (size_t)segment * (p->run_padded / kstep) + k / kstep;
                put(p, p->micro->weight_type, weights, index, out, (step * nr + j) * kstep + k % kstep);
                if (p->precision == MP_INT8)
                    sums[j] += ((const int8_t *)weights)[index];
            }
    }
}

void mp_conv_pack(const mp_conv_plan *p, const mp_table *table, const void *weights, void *packed)
{
    memset(packed, 0, mp_conv_packed_bytes(p));
    const mp_packed_header header = {MP_PACKED_MAGIC, table, p->s, p->precision, p->winograd != 0};
    memcpy(packed, &header, sizeof header);
    int32_t *sums = (int32_t *)((char *)packed + MP_HEADER_BYTES);
    char *out = (char *)packed + (mp_packed_weights(p, packed) - (const char *)packed);
    if (p->winograd) {
        mp_winograd_pack(p, weights, out, sums);
        return;
    }
    if (p->dw) {
        for (int c = 0; c < p->s.out_c; c++)
            for (int tap = 0; tap < p->depth; tap++) {
                const size_t index = (size_t)c * p->depth + tap;
                put(p, p->dw->weight_type, weights, index, out, (size_t)tap * p->packed_channels + c);
                if (p->precision == MP_INT8)
                    sums[c] += ((const int8_t *)weights)[index];
            }
        return;
    }
    for (int group = 0; group < p->s.groups; group++)
        for (int panel = 0; panel < p->panels; panel++) {
            const int at = group * p->panels + panel;
            pack_panel(p, weights, group, panel, out + at * p->panel_bytes, sums + (size_t)at * p->micro->nr);
        }
}
