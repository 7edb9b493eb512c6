/* SPDX-License-Identifier: MIT */
#include "item.h"
#include <math.h>
#include <string.h>
#include "../fixed_point.h"
#include "groups.h"
#include "narrow.h"

/* Spreads values over packed channels; what no channel stands behind becomes 0. */
static void spread(const mp_conv_plan *plan, const float *values, float factor, float *out)
{
    const int width = plan->depthwise ? 1 : plan->panels * plan->micro->nr; /* packed channels of a group */
    memset(out, 0, (size_t)plan->packed_channels * sizeof *out);
    /* Groups without gaps are one: a depthwise layer's are single channels. */
    const int groups = width == plan->group_out ? 1 : plan->shape.groups, channels = plan->shape.out_c / groups;
    for (int group = 0; group < groups; group++)
        for (int k = 0; k < channels; k++) out[(size_t)group * width + k] = values[group * channels + k] * factor;
    for (int k = plan->shape.out_c; k < plan->interleave * plan->shape.out_c; k++) out[k] = out[k - plan->shape.out_c];
}

/* Of codes, or of the bytes that stand for them: x = 256 * upper + (lower + 128), all with signs. */
static int zero_point(const mp_item *item, int plane)
{
    if (item->plan->byte_planes > 1) return plane ? -128 : 0;
    return item->args->in_zero_point[item->image];
}

/* The staged form of the real 0: what stands in padding taps, and what every sum has too much of. */
static int zero_code(const mp_item *item, int plane)
{
    const mp_conv_plan *plan = item->plan;
    return !plan->codes || plan->subtracts_zero ? 0 : zero_point(item, plane) + plan->bias_q;
}

static void prepare_codes(mp_item *item)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const int32_t *sums = mp_packed_sums(args->packed);
    const float offset = args->in_offset[item->image];
    /* unsigned: it may wrap, and wraps back when the products are added */
    for (int plane = 0; plane < plan->byte_planes; plane++) {
        uint32_t *init = (uint32_t *)((char *)item->init + plane * item->schedule->lower_init);
        const uint32_t zero = (uint32_t)zero_code(item, plane);
        for (int c = 0; c < plan->packed_channels; c++) init[c] = 0u - zero * (uint32_t)sums[c];
    }
    if (offset != 0.0f) {
        spread(plan, args->weight_scale, 1.0f, item->scale);
        for (int c = 0; c < plan->packed_channels; c++)
            item->bias[c] = fmaf(offset, item->scale[c] * (float)sums[c], item->bias[c]);
    }
    spread(plan, args->weight_scale, args->in_scale[item->image], item->scale);
}

/* Of floats without a sign, which compare as these do, and compilers compare many at once. */
static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Whether results of integer sums are finite, rise with the sums and are never -0: |sum| < 2^31, and scales and biases of these
 * magnitudes keep scale * sum + bias far from the ends of float32. A zero is then 0 or comes from 0 * scale + 0. */
static int is_rising(const mp_item *item)
{
    const uint32_t least = bits_of(0x1p-90f), most = bits_of(0x1p90f), span = most - least;
    uint32_t others = 0;
    for (int c = 0; c < item->plan->packed_channels; c++) {
        const uint32_t scale = bits_of(item->scale[c]), bias = bits_of(item->bias[c]), size = bias & 0x7fffffff;
        others |= (scale != 0) & (scale - least > span);
        others |= (bias != 0) & (size - least > span);
    }
    return !others;
}

/* Whether no result times the output's inverse scale comes near the ends of int32, whatever an int32 sum is. Rising. */
static int stays_small(const mp_item *item, float inv_scale)
{
    int32_t most = 0;
    for (int c = 0; c < item->plan->packed_channels; c++) {
        const int32_t result = (int32_t)bits_of(item->scale[c] * 0x1p31f + fabsf(item->bias[c]));
        most = result > most ? result : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    return largest * inv_scale < 0x1p29f;
}

/* scratch: bias, multipliers and shifts where they are not as they came: of the rule of 64 bits, and of interleaved pixels. */
static void prepare_integer_output(mp_item *item, char *scratch)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const int32_t zero_point = args->out_zero_point[item->image], low = args->out_low - zero_point,
                  high = args->out_high - zero_point;
    mp_requantized *o = &item->requantized;
    *o = (mp_requantized){.wide = plan->traits->type == MP_TYPE_I16 || args->out_type == MP_TYPE_I16,
                          .bias = args->integer_bias,
                          .multiplier = args->multiplier,
                          .shift = args->shift,
                          .lower = plan->sums == MP_SUM_BYTE_PAIRS ? item->output.lower : 0,
                          .windows = item->schedule->windows,
                          .low = low,
                          .high = high,
                          .add = zero_point,
                          .leaky = args->leaky_multiplier != 0,
                          .out_type = args->out_type};
    if (o->leaky) { /* sums become steps from the real 0 first */
        o->add = 0;
        o->low = args->leaky_low;
        o->high = args->leaky_high;
        o->after = (mp_rescaling){.out_zero_point = zero_point, .low = low, .high = high};
        for (int i = 0; i < 2; i++) {
            o->after.multiplier[i] = args->leaky_multiplier[i];
            o->after.shift[i] = args->leaky_shift[i];
        }
    }
    if (!o->wide && plan->interleave == 1) return;
    const int out_c = plan->shape.out_c, channels = plan->interleave * out_c;
    int64_t *bias = (int64_t *)scratch;
    int32_t *bias32 = (int32_t *)scratch, *multiplier = (int32_t *)(bias + channels), *shift = multiplier + channels;
    for (int c = 0; c < channels; c++) {
        const int channel = c % out_c;
        multiplier[c] = o->wide ? mp_factor_64(args->multiplier[channel]) : args->multiplier[channel];
        shift[c] = o->wide ? mp_shift_64(args->shift[channel]) : args->shift[channel];
        if (o->wide)
            bias[c] = ((const int64_t *)args->integer_bias)[channel] * multiplier[c] + (INT64_C(1) << (shift[c] - 1));
        else
            bias32[c] = ((const int32_t *)args->integer_bias)[channel];
    }
    o->bias = scratch;
    o->multiplier = multiplier;
    o->shift = shift;
}

/* Whether codes are the same without the activation: what it would cut off lies beyond both ends of their range. */
static int clamps_alike(const mp_output *o)
{
    return o->rising && !o->measured && o->low == 0.0f &&
           (o->activation == MP_RELU || (o->activation == MP_RELU6 && 6.0f * o->inv_scale >= o->high));
}

void mp_item_prepare(mp_item *item, char *scratch)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const mp_scratch *offsets = &item->schedule->scratch;
    item->stage = scratch + offsets->stage;
    item->unpaired = scratch + offsets->unpaired;
    item->converted = scratch + offsets->converted;
    item->split_bytes = scratch + offsets->split_bytes;
    item->transformed = scratch + offsets->transformed;
    item->sums = scratch + offsets->sums;
    item->part = scratch + offsets->part;
    item->tile = scratch + offsets->tile;
    item->bias = (float *)(scratch + offsets->bias);
    item->scale = (float *)(scratch + offsets->scale);
    item->init = scratch + offsets->init;
    item->zeros = scratch + offsets->zeros;
    item->segments = (ptrdiff_t *)(scratch + offsets->segments);
    item->weights = scratch + offsets->weights;
    item->kernels = scratch + offsets->kernels;
    item->multipliers = scratch + offsets->multipliers;
    item->pool = scratch + offsets->pool;

    spread(plan, args->bias, 1.0f, item->bias);
    /* Float sums start from the bias; Winograd adds it to the finished ones. */
    if (plan->sums == MP_SUM_FLOAT)
        item->init = item->bias;
    else if (plan->codes)
        prepare_codes(item);
    else
        memset(item->init, 0, (size_t)plan->packed_channels * 4);
    mp_output *o = &item->output;
    o->kind = plan->sums;
    o->lower = (plan->winograd ? item->schedule->lower_tile : item->schedule->lower_sums) / sizeof(int32_t);
    o->activation = args->activation;
    o->out_type = args->out_type;
    o->rounding = args->out_rounding;
    o->windows = item->schedule->windows;
    o->measured = args->ranges && (!args->pool_h || o->windows);
    o->rising = plan->sums == MP_SUM_INT && !args->multiplier && is_rising(item);
    o->bias = item->bias;
    o->scale = item->scale;
    if (args->multiplier) {
        prepare_integer_output(item, scratch + offsets->integer_output);
    } else if (!mp_is_real(args->out_type)) {
        const int32_t zero_point = args->out_zero_point[item->image];
        o->inv_scale = args->out_inv_scale[item->image];
        o->zero_point = (float)zero_point;
        o->low = (float)(args->out_low - zero_point);
        o->high = (float)(args->out_high - zero_point);
        o->packs = o->rising && args->out_type == MP_TYPE_I8 && args->out_low == INT8_MIN &&
                   args->out_high == INT8_MAX && stays_small(item, o->inv_scale);
        if (clamps_alike(o)) o->activation = MP_LINEAR;
    }
}

void mp_item_begin(mp_item *item, int block, int chunk)
{
    const int64_t panels = item->plan->total_panels;
    mp_output *o = &item->output;
    item->block = block;
    item->first_panel = (int)(panels * chunk / item->schedule->chunks);
    item->last_panel = (int)(panels * (chunk + 1) / item->schedule->chunks);
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        o->minimum[lane] = INFINITY;
        o->maximum[lane] = -INFINITY;
        o->bad[lane] = 0.0f;
    }
}

const int8_t *mp_item_multipliers(mp_item *item, const char *stored)
{
    const mp_conv_plan *plan = item->plan;
    if (!plan->grouped) return 0;
    if (stored != item->multipliers_of)
        item->table->unpack(stored + plan->codes_bytes, mp_narrow_blocks(mp_multipliers(plan)),
                            mp_multiplier_bits(plan), MP_W_I8, 0, 0, 0, item->multipliers);
    item->multipliers_of = stored;
    return (const int8_t *)item->multipliers;
}

const char *mp_item_weights(mp_item *item, const char *stored, size_t first, size_t count)
{
    const mp_conv_plan *plan = item->plan;
    const int bits = plan->traits->bits;
    if (!bits) return stored + first * plan->weight_bytes;
    const size_t before = first % MP_NARROW_BLOCK;
    const char *from = stored + mp_narrow_bytes(first - before, bits);
    char *weights = item->weights + before * plan->weight_bytes;
    if (from == item->unpacked && item->schedule->passes == 1) return weights;
    item->unpacked = from;
    if (plan->grouped && !plan->micro->multiplies_groups) {
        mp_unpack_groups(plan, item->table, stored, mp_item_multipliers(item, stored), first, count, weights);
        return weights;
    }
    item->table->unpack(from, mp_narrow_blocks(before + count), bits, plan->weight_type, 0, 0, 0, item->weights);
    if (plan->grouped)
        mp_spread_multipliers(plan, mp_item_multipliers(item, stored), first, count, (int32_t *)(weights + count));
    return weights;
}

static void fill(char *staged, size_t count, size_t a_bytes, int value)
{
    if (value == 0) {
        memset(staged, 0, count * a_bytes);
    } else if (a_bytes == 1) {
        memset(staged, value, count);
    } else {
        int16_t *to = (int16_t *)staged;
        for (size_t i = 0; i < count; i++) to[i] = (int16_t)value;
    }
}

/* Pixels of an image's row, from the first on, as the precision stores them. */
static const void *input_row(const mp_item *item, int iy, size_t count)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_args *args = item->args;
    const mp_conv_shape *s = &plan->shape;
    const int type = args->converts ? args->in_type : plan->traits->type;
    const size_t row = ((size_t)item->image * s->in_h + iy) * s->in_w * s->in_c * mp_type_bytes(type);
    const char *in = (const char *)args->in + row;
    if (!args->converts) return in;
    if (plan->codes)
        item->table->quantize(in, type, item->converted, plan->traits->type, count, args->in_inv_scale[item->image],
                              args->in_zero_point[item->image], args->in_rounding, args->in_low, args->in_high);
    else
        item->table->cast(in, type, item->converted, plan->traits->type, count);
    return item->converted;
}

/* Of a staged row, where `pixels` pixels stand behind `left` of padding: fills all others, and gives that place. */
static char *between_padding(const mp_conv_plan *plan, char *to, int left, int pixels, size_t bytes, int padding)
{
    const size_t channels = plan->shape.in_c, pixel = channels * bytes;
    fill(to, left * channels, bytes, padding);
    fill(to + (left + pixels) * pixel, (plan->stage_w - left - pixels) * channels, bytes, padding);
    return to + left * pixel;
}

/* A row of `pixels` pixels behind `left` of padding, as they lie. */
static void stage_pixels(const mp_item *item, char *to, const char *from, int left, int pixels, int plane)
{
    const mp_conv_plan *plan = item->plan;
    const int zero = plan->subtracts_zero ? zero_point(item, plane) : 0;
    plan->stage(between_padding(plan, to, left, pixels, plan->a_bytes, zero_code(item, plane)), from,
                (size_t)pixels * plan->shape.in_c, zero);
}

/* The same in blocks of channels. */
static void stage_blocks(const mp_item *item, char *to, const char *from, int left, int pixels, int plane)
{
    const mp_conv_plan *plan = item->plan;
    const int padding = zero_code(item, plane), stride = plan->shape.stride, columns = plan->stage_w / stride,
              kstep = plan->micro->kstep, blocks = plan->shape.in_c / kstep;
    const size_t bytes = kstep * plan->a_bytes, block = plan->stage_w * bytes, pixel = blocks * bytes;
    for (int x = 0; x < stride; x++, to += columns * bytes) { /* columns x, x + stride, ... */
        const int first = ceil_div(clamp(left - x, 0, left), stride),
                  last = ceil_div(clamp(left + pixels - x, 0, left + pixels), stride);
        for (int i = 0; i < blocks; i++) {
            fill(to + i * block, (size_t)first * kstep, plan->a_bytes, padding);
            fill(to + i * block + last * bytes, (size_t)(columns - last) * kstep, plan->a_bytes, padding);
        }
        plan->micro->stage_blocks(to + first * bytes, from + (first * stride + x - left) * pixel, stride * pixel,
                                  last - first, blocks, block);
    }
}

/* Codes of 16 bits as their upper and their lower bytes, the lower ones less 128. */
static void part(const int16_t *codes, size_t count, int8_t *upper, int8_t *lower)
{
    for (size_t i = 0; i < count; i++) upper[i] = (int8_t)(codes[i] >> 8);
    for (size_t i = 0; i < count; i++) lower[i] = (int8_t)((codes[i] & 255) - 128);
}

static void stage_row(const mp_item *item, char *to, int iy)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const int left = clamp(s->padding, 0, plan->stage_w), pixels = clamp(s->in_w, 0, plan->stage_w - left);
    const size_t count = (size_t)pixels * s->in_c;
    const int inside = iy >= 0 && iy < s->in_h;
    const char *from = inside ? input_row(item, iy, count) : 0;
    if (inside && plan->byte_planes > 1) {
        part((const int16_t *)from, count, (int8_t *)item->split_bytes, (int8_t *)item->split_bytes + mp_align(count));
        from = item->split_bytes;
    }
    for (int plane = 0; plane < plan->byte_planes; plane++, to += item->schedule->lower_stage) {
        if (inside)
            (plan->blocks ? stage_blocks : stage_pixels)(item, to, from + plane * mp_align(count), left, pixels, plane);
        else
            fill(to, (size_t)plan->stage_w * s->in_c, plan->a_bytes, zero_code(item, plane));
    }
}

/* Codes as they come, on their way into a pair. */
static void copy_row(const mp_item *item, char *to, int iy, int padding, size_t bytes)
{
    const mp_conv_plan *plan = item->plan;
    const mp_conv_shape *s = &plan->shape;
    const int left = clamp(s->padding, 0, plan->stage_w), pixels = clamp(s->in_w, 0, plan->stage_w - left);
    const size_t count = (size_t)pixels * s->in_c;
    if (iy >= 0 && iy < s->in_h)
        memcpy(between_padding(plan, to, left, pixels, bytes, padding), input_row(item, iy, count), count * bytes);
    else
        fill(to, (size_t)plan->stage_w * s->in_c, bytes, padding);
}

static void stage_pair(const mp_item *item, char *to, int iy)
{
    const mp_conv_plan *plan = item->plan;
    const size_t bytes = mp_type_bytes(plan->traits->type), count = (size_t)plan->stage_w * plan->shape.in_c;
    const int zero = zero_point(item, 0);
    char *lower = item->unpaired + mp_align(count * bytes);
    copy_row(item, item->unpaired, iy, zero, bytes);
    copy_row(item, lower, iy + 1, zero, bytes);
    plan->depthwise->pair(to, item->unpaired, lower, count, zero);
}

int mp_item_zero_point(const mp_item *item) { return item->plan->codes ? zero_point(item, 0) : 0; }

/* For mp_depthwise.lines, which need no padding. */
static void stage_line(const mp_item *item, char *to, int iy)
{
    const mp_conv_shape *s = &item->plan->shape;
    const size_t count = (size_t)s->in_w * s->in_c;
    if (iy >= 0 && iy < s->in_h) memcpy(to, input_row(item, iy, count), count * item->plan->a_bytes);
}

const char *mp_item_zeros(const mp_item *item)
{
    fill(item->zeros, (size_t)item->plan->shape.in_c, item->plan->a_bytes, mp_item_zero_point(item));
    return item->zeros;
}

void mp_item_stage(const mp_item *item, int oy, int count)
{
    const mp_conv_plan *plan = item->plan;
    const size_t bytes = item->schedule->stage_row;
    const int first = oy * plan->shape.stride - plan->shape.padding;
    const int staged = mp_stages_pairs(plan) ? count / 2 + 1 : count;
    for (int r = 0; r < staged; r++) {
        char *to = item->stage + r * bytes;
        if (!plan->staged && plan->lines)
            stage_line(item, to, first + r);
        else if (plan->pairs) /* a row that no output reads meets weights that are zeros */
            stage_pair(item, to, first + 2 * r);
        else
            stage_row(item, to, first + r);
    }
    for (int plane = 0; plane < plan->byte_planes; plane++)
        memset(item->stage + plane * item->schedule->lower_stage + staged * bytes, 0, MP_PAST_STAGE);
}

void mp_item_pool(mp_item *item, int oy, int ox, int rows, int width, int channel, int channels)
{
    const mp_conv_args *args = item->args;
    mp_output *o = &item->output;
    const size_t bytes = mp_type_bytes(args->out_type), row = (size_t)width * channels * bytes;
    const int out_w = clamp((width + 1) / 2, 0, args->pool_w - ox / 2);
    for (int y = 0; y < rows && (oy + y) / 2 < args->pool_h; y += 2) {
        const char *lines[2] = {item->pool + y * row, item->pool + (y + 1) * row};
        const size_t pixel = ((size_t)item->image * args->pool_h + (oy + y) / 2) * args->pool_w + ox / 2;
        char *out = (char *)args->out + (pixel * args->shape.out_c + channel) * bytes;
        item->table->maxpool(lines, rows - y < 2 ? 1 : 2, width, channels, args->out_type, 2, 2, 0, out_w, out,
                             args->shape.out_c);
        for (int x = 0; args->ranges && x < out_w; x++)
            item->table->range(out + (size_t)x * args->shape.out_c * bytes, args->out_type, (size_t)channels,
                               o->minimum, o->maximum, o->bad);
    }
}

mp_summary mp_item_summarise(const mp_item *item)
{
    const mp_output *o = &item->output;
    mp_summary summary = {INFINITY, -INFINITY, 0};
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        uint32_t bits;
        memcpy(&bits, &o->bad[lane], sizeof bits);
        summary.bad |= bits != 0;
        summary.minimum = o->minimum[lane] < summary.minimum ? o->minimum[lane] : summary.minimum;
        summary.maximum = o->maximum[lane] > summary.maximum ? o->maximum[lane] : summary.maximum;
    }
    return summary;
}
