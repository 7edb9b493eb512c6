/* ARMv8.0: Jetson Nano, Raspberry Pi 3 and 4. */
#include "../table.h"
#if defined(__aarch64__)
#include "arm_neon_templates.h"
#include "arm_neon_half.h"
#include "arm_neon_s8.h"

static const mp_micro micro_i8 = {.mr = 4, .nr = 4, .kstep = 16, .a_bytes = 1, .weight_type = MP_W_I8,
                                   .needs_stage = 1, .stage = stage_s8, .tile = tile_s8};
static int usable(const mp_cpu *cpu) { return cpu->neon; }

#define MP_LEVEL neon
#define MP_OWN_I8
#include "../kernels/table.h"
#endif
