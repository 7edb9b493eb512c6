/* SPDX-License-Identifier: MIT */
/* QEMU TCG plugin: how many AArch64 instructions a program executes between its marks, by kind. The program marks the begin
 * with `hint #0x70` and the end with `hint #0x71`, which every core ignores. A line per marked region and one for all that ran:
 * "region total=... vector_load=... vector_store=... stack=... other=...", where stack are vector accesses through sp: what a
 * compiler spilled, and the registers a function has to keep. Only one thread may run between marks.
 * QEMU's plugin interface is declared here, since Debian ships no header for it (QEMU, docs/devel/tcg-plugins.rst). */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { ADD_INLINE = 0, NO_REGISTERS = 0 };
typedef void (*translate)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*executed)(unsigned int cpu, void *data);
typedef void (*ended)(qemu_plugin_id_t id, void *data);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translate call);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, ended call, void *data);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed call, int flags, void *data);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int op, void *counter,
                                                       uint64_t add);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
EXPORT int qemu_plugin_version = 1;

enum { BEGIN = 0xd5032e1f, END = 0xd5032e3f }; /* hint #0x70, hint #0x71 */
enum { VECTOR_LOAD, VECTOR_STORE, STACK, OTHER, KINDS };
static const char *const NAMES[KINDS] = {"vector_load", "vector_store", "stack", "other"};
static uint64_t counts[KINDS], at_begin[KINDS];
static FILE *out;

/* From the encoding (Arm Architecture Reference Manual, C4.1): QEMU's disassembler knows nothing after ARMv8.0. */
static int kind_of(uint32_t word)
{
    const bool memory = (word >> 25 & 5) == 4, vector = word >> 26 & 1;
    if (!memory || !vector) return OTHER;
    const bool literal = (word & 0x3b000000) == 0x18000000;
    if (!literal && (word >> 5 & 31) == 31) return STACK;
    return literal || word >> 22 & 1 ? VECTOR_LOAD : VECTOR_STORE;
}

static void print(const char *what, const uint64_t *from)
{
    uint64_t total = 0;
    for (int i = 0; i < KINDS; i++) total += counts[i] - from[i];
    fprintf(out, "%s total=%" PRIu64, what, total);
    for (int i = 0; i < KINDS; i++) fprintf(out, " %s=%" PRIu64, NAMES[i], counts[i] - from[i]);
    fputc('\n', out);
    fflush(out);
}

static void begin(unsigned int cpu, void *data)
{
    (void)cpu, (void)data;
    memcpy(at_begin, counts, sizeof counts);
}

static void end(unsigned int cpu, void *data)
{
    (void)cpu, (void)data;
    print("region", at_begin);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        uint32_t word;
        memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
        if (word == BEGIN || word == END) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, word == BEGIN ? begin : end, NO_REGISTERS, NULL);
            continue;
        }
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_INLINE, &counts[kind_of(word)], 1);
    }
}

static void finished(qemu_plugin_id_t id, void *data)
{
    static const uint64_t nothing[KINDS];
    (void)id, (void)data;
    print("process", nothing);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    out = stderr;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "out=", 4) == 0 && !(out = fopen(argv[i] + 4, "w"))) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
