/* SPDX-License-Identifier: MIT */
/* A program of a bundle made ready to run: checked, memory taken, weights packed or mapped. Internal. */
#ifndef MPR_PASS_H
#define MPR_PASS_H
#include "operations.h"

/* 0, or -1 with a line in error. */
int mpr_pass_open(mpr_pass *pass, mpr_weights *weights, int64_t program, char *error);
void mpr_pass_close(mpr_pass *pass);
/* Touches all of its memory but `skipped_bytes` bytes at the end, so that the first pass does not wait for pages. */
void mpr_pass_touch(mpr_pass *pass, size_t skipped_bytes);
/* One forward pass of `image`. The outputs stay until the next. */
int mpr_pass_run(mpr_pass *pass, char *error);
/* One of its steps, for measurements: an mp_status. */
int mpr_pass_step(mpr_pass *pass, const mpb_step *step);
const mpb_slot *mpr_pass_output(const mpr_pass *pass, int number, const float **data);
#endif
