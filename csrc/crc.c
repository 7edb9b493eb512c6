#include "mp_crc.h"
#include <string.h>
#include "cpu.h"

static uint64_t word_at(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* One step of the instruction; without it the plain loop over bits makes a table first. */
#if defined(__x86_64__)
static inline uint64_t step8(uint64_t crc, uint64_t word)
{
    __asm__("crc32q %1, %0" : "+r"(crc) : "r"(word));
    return crc;
}
static int has_instruction(const mp_cpu *cpu) { return cpu->avx2; } /* such a CPU has SSE4.2 */
#elif defined(__aarch64__)
static inline uint64_t step8(uint64_t crc, uint64_t word)
{
    uint32_t low = (uint32_t)crc;
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(low) : "r"(word));
    return low;
}
static int has_instruction(const mp_cpu *cpu) { return cpu->crc; }
#else
static inline uint64_t step8(uint64_t crc, uint64_t word) { return crc ^ word; }
static int has_instruction(const mp_cpu *cpu)
{
    (void)cpu;
    return 0;
}
#endif

static uint32_t by_bits_once(uint32_t crc) { return crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1))); }

static uint32_t by_bits(uint32_t crc)
{
    for (int bit = 0; bit < 8; bit++) crc = by_bits_once(crc);
    return crc;
}

static uint32_t by_table(uint32_t crc, const uint8_t *p, size_t bytes)
{
    uint32_t table[4][256];
    if (bytes < 1024) {
        for (size_t i = 0; i < bytes; i++) crc = by_bits(crc ^ p[i]);
        return crc;
    }
    for (uint32_t i = 0; i < 256; i++) table[0][i] = by_bits(i);
    for (int t = 1; t < 4; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    size_t i = 0;
    for (; i + 4 <= bytes; i += 4) {
        crc ^= p[i] | (uint32_t)p[i + 1] << 8 | (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 3] << 24;
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
    }
    for (; i < bytes; i++) crc = crc >> 8 ^ table[0][(crc ^ p[i]) & 255];
    return crc;
}

/* a times b as polynomials, modulo that of the CRC; bits as a CRC has them, the highest power lowest. */
static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1) product ^= b;
        b = by_bits_once(b);
    }
    return product;
}

enum { STRIP_BITS = 16, STRIP = 1 << (STRIP_BITS - 3) }; /* 8 KiB */
enum { LINE = 64, AHEAD = 512 }; /* weights come from memory: fetching them ahead saves an eighth */

/* Three strips at once, for the instruction has its result three cycles after it begins: each by itself, then moved past the
 * strips behind it, which is a product with x to the number of their bits. */
static uint64_t by_strips(uint64_t crc, const uint8_t **at, size_t *bytes)
{
    uint32_t one = 1u << 30; /* x */
    for (int i = 0; i < STRIP_BITS; i++) one = times(one, one);
    const uint32_t two = times(one, one);
    for (; *bytes >= 3 * STRIP; *at += 3 * STRIP, *bytes -= 3 * STRIP) {
        uint64_t b = 0, c = 0;
        for (const uint8_t *p = *at, *line = p; p < *at + STRIP; p = line) {
            for (int strip = 0; strip < 3; strip++) __builtin_prefetch(p + strip * STRIP + AHEAD);
            for (line += LINE; p < line; p += 8) {
                crc = step8(crc, word_at(p));
                b = step8(b, word_at(p + STRIP));
                c = step8(c, word_at(p + 2 * STRIP));
            }
        }
        crc = times((uint32_t)crc, two) ^ times((uint32_t)b, one) ^ (uint32_t)c;
    }
    return crc;
}

uint32_t mp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    static _Atomic int known; /* asking takes longer than most pieces: 1 no, 2 yes */
    const uint8_t *p = data;
    if (!known) {
        mp_cpu cpu;
        mp_cpu_detect(&cpu);
        known = has_instruction(&cpu) ? 2 : 1;
    }
    crc = ~crc;
    if (known == 2) {
        uint64_t wide = bytes < 3 * STRIP ? crc : by_strips(crc, &p, &bytes);
        for (; bytes >= 8; p += 8, bytes -= 8) wide = step8(wide, word_at(p));
        crc = (uint32_t)wide;
    }
    return ~by_table(crc, p, bytes);
}
