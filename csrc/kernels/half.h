/* SPDX-License-Identifier: MIT */
/* One fused multiply-add of halves held as floats, rounded once to half: what FMLA .8h computes.
 * The product is exact in float. The sum is rounded to odd, which a second rounding to half cannot spoil. */
static inline vf vf_fma_half(vf a, vf b, vf c)
{
    const vf p = vf_mul(a, b), s = vf_add(p, c);
    const vf t = vf_sub(s, p);
    const vf e = vf_add(vf_sub(p, vf_sub(s, t)), vf_sub(c, t)); /* s + e = p + c exactly */
    return vf_round_half(vf_round_odd(s, e));
}
