/* The templates that every NEON level uses, in the order in which they need each other. */
#include <math.h>
#include "vec_neon.h"
#include "../kernels/activation.h"
#include "../kernels/elementwise.h"
#include "../kernels/output.h"
#include "../kernels/quantize.h"
#include "../kernels/add.h"
#include "../kernels/pool.h"
#include "../kernels/stage.h"
#include "../kernels/half.h"
#include "../kernels/depthwise.h"
#include "../kernels/winograd.h"
#include "arm_neon_f32.h"

#define MP_MR 8
