include "arm_neon_f32.h"/* The templates that every NEON level uses, in the order in which they need each other. */
include "arm_neon_f32.h"#include "vec_neon.h"
include "arm_neon_f32.h"#include "../kernels/activation.h"
include "arm_neon_f32.h"#include "../kernels/output.h"
include "arm_neon_f32.h"#include "../kernels/elementwise.h"
include "arm_neon_f32.h"#include "../kernels/quantize.h"
include "arm_neon_f32.h"#include "../kernels/add.h"
include "arm_neon_f32.h"#include "../kernels/pool.h"
include "arm_neon_f32.h"#include "../kernels/stage.h"
include "arm_neon_f32.h"#include "../kernels/half.h"
include "arm_neon_f32.h"#include "../kernels/depthwise.h"
include "arm_neon_f32.h"#include "arm_neon_f32.h"
include "arm_neon_f32.h"
include "arm_neon_f32.h"#define MP_MR 8
