/* SPDX-License-Identifier: MIT */
/* exp and logistic with the same bits on every CPU: fixed order, explicit fused multiply-adds, no libm result.
 * A vector version that does the same operations lane by lane gives the same bits.
 *
 * exp(x): x is clamped to [MP_EXP_LOW, MP_EXP_HIGH], so that 2^n stays a normal number, then
 *     n = nearest integer to x / ln 2      (added to 1.5 * 2^23, which leaves n in the low mantissa bits)
 *     r = x - n ln 2                       (ln 2 in two parts; the first has 9 low zero bits: n * high is exact)
 *     exp(r) = 1 + r + r^2 q(r)            (q of degree 4, minimax over |r| <= ln 2 / 2)
 *     result = exp(r) * 2^n                (exact: 2^n is built from bits)
 * At most 1 ulp from the true value inside the clamped range (tests/detection/test_math.py); a NaN stays a NaN. */
#ifndef MP_MATH_H
#define MP_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MP_EXP_LOW (-87.33654f) /* exp of it is the smallest normal number */
#define MP_EXP_HIGH 88.37626f   /* n = 127 */
#define MP_EXP_LOG2E 0x1.715476p+0f
#define MP_EXP_MAGIC 12582912.0f /* 1.5 * 2^23 */
#define MP_EXP_LN2_HIGH 0x1.62e4p-1f
#define MP_EXP_LN2_LOW 0x1.7f7d1cp-20f
#define MP_EXP_Q0 0x1.fffffcp-2f
#define MP_EXP_Q1 0x1.555492p-3f
#define MP_EXP_Q2 0x1.5558f2p-5f
#define MP_EXP_Q3 0x1.123a2p-7f
#define MP_EXP_Q4 0x1.6a23cep-10f

static inline float mp_expf(float x)
{
    /* Written so that a NaN passes through both comparisons. */
    x = x > MP_EXP_HIGH ? MP_EXP_HIGH : x;
    x = x < MP_EXP_LOW ? MP_EXP_LOW : x;
    const float shifted = fmaf(x, MP_EXP_LOG2E, MP_EXP_MAGIC);
    const float n = shifted - MP_EXP_MAGIC;
    float r = fmaf(n, -MP_EXP_LN2_HIGH, x);
    r = fmaf(n, -MP_EXP_LN2_LOW, r);
    float p = fmaf(MP_EXP_Q4, r, MP_EXP_Q3);
    p = fmaf(p, r, MP_EXP_Q2);
    p = fmaf(p, r, MP_EXP_Q1);
    p = fmaf(p, r, MP_EXP_Q0);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* The shift drops all but n; the sum is the bit pattern of 2^n. */
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* 1 / (1 + exp(-x)), at most 2.5 ulp from the true value for x >= -87; not below 1.17e-38. */
static inline float mp_logisticf(float x) { return 1.0f / (1.0f + mp_expf(-x)); }

/* Natural logarithm of x > 0 in double, good to about 1e-11 (absolute): only additions, products and one quotient. */
static inline double mp_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) { /* keep m around 1, where the series is short */
        m *= 0.5;
        exponent += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
    /* ln m = 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.1716 */
    double sum = 1.0 / 13.0;
    sum = sum * s2 + 1.0 / 11.0;
    sum = sum * s2 + 1.0 / 9.0;
    sum = sum * s2 + 1.0 / 7.0;
    sum = sum * s2 + 1.0 / 5.0;
    sum = sum * s2 + 1.0 / 3.0;
    sum = sum * s2 + 1.0;
    return 2.0 * s * sum + exponent * 0.6931471805599453;
}

/* Sine and cosine of x in double, good to about 1e-12 for |x| below 1e6: only additions and products. Of other x, NaN among
 * them, those of 0. */
static inline void mp_sine_cosine(double x, double *sine, double *cosine)
{
    if (!(x > -1e6 && x < 1e6)) x = 0.0;
    const double quarters = floor(x * 0.63661977236758134 + 0.5);
    /* pi / 2 in two parts, the first of 33 bits: its product with `quarters` is exact. */
    const double r = (x - quarters * 1.5707963267341256) - quarters * 6.077100506506192e-11, r2 = r * r;
    double s = -1.0 / 39916800.0, c = 1.0 / 479001600.0;
    s = s * r2 + 1.0 / 362880.0;
    s = s * r2 - 1.0 / 5040.0;
    s = s * r2 + 1.0 / 120.0;
    s = s * r2 - 1.0 / 6.0;
    s = (s * r2 + 1.0) * r;
    c = c * r2 - 1.0 / 3628800.0;
    c = c * r2 + 1.0 / 40320.0;
    c = c * r2 - 1.0 / 720.0;
    c = c * r2 + 1.0 / 24.0;
    c = c * r2 - 0.5;
    c = c * r2 + 1.0;
    const int64_t quarter = (int64_t)quarters & 3;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

/* x^power for 0 <= x <= 1 and power > 0, to float accuracy. */
static inline float mp_powf(float x, float power)
{
    return x <= 0.0f ? 0.0f : mp_expf((float)(power * mp_log((double)x)));
}
#endif
