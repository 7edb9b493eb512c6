/* SPDX-License-Identifier: MIT */
/* What levels.c runs its cases with: their names, options, values' seeds, and all that is asked of a call beside equal bits. */
#ifndef MP_RUNNER_H
#define MP_RUNNER_H
#include <setjmp.h>
#include <signal.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpnet.h"
#include "table.h"
#include "types.h"

#include "checked_call.h"

#ifndef REFERENCE
#define REFERENCE "scalar"
#endif
/* Of every table but the reference's own; the thread sanitizer looks at four. */
#ifndef THREADS
#define THREADS 1
#endif
#ifndef LEFT_OUT
#define LEFT_OUT ""
#endif
/* Of every how many cases one is compared, where a level before this one had the same source: of reals, and of what is no convolution.
 * Emulated CPUs and sanitizers are slow, and see little else in the second. */
#ifndef REPEATED
#define REPEATED 1
#endif
/* Where a program has no options. */
#ifndef TEST
#define TEST 0
#endif

enum { IMAGES = 2, MOST = 1 << 17, SCRATCH = 8 << 20, PACKED = 4 << 20, GUARD = 64, GUARDED = 0x55 };
static alignas(64) uint8_t out[2][MOST * 4 + 2 * GUARD];

/* Of an array of SIZE bytes the address sanitizer lets nobody read what is behind those USED, until the next of these. */
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#define HOLDS(ARRAY, USED, SIZE)                                                                                       \
    do {                                                                                                               \
        ASAN_UNPOISON_MEMORY_REGION(ARRAY, SIZE);                                                                      \
        ASAN_POISON_MEMORY_REGION((uint8_t *)(ARRAY) + (USED), (SIZE) - (USED));                                       \
    } while (0)
#else
#define HOLDS(ARRAY, USED, SIZE) (void)(USED)
#endif

static uint64_t seed;
static int wrong, compared;
static int repeats; /* whether REPEATED counts for the cases that come */

static struct {
    const char *test, *level, *bench;
    uint64_t seed;
    int list, digest;
} options = {.test = TEST, .seed = 1};

static char name[128];            /* of the case that runs */
static const mp_table *level;     /* what is compared */
static const mp_table *tables[2]; /* the reference and `level` with calls of leaf kernels checked */

/* Failures of a case are one. */
static int failed;
static void fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fails(const char *format, ...)
{
    wrong += !failed++;
    if (wrong > 20) return;
    printf("%s %s (seed %llu, threads %d): ", mp_table_name(level), name, (unsigned long long)options.seed, THREADS);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

static jmp_buf escape;
static volatile sig_atomic_t caught, running;

/* A fault of this thread in a case ends the case. Any other, and what a sanitizer ends the program for, is said and no more. */
static void at_signal(int number)
{
    caught = number;
    if (THREADS == 1 && running) longjmp(escape, 1);
    fails("ended by signal %d", number);
    _Exit(1);
}
static void at_death(void)
{
    if (running) fails("ended by a sanitizer");
}
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_signals(void)
{
    static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    struct sigaction action = {.sa_handler = at_signal, .sa_flags = SA_NODEFER};
    /* An emulator without a system has no signals, and refuses. */
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) sigaction(FAULTS[i], &action, 0);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(at_death);
}

/* Whether the case of this name is to run; its values follow from its name and the seed. */
static int begins(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int begins(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if ((options.test && !strstr(name, options.test)) || (options.bench && !strstr(name, options.bench))) return 0;
    seed = options.seed;
    for (const char *c = name; *c; c++) seed = (seed ^ (uint8_t)*c) * 0x100000001b3u; /* FNV-1a */
    if (repeats && (seed >> 32) % REPEATED) return 0;
    if (options.list) return printf("%s %s\n", mp_table_name(level), name), 0;
    compared++;
    failed = 0;
    mp_check_clobbered = mp_check_depth = 0;
    return 1;
}
static int crashed(void)
{
    running = 0;
    fails("ended by signal %d", (int)caught);
    return 1;
}
/* CASE(name as printf has it) {...}. What a case changes before it crashes nobody reads, which gcc does not see. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wclobbered"
#endif
#define CASE(...) if (begins(__VA_ARGS__) && (running = 1) && (setjmp(escape) == 0 || !crashed()))

static int is_touched(const uint8_t *from)
{
    for (int i = 0; i < GUARD; i++)
        if (from[i] != GUARDED) return 1;
    return 0;
}

/* Of what the reference gave, if that is asked. */
static void digest(const char *what, const void *data, size_t bytes)
{
    uint64_t sum = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; options.digest && i < bytes; i++) sum = (sum ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    if (options.digest) printf("digest %s %s %016llx\n", name, what, (unsigned long long)sum);
}

/* How the tables' calls ended, and what is asked of what they left in `out`. */
static int status[2];
static void check(size_t bytes)
{
    running = 0;
    digest(status[0] ? "status" : "results", status[0] ? (void *)status : out[0] + GUARD,
           status[0] ? sizeof *status : bytes);
    if (status[0] != status[1])
        fails("status %d, of the reference %d", status[1], status[0]);
    else if (!status[0] && memcmp(out[0] + GUARD, out[1] + GUARD, bytes))
        fails("results differ from those of %s", REFERENCE);
    for (int k = 0; k < 2; k++)
        if (is_touched(out[k]) || is_touched(out[k] + GUARD + bytes))
            fails("%s wrote outside of its results", mp_table_name(tables[k]));
    if (mp_check_clobbered) fails("a function changed a register that it must keep, or the way of rounding");
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const mp_table *reference(void)
{
    for (int i = 0; i < mp_table_count(); i++)
        if (strcmp(mp_table_name(mp_table_at(i)), REFERENCE) == 0) return mp_table_at(i);
    return 0;
}

/* Checked, but for what is timed. */
static int timed;
#define called(FUNCTION) (timed ? &FUNCTION : mp_checked(FUNCTION))

/* CALL, an expression of the table t and its number k that writes BYTES to `to`, with both tables: checked, and timed if that is asked. */
#define BOTH(BYTES, CALL)                                                                                              \
    {                                                                                                                  \
        double fastest[2] = {1, 1};                                                                                    \
        for (int k = 0; k < 2; k++) {                                                                                  \
            const mp_table *t = tables[k];                                                                             \
            uint8_t *const to = out[k] + GUARD;                                                                        \
            (void)to;                                                                                                  \
            memset(out[k], GUARDED, (BYTES) + 2 * GUARD);                                                              \
            status[k] = CALL;                                                                                          \
        }                                                                                                              \
        check(BYTES);                                                                                                  \
        timed = options.bench != 0;                                                                                    \
        for (int pass = 0; timed && pass < 2000; pass++) {                                                             \
            const int k = pass & 1;                                                                                    \
            const mp_table *t = k ? level : reference();                                                               \
            uint8_t *const to = out[k] + GUARD;                                                                        \
            (void)to;                                                                                                  \
            const double start = seconds();                                                                            \
            for (int repeat = 0; repeat < 4; repeat++) status[k] |= CALL;                                              \
            const double taken = (seconds() - start) / 4;                                                              \
            fastest[k] = taken < fastest[k] ? taken : fastest[k];                                                      \
        }                                                                                                              \
        timed = 0;                                                                                                     \
        if (options.bench)                                                                                             \
            printf("%s %s: %.0f ns, %s %.0f ns\n", mp_table_name(level), name, fastest[1] * 1e9, REFERENCE,            \
                   fastest[0] * 1e9);                                                                                  \
    }

#ifdef BROKEN
/* For test_levels.py: average pooling with a fault, the one that $BROKEN names. */
static void (*sound_mean)(const void *x, void *out, int type, size_t pixels, size_t channels);
static __attribute__((used)) void broken_mean(const void *x, void *out, int type, size_t pixels, size_t channels)
{
    const char *fault = getenv("BROKEN");
    sound_mean(x, out, type, pixels, channels);
    if (strcmp(fault, "result") == 0) ((uint8_t *)out)[channels - 1] ^= 1;
    if (strcmp(fault, "beyond") == 0) ((uint8_t *)out)[channels * mp_type_bytes(type)] = 0;
    if (strcmp(fault, "before") == 0) ((uint8_t *)out)[-1] = 0;
    volatile uintptr_t nowhere = 8;
    if (strcmp(fault, "address") == 0) *(volatile int *)nowhere = 0;
    if (strcmp(fault, "instruction") == 0) __builtin_trap();
#if defined(__x86_64__)
    if (strcmp(fault, "rounding") == 0) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x2000);
#elif defined(__aarch64__)
    if (strcmp(fault, "rounding") == 0) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 22));
#endif
}
/* No compiler writes this: a function that changes a register and goes on as the above. */
void mp_break_register(const void *x, void *out, int type, size_t pixels, size_t channels);
#if defined(__x86_64__)
__asm__(".text\nmp_break_register: movl $1, %r12d\n jmp broken_mean\n");
#elif defined(__aarch64__)
__asm__(".text\nmp_break_register: fmov d11, #1.0\n b broken_mean\n");
#endif
#endif

/* Copies of tables whose leaf kernels are called by mp_checked. */
static const mp_micro *checked_micro(const mp_micro *from)
{
    static mp_micro copies[64];
    static const mp_micro *originals[64];
    static mp_matrix matrices[8];
    static int count, count_matrices;
    for (int i = 0; i < count; i++)
        if (originals[i] == from) return &copies[i];
    if (!from || count == 64 || count_matrices == 8) return from;
    originals[count] = from;
    mp_micro *to = &copies[count++];
    *to = *from;
    to->stage = mp_checked(from->stage), to->stage_blocks = mp_checked(from->stage_blocks);
    to->tile = mp_checked(from->tile), to->tile_blocks = mp_checked(from->tile_blocks);
    to->tile_output = mp_checked(from->tile_output), to->windows = mp_checked(from->windows);
    to->grouped = checked_micro(from->grouped);
    if (from->matrix) {
        mp_matrix *matrix = &matrices[count_matrices++];
        matrix->begin = mp_checked(from->matrix->begin), matrix->end = mp_checked(from->matrix->end);
        matrix->block = mp_checked(from->matrix->block);
        to->matrix = matrix;
    }
    return to;
}
static const mp_table *checked_table(const mp_table *from)
{
    static mp_table copies[32];
    static mp_depthwise depthwise[64];
    static mp_winograd winograd[64];
    static int count, count_depthwise, count_winograd;
    for (int i = 0; i < count; i++)
        if (strcmp(copies[i].name, from->name) == 0) return &copies[i];
    mp_table *to = &copies[count++];
    *to = *from;
    for (int i = 0; i < MP_PRECISIONS; i++) {
        to->micro[i] = checked_micro(from->micro[i]);
        if (from->depthwise[i]) {
            mp_depthwise *copy = &depthwise[count_depthwise++];
            *copy = *from->depthwise[i];
            copy->stage = mp_checked(copy->stage), copy->row = mp_checked(copy->row);
            to->depthwise[i] = copy;
        }
        if (from->winograd[i]) {
            mp_winograd *copy = &winograd[count_winograd++];
            *copy = *from->winograd[i];
            copy->micro = checked_micro(copy->micro);
            copy->input = mp_checked(copy->input), copy->output = mp_checked(copy->output);
            to->winograd[i] = copy;
        }
    }
    to->matrix = checked_micro(from->matrix);
#define CHECKED_LEAF(RESULT, NAME, ...) to->NAME = mp_checked(from->NAME);
    MP_LEAVES(CHECKED_LEAF)
#ifdef BROKEN
    sound_mean = from->mean;
    if (count > 1)
        to->mean = strcmp(getenv("BROKEN"), "register") ? mp_checked(broken_mean) : mp_checked(mp_break_register);
#endif
    return to;
}

static const char *precision_name(int precision)
{
    static const char *const NAMES[MP_PRECISIONS] = {
        [MP_FP32] = "fp32",       [MP_FP32_WINOGRAD] = "fp32_winograd",
        [MP_FP16] = "fp16",       [MP_FP16_HALF] = "fp16_half",
        [MP_BF16] = "bf16",       [MP_INT8] = "int8",
        [MP_INT6] = "int6",       [MP_INT5] = "int5",
        [MP_INT4] = "int4",       [MP_INT3] = "int3",
        [MP_INT16] = "int16",     [MP_INT16W6] = "int16w6",
        [MP_INT16W5] = "int16w5", [MP_INT16W4] = "int16w4",
        [MP_INT16W3] = "int16w3", [MP_FP16_HALF_WINOGRAD] = "fp16_half_winograd",
    };
    return NAMES[precision] ? NAMES[precision] : "unnamed";
}
static const char *type_name(int type)
{
    switch (type) {
#define TYPE_NAME(NAME, ...)                                                                                           \
    case MP_TYPE_##NAME: return #NAME;
        MP_STORED_TYPES(TYPE_NAME)
    default: return "unnamed";
    }
}

static int understood(const char *word)
{
    char *end = "";
    if (strcmp(word, "--list") == 0)
        options.list = 1;
    else if (strcmp(word, "--digest") == 0)
        options.digest = 1;
    else if (strncmp(word, "--test=", 7) == 0)
        options.test = word + 7;
    else if (strncmp(word, "--level=", 8) == 0)
        options.level = word + 8;
    else if (strncmp(word, "--bench=", 8) == 0)
        options.bench = word + 8;
    else if (strncmp(word, "--seed=", 7) == 0 && word[7])
        options.seed = strtoull(word + 7, &end, 10);
    else
        end = "unknown";
    return *end == 0;
}
#endif
