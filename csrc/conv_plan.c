#include "conv_plan.h"

/* Below this many channels the transforms cost more than they save. For fp32_winograd part of the contract. */
enum { WINOGRAD_MIN_CHANNELS = 16 };

static int winograd_shape(const mp_conv_shape *s)
{
    return s->size == 3 && s->stride == 1 && s->dilation == 1 && s->groups == 1 && s->in_c >= WINOGRAD_MIN_CHANNELS &&
           s->out_c >= WINOGRAD_MIN_CHANNELS;
}

int mp_conv_plan_make(mp_conv_plan *p, const mp_table *table, const mp_conv_shape *s, int precision, int algorithm,
                      const void *weights)
{
    /* One side, one channel count: far above any network in use, low enough that products fit 64 bits. */
    enum { SIDE = 1 << 16, CHANNELS = 1 << 20 };
    if (precision < 0 || precision >= MP_PRECISIONS)
        return MP_BAD_ARGUMENT;
    if (s->in_h < 1 || s->in_w < 1 || s->in_c < 1 || s->out_c < 1 || s->size < 1 || s->stride < 1 || s->padding < 0 ||
        s->dilation < 1 || s->groups < 1)
        return MP_BAD_SHAPE;
    if (s->in_h > SIDE || s->in_w > SIDE || s->in_c > CHANNELS || s->out_c > CHANNELS || s->size > 1024 ||
        s->stride > SIDE || s->padding > SIDE || s->dilation > SIDE)
        return MP_BAD_SHAPE;
    if (s->in_c % s->groups || s->out_c % s->groups)
        return MP_BAD_SHAPE;
    const int64_t reach = (int64_t)s->dilation * (s->size - 1) + 1;
    const int64_t h = s->in_h + 2 * (int64_t)s->padding - reach, w = s->in_w + 2 * (int64_t)s->padding - reach;
    if (h < 0 || w < 0)
        return MP_BAD_SHAPE;
    if (!table->micro[precision])
        return MP_UNSUPPORTED;
    const int64_t depth = (int64_t)s->size * s->size * (s->in_c / s->groups);
    if (precision == MP_INT8 && depth > MP_INT8_MAX_DEPTH)
        return MP_OVERFLOW;
    const int64_t staged_row = (w / s->stride * s->stride + reach) * s->in_c;
    if (depth > INT32_MAX / 8 || staged_row > INT32_MAX / 8 || staged_row * reach > INT32_MAX ||
        depth * s->out_c > INT64_C(1) << 32)
        return MP_BAD_SHAPE;

    p->s = *s;
    p->precision = precision;
    p->micro = table->micro[precision];
    p->out_h = (int)(h / s->stride) + 1;
    p->out_w = (int)(w / s->stride) + 1;
    p->cg = s->in_c / s->groups;
    p->kg = s->out_c / s->groups;
    p->depth = (int)depth;
    p->dw = p->cg == 1 && p->kg == 1 && s->groups > 1 ? table->depthwise[precision] : 0;
    p->stage_w = (p->out_w - 1) * s->stride + (int)reach;
    p->row_span = (int)reach;
    const int weight_type = p->dw ? p->dw->weight_type : p->micro->weight_type;
    p->weight_bytes = weight_type == MP_W_F32 ? 4 : weight_type == MP_W_I8 ? 1 : 2;
    if (p->dw) {
        p->winograd = 0;
        p->segments = p->depth;
        p->run = p->run_padded = 1;
        p->panels = p->total_panels = 1;
        p->packed_channels = ceil_div(s->out_c, MP_MAX_LANES) * MP_MAX_LANES;
        p->panel_bytes = (size_t)p->depth * p->packed_channels * p->weight_bytes;
        p->staged = 1;
        return MP_OK;
    }
    p->winograd = 0;
    if (table->winograd[precision] && winograd_shape(s))
        if (algorithm == MP_WINOGRAD || precision == MP_FP32_WINOGRAD ||
            (algorithm == MP_BY_WEIGHTS && weights && mp_winograd_fits_int8(s, weights)))
            p->winograd = table->winograd[precision];
    if (p->winograd) {
        const mp_micro *m = p->micro = p->winograd->micro;
        p->weight_bytes = precision == MP_INT8 ? 2 : 4;
        p->segments = 36; /* positions of a transformed tile */
        p->run = s->in_c;
        p->run_padded = ceil_div(p->run, m->kstep) * m->kstep;
        p->panels = p->total_panels = ceil_div(s->out_c, m->nr);
        p->packed_channels = p->total_panels * m->nr;
        p->panel_bytes = (size_t)36 * p->run_padded * m->nr * p->weight_bytes; /* [position][panel], not apart */
        p->stage_w = ceil_div(p->out_w, 4) * 4 + 2;
        p->staged = 1;
        return MP_OK;
    }
    const mp_micro *m = p->micro;
    /* Taps of one kernel row are contiguous in NHWC unless dilation or groups tear them apart. */
    const int joined = (s->groups == 1 && s->dilation == 1) || s->size == 1;
    p->segments = s->size == 1 ? 1 : joined ? s->size : s->size * s->size;
    p->run = p->depth / p->segments;
    p->run_padded = ceil_div(p->run, m->kstep) * m->kstep;
    p->panels = ceil_div(p->kg, m->nr);
    p->total_panels = p->panels * s->groups;
    p->packed_channels = p->total_panels * m->nr;
    p->panel_bytes = mp_align((size_t)p->segments * p->run_padded * m->nr * p->weight_bytes);
    p->staged = m->needs_stage || s->padding > 0;
    if (!p->staged)
        p->stage_w = s->in_w;
    return MP_OK;
}

size_t mp_conv_packed_bytes(const mp_conv_plan *p)
{
    return MP_HEADER_BYTES + mp_align((size_t)p->packed_channels * sizeof(int32_t)) +
           mp_align(p->panel_bytes * p->total_panels);
}
