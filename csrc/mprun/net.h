/* SPDX-License-Identifier: MIT */
/* The handle of mprun.h, for the program's own commands. Internal. */
#ifndef MPR_NET_H
#define MPR_NET_H
#include "../detect/mp_detect.h"
#include "../image/mp_resize.h"
#include "image.h"
#include "mprun.h"
#include "pass.h"

typedef struct {
    int64_t offsets[2];
    int32_t *category;
    float *score, *box;
    int64_t capacity, count;
} mpr_box_buffer; /* of one head, or of all */

struct mprun {
    mpr_file file;
    mpr_weights weights;
    mpr_pass pass;
    mpr_box_buffer heads[16], selected;
    mpr_memory scratch, ready; /* ready: a head of another kind as one of [yolo] */
    mprun_box *boxes;
    char error[MPR_ERROR];
};

/* A table by name; NULL with a line in error. */
const mp_table *mpr_table(const char *isa, char *error);
int mpr_cores(void);
/* Opens the first program of a bundle that is mapped already; closes the file when it fails. */
int mpr_net_open(mprun *net, const char *isa, int threads, char *error);
void mpr_net_close(mprun *net);
/* The boxes in an image by class, then falling score, cut at its edges; their number or -1. resize -1: as the bundle says. The
 * image is dropped as soon as it is the network's input. */
int mpr_detect(mprun *net, mpr_image *image, double confidence, double nms, int resize);
/* What a pass writes its tensors to, between two passes. */
mpr_memory mpr_idle_arena(const mprun *net);
/* Those boxes by falling score, equal ones in their order. */
void mpr_best_first(mprun *net, int count);
#endif
