/* SPDX-License-Identifier: MIT */
/* JPEG files to pixels: the two entry points. */
#include <stddef.h>
#include <string.h>

#include "mpnet.h"
#include "image/jpeg.h"
#include "image/mp_jpeg.h"
#include "red_zone.h"

enum { MAX_SCANS = 100 };

static int64_t plane_bytes(const jpeg_component *c) { return (int64_t)c->blocks_w * c->blocks_h * 64; }

static int64_t needed_bytes(const jpeg_decoder *j)
{
    int64_t total = (sizeof(jpeg_decoder) + 63) / 64 * 64 + 3 * ((int64_t)j->width + 16);
    for (int k = 0; k < j->components; ++k)
        total += plane_bytes(&j->component[k]) * (j->progressive ? 1 + (int64_t)sizeof(int16_t) : 1);
    return total + 64 + (1 + 2 * JPEG_COMPONENTS) * MP_RED_ZONE;
}

static void start(jpeg_decoder *j, const uint8_t *data, int64_t size)
{
    memset(j, 0, sizeof *j);
    j->data = data;
    j->size = size;
    j->at = 2;
    j->adobe_transform = -1;
}

int mp_jpeg_size(const uint8_t *data, int64_t size, int32_t *width, int32_t *height)
{
    jpeg_decoder j;
    start(&j, data, size);
    if (jpeg_find_frame(&j, 0, 0)) return MP_UNSUPPORTED;
    *width = j.width;
    *height = j.height;
    return MP_OK;
}

int64_t mp_jpeg_scratch(const uint8_t *data, int64_t size, int32_t width, int32_t height)
{
    jpeg_decoder j;
    start(&j, data, size);
    return jpeg_find_frame(&j, width, height) ? 0 : needed_bytes(&j);
}

static void dequantise_all(jpeg_decoder *j)
{
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

/* Whether no scan can add anything: a file may end here, though it should say so. */
static int is_complete(const jpeg_decoder *j)
{
    for (int k = 0; k < j->components; ++k)
        if (j->component[k].exact != UINT64_MAX) return 0;
    return 1;
}

int mp_jpeg_decode(const uint8_t *data, int64_t size, int32_t width, int32_t height, void *scratch,
                   int64_t scratch_bytes, uint8_t *rgb, int32_t *flaws)
{
    jpeg_decoder *j = scratch;
    if (scratch_bytes < (int64_t)sizeof *j) return MP_BAD_ARGUMENT;
    start(j, data, size);
    if (jpeg_find_frame(j, width, height) || scratch_bytes < needed_bytes(j)) return MP_UNSUPPORTED;
    uint8_t *memory = (uint8_t *)scratch + (sizeof *j + 63) / 64 * 64;
    mp_forbid(memory);
    memory += MP_RED_ZONE;
    for (int k = 0; k < j->components && j->progressive; ++k) {
        jpeg_component *c = &j->component[k];
        c->coefficients = (int16_t *)(void *)memory;
        memset(memory, 0, (size_t)plane_bytes(c) * sizeof(int16_t));
        memory += plane_bytes(c) * (int64_t)sizeof(int16_t);
        mp_forbid(memory);
        memory += MP_RED_ZONE;
    }
    for (int k = 0; k < j->components; ++k) {
        j->component[k].plane = memory;
        /* A scan may leave padding blocks out. */
        memset(memory, 128, (size_t)plane_bytes(&j->component[k]));
        memory += plane_bytes(&j->component[k]);
        mp_forbid(memory);
        memory += MP_RED_ZONE;
    }
    int seen[JPEG_COMPONENTS] = {0};
    for (int scans = 0;;) {
        const uint8_t *p = NULL;
        int64_t n = 0;
        const int marker = jpeg_next_segment(j, &p, &n);
        if (marker < 0 && is_complete(j)) j->flaws |= MP_JPEG_NO_END;
        if (marker == 0xd9 || j->flaws & MP_JPEG_NO_END) break;
        if (marker < 0) return MP_UNSUPPORTED;
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4) return MP_UNSUPPORTED;
        if (marker != 0xda) {
            if (marker >= 0xd0 && marker <= 0xd7) return MP_UNSUPPORTED; /* a restart nobody asked for */
            if (jpeg_other_segment(j, marker, p, n)) return MP_UNSUPPORTED;
            continue;
        }
        int chosen[JPEG_COMPONENTS];
        const int count = jpeg_scan_header(j, p, n, chosen);
        if (count < 0 || ++scans > MAX_SCANS || jpeg_scan(j, chosen, count)) return MP_UNSUPPORTED;
        const uint64_t band = UINT64_MAX >> (63 - (j->band_end - j->band_start)) << j->band_start;
        for (int s = 0; s < count; ++s) {
            seen[chosen[s]] = 1;
            if (j->low == 0) j->component[chosen[s]].exact |= band;
        }
    }
    for (int k = 0; k < j->components; ++k)
        if (!seen[k]) return MP_UNSUPPORTED;
    if (j->progressive) dequantise_all(j);
    jpeg_colours(j, memory, rgb);
    *flaws = j->flaws;
    return MP_OK;
}
