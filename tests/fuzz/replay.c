/* SPDX-License-Identifier: MIT */
/* Gives files to a fuzz target, once each, or changed again and again: for compilers without libFuzzer, for objects without its
 * instrumentation, and for CPUs that are emulated.
 *
 * replay FILE...                    each as it is
 * replay -m COUNT SEED FILE...      COUNT times one of them with some changes; what the target dies of is left in `found`
 *
 * With EMBEDDED, of an emulator without files, the files are the program's own (build.py) and so are COUNT and SEED. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 16 };
typedef struct {
    const uint8_t *data;
    size_t size;
} input;

static uint64_t state;
static uint8_t changed[ROOM];
static size_t changed_size;

static uint64_t draw(uint64_t below) /* xorshift64* */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1dull >> 24) % below;
}

static int32_t odd_number(void)
{
    static const int32_t NUMBERS[] = {0,   1,   2,   3,    4,     7,       8,       16,      31,       64,
                                      127, 255, 256, 4096, 65535, 1 << 20, 1 << 24, 1 << 30, INT32_MAX};
    const int32_t number = NUMBERS[draw(sizeof NUMBERS / sizeof *NUMBERS)];
    return draw(3) ? number : -number - (int32_t)draw(2);
}

static float odd_real(void)
{
    static const float REALS[] = {0.0f,     1e-45f, 1e-38f,           1e-7f,
                                  0.5f,     1.0f,   255.5f,           65504.0f,
                                  65536.0f, 3e38f,  __builtin_inff(), __builtin_nanf("")};
    const float real = REALS[draw(sizeof REALS / sizeof *REALS)];
    return draw(2) ? real : -real;
}

/* One change. A bundle's records, all of words, come before the weights and are what most often breaks something. */
static void change(void)
{
    const int bundle = changed_size > 512 && memcmp(changed, "mpbundle", 8) == 0;
    const size_t records = bundle && draw(4) ? changed_size * 2 / 3 : changed_size;
    const size_t at = draw(records), word = at / 4 * 4;
    int32_t value = 0;
    memcpy(&value, changed + word, word + 4 <= changed_size ? 4 : 0);
    switch (draw(8)) {
    case 0: changed[at] ^= (uint8_t)(1 << draw(8)); return;
    case 1: changed[at] = (uint8_t)odd_number(); return;
    case 2: /* another word of the file */
        if (changed_size >= 8) memcpy(&value, changed + draw(records / 4) * 4, 4);
        break;
    case 3: {
        const float real = odd_real();
        memcpy(&value, &real, 4);
        break;
    }
    case 4: value = (int32_t)((uint32_t)value + (uint32_t)draw(9) - 4u); break; /* wraps, as the words of a file may */
    case 5: {                                                                   /* a piece of it elsewhere */
        const size_t from = draw(changed_size), span = 1 + draw(64), room = changed_size - (from > at ? from : at);
        memmove(changed + at, changed + from, span < room ? span : room);
        return;
    }
    case 6:
        if (!bundle && draw(2)) { /* shorter or longer */
            const size_t span = 1 + draw(16), rest = changed_size - at;
            if (draw(2) && span < rest) {
                memmove(changed + at, changed + at + span, rest - span);
                changed_size -= span;
            } else if (changed_size + span <= ROOM) {
                memmove(changed + at + span, changed + at, rest);
                changed_size += span;
            }
            return;
        } /* fall through */
    default: value = odd_number();
    }
    if (word + 4 <= changed_size) memcpy(changed + word, &value, 4);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void give_changed(const input *inputs, size_t count, uint64_t runs, uint64_t seed)
{
    double slowest = 0;
    for (uint64_t run = 0; run < runs; run++) {
        state = (seed << 32 | run) * 0x9e3779b97f4a7c15ull | 1;
        for (int i = 0; i < 4; i++) draw(2);
        const input *one = &inputs[draw(count)];
        memcpy(changed, one->data, changed_size = one->size < ROOM ? one->size : ROOM);
        for (uint64_t changes = 1 + draw(4); changes > 0 && changed_size; changes--) change();
        uint8_t *data = malloc(changed_size + !changed_size); /* of its size, for what watches memory */
        memcpy(data, changed, changed_size);
        const double began = now_ms();
        LLVMFuzzerTestOneInput(data, changed_size);
        const double took = now_ms() - began;
        if (took > slowest) slowest = took;
        free(data);
    }
    fprintf(stderr, "%llu changed files, seed %llu, slowest %.0f ms\n", (unsigned long long)runs,
            (unsigned long long)seed, slowest);
}

#ifdef EMBEDDED
extern const uint8_t *const embedded[];
extern const uint64_t embedded_sizes[], embedded_count;

int main(void)
{
    static input inputs[1024];
    for (size_t k = 0; k < embedded_count; k++) {
        inputs[k] = (input){embedded[k], embedded_sizes[k]};
        LLVMFuzzerTestOneInput(embedded[k], embedded_sizes[k]);
    }
    give_changed(inputs, embedded_count, RUNS, SEED);
    return 0;
}
#else
static void keep(int signal_number)
{
    const int handle = open("found", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (handle >= 0 && write(handle, changed, changed_size) == (ssize_t)changed_size) close(handle);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static input read_file(const char *name)
{
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END)) perror(name), exit(2);
    const long size = ftell(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    rewind(file);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) perror(name), exit(2);
    fclose(file);
    return (input){data, (size_t)size};
}

int main(int count, char **names)
{
    const int changes = count > 4 && strcmp(names[1], "-m") == 0, first = changes ? 4 : 1;
    input *inputs = malloc(sizeof *inputs * (size_t)count);
    for (int k = first; k < count; k++) {
        inputs[k - first] = read_file(names[k]);
        if (changes) continue;
        fprintf(stderr, "%s\n", names[k]); /* the last one named is the one that fails */
        LLVMFuzzerTestOneInput(inputs[k - first].data, inputs[k - first].size);
    }
    if (changes) {
        const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], keep);
        give_changed(inputs, (size_t)(count - first), strtoull(names[2], 0, 10), strtoull(names[3], 0, 10));
    }
    for (int k = first; k < count; k++) free((void *)(uintptr_t)inputs[k - first].data);
    free(inputs);
    return 0;
}
#endif
