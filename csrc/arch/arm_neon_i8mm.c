/* SPDX-License-Identifier: MIT */
/* ARMv8.2 with half arithmetic, the dot product and int8 matrix multiplication. */
#include "../table.h"
#if defined(__aarch64__)
#define MP_SHARED mp_table_neon
#include "arm_neon_templates.h"
#include "arm_neon_f16.h"
#include "arm_neon_mmla.h"

#define MP_LEVEL neon_i8mm
#define MP_INT8_RATE 8
#define MP_INT8_WORDS "matrix instructions (SMMLA)"
#include "../kernels/table.h"
#endif
