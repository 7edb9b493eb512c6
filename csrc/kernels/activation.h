/* SPDX-License-Identifier: MIT */
/* Activations on vectors: the operations of docs/arithmetic.md, section 3, lane by lane. */
#include "../mp_math.h"
#include "../mpnet.h"

/* exp of x0, or of several step by step: one waits for itself longer than eight take. A NaN stays one. */
#define VF_ONE(STEP) STEP(0)
#define VF_FOUR(STEP) STEP(0) STEP(1) STEP(2) STEP(3)
#define VF_EIGHT(STEP) VF_FOUR(STEP) STEP(4) STEP(5) STEP(6) STEP(7)
#define VF_EXP_CLAMP(i) x##i = vf_max(vf_set1(MP_EXP_LOW), vf_min(vf_set1(MP_EXP_HIGH), x##i));
#define VF_EXP_SHIFT(i) const vf shifted##i = vf_fma(x##i, vf_set1(MP_EXP_LOG2E), vf_set1(MP_EXP_MAGIC));
#define VF_EXP_INTEGRAL(i) const vf n##i = vf_sub(shifted##i, vf_set1(MP_EXP_MAGIC));
#define VF_EXP_HIGH(i) vf r##i = vf_fma(n##i, vf_set1(-MP_EXP_LN2_HIGH), x##i);
#define VF_EXP_LOW(i) r##i = vf_fma(n##i, vf_set1(-MP_EXP_LN2_LOW), r##i);
#define VF_EXP_3(i) vf p##i = vf_fma(vf_set1(MP_EXP_Q4), r##i, vf_set1(MP_EXP_Q3));
#define VF_EXP_2(i) p##i = vf_fma(p##i, r##i, vf_set1(MP_EXP_Q2));
#define VF_EXP_1(i) p##i = vf_fma(p##i, r##i, vf_set1(MP_EXP_Q1));
#define VF_EXP_0(i) p##i = vf_fma(p##i, r##i, vf_set1(MP_EXP_Q0));
#define VF_EXP_ONE(i) p##i = vf_fma(p##i, r##i, vf_set1(1.0f));
#define VF_EXP_SCALE(i) x##i = vf_mul(p##i, vf_pow2(shifted##i));
#define VF_EXP(EACH)                                                                                                   \
    EACH(VF_EXP_CLAMP)                                                                                                 \
    EACH(VF_EXP_SHIFT)                                                                                                 \
    EACH(VF_EXP_INTEGRAL)                                                                                              \
    EACH(VF_EXP_HIGH)                                                                                                  \
    EACH(VF_EXP_LOW)                                                                                                   \
    EACH(VF_EXP_3) EACH(VF_EXP_2) EACH(VF_EXP_1) EACH(VF_EXP_0) EACH(VF_EXP_ONE) EACH(VF_EXP_ONE) EACH(VF_EXP_SCALE)
static inline vf vf_exp(vf x0)
{
    VF_EXP(VF_ONE)
    return x0;
}

static inline vf vf_negate(vf x) { return vf_sub(vf_set1(-0.0f), x); }

#define VF_SWISH_BEGIN(i) vf x##i = vf_negate(values[i]);
#define VF_SWISH_END(i) values[i] = vf_div(values[i], vf_add(vf_set1(1.0f), x##i));
#define VF_SWISH(EACH)                                                                                                 \
    EACH(VF_SWISH_BEGIN)                                                                                               \
    VF_EXP(EACH)                                                                                                       \
    EACH(VF_SWISH_END)
static inline __attribute__((always_inline)) void vf_swish_four(vf *values) { VF_SWISH(VF_FOUR) }
static inline __attribute__((always_inline)) void vf_swish_eight(vf *values) { VF_SWISH(VF_EIGHT) }

static inline vf vf_activate_slow(vf x, int activation)
{
    const vf one = vf_set1(1.0f);
    switch (activation) {
    case MP_RELU6: return vf_min_any(vf_max_any(x, vf_set1(0.0f)), vf_set1(6.0f));
    case MP_LOGISTIC: return vf_div(one, vf_add(one, vf_exp(vf_negate(x))));
    case MP_SWISH: return vf_div(x, vf_add(one, vf_exp(vf_negate(x))));
    case MP_MISH: {
        /* tanh(ln(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2); from 20 on the quotient is 1, and n would overflow later. */
        const vf e = vf_exp(vf_min(x, vf_set1(20.0f)));
        const vf n = vf_mul(e, vf_add(e, vf_set1(2.0f)));
        return vf_mul(x, vf_div(n, vf_add(n, vf_set1(2.0f))));
    }
    default: return x;
    }
}

static inline vf vf_floor(vf x)
{
    const vf integral = vf_trunc(x);
    return vf_select_gt(integral, x, vf_sub(integral, vf_set1(1.0f)), integral);
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

static inline vf vf_hard_swish(vf x) { return vf_mul(x, vf_hard_sigmoid(x)); }

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

/* Those behind MP_SWISH. */
static inline vf vf_activate_rare(vf x, int activation)
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
        const vf integral = vf_floor(x), stair = vf_floor(vf_mul(vf_set1(0.5f), x));
        return vf_select_gt(integral, vf_mul(vf_set1(2.0f), stair), vf_add(vf_sub(x, integral), stair), stair);
    }
    case MP_HARDTAN: return vf_select_gt(x, one, one, vf_select_gt(vf_set1(-1.0f), x, vf_set1(-1.0f), x));
    case MP_LHTAN:
        return vf_select_gt(zero, x, vf_mul(vf_set1(0.001f), x),
                            vf_select_gt(x, one, vf_add(vf_mul(vf_set1(0.001f), vf_sub(x, one)), one), x));
    case MP_HARD_MISH:
        return vf_select_gt(x, zero, x,
                            vf_select_gt(x, vf_set1(-2.0f), vf_add(vf_mul(vf_set1(0.5f), vf_mul(x, x)), x), zero));
    case MP_HARD_SIGMOID: return vf_hard_sigmoid(x);
    case MP_HARD_SWISH: return vf_hard_swish(x);
    case MP_GELU_ERF: return vf_gelu_erf(x);
    case MP_SQRT: return vf_sqrt(vf_select_gt(zero, x, zero, x)); /* below 0 it is 0, no NaN of either sign */
    default: return x;
    }
}

/* All but what `vf_activate` has beside, out of line, for places with many copies: a call is little beside an exponential. */
static __attribute__((noinline)) vf vf_activate_apart(vf x, int activation)
{
    return activation > MP_SWISH ? vf_activate_rare(x, activation) : vf_activate_slow(x, activation);
}

/* Those up to MP_SWISH. With a constant `activation` the branches go away. */
static inline vf vf_activate(vf x, int activation)
{
    switch (activation) {
    case MP_LINEAR: return x;
    case MP_LEAKY: return vf_max_any(x, vf_mul(x, vf_set1(0.1f))); /* x > 0 ? x : 0.1 x */
    case MP_RELU: return vf_max_any(x, vf_set1(0.0f));
    default: return vf_activate_slow(x, activation);
    }
}

/* All of docs/arithmetic.md, section 3. */
static inline vf vf_activate_any(vf x, int activation)
{
    return activation > MP_SWISH ? vf_activate_rare(x, activation) : vf_activate(x, activation);
}
