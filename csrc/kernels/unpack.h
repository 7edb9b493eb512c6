/* Weights of fewer than eight bits (conv/narrow.h says how they lie) -> what tiles multiply, a block of 128 at a time. Written
 * once with vector types of the compiler; words are of 64 bits, since every CPU shifts those in vectors. */
#define UNPACK_WORDS (VL * 4 > 8 ? VL * 4 / 8 : 1)
typedef uint64_t uw __attribute__((vector_size(8 * UNPACK_WORDS)));
typedef int8_t uw_s8 __attribute__((vector_size(8 * UNPACK_WORDS)));
typedef int8_t uw_half_s8 __attribute__((vector_size(4 * UNPACK_WORDS)));
typedef int16_t uw_s16 __attribute__((vector_size(8 * UNPACK_WORDS)));

/* Words first, first + 1, ... of a plane of `count` words, and over again. */
static inline __attribute__((always_inline)) uw unpack_words(const char *plane, const int first, const int count)
{
    uw x;
    if (count >= UNPACK_WORDS) {
        memcpy(&x, plane + 8 * (first % count), sizeof x);
        return x;
    }
    uint64_t words[8];
    memcpy(words, plane, 8 * (size_t)count);
    for (int i = 0; i < UNPACK_WORDS; i++) x[i] = words[i % count];
    return x;
}

/* For words first, first + 1, ...: low + step * (word / count). */
static inline __attribute__((always_inline)) uw unpack_shifts(const int first, const int count, const int low,
                                                              const int step)
{
    uw x;
    for (int i = 0; i < UNPACK_WORDS; i++) x[i] = (uint64_t)(low + step * ((first + i) / count));
    return x;
}
#define UNPACK_BYTES(X) ((uw){0} + 0x0101010101010101u * (X))

static inline __attribute__((always_inline)) void unpack_blocks(const int bits, const int wide, const char *packed,
                                                                size_t blocks, char *out)
{
    const int fours = bits & 4 ? 64 : 0, twos = bits & 2 ? 32 : 0;
    const uint64_t sign = (uint64_t)1 << (bits - 1);
    for (size_t block = 0; block < blocks; block++, packed += 16 * bits)
        _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) _Pragma(
            "GCC unroll 8") for (int first = 0; first < 8; first += UNPACK_WORDS, out += (wide ? 2 : 1) * sizeof(uw))
        {
            uw x = {0};
            if (bits & 4) x = (unpack_words(packed, first, 8) >> (uint64_t)(4 * half)) & UNPACK_BYTES(15);
            if (bits & 2) {
                const uw two = unpack_words(packed + fours, first, 4) >> unpack_shifts(first, 4, 4 * half, 2);
                x |= (two & UNPACK_BYTES(3)) << (uint64_t)(bits & 4);
            }
            if (bits & 1) {
                const uw one = unpack_words(packed + fours + twos, first, 2) >> unpack_shifts(first, 2, 4 * half, 1);
                x |= (one & UNPACK_BYTES(1)) << (uint64_t)(bits & 6);
            }
            const uw_s8 codes = (uw_s8)(x ^ UNPACK_BYTES(sign)) - (uw_s8)UNPACK_BYTES(sign);
            if (wide) {
                uw_half_s8 halves[2];
                memcpy(halves, &codes, sizeof codes);
                for (int i = 0; i < 2; i++) {
                    const uw_s16 widened = __builtin_convertvector(halves[i], uw_s16);
                    memcpy(out + i * sizeof widened, &widened, sizeof widened);
                }
            } else {
                memcpy(out, &codes, sizeof codes);
            }
        }
}

static void unpack(const void *packed, size_t blocks, int bits, int weight_type, void *out)
{
    const int wide = weight_type == MP_W_I16;
#define UNPACK_CASE(BITS)                                                                                              \
    case BITS: wide ? unpack_blocks(BITS, 1, packed, blocks, out) : unpack_blocks(BITS, 0, packed, blocks, out); break;
    switch (bits) {
        UNPACK_CASE(2) UNPACK_CASE(3) UNPACK_CASE(4) UNPACK_CASE(5) UNPACK_CASE(6) UNPACK_CASE(7)
    }
}

/* Products are codes of eight bits again, so that only their low bits count. */
typedef uint16_t uw_u16 __attribute__((vector_size(8 * UNPACK_WORDS)));

/* Two codes a lane: the low byte of a product depends on low bytes alone, and a high byte alone makes only a high one. */
static inline __attribute__((always_inline)) uw_u16 multiply_bytes(uw_u16 x, uw_u16 low, uw_u16 high)
{
    return ((x * low) & 0x00ff) | ((x & 0xff00) * high);
}

static inline __attribute__((always_inline)) void
multiply_codes_of(const size_t bytes, char *codes, const int8_t *multipliers, size_t width, size_t steps)
{
    enum { BYTES = sizeof(uw_u16) };
    const size_t row = width * bytes;
    size_t at = 0;
    for (; at + BYTES <= row; at += BYTES) {
        uw_u16 low, high = {0};
        if (bytes == 2) {
            uw_half_s8 narrow;
            memcpy(&narrow, multipliers + at / 2, sizeof narrow);
            low = __builtin_convertvector(narrow, uw_u16);
        } else {
            memcpy(&low, multipliers + at, sizeof low);
            high = low >> 8;
        }
        char *to = codes + at;
        for (size_t step = 0; step < steps; step++, to += row) {
            uw_u16 x;
            memcpy(&x, to, sizeof x);
            x = bytes == 2 ? x * low : multiply_bytes(x, low, high);
            memcpy(to, &x, sizeof x);
        }
    }
    for (at /= bytes; at < width; at++)
        for (size_t step = 0; step < steps; step++) {
            if (bytes == 2)
                ((int16_t *)codes)[step * width + at] *= multipliers[at];
            else
                ((int8_t *)codes)[step * width + at] *= multipliers[at];
        }
}

static void multiply_codes(void *codes, const int8_t *multipliers, size_t width, size_t steps, int weight_type)
{
    if (weight_type == MP_W_I16)
        multiply_codes_of(2, codes, multipliers, width, steps);
    else
        multiply_codes_of(1, codes, multipliers, width, steps);
}
