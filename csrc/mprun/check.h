/* SPDX-License-Identifier: MIT */
/* What a program must be so that running it stays within its memory, whatever a file says; and what its slots and steps are.
 * Internal. */
#ifndef MPR_CHECK_H
#define MPR_CHECK_H
#include "../quantize/mp_quantize.h"
#include "file.h"

/* Whether a program can be run without leaving its memory: 0, or -1 with a line in error. */
int mpr_check_program(const mpr_file *file, int64_t program, char *error);
/* Whether what a step brings along fits it: 0, or -1 with a line in error. */
int mpr_check_values(const mpr_file *file, const mpb_step *step, const mpb_slot *in, const mpb_slot *out, char *error);
static inline uint64_t mpr_values(const mpb_slot *slot) { return (uint64_t)slot->h * slot->w * slot->c; }
uint64_t mpr_slot_bytes(const mpb_slot *slot);
/* Whether a step makes codes; if so, fills the scheme. */
int mpr_makes_codes(const mpb_step *step, mp_activation_scheme *scheme);
const char *mpr_operation_name(const mpb_step *step);
#endif
