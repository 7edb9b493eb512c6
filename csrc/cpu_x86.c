#define _GNU_SOURCE
#include "cpu.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Which register states the operating system saves on a context switch. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* The system makes room for tiles only in processes that ask, and may refuse. Asking again changes nothing. */
static int may_use_tiles(void)
{
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}

void mp_cpu_detect(mp_cpu *cpu)
{
    enum { SAVES_YMM = 0x6, SAVES_ZMM = 0xe6, SAVES_TILES = 3 << 17 };
    unsigned a, b, c, d;
    memset(cpu, 0, sizeof *cpu);
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX)) return;
    const uint64_t states = saved_states();
    if ((states & SAVES_YMM) != SAVES_YMM) return;
    cpu->fma = !!(c & bit_FMA);
    cpu->f16c = !!(c & bit_F16C);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    cpu->avx2 = !!(b & (1u << 5));
    if ((states & SAVES_ZMM) != SAVES_ZMM) return;
    const unsigned needed = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* F, DQ, BW, VL */
    cpu->avx512 = (b & needed) == needed;
    cpu->avx512vnni = cpu->avx512 && (c & (1u << 11));
    const unsigned tiles = (1u << 24) | (1u << 25); /* TILE, INT8 */
    cpu->amx = (d & tiles) == tiles && (states & SAVES_TILES) == SAVES_TILES && may_use_tiles();
}
#endif
