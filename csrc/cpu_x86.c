#include "cpu.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#include <string.h>

/* Which register states the operating system saves on a context switch. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

void mp_cpu_detect(mp_cpu *cpu)
{
    enum { SAVES_YMM = 0x6, SAVES_ZMM = 0xe6 };
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
}
#endif
