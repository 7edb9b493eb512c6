/* SPDX-License-Identifier: MIT */
/* What a program must be so that running it stays within its memory, whatever a file says. Internal.
 *
 * A step is checked in four parts, each when what it looks at is first needed:
 * mpr_check_program    (check.c)      all steps of a program together: slots exist, memory is the program's own, nothing is read before
 *                                     it is written. Of each step it asks
 *   mpr_shape_problem  (operations.c) whether types, shapes and fields fit the operation; none of the bundle's data is read.
 * mpr_check_step_data  (check.c)      the data that a step brings along, read once: its size, its CRC, its values; of rules also
 *   mpr_are_valid_rules (integer_steps.c).
 * mpr_prepare_weights  (weights.c)    a convolution's weights, biases and scales, when they are packed. */
#ifndef MPR_CHECK_H
#define MPR_CHECK_H
#include "operations.h"

/* The steps of a program: 0, or -1 with a line in error. */
int mpr_check_program(const mpr_file *file, int64_t program, char *error);
/* The data that a step brings along: 0, or -1 with a line in error. */
int mpr_check_step_data(const mpr_operands *s, char *error);
#endif
