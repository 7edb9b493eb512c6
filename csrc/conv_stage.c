/* Staging: input rows padded and converted to what the tiles multiply, so that inner loops know neither. */
#include <string.h>
#include "conv_item.h"

/* What stands in padding taps: the staged form of the real 0. */
static int padding_value(const mp_conv_plan *p, int zero_point)
{
    const int subtracts = p->dw ? p->dw->subtracts_zero : p->micro->subtracts_zero;
    const int bias_q = p->dw ? p->dw->bias_q : p->micro->bias_q;
    return p->precision != MP_INT8 || subtracts ? 0 : zero_point + bias_q;
}

static void fill(char *staged, size_t count, size_t a_bytes, int value)
{
    if (value == 0) {
        memset(staged, 0, count * a_bytes);
    } else if (a_bytes == 1) {
        memset(staged, value, count);
    } else {
        int16_t *to = (int16_t *)staged;
        for (size_t i = 0; i < count; i++)
            to[i] = (int16_t)value;
    }
}

void mp_stage_rows(const mp_conv_plan *p, const mp_conv_args *a, const mp_schedule *c, int image, int oy, int count,
                   char *staged)
{
    const mp_conv_shape *s = &p->s;
    const size_t bytes = mp_source_bytes(p->precision);
    const size_t in_row = (size_t)s->in_w * s->in_c;
    const char *in = (const char *)a->in + (size_t)image * s->in_h * in_row * bytes;
    const int zero_point = p->precision == MP_INT8 ? a->in_zero_point[image] : 0;
    /* Winograd works on the codes themselves, whose results have the smaller bound. */
    const int value = p->winograd ? zero_point : padding_value(p, zero_point);
    const int subtracted = p->winograd ? 0 : zero_point;
    const int left = clamp(s->padding, 0, p->stage_w);
    const int middle = clamp(s->in_w, 0, p->stage_w - left);
    for (int r = 0; r < count; r++) {
        const int iy = oy * s->stride - s->padding + r;
        char *to = staged + r * c->stage_row;
        if (iy < 0 || iy >= s->in_h) {
            fill(to, (size_t)p->stage_w * s->in_c, c->a_bytes, value);
            continue;
        }
        fill(to, (size_t)left * s->in_c, c->a_bytes, value);
        to += (size_t)left * s->in_c * c->a_bytes;
        (p->dw ? p->dw->stage : p->micro->stage)(to, in + iy * in_row * bytes, (size_t)middle * s->in_c, subtracted);
        to += (size_t)middle * s->in_c * c->a_bytes;
        fill(to, (size_t)(p->stage_w - left - middle) * s->in_c, c->a_bytes, value);
    }
    memset(staged + count * c->stage_row, 0, 4 * MP_ALIGN); /* what may be read past the end */
}
