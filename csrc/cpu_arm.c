/* SPDX-License-Identifier: MIT */
#include "cpu.h"
#if defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>
#include <stdio.h>
static int sysctl_flag(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    char path[64];
    snprintf(path, sizeof path, "hw.optional.arm.%s", name ? name : "");
    return sysctlbyname(path, &value, &size, NULL, 0) == 0 && value;
}
#endif

unsigned mp_cpu_detect(void)
{
    unsigned features = MP_CPU_NEON; /* part of AArch64 */
#if defined(__linux__)
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
#define ARM_FEATURE(NAME, WORDS, HWCAP, HWCAP2, APPLE)                                                                 \
    if ((hwcap & HWCAP) == HWCAP && (hwcap2 & HWCAP2) == HWCAP2) features |= MP_CPU_##NAME;
#elif defined(__APPLE__)
#define ARM_FEATURE(NAME, WORDS, HWCAP, HWCAP2, APPLE)                                                                 \
    if (sysctl_flag(APPLE)) features |= MP_CPU_##NAME;
#endif
#include "isa.def"
    return features;
}
#elif !defined(__x86_64__)
unsigned mp_cpu_detect(void) { return 0; }
#endif
