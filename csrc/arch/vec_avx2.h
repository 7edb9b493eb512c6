/* SPDX-License-Identifier: MIT */
/* The vocabulary of the templates (see vec_scalar.h) on AVX2 + FMA + F16C. */
#ifndef MP_VEC_H
#define MP_VEC_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { VL = 8 };
typedef __m256 vf;
typedef __m256i vi;

static inline __m256i v_first(int n)
{
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(mask + 8 - n));
}
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, v_first(n)); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
/* In parts: a masked store takes many times as long on some CPUs. */
static inline void vf_store_n(float *p, vf x, int n)
{
    __m128 part = _mm256_castps256_ps128(x);
    if (n == VL) {
        _mm256_storeu_ps(p, x);
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(x, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}
/* The first n bytes, less than 16. */
static inline void v_store_bytes(void *p, __m128i x, int n)
{
    char *to = p;
    if (n & 8) {
        _mm_storel_epi64((__m128i *)to, x);
        x = _mm_unpackhi_epi64(x, x);
        to += 8;
    }
    if (n & 4) {
        const int32_t part = _mm_cvtsi128_si32(x);
        memcpy(to, &part, sizeof part);
        x = _mm_srli_epi64(x, 32);
        to += 4;
    }
    if (n & 2) {
        const int16_t part = (int16_t)_mm_cvtsi128_si32(x);
        memcpy(to, &part, sizeof part);
        x = _mm_srli_epi64(x, 16);
        to += 2;
    }
    if (n & 1) *to = (char)_mm_cvtsi128_si32(x);
}
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_max_any(vf a, vf b) { return vf_max(a, b); }
static inline vf vf_min_any(vf a, vf b) { return vf_min(a, b); }
static inline vf vf_select_gt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
static inline int vf_any_zero(vf x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ)) != 0;
}
static inline vf vf_or(vf a, vf b) { return _mm256_or_ps(a, b); }
static inline vf vf_copysign(vf magnitude, vf sign)
{
    const vf mask = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(mask, magnitude), _mm256_and_ps(mask, sign));
}
static inline vf vf_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_trunc(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vf vf_load_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vf vf_load_half_n(const uint16_t *p, int n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_half(t);
}
static inline __m128i v_to_half(vf x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline void vf_store_half(uint16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, v_to_half(x)); }
static inline void vf_store_half_n(uint16_t *p, vf x, int n) { v_store_bytes(p, v_to_half(x), 2 * n); }
static inline vf vf_load_bf16(const uint16_t *p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf vf_load_bf16_n(const uint16_t *p, int n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_bf16(t);
}
/* The upper halves rounded, what is below them undefined. */
static inline __m256i v_near_bf16(vf x)
{
    const __m256i bits = _mm256_castps_si256(x),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(near, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
static inline __m128i v_to_bf16(vf x)
{
    const __m256i upper = _mm256_srli_epi32(v_near_bf16(x), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}
static inline void vf_store_bf16(uint16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, v_to_bf16(x)); }
static inline void vf_store_bf16_n(uint16_t *p, vf x, int n) { v_store_bytes(p, v_to_bf16(x), 2 * n); }
static inline vf vf_load_s8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf vf_load_s8_n(const int8_t *p, int n)
{
    int8_t t[8] = {0};
    memcpy(t, p, (size_t)n);
    return vf_load_s8(t);
}
static inline vi vi_near(vf x) { return _mm256_cvtps_epi32(x); }
static inline __m128i v_to_s8(vi x)
{
    const __m128i s = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_packs_epi16(s, s);
}
static inline void vi_store_s8(int8_t *p, vi x) { _mm_storel_epi64((__m128i *)p, v_to_s8(x)); }
static inline void vi_store_s8_n(int8_t *p, vi x, int n)
{
    if (n == VL)
        vi_store_s8(p, x);
    else
        v_store_bytes(p, v_to_s8(x), n);
}
/* Two vectors of codes cost less together than one and one. */
#define VI_STORES_TWO
static inline void vi_store_two_s8(int8_t *p, vi a, vi b)
{
    const __m256i s = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
}
#define VI_STORES_FOUR
/* Codes less `zero`. */
static inline void vi_store_four_s8(int8_t *p, vi a, vi b, vi c, vi d, int zero)
{
    const __m256i add = _mm256_set1_epi16((int16_t)zero);
    const __m256i ab = _mm256_add_epi16(_mm256_packs_epi32(a, b), add),
                  cd = _mm256_add_epi16(_mm256_packs_epi32(c, d), add);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)p, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), order));
}
/* Results are made of sums in registers (kernels/finish.h); those of 2x2 windows are not. */
#define MP_FINISHES
#define MP_FINISHES_WINDOWS 0
static inline vi vi_set1_s16(int16_t x) { return _mm256_set1_epi16(x); }
/* Sums of codes and `zero`, clamped by packing: of rows ld bytes apart, two of one vector or of two, or four of one; n lanes of a row's
 * last vector, here always all. */
static inline void vi_pack_two_by_two_s8(int8_t *p, size_t ld, vi a0, vi a1, vi b0, vi b1, vi zero, int n)
{
    const __m256i s = _mm256_packs_epi16(_mm256_adds_epi16(_mm256_packs_epi32(a0, a1), zero),
                                         _mm256_adds_epi16(_mm256_packs_epi32(b0, b1), zero));
    const __m256i codes = _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    (void)n;
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(codes));
    _mm_storeu_si128((__m128i *)(p + ld), _mm256_extracti128_si256(codes, 1));
}
static inline void vi_pack_two_s8(int8_t *p, size_t ld, vi a, vi b, vi zero, int n)
{
    const __m256i s = _mm256_adds_epi16(_mm256_packs_epi32(a, b), zero);
    const __m128i codes = _mm_packs_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    const __m128i rows = _mm_shuffle_epi32(codes, _MM_SHUFFLE(3, 1, 2, 0));
    (void)n;
    _mm_storel_epi64((__m128i *)p, rows);
    _mm_storeh_pd((double *)(p + ld), _mm_castsi128_pd(rows));
}
static inline void vi_pack_s8(int8_t *p, vi a, vi zero)
{
    const __m128i s = _mm_adds_epi16(_mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)),
                                     _mm256_castsi256_si128(zero));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(s, s));
}
#define VI_PACKS_FOUR
static inline void vi_pack_four_s8(int8_t *p, size_t ld, vi a, vi b, vi c, vi d, vi zero)
{
    const __m256i s = _mm256_packs_epi16(_mm256_adds_epi16(_mm256_packs_epi32(a, b), zero),
                                         _mm256_adds_epi16(_mm256_packs_epi32(c, d), zero));
    const __m128i low = _mm256_castsi256_si128(s), high = _mm256_extracti128_si256(s, 1);
    const __m128i ab = _mm_unpacklo_epi32(low, high), cd = _mm_unpackhi_epi32(low, high);
    _mm_storel_epi64((__m128i *)p, ab);
    _mm_storeh_pd((double *)(p + ld), _mm_castsi128_pd(ab));
    _mm_storel_epi64((__m128i *)(p + 2 * ld), cd);
    _mm_storeh_pd((double *)(p + 3 * ld), _mm_castsi128_pd(cd));
}
static inline void vf_store_s8(int8_t *p, vf x) { vi_store_s8(p, vi_near(x)); }
static inline void vf_store_s8_n(int8_t *p, vf x, int n) { vi_store_s8_n(p, vi_near(x), n); }
static inline vf vf_load_s16(const int16_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vf_load_s16_n(const int16_t *p, int n)
{
    int16_t t[8] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load_s16(t);
}
static inline __m128i v_to_s16(vf x)
{
    const __m256i codes = vi_near(x);
    return _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
}
static inline void vf_store_s16(int16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, v_to_s16(x)); }
static inline void vf_store_s16_n(int16_t *p, vf x, int n)
{
    if (n == VL)
        vf_store_s16(p, x);
    else
        v_store_bytes(p, v_to_s16(x), 2 * n);
}
static inline vf vf_pow2(vf x)
{
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(x), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_castps_si256(vf_set1(1.0f))));
}
static inline vf vf_keep_n(vf x, int n)
{
    return _mm256_blendv_ps(_mm256_broadcastss_ps(_mm256_castps256_ps128(x)), x, _mm256_castsi256_ps(v_first(n)));
}
static inline vf vf_round_half(vf x) { return _mm256_cvtph_ps(v_to_half(x)); }
static inline vf vf_round_bf16(vf x)
{
    return _mm256_castsi256_ps(_mm256_and_si256(v_near_bf16(x), _mm256_set1_epi32((int)0xffff0000u)));
}
static inline vf vf_round_odd(vf s, vf e)
{
    const __m256i bits = _mm256_castps_si256(s), one = _mm256_set1_epi32(1);
    /* +1 or -1 by whether the signs agree, nothing where s is odd or e is 0. */
    const __m256i step = _mm256_or_si256(_mm256_srai_epi32(_mm256_xor_si256(bits, _mm256_castps_si256(e)), 31), one);
    const __m256i even = _mm256_cmpeq_epi32(_mm256_and_si256(bits, one), _mm256_setzero_si256());
    const __m256i inexact = _mm256_castps_si256(_mm256_cmp_ps(e, _mm256_setzero_ps(), _CMP_NEQ_UQ));
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_and_si256(step, _mm256_and_si256(even, inexact))));
}

typedef struct {
    __m256d low, high;
} vd;
static inline vd vd_set1(double x) { return (vd){_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
static inline vd vd_widen(vf x)
{
    return (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
static inline vf vd_narrow(vd x)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.low)), _mm256_cvtpd_ps(x.high), 1);
}
static inline vd vd_add(vd a, vd b) { return (vd){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)}; }
static inline vd vd_sub(vd a, vd b) { return (vd){_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)}; }
static inline vd vd_div(vd a, vd b) { return (vd){_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)}; }

/* Integers: VL int32 sums. */
static inline vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void vi_store(void *p, vi x) { _mm256_storeu_si256((__m256i *)p, x); }
static inline vf vi_to_float(vi x) { return _mm256_cvtepi32_ps(x); }
/* In double, where nothing is rounded before the end. */
static inline __m128 v_byte_pairs_to_float(__m128i upper, __m128i lower)
{
    return _mm256_cvtpd_ps(
        _mm256_fmadd_pd(_mm256_cvtepi32_pd(upper), _mm256_set1_pd(256.0), _mm256_cvtepi32_pd(lower)));
}
static inline vf vi_byte_pairs_to_float(vi upper, vi lower)
{
    return _mm256_set_m128(
        v_byte_pairs_to_float(_mm256_extracti128_si256(upper, 1), _mm256_extracti128_si256(lower, 1)),
        v_byte_pairs_to_float(_mm256_castsi256_si128(upper), _mm256_castsi256_si128(lower)));
}
static inline vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
/* fixed_point.h's mp_times_by, which compilers multiply after rearranging lanes; a choice by the sign of x; bounds. */
#define VI_FIXED_POINT
static inline vi vi_times_by(vi x, vi multiplier, vi left, vi right, vi down)
{
    const __m256i rounding = _mm256_set1_epi64x(1 << 30), a = _mm256_sllv_epi32(x, left);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, multiplier), rounding);
    const __m256i products = _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(multiplier, 32)),
                  odd = _mm256_add_epi64(products, rounding);
    const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
    const __m256i below = _mm256_and_si256(_mm256_srai_epi32(high, 31), down);
    const __m256i shifted = _mm256_sub_epi32(_mm256_srav_epi32(_mm256_add_epi32(high, below), right), down);
    return _mm256_srav_epi32(shifted, _mm256_srli_epi32(down, 31));
}
static inline vi vi_by_sign(vi x, vi above, vi below)
{
    const __m256 chosen =
        _mm256_blendv_ps(_mm256_castsi256_ps(above), _mm256_castsi256_ps(below), _mm256_castsi256_ps(x));
    return _mm256_castps_si256(chosen);
}
static inline vi vi_within(vi x, vi low, vi high) { return _mm256_max_epi32(_mm256_min_epi32(x, high), low); }
/* Vectors of more than 16 bytes, which not every compiler repeats and widens in one instruction by itself. */
#define MP_LONG_VECTORS
static inline vi vi_widen_s8(const void *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
/* 16 bytes over and over. */
static inline vi vi_repeat(const void *p, int bytes)
{
    (void)bytes;
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
/* acc += the products of each lane's pair of int16, both added. */
#define MP_DOT_PAIRS
static inline vi vi_dot16(vi acc, vi a, vi b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
/* Codes of two rows as pairs of int16. */
static inline vi vi_pair_s8(const void *upper, const void *lower)
{
    const __m128i a = _mm_loadl_epi64((const __m128i *)upper), b = _mm_loadl_epi64((const __m128i *)lower);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b));
}
#endif
