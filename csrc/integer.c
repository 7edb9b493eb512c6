/* SPDX-License-Identifier: MIT */
/* Drivers of operations on codes in integers alone: docs/arithmetic.md, section 10. */
#include <math.h>
#include <stdatomic.h>
#include "fixed_point.h"
#include "table.h"
#include "team.h"

typedef struct {
    const mp_table *table;
    const char *x, *b;
    char *out;
    int type, out_type;
    size_t count;
    mp_rescaling rescaling;
    mp_adding adding;
    float scale;
    int zero_point, low, high;
    atomic_int *bad;
} op;
typedef struct {
    const char *x, *b;
    char *out;
    size_t count;
} piece;

static piece piece_of(const op *o, int64_t number, size_t x_bytes)
{
    const size_t at = (size_t)number * MP_PIECE;
    return (piece){o->x + at * x_bytes, o->b ? o->b + at * x_bytes : 0, o->out + at * mp_type_bytes(o->out_type),
                   mp_piece_size(o->count, (size_t)number)};
}
static int share(const op *o, mp_work *work, int threads)
{
    mp_share(mp_team_size(threads, o->count), (int64_t)mp_pieces(o->count), work, o);
    return MP_OK;
}
static int are_codes(int type) { return mp_is_type(type) && !mp_is_real(type); }

static void rescale_item(const void *context, int64_t number, int member)
{
    const op *o = context;
    const piece p = piece_of(o, number, mp_type_bytes(o->type));
    (void)member;
    o->table->rescale(&o->rescaling, p.x, o->type, p.out, o->out_type, p.count);
}

int mp_rescale(const mp_table *table, const void *x, int type, void *out, int out_type, int zero_point,
               int out_zero_point, int low, int high, int multiplier, int shift, int below_multiplier, int below_shift,
               size_t count, int threads)
{
    const int most = mp_most_rescaling(type);
    if (!table || !x || !out || !are_codes(type) || threads < 1 || !mp_are_its_codes(out_type, low, high) ||
        !mp_is_zero_point(type, zero_point) || !mp_is_zero_point(out_type, out_zero_point) ||
        !mp_is_factor(multiplier, shift) || !mp_is_factor(below_multiplier, below_shift))
        return MP_BAD_ARGUMENT;
    if (shift > most || below_shift > most) return MP_OVERFLOW;
    const op o = {.table = table,
                  .x = x,
                  .out = out,
                  .type = type,
                  .out_type = out_type,
                  .count = count,
                  .rescaling = {zero_point,
                                out_zero_point,
                                low - out_zero_point,
                                high - out_zero_point,
                                {multiplier, below_multiplier},
                                {shift, below_shift}}};
    return share(&o, rescale_item, threads);
}

static void add_item(const void *context, int64_t number, int member)
{
    const op *o = context;
    const piece p = piece_of(o, number, mp_type_bytes(o->type));
    (void)member;
    o->table->add_codes(&o->adding, p.x, p.b, p.out, o->type, p.count);
}

int mp_add_codes(const mp_table *table, const void *a, const void *b, void *out, int type, const int32_t *zero_points,
                 const int32_t *multipliers, const int32_t *shifts, int low, int high, size_t count, int threads)
{
    if (!table || !a || !b || !out || !zero_points || !multipliers || !shifts || !are_codes(type) || threads < 1 ||
        !mp_are_its_codes(type, low, high))
        return MP_BAD_ARGUMENT;
    op o = {.table = table,
            .x = a,
            .b = b,
            .out = out,
            .type = type,
            .out_type = type,
            .count = count,
            .adding = {.left = type == MP_TYPE_I8 ? MP_ADD_SHIFT_8 : MP_ADD_SHIFT_16,
                       .low = low - zero_points[2],
                       .high = high - zero_points[2]}};
    for (int i = 0; i < 3; i++) {
        if (!mp_is_zero_point(type, zero_points[i]) || !mp_is_factor(multipliers[i], shifts[i]) || shifts[i] > 0)
            return MP_BAD_ARGUMENT;
        o.adding.zero_point[i] = zero_points[i];
        o.adding.multiplier[i] = multipliers[i];
        o.adding.shift[i] = shifts[i];
    }
    return share(&o, add_item, threads);
}

static void divide_item(const void *context, int64_t number, int member)
{
    const op *o = context;
    const piece p = piece_of(o, number, sizeof(float));
    (void)member;
    const float bad =
        o->table->divide((const float *)p.x, p.out, o->out_type, p.count, o->scale, o->zero_point, o->low, o->high);
    if (bad != 0.0f) atomic_store(o->bad, 1); /* NaN compares unequal */
}

int mp_quantize_by_division(const mp_table *table, const float *x, void *out, int out_type, float scale, int zero_point,
                            size_t count, int threads)
{
    if (!table || !x || !out || !are_codes(out_type) || threads < 1 || !(scale > 0.0f) || !isfinite(scale) ||
        !mp_is_zero_point(out_type, zero_point))
        return MP_BAD_ARGUMENT;
    const int least = out_type == MP_TYPE_I8 ? INT8_MIN : INT16_MIN;
    atomic_int bad = 0;
    const op o = {.table = table,
                  .x = (const char *)x,
                  .out = out,
                  .out_type = out_type,
                  .count = count,
                  .scale = scale,
                  .zero_point = zero_point,
                  .low = least - zero_point,
                  .high = -1 - least - zero_point,
                  .bad = &bad};
    share(&o, divide_item, threads);
    return atomic_load(&bad) ? MP_NONFINITE : MP_OK;
}
