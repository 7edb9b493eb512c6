/* SPDX-License-Identifier: MIT */
/* What the parts of the JPEG decoder share: jpeg_headers.c reads segments, jpeg_entropy.c coefficients, jpeg_pixels.c makes
 * pixels, and jpeg_file.c leads through a file. */
#ifndef MP_IMAGE_JPEG_H
#define MP_IMAGE_JPEG_H
#include <stdint.h>

enum { JPEG_COMPONENTS = 3, JPEG_FAST_BITS = 9, JPEG_FAILED = -1 };

/* Position in a block by place in the zigzag; the tail catches runs that lead beyond the end. */
extern const uint8_t JPEG_ZIGZAG[64 + 16];

typedef struct {
    uint16_t fast[1 << JPEG_FAST_BITS]; /* length << 8 | symbol of codes up to JPEG_FAST_BITS bits; 0: longer */
    uint8_t symbol[256];
    int32_t last[18];   /* first code beyond those of this length, shifted to 16 bits */
    int32_t offset[17]; /* symbol index of a code of this length = code + offset */
    int32_t defined;
} jpeg_huffman;

typedef struct {
    int32_t id, h, v, quant;
    int32_t width, height;      /* pixels that count */
    int32_t blocks_w, blocks_h; /* with the padding to whole MCUs */
    int32_t dc_table, ac_table, dc;
    uint8_t *plane;        /* [blocks_h * 8][blocks_w * 8] */
    int16_t *coefficients; /* progressive: [blocks_h][blocks_w][64], in natural order */
    uint64_t exact;        /* a bit for each place in the zigzag: scans have brought its last bit */
} jpeg_component;

typedef struct {
    const uint8_t *data;
    int64_t size, at;
    uint64_t bits;         /* the low `count` bits are still to be read */
    int32_t count, padded; /* padded: zeros among them that the file did not hold */
    int32_t width, height, components, max_h, max_v, mcus_w, mcus_h;
    int32_t progressive, restart, adobe_transform, jfif;
    int32_t band_start, band_end, high, low, end_run;
    int32_t restarts;      /* in this scan */
    int32_t flaws;         /* MP_JPEG_... of mp_jpeg.h */
    uint16_t quant[4][64]; /* in natural order */
    jpeg_component component[JPEG_COMPONENTS];
    jpeg_huffman dc[4], ac[4];
} jpeg_decoder;

/* Reads to behind the next marker; what stands before it is left out. Returns the marker, or JPEG_FAILED. */
int jpeg_next_marker(jpeg_decoder *j);

/* Reads on to the next marker that carries something; its segment is p[0 .. *n). Returns the marker, or JPEG_FAILED. */
int jpeg_next_segment(jpeg_decoder *j, const uint8_t **p, int64_t *n);

/* Reads up to the frame header, whose size must be the given one (0, 0: any). 0 or JPEG_FAILED. */
int jpeg_find_frame(jpeg_decoder *j, int32_t width, int32_t height);

/* The header of a scan; the components it holds go to `chosen`. Returns their number, or JPEG_FAILED. */
int jpeg_scan_header(jpeg_decoder *j, const uint8_t *p, int64_t n, int *chosen);

/* A segment that is neither a frame nor a scan. 0 or JPEG_FAILED. */
int jpeg_other_segment(jpeg_decoder *j, int marker, const uint8_t *p, int64_t n);

/* The data of a scan, to coefficients (progressive) or pixels (baseline). 0 or JPEG_FAILED. */
int jpeg_scan(jpeg_decoder *j, const int *chosen, int count);

/* One block, dequantised coefficients in natural order, to 8 x 8 pixels; only the first matters when dc_only. */
void jpeg_block(const int16_t *coefficients, int dc_only, uint8_t *out, int64_t stride);

/* Planes to RGB. line: 3 * (width + 16) bytes of scratch. */
void jpeg_colours(const jpeg_decoder *j, uint8_t *line, uint8_t *rgb);
#endif
