/* The list of tables compiled in, best first, and which of them this CPU can run. */
#include <string.h>
#include "table.h"

static const mp_table *const TABLES[] = {
#if defined(MP_ONLY_SCALAR) /* a build for tests of everything but the kernels */
#elif defined(__x86_64__)
#ifdef MP_HAS_AMX
    &mp_table_avx512amx,
#endif
    &mp_table_avx512vnni, &mp_table_avx512, &mp_table_avx2,
#elif defined(__aarch64__)
    &mp_table_neon_i8mm, &mp_table_neon_dotprod, &mp_table_neon_fp16, &mp_table_neon,
#endif
    &mp_table_scalar,
};

int mp_table_count(void) { return (int)(sizeof TABLES / sizeof *TABLES); }

const mp_table *mp_table_at(int index) { return index >= 0 && index < mp_table_count() ? TABLES[index] : 0; }

/* Levels of other machines that weights can be packed for. */
static const mp_table *const FOREIGN[] = {
#if !defined(__aarch64__)
    &mp_packing_neon_i8mm,
    &mp_packing_neon_dotprod,
    &mp_packing_neon_fp16,
    &mp_packing_neon,
#endif
    0,
};

const mp_table *mp_packing_table_at(int index)
{
    const int own = mp_table_count(), count = own + (int)(sizeof FOREIGN / sizeof *FOREIGN);
    return index < own ? mp_table_at(index) : index < count ? FOREIGN[index - own] : 0;
}

const mp_table *mp_packing_table(const char *name)
{
    const mp_table *table;
    for (int i = 0; (table = mp_packing_table_at(i)) != 0; i++)
        if (strcmp(table->name, name) == 0) return table;
    return 0;
}

const char *mp_table_name(const mp_table *table) { return table ? table->name : ""; }

int mp_table_usable(const mp_table *table)
{
    mp_cpu cpu;
    mp_cpu_detect(&cpu);
    return table && table->usable(&cpu);
}

int mp_table_has(const mp_table *table, int precision)
{
    return table && precision >= 0 && precision < MP_PRECISIONS && table->micro[mp_precisions[precision].tiles] != 0;
}

int mp_lanes(const mp_table *table) { return table->lanes; }

int mp_int8_rate(const mp_table *table) { return table->int8_rate; }

int64_t mp_multiply_adds(const mp_table *table, const float *start, int64_t rounds, float *result)
{
    enum { CHAINS = 12 };
    if (!table || !start || !result || rounds < 1 || rounds > INT64_MAX / CHAINS / 64) return 0;
    *result = table->multiply_adds(start, rounds);
    return rounds * CHAINS * table->lanes;
}

const char *mp_cpu_features(void)
{
    /* One constant per combination that matters, so that no buffer has to be kept. */
    mp_cpu cpu;
    mp_cpu_detect(&cpu);
#if defined(__x86_64__)
    if (cpu.avx512vnni && cpu.amx) return "avx2 fma f16c avx512 avx512vnni amx_int8";
    if (cpu.avx512vnni) return "avx2 fma f16c avx512 avx512vnni";
    if (cpu.avx512) return "avx2 fma f16c avx512";
    return cpu.avx2 && cpu.fma && cpu.f16c ? "avx2 fma f16c" : "";
#elif defined(__aarch64__)
    if (cpu.i8mm) return cpu.fp16 ? "neon fp16 dotprod i8mm" : "neon dotprod i8mm";
    if (cpu.dotprod) return cpu.fp16 ? "neon fp16 dotprod" : "neon dotprod";
    return cpu.fp16 ? "neon fp16" : "neon";
#else
    return "";
#endif
}
