/* SPDX-License-Identifier: MIT */
/* Steps on codes in whole numbers alone, whose rules a bundle brings along: docs/arithmetic.md, section 10. Internal. */
#ifndef MPR_WHOLE_H
#define MPR_WHOLE_H
#include "operands.h"

/* Whether rules are some that a step can have whose operation has been checked. */
int mpr_rules_fit(const mpr_operands *s, const mpb_whole *rules);
/* What the codes of its result mean, by rules that have been checked. */
void mpr_rules_params(const mpr_operands *s, mp_quant_params *params);
/* NULL, or what is wrong with the slots of a step that is no convolution. */
const char *mpr_whole_problem(const mpr_operands *s);
/* Runs it: an mp_status. */
int mpr_whole_run(mpr_pass *pass, const mpr_operands *s);
/* What a convolution needs of its step and its weights. */
void mpr_whole_arguments(const mpr_operands *s, const mpb_convolution *own, mp_conv_args *args);
/* The codes of a tensor that lie farthest from the real 0, in steps. */
int mpr_farthest(const mpb_slot *slot, const mp_quant_params *params);
#endif
