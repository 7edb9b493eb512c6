/* SPDX-License-Identifier: MIT */
/* TensorFlow's modes: elements to codes and back. Loops of one mode and one rounding each, so that the compiler vectorises them. */
#include "../team.h"
#include <string.h>
#include "../mpnet.h"
#include "tf_formulas.h"

/* Whether the exponent is all ones: NaN or infinity. */
static inline uint32_t nonfinite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) == 0x7f800000u;
}

/* t is within +-383, so both hold exactly what rintf and round half away say, without calling them. */
static inline int32_t round_even(float t) { return (int32_t)((t + 12582912.0f) - 12582912.0f); }
static inline int32_t round_away(float t) { return (int32_t)(t + copysignf(0x1.fffffep-2f, t)); }

/* floorf(t + 0.5f) of such t, as TensorFlow writes it. */
static inline int32_t round_up(float t)
{
    const float raised = t + 0.5f;
    const int32_t truncated = (int32_t)raised;
    return truncated - ((float)truncated > raised);
}

/* Flushing as mp_flush does; the sign of zero is irrelevant on the way to integers. */
static inline float flushed(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }

#define QUANTIZE(NAME, ROUND)                                                                                          \
    static uint32_t NAME(const float *restrict x, int8_t *restrict q, size_t n, const mp_quant_params *p)              \
    {                                                                                                                  \
        const float inv_scale = p->inv_scale;                                                                          \
        const float low = (float)(p->low - p->zero_point), high = (float)(p->high - p->zero_point);                    \
        const int32_t zero_point = p->zero_point;                                                                      \
        uint32_t bad = 0;                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                                               \
            float t = flushed(x[i]) * inv_scale;                                                                       \
            t = t > low ? t : low;                                                                                     \
            t = t < high ? t : high;                                                                                   \
            q[i] = (int8_t)(ROUND(t) + zero_point);                                                                    \
            bad |= nonfinite(x[i]);                                                                                    \
        }                                                                                                              \
        return bad;                                                                                                    \
    }
QUANTIZE(quantize_even, round_even)
QUANTIZE(quantize_away, round_away)
QUANTIZE(quantize_up, round_up)

static uint32_t quantize_min_combined(const float *restrict x, int8_t *restrict q, size_t n, const mp_quant_params *p)
{
    const float low = p->range_min, high = p->range_max, inv_scale = p->inv_scale;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float bounded = flushed(x[i]);
        bounded = bounded > low ? bounded : low;
        bounded = bounded < high ? bounded : high;
        float t = flushed(bounded - low) * inv_scale - 128.0f;
        q[i] = (int8_t)round_away(t);
        bad |= nonfinite(x[i]);
    }
    return bad;
}

static uint32_t quantize_fake_quant(const float *restrict x, int8_t *restrict q, size_t n, const mp_quant_params *p)
{
    const float low = p->range_min, high = p->range_max, scale = p->scale, zero = (float)(p->zero_point - p->low);
    const int32_t zero_point = p->zero_point;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float bounded = flushed(x[i]);
        bounded = bounded > low ? bounded : low;
        bounded = bounded < high ? bounded : high;
        q[i] = (int8_t)(round_up(flushed(flushed(bounded - low) / scale) - zero) + zero_point);
        bad |= nonfinite(x[i]);
    }
    return bad;
}

static uint32_t quantize_piece(const float *x, int8_t *q, size_t n, const mp_quant_params *p)
{
    if (p->mode == MP_TF_MIN_COMBINED) return quantize_min_combined(x, q, n, p);
    if (p->mode == MP_TF_FAKE_QUANT) return quantize_fake_quant(x, q, n, p);
    if (p->rounding == MP_HALF_UP) return quantize_up(x, q, n, p);
    return p->rounding == MP_HALF_TO_EVEN ? quantize_even(x, q, n, p) : quantize_away(x, q, n, p);
}

static int known(const mp_quant_params *params, size_t images)
{
    for (size_t i = 0; i < images; i++)
        if (params[i].mode < MP_TF_MIN_COMBINED || !mp_known_mode(params[i].mode, params[i].rounding) ||
            params[i].low < -128 || params[i].high > 127 || params[i].zero_point < -128 || params[i].zero_point > 127)
            return 0;
    return 1;
}

/* One call; bad is or-ed by whoever finds something. */
typedef struct {
    const float *reals;
    float *to_reals;
    const int8_t *codes;
    int8_t *to_codes;
    size_t size;
    const mp_quant_params *params;
    _Atomic uint32_t *bad;
} tf_call;

/* Values of one item: `count` of image `image`, from value `at` of all. */
typedef struct {
    size_t image, at, count;
} piece;
static piece piece_of(const tf_call *call, int64_t item)
{
    const size_t per_image = mp_pieces(call->size), image = (size_t)item / per_image, number = (size_t)item % per_image;
    return (piece){image, image * call->size + number * MP_PIECE, mp_piece_size(call->size, number)};
}

static void tf_quantize_item(const void *context, int64_t item, int member)
{
    const tf_call *call = context;
    const piece p = piece_of(call, item);
    (void)member;
    *call->bad |= quantize_piece(call->reals + p.at, call->to_codes + p.at, p.count, &call->params[p.image]);
}

int mp_tf_quantize(const float *x, int8_t *q, size_t images, size_t size, const mp_quant_params *params, int threads)
{
    _Atomic uint32_t bad = 0;
    if (!known(params, images)) return MP_BAD_ARGUMENT;
    const tf_call call = {.reals = x, .to_codes = q, .size = size, .params = params, .bad = &bad};
    mp_share(threads, (int64_t)(images * mp_pieces(size)), tf_quantize_item, &call);
    return bad ? MP_NONFINITE : MP_OK;
}

static void dequantize_piece(const int8_t *restrict q, float *restrict x, size_t n, const mp_quant_params *p)
{
    const float scale = p->scale;
    float base = 0.0f;
    int32_t shift = 0;
    if (p->mode == MP_TF_MIN_COMBINED) {
        shift = 128;
        base = p->range_min;
    } else if (p->mode >= MP_TF_FAKE_QUANT) {
        for (size_t i = 0; i < n; i++) x[i] = mp_flush((float)(q[i] - p->zero_point) * scale);
        return;
    } else if (p->mode == MP_TF_MIN_FIRST) {
        const float rounded =
            p->range_max == p->range_min ? p->range_min : mp_flush(mp_round_away(p->range_min / scale) * scale);
        base = mp_flush(rounded - mp_flush(-128.0f * scale));
    } else {
        for (size_t i = 0; i < n; i++) x[i] = mp_flush((float)q[i] * scale); /* no sum: adding 0 would turn -0 into 0 */
        return;
    }
    for (size_t i = 0; i < n; i++) x[i] = mp_flush(mp_flush((float)(q[i] + shift) * scale) + base);
}

static void tf_dequantize_item(const void *context, int64_t item, int member)
{
    const tf_call *call = context;
    const piece p = piece_of(call, item);
    (void)member;
    dequantize_piece(call->codes + p.at, call->to_reals + p.at, p.count, &call->params[p.image]);
}

int mp_tf_dequantize(const int8_t *q, float *x, size_t images, size_t size, const mp_quant_params *params, int threads)
{
    if (!known(params, images)) return MP_BAD_ARGUMENT;
    const tf_call call = {.codes = q, .to_reals = x, .size = size, .params = params};
    mp_share(threads, (int64_t)(images * mp_pieces(size)), tf_dequantize_item, &call);
    return MP_OK;
}
