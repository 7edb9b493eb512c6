/* SPDX-License-Identifier: MIT */
/* ARMv8.0: Jetson Nano, Raspberry Pi 3 and 4. */
#include "../table.h"
#if defined(__aarch64__)
#define MP_OUTPUT_USUAL "../arch/arm_neon_output.h"
#define MP_OWN_DEPTHWISE
#include "arm_neon_templates.h"
#include "arm_neon_depthwise.h"
#include "arm_neon_half.h"
#include "arm_neon_s8.h"
#include "arm_neon_s16.h"

#define MP_LEVEL neon
#include "../kernels/table.h"
#endif
