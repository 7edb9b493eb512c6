/* SPDX-License-Identifier: MIT */
/* Whole numbers times a real factor without reals, as TensorFlow Lite defines it: multiplier * 2^(shift - 31), with a multiplier in
 * [2^30, 2^31), or 0. docs/arithmetic.md, section 10. Nothing here can give other bits on another machine. */
#ifndef MP_FIXED_POINT_H
#define MP_FIXED_POINT_H
#include <stdint.h>

/* Of 32 bits: rounded twice, the upper half of the product half up, then its shift half away from zero. x * 2^shift fits 32 bits.
 * No branch, and nothing that overflows on the way: halves are added after all bits but the last of the shift are gone.
 * down: -1 for a shift below 0, else 0; left: a shift above 0; right: one less than a shift below 0 is to the right. */
static inline int32_t mp_times_by(int32_t x, int32_t multiplier, int32_t left, int32_t right, int32_t down)
{
    const int32_t wide = (int32_t)((uint32_t)x << left);
    /* The quotient fits 32 bits, so that it matters not what is shifted in above them. */
    const int32_t high = (int32_t)((uint64_t)((int64_t)wide * multiplier + (INT64_C(1) << 30)) >> 31);
    return (((high + ((high >> 31) & down)) >> right) - down) >> (down & 1);
}
static inline int32_t mp_shift_left(int32_t shift) { return shift & ~(shift >> 31); }
static inline int32_t mp_shift_right(int32_t shift) { return ~shift & (shift >> 31); }
static inline int32_t mp_times_32(int32_t x, int32_t multiplier, int32_t shift)
{
    return mp_times_by(x, multiplier, mp_shift_left(shift), mp_shift_right(shift), shift >> 31);
}

/* Whether these are a factor, by shifts that integers of 32 bits have. */
static inline int mp_is_factor(int32_t multiplier, int32_t shift)
{
    return multiplier == 0 ? shift == 0 : multiplier >= 1 << 30 && shift >= -31 && shift <= 30;
}

/* Of up to 48 bits: by the multiplier's upper 16 bits, rounded half up: (x * factor + 2^(shift - 1)) >> shift. */
static inline int32_t mp_factor_64(int32_t multiplier)
{
    return multiplier < 0x7fff0000 ? (multiplier + (1 << 15)) >> 16 : 0x7fff;
}
static inline int32_t mp_shift_64(int32_t shift) { return 15 - shift; }

#endif
