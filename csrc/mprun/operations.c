/* SPDX-License-Identifier: MIT */
#include "operations.h"
#include <math.h>
#include <string.h>
#include "../types.h"
#include "integer_steps.h"

#define NOT_FITTING "its inputs do not fit"
#define OTHER_SIZE "its result has another size"
#define STORED_OTHERWISE "its result is stored otherwise"

static int is_real(const mpb_slot *slot) { return mp_is_real(slot->type); }
static int same_shape(const mpb_slot *a, const mpb_slot *b) { return a->h == b->h && a->w == b->w && a->c == b->c; }
static int same_pixels(const mpb_slot *a, const mpb_slot *b) { return a->h == b->h && a->w == b->w; }
/* Activations that all kernels apply to their results; mp_conv and mp_map have more. */
static int is_fused(int activation) { return activation >= 0 && activation <= MP_SWISH; }
static const mpb_slot *slot(const mpr_operands *s, int input) { return &s->slots[s->inputs[input]]; }
static mpr_tensor *tensor(mpr_pass *pass, const mpr_operands *s, int input) { return &pass->tensors[s->inputs[input]]; }
static mpr_tensor *result(mpr_pass *pass, const mpr_operands *s) { return &pass->tensors[s->step->output]; }

static const float *floats_at(const mpr_weights *weights, const mpb_piece *piece)
{
    return (const void *)(weights->file->data + piece->at);
}

/* Only of steps that have values: the values of others were not checked. */
static const void *values_of(const mpr_operands *s) { return s->file->data + s->step->values.at; }

static int pooled_side(int side, int size, int stride, int padding) { return (side + padding - size) / stride + 1; }

static const char *window_problem(int h, int w, const mpb_step *step, int stride_y, const mpb_slot *out)
{
    if (step->size < 1 || step->size > 256 || step->stride < 1 || step->stride > MOST_SIDE || stride_y < 1 ||
        stride_y > MOST_SIDE || step->padding < 0 || step->padding > MOST_SIDE || h + step->padding < step->size ||
        w + step->padding < step->size)
        return "its window makes no sense";
    if (out->h != pooled_side(h, step->size, stride_y, step->padding) ||
        out->w != pooled_side(w, step->size, step->stride, step->padding))
        return OTHER_SIZE;
    return 0;
}

static const char *convolve_problem(const mpr_operands *s, int64_t *work)
{
    const mpb_step *step = s->step;
    const mpb_slot *in = s->in, *out = s->out;
    if (!mpr_has(s->file, MPB_CONVOLUTIONS, step->convolution, 1)) return "its convolution is missing";
    const mpb_convolution *conv = &s->file->convolutions[step->convolution];
    const mp_conv_shape *k = &conv->shape;
    if (conv->precision < 0 || conv->precision >= MP_PRECISIONS || conv->activation < 0 ||
        conv->activation > MP_LAST_ACTIVATION)
        return "its precision or activation is unknown";
    /* What a connected layer reads as channels of one pixel lies in memory as the tensor does. */
    if (in->type != mp_precisions[conv->precision].type || k->in_h < 1 || k->in_w < 1 || k->in_c < 1 ||
        k->in_h > MOST_SIDE || k->in_w > MOST_SIDE || k->in_c > INT32_MAX / MOST_SIDE ||
        (uint64_t)k->in_h * k->in_w * k->in_c != mpr_values(in) || k->out_c != out->c)
        return "its tensors are not those of its weights";
    if (k->size < 1 || k->size > 1024 || k->stride < 1 || k->stride > MOST_SIDE || k->padding < 0 ||
        k->padding > MOST_SIDE || k->dilation < 1 || k->dilation > MOST_SIDE || k->groups < 1)
        return "its geometry makes no sense";
    const int64_t reach = (int64_t)k->dilation * (k->size - 1) + 1;
    const int64_t rest_h = k->in_h + 2 * (int64_t)k->padding - reach,
                  rest_w = k->in_w + 2 * (int64_t)k->padding - reach;
    if (rest_h < 0 || rest_w < 0) return "its window does not fit";
    const int64_t h = rest_h / k->stride + 1, w = rest_w / k->stride + 1;
    if (h > MOST_SIDE || w > MOST_SIDE) return "its result is too large";
    if (h * w > 4 * MOST_VALUES / k->out_c) return "its result is too large";
    const int64_t taps = h * w * k->out_c * k->size * k->size, depth = k->in_c / k->groups;
    if (taps > MOST_WORK / (depth + 1)) return "it would run for hours";
    *work += taps * depth;
    if (step->pooled) {
        if (step->size != 2 || step->stride != 2 || step->padding > 1) return "it cannot pool so";
        const char *problem = window_problem((int)h, (int)w, step, step->stride, out);
        if (problem) return problem;
    } else if (out->h != h || out->w != w) {
        return OTHER_SIZE;
    }
    const int wide = in->type == MP_TYPE_I16 || out->type == MP_TYPE_I16;
    if (conv->bias_words != (step->operation == MPB_INTEGER_CONVOLVE) * (1 + wide))
        return "its weights are of another arithmetic";
    if (conv->bias_words) return is_real(in) || is_real(out) ? STORED_OTHERWISE : 0;
    if (step->quantizes ? is_real(out) || step->mode >= MP_TF_MIN_COMBINED || !step->calibrated : !is_real(out))
        return STORED_OTHERWISE;
    return 0;
}

static int convolve(mpr_pass *pass, const mpr_operands *s)
{
    const mpb_step *step = s->step;
    mpr_tensor *x = tensor(pass, s, 0), *out = result(pass, s);
    const mpr_weights *weights = pass->weights;
    const mpb_convolution *conv = &weights->file->convolutions[step->convolution];
    mp_conv_args args = {.shape = conv->shape,
                         .precision = conv->precision,
                         .activation = conv->activation,
                         .out_type = s->out->type,
                         .images = 1,
                         .threads = weights->threads,
                         .packed = weights->packed[step->convolution],
                         .in = x->data,
                         .out = out->data,
                         .bias = floats_at(weights, &conv->bias),
                         .scratch = pass->scratch,
                         .scratch_bytes = pass->scratch_bytes};
    if (!mp_is_real(mp_precisions[conv->precision].type)) {
        args.weight_scale = floats_at(weights, &conv->scale);
        args.in_scale = &x->params.scale;
        args.in_zero_point = &x->params.zero_point;
        args.in_offset = &x->params.offset;
    }
    if (conv->bias_words) {
        mpr_integer_arguments(s, conv, &args);
    } else if (x->is_deferred) {
        args.converts = 1;
        args.in = pass->image;
        args.in_type = MP_TYPE_F32;
        args.in_inv_scale = &x->params.inv_scale;
        args.in_rounding = x->params.rounding;
        args.in_low = x->params.low;
        args.in_high = x->params.high;
    }
    if (step->quantizes && !conv->bias_words) {
        args.out_inv_scale = &out->params.inv_scale;
        args.out_zero_point = &out->params.zero_point;
        args.out_low = out->params.low;
        args.out_high = out->params.high;
        args.out_rounding = out->params.rounding;
    } else if (out->needs_range) {
        args.ranges = out->range;
        out->has_range = 1;
    }
    if (step->pooled) {
        args.pool_h = s->out->h;
        args.pool_w = s->out->w;
    }
    int status = mp_conv(weights->table, &args);
    if (status == MP_OK && args.ranges && s->out->type != MP_TYPE_F32) {
        /* It was measured before rounding, which never changes the order of values. */
        uint64_t rounded;
        status = mp_cast(weights->table, out->range, MP_TYPE_F32, &rounded, s->out->type, 2, 1);
        if (status == MP_OK) status = mp_cast(weights->table, &rounded, s->out->type, out->range, MP_TYPE_F32, 2, 1);
    }
    return status;
}

static int quantize(mpr_pass *pass, const mpr_operands *s)
{
    mpr_tensor *x = tensor(pass, s, 0), *out = result(pass, s);
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const size_t count = mpr_values(s->in);
    mp_activation_scheme scheme;
    mpr_makes_codes(s->step, s->out, &scheme);
    if (!s->step->calibrated) {
        size_t bad;
        int status = x->has_range ? MP_OK : mp_value_range(table, x->data, s->in->type, 1, count, x->range, threads);
        if (status != MP_OK) return status;
        x->has_range = 1;
        status = mp_ranges_to_params(x->range, 1, &scheme, &out->params, &bad);
        if (status != MP_OK) return status;
    }
    const mp_quant_params *p = &out->params;
    if (out->is_deferred) return MP_OK;
    if (scheme.mode < MP_TF_MIN_COMBINED)
        return mp_quantize(table, x->data, s->in->type, out->data, s->out->type, 1, count, &p->inv_scale,
                           &p->zero_point, p->rounding, p->low, p->high, threads);
    const float *reals = x->data;
    if (s->in->type != MP_TYPE_F32) {
        const int status = mp_cast(table, x->data, s->in->type, pass->floats, MP_TYPE_F32, count, threads);
        if (status != MP_OK) return status;
        reals = pass->floats;
    }
    return mp_tf_quantize(reals, out->data, 1, count, p, threads);
}

static int dequantize(mpr_pass *pass, const mpr_operands *s)
{
    const mpr_tensor *x = tensor(pass, s, 0);
    mpr_tensor *out = result(pass, s);
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const size_t count = mpr_values(s->out);
    const mp_quant_params *p = &x->params;
    if (p->mode < MP_TF_MIN_COMBINED)
        return mp_dequantize(table, x->data, s->in->type, out->data, s->out->type, 1, count, &p->scale, &p->zero_point,
                             &p->offset, threads);
    if (s->out->type == MP_TYPE_F32) return mp_tf_dequantize(x->data, out->data, 1, count, p, threads);
    const int status = mp_tf_dequantize(x->data, pass->floats, 1, count, p, threads);
    return status != MP_OK ? status
                           : mp_cast(table, pass->floats, MP_TYPE_F32, out->data, s->out->type, count, threads);
}

static int slice(mpr_pass *pass, const mpr_operands *s)
{
    return mp_copy_channels(pass->weights->table, tensor(pass, s, 0)->data, result(pass, s)->data, s->out->type,
                            (size_t)s->in->h * s->in->w, s->in->c, s->step->first, s->out->c, 0, s->out->c,
                            pass->weights->threads);
}

static int concat(mpr_pass *pass, const mpr_operands *s)
{
    int channel = 0, status = MP_OK;
    for (int i = 0; i < s->step->inputs && status == MP_OK; i++) {
        const mpb_slot *in = slot(s, i);
        status = mp_copy_channels(pass->weights->table, tensor(pass, s, i)->data, result(pass, s)->data, s->out->type,
                                  (size_t)in->h * in->w, in->c, 0, s->out->c, channel, in->c, pass->weights->threads);
        channel += in->c;
    }
    return status;
}

static int combine(mpr_pass *pass, const mpr_operands *s)
{
    const float *weights = values_of(s);
    const int channels = s->out->c, last = s->step->inputs - 1;
    void *out = result(pass, s)->data;
    int status = MP_OK;
    for (int i = 1; i <= last && status == MP_OK; i++, weights += 2 * (size_t)channels) {
        const mpb_slot *b = slot(s, i);
        status =
            mp_combine(pass->weights->table, i == 1 ? tensor(pass, s, 0)->data : out, tensor(pass, s, i)->data, out,
                       b->type, s->out->type, i == last ? s->step->activation : MP_LINEAR, weights, weights + channels,
                       1, s->out->h, s->out->w, channels, b->h, b->w, b->c, pass->weights->threads);
    }
    return status;
}

static const char *multiply_problem(const mpr_operands *s)
{
    const mpb_slot *a = slot(s, !!s->step->swapped), *b = slot(s, !s->step->swapped);
    if (!is_fused(s->step->activation)) return "its activation is unknown";
    if (!is_real(a) || b->type != a->type || !is_real(s->out) || !same_shape(a, s->out)) return NOT_FITTING;
    switch (s->step->kind) {
    case MP_SAME: return same_shape(a, b) ? 0 : NOT_FITTING;
    case MP_PER_CHANNEL: return b->h == 1 && b->w == 1 && b->c == a->c ? 0 : NOT_FITTING;
    case MP_PER_PIXEL: return b->h == a->h && b->w == a->w && b->c == 1 ? 0 : NOT_FITTING;
    default: return "it multiplies otherwise";
    }
}

static const char *normalize_problem(const mpr_operands *s)
{
    const mpb_step *step = s->step;
    if (!is_real(s->in) || s->in->type != s->out->type || !same_shape(s->in, s->out)) return "it cannot normalise this";
    if (step->kind < MP_SOFTMAX || step->kind > MP_LAYER) return "its formula is unknown";
    if (step->length < 1 || mpr_values(s->in) % (uint64_t)step->length || step->segments < 1 ||
        !mpr_has(s->file, MPB_PLACES, step->first_start, (int64_t)step->segments + 1))
        return "its rows do not fit";
    for (int i = 0; i < 4; i++)
        if (!isfinite(step->parameters[i])) return "its parameters make no sense";
    if (step->kind == MP_LOCAL_RESPONSE && !(step->parameters[0] >= 1 && step->parameters[0] <= MOST_CHANNELS))
        return "its parameters make no sense";
    return 0; /* the kernel looks at the segments */
}

static const char *attention_problem(const mpr_operands *s, int64_t *work)
{
    const mpb_step *step = s->step;
    const int64_t pixels = (int64_t)s->in->h * s->in->w;
    if (s->in->type != MP_TYPE_F32 || s->out->type != MP_TYPE_F32) return STORED_OTHERWISE;
    if (step->factor < 1 || step->length < 1 || step->segments < 1 || !isfinite(step->parameters[0]) ||
        s->out->c % step->factor || pixels % step->segments || pixels / step->segments > MP_MOST_POSITIONS)
        return "its heads or areas make no sense";
    if (!same_pixels(s->in, s->out) || s->in->c != 2 * (int64_t)step->factor * step->length + s->out->c)
        return NOT_FITTING;
    const int64_t products = pixels * (pixels / step->segments), channels = (s->in->c + s->out->c) / 2;
    if (products > MOST_WORK / (channels + 1)) return "it would run for hours";
    *work += products * channels;
    return 0;
}

const mpr_operation mpr_operations[MPB_OPERATIONS] = {
#define OPERATION(NUMBER, ...) [MPB_##NUMBER] = {__VA_ARGS__},
#include "operations.def"
#undef OPERATION
};

/* clang-format off */
const mpr_step_form mpr_step_forms[MPB_OPERATIONS] = {
    [MPB_CONVOLVE] = {.inputs = 1},
    [MPB_QUANTIZE] = {.inputs = 1},
    [MPB_DEQUANTIZE] = {.inputs = 1},
    [MPB_CAST] = {.inputs = 1},
    [MPB_MAXPOOL] = {.inputs = 1},
    [MPB_AVGPOOL] = {.inputs = 1},
    [MPB_UPSAMPLE] = {.inputs = 1},
    [MPB_SLICE] = {.inputs = 1},
    [MPB_CONCAT] = {.inputs = 0},
    [MPB_ADD] = {.inputs = 2},
    [MPB_YOLO] = {.inputs = 1},
    [MPB_MAP] = {.inputs = 1},
    [MPB_COMBINE] = {.inputs = 0, .data = MPR_WEIGHTS},
    [MPB_MULTIPLY] = {.inputs = 2},
    [MPB_CONSTANT] = {.inputs = 1, .data = MPR_RESULT},
    [MPB_GATHER] = {.inputs = 1, .data = MPR_SOURCES},
    [MPB_NORMALIZE] = {.inputs = 1},
    [MPB_LOCAL_AVGPOOL] = {.inputs = 1},
    [MPB_CHANNEL_MAX] = {.inputs = 1},
    [MPB_ATTENTION] = {.inputs = 1},
    [MPB_INTEGER_CONVOLVE] = {.inputs = 1, .data = MPR_RULES},
    [MPB_INTEGER_QUANTIZE] = {.inputs = 1, .data = MPR_RULES},
    [MPB_INTEGER_RESCALE] = {.inputs = 1, .data = MPR_RULES},
    [MPB_INTEGER_ADD] = {.inputs = 2, .data = MPR_RULES},
    [MPB_SHUFFLE] = {.inputs = 1},
};
/* clang-format on */

const char *mpr_operation_name(const mpb_step *step)
{
    if (step->operation == MPB_CONVOLVE && step->pooled) return "ConvolvePool";
    if (step->operation == MPB_CONVOLVE && step->quantizes) return "ConvolveQuantize";
    if (step->operation == MPB_INTEGER_CONVOLVE && step->pooled) return "IntegerConvolvePool";
    return step->operation >= 0 && step->operation < MPB_OPERATIONS ? mpr_operations[step->operation].name : "?";
}

const char *mpr_shape_problem(const mpr_operands *s, int64_t *work)
{
    const mpb_step *step = s->step;
    const mpb_slot *in = s->in, *out = s->out;
    const int reals = mp_is_real(in->type) && mp_is_real(out->type), same_type = in->type == out->type;
    switch (step->operation) {
    case MPB_YOLO: return in == out && in->type == MP_TYPE_F32 ? 0 : "a head takes fp32";
    case MPB_CONVOLVE:
    case MPB_INTEGER_CONVOLVE: return convolve_problem(s, work);
    case MPB_INTEGER_QUANTIZE:
    case MPB_INTEGER_RESCALE:
    case MPB_INTEGER_ADD: return mpr_integer_shape_problem(s);
    case MPB_QUANTIZE: return is_real(in) && !is_real(out) && same_shape(in, out) ? 0 : "it cannot quantise this";
    case MPB_DEQUANTIZE: return !is_real(in) && is_real(out) && same_shape(in, out) ? 0 : "it cannot dequantise this";
    case MPB_CAST: return reals && !same_type && same_shape(in, out) ? 0 : "it cannot convert this";
    case MPB_MAXPOOL:
    case MPB_LOCAL_AVGPOOL: {
        const int largest = step->operation == MPB_MAXPOOL;
        const char *problem = window_problem(in->h, in->w, step, largest ? step->stride : step->stride_y, out);
        if (!same_type || in->c != out->c || (!largest && !reals)) return "it pools something else";
        if (!problem) *work += (int64_t)mpr_values(out) * step->size * step->size;
        return problem;
    }
    case MPB_AVGPOOL:
        return reals && same_type && out->h == 1 && out->w == 1 && in->c == out->c ? 0 : "it averages otherwise";
    case MPB_UPSAMPLE:
        if (step->factor < 1 || step->factor > MOST_SIDE) return "its factor makes no sense";
        return same_type && in->c == out->c && (int64_t)in->h * step->factor == out->h &&
                       (int64_t)in->w * step->factor == out->w
                   ? 0
                   : OTHER_SIZE;
    case MPB_SLICE:
        return same_type && same_pixels(in, out) && step->first >= 0 && step->first <= in->c - out->c
                   ? 0
                   : "its part does not exist";
    case MPB_CONCAT: {
        int64_t channels = 0;
        for (int i = 0; i < step->inputs; i++) {
            const mpb_slot *part = slot(s, i);
            if (part->type != out->type || !same_pixels(part, out)) return NOT_FITTING;
            channels += part->c;
        }
        return channels == out->c ? 0 : OTHER_SIZE;
    }
    case MPB_ADD:
        if (!is_fused(step->activation)) return "its activation is unknown";
        return reals && slot(s, 1)->type == in->type && same_shape(in, slot(s, 1)) && same_shape(in, out) ? 0
                                                                                                          : NOT_FITTING;
    case MPB_MAP:
        return step->activation >= 0 && step->activation <= MP_LAST_ACTIVATION && isfinite(step->parameters[0]) &&
                       isfinite(step->parameters[1]) && reals && same_shape(in, out)
                   ? 0
                   : "it cannot map this";
    case MPB_COMBINE:
        if (!is_fused(step->activation)) return "its activation is unknown";
        /* The sum so far is stored as the result is, and read as the next input is. */
        for (int i = 1; i < step->inputs; i++)
            if (slot(s, i)->type != (i == 1 ? in->type : out->type)) return NOT_FITTING;
        *work += (int64_t)mpr_values(out) * step->inputs;
        return step->inputs > 1 && reals && same_shape(in, out) ? 0 : NOT_FITTING;
    case MPB_MULTIPLY: return multiply_problem(s);
    case MPB_CONSTANT: return is_real(out) ? 0 : STORED_OTHERWISE;
    case MPB_GATHER: return same_type ? 0 : STORED_OTHERWISE;
    case MPB_NORMALIZE: return normalize_problem(s);
    case MPB_ATTENTION: return attention_problem(s, work);
    case MPB_CHANNEL_MAX:
        *work += (int64_t)mpr_values(in);
        return same_type && same_pixels(in, out) && out->c <= in->c ? 0 : "it pools something else";
    case MPB_SHUFFLE:
        if (step->factor < 1 || in->c % step->factor) return "its groups make no sense";
        return same_type && same_shape(in, out) ? 0 : NOT_FITTING;
    default: return "this program does not know the operation; build a newer mprun";
    }
}

int mpr_run_operation(mpr_pass *pass, const mpr_operands *s)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const mpb_step *step = s->step;
    const mpb_slot *in = s->in, *out_slot = s->out;
    const int a = step->swapped != 0, b = !a;
    const float *p = step->parameters;
    const mpr_tensor *x = tensor(pass, s, 0);
    mpr_tensor *out = result(pass, s);
    switch (step->operation) {
    case MPB_CONVOLVE:
    case MPB_INTEGER_CONVOLVE: return convolve(pass, s);
    case MPB_INTEGER_QUANTIZE:
    case MPB_INTEGER_RESCALE:
    case MPB_INTEGER_ADD: return mpr_run_integer(pass, s);
    case MPB_QUANTIZE: return quantize(pass, s);
    case MPB_DEQUANTIZE: return dequantize(pass, s);
    case MPB_CAST:
        return out->is_deferred ? MP_OK
                                : mp_cast(table, x->data, in->type, out->data, out_slot->type, mpr_values(in), threads);
    case MPB_MAXPOOL:
        return mp_maxpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, out_slot->h, out_slot->w,
                          step->size, step->stride, step->padding, threads);
    case MPB_AVGPOOL: return mp_avgpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, threads);
    case MPB_UPSAMPLE:
        return mp_upsample(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, step->factor, threads);
    case MPB_SLICE: return slice(pass, s);
    case MPB_CONCAT: return concat(pass, s);
    case MPB_ADD:
        return mp_add(table, x->data, tensor(pass, s, 1)->data, out->data, in->type, out_slot->type, step->activation,
                      mpr_values(in), threads);
    case MPB_MAP:
        return mp_map(table, x->data, in->type, out->data, out_slot->type, step->activation, p[0], p[1], mpr_values(in),
                      threads);
    case MPB_COMBINE: return combine(pass, s);
    case MPB_MULTIPLY:
        return mp_multiply(table, tensor(pass, s, a)->data, tensor(pass, s, b)->data, out->data, slot(s, a)->type,
                           out_slot->type, step->activation, step->kind, 1, out_slot->h, out_slot->w, out_slot->c,
                           threads);
    case MPB_CONSTANT:
        return mp_cast(table, values_of(s), MP_TYPE_F32, out->data, out_slot->type, mpr_values(out_slot), threads);
    case MPB_GATHER:
        return mp_gather(table, x->data, out->data, in->type, 1, mpr_values(in), mpr_values(out_slot), values_of(s),
                         &x->params.zero_point, threads);
    case MPB_NORMALIZE:
        return mp_normalize(table, x->data, out->data, in->type, step->kind, mpr_values(in) / step->length,
                            step->length, s->file->places + step->first_start, step->segments, p[0], p[1], p[2], p[3],
                            threads);
    case MPB_ATTENTION:
        return mp_attention(table, x->data, out->data, 1, (size_t)in->h * in->w, step->factor, step->length,
                            out_slot->c / step->factor, step->segments, p[0], threads);
    case MPB_LOCAL_AVGPOOL:
        return mp_local_avgpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, out_slot->h, out_slot->w,
                                step->size, step->stride, step->stride_y, step->padding, threads);
    case MPB_CHANNEL_MAX:
        return mp_channel_max(table, x->data, out->data, in->type, (size_t)in->h * in->w, in->c, out_slot->c, threads);
    case MPB_SHUFFLE:
        return mp_shuffle(table, x->data, out->data, in->type, (size_t)in->h * in->w, in->c, step->factor, threads);
    default: return MP_OK; /* a head hands its tensor over */
    }
}
