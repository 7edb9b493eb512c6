/* Markers, Huffman codes and coefficients of baseline and progressive JPEG (ITU-T T.81). */
#include <stddef.h>
#include <string.h>

#include "mpnet.h"
#include "picture/jpeg.h"
#include "picture/mp_jpeg.h"

enum { MAX_SCANS = 100, MAX_COMPONENT_FACTOR = 4, FAILED = -1 };

/* Position in a block by place in the zigzag; the tail catches runs that lead beyond the end. */
static const uint8_t ZIGZAG[64 + 16] = {
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55,
    62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* ---- bits */

static void fill_bits(jpeg_decoder *j) {
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

static void reset_bits(jpeg_decoder *j) {
    j->bits = 0;
    j->count = j->padded = 0;
    j->end_run = 0;
    for (int k = 0; k < j->components; ++k) j->component[k].dc = 0;
}

static int take_bits(jpeg_decoder *j, int n) {
    if (n == 0) return 0;
    if (j->count < n) fill_bits(j);
    j->count -= n;
    return (int)(j->bits >> j->count & ((1u << n) - 1));
}

/* A value of n bits whose leading 0 means negative. */
static int take_value(jpeg_decoder *j, int n) {
    const int value = take_bits(j, n);
    return n > 0 && value < 1 << (n - 1) ? value - (1 << n) + 1 : value;
}

static int take_symbol(jpeg_decoder *j, const jpeg_huffman *table) {
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
            return index >= 0 && index < 256 ? table->symbol[index] : FAILED;
        }
    return FAILED;
}

/* ---- blocks */

static int take_dc(jpeg_decoder *j, jpeg_component *c) {
    const int bits = take_symbol(j, &j->dc[c->dc_table]);
    if (bits < 0 || bits > 15) return FAILED;
    c->dc += take_value(j, bits);
    /* Eight-bit pictures need 12 bits; beyond 15 the product with a quantiser could leave 32. */
    return c->dc > 1 << 14 || c->dc < -(1 << 14) ? FAILED : 0;
}

/* Dequantised; returns the last place in the zigzag that is not zero, or FAILED. */
static int baseline_block(jpeg_decoder *j, jpeg_component *c, int16_t *block) {
    const uint16_t *quant = j->quant[c->quant];
    memset(block, 0, 64 * sizeof *block);
    if (take_dc(j, c)) return FAILED;
    block[0] = (int16_t)(uint32_t)(c->dc * (int32_t)quant[0]);
    int last = 0;
    for (int k = 1; k < 64; ++k) {
        const int symbol = take_symbol(j, &j->ac[c->ac_table]);
        if (symbol < 0) return FAILED;
        const int size = symbol & 15, run = symbol >> 4;
        if (size == 0) {
            if (run != 15) break;
            k += 15;
            continue;
        }
        k += run;
        if (k > 63) return FAILED;
        const int at = ZIGZAG[k];
        block[at] = (int16_t)(uint32_t)(take_value(j, size) * (int32_t)quant[at]);
        last = k;
    }
    return last;
}

static int progressive_dc(jpeg_decoder *j, jpeg_component *c, int16_t *block) {
    if (j->high == 0) {
        if (take_dc(j, c)) return FAILED;
        block[0] = (int16_t)(uint32_t)(c->dc * (1 << j->low));
    } else if (take_bits(j, 1)) {
        block[0] = (int16_t)(block[0] | 1 << j->low);
    }
    return 0;
}

static int progressive_ac_first(jpeg_decoder *j, const jpeg_huffman *table, int16_t *block) {
    if (j->end_run > 0) {
        --j->end_run;
        return 0;
    }
    for (int k = j->band_start; k <= j->band_end; ++k) {
        const int symbol = take_symbol(j, table);
        if (symbol < 0) return FAILED;
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
        if (k > j->band_end) return FAILED;
        block[ZIGZAG[k]] = (int16_t)(uint32_t)(take_value(j, size) * (1 << j->low));
    }
    return 0;
}

/* One more bit for a coefficient that is not zero. */
static void refine(jpeg_decoder *j, int16_t *value) {
    const int bit = 1 << j->low;
    if (take_bits(j, 1) && !(*value & bit)) *value = (int16_t)(*value > 0 ? *value + bit : *value - bit);
}

static int progressive_ac_refine(jpeg_decoder *j, const jpeg_huffman *table, int16_t *block) {
    int k = j->band_start;
    if (j->end_run == 0) {
        while (k <= j->band_end) {
            const int symbol = take_symbol(j, table);
            if (symbol < 0) return FAILED;
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
                return FAILED;
            }
            /* Skip `run` zeros, refining what is not zero on the way; the next zero takes the new value. */
            for (; k <= j->band_end; ++k) {
                int16_t *value = &block[ZIGZAG[k]];
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
            if (block[ZIGZAG[k]]) refine(j, &block[ZIGZAG[k]]);
        --j->end_run;
    }
    return 0;
}

static int one_block(jpeg_decoder *j, jpeg_component *c, int bx, int by) {
    if (!j->progressive) {
        int16_t block[64];
        const int last = baseline_block(j, c, block);
        if (last < 0) return FAILED;
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
static int at_restart(jpeg_decoder *j, int *left) {
    if (j->restart == 0 || --*left > 0) return 0;
    if (ran_out(j)) return FAILED;
    /* Whole bytes that were read ahead are marker-free by construction, so the marker is where reading stopped. */
    if (j->count - j->padded >= 8 || j->at + 1 >= j->size || j->data[j->at] != 0xff ||
        (j->data[j->at + 1] & 0xf8) != 0xd0)
        return FAILED;
    j->at += 2;
    reset_bits(j);
    *left = j->restart;
    return 0;
}

static int scan_blocks(jpeg_decoder *j, const int *chosen, int count) {
    reset_bits(j);
    int left = j->restart;
    if (count == 1) {
        jpeg_component *c = &j->component[chosen[0]];
        const int w = (c->width + 7) >> 3, h = (c->height + 7) >> 3;
        for (int by = 0; by < h; ++by) {
            if (ran_out(j)) return FAILED;
            for (int bx = 0; bx < w; ++bx) {
                if (one_block(j, c, bx, by)) return FAILED;
                if ((bx + 1 < w || by + 1 < h) && at_restart(j, &left)) return FAILED;
            }
        }
    } else {
        for (int my = 0; my < j->mcus_h; ++my) {
            if (ran_out(j)) return FAILED;
            for (int mx = 0; mx < j->mcus_w; ++mx) {
                for (int k = 0; k < count; ++k) {
                    jpeg_component *c = &j->component[chosen[k]];
                    for (int y = 0; y < c->v; ++y)
                        for (int x = 0; x < c->h; ++x)
                            if (one_block(j, c, mx * c->h + x, my * c->v + y)) return FAILED;
                }
                if ((mx + 1 < j->mcus_w || my + 1 < j->mcus_h) && at_restart(j, &left)) return FAILED;
            }
        }
    }
    return ran_out(j) ? FAILED : 0;
}

/* ---- segments; p points behind the length, n bytes follow */

static int read_quant(jpeg_decoder *j, const uint8_t *p, int64_t n) {
    while (n > 0) {
        const int wide = p[0] >> 4, id = p[0] & 15, bytes = wide ? 128 : 64;
        if (wide > 1 || id > 3 || n < 1 + bytes) return FAILED;
        for (int k = 0; k < 64; ++k)
            j->quant[id][ZIGZAG[k]] = wide ? (uint16_t)(p[1 + 2 * k] << 8 | p[2 + 2 * k]) : p[1 + k];
        p += 1 + bytes;
        n -= 1 + bytes;
    }
    return 0;
}

static int read_huffman(jpeg_decoder *j, const uint8_t *p, int64_t n) {
    while (n >= 17) {
        const int id = p[0] & 15;
        if ((p[0] >> 4) > 1 || id > 3) return FAILED;
        jpeg_huffman *table = p[0] >> 4 ? &j->ac[id] : &j->dc[id];
        memset(table, 0, sizeof *table);
        int code = 0, total = 0;
        for (int length = 1; length <= 16; ++length) {
            const int count = p[length];
            if (total + count > 256 || code + count > 1 << length) return FAILED;
            if (17 + total + count > n) return FAILED;
            table->offset[length] = total - code;
            for (int k = 0; k < count; ++k) {
                const int symbol = table->symbol[total + k] = p[17 + total + k];
                if (length <= JPEG_FAST_BITS)
                    for (int fill = 0; fill < 1 << (JPEG_FAST_BITS - length); ++fill)
                        table->fast[((code + k) << (JPEG_FAST_BITS - length)) + fill] = (uint16_t)(length << 8 | symbol);
            }
            code += count;
            total += count;
            table->last[length] = code << (16 - length);
            code <<= 1;
        }
        table->defined = 1;
        p += 17 + total;
        n -= 17 + total;
    }
    return n == 0 ? 0 : FAILED;
}

static int read_frame(jpeg_decoder *j, const uint8_t *p, int64_t n, int32_t width, int32_t height) {
    if (j->components || n < 6 || p[0] != 8) return FAILED;
    j->height = p[1] << 8 | p[2];
    j->width = p[3] << 8 | p[4];
    const int count = p[5];
    if (j->width != width || j->height != height || (count != 1 && count != 3) || n != 6 + 3 * count) return FAILED;
    j->max_h = j->max_v = 1;
    for (int k = 0; k < count; ++k) {
        jpeg_component *c = &j->component[k];
        c->id = p[6 + 3 * k];
        c->h = p[7 + 3 * k] >> 4;
        c->v = p[7 + 3 * k] & 15;
        c->quant = p[8 + 3 * k];
        if (c->h < 1 || c->h > MAX_COMPONENT_FACTOR || c->v < 1 || c->v > MAX_COMPONENT_FACTOR || c->quant > 3) return FAILED;
        if (c->h > j->max_h) j->max_h = c->h;
        if (c->v > j->max_v) j->max_v = c->v;
    }
    for (int k = 0; k < count; ++k)
        if (j->max_h % j->component[k].h || j->max_v % j->component[k].v) return FAILED;
    j->mcus_w = (width + 8 * j->max_h - 1) / (8 * j->max_h);
    j->mcus_h = (height + 8 * j->max_v - 1) / (8 * j->max_v);
    for (int k = 0; k < count; ++k) {
        jpeg_component *c = &j->component[k];
        c->width = (width * c->h + j->max_h - 1) / j->max_h;
        c->height = (height * c->v + j->max_v - 1) / j->max_v;
        c->blocks_w = j->mcus_w * c->h;
        c->blocks_h = j->mcus_h * c->v;
    }
    j->components = count;
    return 0;
}

/* The header of a scan; the components it holds go to `chosen`. Returns their number. */
static int read_scan(jpeg_decoder *j, const uint8_t *p, int64_t n, int *chosen) {
    const int count = n > 0 ? p[0] : 0;
    if (count < 1 || count > j->components || n != 4 + 2 * count) return FAILED;
    for (int s = 0; s < count; ++s) {
        int k = 0;
        while (k < j->components && j->component[k].id != p[1 + 2 * s]) ++k;
        for (int before = 0; before < s; ++before)
            if (chosen[before] == k) return FAILED;
        if (k == j->components || (p[2 + 2 * s] >> 4) > 3 || (p[2 + 2 * s] & 15) > 3) return FAILED;
        chosen[s] = k;
        j->component[k].dc_table = p[2 + 2 * s] >> 4;
        j->component[k].ac_table = p[2 + 2 * s] & 15;
    }
    const uint8_t *tail = p + 1 + 2 * count;
    j->band_start = tail[0];
    j->band_end = tail[1];
    j->high = tail[2] >> 4;
    j->low = tail[2] & 15;
    if (j->progressive) {
        if (j->band_start > j->band_end || j->band_end > 63 || j->high > 13 || j->low > 13) return FAILED;
        if (j->band_start == 0 ? j->band_end != 0 : count != 1) return FAILED;
    } else if (j->band_start || j->band_end != 63 || j->high || j->low) {
        return FAILED;
    }
    for (int s = 0; s < count; ++s) {
        const jpeg_component *c = &j->component[chosen[s]];
        const int needs_dc = j->band_start == 0 && j->high == 0, needs_ac = j->band_end > 0;
        if ((needs_dc && !j->dc[c->dc_table].defined) || (needs_ac && !j->ac[c->ac_table].defined)) return FAILED;
    }
    return count;
}

/* ---- files */

static int64_t plane_bytes(const jpeg_component *c) { return (int64_t)c->blocks_w * c->blocks_h * 64; }

static int64_t needed_bytes(const jpeg_decoder *j) {
    int64_t total = (sizeof(jpeg_decoder) + 63) / 64 * 64 + 3 * ((int64_t)j->width + 16);
    for (int k = 0; k < j->components; ++k)
        total += plane_bytes(&j->component[k]) * (j->progressive ? 1 + (int64_t)sizeof(int16_t) : 1);
    return total + 64;
}

/* Reads on to the next marker that carries something; its segment is p[0 .. *n). Returns the marker, or FAILED. */
static int next_segment(jpeg_decoder *j, const uint8_t **p, int64_t *n) {
    while (j->at < j->size && j->data[j->at] != 0xff) ++j->at;
    while (j->at < j->size && j->data[j->at] == 0xff) ++j->at;
    if (j->at >= j->size) return FAILED;
    const int marker = j->data[j->at++];
    *n = 0;
    if (marker == 0 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd9)) return marker;
    if (j->at + 2 > j->size) return FAILED;
    const int64_t length = j->data[j->at] << 8 | j->data[j->at + 1];
    if (length < 2 || j->at + length > j->size) return FAILED;
    *p = j->data + j->at + 2;
    *n = length - 2;
    j->at += length;
    return marker;
}

/* A segment that is neither a frame nor a scan. */
static int read_other(jpeg_decoder *j, int marker, const uint8_t *p, int64_t n) {
    if (marker == 0xdb) return read_quant(j, p, n);
    if (marker == 0xc4) return read_huffman(j, p, n);
    if (marker == 0xdd) {
        if (n != 2) return FAILED;
        j->restart = p[0] << 8 | p[1];
    } else if (marker == 0xe0 && n >= 5 && memcmp(p, "JFIF", 5) == 0) {
        j->jfif = 1;
    } else if (marker == 0xee && n >= 12 && memcmp(p, "Adobe", 5) == 0) {
        j->adobe_transform = p[11];
    }
    return 0;
}

static void start(jpeg_decoder *j, const uint8_t *data, int64_t size) {
    memset(j, 0, sizeof *j);
    j->data = data;
    j->size = size;
    j->at = 2;
    j->adobe_transform = -1;
}

/* Reads up to the frame header. */
static int find_frame(jpeg_decoder *j, int32_t width, int32_t height) {
    if (j->size < 4 || j->data[0] != 0xff || j->data[1] != 0xd8) return FAILED;
    for (;;) {
        const uint8_t *p = NULL;
        int64_t n = 0;
        const int marker = next_segment(j, &p, &n);
        if (marker < 0 || marker == 0xd9 || marker == 0xda) return FAILED;
        if (marker == 0xc0 || marker == 0xc1 || marker == 0xc2) {
            j->progressive = marker == 0xc2;
            return read_frame(j, p, n, width, height);
        }
        if (marker >= 0xc3 && marker <= 0xcf && marker != 0xc4) return FAILED; /* lossless, arithmetic, hierarchical */
        if (read_other(j, marker, p, n)) return FAILED;
    }
}

int64_t mp_jpeg_scratch(const uint8_t *data, int64_t size, int32_t width, int32_t height) {
    jpeg_decoder j;
    start(&j, data, size);
    return find_frame(&j, width, height) ? 0 : needed_bytes(&j);
}

static void dequantise_all(jpeg_decoder *j) {
    for (int k = 0; k < j->components; ++k) {
        jpeg_component *c = &j->component[k];
        const uint16_t *quant = j->quant[c->quant];
        const int64_t stride = (int64_t)c->blocks_w * 8;
        for (int64_t by = 0; by < c->blocks_h; ++by)
            for (int64_t bx = 0; bx < c->blocks_w; ++bx) {
                int16_t *block = c->coefficients + 64 * (by * c->blocks_w + bx);
                int any = 0;
                for (int i = 0; i < 64; ++i) {
                    block[i] = (int16_t)(uint32_t)(block[i] * (int32_t)quant[i]);
                    if (i) any |= block[i];
                }
                jpeg_block(block, !any, c->plane + by * 8 * stride + bx * 8, stride);
            }
    }
}

int mp_jpeg_decode(const uint8_t *data, int64_t size, int32_t width, int32_t height, void *scratch, int64_t scratch_bytes,
                   uint8_t *rgb) {
    jpeg_decoder *j = scratch;
    if (scratch_bytes < (int64_t)sizeof *j) return MP_BAD_ARGUMENT;
    start(j, data, size);
    if (find_frame(j, width, height) || scratch_bytes < needed_bytes(j)) return MP_UNSUPPORTED;
    uint8_t *memory = (uint8_t *)scratch + (sizeof *j + 63) / 64 * 64;
    for (int k = 0; k < j->components && j->progressive; ++k) {
        jpeg_component *c = &j->component[k];
        c->coefficients = (int16_t *)(void *)memory;
        memset(memory, 0, (size_t)plane_bytes(c) * sizeof(int16_t));
        memory += plane_bytes(c) * (int64_t)sizeof(int16_t);
    }
    for (int k = 0; k < j->components; ++k) {
        j->component[k].plane = memory;
        /* A scan may leave padding blocks out. */
        memset(memory, 128, (size_t)plane_bytes(&j->component[k]));
        memory += plane_bytes(&j->component[k]);
    }
    int seen[JPEG_COMPONENTS] = {0};
    for (int scans = 0;;) {
        const uint8_t *p = NULL;
        int64_t n = 0;
        const int marker = next_segment(j, &p, &n);
        if (marker < 0) return MP_UNSUPPORTED;
        if (marker == 0xd9) break;
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4) return MP_UNSUPPORTED;
        if (marker != 0xda) {
            if (marker >= 0xd0 && marker <= 0xd7) return MP_UNSUPPORTED; /* a restart nobody asked for */
            if (read_other(j, marker, p, n)) return MP_UNSUPPORTED;
            continue;
        }
        int chosen[JPEG_COMPONENTS];
        const int count = read_scan(j, p, n, chosen);
        if (count < 0 || ++scans > MAX_SCANS || scan_blocks(j, chosen, count)) return MP_UNSUPPORTED;
        for (int s = 0; s < count; ++s) seen[chosen[s]] = 1;
    }
    for (int k = 0; k < j->components; ++k)
        if (!seen[k]) return MP_UNSUPPORTED;
    if (j->progressive) dequantise_all(j);
    jpeg_colours(j, memory, rgb);
    return MP_OK;
}
