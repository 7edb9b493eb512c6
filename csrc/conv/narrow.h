/* SPDX-License-Identifier: MIT */
/* Weights of fewer than eight bits: how they lie in memory. Internal.
 *
 * Codes stand in the order in which tiles read them, plus 2^(bits - 1), in blocks of 128, 16 bytes for each bit: a plane with the
 * low four bits of all (where there are four), then one with the next two, then one with a last one, which ever there are.
 * Codes that tiles read as lanes of 8 or 16 bits fill that many words of 64 bits, unpacked: word w of the block lies in word w % n of a
 * plane of n words, in the bits that w / n leaves below it, each code in its own lane: a shift and a mask bring it back. */
#ifndef MP_CONV_NARROW_H
#define MP_CONV_NARROW_H
#include <stddef.h>

enum { MP_NARROW_BLOCK = 128, MP_NARROW_VERSION = 2 }; /* of this layout, beside MP_PACK_VERSION of all others */

/* Of so many codes. */
static inline size_t mp_narrow_blocks(size_t codes) { return (codes + MP_NARROW_BLOCK - 1) / MP_NARROW_BLOCK; }
static inline size_t mp_narrow_bytes(size_t codes, int bits)
{
    return mp_narrow_blocks(codes) * (MP_NARROW_BLOCK / 8) * (size_t)bits;
}
/* So many codes of 0. */
void mp_narrow_clear(char *packed, size_t codes, int bits);
/* Code number `at`, where a 0 is; lane: its bits once it is unpacked. */
void mp_narrow_put(char *packed, size_t at, int bits, int lane, int code);
#endif
