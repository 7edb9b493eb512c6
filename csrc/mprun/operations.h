/* SPDX-License-Identifier: MIT */
/* What a bundle's steps can be: a row per operation, which checking and running ask. Internal. */
#ifndef MPR_OPERATIONS_H
#define MPR_OPERATIONS_H
#include "../quantize/mp_quantize.h"
#include "../types.h"
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
} mpr_pass;      /* made by pass.h */

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

/* What a step brings along, four bytes a value. */
enum mpr_values_kind {
    MPR_NOTHING = 0,
    MPR_WEIGHTS, /* for each input after the first: floats per channel, of the sum so far and of the input */
    MPR_RESULT,  /* floats: the tensor */
    MPR_SOURCES  /* int32: of each value of the result its place in the input's; below 0: there is none */
};

typedef struct {
    const char *name;  /* for people */
    int inputs;        /* so many; 0: one and more */
    int moves_values;  /* each value of its result is one of its input's: it keeps how codes mean reals */
    int checks_result; /* it refuses a result that is not finite */
    int values;        /* enum mpr_values_kind */
} mpr_operation;
extern const mpr_operation mpr_operations[MPB_OPERATIONS];

/* NULL, or what is wrong with a step whose slots exist; adds to *work. */
const char *mpr_operation_problem(const mpr_operands *s, int64_t *work);
const char *mpr_operation_name(const mpb_step *step);
/* An mp_status of a step whose operation has been checked. */
int mpr_run_operation(mpr_pass *pass, const mpr_operands *s);

/* Of a step whose first input and output exist. */
static inline mpr_operands mpr_operands_of(const mpr_file *file, const mpb_slot *slots, const mpb_step *step)
{
    const int32_t *inputs = file->places + step->first_input;
    return (mpr_operands){file, step, slots, &slots[inputs[0]], &slots[step->output], inputs};
}

/* Whether a step whose result lies in `out` makes codes; if so, fills the scheme. */
static inline int mpr_makes_codes(const mpb_step *step, const mpb_slot *out, mp_activation_scheme *scheme)
{
    if (step->operation != MPB_QUANTIZE && !(step->operation == MPB_CONVOLVE && step->quantizes)) return 0;
    *scheme = (mp_activation_scheme){step->mode, step->rounding, step->narrow_range, step->ensure_minimum_range,
                                     8 * (int32_t)mp_type_bytes(out->type)};
    return 1;
}

#endif
