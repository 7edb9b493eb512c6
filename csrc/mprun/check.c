/* SPDX-License-Identifier: MIT */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../types.h"

enum { MOST_SIDE = 1 << 16, MOST_CHANNELS = 1 << 20, MOST_INPUTS = 1 << 10 };
#define MOST_VALUES (INT64_C(1) << 30)
#define MOST_ARENA (UINT64_C(1) << 32)
#define MOST_WORK (INT64_C(1) << 43) /* multiply-accumulates, or values moved */

uint64_t mpr_slot_bytes(const mpb_slot *slot) { return mpr_values(slot) * mp_type_bytes(slot->type); }

int mpr_makes_codes(const mpb_step *step, mp_activation_scheme *scheme)
{
    if (step->operation != MPB_QUANTIZE && !(step->operation == MPB_CONVOLVE && step->quantizes)) return 0;
    *scheme = (mp_activation_scheme){step->mode, step->rounding, step->narrow_range, step->ensure_minimum_range};
    return 1;
}

const char *mpr_operation_name(const mpb_step *step)
{
    static const char *const NAMES[MPB_OPERATIONS] = {"Convolve",  "Quantize",  "Dequantize",   "Cast",      "MaxPool",
                                                      "AvgPool",   "Upsample",  "Slice",        "Concat",    "Add",
                                                      "Yolo",      "Map",       "Combine",      "Multiply",  "Constant",
                                                      "Rearrange", "Normalize", "LocalAvgPool", "ChannelMax"};
    if (step->operation == MPB_CONVOLVE && step->pooled) return "ConvolvePool";
    if (step->operation == MPB_CONVOLVE && step->quantizes) return "ConvolveQuantize";
    return step->operation >= 0 && step->operation < MPB_OPERATIONS ? NAMES[step->operation] : "?";
}

static int same_shape(const mpb_slot *a, const mpb_slot *b) { return a->h == b->h && a->w == b->w && a->c == b->c; }

static int pooled_side(int side, int size, int stride, int padding) { return (side + padding - size) / stride + 1; }

static const char *pool_problem(int h, int w, const mpb_step *step, const mpb_slot *out)
{
    if (step->size < 1 || step->size > 256 || step->stride < 1 || step->stride > MOST_SIDE || step->padding < 0 ||
        step->padding > MOST_SIDE || h + step->padding < step->size || w + step->padding < step->size)
        return "its window makes no sense";
    if (out->h != pooled_side(h, step->size, step->stride, step->padding) ||
        out->w != pooled_side(w, step->size, step->stride, step->padding))
        return "its result has another size";
    return 0;
}

static const char *convolution_problem(const mpr_file *file, const mpb_step *step, const mpb_slot *in,
                                       const mpb_slot *out, int64_t *work)
{
    if (!mpr_has(file, MPB_CONVOLUTIONS, step->convolution, 1)) return "its convolution is missing";
    const mpb_convolution *own = &file->convolutions[step->convolution];
    const mp_conv_shape *s = &own->shape;
    if (own->precision < 0 || own->precision >= MP_PRECISIONS || own->activation < 0 || own->activation > MP_SWISH)
        return "its precision or activation is unknown";
    /* What a connected layer reads as channels of one pixel lies in memory as the tensor does. */
    if (in->type != mp_precisions[own->precision].type || s->in_h < 1 || s->in_w < 1 || s->in_c < 1 ||
        s->in_h > MOST_SIDE || s->in_w > MOST_SIDE || s->in_c > INT32_MAX / MOST_SIDE ||
        (uint64_t)s->in_h * s->in_w * s->in_c != mpr_values(in) || s->out_c != out->c)
        return "its tensors are not those of its weights";
    if (s->size < 1 || s->size > 1024 || s->stride < 1 || s->stride > MOST_SIDE || s->padding < 0 ||
        s->padding > MOST_SIDE || s->dilation < 1 || s->dilation > MOST_SIDE || s->groups < 1)
        return "its geometry makes no sense";
    const int64_t reach = (int64_t)s->dilation * (s->size - 1) + 1;
    const int64_t rest_h = s->in_h + 2 * (int64_t)s->padding - reach,
                  rest_w = s->in_w + 2 * (int64_t)s->padding - reach;
    if (rest_h < 0 || rest_w < 0) return "its window does not fit";
    const int64_t h = rest_h / s->stride + 1, w = rest_w / s->stride + 1;
    if (h > MOST_SIDE || w > MOST_SIDE) return "its result is too large";
    if (h * w > 4 * MOST_VALUES / s->out_c) return "its result is too large";
    const int64_t taps = h * w * s->out_c * s->size * s->size, depth = s->in_c / s->groups;
    if (taps > MOST_WORK / (depth + 1)) return "it would run for hours";
    *work += taps * depth;
    if (step->pooled) {
        if (step->size != 2 || step->stride != 2 || step->padding > 1) return "it cannot pool so";
        const char *problem = pool_problem((int)h, (int)w, step, out);
        if (problem) return problem;
    } else if (out->h != h || out->w != w) {
        return "its result has another size";
    }
    if (step->quantizes ? out->type != MP_TYPE_I8 || step->mode >= MP_TF_MIN_COMBINED || !step->calibrated
                        : !mp_is_real(out->type))
        return "its result is stored otherwise";
    return 0;
}

static const char *multiply_problem(const mpb_step *step, const mpb_slot *a, const mpb_slot *b, const mpb_slot *out)
{
    if (step->activation < 0 || step->activation > MP_SWISH) return "its activation is unknown";
    if (!mp_is_real(a->type) || b->type != a->type || !mp_is_real(out->type) || !same_shape(a, out))
        return "its inputs do not fit";
    switch (step->kind) {
    case MP_SAME: return same_shape(a, b) ? 0 : "its inputs do not fit";
    case MP_PER_CHANNEL: return b->h == 1 && b->w == 1 && b->c == a->c ? 0 : "its inputs do not fit";
    case MP_PER_PIXEL: return b->h == a->h && b->w == a->w && b->c == 1 ? 0 : "its inputs do not fit";
    default: return "it multiplies otherwise";
    }
}

static const char *normalize_problem(const mpr_file *file, const mpb_step *step, const mpb_slot *in)
{
    if (step->kind < MP_SOFTMAX || step->kind > MP_LOCAL_RESPONSE) return "its formula is unknown";
    if (step->length < 1 || mpr_values(in) % (uint64_t)step->length || step->segments < 1 ||
        !mpr_has(file, MPB_PLACES, step->first_start, (int64_t)step->segments + 1))
        return "its rows do not fit";
    for (int i = 0; i < 4; i++)
        if (!isfinite(step->parameters[i])) return "its parameters make no sense";
    if (step->kind == MP_LOCAL_RESPONSE && !(step->parameters[0] >= 1 && step->parameters[0] <= MOST_CHANNELS))
        return "its parameters make no sense";
    return 0; /* the kernel looks at the segments */
}

static const char *local_avgpool_problem(const mpb_step *step, const mpb_slot *in, const mpb_slot *out, int64_t *work)
{
    if (step->size < 1 || step->size > 256 || step->stride < 1 || step->stride > MOST_SIDE || step->stride_y < 1 ||
        step->stride_y > MOST_SIDE || step->padding < 0 || step->padding > MOST_SIDE ||
        in->h + step->padding < step->size || in->w + step->padding < step->size)
        return "its window makes no sense";
    *work += (int64_t)mpr_values(out) * step->size * step->size;
    return mp_is_real(in->type) && in->type == out->type && in->c == out->c &&
                   out->h == pooled_side(in->h, step->size, step->stride_y, step->padding) &&
                   out->w == pooled_side(in->w, step->size, step->stride, step->padding)
               ? 0
               : "its result has another size";
}

/* Values that a step brings along, of four bytes each. */
static uint64_t own_values(const mpb_step *step, const mpb_slot *out)
{
    switch (step->operation) {
    case MPB_COMBINE: return 2 * (uint64_t)(step->inputs - 1) * out->c;
    case MPB_CONSTANT:
    case MPB_GATHER: return mpr_values(out);
    default: return 0;
    }
}

int mpr_check_values(const mpr_file *file, const mpb_step *step, const mpb_slot *in, const mpb_slot *out, char *error)
{
    const uint64_t count = own_values(step, out);
    if (!count) return 0;
    char what[96];
    snprintf(what, sizeof what, "values of layer %d (%.48s)", (int)step->layer, mpr_layer_name(file, step->layer));
    const void *values = mpr_piece(file, &step->values, 4 * count, what, error);
    if (!values) return -1;
    for (uint64_t i = 0; i < count; i++)
        if (step->operation == MPB_GATHER ? ((const int32_t *)values)[i] >= (int64_t)mpr_values(in)
                                          : !isfinite(((const float *)values)[i]))
            return mpr_fail(error, "%s: %s: make no sense; export it again", file->name, what);
    return 0;
}

/* NULL, or what is wrong with a step whose slots exist. */
static const char *step_problem(const mpr_file *file, const mpb_step *step, const mpb_slot *slots,
                                const int32_t *inputs, int64_t *work)
{
    const mpb_slot *in = &slots[inputs[0]], *out = &slots[step->output];
    const int real = mp_is_real(in->type), out_real = mp_is_real(out->type);
    const int expected = step->operation == MPB_ADD || step->operation == MPB_MULTIPLY     ? 2
                         : step->operation == MPB_CONCAT || step->operation == MPB_COMBINE ? step->inputs
                                                                                           : 1;
    if (step->inputs != expected) return "it has another number of inputs";
    *work += (int64_t)mpr_values(out);
    if (step->operation == MPB_YOLO) return in == out && in->type == MP_TYPE_F32 ? 0 : "a head takes fp32";
    mp_activation_scheme scheme;
    if (mpr_makes_codes(step, &scheme)) {
        if (!mp_known_scheme(scheme.mode, scheme.rounding)) return "its scheme is unknown";
        if (step->calibrated && !(isfinite(step->low) && isfinite(step->high) && step->low <= step->high))
            return "its range is none";
    }
    switch (step->operation) {
    case MPB_CONVOLVE: return convolution_problem(file, step, in, out, work);
    case MPB_QUANTIZE: return real && out->type == MP_TYPE_I8 && same_shape(in, out) ? 0 : "it cannot quantise this";
    case MPB_DEQUANTIZE: return !real && out_real && same_shape(in, out) ? 0 : "it cannot dequantise this";
    case MPB_CAST:
        return real && out_real && in->type != out->type && same_shape(in, out) ? 0 : "it cannot convert this";
    case MPB_MAXPOOL:
        if (in->type != out->type || in->c != out->c) return "it pools something else";
        if (pool_problem(in->h, in->w, step, out)) return pool_problem(in->h, in->w, step, out);
        *work += (int64_t)mpr_values(out) * step->size * step->size;
        return 0;
    case MPB_AVGPOOL:
        return real && in->type == out->type && out->h == 1 && out->w == 1 && in->c == out->c ? 0
                                                                                              : "it averages otherwise";
    case MPB_UPSAMPLE:
        if (step->factor < 1 || step->factor > MOST_SIDE) return "its factor makes no sense";
        return in->type == out->type && in->c == out->c && (int64_t)in->h * step->factor == out->h &&
                       (int64_t)in->w * step->factor == out->w
                   ? 0
                   : "its result has another size";
    case MPB_SLICE:
        return in->type == out->type && in->h == out->h && in->w == out->w && step->first >= 0 &&
                       step->first <= in->c - out->c
                   ? 0
                   : "its part does not exist";
    case MPB_CONCAT: {
        int64_t channels = 0;
        for (int i = 0; i < step->inputs; i++) {
            const mpb_slot *part = &slots[inputs[i]];
            if (part->type != out->type || part->h != out->h || part->w != out->w) return "its inputs do not fit";
            channels += part->c;
        }
        return real && channels == out->c ? 0 : "its result has another size";
    }
    case MPB_ADD: {
        const mpb_slot *other = &slots[inputs[1]];
        if (step->activation < 0 || step->activation > MP_SWISH) return "its activation is unknown";
        return real && out_real && other->type == in->type && same_shape(in, other) && same_shape(in, out)
                   ? 0
                   : "its inputs do not fit";
    }
    case MPB_MAP:
        return step->activation >= 0 && step->activation <= MP_HARD_SWISH && isfinite(step->parameters[0]) &&
                       isfinite(step->parameters[1]) && real && out_real && same_shape(in, out)
                   ? 0
                   : "it cannot map this";
    case MPB_COMBINE:
        if (step->activation < 0 || step->activation > MP_SWISH) return "its activation is unknown";
        /* The sum so far is stored as the result is, and read as the next input is. */
        for (int i = 1; i < step->inputs; i++)
            if (slots[inputs[i]].type != (i == 1 ? in->type : out->type)) return "its inputs do not fit";
        *work += (int64_t)mpr_values(out) * step->inputs;
        return step->inputs > 1 && real && out_real && same_shape(in, out) ? 0 : "its inputs do not fit";
    case MPB_MULTIPLY:
        return multiply_problem(step, &slots[inputs[!!step->swapped]], &slots[inputs[!step->swapped]], out);
    case MPB_CONSTANT: return out_real ? 0 : "its result is stored otherwise";
    case MPB_GATHER: return in->type == out->type ? 0 : "its result is stored otherwise";
    case MPB_NORMALIZE:
        if (!real || in->type != out->type || !same_shape(in, out)) return "it cannot normalise this";
        return normalize_problem(file, step, in);
    case MPB_LOCAL_AVGPOOL: return local_avgpool_problem(step, in, out, work);
    case MPB_CHANNEL_MAX:
        *work += (int64_t)mpr_values(in);
        return in->type == out->type && in->h == out->h && in->w == out->w && out->c <= in->c
                   ? 0
                   : "it pools something else";
    default: return "this program does not know the operation; build a newer mprun";
    }
}

static const char *slot_problem(const mpb_program *program, const mpb_slot *slot)
{
    if (slot->h < 1 || slot->w < 1 || slot->c < 1 || slot->h > MOST_SIDE || slot->w > MOST_SIDE ||
        slot->c > MOST_CHANNELS || !mp_is_type(slot->type) || (int64_t)slot->h * slot->w > MOST_VALUES / slot->c)
        return "is no tensor";
    if (slot->at < -1 || (slot->at > 0 && slot->at % MPB_ALIGN)) return "lies nowhere";
    const uint64_t bytes = mpr_slot_bytes(slot);
    if (slot->at >= 0 && (bytes > program->arena_bytes || (uint64_t)slot->at > program->arena_bytes - bytes))
        return "lies outside of the arena";
    return 0;
}

/* Whether two slots share memory; the image's is its own. */
static int overlap(const mpb_slot *a, const mpb_slot *b)
{
    if (a->at < 0 || b->at < 0) return a->at < 0 && b->at < 0;
    return (uint64_t)a->at < (uint64_t)b->at + mpr_slot_bytes(b) &&
           (uint64_t)b->at < (uint64_t)a->at + mpr_slot_bytes(a);
}

static int steps_fit(const mpr_file *file, const mpb_program *program, unsigned char *written, char *error)
{
    const mpb_slot *slots = file->slots + program->first_slot;
    int64_t work = 0;
    written[0] = 1;
    for (int32_t n = 0; n < program->steps; n++) {
        const mpb_step *step = &file->steps[program->first_step + n];
        const char *problem = 0;
        const int32_t *inputs = file->places + step->first_input;
        if (step->output < 0 || step->output >= program->slots || step->inputs < 1 || step->inputs > MOST_INPUTS ||
            !mpr_has(file, MPB_PLACES, step->first_input, step->inputs))
            return mpr_fail(error, "%s: step %d: its slots do not exist; export it again", file->name, n);
        const int head = step->operation == MPB_YOLO;
        for (int32_t i = 0; i < step->inputs && !problem; i++) {
            if (inputs[i] < 0 || inputs[i] >= program->slots || !written[inputs[i]])
                problem = "reads what no step has written";
            else if (!head && overlap(&slots[inputs[i]], &slots[step->output]))
                problem = "writes over its input";
        }
        if (!problem && !head && (step->output == 0 || slots[step->output].at < 0 || written[step->output]))
            problem = "writes where it may not";
        if (!problem) problem = step_problem(file, step, slots, inputs, &work);
        if (!problem && work > MOST_WORK) problem = "it would run for hours";
        if (problem)
            return mpr_fail(error, "%s: step %d (%s for %s): %s; export it again", file->name, n,
                            mpr_operation_name(step), mpr_layer_name(file, step->layer), problem);
        written[step->output] = 1;
    }
    for (int32_t i = 0; i < program->outputs; i++) {
        const int32_t slot = file->places[program->first_output + i];
        if (slot < 0 || slot >= program->slots || !written[slot] || slots[slot].type != MP_TYPE_F32)
            return mpr_fail(error, "%s: output %d is not written as fp32; export it again", file->name, i);
    }
    return 0;
}

int mpr_check_program(const mpr_file *file, int64_t number, char *error)
{
    const mpb_program *program = &file->programs[number];
    const mpb_network *network = file->network;
    if (program->slots < 1 || program->outputs < 1 || program->outputs > MOST_INPUTS || program->steps < 0 ||
        !mpr_has(file, MPB_SLOTS, program->first_slot, program->slots) ||
        !mpr_has(file, MPB_STEPS, program->first_step, program->steps) ||
        !mpr_has(file, MPB_PLACES, program->first_output, program->outputs))
        return mpr_fail(error, "%s: program %d: does not exist; export it again", file->name, (int)number);
    const mpb_slot *slots = file->slots + program->first_slot;
    uint64_t most = 0;
    for (int32_t i = 0; i < program->slots; i++) {
        const char *problem = slot_problem(program, &slots[i]);
        if (problem) return mpr_fail(error, "%s: slot %d %s; export it again", file->name, i, problem);
        most += (mpr_slot_bytes(&slots[i]) + MPB_ALIGN - 1) / MPB_ALIGN * MPB_ALIGN;
    }
    if (program->arena_bytes > most || program->arena_bytes > MOST_ARENA)
        return mpr_fail(error, "%s: an arena of %llu bytes is more than its tensors need, or 4 GiB; export it again",
                        file->name, (unsigned long long)program->arena_bytes);
    if (slots[0].at != -1 || slots[0].type != MP_TYPE_F32 || slots[0].h != network->in_h ||
        slots[0].w != network->in_w || slots[0].c != network->in_c)
        return mpr_fail(error, "%s: the image is not the network's input; export it again", file->name);
    unsigned char *written = calloc(1, (size_t)program->slots);
    if (!written) return mpr_fail(error, "%s: no memory", file->name);
    const int result = steps_fit(file, program, written, error);
    free(written);
    return result;
}
