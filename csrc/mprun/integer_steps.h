/* SPDX-License-Identifier: MIT */
/* Steps on codes in integers alone, whose rules a bundle brings along: docs/arithmetic.md, section 10. Internal. */
#ifndef MPR_INTEGER_STEPS_H
#define MPR_INTEGER_STEPS_H
#include "operands.h"

/* Whether rules are some that a step can have whose operation has been checked. */
int mpr_are_valid_rules(const mpr_operands *s, const mpb_integer_rules *rules);
/* What the codes of its result mean, by rules that have been checked. */
void mpr_integer_params(const mpr_operands *s, mp_quant_params *params);
/* NULL, or what is wrong with the slots of a step that is no convolution. */
const char *mpr_integer_shape_problem(const mpr_operands *s);
/* Runs it: an mp_status. */
int mpr_run_integer(mpr_pass *pass, const mpr_operands *s);
/* What a convolution needs of its step and its weights. */
void mpr_integer_arguments(const mpr_operands *s, const mpb_convolution *conv, mp_conv_args *args);
/* The codes of a tensor that lie max_distance from the real 0, in steps. */
int mpr_max_distance(const mpb_slot *slot, const mp_quant_params *params);
#endif
