/* Weights of fewer than eight bits: how they lie in memory. Internal.
 *
 * Codes stand in the order in which tiles read them, in two's complement, in blocks of 128, 16 bytes for each bit: a plane with the
 * low four bits of all (where there are four), then one with the next two, then one with a last one, which ever there are.
 * A block is two halves of eight words of eight codes, a byte each: word w of half h is word w of the plane of fours, shifted
 * by 4 h; word w % 4 of that of twos, shifted by 4 h + 2 (w / 4); word w % 2 of that of ones, shifted by 4 h + w / 2. */
#ifndef MP_CONV_NARROW_H
#define MP_CONV_NARROW_H
#include <stddef.h>

enum { MP_NARROW_BLOCK = 128 };

/* Of so many codes. */
static inline size_t mp_narrow_blocks(size_t codes) { return (codes + MP_NARROW_BLOCK - 1) / MP_NARROW_BLOCK; }
static inline size_t mp_narrow_bytes(size_t codes, int bits)
{
    return mp_narrow_blocks(codes) * (MP_NARROW_BLOCK / 8) * (size_t)bits;
}
/* Code number `at`, where zeros are. */
void mp_narrow_put(char *packed, size_t at, int bits, int code);
#endif
