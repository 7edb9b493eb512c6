/* SPDX-License-Identifier: MIT */
/* mprun as a library: a bundle that `mpnet export --to bundle` made, run without Python. docs/mprun.md shows an example.
 *
 * The bits are those of mpnet itself, on every CPU and for any number of threads. One handle is used by one thread at a time. */
#ifndef MPRUN_H
#define MPRUN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mprun mprun;

/* One object. x, y: upper left corner; all four in pixels of the image, cut at its edges. */
typedef struct {
    const char *name; /* the handle's */
    int category;
    float score, x, y, width, height;
} mprun_box;

/* isa: name of an ISA level, NULL or "auto" for the best. threads: 0 for all cores. error receives one line when the
 * result is NULL. */
mprun *mprun_open(const char *bundle, const char *isa, int threads, char *error, size_t error_bytes);
void mprun_close(mprun *net);

/* Of the network input, in pixels. Any pointer may be NULL. */
void mprun_input_size(const mprun *net, int *width, int *height, int *channels);

/* One forward pass of [height][width][channels] floats from 0 to 1. 0, or -1 and mprun_error says why. */
int mprun_forward(mprun *net, const float *input);
/* The tensors that enter the heads, [shape[0]][shape[1]][shape[2]]; they stay until the next pass. NULL: no such head. */
const float *mprun_head(const mprun *net, int head, int shape[3]);

/* The objects in an image of [height][width][3] bytes, RGB, best first: their number, or -1 and mprun_error says why.
 * confidence: least score, in [0, 1); nms: overlap beyond which the weaker of two boxes goes, in [0, 1]; both below 0: as the
 * bundle says. *boxes stay until the next call. */
int mprun_detections(mprun *net, const uint8_t *rgb, int width, int height, double confidence, double nms,
                     const mprun_box **boxes);

/* Reads a JPEG or PPM file: RGB bytes, to be freed with free(). NULL, and one line in error. */
uint8_t *mprun_read_picture(const char *path, int *width, int *height, char *error, size_t error_bytes);

const char *mprun_error(const mprun *net);

#ifdef __cplusplus
}
#endif
#endif
