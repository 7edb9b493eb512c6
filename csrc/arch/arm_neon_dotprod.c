/* ARMv8.2 with half arithmetic and the dot product: Raspberry Pi 5. */
#include "../table.h"
#if defined(__aarch64__)
#include "arm_neon_templates.h"
#include "arm_neon_f16.h"
#include "arm_neon_dot.h"

static const mp_micro micro_half = {.mr = 8, .nr = 16, .kstep = 1, .a_bytes = 2, .weight_type = MP_W_F16,
                                     .needs_stage = 1, .stage = stage_half, .tile = tile_f16};
static const mp_micro micro_i8 = {.mr = 8, .nr = 8, .kstep = 4, .a_bytes = 1, .weight_type = MP_W_I8,
                                   .needs_stage = 1, .stage = stage_s8, .tile = tile_dot};
static int usable(const mp_cpu *cpu) { return cpu->fp16 && cpu->dotprod; }

#define MP_LEVEL neon_dotprod
#define MP_INT8_RATE 4
#define MP_OWN_I8
#define MP_OWN_HALF
#include "../kernels/table.h"
#endif
