/* SPDX-License-Identifier: MIT */
/* The vocabulary of the templates (see vec_scalar.h) on AVX-512 F, BW, VL, DQ. */
#ifndef MP_VEC_H
#define MP_VEC_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { VL = 16 };
/* Loading and storing a part of a vector takes no longer than all of it. */
#define MP_PARTIAL_VECTORS
typedef __m512 vf;
typedef __m512i vi;

static inline __mmask16 v_first(int n) { return (__mmask16)((1u << n) - 1); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline void vf_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, v_first(n), x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_max_any(vf a, vf b) { return vf_max(a, b); }
static inline vf vf_min_any(vf a, vf b) { return vf_min(a, b); }
static inline vf vf_select_gt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}
static inline int vf_any_zero(vf x) { return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ) != 0; }
static inline vf vf_or(vf a, vf b) { return _mm512_or_ps(a, b); }
static inline vf vf_copysign(vf magnitude, vf sign)
{
    const vf mask = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(mask, magnitude), _mm512_and_ps(mask, sign));
}
static inline vf vf_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_trunc(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vf vf_load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_load_half_n(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p));
}
static inline __m256i v_to_half(vf x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline void vf_store_half(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, v_to_half(x)); }
static inline void vf_store_half_n(uint16_t *p, vf x, int n) { _mm256_mask_storeu_epi16(p, v_first(n), v_to_half(x)); }
static inline vf v_widen_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline vf vf_load_bf16(const uint16_t *p) { return v_widen_bf16(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_load_bf16_n(const uint16_t *p, int n)
{
    return v_widen_bf16(_mm256_maskz_loadu_epi16(v_first(n), p));
}
/* The upper halves rounded, what is below them undefined. VCVTNEPS2BF16 would make 0 of subnormals. */
static inline __m512i v_near_bf16(vf x)
{
    const __m512i bits = _mm512_castps_si512(x),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
}
static inline __m256i v_to_bf16(vf x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(v_near_bf16(x), 16)); }
static inline void vf_store_bf16(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, v_to_bf16(x)); }
static inline void vf_store_bf16_n(uint16_t *p, vf x, int n) { _mm256_mask_storeu_epi16(p, v_first(n), v_to_bf16(x)); }
static inline vf vf_load_s8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vf_load_s8_n(const int8_t *p, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(v_first(n), p)));
}
static inline vi vi_near(vf x) { return _mm512_cvtps_epi32(x); }
static inline void vi_store_s8(int8_t *p, vi x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(x)); }
static inline void vi_store_s8_n(int8_t *p, vi x, int n)
{
    _mm_mask_storeu_epi8(p, v_first(n), _mm512_cvtsepi32_epi8(x));
}
/* As in vec_avx2.h; windows as well. */
#define MP_FINISHES
#define MP_FINISHES_WINDOWS 1
static inline vi vi_set1_s16(int16_t x) { return _mm512_set1_epi16(x); }
/* Part j of 32 bits of lane i of 128 bits as part i of lane j: what instructions in lanes lay together, and back. */
static inline __m512i v_transpose(__m512i x)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, x);
}
/* Bytes of up to 64 codes. */
#define VB_BYTES 64
typedef __m512i vb;
static inline __mmask64 vb_first(int n) { return ~(__mmask64)0 >> (VB_BYTES - n); }
static inline vb vb_max_n(vb a, const void *p, int n)
{
    return _mm512_max_epi8(a, _mm512_maskz_loadu_epi8(vb_first(n), p));
}
static inline vb vb_lowest(void) { return _mm512_set1_epi8(INT8_MIN); }
static inline vb vb_max(vb a, vb b) { return _mm512_max_epi8(a, b); }
static inline void vb_store_n(void *p, vb a, int n) { _mm512_mask_storeu_epi8(p, vb_first(n), a); }
/* Codes of rows a to d from words of each two. */
static inline __m512i v_rows_s8(__m512i ab, __m512i cd) { return v_transpose(_mm512_packs_epi16(ab, cd)); }
static inline vi v_words(vi a, vi b, vi zero) { return _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero); }
static inline void vi_pack_two_by_two_s8(int8_t *p, size_t ld, vi a0, vi a1, vi b0, vi b1, vi zero, int n)
{
    const __m512i codes = v_rows_s8(v_words(a0, a1, zero), v_words(b0, b1, zero));
    const __mmask32 kept = 0xffffffffu >> (VL - n);
    _mm256_mask_storeu_epi8(p, kept, _mm512_castsi512_si256(codes));
    _mm256_mask_storeu_epi8(p + ld, kept, _mm512_extracti64x4_epi64(codes, 1));
}
static inline void vi_pack_two_s8(int8_t *p, size_t ld, vi a, vi b, vi zero, int n)
{
    const vi words = v_words(a, b, zero);
    const __m256i codes = _mm512_castsi512_si256(v_rows_s8(words, words));
    _mm_mask_storeu_epi8(p, v_first(n), _mm256_castsi256_si128(codes));
    _mm_mask_storeu_epi8(p + ld, v_first(n), _mm256_extracti128_si256(codes, 1));
}
static inline void vi_pack_s8(int8_t *p, vi a, vi zero)
{
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtsepi16_epi8(_mm256_adds_epi16(_mm512_cvtsepi32_epi16(a), _mm512_castsi512_si256(zero))));
}
#define VI_PACKS_FOUR
static inline void vi_pack_four_s8(int8_t *p, size_t ld, vi a, vi b, vi c, vi d, vi zero)
{
    const __m512i codes = v_rows_s8(v_words(a, b, zero), v_words(c, d, zero));
    _mm_storeu_si128((__m128i *)p, _mm512_castsi512_si128(codes));
    _mm_storeu_si128((__m128i *)(p + ld), _mm512_extracti32x4_epi32(codes, 1));
    _mm_storeu_si128((__m128i *)(p + 2 * ld), _mm512_extracti32x4_epi32(codes, 2));
    _mm_storeu_si128((__m128i *)(p + 3 * ld), _mm512_extracti32x4_epi32(codes, 3));
}
static inline void vf_store_s8(int8_t *p, vf x) { vi_store_s8(p, vi_near(x)); }
static inline void vf_store_s8_n(int8_t *p, vf x, int n) { vi_store_s8_n(p, vi_near(x), n); }
static inline vf vf_load_s16(const int16_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p)));
}
static inline vf vf_load_s16_n(const int16_t *p, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(v_first(n), p)));
}
static inline void vf_store_s16(int16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(vi_near(x)));
}
static inline void vf_store_s16_n(int16_t *p, vf x, int n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtsepi32_epi16(vi_near(x)));
}
static inline vf vf_pow2(vf x)
{
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(x), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_castps_si512(vf_set1(1.0f))));
}
static inline vf vf_keep_n(vf x, int n)
{
    return _mm512_mask_blend_ps(v_first(n), _mm512_broadcastss_ps(_mm512_castps512_ps128(x)), x);
}
static inline vf vf_round_half(vf x) { return _mm512_cvtph_ps(v_to_half(x)); }
static inline vf vf_round_bf16(vf x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(v_near_bf16(x), _mm512_set1_epi32((int)0xffff0000u)));
}
static inline vf vf_round_odd(vf s, vf e)
{
    const __m512i bits = _mm512_castps_si512(s), one = _mm512_set1_epi32(1);
    const __m512i step = _mm512_or_si512(_mm512_srai_epi32(_mm512_xor_si512(bits, _mm512_castps_si512(e)), 31), one);
    const __mmask16 even = _mm512_testn_epi32_mask(bits, one);
    const __mmask16 inexact = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_castsi512_ps(_mm512_mask_add_epi32(bits, even & inexact, bits, step));
}

typedef struct {
    __m512d low, high;
} vd;
static inline vd vd_set1(double x) { return (vd){_mm512_set1_pd(x), _mm512_set1_pd(x)}; }
static inline vd vd_widen(vf x)
{
    return (vd){_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}
static inline vf vd_narrow(vd x)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.low)), _mm512_cvtpd_ps(x.high), 1);
}
static inline vd vd_add(vd a, vd b) { return (vd){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)}; }
static inline vd vd_sub(vd a, vd b) { return (vd){_mm512_sub_pd(a.low, b.low), _mm512_sub_pd(a.high, b.high)}; }
static inline vd vd_div(vd a, vd b) { return (vd){_mm512_div_pd(a.low, b.low), _mm512_div_pd(a.high, b.high)}; }

/* Integers: VL int32 sums. */
static inline vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
/* As in vec_avx2.h. */
#define MP_LONG_VECTORS
static inline vi vi_widen_s8(const void *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
/* 16 or 32 bytes over and over. */
static inline vi vi_repeat(const void *p, int bytes)
{
    return bytes == 16 ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p))
                       : _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vi_to_float(vi x) { return _mm512_cvtepi32_ps(x); }
/* In double, where nothing is rounded before the end. */
static inline __m256 v_byte_pairs_to_float(__m256i upper, __m256i lower)
{
    return _mm512_cvtpd_ps(
        _mm512_fmadd_pd(_mm512_cvtepi32_pd(upper), _mm512_set1_pd(256.0), _mm512_cvtepi32_pd(lower)));
}
static inline vf vi_byte_pairs_to_float(vi upper, vi lower)
{
    const __m256 first = v_byte_pairs_to_float(_mm512_castsi512_si256(upper), _mm512_castsi512_si256(lower));
    return _mm512_insertf32x8(
        _mm512_castps256_ps512(first),
        v_byte_pairs_to_float(_mm512_extracti64x4_epi64(upper, 1), _mm512_extracti64x4_epi64(lower, 1)), 1);
}
static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
#define MP_DOT_PAIRS
static inline vi vi_dot16(vi acc, vi a, vi b) { return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b)); }
static inline vi vi_pair_s8(const void *upper, const void *lower)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)upper), b = _mm_loadu_si128((const __m128i *)lower);
    const __m256i pairs = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
    return _mm512_cvtepi8_epi16(pairs);
}
#endif
