/* SPDX-License-Identifier: MIT */
/* Checks arguments, then calls the driver. */
#include <string.h>
#include "conv/pack.h"
#include "conv/run.h"
#include "conv/schedule.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

const char *mp_compiler(void) { return COMPILER; }

static int same_shape(const mp_conv_shape *a, const mp_conv_shape *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* nine int32, no padding */
}

int mp_check_conv(const mp_table *table, const mp_conv_shape *shape, int precision)
{
    mp_conv_plan plan;
    return table && shape ? mp_conv_plan_make(&plan, table, shape, precision, MP_DIRECT, 0, 0) : MP_BAD_ARGUMENT;
}

static size_t pack_bytes(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights, int as)
{
    mp_conv_plan plan;
    if (!table || !shape || mp_conv_plan_make(&plan, table, shape, precision, MP_BY_WEIGHTS | as, weights, 0) != MP_OK)
        return 0;
    return mp_conv_packed_bytes(&plan);
}

size_t mp_pack_bytes(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights)
{
    return pack_bytes(table, shape, precision, weights, 0);
}

size_t mp_pack_bytes_stored(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights)
{
    return pack_bytes(table, shape, precision, weights, MP_STORED_WEIGHTS);
}

static int pack(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights, int as,
                void *packed, size_t packed_bytes)
{
    mp_conv_plan plan;
    if (!table || !shape || !weights || !packed || (uintptr_t)packed % MP_ALIGN) return MP_BAD_ARGUMENT;
    const int status = mp_conv_plan_make(&plan, table, shape, precision, MP_BY_WEIGHTS | as, weights, 0);
    if (status != MP_OK) return status;
    if (packed_bytes != mp_conv_packed_bytes(&plan)) return MP_BAD_ARGUMENT;
    if (plan.codes && !mp_conv_packable(&plan, weights)) return MP_OVERFLOW;
    mp_conv_pack(&plan, table, weights, packed);
    return MP_OK;
}

int mp_pack_conv(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights, void *packed,
                 size_t packed_bytes)
{
    return pack(table, shape, precision, weights, 0, packed, packed_bytes);
}

int mp_pack_conv_stored(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights,
                        void *packed, size_t packed_bytes)
{
    return pack(table, shape, precision, weights, MP_STORED_WEIGHTS, packed, packed_bytes);
}

/* The packed buffer's own header says how it was packed; it is the one that this table would write.
 *
 * mp_conv makes the plan, and mp_conv_run the schedule, anew at every call. Nothing need be kept from call to call then: no handle that
 * somebody frees, no state that two threads could share, and a packed buffer that came from a file is checked by the same comparison.
 * The plan of a packed buffer looks at no weights (MP_BY_WEIGHTS), so both are arithmetic on a few integers: 0.2 to
 * 0.3 microseconds together (measured with avx512vnni), where the smallest layers of detectors take tens. */
static int plan_of(const mp_table *table, const mp_packed_header *h, mp_conv_plan *plan)
{
    if (!table || !h || (uintptr_t)h % MP_ALIGN || h->magic != MP_PACKED_MAGIC) return MP_BAD_ARGUMENT;
    const int requested = (h->winograd ? MP_WINOGRAD : MP_DIRECT) | (h->grouped ? MP_GROUPED : 0);
    const int status = mp_conv_plan_make(plan, table, &h->shape, h->precision, requested, 0, &h->empty);
    if (status != MP_OK) return status;
    mp_packed_header expected;
    mp_packed_header_of(plan, table, &expected);
    return memcmp(h, &expected, sizeof expected) == 0 ? MP_OK : MP_BAD_ARGUMENT;
}

int mp_check_packed(const mp_table *table, const mp_conv_shape *shape, int precision, const void *packed,
                    size_t packed_bytes)
{
    mp_conv_plan plan;
    const mp_packed_header *header = packed;
    if (!shape || !packed || packed_bytes < MP_HEADER_BYTES) return MP_BAD_ARGUMENT;
    const int status = plan_of(table, header, &plan);
    if (status != MP_OK) return status;
    return header->precision == precision && same_shape(&header->shape, shape) && header->bytes == packed_bytes
               ? MP_OK
               : MP_BAD_ARGUMENT;
}

size_t mp_conv_scratch_bytes(const mp_table *table, const void *packed, int pooled, int threads)
{
    mp_conv_plan plan;
    mp_schedule schedule;
    if (threads < 1 || plan_of(table, packed, &plan) != MP_OK) return 0;
    mp_conv_schedule(&plan, pooled, threads, &schedule);
    return schedule.scratch.bytes * threads;
}

/* Not those of int16, which fit for the depth of one layer but not for that of what continues it. */
static int takes_sums(const mp_conv_plan *plan)
{
    return plan->sums == MP_SUM_INT && plan->traits->type == MP_TYPE_I8 && !plan->depthwise;
}

int mp_conv_takes_sums(const mp_table *table, const void *packed)
{
    mp_conv_plan plan;
    return plan_of(table, packed, &plan) == MP_OK && takes_sums(&plan);
}

/* One side of a pooled result: padding decides whether the last, incomplete window counts. */
static int is_pooled_side(int pooled, int side)
{
    return pooled > 0 && (pooled == side / 2 || pooled == (side + 1) / 2);
}

int mp_conv(const mp_table *table, const mp_conv_args *a)
{
    mp_conv_plan plan;
    if (!table || !a || !a->packed || !a->in || !a->out || !a->bias || !a->scratch ||
        (uintptr_t)a->scratch % MP_ALIGN || (uintptr_t)a->packed % MP_ALIGN || a->threads < 1 || a->images < 0 ||
        a->activation < 0 || a->activation > MP_LAST_ACTIVATION || !mp_is_type(a->out_type))
        return MP_BAD_ARGUMENT;
    const mp_packed_header *header = a->packed;
    const int status = plan_of(table, header, &plan);
    if (status != MP_OK) return status;
    if (header->precision != a->precision || !same_shape(&header->shape, &a->shape)) return MP_BAD_ARGUMENT;
    if ((a->pool_h || a->pool_w) && !(is_pooled_side(a->pool_h, plan.out_h) && is_pooled_side(a->pool_w, plan.out_w)))
        return MP_BAD_SHAPE;
    if (plan.codes && (!a->weight_scale || !a->in_scale || !a->in_zero_point || !a->in_offset)) return MP_BAD_ARGUMENT;
    if (a->converts && (plan.traits->type == MP_TYPE_F32 || !mp_is_real(a->in_type) || a->in_type == plan.traits->type))
        return MP_BAD_ARGUMENT;
    if (a->converts && plan.codes &&
        (!a->in_inv_scale || a->in_rounding < 0 || a->in_rounding > MP_TRUNCATE ||
         !mp_are_its_codes(plan.traits->type, a->in_low, a->in_high)))
        return MP_BAD_ARGUMENT;
    const int out_codes = !mp_is_real(a->out_type);
    if (out_codes && a->pool_h && a->ranges) return MP_BAD_ARGUMENT;
    if (out_codes && (!a->out_zero_point || !mp_are_its_codes(a->out_type, a->out_low, a->out_high)))
        return MP_BAD_ARGUMENT;
    if (a->multiplier) {
        const int integer_only = plan.codes && out_codes && a->integer_bias && a->shift && a->activation == MP_LINEAR;
        if (!integer_only || a->ranges || a->sums || a->gives_sums) return MP_BAD_ARGUMENT;
        if (a->leaky_multiplier && (!a->leaky_shift || a->leaky_low > a->leaky_high)) return MP_BAD_ARGUMENT;
        for (int k = 0; k < a->shape.out_c; k++)
            if (a->multiplier[k] < 0 || a->shift[k] < -31 || a->shift[k] > MP_MOST_SHIFT) return MP_BAD_ARGUMENT;
    } else if (out_codes && (!a->out_inv_scale || a->out_rounding < 0 || a->out_rounding > MP_TRUNCATE)) {
        return MP_BAD_ARGUMENT;
    }
    const int partial = a->sums || a->gives_sums;
    if (partial && !takes_sums(&plan)) return MP_UNSUPPORTED;
    if ((partial && a->pool_h) || (a->gives_sums && (a->out_type != MP_TYPE_F32 || a->ranges))) return MP_BAD_ARGUMENT;
    for (int image = 0; image < a->images; image++) {
        if (partial && a->in_offset[image] != 0.0f) return MP_BAD_ARGUMENT;
        if (plan.codes && !mp_is_zero_point(plan.traits->type, a->in_zero_point[image])) return MP_BAD_ARGUMENT;
        if (out_codes && !mp_is_zero_point(a->out_type, a->out_zero_point[image])) return MP_BAD_ARGUMENT;
    }
    return mp_conv_run(&plan, table, a);
}
