/* SPDX-License-Identifier: MIT */
/* The segments of a JPEG file: quantisers, codes, frame and scan headers (ITU-T T.81, annex B). */
#include <string.h>

#include "image/jpeg.h"
#include "image/mp_jpeg.h"

enum { MAX_COMPONENT_FACTOR = 4 };

static int read_quant(jpeg_decoder *j, const uint8_t *p, int64_t n)
{
    while (n > 0) {
        const int wide = p[0] >> 4, id = p[0] & 15, bytes = wide ? 128 : 64;
        if (wide > 1 || id > 3 || n < 1 + bytes) return JPEG_FAILED;
        for (int k = 0; k < 64; ++k)
            j->quant[id][JPEG_ZIGZAG[k]] = wide ? (uint16_t)(p[1 + 2 * k] << 8 | p[2 + 2 * k]) : p[1 + k];
        p += 1 + bytes;
        n -= 1 + bytes;
    }
    return 0;
}

static int read_huffman(jpeg_decoder *j, const uint8_t *p, int64_t n)
{
    while (n >= 17) {
        const int id = p[0] & 15;
        if ((p[0] >> 4) > 1 || id > 3) return JPEG_FAILED;
        jpeg_huffman *table = p[0] >> 4 ? &j->ac[id] : &j->dc[id];
        memset(table, 0, sizeof *table);
        int code = 0, total = 0;
        for (int length = 1; length <= 16; ++length) {
            const int count = p[length];
            if (total + count > 256 || code + count > 1 << length) return JPEG_FAILED;
            if (17 + total + count > n) return JPEG_FAILED;
            table->offset[length] = total - code;
            for (int k = 0; k < count; ++k) {
                const int symbol = table->symbol[total + k] = p[17 + total + k];
                if (length <= JPEG_FAST_BITS)
                    for (int fill = 0; fill < 1 << (JPEG_FAST_BITS - length); ++fill)
                        table->fast[((code + k) << (JPEG_FAST_BITS - length)) + fill] =
                            (uint16_t)(length << 8 | symbol);
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
    return n == 0 ? 0 : JPEG_FAILED;
}

static int read_frame(jpeg_decoder *j, const uint8_t *p, int64_t n, int32_t width, int32_t height)
{
    if (j->components || n < 6 || p[0] != 8) return JPEG_FAILED;
    j->height = p[1] << 8 | p[2];
    j->width = p[3] << 8 | p[4];
    const int count = p[5];
    if (!width && !height) {
        width = j->width;
        height = j->height;
    }
    if (width < 1 || height < 1 || j->width != width || j->height != height || (count != 1 && count != 3) ||
        n != 6 + 3 * count)
        return JPEG_FAILED;
    j->max_h = j->max_v = 1;
    for (int k = 0; k < count; ++k) {
        jpeg_component *c = &j->component[k];
        c->id = p[6 + 3 * k];
        c->h = p[7 + 3 * k] >> 4;
        c->v = p[7 + 3 * k] & 15;
        c->quant = p[8 + 3 * k];
        if (c->h < 1 || c->h > MAX_COMPONENT_FACTOR || c->v < 1 || c->v > MAX_COMPONENT_FACTOR || c->quant > 3)
            return JPEG_FAILED;
        if (c->h > j->max_h) j->max_h = c->h;
        if (c->v > j->max_v) j->max_v = c->v;
    }
    for (int k = 0; k < count; ++k)
        if (j->max_h % j->component[k].h || j->max_v % j->component[k].v) return JPEG_FAILED;
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
int jpeg_scan_header(jpeg_decoder *j, const uint8_t *p, int64_t n, int *chosen)
{
    const int count = n > 0 ? p[0] : 0;
    if (count < 1 || count > j->components || n != 4 + 2 * count) return JPEG_FAILED;
    for (int s = 0; s < count; ++s) {
        int k = 0;
        while (k < j->components && j->component[k].id != p[1 + 2 * s]) ++k;
        for (int before = 0; before < s; ++before)
            if (chosen[before] == k) return JPEG_FAILED;
        if (k == j->components || (p[2 + 2 * s] >> 4) > 3 || (p[2 + 2 * s] & 15) > 3) return JPEG_FAILED;
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
        if (j->band_start > j->band_end || j->band_end > 63 || j->high > 13 || j->low > 13) return JPEG_FAILED;
        if (j->band_start == 0 ? j->band_end != 0 : count != 1) return JPEG_FAILED;
    } else if (j->band_start || j->band_end != 63 || j->high || j->low) {
        return JPEG_FAILED;
    }
    for (int s = 0; s < count; ++s) {
        const jpeg_component *c = &j->component[chosen[s]];
        const int needs_dc = j->band_start == 0 && j->high == 0, needs_ac = j->band_end > 0;
        if ((needs_dc && !j->dc[c->dc_table].defined) || (needs_ac && !j->ac[c->ac_table].defined)) return JPEG_FAILED;
    }
    return count;
}

/* Reads to behind the next marker, which any number of 0xff may precede. Returns it, or JPEG_FAILED. */
int jpeg_next_marker(jpeg_decoder *j)
{
    for (;;) {
        const int64_t from = j->at;
        while (j->at < j->size && j->data[j->at] != 0xff) ++j->at;
        const int64_t marker_at = j->at;
        while (j->at < j->size && j->data[j->at] == 0xff) ++j->at;
        if (j->at >= j->size) return JPEG_FAILED;
        const int marker = j->data[j->at++];
        if (marker_at > from || marker == 0) j->flaws |= MP_JPEG_EXTRA_BYTES;
        if (marker != 0) return marker;
    }
}

/* Reads on to the next marker that carries something; its segment is p[0 .. *n). Returns the marker, or JPEG_FAILED. */
int jpeg_next_segment(jpeg_decoder *j, const uint8_t **p, int64_t *n)
{
    const int marker = jpeg_next_marker(j);
    if (marker < 0) return JPEG_FAILED;
    *n = 0;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd9)) return marker;
    if (j->at + 2 > j->size) return JPEG_FAILED;
    const int64_t length = j->data[j->at] << 8 | j->data[j->at + 1];
    if (length < 2 || j->at + length > j->size) return JPEG_FAILED;
    *p = j->data + j->at + 2;
    *n = length - 2;
    j->at += length;
    return marker;
}

/* A segment that is neither a frame nor a scan. */
int jpeg_other_segment(jpeg_decoder *j, int marker, const uint8_t *p, int64_t n)
{
    if (marker == 0xdb) return read_quant(j, p, n);
    if (marker == 0xc4) return read_huffman(j, p, n);
    if (marker == 0xdd) {
        if (n != 2) return JPEG_FAILED;
        j->restart = p[0] << 8 | p[1];
    } else if (marker == 0xe0 && n >= 5 && memcmp(p, "JFIF", 5) == 0) {
        j->jfif = 1;
    } else if (marker == 0xee && n >= 12 && memcmp(p, "Adobe", 5) == 0) {
        j->adobe_transform = p[11];
    }
    return 0;
}

/* Reads up to the frame header. */
int jpeg_find_frame(jpeg_decoder *j, int32_t width, int32_t height)
{
    if (j->size < 4 || j->data[0] != 0xff || j->data[1] != 0xd8) return JPEG_FAILED;
    for (;;) {
        const uint8_t *p = NULL;
        int64_t n = 0;
        const int marker = jpeg_next_segment(j, &p, &n);
        if (marker < 0 || marker == 0xd9 || marker == 0xda) return JPEG_FAILED;
        if (marker == 0xc0 || marker == 0xc1 || marker == 0xc2) {
            j->progressive = marker == 0xc2;
            return read_frame(j, p, n, width, height);
        }
        if (marker >= 0xc3 && marker <= 0xcf && marker != 0xc4)
            return JPEG_FAILED; /* lossless, arithmetic, hierarchical */
        if (jpeg_other_segment(j, marker, p, n)) return JPEG_FAILED;
    }
}
