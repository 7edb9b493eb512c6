/* SPDX-License-Identifier: MIT */
/* Weights of fewer than eight bits (conv/narrow.h says how they lie) -> what tiles multiply, a block of 128 at a time. Written
 * once with vector types of the compiler; words are of 64 bits, since every CPU shifts those in vectors.
 *
 * UNPACK_NR, UNPACK_CHANNEL: channels of a step of the level's int8 tiles, and a channel's bytes of it, where these are not 2 VL and 4. */
#ifndef UNPACK_NR
#define UNPACK_NR (2 * VL)
#define UNPACK_CHANNEL (VL > 1 ? 4 : 2)
#endif
#define UNPACK_WORDS (VL * 4 > 8 ? VL * 4 / 8 : 1)
typedef uint64_t uw __attribute__((vector_size(8 * UNPACK_WORDS)));
typedef uint8_t uw_u8 __attribute__((vector_size(8 * UNPACK_WORDS)));
typedef uint16_t uw_u16 __attribute__((vector_size(8 * UNPACK_WORDS)));

/* Words first, first + 1, ... of a plane of `count` words, and over again. */
static inline __attribute__((always_inline)) uw unpack_words(const char *plane, const int first, const int count)
{
#ifdef MP_LONG_VECTORS
    if (count < UNPACK_WORDS) return (uw)vi_repeat(plane, 8 * count);
#endif
    uw x;
    memcpy(&x, plane + 8 * (first % count), sizeof x);
    return x;
}

/* x in every byte, or every pair of them. */
#define UNPACK_LANES(WIDE, X) ((uw){0} + ((WIDE) ? UINT64_C(0x0001000100010001) : UINT64_C(0x0101010101010101)) * (X))

/* What a plane of `width` bits has of the words from `first` on, at bit `to` of each code. */
static inline __attribute__((always_inline)) uw unpack_plane(const char *plane, const int width, const int wide,
                                                             const int first, const int to)
{
    const int count = 2 * width, least = width * (first / count) - to,
              most = width * ((first + UNPACK_WORDS - 1) / count) - to;
    const uw x = unpack_words(plane, first, count), mask = UNPACK_LANES(wide, ((UINT64_C(1) << width) - 1) << to);
    uw shifts;
    for (int i = 0; i < UNPACK_WORDS; i++) shifts[i] = (uint64_t)(width * ((first + i) / count));
    if (least >= 0) return (x >> (shifts - (uint64_t)to)) & mask;
    if (most <= 0) return (x << ((uint64_t)to - shifts)) & mask;
    return ((x >> shifts) << (uint64_t)to) & mask;
}

/* Of a group: its multipliers, and 2^(bits - 1) times these, for a step of a tile, or as many as fit a vector. */
enum {
    UNPACK_STEP = UNPACK_NR * UNPACK_CHANNEL,
    UNPACK_PERIOD = UNPACK_STEP > 8 * UNPACK_WORDS ? UNPACK_STEP / (8 * UNPACK_WORDS) : 1
};
typedef struct {
    uw times[UNPACK_PERIOD], less[UNPACK_PERIOD];
} unpack_group;

/* A function of its own, or clang 14 makes constants of the loop below again in each of its rounds. */
static __attribute__((noinline)) unpack_group unpack_multipliers(const int bits, const int wide, const mp_micro *tiles,
                                                                 const int8_t *multipliers)
{
    const int base = mp_multiplier_base(bits);
    const int channel = wide ? 2 * tiles->kstep : tiles->kstep, nr = tiles->nr; /* a channel's bytes of a step */
    unpack_group group;
    enum { SPREAD = UNPACK_PERIOD * UNPACK_WORDS * 4 };
    uint16_t spread[SPREAD]; /* two codes each */
    if (nr != UNPACK_NR)     /* Winograd's on ARMv8.0, so seldom that nothing is made for it */
        for (int at = 0; at < SPREAD; at++) spread[at] = (uint16_t)(multipliers[at * 2 / channel % nr] + base);
    else if (channel == 4)
        for (int at = 0; at < SPREAD; at++) spread[at] = (uint16_t)(multipliers[at / 2 % UNPACK_NR] + base);
    else if (channel == 2)
        for (int at = 0; at < SPREAD; at++) spread[at] = (uint16_t)(multipliers[at % UNPACK_NR] + base);
    else
        for (int at = 0; at < SPREAD; at++)
            spread[at] = (uint16_t)(multipliers[at * 2 / UNPACK_CHANNEL % UNPACK_NR] + base);
    memcpy(group.times, spread, sizeof group.times);
    for (int i = 0; i < UNPACK_PERIOD; i++)
        group.less[i] = (uw)((uw_u16)group.times[i] * (uint16_t)((wide ? 1 : 0x101) << (bits - 1)));
    return group;
}

/* blocks with one group's multipliers, or with none. A code and its 2^(bits - 1) take no more than `bits` bits, a multiplier 8 - bits
 * and one value more: two products of a byte each are one of 16 bits. */
static inline __attribute__((always_inline)) void
unpack_blocks(const int bits, const int wide, const unpack_group *group, const char *packed, size_t blocks, char *out)
{
    const int low = bits & 4, middle = bits & 6, words = wide ? 32 : 16;
    const uw zero = UNPACK_LANES(wide, UINT64_C(1) << (bits - 1));
    for (size_t block = 0; block < blocks; block++, packed += 16 * bits)
        _Pragma("GCC unroll 32") for (int first = 0; first < words; first += UNPACK_WORDS, out += sizeof(uw))
        {
            uw x = {0};
            if (bits & 4) x = unpack_plane(packed, 4, wide, first, 0);
            if (bits & 2) x |= unpack_plane(packed + 16 * low, 2, wide, first, low);
            if (bits & 1) x |= unpack_plane(packed + 16 * middle, 1, wide, first, middle);
            uw less = zero;
            if (group) {
                x = (uw)((uw_u16)x * (uw_u16)group->times[first / UNPACK_WORDS % UNPACK_PERIOD]);
                less = group->less[first / UNPACK_WORDS % UNPACK_PERIOD];
            }
            x = wide ? (uw)((uw_u16)x - (uw_u16)less) : (uw)((uw_u8)x - (uw_u8)less);
            memcpy(out, &x, sizeof x);
        }
}

static inline __attribute__((always_inline)) void unpack_groups(const int bits, const int wide, const char *packed,
                                                                size_t blocks, const mp_micro *tiles,
                                                                const int8_t *multipliers, size_t run, char *out)
{
    for (; blocks > 0; blocks -= run, multipliers += tiles->nr) {
        const unpack_group group = unpack_multipliers(bits, wide, tiles, multipliers);
        if (run > blocks) run = blocks;
        unpack_blocks(bits, wide, &group, packed, run, out);
        packed += run * 16 * bits;
        out += run * (wide ? 256 : 128);
    }
}

static void unpack(const void *packed, size_t blocks, int bits, int weight_type, const mp_micro *tiles,
                   const int8_t *multipliers, size_t run, void *out)
{
    const int wide = weight_type == MP_W_I16;
#define UNPACK_CASE(BITS)                                                                                              \
    case BITS:                                                                                                         \
        if (wide)                                                                                                      \
            unpack_blocks(BITS, 1, 0, packed, blocks, out);                                                            \
        else                                                                                                           \
            unpack_blocks(BITS, 0, 0, packed, blocks, out);                                                            \
        break;
#define UNPACK_GROUPS_CASE(BITS)                                                                                       \
    case BITS:                                                                                                         \
        if (wide)                                                                                                      \
            unpack_groups(BITS, 1, packed, blocks, tiles, multipliers, run, out);                                      \
        else                                                                                                           \
            unpack_groups(BITS, 0, packed, blocks, tiles, multipliers, run, out);                                      \
        break;
    if (multipliers) switch (bits) {
            UNPACK_GROUPS_CASE(3) UNPACK_GROUPS_CASE(4) UNPACK_GROUPS_CASE(5) UNPACK_GROUPS_CASE(6)
        }
    else
        switch (bits) {
            UNPACK_CASE(2) UNPACK_CASE(3) UNPACK_CASE(4) UNPACK_CASE(5) UNPACK_CASE(6)
        }
}
