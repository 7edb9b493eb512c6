/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "pass.h"
#include <stdlib.h>
#include <string.h>
#include "../red_zone.h"
#include "../types.h"
#include "room.h"

static const float *floats_at(const mpr_weights *weights, const mpb_piece *piece)
{
    return (const void *)(weights->file->data + piece->at);
}

/* Where in a memory that is cut up the part after this one begins. */
static size_t after(size_t at, uint64_t bytes)
{
    return at + (size_t)(bytes + MPB_ALIGN - 1) / MPB_ALIGN * MPB_ALIGN + MP_RED_ZONE;
}

/* The image is the largest tensor of most networks and comes from memory: where a step converts it for one convolution alone, that
 * one does it while it reads, as in a session. */
static void leave_conversions(mpr_pass *pass)
{
    const mpb_program *program = pass->program;
    mp_activation_scheme scheme;
    for (int32_t n = 0; n < program->steps; n++)
        for (int32_t i = 0; i < pass->steps[n].inputs; i++)
            pass->tensors[pass->places[pass->steps[n].first_input + i]].readers++;
    for (int32_t i = 0; i < program->outputs; i++) pass->tensors[pass->places[program->first_output + i]].readers++;
    for (int32_t n = 0; n < program->steps; n++) {
        const mpb_step *step = &pass->steps[n];
        const int32_t input = pass->places[step->first_input];
        const int plain =
            step->operation == MPB_CAST ||
            (step->operation == MPB_QUANTIZE && mpr_makes_codes(step, &scheme) && scheme.mode < MP_TF_MIN_COMBINED);
        if (plain && input == 0) pass->tensors[step->output].left = pass->tensors[step->output].readers == 1;
        for (int32_t i = 0; step->operation != MPB_CONVOLVE && i < step->inputs; i++)
            pass->tensors[pass->places[step->first_input + i]].left = 0;
    }
}

/* Only of steps that have values: others' are not looked at. */
static const void *values_of(const mpr_pass *pass, const mpb_step *step)
{
    return pass->weights->file->data + step->values.at;
}

int mpr_pass_open(mpr_pass *pass, mpr_weights *weights, int64_t number, char *error)
{
    const mpr_file *file = weights->file;
    *pass = (mpr_pass){.weights = weights};
    if (mpr_check_program(file, number, error)) return -1;
    const mpb_program *program = pass->program = &file->programs[number];
    pass->slots = file->slots + program->first_slot;
    pass->steps = file->steps + program->first_step;
    pass->places = file->places;
    pass->tensors = calloc((size_t)program->slots, sizeof *pass->tensors);
    size_t wide = 0;
    if (!pass->tensors) goto no_memory;
    leave_conversions(pass);
    for (int32_t n = 0; n < program->steps; n++) {
        const mpb_step *step = &pass->steps[n];
        const int32_t input = pass->places[step->first_input];
        mpr_tensor *out = &pass->tensors[step->output];
        mp_activation_scheme scheme;
        size_t bad;
        if (mpr_makes_codes(step, &scheme)) {
            const float range[2] = {step->low, step->high};
            if (!step->calibrated)
                pass->tensors[input].measured = 1;
            else if (mp_ranges_to_params(range, 1, &scheme, &out->params, &bad) != MP_OK) {
                mpr_fail(error, "%s: layer %d (%s): its calibrated range is too narrow or too wide; use affine",
                         file->name, (int)step->layer, mpr_layer_name(file, step->layer));
                goto failed;
            }
        }
        if (step->operation == MPB_QUANTIZE || step->operation == MPB_DEQUANTIZE) {
            const mpb_slot *reals = &pass->slots[step->operation == MPB_QUANTIZE ? input : step->output];
            if (reals->type != MP_TYPE_F32 && wide < mpr_values(reals)) wide = mpr_values(reals);
        }
        if (mpr_check_values(file, step, &pass->slots[input], &pass->slots[step->output], error)) goto failed;
        if (step->operation == MPB_CONVOLVE) {
            if (mpr_weights_ready(weights, step->convolution, error)) goto failed;
            const size_t bytes = mp_conv_scratch_bytes(weights->table, weights->packed[step->convolution], step->pooled,
                                                       weights->threads);
            if (bytes > pass->scratch_bytes) pass->scratch_bytes = bytes;
        }
    }
    const size_t arena = after(0, mpr_slot_bytes(&pass->slots[0])), scratch = after(arena, program->arena_bytes);
    const size_t reals = after(scratch, pass->scratch_bytes), end = after(reals, wide * sizeof(float));
    char *memory = pass->memory = mpr_take(pass->memory_bytes = end);
    if (!memory) goto no_memory;
    pass->image = (void *)memory;
    pass->arena = memory + arena;
    pass->scratch = memory + scratch;
    pass->wide = (void *)(memory + reals);
    const size_t ends[] = {arena, scratch, reals, end};
    for (int i = 0; i < 4; i++) mp_forbid(memory + ends[i] - MP_RED_ZONE);
    for (int32_t i = 0; i < program->slots; i++)
        pass->tensors[i].data = i == 0                  ? (void *)pass->image
                                : pass->slots[i].at < 0 ? 0
                                                        : memory + arena + pass->slots[i].at;
    return 0;
no_memory:
    mpr_fail(error, "%s: no memory for the tensors (%llu bytes)", file->name, (unsigned long long)program->arena_bytes);
failed:
    mpr_pass_close(pass);
    return -1;
}

void mpr_pass_close(mpr_pass *pass)
{
    free(pass->tensors);
    free(pass->memory);
    pass->tensors = 0;
    pass->memory = 0;
}

void mpr_pass_touch(mpr_pass *pass, size_t but)
{
    enum { PAGE = 4096 };
    for (size_t at = 0; at + but < pass->memory_bytes; at += PAGE) ((volatile char *)pass->memory)[at] = 0;
}

static int convolve(mpr_pass *pass, const mpb_step *step, mpr_tensor *x, mpr_tensor *out, const mpb_slot *out_slot)
{
    const mpr_weights *weights = pass->weights;
    const mpb_convolution *own = &weights->file->convolutions[step->convolution];
    mp_conv_args args = {.shape = own->shape,
                         .precision = own->precision,
                         .activation = own->activation,
                         .out_type = out_slot->type,
                         .images = 1,
                         .threads = weights->threads,
                         .packed = weights->packed[step->convolution],
                         .in = x->data,
                         .out = out->data,
                         .bias = floats_at(weights, &own->bias),
                         .scratch = pass->scratch,
                         .scratch_bytes = pass->scratch_bytes};
    if (mp_precisions[own->precision].type == MP_TYPE_I8) {
        args.weight_scale = floats_at(weights, &own->scale);
        args.in_scale = &x->params.scale;
        args.in_zero_point = &x->params.zero_point;
        args.in_offset = &x->params.offset;
    }
    if (x->left) {
        args.converts = 1;
        args.in = pass->image;
        args.in_type = MP_TYPE_F32;
        args.in_inv_scale = &x->params.inv_scale;
        args.in_rounding = x->params.rounding;
        args.in_low = x->params.low;
        args.in_high = x->params.high;
    }
    if (step->quantizes) {
        args.out_inv_scale = &out->params.inv_scale;
        args.out_zero_point = &out->params.zero_point;
        args.out_low = out->params.low;
        args.out_high = out->params.high;
        args.out_rounding = out->params.rounding;
    } else if (out->measured) {
        args.ranges = out->range;
        out->known = 1;
    }
    if (step->pooled) {
        args.pool_h = out_slot->h;
        args.pool_w = out_slot->w;
    }
    int status = mp_conv(weights->table, &args);
    if (status == MP_OK && args.ranges && out_slot->type != MP_TYPE_F32) {
        /* It was measured before rounding, which never changes the order of values. */
        uint64_t rounded;
        status = mp_cast(weights->table, out->range, MP_TYPE_F32, &rounded, out_slot->type, 2, 1);
        if (status == MP_OK) status = mp_cast(weights->table, &rounded, out_slot->type, out->range, MP_TYPE_F32, 2, 1);
    }
    return status;
}

static int quantize(mpr_pass *pass, const mpb_step *step, mpr_tensor *x, const mpb_slot *slot, mpr_tensor *out)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const size_t count = mpr_values(slot);
    mp_activation_scheme scheme;
    mpr_makes_codes(step, &scheme);
    if (!step->calibrated) {
        size_t bad;
        int status = x->known ? MP_OK : mp_value_range(table, x->data, slot->type, 1, count, x->range, threads);
        if (status != MP_OK) return status;
        x->known = 1;
        status = mp_ranges_to_params(x->range, 1, &scheme, &out->params, &bad);
        if (status != MP_OK) return status;
    }
    const mp_quant_params *p = &out->params;
    if (out->left) return MP_OK;
    if (scheme.mode < MP_TF_MIN_COMBINED)
        return mp_quantize(table, x->data, slot->type, out->data, 1, count, &p->inv_scale, &p->zero_point, p->rounding,
                           p->low, p->high, threads);
    const float *reals = x->data;
    if (slot->type != MP_TYPE_F32) {
        const int status = mp_cast(table, x->data, slot->type, pass->wide, MP_TYPE_F32, count, threads);
        if (status != MP_OK) return status;
        reals = pass->wide;
    }
    return mp_tf_quantize(reals, out->data, 1, count, p, threads);
}

static int dequantize(mpr_pass *pass, const mpr_tensor *x, mpr_tensor *out, const mpb_slot *out_slot)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const size_t count = mpr_values(out_slot);
    const mp_quant_params *p = &x->params;
    if (p->mode < MP_TF_MIN_COMBINED)
        return mp_dequantize(table, x->data, out->data, out_slot->type, 1, count, &p->scale, &p->zero_point, &p->offset,
                             threads);
    if (out_slot->type == MP_TYPE_F32) return mp_tf_dequantize(x->data, out->data, 1, count, p, threads);
    const int status = mp_tf_dequantize(x->data, pass->wide, 1, count, p, threads);
    return status != MP_OK ? status
                           : mp_cast(table, pass->wide, MP_TYPE_F32, out->data, out_slot->type, count, threads);
}

static int slice(const mpb_step *step, const mpr_tensor *x, const mpb_slot *in, mpr_tensor *out,
                 const mpb_slot *out_slot)
{
    const size_t item = mp_type_bytes(in->type), from = in->c * item, part = out_slot->c * item;
    const char *source = (const char *)x->data + step->first * item;
    for (size_t pixel = 0; pixel < (size_t)in->h * in->w; pixel++)
        memcpy((char *)out->data + pixel * part, source + pixel * from, part);
    return MP_OK;
}

static int concat(mpr_pass *pass, const mpb_step *step, mpr_tensor *out, const mpb_slot *out_slot)
{
    int at = 0, status = MP_OK;
    for (int32_t i = 0; i < step->inputs && status == MP_OK; i++) {
        const int32_t input = pass->places[step->first_input + i];
        const mpb_slot *in = &pass->slots[input];
        status = mp_concat_part(pass->weights->table, pass->tensors[input].data, out->data, out_slot->type,
                                (size_t)in->h * in->w, in->c, out_slot->c, at, pass->weights->threads);
        at += in->c;
    }
    return status;
}

static int combine(mpr_pass *pass, const mpb_step *step, const mpr_tensor *x, mpr_tensor *out, const mpb_slot *to)
{
    const float *weights = values_of(pass, step);
    int status = MP_OK;
    for (int32_t i = 1; i < step->inputs && status == MP_OK; i++, weights += 2 * (size_t)to->c) {
        const int32_t input = pass->places[step->first_input + i];
        const mpb_slot *b = &pass->slots[input];
        status = mp_combine(pass->weights->table, i == 1 ? x->data : out->data, pass->tensors[input].data, out->data,
                            b->type, to->type, i == step->inputs - 1 ? step->activation : MP_LINEAR, weights,
                            weights + to->c, 1, to->h, to->w, to->c, b->h, b->w, b->c, pass->weights->threads);
    }
    return status;
}

static int multiply(mpr_pass *pass, const mpb_step *step, mpr_tensor *out, const mpb_slot *to)
{
    const int32_t a = pass->places[step->first_input + !!step->swapped],
                  b = pass->places[step->first_input + !step->swapped];
    return mp_multiply(pass->weights->table, pass->tensors[a].data, pass->tensors[b].data, out->data,
                       pass->slots[a].type, to->type, step->activation, step->kind, 1, to->h, to->w, to->c,
                       pass->weights->threads);
}

int mpr_pass_step(mpr_pass *pass, const mpb_step *step)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const int32_t input = pass->places[step->first_input];
    mpr_tensor *x = &pass->tensors[input], *out = &pass->tensors[step->output];
    const mpb_slot *in = &pass->slots[input], *to = &pass->slots[step->output];
    const float *p = step->parameters;
    if (step->operation != MPB_YOLO) out->known = 0;
    switch (step->operation) {
    case MPB_CONVOLVE: return convolve(pass, step, x, out, to);
    case MPB_QUANTIZE: return quantize(pass, step, x, in, out);
    case MPB_DEQUANTIZE: return dequantize(pass, x, out, to);
    case MPB_CAST:
        return out->left ? MP_OK : mp_cast(table, x->data, in->type, out->data, to->type, mpr_values(in), threads);
    case MPB_MAXPOOL:
        out->params = x->params;
        return mp_maxpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, to->h, to->w, step->size,
                          step->stride, step->padding, threads);
    case MPB_AVGPOOL: return mp_avgpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, threads);
    case MPB_UPSAMPLE:
        out->params = x->params;
        return mp_upsample(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, step->factor, threads);
    case MPB_SLICE: out->params = x->params; return slice(step, x, in, out, to);
    case MPB_CONCAT: return concat(pass, step, out, to);
    case MPB_ADD:
        return mp_add(table, x->data, pass->tensors[pass->places[step->first_input + 1]].data, out->data, in->type,
                      to->type, step->activation, mpr_values(in), threads);
    case MPB_MAP:
        return mp_map(table, x->data, in->type, out->data, to->type, step->activation, p[0], p[1], mpr_values(in),
                      threads);
    case MPB_COMBINE: return combine(pass, step, x, out, to);
    case MPB_MULTIPLY: return multiply(pass, step, out, to);
    case MPB_CONSTANT:
        return mp_cast(table, values_of(pass, step), MP_TYPE_F32, out->data, to->type, mpr_values(to), threads);
    case MPB_GATHER:
        out->params = x->params;
        return mp_gather(table, x->data, out->data, in->type, 1, mpr_values(in), mpr_values(to), values_of(pass, step),
                         &x->params.zero_point, threads);
    case MPB_NORMALIZE:
        return mp_normalize(table, x->data, out->data, in->type, step->kind, mpr_values(in) / step->length,
                            step->length, pass->places + step->first_start, step->segments, p[0], p[1], p[2], p[3],
                            threads);
    case MPB_LOCAL_AVGPOOL:
        return mp_local_avgpool(table, x->data, out->data, in->type, 1, in->h, in->w, in->c, to->h, to->w, step->size,
                                step->stride, step->stride_y, step->padding, threads);
    case MPB_CHANNEL_MAX:
        out->params = x->params;
        return mp_channel_max(table, x->data, out->data, in->type, (size_t)in->h * in->w, in->c, to->c, threads);
    default: return MP_OK; /* a head hands its tensor over */
    }
}

static const char *reason(int status)
{
    return status == MP_NONFINITE ? "a value is NaN or infinite" : "the kernel refused its arguments";
}

/* Whether a step refuses results that are not finite. */
static int checks_result(const mpb_step *step)
{
    return step->operation == MPB_CONVOLVE || step->operation == MPB_DEQUANTIZE;
}

int mpr_pass_run(mpr_pass *pass, char *error)
{
    const mpr_file *file = pass->weights->file;
    const mpb_program *program = pass->program;
    pass->tensors[0].known = 0;
    for (int32_t n = 0; n < program->steps; n++) {
        const int status = mpr_pass_step(pass, &pass->steps[n]);
        if (status != MP_OK)
            return mpr_fail(error, "%s: layer %d (%s): %s: %s", file->name, (int)pass->steps[n].layer,
                            mpr_layer_name(file, pass->steps[n].layer), mpr_operation_name(&pass->steps[n]),
                            reason(status));
    }
    for (int32_t i = 0; i < program->outputs; i++) {
        const int32_t slot = pass->places[program->first_output + i];
        int checked = 0;
        for (int32_t n = 0; n < program->steps && !checked; n++)
            checked = pass->steps[n].output == slot && checks_result(&pass->steps[n]);
        float range[2];
        if (!checked && mp_value_range(pass->weights->table, pass->tensors[slot].data, MP_TYPE_F32, 1,
                                       mpr_values(&pass->slots[slot]), range, pass->weights->threads) != MP_OK)
            return mpr_fail(error, "%s: output %d: a value is NaN or infinite", file->name, i);
    }
    return 0;
}

const mpb_slot *mpr_pass_output(const mpr_pass *pass, int number, const float **data)
{
    const int32_t slot = pass->places[pass->program->first_output + number];
    *data = pass->tensors[slot].data;
    return &pass->slots[slot];
}
