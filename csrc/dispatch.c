/* SPDX-License-Identifier: MIT */
/* The list of tables compiled in, best first, and which of them this CPU can run. */
#include <string.h>
#include "table.h"

static const struct {
    const mp_table *table;
    unsigned needs; /* CPU features */
} LEVELS[] = {
#define LEVEL(NAME, NEEDS, FLAGS) {&mp_table_##NAME, NEEDS},
#if defined(MP_ONLY_SCALAR) /* a build for tests of everything but the kernels */
#elif defined(__x86_64__)
#define X86_LEVEL LEVEL
#elif defined(__aarch64__)
#define ARM_LEVEL LEVEL
#endif
#define REFERENCE_LEVEL LEVEL
#include "isa.def"
};

/* Levels of other machines that weights can be packed for. */
static const mp_table *const FOREIGN[] = {
#if !defined(__aarch64__)
#define ARM_LEVEL(NAME, ...) &mp_packing_##NAME,
#include "isa.def"
#endif
    0,
};

int mp_table_count(void) { return (int)(sizeof LEVELS / sizeof *LEVELS); }

const mp_table *mp_table_at(int index) { return index >= 0 && index < mp_table_count() ? LEVELS[index].table : 0; }

const mp_table *mp_packing_table_at(int index)
{
    const int native = mp_table_count(), count = native + (int)(sizeof FOREIGN / sizeof *FOREIGN);
    return index < native ? mp_table_at(index) : index < count ? FOREIGN[index - native] : 0;
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
    const unsigned features = mp_cpu_detect();
    for (int i = 0; i < mp_table_count(); i++)
        if (LEVELS[i].table == table) return (features & LEVELS[i].needs) == LEVELS[i].needs;
    return 0;
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

const char *mp_cpu_feature(int index)
{
    static const struct {
        unsigned bit;
        const char *words;
    } FEATURES[] = {
#define X86_FEATURE(NAME, WORDS, ...) {MP_CPU_##NAME, WORDS},
#define ARM_FEATURE(NAME, WORDS, ...) {MP_CPU_##NAME, WORDS},
#include "isa.def"
    };
    const unsigned features = mp_cpu_detect();
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
        if (features & FEATURES[i].bit && FEATURES[i].words && index-- == 0) return FEATURES[i].words;
    return 0;
}
