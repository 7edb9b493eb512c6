/* SPDX-License-Identifier: MIT */
/* The vocabulary of the templates in kernels/, one lane wide: what each word means, in portable C. Every other
 * vec_*.h does the same operations lane by lane, and so gives the same bits.
 *
 * vf: VL floats. x_n(…, n): the first n lanes only, 1 <= n <= VL; loads leave the others 0. */
#ifndef MP_VEC_H
#define MP_VEC_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "../half.h"

enum { VL = 1 };
typedef float vf;

static inline vf vf_set1(float x) { return x; }
static inline vf vf_load(const float *p) { return *p; }
static inline vf vf_load_n(const float *p, int n) { (void)n; return *p; }
static inline void vf_store(float *p, vf x) { *p = x; }
static inline void vf_store_n(float *p, vf x, int n) { (void)n; *p = x; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
/* The nearest float to the root; of x < 0 a NaN whose sign depends on the CPU. */
static inline vf vf_sqrt(vf x) { return sqrtf(x); }
/* a * b + c with one rounding. */
static inline vf vf_fma(vf a, vf b, vf c) { return fmaf(a, b, c); }
/* b when they are equal or one is NaN. */
static inline vf vf_max(vf a, vf b) { return a > b ? a : b; }
static inline vf vf_min(vf a, vf b) { return a < b ? a : b; }
/* Where NaN, or zeros of both signs, may give either. */
static inline vf vf_max_any(vf a, vf b) { return vf_max(a, b); }
static inline vf vf_min_any(vf a, vf b) { return vf_min(a, b); }
static inline vf vf_select_gt(vf a, vf b, vf x, vf y) { return a > b ? x : y; }
static inline uint32_t vf_bits(float x) { uint32_t b; memcpy(&b, &x, sizeof b); return b; }
static inline float vf_of_bits(uint32_t b) { float x; memcpy(&x, &b, sizeof x); return x; }
static inline vf vf_or(vf a, vf b) { return vf_of_bits(vf_bits(a) | vf_bits(b)); }
static inline vf vf_copysign(vf magnitude, vf sign) { return copysignf(magnitude, sign); }
/* To a whole number: nearest even, towards zero. |x| < 2^22 for nearest even. */
static inline vf vf_round(vf x) { const float magic = copysignf(8388608.0f, x); return copysignf((x + magic) - magic, x); }
static inline vf vf_trunc(vf x) { return truncf(x); }
static inline vf vf_load_half(const uint16_t *p) { return mp_half_to_float(*p); }
static inline vf vf_load_half_n(const uint16_t *p, int n) { (void)n; return mp_half_to_float(*p); }
static inline void vf_store_half(uint16_t *p, vf x) { *p = mp_float_to_half(x); }
static inline void vf_store_half_n(uint16_t *p, vf x, int n) { (void)n; *p = mp_float_to_half(x); }
static inline vf vf_load_bf16(const uint16_t *p) { return mp_bf16_to_float(*p); }
static inline vf vf_load_bf16_n(const uint16_t *p, int n) { (void)n; return mp_bf16_to_float(*p); }
static inline void vf_store_bf16(uint16_t *p, vf x) { *p = mp_float_to_bf16(x); }
static inline void vf_store_bf16_n(uint16_t *p, vf x, int n) { (void)n; *p = mp_float_to_bf16(x); }
/* int8: loads widen; stores take integers in [-128, 127]. */
static inline vf vf_load_s8(const int8_t *p) { return *p; }
static inline vf vf_load_s8_n(const int8_t *p, int n) { (void)n; return *p; }
static inline void vf_store_s8(int8_t *p, vf x) { *p = (int8_t)x; }
static inline void vf_store_s8_n(int8_t *p, vf x, int n) { (void)n; *p = (int8_t)x; }
/* int16: the same, in [-32768, 32767]. */
static inline vf vf_load_s16(const int16_t *p) { return *p; }
static inline vf vf_load_s16_n(const int16_t *p, int n) { (void)n; return *p; }
static inline void vf_store_s16(int16_t *p, vf x) { *p = (int16_t)x; }
static inline void vf_store_s16_n(int16_t *p, vf x, int n) { (void)n; *p = (int16_t)x; }
/* 2^n, where the low mantissa bits of x hold n (mp_expf). */
static inline vf vf_pow2(vf x) { return vf_of_bits((vf_bits(x) << 23) + 0x3f800000u); }
/* Lanes from n on get lane 0's value. */
static inline vf vf_keep_n(vf x, int n) { (void)n; return x; }
static inline vf vf_round_half(vf x) { return mp_half_to_float(mp_float_to_half(x)); }
static inline vf vf_round_bf16(vf x) { return mp_bf16_to_float(mp_float_to_bf16(x)); }
/* s + e rounded to odd: s, moved one unit towards e where e != 0 and s is even. */
static inline vf vf_round_odd(vf s, vf e)
{
    const uint32_t bits = vf_bits(s);
    if (e == 0.0f || (bits & 1))
        return s;
    return vf_of_bits((bits ^ vf_bits(e)) >> 31 ? bits - 1 : bits + 1);
}

/* vd: VL doubles. */
typedef double vd;
static inline vd vd_set1(double x) { return x; }
static inline vd vd_widen(vf x) { return x; }
static inline vf vd_narrow(vd x) { return (float)x; }
static inline vd vd_add(vd a, vd b) { return a + b; }
static inline vd vd_sub(vd a, vd b) { return a - b; }
static inline vd vd_div(vd a, vd b) { return a / b; }

/* Integers: VL int32 sums. dot16: plus the products of pairs of int16, of which one lane has none. */
typedef int32_t vi;
static inline vi vi_load(const void *p) { int32_t x; memcpy(&x, p, sizeof x); return x; }
static inline void vi_store(void *p, vi x) { memcpy(p, &x, sizeof x); }
static inline vi vi_set1(int32_t x) { return x; }
static inline vi vi_add(vi a, vi b) { return a + b; }
static inline vi vi_max(vi a, vi b) { return a > b ? a : b; }
static inline vf vi_to_float(vi x) { return (float)x; }
/* 256 * upper + lower, rounded once. */
static inline vf vi_byte_pairs_to_float(vi upper, vi lower) { return (float)(256 * (int64_t)upper + lower); }
/* The nearest whole number, even between two. |x| < 2^22. */
static inline vi vi_near(vf x) { return (vi)vf_round(x); }
/* In [-128, 127]. */
static inline void vi_store_s8(int8_t *p, vi x) { *p = (int8_t)x; }
static inline void vi_store_s8_n(int8_t *p, vi x, int n) { (void)n; *p = (int8_t)x; }
/* VL int16, and sums plus the products of two such. */
typedef int16_t vs;
static inline vs vs_load(const void *p) { int16_t x; memcpy(&x, p, sizeof x); return x; }
static inline vi vi_multiply_add(vi acc, vs a, vs b) { return acc + a * b; }
static inline vi vi_dot16(vi acc, vi a, vi b) { return acc + a * b; }
#endif
