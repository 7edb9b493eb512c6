/* SPDX-License-Identifier: MIT */
#include "plan.h"
#include <stdlib.h>
#include "../half.h"
#include "narrow.h"

/* Below this many channels the transforms cost more than they save. For the Winograd of reals part of the contract. The second: of the
 * input, beside tiles for narrow weights. */
enum { WINOGRAD_MIN_CHANNELS = 16, WINOGRAD_MIN_NARROW = 24 };

/* Whether a Winograd of this table computes such a layer. narrow: 1: there are tiles for its weights alone. */
static int winograd_shape(const mp_conv_plan *plan, const mp_winograd *winograd, int narrow)
{
    const mp_conv_shape *s = &plan->shape;
    const int tiles = ceil_div(plan->out_h, MP_TILE) * ceil_div(plan->out_w, MP_TILE);
    return winograd && s->size == 3 && s->stride == 1 && s->dilation == 1 && s->groups == 1 &&
           s->in_c >= (narrow ? WINOGRAD_MIN_NARROW : WINOGRAD_MIN_CHANNELS) && s->out_c >= WINOGRAD_MIN_CHANNELS &&
           s->in_c >= winograd->least_channels && s->out_c >= winograd->least_channels &&
           tiles >= winograd->least_tiles;
}

/* Each output must fit 26 bits, because 64 times it must fit 32: |q| <= 128. */
static int winograd_fits_int8(const mp_conv_shape *s, const int8_t *weights)
{
    const size_t depth = (size_t)s->in_c * 9;
    for (int k = 0; k < s->out_c; k++) {
        int64_t sum = 0;
        for (size_t i = 0; i < depth;) { /* in parts whose sums fit 32 bits, which compilers add side by side */
            const size_t end = depth - i > 1 << 16 ? i + (1 << 16) : depth;
            int part = 0;
            for (; i < end; i++) part += weights[k * depth + i] < 0 ? -weights[k * depth + i] : weights[k * depth + i];
            sum += part;
        }
        if (sum * 128 >= 1 << 25) return 0;
    }
    return 1;
}

int mp_are_codes(const mp_conv_plan *plan, const int8_t *weights)
{
    const size_t count = (size_t)plan->depth * plan->shape.out_c;
    const int largest = mp_largest_code(plan->traits);
    for (size_t i = 0; i < count; i++)
        if (abs(weights[i]) > largest) return 0;
    return 1;
}

float mp_weight_at(const mp_conv_plan *plan, const void *weights, size_t index)
{
    const int type = plan->traits->type;
    if (plan->codes) return ((const int8_t *)weights)[index];
    if (plan->stored_weights) return mp_real_at(weights, index, type);
    return mp_round_real(((const float *)weights)[index], type);
}

/* Interleaved pixels: what lies between multiplications (stores of sums, the output stage) is done in whole vectors,
 * and few channels would leave most of one empty. `cost` is that of a row of sums; the cheapest per pixel is taken. */
enum { MOST_INTERLEAVED = 4 };
static void choose_interleave(mp_conv_plan *plan, int lanes,
                              int (*cost)(const mp_conv_plan *, int interleave, int lanes))
{
    plan->interleave = 1;
    for (int interleave = 2; interleave <= MOST_INTERLEAVED; interleave *= 2)
        if (plan->out_w % interleave == 0 &&
            cost(plan, interleave, lanes) * plan->interleave < cost(plan, plan->interleave, lanes) * interleave)
            plan->interleave = interleave;
}

/* Filters of interleaved pixels read one channel each as before: they cost nothing. */
static int depthwise_cost(const mp_conv_plan *plan, int interleave, int lanes)
{
    return ceil_div(interleave * plan->shape.out_c, lanes);
}

/* Filters of `interleave` pixels read all that any of them reads, with zeros where they read nothing. */
static int tile_cost(const mp_conv_plan *plan, int interleave, int lanes)
{
    enum { OUTPUT = 8 }; /* of a vector: in products of it */
    const mp_conv_shape *s = &plan->shape;
    const int depth = mp_micro_depth(plan->micro), run = (s->size + (interleave - 1) * s->stride) * s->in_c;
    return ceil_div(interleave * s->out_c, lanes) *
           (s->size * ceil_div(run, depth) * depth / plan->micro->kstep + OUTPUT);
}

/* Which mp_micro.windows may compute. */
static int is_first_layer(const mp_conv_shape *s)
{
    return s->size == 3 && s->stride == 1 && s->in_c == MP_WINDOW_CHANNELS;
}

/* Whether no filter has a weight in row or column `line` of its taps. */
static int is_empty(const mp_conv_plan *plan, const void *weights, int line, int column)
{
    const int size = plan->shape.size, step = column ? size : 1;
    const size_t taps = (size_t)size * size, filters = (size_t)plan->shape.out_c * plan->group_in;
    for (size_t filter = 0; filter < filters; filter++)
        for (int i = 0; i < size; i++)
            if (mp_weight_at(plan, weights, filter * taps + (column ? line : line * size) + i * step) != 0.0f) return 0;
    return 1;
}

/* How many rows (column 0) or columns (1) are empty behind the last that is not; *leading: before the first. */
static int empty_lines(const mp_conv_plan *plan, const void *weights, int column, int16_t *leading)
{
    const int size = plan->shape.size;
    int first = 0, trailing = 0;
    while (first < size - 1 && is_empty(plan, weights, first, column)) first++;
    while (trailing < size - 1 - first && is_empty(plan, weights, size - 1 - trailing, column)) trailing++;
    *leading = (int16_t)first;
    return trailing;
}

/* Worth while, and part of the contract of floats, whose -0 would become 0 by adding 0 * x: at most half of the taps are left. */
static int has_edges(const mp_conv_plan *plan, const mp_edges *empty)
{
    const int size = plan->shape.size, rows = size - empty->top - empty->bottom,
              columns = size - empty->left - empty->right;
    return empty->top >= 0 && empty->bottom >= 0 && empty->left >= 0 && empty->right >= 0 && rows > 0 && columns > 0 &&
           2 * rows * columns <= size * size;
}

/* Taps that no filter has, of weights or, without these, as a packed buffer's header says. */
static void skip_empty_taps(mp_conv_plan *plan, const void *weights, const mp_edges *stored)
{
    mp_edges empty = stored ? *stored : (mp_edges){0};
    if (plan->traits->bits || plan->sums == MP_SUM_HALF || plan->group_in == 1) return;
    if (weights) {
        empty.bottom = (int16_t)empty_lines(plan, weights, 0, &empty.top);
        empty.right = (int16_t)empty_lines(plan, weights, 1, &empty.left);
    }
    if (has_edges(plan, &empty)) plan->empty = empty;
}

/* Only integers: adding 0 * x changes no integer, but makes 0 of a float's -0. */
static int may_interleave(const mp_conv_plan *plan)
{
    const mp_conv_shape *s = &plan->shape;
    return plan->codes && plan->sums == MP_SUM_INT && !plan->traits->bits && !plan->winograd && !plan->blocks &&
           s->groups == 1 && s->dilation == 1 && !is_first_layer(s);
}

/* Few channels, so that interleaved pixels fill the channels that a table takes at once. */
static int fill_columns(const mp_conv_plan *plan)
{
    enum { LEAST = 8 };
    return plan->shape.size == 3 && plan->shape.out_c >= LEAST && plan->depthwise->columns &&
           plan->depthwise->columns % plan->shape.out_c == 0;
}

/* Whether the table's kernel for the usual squares of taps computes such a layer. */
static int has_lines(const mp_conv_plan *plan, int lanes)
{
    const mp_conv_shape *s = &plan->shape;
    return plan->depthwise->lines && (s->size == 3 || s->size == MP_MOST_LINES) && s->stride <= 2 && s->dilation == 1 &&
           s->padding <= s->size / 2 && plan->out_w >= MP_LEAST_PIXELS &&
           (plan->depthwise->partial || s->out_c % lanes == 0) &&
           (s->stride > 1 || s->out_c >= plan->depthwise->least_channels || fill_columns(plan));
}

static void plan_depthwise(mp_conv_plan *plan, int lanes)
{
    const mp_depthwise *kernel = plan->depthwise;
    plan->a_bytes = kernel->a_bytes;
    plan->stage = kernel->stage;
    if (plan->sums == MP_SUM_BYTE_PAIRS) plan->sums = MP_SUM_INT; /* few enough products of whole codes */
    plan->subtracts_zero = kernel->subtracts_zero;
    plan->bias_q = kernel->bias_q;
    plan->weight_type = kernel->weight_type;
    plan->weight_bytes = mp_weight_bytes[plan->weight_type];
    plan->lines = has_lines(plan, lanes);
    plan->columns = plan->lines ? kernel->columns : 0;
    plan->pairs = kernel->pair && !plan->columns;
    plan->segments = plan->pairs ? 2 * mp_pair_rows(&plan->shape) * plan->shape.size : plan->depth;
    plan->run = plan->run_padded = 1;
    plan->panels = plan->total_panels = 1;
    if (plan->shape.stride == 1 && !plan->lines) choose_interleave(plan, MP_MAX_LANES, depthwise_cost);
    plan->packed_channels = ceil_div(plan->interleave * plan->shape.out_c, MP_MAX_LANES) * MP_MAX_LANES;
    size_t elements = (size_t)plan->segments * plan->packed_channels * (plan->pairs ? 2 : 1);
    if (plan->columns) {
        plan->weight_type = MP_W_I8;
        plan->weight_bytes = mp_weight_bytes[MP_W_I8];
        plan->bias_q = 128;
        elements =
            mp_column_taps(&plan->shape) * MP_COLUMN_LINES * ceil_div(plan->shape.out_c, plan->columns) * plan->columns;
    }
    plan->panel_bytes = elements * plan->weight_bytes;
    plan->staged = !plan->lines || !kernel->in_place;
    if (plan->staged) return;
    plan->stage_w = plan->shape.in_w;
    plan->a_bytes = mp_type_bytes(plan->traits->type);
    plan->subtracts_zero = 0;
}

/* The depth of a matrix unit's steps: equal parts of a segment, since one setting of its tiles serves a whole layer. 0 where it
 * does not pay: for few channels, or depths that have no such parts. */
static int matrix_step(const mp_conv_plan *plan)
{
    enum { LEAST = 16 };
    for (int steps = ceil_div(plan->run_padded, MP_MATRIX_DEPTH); plan->run_padded / steps >= LEAST; steps++)
        if (plan->run_padded % (steps * plan->micro->kstep) == 0) return plan->run_padded / steps;
    return 0;
}

/* matrix: another kernel with the same layout of weights, or NULL. */
static void plan_tiles(mp_conv_plan *plan, const mp_micro *matrix, int lanes)
{
    const mp_conv_shape *s = &plan->shape;
    const int depth = mp_micro_depth(plan->micro), nr = plan->micro->nr;
    /* Taps of one kernel row are contiguous in NHWC unless dilation or groups tear them apart. */
    const int joined = (s->groups == 1 && s->dilation == 1) || s->size == 1;
    plan->blocks = !plan->winograd && plan->micro->tile_blocks && s->groups == 1 && s->in_c % depth == 0;
    const int rows = mp_tap_rows(plan), columns = mp_tap_columns(plan), apart = !joined || plan->blocks;
    plan->segments = plan->winograd || s->size == 1 ? 1 : rows * (apart ? columns : 1);
    plan->run = plan->winograd ? s->in_c : plan->group_in * rows * columns / plan->segments;
    if (may_interleave(plan) && mp_has_all_taps(plan)) choose_interleave(plan, lanes, tile_cost);
    if (plan->interleave > 1) {
        plan->run = (s->size + (plan->interleave - 1) * s->stride) * s->in_c;
        matrix = 0;
    }
    plan->run_padded = ceil_div(plan->run, depth) * depth;
    plan->step = matrix ? matrix_step(plan) : 0;
    if (plan->step)
        plan->micro = matrix;
    else
        plan->step = depth;

    const mp_micro *kernel = plan->micro;
    plan->a_bytes = kernel->a_bytes;
    plan->stage = kernel->stage;
    plan->weight_type = kernel->weight_type;
    plan->weight_bytes = mp_weight_bytes[plan->weight_type];
    plan->panels = ceil_div(plan->interleave * plan->group_out, nr);
    plan->total_panels = plan->panels * s->groups;
    plan->packed_channels = plan->total_panels * nr;
    if (plan->winograd) {
        plan->panel_bytes = (size_t)MP_POSITIONS * plan->run_padded * nr * plan->weight_bytes; /* [position][panel] */
        plan->stage_w = ceil_div(plan->out_w, MP_TILE) * MP_TILE + 2;
        plan->staged = 1;
        return;
    }
    plan->subtracts_zero = kernel->subtracts_zero;
    plan->bias_q = kernel->bias_q;
    plan->panel_bytes = mp_align((size_t)plan->segments * plan->run_padded * nr * plan->weight_bytes);
    /* Whole steps are read, beyond the end of the input where the run ends within one. */
    plan->staged = kernel->needs_stage || s->padding > 0 || plan->byte_planes > 1 || plan->interleave > 1 ||
                   plan->run != plan->run_padded;
    if (!plan->staged) plan->stage_w = s->in_w;
    if (plan->blocks) plan->stage_w = ceil_div(plan->stage_w, s->stride) * s->stride;
}

size_t mp_winograd_tap(const mp_conv_plan *plan, int c)
{
    const int first = c / MP_GROUP * MP_GROUP;
    const size_t codes = (size_t)clamp(plan->group_in - first, 0, MP_GROUP) * plan->micro->nr;
    return mp_narrow_blocks(codes) * MP_NARROW_BLOCK;
}

size_t mp_winograd_codes(const mp_conv_plan *plan, int c)
{
    const int full_groups = c / MP_GROUP, first = full_groups * MP_GROUP;
    return 9 * ((size_t)first * plan->micro->nr + (c > first ? mp_winograd_tap(plan, first) : 0));
}

/* Codes of 16 bits by tiles that multiply them as they are, where the table has such and their sums fit int32, or can be carried. In byte planes
 * Winograd has half of these products, but its transforms as often as there are planes. */
static const mp_micro *int16_tiles(const mp_conv_plan *plan, const mp_table *table)
{
    const mp_micro *tiles = plan->sums == MP_SUM_BYTE_PAIRS && !plan->winograd ? table->micro[MP_INT16] : 0;
    return tiles && (tiles->carry || plan->depth <= MP_INT16_MAX_DEPTH) ? tiles : 0;
}

/* int8: where Winograd's tiles have more results than those of direct sums (ARMv8.0), they make sums of few products too: beginning and
 * ending a tile, which costs more than such products, is then done less often. Their products are half as fast: at 24 Cortex-A57
 * gains nothing more, by its model and what instructions are left. First layers have kernels of their own. */
static const mp_micro *short_tiles(const mp_conv_plan *plan, const mp_winograd *winograd)
{
    enum { SHORT = 24 };
    if (!winograd || !plan->codes || plan->sums != MP_SUM_INT || plan->traits->bits || plan->depth > SHORT ||
        is_first_layer(&plan->shape))
        return 0;
    const mp_micro *micro = winograd->micro;
    return micro->mr * micro->nr > plan->micro->mr * plan->micro->nr ? micro : 0;
}

static void plan_int16(mp_conv_plan *plan, const mp_micro *tiles)
{
    if (tiles) plan->micro = tiles;
    plan->byte_planes = tiles ? 1 : 2;
    plan->carries = tiles && plan->depth > MP_INT16_MAX_DEPTH;
    if (tiles && !plan->carries) plan->sums = MP_SUM_INT;
}

static void plan_stored(mp_conv_plan *plan)
{
    const int bits = plan->traits->bits;
    /* Narrow weights are transformed when they are unpacked. */
    const size_t codes =
        bits && plan->winograd ? mp_winograd_codes(plan, plan->run) : plan->panel_bytes / plan->weight_bytes;
    plan->stored_bits = bits ? bits : 8 * (int)plan->weight_bytes;
    plan->codes_bytes = plan->stored_bytes = bits ? mp_narrow_bytes(codes, bits) : plan->panel_bytes;
    if (plan->grouped) plan->stored_bytes += mp_narrow_bytes(mp_multipliers(plan), mp_multiplier_bits(plan));
}

/* The tiles for narrow weights alone; NULL: those of int8. First layers have kernels of their own, of int8. */
static const mp_micro *narrow_tiles(const mp_conv_plan *plan, const mp_table *table)
{
    const mp_micro *tiles = plan->traits->bits ? table->micro[plan->precision] : 0;
    if (!tiles || plan->group_in <= MP_WINDOW_CHANNELS) return 0;
    if (!plan->grouped) return tiles;
    tiles = tiles->grouped;
    return tiles && plan->group_in % mp_micro_depth(tiles) == 0 ? tiles : 0;
}

/* Whether a kernel of this table can compute the shape, and sizes of it stay within their integers: an mp_status. */
static int check_shape(const mp_table *table, const mp_conv_shape *s, int precision)
{
    /* One side, one channel count: far above any network in use, low enough that products fit 64 bits. */
    enum { SIDE = 1 << 16, CHANNELS = 1 << 20 };
    if (precision < 0 || precision >= MP_PRECISIONS) return MP_BAD_ARGUMENT;
    if (s->in_h < 1 || s->in_w < 1 || s->in_c < 1 || s->out_c < 1 || s->size < 1 || s->stride < 1 || s->padding < 0 ||
        s->dilation < 1 || s->groups < 1)
        return MP_BAD_SHAPE;
    if (s->in_h > SIDE || s->in_w > SIDE || s->in_c > CHANNELS || s->out_c > CHANNELS || s->size > 1024 ||
        s->stride > SIDE || s->padding > SIDE || s->dilation > SIDE)
        return MP_BAD_SHAPE;
    if (s->in_c % s->groups || s->out_c % s->groups) return MP_BAD_SHAPE;
    const int64_t reach = mp_reach(s), w = s->in_w + 2 * (int64_t)s->padding - reach;
    if (s->in_h + 2 * (int64_t)s->padding - reach < 0 || w < 0) return MP_BAD_SHAPE;
    const mp_precision *traits = &mp_precisions[precision];
    if (!table->micro[traits->tiles]) return MP_UNSUPPORTED;
    const int64_t depth = (int64_t)s->size * s->size * (s->in_c / s->groups);
    if (!mp_is_real(traits->type) && depth > MP_INT8_MAX_DEPTH) return MP_OVERFLOW;
    const int64_t staged_row = (w / s->stride * s->stride + reach) * s->in_c;
    if (depth > INT32_MAX / 8 || staged_row > INT32_MAX / 8 || staged_row * reach > INT32_MAX ||
        depth * s->out_c > INT64_C(1) << 32)
        return MP_BAD_SHAPE;
    return MP_OK;
}

/* What follows from a checked shape and a precision alone, and the kernels that a plan begins with. */
static mp_conv_plan plan_of_shape(const mp_table *table, const mp_conv_shape *s, int precision)
{
    const mp_precision *traits = &mp_precisions[precision];
    const int reach = (int)mp_reach(s), out_w = (s->in_w + 2 * s->padding - reach) / s->stride + 1;
    mp_conv_plan plan = {
        .shape = *s,
        .precision = precision,
        .traits = traits,
        .micro = table->micro[traits->tiles],
        .codes = !mp_is_real(traits->type),
        .sums = traits->sums,
        .byte_planes = 1,
        .interleave = 1,
        .out_h = (s->in_h + 2 * s->padding - reach) / s->stride + 1,
        .out_w = out_w,
        .group_in = s->in_c / s->groups,
        .group_out = s->out_c / s->groups,
        .depth = s->size * s->size * (s->in_c / s->groups),
        .stage_w = (out_w - 1) * s->stride + reach,
        .row_span = reach,
    };
    const int is_depthwise = plan.group_in == 1 && plan.group_out == 1 && s->groups > 1;
    if (is_depthwise && (traits->sums != MP_SUM_BYTE_PAIRS || plan.depth <= MP_INT16_MAX_DEPTH))
        plan.depthwise = table->depthwise[traits->depthwise];
    return plan;
}

/* Narrow weights, empty taps, Winograd, int16: which of the table's tiles multiply. */
static void choose_tiles(mp_conv_plan *plan, const mp_table *table, int requested, const void *weights,
                         const mp_edges *empty)
{
    const mp_precision *traits = plan->traits;
    const int by_weights = requested & MP_BY_WEIGHTS && weights;
    /* Filters of one channel would have a multiplier for every weight. */
    plan->grouped =
        traits->bits && plan->group_in > 1 && (requested & MP_GROUPED || (by_weights && !mp_are_codes(plan, weights)));
    const mp_micro *narrow = narrow_tiles(plan, table);
    if (narrow) plan->micro = narrow;
    const mp_winograd *winograd =
        winograd_shape(plan, table->winograd[traits->tiles], narrow != 0) ? table->winograd[traits->tiles] : 0;
    if (plan->codes || !winograd) skip_empty_taps(plan, by_weights ? weights : 0, empty);
    /* Sums of floats depend on the algorithm, so that a precision has it or not; integers are the same either way. */
    const int int16_products = plan->depth <= MP_INT16_MAX_DEPTH && int16_tiles(plan, table);
    if (!int16_products && winograd && mp_has_all_taps(plan) &&
        (!plan->codes || requested & MP_WINOGRAD || (by_weights && winograd_fits_int8(&plan->shape, weights)))) {
        plan->winograd = winograd;
        plan->micro = plan->winograd->micro;
        /* Of halves, which its output transform turns into floats that begin from the bias. */
        if (plan->sums == MP_SUM_HALF) plan->sums = MP_SUM_FLOAT;
    }
    const mp_micro *shallow = plan->winograd ? 0 : short_tiles(plan, table->winograd[traits->tiles]);
    if (shallow) plan->micro = shallow;
    if (plan->sums == MP_SUM_BYTE_PAIRS) plan_int16(plan, int16_tiles(plan, table));
}

int mp_conv_plan_make(mp_conv_plan *plan, const mp_table *table, const mp_conv_shape *shape, int precision,
                      int requested, const void *weights, const mp_edges *empty)
{
    const int status = check_shape(table, shape, precision);
    if (status != MP_OK) return status;
    *plan = plan_of_shape(table, shape, precision);
    plan->stored_weights = (requested & MP_STORED_WEIGHTS) != 0;
    if (plan->depthwise) {
        plan_depthwise(plan, table->lanes);
    } else {
        choose_tiles(plan, table, requested, weights, empty);
        plan_tiles(plan, plan->codes && !plan->winograd ? table->matrix : 0, table->lanes);
    }
    plan_stored(plan);
    return MP_OK;
}
