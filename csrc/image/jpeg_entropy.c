/* SPDX-License-Identifier: MIT */
/* Huffman codes to coefficients, baseline and progressive (ITU-T T.81, annexes F and G). */
#include <string.h>

#include "image/jpeg.h"
#include "image/mp_jpeg.h"

/* Position in a block by place in the zigzag; the tail catches runs that lead beyond the end. */
const uint8_t JPEG_ZIGZAG[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,
    6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31,
    39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* ---- bits */

static void fill_bits(jpeg_decoder *j)
{
    while (j->count <= 48) {
        uint64_t byte = 0;
        /* A marker ends the scan's data; zeros stand for what follows, and `padded` tells whether they are used. */
        if (j->at < j->size && !(j->data[j->at] == 0xff && (j->at + 1 >= j->size || j->data[j->at + 1] != 0))) {
            byte = j->data[j->at];
            j->at += byte == 0xff ? 2 : 1;
        } else {
            j->padded += 8;
        }
        j->bits = j->bits << 8 | byte;
        j->count += 8;
    }
}

static int ran_out(const jpeg_decoder *j) { return j->count < j->padded; }

/* Notes whole bytes that were read ahead and that nothing needed. */
static void note_unused_bytes(jpeg_decoder *j)
{
    if (j->count - j->padded >= 8) j->flaws |= MP_JPEG_EXTRA_BYTES;
}

static void reset_bits(jpeg_decoder *j)
{
    j->bits = 0;
    j->count = j->padded = 0;
    j->end_run = 0;
    for (int k = 0; k < j->components; ++k) j->component[k].dc = 0;
}

static int take_bits(jpeg_decoder *j, int n)
{
    if (n == 0) return 0;
    if (j->count < n) fill_bits(j);
    j->count -= n;
    return (int)(j->bits >> j->count & ((1u << n) - 1));
}

/* A value of n bits whose leading 0 means negative. */
static int take_value(jpeg_decoder *j, int n)
{
    const int value = take_bits(j, n);
    return n > 0 && value < 1 << (n - 1) ? value - (1 << n) + 1 : value;
}

static int take_symbol(jpeg_decoder *j, const jpeg_huffman *table)
{
    if (j->count < 16) fill_bits(j);
    const int ahead = (int)(j->bits >> (j->count - 16) & 0xffff);
    const int fast = table->fast[ahead >> (16 - JPEG_FAST_BITS)];
    if (fast) {
        j->count -= fast >> 8;
        return fast & 0xff;
    }
    for (int length = JPEG_FAST_BITS + 1; length <= 16; ++length)
        if (ahead < table->last[length]) {
            j->count -= length;
            const int index = (ahead >> (16 - length)) + table->offset[length];
            return index >= 0 && index < 256 ? table->symbol[index] : JPEG_FAILED;
        }
    return JPEG_FAILED;
}

/* ---- blocks */

static int take_dc(jpeg_decoder *j, jpeg_component *c)
{
    const int bits = take_symbol(j, &j->dc[c->dc_table]);
    if (bits < 0 || bits > 15) return JPEG_FAILED;
    c->dc += take_value(j, bits);
    /* Eight-bit images need 12 bits; beyond 15 the product with a quantiser could leave 32. */
    return c->dc > 1 << 14 || c->dc < -(1 << 14) ? JPEG_FAILED : 0;
}

/* Dequantised; returns the last place in the zigzag that is not zero, or JPEG_FAILED. */
static int baseline_block(jpeg_decoder *j, jpeg_component *c, int16_t *block)
{
    const uint16_t *quant = j->quant[c->quant];
    memset(block, 0, 64 * sizeof *block);
    if (take_dc(j, c)) return JPEG_FAILED;
    block[0] = (int16_t)(uint32_t)(c->dc * (int32_t)quant[0]);
    int last = 0;
    for (int k = 1; k < 64; ++k) {
        const int symbol = take_symbol(j, &j->ac[c->ac_table]);
        if (symbol < 0) return JPEG_FAILED;
        const int size = symbol & 15, run = symbol >> 4;
        if (size == 0) {
            if (run != 15) break;
            k += 15;
            continue;
        }
        k += run;
        if (k > 63) return JPEG_FAILED;
        const int at = JPEG_ZIGZAG[k];
        block[at] = (int16_t)(uint32_t)(take_value(j, size) * (int32_t)quant[at]);
        last = k;
    }
    return last;
}

static int progressive_dc(jpeg_decoder *j, jpeg_component *c, int16_t *block)
{
    if (j->high == 0) {
        if (take_dc(j, c)) return JPEG_FAILED;
        block[0] = (int16_t)(uint32_t)(c->dc * (1 << j->low));
    } else if (take_bits(j, 1)) {
        block[0] = (int16_t)(block[0] | 1 << j->low);
    }
    return 0;
}

static int progressive_ac_first(jpeg_decoder *j, const jpeg_huffman *table, int16_t *block)
{
    if (j->end_run > 0) {
        --j->end_run;
        return 0;
    }
    for (int k = j->band_start; k <= j->band_end; ++k) {
        const int symbol = take_symbol(j, table);
        if (symbol < 0) return JPEG_FAILED;
        const int size = symbol & 15, run = symbol >> 4;
        if (size == 0) {
            if (run < 15) {
                j->end_run = (1 << run) + take_bits(j, run) - 1;
                return 0;
            }
            k += 15;
            continue;
        }
        k += run;
        if (k > j->band_end) return JPEG_FAILED;
        block[JPEG_ZIGZAG[k]] = (int16_t)(uint32_t)(take_value(j, size) * (1 << j->low));
    }
    return 0;
}

/* One more bit for a coefficient that is not zero. */
static void refine(jpeg_decoder *j, int16_t *value)
{
    const int bit = 1 << j->low;
    if (take_bits(j, 1) && !(*value & bit)) *value = (int16_t)(*value > 0 ? *value + bit : *value - bit);
}

static int progressive_ac_refine(jpeg_decoder *j, const jpeg_huffman *table, int16_t *block)
{
    int k = j->band_start;
    if (j->end_run == 0) {
        while (k <= j->band_end) {
            const int symbol = take_symbol(j, table);
            if (symbol < 0) return JPEG_FAILED;
            int run = symbol >> 4, fresh = 0;
            const int size = symbol & 15;
            if (size == 0) {
                if (run < 15) {
                    j->end_run = (1 << run) + take_bits(j, run);
                    break;
                }
            } else if (size == 1) {
                fresh = take_bits(j, 1) ? 1 << j->low : -(1 << j->low);
            } else {
                return JPEG_FAILED;
            }
            /* Skip `run` zeros, refining what is not zero on the way; the next zero takes the new value. */
            for (; k <= j->band_end; ++k) {
                int16_t *value = &block[JPEG_ZIGZAG[k]];
                if (*value) {
                    refine(j, value);
                } else if (run-- == 0) {
                    if (fresh) *value = (int16_t)fresh;
                    ++k;
                    break;
                }
            }
        }
    }
    if (j->end_run > 0) {
        for (; k <= j->band_end; ++k)
            if (block[JPEG_ZIGZAG[k]]) refine(j, &block[JPEG_ZIGZAG[k]]);
        --j->end_run;
    }
    return 0;
}

static int one_block(jpeg_decoder *j, jpeg_component *c, int bx, int by)
{
    if (!j->progressive) {
        int16_t block[64];
        const int last = baseline_block(j, c, block);
        if (last < 0) return JPEG_FAILED;
        const int64_t stride = (int64_t)c->blocks_w * 8;
        jpeg_block(block, last == 0, c->plane + by * 8 * stride + bx * 8, stride);
        return 0;
    }
    int16_t *block = c->coefficients + 64 * ((int64_t)by * c->blocks_w + bx);
    if (j->band_start == 0) return progressive_dc(j, c, block);
    const jpeg_huffman *table = &j->ac[c->ac_table];
    return j->high == 0 ? progressive_ac_first(j, table, block) : progressive_ac_refine(j, table, block);
}

/* After so many MCUs a restart marker stands in the data, if the file says so. */
static int at_restart(jpeg_decoder *j, int *left)
{
    if (j->restart == 0 || --*left > 0) return 0;
    if (ran_out(j)) return JPEG_FAILED;
    /* Bytes that were read ahead are marker-free by construction, so the marker is where reading stopped or later. */
    const int flaws = j->flaws;
    j->flaws = 0;
    note_unused_bytes(j);
    const int marker = jpeg_next_marker(j), number = j->restarts++ & 7;
    /* Behind bytes that do not belong there, another number means that blocks are lost. */
    if ((marker & ~7) != 0xd0 || (j->flaws && marker != 0xd0 + number)) return JPEG_FAILED;
    j->flaws |= flaws;
    reset_bits(j);
    *left = j->restart;
    return 0;
}

int jpeg_scan(jpeg_decoder *j, const int *chosen, int count)
{
    reset_bits(j);
    j->restarts = 0;
    int left = j->restart;
    if (count == 1) {
        jpeg_component *c = &j->component[chosen[0]];
        const int w = (c->width + 7) >> 3, h = (c->height + 7) >> 3;
        for (int by = 0; by < h; ++by) {
            if (ran_out(j)) return JPEG_FAILED;
            for (int bx = 0; bx < w; ++bx) {
                if (one_block(j, c, bx, by)) return JPEG_FAILED;
                if ((bx + 1 < w || by + 1 < h) && at_restart(j, &left)) return JPEG_FAILED;
            }
        }
    } else {
        for (int my = 0; my < j->mcus_h; ++my) {
            if (ran_out(j)) return JPEG_FAILED;
            for (int mx = 0; mx < j->mcus_w; ++mx) {
                for (int k = 0; k < count; ++k) {
                    jpeg_component *c = &j->component[chosen[k]];
                    for (int y = 0; y < c->v; ++y)
                        for (int x = 0; x < c->h; ++x)
                            if (one_block(j, c, mx * c->h + x, my * c->v + y)) return JPEG_FAILED;
                }
                if ((mx + 1 < j->mcus_w || my + 1 < j->mcus_h) && at_restart(j, &left)) return JPEG_FAILED;
            }
        }
    }
    note_unused_bytes(j);
    return ran_out(j) ? JPEG_FAILED : 0;
}
