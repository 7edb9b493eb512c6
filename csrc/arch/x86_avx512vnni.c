/* AVX-512 with VNNI: int8 tiles multiply bytes, unsigned (q + 128) by signed. */
#include "../table.h"
#if defined(__x86_64__)
#include "vec_avx512.h"
#include "../kernels/all.h"
#include "x86_avx512_rows.h"

#define MP_HAS_DOT8
static inline vi vi_dot8(vi acc, vi a, vi b) { return _mm512_dpbusd_epi32(acc, a, b); }

/* q + 128 as an unsigned byte: the sign bit flipped. */
static void stage_u8(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    uint8_t *to = staged;
    const uint8_t *from = source;
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] ^ 0x80;
}
#include "../kernels/tile.h"

static int usable(const mp_cpu *cpu) { return cpu->avx512vnni && cpu->avx2 && cpu->fma && cpu->f16c; }

#define MP_LEVEL avx512vnni
#define MP_INT8_RATE 4
#include "../kernels/table.h"
#endif
