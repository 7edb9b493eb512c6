/* SPDX-License-Identifier: MIT */
/* JPEG and PPM files to RGB. Internal. */
#ifndef MPR_IMAGE_H
#define MPR_IMAGE_H
#include <stdint.h>
#include "memory.h"

/* An image's pixels, RGB. allocated: what is to be freed; NULL: they lie in memory of somebody else. */
typedef struct {
    uint8_t *rgb;
    int width, height;
    void *allocated;
    int32_t flaws; /* of a JPEG: MP_JPEG_... */
} mpr_image;
/* Reads all of a file of at most `limit` bytes; free() it. */
uint8_t *mpr_read(const char *path, size_t limit, size_t *bytes, char *error);
/* From a file's bytes: 0, or -1 with a line in error. memory: idle while an image is decoded, at a multiple of MPB_ALIGN. The pixels lie in it where they and all else fit there, else in
 * memory of their own; mpr_image_drop frees it. */
int mpr_image_of(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, mpr_memory memory, char *error);
int mpr_image_read(mpr_image *image, const char *path, mpr_memory memory, char *error);
void mpr_image_drop(mpr_image *image);
#endif
