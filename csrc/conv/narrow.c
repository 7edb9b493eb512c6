/* SPDX-License-Identifier: MIT */
#include "narrow.h"
#include <stdint.h>
#include <string.h>

void mp_narrow_clear(char *packed, size_t codes, int bits)
{
    enum { PLANE = MP_NARROW_BLOCK / 8 }; /* of one bit */
    const int last = bits & 1 ? 1 : bits & 2 ? 2 : 4;
    for (size_t blocks = mp_narrow_blocks(codes); blocks > 0; blocks--, packed += last * PLANE) {
        memset(packed, 0, (size_t)(bits - last) * PLANE);
        packed += (bits - last) * PLANE;
        memset(packed, last == 1 ? 0xff : last == 2 ? 0xaa : 0x88, (size_t)last * PLANE); /* 2^(bits - 1) */
    }
}

void mp_narrow_put(char *packed, size_t at, int bits, int lane, int code)
{
    uint8_t *plane = (uint8_t *)packed + mp_narrow_bytes(at / MP_NARROW_BLOCK * MP_NARROW_BLOCK, bits);
    const int i = (int)(at % MP_NARROW_BLOCK), per_word = 64 / lane, word = i / per_word;
    unsigned left = (unsigned)code & ((1u << bits) - 1);
    for (int width = 4; width > 0; width /= 2) {
        if (!(bits & width)) continue;
        const int words = 2 * width, bit = i % per_word * lane + width * (word / words);
        plane[8 * (word % words) + bit / 8] ^= (uint8_t)((left & ((1u << width) - 1)) << bit % 8);
        plane += 8 * words;
        left >>= width;
    }
}
