/* SPDX-License-Identifier: MIT */
/* The reals of 16 bits by integer arithmetic: exact widening, narrowing to nearest even. Halves: the same bits as F16C and
 * NEON give for everything but NaN payloads. bfloat16: the upper half of a float's bits. */
#ifndef MP_HALF_H
#define MP_HALF_H
#include <stdint.h>
#include <string.h>
#include "types.h"

static inline float mp_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    uint32_t bits;
    float value;
    if (magnitude >= 0x7c00) { /* infinity, NaN */
        bits = sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (magnitude < 0x400) { /* zero and subnormal: a whole number of 2^-24 */
        value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | ((magnitude << 13) + 0x38000000u);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t mp_float_to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return sign | 0x7e00;
    if (bits >= 0x477ff000u) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits, rounded to even */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    bits += 0xfffu + (bits >> 13 & 1); /* nearest even on 13 dropped bits; a carry moves into the exponent */
    return (uint16_t)(sign | ((bits - 0x38000000u) >> 13));
}

static inline float mp_bf16_to_float(uint16_t upper)
{
    const uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t mp_float_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* Rounding would carry a NaN of many bits into the sign. */
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* Value `at` of memory that holds reals of a type. */
static inline float mp_real_at(const void *p, size_t at, int type)
{
    switch (type) {
    case MP_TYPE_F16: return mp_half_to_float(((const uint16_t *)p)[at]);
    case MP_TYPE_BF16: return mp_bf16_to_float(((const uint16_t *)p)[at]);
    default: return ((const float *)p)[at];
    }
}
/* What such memory makes of x. */
static inline float mp_round_real(float x, int type)
{
    switch (type) {
    case MP_TYPE_F16: return mp_half_to_float(mp_float_to_half(x));
    case MP_TYPE_BF16: return mp_bf16_to_float(mp_float_to_bf16(x));
    default: return x;
    }
}
static inline void mp_put_real(void *p, size_t at, int type, float x)
{
    switch (type) {
    case MP_TYPE_F16: ((uint16_t *)p)[at] = mp_float_to_half(x); break;
    case MP_TYPE_BF16: ((uint16_t *)p)[at] = mp_float_to_bf16(x); break;
    default: ((float *)p)[at] = x;
    }
}
#endif
