/* SPDX-License-Identifier: MIT */
/* ARMv8.2 with half arithmetic. */
#include "../table.h"
#if defined(__aarch64__)
#define MP_SHARED mp_table_neon
#include "arm_neon_templates.h"
#include "arm_neon_f16.h"
#include "arm_neon_s8.h"
#include "arm_neon_s16.h"

#define MP_LEVEL neon_fp16
#include "../kernels/table.h"
#endif
