/* SPDX-License-Identifier: MIT */
/* The templates that every NEON level uses. */
#include "vec_neon.h"
#include "../kernels/all.h"
#include "arm_neon_f32.h"
#include "arm_tiles.h"

#define MP_MR ARM_ROWS
