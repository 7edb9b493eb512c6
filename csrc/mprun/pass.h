/* SPDX-License-Identifier: MIT */
/* A program of a bundle made ready to run: checked, memory taken, weights packed or mapped. Internal. */
#ifndef MPR_PASS_H
#define MPR_PASS_H
#include "check.h"
#include "weights.h"

/* A tensor at run time. params: of codes. range: of reals, while known. */
typedef struct {
    void *data;
    mp_quant_params params;
    float range[2];
    int measured, known; /* measured: some step asks for the range; known: it is in `range` */
    int readers;         /* steps that read it, and outputs that it is */
    int left;            /* nothing is written: the convolution that reads it converts the image */
} mpr_tensor;

typedef struct {
    mpr_weights *weights;
    const mpb_program *program;
    const mpb_slot *slots;
    const mpb_step *steps;
    const int32_t *places;
    mpr_tensor *tensors;
    void *memory; /* of the tensors and all that follows */
    size_t memory_bytes;
    float *image;
    void *arena, *scratch;
    size_t scratch_bytes;
    float *wide; /* values of a half tensor on their way to or from TensorFlow's codes */
} mpr_pass;

/* 0, or -1 with a line in error. */
int mpr_pass_open(mpr_pass *pass, mpr_weights *weights, int64_t program, char *error);
void mpr_pass_close(mpr_pass *pass);
/* Touches all of its memory but so many bytes at the end, so that the first pass does not wait for pages. */
void mpr_pass_touch(mpr_pass *pass, size_t but);
/* One forward pass of `image`. The outputs stay until the next. */
int mpr_pass_run(mpr_pass *pass, char *error);
/* One of its steps, for measurements: an mp_status. */
int mpr_pass_step(mpr_pass *pass, const mpb_step *step);
const mpb_slot *mpr_pass_output(const mpr_pass *pass, int number, const float **data);
#endif
