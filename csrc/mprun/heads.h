/* SPDX-License-Identifier: MIT */
/* Heads: what they must be, and those of other kinds than [yolo] as decoding takes them. Internal. */
#ifndef MPR_HEADS_H
#define MPR_HEADS_H
#include "../detect/mp_detect.h"
#include "memory.h"
#include "pass.h"

/* Whether the heads fit their tensors: 0, or -1 with a line in error. */
int mpr_check_heads(const mpr_pass *pass, char *error);
/* What decoding takes of a head: its own tensor, or the one that is made of it in `ready`; NULL with a line in error. */
const float *mpr_head_tensor(const mpr_pass *pass, const mpb_head *head, double confidence, mpr_memory *ready,
                             mp_yolo_head *yolo, char *error);
#endif
