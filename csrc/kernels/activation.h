/* SPDX-License-Identifier: MIT */
/* Activations on vectors: the operations of docs/arithmetic.md, section 3, lane by lane. */
#include "../mp_math.h"
#include "../mpnet.h"

static inline vf vf_exp(vf x)
{
    x = vf_select_gt(x, vf_set1(MP_EXP_HIGH), vf_set1(MP_EXP_HIGH), x);
    x = vf_select_gt(vf_set1(MP_EXP_LOW), x, vf_set1(MP_EXP_LOW), x);
    const vf shifted = vf_fma(x, vf_set1(MP_EXP_LOG2E), vf_set1(MP_EXP_MAGIC));
    const vf n = vf_sub(shifted, vf_set1(MP_EXP_MAGIC));
    vf r = vf_fma(n, vf_set1(-MP_EXP_LN2_HIGH), x);
    r = vf_fma(n, vf_set1(-MP_EXP_LN2_LOW), r);
    vf p = vf_fma(vf_set1(MP_EXP_Q4), r, vf_set1(MP_EXP_Q3));
    p = vf_fma(p, r, vf_set1(MP_EXP_Q2));
    p = vf_fma(p, r, vf_set1(MP_EXP_Q1));
    p = vf_fma(p, r, vf_set1(MP_EXP_Q0));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_mul(p, vf_pow2(shifted));
}

static inline vf vf_negate(vf x) { return vf_sub(vf_set1(-0.0f), x); }

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

/* The same out of line, for places with many copies: a call is little beside an exponential. */
static __attribute__((noinline)) vf vf_activate_apart(vf x, int activation) { return vf_activate_slow(x, activation); }

/* With a constant `activation` the branches go away. */
static inline vf vf_activate(vf x, int activation)
{
    switch (activation) {
    case MP_LINEAR: return x;
    case MP_LEAKY: return vf_max_any(x, vf_mul(x, vf_set1(0.1f))); /* x > 0 ? x : 0.1 x */
    case MP_RELU: return vf_max_any(x, vf_set1(0.0f));
    default: return vf_activate_slow(x, activation);
    }
}
