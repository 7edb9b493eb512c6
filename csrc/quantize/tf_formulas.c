/* SPDX-License-Identifier: MIT */
#include "tf_formulas.h"
#include "../mpnet.h"

static int usable(float scale, float inv_scale)
{
    return isfinite(inv_scale) && inv_scale > 0.0f && isfinite(scale) && scale > 0.0f;
}

/* The range widened to hold 0 and nudged so that 0 has a code. */
static int fake_quant_params(float mn, float mx, mp_quant_params *p)
{
    const float lowest = (float)(p->low + 128), highest = 255.0f; /* codes as TensorFlow counts them */
    const float span = mp_flush(mx - mn);
    p->scale = mp_flush(span / (highest - lowest));
    p->inv_scale = mp_flush((highest - lowest) / span);
    if (!usable(p->scale, p->inv_scale)) return MP_BAD_ARGUMENT;
    const float zero = mp_smaller(mp_larger(mp_round_away(lowest - mp_flush(mn / p->scale)), lowest), highest);
    p->range_min = mp_flush((lowest - zero) * p->scale);
    p->range_max = mp_flush((highest - zero) * p->scale);
    p->zero_point = (int32_t)zero - 128;
    return MP_OK;
}

/* The finer scale that lets the range fit into the codes, 0 kept. */
static int both_ways_params(float mn, float mx, mp_quant_params *p)
{
    const float low = (float)p->low, high = (float)p->high;
    const float from_min = low * mn > 0.0f ? low / mn : FLT_MAX;
    const float from_max = high * mx > 0.0f ? high / mx : FLT_MAX;
    if (from_min < from_max) {
        p->inv_scale = mp_flush(from_min);
        p->scale = mp_flush(mn / low);
        mx = mp_flush(high * p->scale);
    } else {
        p->inv_scale = mp_flush(from_max);
        p->scale = mp_flush(mx / high);
        mn = mp_flush(low * p->scale);
    }
    p->range_min = mn;
    p->range_max = mx;
    return usable(p->scale, p->inv_scale) ? MP_OK : MP_BAD_ARGUMENT;
}

static int fake_params(float minimum, float maximum, const mp_activation_scheme *scheme, mp_quant_params *p)
{
    const float mn = mp_flush(mp_smaller(minimum, 0.0f)), mx = mp_flush(mp_larger(maximum, 0.0f));
    p->low = scheme->narrow_range ? -127 : -128;
    p->high = 127;
    p->offset = 0.0f;
    p->zero_point = 0;
    if (mn != mx) {
        const int status =
            scheme->mode == MP_TF_FAKE_QUANT ? fake_quant_params(mn, mx, p) : both_ways_params(mn, mx, p);
        if (status == MP_OK || mx - mn > 1.0f) return status;
    }
    /* Nothing but 0, or too narrow for a scale: every real becomes 0. */
    p->scale = 1.0f;
    p->inv_scale = p->range_min = p->range_max = 0.0f;
    if (scheme->mode == MP_TF_FAKE_QUANT) p->zero_point = p->low;
    return MP_OK;
}

int mp_tf_params(float minimum, float maximum, const mp_activation_scheme *scheme, mp_quant_params *p)
{
    if (scheme->mode >= MP_TF_FAKE_QUANT) return fake_params(minimum, maximum, scheme, p);
    const float in_min = mp_flush(minimum), in_max = mp_flush(maximum);
    const float magnitude = mp_larger(1.0f, mp_larger(fabsf(in_min), fabsf(in_max)));
    const float least = mp_flush(magnitude * scheme->ensure_minimum_range);
    float mn = mp_smaller(0.0f, in_min);
    float mx = mp_larger(0.0f, mp_larger(in_max, mp_flush(mn + least)));
    float code_of_minimum = 0.0f, inv_scale, scale;

    p->low = scheme->narrow_range ? -127 : -128;
    p->high = 127;
    if (scheme->mode == MP_TF_SCALED) {
        const float low = (float)p->low, high = (float)p->high;
        const float from_min = low * mn > 0.0f ? low / mn : FLT_MAX;
        const float from_max = high * mx > 0.0f ? high / mx : FLT_MAX;
        inv_scale = mp_flush(mp_smaller(from_min, from_max));
        mn = mp_flush(low / inv_scale);
        mx = mp_flush(high / inv_scale);
        scale = mp_flush(mp_larger(mp_flush(mn / low), mp_flush(mx / high)));
    } else {
        const float span = mp_flush(mx - mn);
        /* The quotient is TensorFlow's: in double, rounded to float once. */
        inv_scale = mx == mn && scheme->mode == MP_TF_MIN_FIRST ? 0.0f : mp_flush((float)(255.0 / (double)span));
        code_of_minimum = mp_round_away(mn * inv_scale);
        scale = scheme->mode == MP_TF_MIN_COMBINED ? mp_flush(span / 255.0f) : mp_flush((float)((double)span / 255.0));
    }
    if (!usable(scale, inv_scale)) return MP_BAD_ARGUMENT;
    p->scale = scale;
    p->inv_scale = inv_scale;
    p->offset = 0.0f;
    p->zero_point = 0;
    p->range_min = mn;
    p->range_max = mx;
    if (scheme->mode == MP_TF_MIN_FIRST) p->zero_point = -128 - (int32_t)code_of_minimum;
    if (scheme->mode == MP_TF_MIN_COMBINED) {
        /* The code of 0, and the real value of that code. */
        p->zero_point = (int32_t)mp_round_away(mp_flush(0.0f - mn) * inv_scale - 128.0f);
        p->offset = (float)(p->zero_point + 128) * scale + mn;
    }
    return MP_OK;
}
