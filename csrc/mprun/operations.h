/* SPDX-License-Identifier: MIT */
/* What a bundle's steps can be: a row per operation, which checking and running ask. Internal. */
#ifndef MPR_OPERATIONS_H
#define MPR_OPERATIONS_H
#include "../types.h"
#include "operands.h"

/* What a step brings along in the bundle's data, four bytes a value. */
enum mpr_step_data {
    MPR_NOTHING = 0,
    MPR_WEIGHTS, /* for each input after the first: floats per channel, of the sum so far and of the input */
    MPR_RESULT,  /* floats: the tensor */
    MPR_SOURCES, /* int32: of each value of the result its place in the input's; below 0: there is none */
    MPR_RULES    /* an mpb_integer_rules */
};

/* What Python's classes say of an operation (operations.def, which is written from them). */
typedef struct {
    const char *name;  /* for people */
    int moves_values;  /* each value of its result is one of its input's: it keeps how codes mean reals */
    int checks_result; /* it refuses a result that is not finite */
} mpr_operation;
extern const mpr_operation mpr_operations[MPB_OPERATIONS];

/* What its steps have in a bundle. */
typedef struct {
    int inputs; /* so many; 0: one and more */
    int data;   /* enum mpr_step_data */
} mpr_step_form;
extern const mpr_step_form mpr_step_forms[MPB_OPERATIONS];

/* NULL, or why the types, shapes and fields of a step do not fit its operation; its slots exist. Adds to *work. */
const char *mpr_shape_problem(const mpr_operands *s, int64_t *work);
const char *mpr_operation_name(const mpb_step *step);
/* Whether it has weights. */
static inline int mpr_convolves(const mpb_step *step)
{
    return step->operation == MPB_CONVOLVE || step->operation == MPB_INTEGER_CONVOLVE;
}
/* An mp_status of a step whose operation has been checked. */
int mpr_run_operation(mpr_pass *pass, const mpr_operands *s);

/* Whether a step whose result lies in `out` makes codes; if so, fills the scheme. */
static inline int mpr_makes_codes(const mpb_step *step, const mpb_slot *out, mp_activation_scheme *scheme)
{
    if (step->operation != MPB_QUANTIZE && !(step->operation == MPB_CONVOLVE && step->quantizes)) return 0;
    *scheme = (mp_activation_scheme){step->mode, step->rounding, step->narrow_range, step->ensure_minimum_range,
                                     8 * (int32_t)mp_type_bytes(out->type)};
    return 1;
}

#endif
