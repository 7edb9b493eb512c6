/* SPDX-License-Identifier: MIT */
/* JPEG and PPM files to RGB. Internal. */
#ifndef MPR_IMAGE_H
#define MPR_IMAGE_H
#include <stdint.h>
#include "room.h"

/* An image's pixels, RGB. own: what is to be freed; NULL: they lie in memory of somebody else. */
typedef struct {
    uint8_t *rgb;
    int width, height;
    void *own;
} mpr_image;
/* Reads a whole file of at most `most` bytes; free() it. */
uint8_t *mpr_read(const char *path, size_t most, size_t *bytes, char *error);
/* From a file's bytes: 0, or -1 with a line in error. room: idle while an image is decoded, at a multiple of MPB_ALIGN. The pixels lie in it where they and all else fit there, else in
 * memory of their own; mpr_image_drop frees it. */
int mpr_image_of(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, mpr_room room, char *error);
int mpr_image_read(mpr_image *image, const char *path, mpr_room room, char *error);
void mpr_image_drop(mpr_image *image);
#endif
