/* SPDX-License-Identifier: MIT */
/* JPEG -> RGB with one fixed arithmetic, so that an image has the same pixels wherever it is decoded.
 *
 * The arithmetic is that of stb_image, with which the reference programs read images: a 12-bit fixed-point inverse
 * DCT, triangle-filtered chroma where it is halved, and colours with 12-bit coefficients. docs/arithmetic.md, section 7, states it.
 * Baseline and progressive files of 8 bits with 1 or 3 components are decoded; for others, and for damaged ones, the
 * answer is MP_UNSUPPORTED, and the caller asks another decoder. */
#ifndef MP_JPEG_H
#define MP_JPEG_H
#include <stdint.h>

/* cdef begin */
/* What a file may have that other decoders warn of and whose image is made all the same: its end marker is missing where nothing
 * else is; bytes stand where none belong, so that an image may be damaged. Bytes behind the end marker are no flaw. */
enum { MP_JPEG_NO_END = 1, MP_JPEG_EXTRA_BYTES = 2 };

/* The size in the file's header. MP_OK, or MP_UNSUPPORTED when the file is none that is decoded here. */
int mp_jpeg_size(const uint8_t *data, int64_t size, int32_t *width, int32_t *height);

/* Bytes of scratch (8-byte aligned) that decoding needs; 0 when the file is none that is decoded here. */
int64_t mp_jpeg_scratch(const uint8_t *data, int64_t size, int32_t width, int32_t height);

/* rgb: [height][width][3], the size in the file's header. flaws: a sum of the above. MP_OK, or MP_UNSUPPORTED with rgb and flaws
 * unspecified. */
int mp_jpeg_decode(const uint8_t *data, int64_t size, int32_t width, int32_t height, void *scratch,
                   int64_t scratch_bytes, uint8_t *rgb, int32_t *flaws);
/* cdef end */
#endif
