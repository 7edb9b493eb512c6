/* SPDX-License-Identifier: MIT */
/* A step with its tensors, as a file has them and at run time. Internal. */
#ifndef MPR_OPERANDS_H
#define MPR_OPERANDS_H
#include "../quantize/mp_quantize.h"
#include "weights.h"

/* A tensor at run time. params: of codes. range: of reals, where has_range says so. */
typedef struct {
    void *data;
    mp_quant_params params;
    float range[2];
    int needs_range, has_range; /* needs_range: some step reads its range; has_range: `range` holds it */
    int readers;                /* steps that read it, and outputs that it is */
    int is_deferred;            /* nothing is written: the convolution that reads it converts the image */
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
    float *floats; /* values of a 16-bit tensor on their way to or from TensorFlow's codes */
} mpr_pass;        /* made by pass.h */

enum { MOST_SIDE = 1 << 16, MOST_CHANNELS = 1 << 20, MOST_INPUTS = 1 << 10 };
#define MOST_VALUES (INT64_C(1) << 30)
#define MOST_WORK (INT64_C(1) << 43) /* multiply-accumulates, or values moved */

/* A step with what it reads and writes. in: the slot of its first input. */
typedef struct {
    const mpr_file *file;
    const mpb_step *step;
    const mpb_slot *slots, *in, *out;
    const int32_t *inputs;
} mpr_operands;

/* Of a step whose first input and output exist. */
static inline mpr_operands mpr_operands_of(const mpr_file *file, const mpb_slot *slots, const mpb_step *step)
{
    const int32_t *inputs = file->places + step->first_input;
    return (mpr_operands){file, step, slots, &slots[inputs[0]], &slots[step->output], inputs};
}
#endif
