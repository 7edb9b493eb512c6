#include "cpu.h"
#if defined(__aarch64__)
#include <string.h>
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>
static int sysctl_flag(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}
#endif

void mp_cpu_detect(mp_cpu *cpu)
{
    memset(cpu, 0, sizeof *cpu);
    cpu->neon = 1; /* part of AArch64 */
#if defined(__linux__)
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    cpu->crc = !!(hwcap & (1ul << 7));      /* crc32 */
    cpu->fp16 = !!(hwcap & (1ul << 10));    /* asimdhp */
    cpu->dotprod = !!(hwcap & (1ul << 20)); /* asimddp */
    cpu->i8mm = !!(hwcap2 & (1ul << 13));
#elif defined(__APPLE__)
    cpu->fp16 = sysctl_flag("hw.optional.arm.FEAT_FP16");
    cpu->dotprod = sysctl_flag("hw.optional.arm.FEAT_DotProd");
    cpu->i8mm = sysctl_flag("hw.optional.arm.FEAT_I8MM");
#endif
}
#elif !defined(__x86_64__)
#include <string.h>
void mp_cpu_detect(mp_cpu *cpu) { memset(cpu, 0, sizeof *cpu); }
#endif
