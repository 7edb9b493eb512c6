/* SPDX-License-Identifier: MIT */
/* What a program must be so that running it stays within its memory, whatever a file says. Internal. */
#ifndef MPR_CHECK_H
#define MPR_CHECK_H
#include "operations.h"

/* Whether a program can be run without leaving its memory: 0, or -1 with a line in error. */
int mpr_check_program(const mpr_file *file, int64_t program, char *error);
/* Whether what a step brings along fits it: 0, or -1 with a line in error. */
int mpr_check_step_data(const mpr_operands *s, char *error);
#endif
