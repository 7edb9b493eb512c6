/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cpu.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
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

unsigned mp_cpu_detect(void)
{
    enum { SAVES_YMM = 0x6, SAVES_ZMM = 0xe6, SAVES_TILES = SAVES_ZMM | 3 << 17 };
    unsigned a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX)) return 0;
    const uint64_t states = saved_states();
    const unsigned ecx1 = c;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
#define HAS(REGISTER, BITS) (((REGISTER) & (BITS)) == (BITS))
#define X86_FEATURE(NAME, WORDS, ECX1, EBX7, ECX7, EDX7, STATES)                                                       \
    if (HAS(ecx1, ECX1) && HAS(b, EBX7) && HAS(c, ECX7) && HAS(d, EDX7) && HAS(states, STATES))                        \
        features |= MP_CPU_##NAME;
#include "isa.def"
#ifdef MP_EMULATED_TILES /* in C, for tests */
    if (features & MP_CPU_AVX512VNNI) features |= MP_CPU_AMX_INT8;
#else
    if (features & MP_CPU_AMX_INT8 && !may_use_tiles()) features &= ~(unsigned)MP_CPU_AMX_INT8;
#endif
    return features;
}
#endif
