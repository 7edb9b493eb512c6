/* AVX-512 F, BW, VL, DQ. */
#include <math.h>
#include "../table.h"
#if defined(__x86_64__)
#include "vec_avx512.h"
#include "../kernels/activation.h"
#include "../kernels/elementwise.h"
#include "../kernels/output.h"
#include "../kernels/quantize.h"
#include "../kernels/add.h"
#include "../kernels/pool.h"
#include "../kernels/stage.h"
#include "../kernels/half.h"
#include "x86_avx512_rows.h"
#include "../kernels/tile.h"
#include "../kernels/depthwise.h"
#define MP_INT8_WINOGRAD /* a quarter of the products, and vpmaddwd takes int16 anyway */
#include "../kernels/winograd.h"

static int usable(const mp_cpu *cpu) { return cpu->avx512 && cpu->avx2 && cpu->fma && cpu->f16c; }

#define MP_LEVEL avx512
#include "../kernels/table.h"
#endif
