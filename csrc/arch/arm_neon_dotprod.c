/* SPDX-License-Identifier: MIT */
/* ARMv8.2 with half arithmetic and the dot product: Raspberry Pi 5. */
#include "../table.h"
#if defined(__aarch64__)
#define MP_SHARED mp_table_neon
#include "arm_neon_templates.h"
#include "arm_neon_f16.h"
#include "arm_neon_dot.h"

#define MP_LEVEL neon_dotprod
#define MP_INT8_RATE 4
#define MP_INT8_WORDS "dot product (SDOT)"
#include "../kernels/table.h"
#endif
