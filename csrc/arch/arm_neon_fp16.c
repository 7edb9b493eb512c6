/* ARMv8.2 with half arithmetic. */
#include "../table.h"
#if defined(__aarch64__)
#include "arm_neon_templates.h"
#include "arm_neon_f16.h"
#include "arm_neon_s8.h"

static const mp_micro micro_half = {.mr = 8, .nr = 16, .kstep = 1, .a_bytes = 2, .weight_type = MP_W_F16,
                                     .needs_stage = 1, .stage = stage_half, .tile = tile_f16};
static const mp_micro micro_i8 = {.mr = 4, .nr = 4, .kstep = 16, .a_bytes = 1, .weight_type = MP_W_I8,
                                   .needs_stage = 1, .stage = stage_s8, .tile = tile_s8};
static int usable(const mp_cpu *cpu) { return cpu->fp16; }

#define MP_LEVEL neon_fp16
#define MP_OWN_I8
#define MP_OWN_HALF
#include "../kernels/table.h"
#endif
