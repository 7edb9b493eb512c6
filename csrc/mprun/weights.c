/* SPDX-License-Identifier: MIT */
#include "weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../fixed_point.h"
#include "../half.h"
#include "../types.h"
#include "room.h"

int mpr_weights_open(mpr_weights *weights, const mpr_file *file, const mp_table *table, int threads, char *error)
{
    const size_t count = (size_t)file->count[MPB_CONVOLUTIONS];
    *weights = (mpr_weights){.file = file, .table = table, .threads = threads};
    weights->packed = calloc(count + 1, sizeof *weights->packed);
    weights->own = calloc(count + 1, sizeof *weights->own);
    weights->max_distance = calloc(count + 1, sizeof *weights->max_distance);
    if (weights->packed && weights->own && weights->max_distance) return 0;
    mpr_weights_close(weights);
    return mpr_fail(error, "%s: no memory", file->name);
}

void mpr_weights_close(mpr_weights *weights)
{
    for (int64_t i = 0; weights->own && i < weights->file->count[MPB_CONVOLUTIONS]; i++) free(weights->own[i]);
    free(weights->own);
    free(weights->packed);
    free(weights->max_distance);
    weights->own = 0;
    weights->max_distance = 0;
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
    const int source_type = mp_weights_type(from->precision), type = mp_weights_type(own->precision);
    const int channels = own->shape.out_c;
    const float *from_scale = 0, *scale = 0, most = (float)mp_largest_code(&mp_precisions[own->precision]);
    if (source_type == MP_TYPE_I8 && !(from_scale = floats_of(weights, &from->scale, channels, 1, "scales", error)))
        return 0;
    if (type == MP_TYPE_I8 && !(scale = floats_of(weights, &own->scale, channels, 1, "scales", error))) return 0;
    void *made = mpr_take(channels * per_channel * mp_type_bytes(type));
    for (uint64_t i = 0; made && i < channels * per_channel; i++) {
        const int channel = (int)(i / per_channel);
        const float real = source_type == MP_TYPE_I8 ? (float)((const int8_t *)source)[i] * from_scale[channel]
                                                     : mp_real_at(source, i, source_type);
        if (type == MP_TYPE_I8)
            ((int8_t *)made)[i] = (int8_t)fminf(fmaxf(rintf(real / scale[channel]), -most), most);
        else
            mp_put_real(made, i, type, real);
    }
    return made;
}

/* Number `number` of those of `bits` bits each that lie one behind the other. */
static int field_at(const uint8_t *bytes, uint64_t number, int bits)
{
    const uint64_t at = number * bits, low = at % 8;
    unsigned both = bytes[at / 8];
    if (low + bits > 8) both |= (unsigned)bytes[at / 8 + 1] << 8;
    return (int)(both >> low & ((1u << bits) - 1));
}

/* Codes of fewer than eight bits, times their multipliers if the file has some, as int8. NULL: no memory, or a line in error. */
static int8_t *widened(const mpr_file *file, const mpb_convolution *from, uint64_t count, const char *what, char *error)
{
    const int bits = mp_precisions[from->precision].bits, rest = 8 - bits, sign = 1 << (bits - 1);
    const int taps = from->shape.size * from->shape.size, inputs = from->shape.in_c / from->shape.groups;
    const uint64_t blocks = (inputs + MP_GROUP - 1) / MP_GROUP, multipliers = blocks * taps * from->shape.out_c;
    const uint64_t own_bytes = (count * bits + 7) / 8, more_bytes = (multipliers * rest + 7) / 8;
    const int grouped = from->weights.bytes > own_bytes;
    const uint8_t *bytes = mpr_piece(file, &from->weights, own_bytes + (grouped ? more_bytes : 0), what, error);
    int8_t *made = bytes ? mpr_take(count) : 0;
    for (uint64_t i = 0; made && i < count; i++) {
        const int code = (field_at(bytes, i, bits) ^ sign) - sign;
        const uint64_t filter = i / taps / inputs, block = i / taps % inputs / MP_GROUP;
        const int less = grouped ? field_at(bytes + own_bytes, (filter * taps + i % taps) * blocks + block, rest) : 0;
        made[i] = (int8_t)(code * (1 + less));
    }
    return made;
}

/* The biases of a convolution in integers, 4 * bias_words bytes each, its multipliers and its shifts; NULL with a line in error. No
 * bias leaves the bits of sums. */
static const int32_t *integer_biases(const mpr_weights *weights, const mpb_convolution *own, const char *what,
                                     char *error)
{
    const uint64_t channels = (uint64_t)own->shape.out_c;
    const int32_t *all = mpr_piece(weights->file, &own->bias, 4 * (own->bias_words + 2) * channels, what, error);
    for (uint64_t c = 0; all && c < channels; c++) {
        const int32_t multiplier = all[own->bias_words * channels + c],
                      shift = all[(own->bias_words + 1) * channels + c];
        const int64_t bias = own->bias_words == 2 ? ((const int64_t *)(const void *)all)[c] : all[c];
        const int64_t most = INT64_C(1) << (own->bias_words == 2 ? 47 : 31);
        if (!mp_is_factor(multiplier, shift) || shift > MP_MOST_SHIFT || bias <= -most || bias >= most) {
            mpr_fail(error, "%s: %s: factor or bias %d makes no sense; export it again", weights->file->name, what,
                     (int)c);
            return 0;
        }
    }
    return all;
}

/* Whether no sum leaves its bits, by the rule of mpnet/quantization/fixed_point.py: 0, or -1 with a line in error. */
static int sums_fit(const mpr_weights *weights, const mpb_convolution *own, const int8_t *codes, uint64_t per_channel,
                    int max_distance, const char *what, char *error)
{
    const uint64_t channels = (uint64_t)own->shape.out_c;
    const int32_t *all = integer_biases(weights, own, what, error);
    for (uint64_t c = 0; all && c < channels; c++) {
        const int64_t bias = own->bias_words == 2 ? ((const int64_t *)(const void *)all)[c] : all[c];
        const int32_t shift = all[(own->bias_words + 1) * channels + c];
        int64_t filter = 0;
        for (uint64_t i = 0; i < per_channel; i++) filter += abs(codes[c * per_channel + i]);
        /* What is above 0 of a shift comes before the product, in sums of 32 bits. */
        const int64_t room = own->bias_words == 2 ? INT64_C(1) << 47 : (INT64_C(1) << 31) >> (shift > 0 ? shift : 0);
        if (filter * max_distance + (bias < 0 ? -bias : bias) >= room)
            return mpr_fail(error, "%s: %s: sums of channel %d leave their bits; export it again", weights->file->name,
                            what, (int)c);
    }
    return all ? 0 : -1;
}

/* Packs a convolution's weights, or finds them packed in the file. */
static int ready(mpr_weights *weights, int32_t number, int max_distance, char *error)
{
    const mpr_file *file = weights->file;
    const mpb_convolution *own = &file->convolutions[number], *from = own;
    const mp_table *table = weights->table;
    char what[96];
    snprintf(what, sizeof what, "weights of layer %d (%.48s)", (int)own->layer, mpr_layer_name(file, own->layer));
    if (weights->packed[number])
        return weights->max_distance[number] >= max_distance
                   ? 0
                   : mpr_fail(error, "%s: %s: serve two steps; export it again", file->name, what);
    weights->max_distance[number] = max_distance;
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
    const mp_precision *given = &mp_precisions[from->precision];
    void *codes = given->bits ? widened(file, from, count, what, error) : 0, *made = 0;
    const void *source = given->bits ? codes
                                     : mpr_piece(file, &from->weights,
                                                 count * mp_type_bytes(mp_weights_type(from->precision)), what, error);
    if (source && from != own) source = made = stand_in(weights, from, own, source, count / s->out_c, error);
    if (!source) {
        free(codes);
        return *error ? -1 : mpr_fail(error, "%s: %s: no memory", file->name, what);
    }
    if (own->bias_words && sums_fit(weights, own, source, count / s->out_c, max_distance, what, error)) {
        free(made);
        free(codes);
        return -1;
    }
    const size_t bytes = mp_pack_bytes_stored(table, s, own->precision, source);
    void *packed = bytes ? mpr_take(bytes) : 0;
    int packed_well = -1;
    if (packed) packed_well = mp_pack_conv_stored(table, s, own->precision, source, packed, bytes);
    free(made);
    free(codes);
    if (packed_well != MP_OK) {
        free(packed);
        return mpr_fail(error, "%s: %s: cannot be packed (status %d)", file->name, what, packed_well);
    }
    mpr_forget(file, &from->weights);
    weights->packed[number] = weights->own[number] = packed;
    weights->packed_here++;
    return 0;
}

int mpr_prepare_weights(mpr_weights *weights, int32_t number, int max_distance, char *error)
{
    const mpb_convolution *own = &weights->file->convolutions[number];
    if (ready(weights, number, max_distance, error)) return -1;
    if (own->bias_words ? !integer_biases(weights, own, "biases", error)
                        : !floats_of(weights, &own->bias, own->shape.out_c, 0, "biases", error))
        return -1;
    const int codes = !mp_is_real(mp_precisions[own->precision].type);
    return !codes || floats_of(weights, &own->scale, own->shape.out_c, 1, "scales", error) ? 0 : -1;
}
