/* SPDX-License-Identifier: MIT */
/* The vocabulary of the templates (see vec_scalar.h) on AArch64 NEON, ARMv8.0. */
#ifndef MP_VEC_H
#define MP_VEC_H
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum { VL = 4 };
typedef float32x4_t vf;
typedef int32x4_t vi;

static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline vf vf_load_n(const float *p, int n)
{
    float t[4] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1q_f32(t);
}
static inline void vf_store(float *p, vf x) { vst1q_f32(p, x); }
static inline void vf_store_n(float *p, vf x, int n)
{
    float t[4];
    vst1q_f32(t, x);
    memcpy(p, t, (size_t)n * sizeof *t);
}
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_sqrt(vf x) { return vsqrtq_f32(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_select_gt(vf a, vf b, vf x, vf y) { return vbslq_f32(vcgtq_f32(a, b), x, y); }
/* Not FMAX and FMIN: those differ from x86 for NaN and for zeros of both signs. */
static inline vf vf_max(vf a, vf b) { return vf_select_gt(a, b, a, b); }
static inline vf vf_min(vf a, vf b) { return vf_select_gt(b, a, a, b); }
static inline vf vf_max_any(vf a, vf b) { return vmaxq_f32(a, b); }
static inline vf vf_min_any(vf a, vf b) { return vminq_f32(a, b); }
static inline int vf_any_zero(vf x) { return vmaxvq_u32(vceqzq_f32(x)) != 0; }
static inline vf vf_or(vf a, vf b)
{
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}
static inline vf vf_copysign(vf magnitude, vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude); }
static inline vf vf_round(vf x) { return vrndnq_f32(x); }
static inline vf vf_trunc(vf x) { return vrndq_f32(x); }
static inline vf vf_load_half(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline vf vf_load_half_n(const uint16_t *p, int n)
{
    uint16_t t[4] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_half(t);
}
static inline void vf_store_half(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
static inline void vf_store_half_n(uint16_t *p, vf x, int n)
{
    uint16_t t[4];
    vf_store_half(t, x);
    memcpy(p, t, (size_t)n * sizeof *t);
}
static inline vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
static inline vf vf_load_bf16_n(const uint16_t *p, int n)
{
    uint16_t t[4] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_bf16(t);
}
/* The upper halves rounded, what is below them undefined. */
static inline uint32x4_t v_near_bf16(vf x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t near = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vbslq_u32(vceqq_f32(x, x), near, vorrq_u32(bits, vdupq_n_u32(0x400000)));
}
static inline void vf_store_bf16(uint16_t *p, vf x) { vst1_u16(p, vshrn_n_u32(v_near_bf16(x), 16)); }
static inline void vf_store_bf16_n(uint16_t *p, vf x, int n)
{
    uint16_t t[4];
    vf_store_bf16(t, x);
    memcpy(p, t, (size_t)n * sizeof *t);
}
static inline vf vf_load_s8(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
static inline vf vf_load_s8_n(const int8_t *p, int n)
{
    int8_t t[4] = {0};
    memcpy(t, p, (size_t)n);
    return vf_load_s8(t);
}
static inline vi vi_near(vf x) { return vcvtnq_s32_f32(x); }
static inline void vi_store_s8(int8_t *p, vi x)
{
    const int16x4_t narrow = vmovn_s32(x);
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(narrow, narrow))), 0);
    memcpy(p, &four, sizeof four);
}
static inline void vi_store_s8_n(int8_t *p, vi x, int n)
{
    int8_t t[4];
    vi_store_s8(t, x);
    memcpy(p, t, (size_t)n);
}
/* Four vectors of codes less their zero point, which 16 bits hold: narrowing once costs less than four times. */
#define VI_STORES_FOUR
static inline void vi_store_four_s8(int8_t *p, vi a, vi b, vi c, vi d, int zero)
{
    const int16x8_t more = vdupq_n_s16((int16_t)zero);
    const int16x8_t low = vaddq_s16(vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)), more);
    const int16x8_t high = vaddq_s16(vuzp1q_s16(vreinterpretq_s16_s32(c), vreinterpretq_s16_s32(d)), more);
    vst1q_s8(p, vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high)));
}
static inline void vf_store_s8(int8_t *p, vf x) { vi_store_s8(p, vcvtq_s32_f32(x)); }
static inline void vf_store_s8_n(int8_t *p, vf x, int n) { vi_store_s8_n(p, vcvtq_s32_f32(x), n); }
static inline vf vf_load_s16(const int16_t *p) { return vcvtq_f32_s32(vmovl_s16(vld1_s16(p))); }
static inline vf vf_load_s16_n(const int16_t *p, int n)
{
    int16_t t[4] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_s16(t);
}
static inline void vf_store_s16(int16_t *p, vf x) { vst1_s16(p, vmovn_s32(vcvtq_s32_f32(x))); }
static inline void vf_store_s16_n(int16_t *p, vf x, int n)
{
    int16_t t[4];
    vf_store_s16(t, x);
    memcpy(p, t, (size_t)n * sizeof *t);
}
static inline vf vf_pow2(vf x)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(x), 23);
    return vreinterpretq_f32_u32(vaddq_u32(n, vdupq_n_u32(0x3f800000u)));
}
static inline vf vf_keep_n(vf x, int n)
{
    static const int32_t lane[4] = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(vld1q_s32(lane), vdupq_n_s32(n)), x, vdupq_laneq_f32(x, 0));
}
static inline vf vf_round_half(vf x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
static inline vf vf_round_bf16(vf x)
{
    return vreinterpretq_f32_u32(vandq_u32(v_near_bf16(x), vdupq_n_u32(0xffff0000u)));
}
static inline vf vf_round_odd(vf s, vf e)
{
    const int32x4_t bits = vreinterpretq_s32_f32(s), one = vdupq_n_s32(1);
    /* +1 or -1 by whether the signs agree, nothing where s is odd or e is 0. */
    const int32x4_t step = vorrq_s32(vshrq_n_s32(veorq_s32(bits, vreinterpretq_s32_f32(e)), 31), one);
    const uint32x4_t even = vceqzq_s32(vandq_s32(bits, one));
    const uint32x4_t inexact = vmvnq_u32(vceqzq_f32(e));
    return vreinterpretq_f32_s32(vaddq_s32(bits, vandq_s32(step, vreinterpretq_s32_u32(vandq_u32(even, inexact)))));
}

typedef struct {
    float64x2_t low, high;
} vd;
static inline vd vd_set1(double x) { return (vd){vdupq_n_f64(x), vdupq_n_f64(x)}; }
static inline vd vd_widen(vf x) { return (vd){vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x)}; }
static inline vf vd_narrow(vd x) { return vcvt_high_f32_f64(vcvt_f32_f64(x.low), x.high); }
static inline vd vd_add(vd a, vd b) { return (vd){vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high)}; }
static inline vd vd_sub(vd a, vd b) { return (vd){vsubq_f64(a.low, b.low), vsubq_f64(a.high, b.high)}; }
static inline vd vd_div(vd a, vd b) { return (vd){vdivq_f64(a.low, b.low), vdivq_f64(a.high, b.high)}; }

/* Integers: VL int32 sums. There is no multiply of int16 pairs; depthwise, the one user here, needs single products. */
static inline vi vi_load(const void *p) { return vld1q_s32((const int32_t *)p); }
static inline void vi_store(void *p, vi x) { vst1q_s32((int32_t *)p, x); }
/* In double, where nothing is rounded before the end. */
static inline vf vi_byte_pairs_to_float(vi upper, vi lower)
{
    const int64x2_t first = vaddw_s32(vshll_n_s32(vget_low_s32(upper), 8), vget_low_s32(lower)),
                    second = vaddw_s32(vshll_n_s32(vget_high_s32(upper), 8), vget_high_s32(lower));
    return vcvt_high_f32_f64(vcvt_f32_f64(vcvtq_f64_s64(first)), vcvtq_f64_s64(second));
}
static inline vi vi_set1(int32_t x) { return vdupq_n_s32(x); }
static inline vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
static inline vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
static inline vf vi_to_float(vi x) { return vcvtq_f32_s32(x); }
typedef int16x4_t vs;
static inline vs vs_load(const void *p) { return vld1_s16((const int16_t *)p); }
static inline vi vi_multiply_add(vi acc, vs a, vs b) { return vmlal_s16(acc, a, b); }
static inline vi vi_dot16(vi acc, vi a, vi b) { return vmlaq_s32(acc, a, b); }
#endif
