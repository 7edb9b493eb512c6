/* SPDX-License-Identifier: MIT */
#include <math.h>
#include "../mpnet.h"
#include "tf_formulas.h"

/* Narrower ranges count as this scale: its reciprocal, and its product with a weight scale, stay normal numbers. */
#define SMALLEST_SCALE 0x1p-100f

static int one_range(float minimum, float maximum, const mp_activation_scheme *scheme, mp_quant_params *p)
{
    if (!isfinite(minimum) || !isfinite(maximum)) return MP_NONFINITE;
    if (minimum > maximum) return MP_BAD_ARGUMENT;
    p->mode = scheme->mode;
    p->rounding = scheme->rounding;
    if (scheme->mode >= MP_TF_MIN_COMBINED) return mp_tf_params(minimum, maximum, scheme, p);

    const float mn = mp_smaller(minimum, 0.0f), mx = mp_larger(maximum, 0.0f);
    const int32_t most = scheme->bits == 16 ? INT16_MAX : INT8_MAX;
    float scale;
    if (scheme->mode == MP_AFFINE) {
        /* Two quotients, because mx - mn may exceed float32 where the quotients do not. */
        scale = mx / 255.0f - mn / 255.0f;
    } else {
        scale = mp_larger(-mn, mx) / (float)most;
        if (scheme->mode == MP_POWER_OF_TWO && scale > 0.0f) {
            int exponent;
            const float mantissa = frexpf(scale, &exponent);
            scale = ldexpf(1.0f, exponent - (mantissa == 0.5f));
        }
    }
    p->scale = mn == mx ? 1.0f : mp_larger(scale, SMALLEST_SCALE);
    p->inv_scale = 1.0f / p->scale;
    p->low = scheme->mode == MP_AFFINE ? INT8_MIN : scheme->bits == 16 ? INT16_MIN : -most;
    p->high = most;
    p->zero_point = 0;
    p->offset = 0.0f;
    if (scheme->mode == MP_AFFINE) {
        const float position = -128.0f - mn * p->inv_scale;
        p->zero_point = (int32_t)rintf(mp_smaller(mp_larger(position, -128.0f), 127.0f));
    }
    p->range_min = (float)(p->low - p->zero_point) * p->scale;
    p->range_max = (float)(p->high - p->zero_point) * p->scale;
    return MP_OK;
}

int mp_ranges_to_params(const float *ranges, size_t images, const mp_activation_scheme *scheme, mp_quant_params *params,
                        size_t *bad_image)
{
    *bad_image = 0;
    if (!mp_known_scheme(scheme)) return MP_BAD_ARGUMENT;
    for (size_t i = 0; i < images; i++) {
        const int status = one_range(ranges[2 * i], ranges[2 * i + 1], scheme, &params[i]);
        if (status != MP_OK) {
            *bad_image = i;
            return status;
        }
    }
    return MP_OK;
}
