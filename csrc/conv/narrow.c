#include "narrow.h"
#include <stdint.h>

void mp_narrow_put(char *packed, size_t at, int bits, int code)
{
    uint8_t *plane = (uint8_t *)packed + mp_narrow_bytes(at / MP_NARROW_BLOCK * MP_NARROW_BLOCK, bits);
    const int i = (int)(at % MP_NARROW_BLOCK), half = i / 64, word = i / 8 % 8, byte = i % 8;
    unsigned left = (unsigned)code & ((1u << bits) - 1);
    if (bits & 4) {
        plane[8 * word + byte] |= (uint8_t)((left & 15) << 4 * half);
        left >>= 4;
        plane += 64;
    }
    if (bits & 2) {
        plane[8 * (word % 4) + byte] |= (uint8_t)((left & 3) << (4 * half + 2 * (word / 4)));
        left >>= 2;
        plane += 32;
    }
    if (bits & 1) plane[8 * (word % 2) + byte] |= (uint8_t)(left << (4 * half + word / 2));
}
