/* SPDX-License-Identifier: MIT */
#include "integer_steps.h"
#include <math.h>
#include "../fixed_point.h"
#include "../types.h"

static const mpb_integer_rules *rules_of(const mpr_operands *s)
{
    return (const void *)(s->file->data + s->step->values.at);
}
static int codes(const mpb_slot *slot) { return !mp_is_real(slot->type); }
static int same_shape(const mpb_slot *a, const mpb_slot *b) { return a->h == b->h && a->w == b->w && a->c == b->c; }

/* Kernels look at the factors of everything but convolutions. */
static int leaky_fits(const mpb_slot *out, const mpb_integer_rules *rules)
{
    const int reach = out->type == MP_TYPE_I8 ? 1 << 8 : 1 << 16;
    if (rules->leaky_low < -reach || rules->leaky_low > rules->leaky_high || rules->leaky_high > reach) return 0;
    for (int i = 0; i < 2; i++)
        if (!mp_is_factor(rules->multiplier[i], rules->shift[i]) || rules->shift[i] > mp_most_rescaling(out->type))
            return 0;
    return 1;
}

int mpr_are_valid_rules(const mpr_operands *s, const mpb_integer_rules *rules)
{
    return isfinite(rules->scale) && rules->scale > 0.0f && mp_is_zero_point(s->out->type, rules->zero_point) &&
           mp_are_its_codes(s->out->type, rules->low, rules->high) && (!rules->leaky || leaky_fits(s->out, rules));
}

void mpr_integer_params(const mpr_operands *s, mp_quant_params *params)
{
    const mpb_integer_rules *rules = rules_of(s);
    *params = (mp_quant_params){.scale = rules->scale, .zero_point = rules->zero_point};
}

int mpr_max_distance(const mpb_slot *slot, const mp_quant_params *params)
{
    const int largest_code = slot->type == MP_TYPE_I8 ? INT8_MAX : INT16_MAX;
    const int above = largest_code - params->zero_point, below = params->zero_point + largest_code + 1;
    return above > below ? above : below;
}

const char *mpr_integer_shape_problem(const mpr_operands *s)
{
    const mpb_slot *in = s->in, *out = s->out;
    int fits = codes(out) && same_shape(in, out);
    if (s->step->operation == MPB_INTEGER_QUANTIZE) {
        fits = fits && in->type == MP_TYPE_F32;
    } else if (s->step->operation == MPB_INTEGER_RESCALE) {
        fits = fits && codes(in);
    } else {
        const mpb_slot *b = &s->slots[s->inputs[1]];
        fits = fits && in->type == out->type && b->type == out->type && same_shape(b, out);
    }
    return fits ? 0 : "its tensors do not fit";
}

int mpr_run_integer(mpr_pass *pass, const mpr_operands *s)
{
    const mp_table *table = pass->weights->table;
    const int threads = pass->weights->threads, type = s->in->type, out_type = s->out->type;
    const mpb_integer_rules *rules = rules_of(s);
    const mpr_tensor *x = &pass->tensors[s->inputs[0]];
    const size_t count = mpr_values(s->in);
    void *out = pass->tensors[s->step->output].data;
    if (s->step->operation == MPB_INTEGER_QUANTIZE)
        return mp_quantize_by_division(table, x->data, out, out_type, rules->scale, rules->zero_point, count, threads);
    if (s->step->operation == MPB_INTEGER_RESCALE)
        return mp_rescale(table, x->data, type, out, out_type, x->params.zero_point, rules->zero_point, rules->low,
                          rules->high, rules->multiplier[0], rules->shift[0], rules->multiplier[1], rules->shift[1],
                          count, threads);
    const mpr_tensor *b = &pass->tensors[s->inputs[1]];
    const int32_t zero_points[] = {x->params.zero_point, b->params.zero_point, rules->zero_point};
    return mp_add_codes(table, x->data, b->data, out, type, zero_points, rules->multiplier, rules->shift, rules->low,
                        rules->high, count, threads);
}

void mpr_integer_arguments(const mpr_operands *s, const mpb_convolution *conv, mp_conv_args *args)
{
    const mpb_integer_rules *rules = rules_of(s);
    const int32_t *bias = (const void *)(s->file->data + conv->bias.at);
    args->bias = args->weight_scale; /* floats that mean nothing here */
    args->integer_bias = bias;
    args->multiplier = bias + (size_t)conv->bias_words * conv->shape.out_c;
    args->shift = args->multiplier + conv->shape.out_c;
    args->out_zero_point = &rules->zero_point;
    args->out_low = rules->low;
    args->out_high = rules->high;
    if (!rules->leaky) return;
    args->leaky_multiplier = rules->multiplier;
    args->leaky_shift = rules->shift;
    args->leaky_low = rules->leaky_low;
    args->leaky_high = rules->leaky_high;
}
