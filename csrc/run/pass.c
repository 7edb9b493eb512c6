#define _GNU_SOURCE
#include "pass.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../half.h"
#include "../types.h"

static void *take(size_t bytes)
{
    void *memory = 0;
    return posix_memalign(&memory, MPB_ALIGN, bytes ? bytes : MPB_ALIGN) == 0 ? memory : 0;
}

int mpr_weights_open(mpr_weights *weights, const mpr_file *file, const mp_table *table, int threads, char *error)
{
    const size_t count = (size_t)file->count[MPB_CONVOLUTIONS];
    *weights = (mpr_weights){.file = file, .table = table, .threads = threads};
    weights->packed = calloc(count + 1, sizeof *weights->packed);
    weights->own = calloc(count + 1, sizeof *weights->own);
    if (weights->packed && weights->own) return 0;
    mpr_weights_close(weights);
    return mpr_fail(error, "%s: no memory", file->name);
}

void mpr_weights_close(mpr_weights *weights)
{
    for (int64_t i = 0; weights->own && i < weights->file->count[MPB_CONVOLUTIONS]; i++) free(weights->own[i]);
    free(weights->own);
    free(weights->packed);
    weights->own = 0;
    weights->packed = 0;
}

static const float *floats_of(const mpr_weights *weights, const mpb_piece *piece, int count, int above_zero,
                              const char *what, char *error)
{
    const float *values = mpr_piece(weights->file, piece, (uint64_t)count * sizeof(float), what, error);
    for (int i = 0; values && i < count; i++)
        if (!isfinite(values[i]) || (above_zero && !(values[i] > 0.0f))) {
            mpr_fail(error, "%s: %s: value %d makes no sense; export it again", weights->file->name, what, i);
            return 0;
        }
    return values;
}

/* Weights that the table packed before, at the export; NULL: there are none for it. */
static const void *from_file(const mpr_weights *weights, int32_t number, char *error)
{
    const mpr_file *file = weights->file;
    const mpb_convolution *own = &file->convolutions[number];
    for (int64_t i = 0; i < file->count[MPB_PACKED]; i++) {
        const mpb_packed *packed = &file->packed[i];
        if (packed->convolution != number ||
            strncmp(packed->table, mp_table_name(weights->table), sizeof packed->table) != 0)
            continue;
        const void *bytes = mpr_piece(file, &packed->weights, packed->weights.bytes, "packed weights", error);
        if (bytes &&
            mp_check_packed(weights->table, &own->shape, own->precision, bytes, packed->weights.bytes) == MP_OK)
            return bytes;
        return 0;
    }
    return 0;
}

/* Weights of another precision as this one's, where only time matters. NULL: no memory, or a line in error. */
static void *stand_in(const mpr_weights *weights, const mpb_convolution *from, const mpb_convolution *own,
                      const void *source, uint64_t per_channel, char *error)
{
    const int source_type = mp_precisions[from->precision].type, type = mp_precisions[own->precision].type;
    const int channels = own->shape.out_c;
    const float *from_scale = 0, *scale = 0;
    if (source_type == MP_TYPE_I8 && !(from_scale = floats_of(weights, &from->scale, channels, 1, "scales", error)))
        return 0;
    if (type == MP_TYPE_I8 && !(scale = floats_of(weights, &own->scale, channels, 1, "scales", error))) return 0;
    void *made = take(channels * per_channel * mp_type_bytes(type));
    for (uint64_t i = 0; made && i < channels * per_channel; i++) {
        const int channel = (int)(i / per_channel);
        const float real = source_type == MP_TYPE_I8    ? (float)((const int8_t *)source)[i] * from_scale[channel]
                           : source_type == MP_TYPE_F16 ? mp_half_to_float(((const uint16_t *)source)[i])
                                                        : ((const float *)source)[i];
        if (type == MP_TYPE_I8)
            ((int8_t *)made)[i] = (int8_t)fminf(fmaxf(rintf(real / scale[channel]), -127.0f), 127.0f);
        else if (type == MP_TYPE_F16)
            ((uint16_t *)made)[i] = mp_float_to_half(real);
        else
            ((float *)made)[i] = real;
    }
    return made;
}

/* Packs a convolution's weights, or finds them packed in the file. */
static int ready(mpr_weights *weights, int32_t number, char *error)
{
    const mpr_file *file = weights->file;
    const mpb_convolution *own = &file->convolutions[number], *from = own;
    const mp_table *table = weights->table;
    char what[96];
    snprintf(what, sizeof what, "weights of layer %d (%.48s)", (int)own->layer, mpr_layer_name(file, own->layer));
    if (weights->packed[number]) return 0;
    const int status = mp_check_conv(table, &own->shape, own->precision);
    if (status == MP_UNSUPPORTED)
        return mpr_fail(error, "%s: %s: ISA level %s lacks their precision", file->name, what, mp_table_name(table));
    if (status != MP_OK) return mpr_fail(error, "%s: %s: have a shape that cannot be computed", file->name, what);
    error[0] = 0;
    if (own->stands_in < 0 && (weights->packed[number] = from_file(weights, number, error)) != 0) {
        weights->mapped++;
        return 0;
    }
    if (error[0]) return -1;
    if (own->stands_in >= 0) {
        if (own->stands_in >= file->count[MPB_CONVOLUTIONS] || file->convolutions[own->stands_in].stands_in >= 0)
            return mpr_fail(error, "%s: %s: have none to stand in; export it again", file->name, what);
        from = &file->convolutions[own->stands_in];
        if (from->precision < 0 || from->precision >= MP_PRECISIONS ||
            memcmp(&from->shape, &own->shape, sizeof own->shape))
            return mpr_fail(error, "%s: %s: stand in for another shape; export it again", file->name, what);
    }
    const mp_conv_shape *s = &own->shape;
    const uint64_t count = (uint64_t)s->out_c * (s->in_c / s->groups) * s->size * s->size;
    const void *source =
        mpr_piece(file, &from->weights, count * mp_type_bytes(mp_precisions[from->precision].type), what, error);
    if (!source) return -1;
    void *made = from == own ? 0 : stand_in(weights, from, own, source, count / s->out_c, error);
    if (from != own && !made) return *error ? -1 : mpr_fail(error, "%s: %s: no memory", file->name, what);
    if (made) source = made;
    const size_t bytes = mp_pack_bytes(table, s, own->precision, source);
    void *packed = bytes ? take(bytes) : 0;
    int packed_well = -1;
    if (packed)
        packed_well = mp_precisions[own->precision].type == MP_TYPE_F16
                          ? mp_pack_conv_half(table, s, own->precision, source, packed, bytes)
                          : mp_pack_conv(table, s, own->precision, source, packed, bytes);
    free(made);
    if (packed_well != MP_OK) {
        free(packed);
        return mpr_fail(error, "%s: %s: cannot be packed (status %d)", file->name, what, packed_well);
    }
    mpr_forget(file, &from->weights);
    weights->packed[number] = weights->own[number] = packed;
    weights->packed_here++;
    return 0;
}

static const float *floats_at(const mpr_weights *weights, const mpb_piece *piece)
{
    return (const void *)(weights->file->data + piece->at);
}

static int ready_with_floats(mpr_weights *weights, int32_t number, char *error)
{
    const mpb_convolution *own = &weights->file->convolutions[number];
    if (ready(weights, number, error)) return -1;
    if (!floats_of(weights, &own->bias, own->shape.out_c, 0, "biases", error)) return -1;
    const int codes = mp_precisions[own->precision].type == MP_TYPE_I8;
    return !codes || floats_of(weights, &own->scale, own->shape.out_c, 1, "scales", error) ? 0 : -1;
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
    pass->picture = take(mpr_slot_bytes(&pass->slots[0]));
    pass->arena = take(program->arena_bytes);
    size_t wide = 0;
    if (!pass->tensors || !pass->picture || !pass->arena) goto no_memory;
    for (int32_t i = 0; i < program->slots; i++)
        pass->tensors[i].data = i == 0                  ? (void *)pass->picture
                                : pass->slots[i].at < 0 ? 0
                                                        : (char *)pass->arena + pass->slots[i].at;
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
        if (step->operation == MPB_CONVOLVE) {
            if (ready_with_floats(weights, step->convolution, error)) goto failed;
            const size_t bytes = mp_conv_scratch_bytes(weights->table, weights->packed[step->convolution], step->pooled,
                                                       weights->threads);
            if (bytes > pass->scratch_bytes) pass->scratch_bytes = bytes;
        }
    }
    pass->scratch = take(pass->scratch_bytes);
    if (wide) pass->wide = take(wide * sizeof(float));
    if (pass->scratch && (pass->wide || !wide)) return 0;
no_memory:
    mpr_fail(error, "%s: no memory for the tensors (%llu bytes)", file->name, (unsigned long long)program->arena_bytes);
failed:
    mpr_pass_close(pass);
    return -1;
}

void mpr_pass_close(mpr_pass *pass)
{
    free(pass->tensors);
    free(pass->picture);
    free(pass->arena);
    free(pass->scratch);
    free(pass->wide);
    pass->tensors = 0;
    pass->picture = pass->wide = 0;
    pass->arena = pass->scratch = 0;
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

int mpr_pass_step(mpr_pass *pass, const mpb_step *step)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads;
    const int32_t input = pass->places[step->first_input];
    mpr_tensor *x = &pass->tensors[input], *out = &pass->tensors[step->output];
    const mpb_slot *in = &pass->slots[input], *to = &pass->slots[step->output];
    if (step->operation != MPB_YOLO) out->known = 0;
    switch (step->operation) {
    case MPB_CONVOLVE: return convolve(pass, step, x, out, to);
    case MPB_QUANTIZE: return quantize(pass, step, x, in, out);
    case MPB_DEQUANTIZE: return dequantize(pass, x, out, to);
    case MPB_CAST: return mp_cast(table, x->data, in->type, out->data, to->type, mpr_values(in), threads);
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
