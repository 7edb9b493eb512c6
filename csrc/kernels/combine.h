/* SPDX-License-Identifier: MIT */
/* One or two tensors, element by element: the activations that no convolution applies itself, scaling, weighted sums, products. */

static inline vf vf_floor(vf x)
{
    const vf whole = vf_trunc(x);
    return vf_select_gt(whole, x, vf_sub(whole, vf_set1(1.0f)), whole);
}

/* 2 / (1 + e^-x) - 1; of 2 x it is tanh(x). */
static inline vf vf_loggy(vf x)
{
    const vf one = vf_set1(1.0f);
    return vf_sub(vf_div(vf_set1(2.0f), vf_add(one, vf_exp(vf_negate(x)))), one);
}

static inline vf vf_line(vf x, float slope, float shift) { return vf_add(vf_mul(vf_set1(slope), x), vf_set1(shift)); }

static inline vf vf_hard_sigmoid(vf x)
{
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f), line = vf_line(x, 1.0f / 6.0f, 0.5f);
    return vf_select_gt(line, one, one, vf_select_gt(zero, line, zero, line));
}

/* x times the normal distribution's share below x: Abramowitz and Stegun 7.1.26, whose erf is good to 1.5e-7. */
static inline vf vf_gelu_erf(vf x)
{
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f), most = vf_set1(16.0f);
    const vf size = vf_select_gt(zero, x, vf_negate(x), x), y = vf_select_gt(size, most, most, size);
    const vf t = vf_div(one, vf_line(y, 0.3275911f * 0.70710678f, 1.0f));
    vf tail = vf_line(t, 1.061405429f, -1.453152027f);
    tail = vf_add(vf_mul(tail, t), vf_set1(1.421413741f));
    tail = vf_add(vf_mul(tail, t), vf_set1(-0.284496736f));
    tail = vf_add(vf_mul(tail, t), vf_set1(0.254829592f));
    const vf share = vf_mul(vf_mul(tail, t), vf_exp(vf_mul(vf_mul(y, y), vf_set1(-0.5f))));
    return vf_sub(vf_select_gt(x, zero, x, zero), vf_mul(vf_mul(vf_set1(0.5f), y), share));
}

/* All of docs/arithmetic.md, section 3. */
static vf vf_activate_any(vf x, int activation)
{
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f);
    switch (activation) {
    case MP_LOGGY: return vf_loggy(x);
    case MP_TANH: return vf_loggy(vf_mul(vf_set1(2.0f), x));
    case MP_RELIE: return vf_select_gt(x, zero, x, vf_mul(vf_set1(0.01f), x));
    case MP_RAMP: return vf_add(vf_select_gt(x, zero, x, zero), vf_mul(vf_set1(0.1f), x));
    case MP_PLSE: {
        const vf low = vf_mul(vf_set1(0.01f), vf_add(x, vf_set1(4.0f)));
        const vf high = vf_add(vf_mul(vf_set1(0.01f), vf_sub(x, vf_set1(4.0f))), one);
        return vf_select_gt(vf_set1(-4.0f), x, low, vf_select_gt(x, vf_set1(4.0f), high, vf_line(x, 0.125f, 0.5f)));
    }
    case MP_ELU: return vf_select_gt(zero, x, vf_sub(vf_exp(x), one), x);
    case MP_SELU:
        return vf_select_gt(zero, x, vf_mul(vf_set1(1.0507f * 1.6732f), vf_sub(vf_exp(x), one)),
                            vf_mul(vf_set1(1.0507f), x));
    case MP_GELU: {
        const vf cube = vf_mul(vf_mul(x, x), x);
        const vf u = vf_add(vf_mul(vf_set1(0.797885f), x), vf_mul(vf_set1(0.035677f), cube));
        return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(one, vf_loggy(vf_mul(vf_set1(2.0f), u))));
    }
    case MP_STAIR: {
        const vf whole = vf_floor(x), half = vf_floor(vf_mul(vf_set1(0.5f), x));
        return vf_select_gt(whole, vf_mul(vf_set1(2.0f), half), vf_add(vf_sub(x, whole), half), half);
    }
    case MP_HARDTAN: return vf_select_gt(x, one, one, vf_select_gt(vf_set1(-1.0f), x, vf_set1(-1.0f), x));
    case MP_LHTAN:
        return vf_select_gt(zero, x, vf_mul(vf_set1(0.001f), x),
                            vf_select_gt(x, one, vf_add(vf_mul(vf_set1(0.001f), vf_sub(x, one)), one), x));
    case MP_HARD_MISH:
        return vf_select_gt(x, zero, x,
                            vf_select_gt(x, vf_set1(-2.0f), vf_add(vf_mul(vf_set1(0.5f), vf_mul(x, x)), x), zero));
    case MP_HARD_SIGMOID: return vf_hard_sigmoid(x);
    case MP_HARD_SWISH: return vf_mul(x, vf_hard_sigmoid(x));
    case MP_GELU_ERF: return vf_gelu_erf(x);
    default: return vf_activate(x, activation);
    }
}

static void map(const void *x, void *out, int type, int out_type, int activation, float scale, float shift,
                size_t count)
{
    const vf factor = vf_set1(scale), addend = vf_set1(shift);
    const int shifted = shift != 0.0f;
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf v = vf_mul(load_as(x, AT, type, N), factor);                                                                \
        if (shifted) v = vf_add(v, addend);                                                                            \
        store_as(out, AT, out_type, vf_activate_any(v, activation), N);                                                \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void combine(const void *a, const void *b, const float *a_weight, const float *b_weight, void *out, int type,
                    int out_type, int activation, size_t count)
{
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf v = load_as(a, AT, type, N);                                                                                \
        if (a_weight) v = vf_mul(v, load_as(a_weight, AT, MP_TYPE_F32, N));                                            \
        if (b) v = vf_fma(load_as(b, AT, type, N), load_as(b_weight, AT, MP_TYPE_F32, N), v);                          \
        store_as(out, AT, out_type, vf_activate(v, activation), N);                                                    \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void multiply(const void *a, const void *b, void *out, int type, int out_type, int activation, size_t count)
{
#define BODY(AT, N)                                                                                                    \
    store_as(out, AT, out_type, vf_activate(vf_mul(load_as(a, AT, type, N), load_as(b, AT, type, N)), activation), N)
    FOR_VECTORS(count, BODY);
#undef BODY
}
