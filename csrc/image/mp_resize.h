/* SPDX-License-Identifier: MIT */
/* Image -> network input as Darknet does it, or OpenCV; docs/arithmetic.md, section 7, states it. One implementation for every
 * program. */
#ifndef MP_RESIZE_H
#define MP_RESIZE_H
#include <stdint.h>

/* cdef begin */
enum { MP_MAX_NET_SIDE = 8192, MP_MAX_IMAGE_SIDE = 65536 };
enum { MP_STRETCH = 0, MP_LETTERBOX = 1, MP_CROP = 2, MP_LETTERBOX_OPENCV = 3 };

/* Where an image lies in the network input. width, height: of its content after resizing, pixels; MP_CROP shows a
 * part of it. relative: x offset, y offset, width, height of the content, relative to the input: what mp_decode_yolo takes. */
typedef struct {
    int32_t width, height;
    float relative[4];
} mp_geometry;

/* mode: MP_STRETCH fills the input and ignores the aspect, MP_LETTERBOX keeps it, MP_CROP brings the shorter side to net_w and
 * shows the middle, its border repeated where that is lower than net_h; MP_LETTERBOX_OPENCV keeps the aspect as Ultralytics' own
 * programs do: OpenCV's bilinear resize in integers, the rest 114. MP_BAD_ARGUMENT for sizes outside the limits. */
int mp_fit(int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h, int mode, mp_geometry *geometry);

/* Bytes of scratch for mp_preprocess, 8-byte aligned. */
int64_t mp_preprocess_scratch(int32_t image_w, int32_t net_w, int32_t net_h);

/* rgb: [image_h][image_w][3]. out: [net_h][net_w][3], 0 to 1; what the content leaves free is 0.5 (114 / 255).
 * blend_last_row: 0 leaves out the second term of the last row, as Darknet does. */
int mp_preprocess(const uint8_t *rgb, int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h, int mode,
                  int blend_last_row, void *scratch, float *out, mp_geometry *geometry);
/* cdef end */
#endif
