/* SPDX-License-Identifier: MIT */
/* Steps on codes in integers alone, whose rules a bundle brings along: docs/arithmetic.md, section 10. Internal. */
#ifndef MPR_INTEGER_STEPS_H
#define MPR_INTEGER_STEPS_H
#include "operands.h"

/* Whether the rules of a step whose shapes have been checked make sense: part of mpr_check_step_data. */
int mpr_are_valid_rules(const mpr_operands *s, const mpb_integer_rules *rules);
/* What the codes of its result mean, by rules that have been checked. */
void mpr_integer_params(const mpr_operands *s, mp_quant_params *params);
/* NULL, or why the types and shapes of a step that is no convolution do not fit it: part of mpr_shape_problem. */
const char *mpr_integer_shape_problem(const mpr_operands *s);
/* Runs it: an mp_status. */
int mpr_run_integer(mpr_pass *pass, const mpr_operands *s);
/* What a convolution needs of its step and its weights. */
void mpr_integer_arguments(const mpr_operands *s, const mpb_convolution *conv, mp_conv_args *args);
/* The largest distance of a code of the tensor from the real 0, in steps. */
int mpr_max_distance(const mpb_slot *slot, const mp_quant_params *params);
#endif
