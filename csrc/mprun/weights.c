/* SPDX-License-Identifier: MIT */
#include "weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../fixed_point.h"
#include "../half.h"
#include "../types.h"
#include "memory.h"

int mpr_weights_open(mpr_weights *weights, const mpr_file *file, const mp_table *table, int threads, char *error)
{
    const size_t count = (size_t)file->count[MPB_CONVOLUTIONS];
    *weights = (mpr_weights){.file = file, .table = table, .threads = threads};
    weights->packed = calloc(count + 1, sizeof *weights->packed);
    weights->allocated = calloc(count + 1, sizeof *weights->allocated);
    weights->max_distance = calloc(count + 1, sizeof *weights->max_distance);
    if (weights->packed && weights->allocated && weights->max_distance) return 0;
    mpr_weights_close(weights);
    return mpr_fail(error, "%s: no memory", file->name);
}

void mpr_weights_close(mpr_weights *weights)
{
    for (int64_t i = 0; weights->allocated && i < weights->file->count[MPB_CONVOLUTIONS]; i++)
        free(weights->allocated[i]);
    free(weights->allocated);
    free(weights->packed);
    free(weights->max_distance);
    weights->allocated = 0;
    weights->max_distance = 0;
    weights->packed = 0;
}

static const float *checked_floats(const mpr_weights *weights, const mpb_piece *piece, int count, int above_zero,
                                   const char *label, char *error)
{
    const float *values = mpr_piece(weights->file, piece, (uint64_t)count * sizeof(float), label, error);
    for (int i = 0; values && i < count; i++)
        if (!isfinite(values[i]) || (above_zero && !(values[i] > 0.0f))) {
            mpr_fail(error, "%s: %s: value %d makes no sense; export it again", weights->file->name, label, i);
            return 0;
        }
    return values;
}

/* Weights that the table packed before, at the export; NULL: there are none for it. */
static const void *find_packed(const mpr_weights *weights, int32_t number, char *error)
{
    const mpr_file *file = weights->file;
    const mpb_convolution *conv = &file->convolutions[number];
    for (int64_t i = 0; i < file->count[MPB_PACKED]; i++) {
        const mpb_packed *packed = &file->packed[i];
        if (packed->convolution != number ||
            strncmp(packed->table, mp_table_name(weights->table), sizeof packed->table) != 0)
            continue;
        const void *bytes = mpr_piece(file, &packed->weights, packed->weights.bytes, "packed weights", error);
        if (bytes &&
            mp_check_packed(weights->table, &conv->shape, conv->precision, bytes, packed->weights.bytes) == MP_OK)
            return bytes;
        return 0;
    }
    return 0;
}

/* Weights of another precision as this one's, where only time matters. NULL: no memory, or a line in error. */
static void *make_stand_in(const mpr_weights *weights, const mpb_convolution *donor, const mpb_convolution *conv,
                           const void *source, uint64_t per_channel, char *error)
{
    const int source_type = mp_weights_type(donor->precision), type = mp_weights_type(conv->precision);
    const int channels = conv->shape.out_c;
    const float *donor_scale = 0, *scale = 0, limit = (float)mp_largest_code(&mp_precisions[conv->precision]);
    if (source_type == MP_TYPE_I8 &&
        !(donor_scale = checked_floats(weights, &donor->scale, channels, 1, "scales", error)))
        return 0;
    if (type == MP_TYPE_I8 && !(scale = checked_floats(weights, &conv->scale, channels, 1, "scales", error))) return 0;
    void *values = mpr_allocate(channels * per_channel * mp_type_bytes(type));
    for (uint64_t i = 0; values && i < channels * per_channel; i++) {
        const int channel = (int)(i / per_channel);
        const float real = source_type == MP_TYPE_I8 ? (float)((const int8_t *)source)[i] * donor_scale[channel]
                                                     : mp_real_at(source, i, source_type);
        if (type == MP_TYPE_I8)
            ((int8_t *)values)[i] = (int8_t)fminf(fmaxf(rintf(real / scale[channel]), -limit), limit);
        else
            mp_put_real(values, i, type, real);
    }
    return values;
}

/* Number `number` of those of `bits` bits each that lie one behind the other. */
static int field_at(const uint8_t *bytes, uint64_t number, int bits)
{
    const uint64_t at = number * bits, low = at % 8;
    unsigned bits16 = bytes[at / 8];
    if (low + bits > 8) bits16 |= (unsigned)bytes[at / 8 + 1] << 8;
    return (int)(bits16 >> low & ((1u << bits) - 1));
}

/* Codes of fewer than eight bits, times their multipliers if the file has some, as int8. NULL: no memory, or a line in error. */
static int8_t *widen(const mpr_file *file, const mpb_convolution *conv, uint64_t count, const char *label, char *error)
{
    const int bits = mp_precisions[conv->precision].bits, multiplier_bits = 8 - bits, sign = 1 << (bits - 1);
    const int taps = conv->shape.size * conv->shape.size, inputs = conv->shape.in_c / conv->shape.groups;
    const uint64_t blocks = (inputs + MP_GROUP - 1) / MP_GROUP, multipliers = blocks * taps * conv->shape.out_c;
    const uint64_t code_bytes = (count * bits + 7) / 8, multiplier_bytes = (multipliers * multiplier_bits + 7) / 8;
    const int grouped = conv->weights.bytes > code_bytes;
    const uint8_t *bytes = mpr_piece(file, &conv->weights, code_bytes + (grouped ? multiplier_bytes : 0), label, error);
    int8_t *codes = bytes ? mpr_allocate(count) : 0;
    for (uint64_t i = 0; codes && i < count; i++) {
        const int code = (field_at(bytes, i, bits) ^ sign) - sign;
        const uint64_t filter = i / taps / inputs, block = i / taps % inputs / MP_GROUP;
        const int multiplier =
            grouped ? field_at(bytes + code_bytes, (filter * taps + i % taps) * blocks + block, multiplier_bits) : 0;
        codes[i] = (int8_t)(code * (1 + multiplier));
    }
    return codes;
}

/* The biases of a convolution in integers, 4 * bias_words bytes each, its multipliers and its shifts; NULL with a line in error. No
 * bias leaves the bits of sums. */
static const int32_t *integer_biases(const mpr_weights *weights, const mpb_convolution *conv, const char *label,
                                     char *error)
{
    const uint64_t channels = (uint64_t)conv->shape.out_c;
    const int32_t *words = mpr_piece(weights->file, &conv->bias, 4 * (conv->bias_words + 2) * channels, label, error);
    for (uint64_t c = 0; words && c < channels; c++) {
        const int32_t multiplier = words[conv->bias_words * channels + c],
                      shift = words[(conv->bias_words + 1) * channels + c];
        const int64_t bias = conv->bias_words == 2 ? ((const int64_t *)(const void *)words)[c] : words[c];
        const int64_t limit = INT64_C(1) << (conv->bias_words == 2 ? 47 : 31);
        if (!mp_is_factor(multiplier, shift) || shift > MP_MOST_SHIFT || bias <= -limit || bias >= limit) {
            mpr_fail(error, "%s: %s: factor or bias %d makes no sense; export it again", weights->file->name, label,
                     (int)c);
            return 0;
        }
    }
    return words;
}

/* Whether no sum leaves its bits, by the rule of mpnet/quantization/fixed_point.py: 0, or -1 with a line in error. */
static int check_integer_sums(const mpr_weights *weights, const mpb_convolution *conv, const int8_t *codes,
                              uint64_t per_channel, int max_distance, const char *label, char *error)
{
    const uint64_t channels = (uint64_t)conv->shape.out_c;
    const int32_t *words = integer_biases(weights, conv, label, error);
    for (uint64_t c = 0; words && c < channels; c++) {
        const int64_t bias = conv->bias_words == 2 ? ((const int64_t *)(const void *)words)[c] : words[c];
        const int32_t shift = words[(conv->bias_words + 1) * channels + c];
        int64_t filter = 0;
        for (uint64_t i = 0; i < per_channel; i++) filter += abs(codes[c * per_channel + i]);
        /* What is above 0 of a shift comes before the product, in sums of 32 bits. */
        const int64_t bound = conv->bias_words == 2 ? INT64_C(1) << 47 : (INT64_C(1) << 31) >> (shift > 0 ? shift : 0);
        if (filter * max_distance + (bias < 0 ? -bias : bias) >= bound)
            return mpr_fail(error, "%s: %s: sums of channel %d leave their bits; export it again", weights->file->name,
                            label, (int)c);
    }
    return words ? 0 : -1;
}

/* Packs a convolution's weights, or finds them packed in the file. */
static int find_or_pack(mpr_weights *weights, int32_t number, int max_distance, char *error)
{
    const mpr_file *file = weights->file;
    const mpb_convolution *conv = &file->convolutions[number], *donor = conv;
    const mp_table *table = weights->table;
    char label[96];
    snprintf(label, sizeof label, "weights of layer %d (%.48s)", (int)conv->layer, mpr_layer_name(file, conv->layer));
    if (weights->packed[number])
        return weights->max_distance[number] >= max_distance
                   ? 0
                   : mpr_fail(error, "%s: %s: serve two steps; export it again", file->name, label);
    weights->max_distance[number] = max_distance;
    const int status = mp_check_conv(table, &conv->shape, conv->precision);
    if (status == MP_UNSUPPORTED)
        return mpr_fail(error, "%s: %s: ISA level %s lacks their precision", file->name, label, mp_table_name(table));
    if (status != MP_OK) return mpr_fail(error, "%s: %s: have a shape that cannot be computed", file->name, label);
    error[0] = 0;
    if (conv->stands_in < 0 && (weights->packed[number] = find_packed(weights, number, error)) != 0) {
        weights->mapped++;
        return 0;
    }
    if (error[0]) return -1;
    if (conv->stands_in >= 0) {
        if (conv->stands_in >= file->count[MPB_CONVOLUTIONS] || file->convolutions[conv->stands_in].stands_in >= 0)
            return mpr_fail(error, "%s: %s: have none to stand in; export it again", file->name, label);
        donor = &file->convolutions[conv->stands_in];
        if (donor->precision < 0 || donor->precision >= MP_PRECISIONS ||
            memcmp(&donor->shape, &conv->shape, sizeof conv->shape))
            return mpr_fail(error, "%s: %s: stand in for another shape; export it again", file->name, label);
    }
    const mp_conv_shape *s = &conv->shape;
    const uint64_t count = (uint64_t)s->out_c * (s->in_c / s->groups) * s->size * s->size;
    const mp_precision *stored_precision = &mp_precisions[donor->precision];
    void *codes = stored_precision->bits ? widen(file, donor, count, label, error) : 0, *stand_in_values = 0;
    const void *source =
        stored_precision->bits
            ? codes
            : mpr_piece(file, &donor->weights, count * mp_type_bytes(mp_weights_type(donor->precision)), label, error);
    if (source && donor != conv)
        source = stand_in_values = make_stand_in(weights, donor, conv, source, count / s->out_c, error);
    if (!source) {
        free(codes);
        return *error ? -1 : mpr_fail(error, "%s: %s: no memory", file->name, label);
    }
    if (conv->bias_words && check_integer_sums(weights, conv, source, count / s->out_c, max_distance, label, error)) {
        free(stand_in_values);
        free(codes);
        return -1;
    }
    const size_t bytes = mp_pack_bytes_stored(table, s, conv->precision, source);
    void *packed = bytes ? mpr_allocate(bytes) : 0;
    int pack_status = -1;
    if (packed) pack_status = mp_pack_conv_stored(table, s, conv->precision, source, packed, bytes);
    free(stand_in_values);
    free(codes);
    if (pack_status != MP_OK) {
        free(packed);
        return mpr_fail(error, "%s: %s: cannot be packed (status %d)", file->name, label, pack_status);
    }
    mpr_forget(file, &donor->weights);
    weights->packed[number] = weights->allocated[number] = packed;
    weights->packed_here++;
    return 0;
}

int mpr_prepare_weights(mpr_weights *weights, int32_t number, int max_distance, char *error)
{
    const mpb_convolution *conv = &weights->file->convolutions[number];
    if (find_or_pack(weights, number, max_distance, error)) return -1;
    if (conv->bias_words ? !integer_biases(weights, conv, "biases", error)
                         : !checked_floats(weights, &conv->bias, conv->shape.out_c, 0, "biases", error))
        return -1;
    const int codes = !mp_is_real(mp_precisions[conv->precision].type);
    return !codes || checked_floats(weights, &conv->scale, conv->shape.out_c, 1, "scales", error) ? 0 : -1;
}
