/* SPDX-License-Identifier: MIT */
/* QEMU TCG plugin: how many AArch64 instructions a program executes between its marks, by kind. The program marks the begin
 * with `hint #0x70` and the end with `hint #0x71`, which every core ignores. A line per marked region and one for all that ran:
 * "region total=... vector_load=... vector_store=... stack=... float=... dot=... integer=... vector=... branch=... other=...",
 * where stack are vector accesses through sp: what a compiler spilled, and the registers a function has to keep; float, dot and
 * integer are vector multiplications, vector is what other work vectors do. Only one thread may run between marks.
 * Options: out=FILE; begin=ADDRESS,end=ADDRESS: a region also begins where the first runs (of a static program) and ends where it
 * runs again; where the second runs, the region and the program end.
 * QEMU's plugin interface is declared here, since Debian ships no header for it (QEMU, docs/devel/tcg-plugins.rst). */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
EXPORT int qemu_plugin_version = 1;

enum { BEGIN = 0xd5032e1f, END = 0xd5032e3f }; /* hint #0x70, hint #0x71 */
enum { VECTOR_LOAD, VECTOR_STORE, STACK, FLOAT, DOT, INTEGER, VECTOR, BRANCH, OTHER, KINDS };
static const char *const NAMES[KINDS] = {"vector_load", "vector_store", "stack",  "float", "dot",
                                         "integer",     "vector",       "branch", "other"};
static uint64_t begin_address, end_address;
static bool is_inside;
static uint64_t counts[KINDS], at_begin[KINDS];
static FILE *out;

/* Of a data-processing instruction of vectors (C4.1.96): FLOAT, DOT or INTEGER for a product, else VECTOR. */
static int vector_kind_of(uint32_t word)
{
    const unsigned long_opcode = word >> 12 & 15, opcode = word >> 11 & 31;
    const bool is_unsigned = word >> 29 & 1;
    if ((word & 0xdf000000) == 0x1f000000 || (word & 0xdf20fc00) == 0x1e200800) return FLOAT; /* scalar FMADD, FMUL */
    if (word >> 31 || (word >> 28 & 1)) return VECTOR;
    if ((word & 0x0f000400) == 0x0f000000) {                                            /* by element */
        if ((long_opcode & 3) == 1 && (!is_unsigned || long_opcode == 9)) return FLOAT; /* FMLA, FMLS, FMUL, FMULX */
        if (long_opcode == 14) return DOT;
        return long_opcode == 0 || long_opcode == 4 || long_opcode == 8 || (long_opcode & 3) == 2 ? INTEGER : VECTOR;
    }
    const unsigned short_opcode = word >> 11 & 15;
    if ((word & 0x0f208400) == 0x0e008400) /* three the same, more: dot products and products of matrices */
        return short_opcode >= 2 && short_opcode <= 5 ? DOT : VECTOR;
    if ((word & 0x0f60c400) == 0x0e400400) /* three the same, halves */
        return (opcode & 7) == 1 || ((opcode & 7) == 3) ? FLOAT : VECTOR;
    if ((word & 0x0f200400) == 0x0e200400) /* three the same */
        return opcode == 25 || opcode == 27 ? FLOAT : opcode == 18 || opcode == 19 ? INTEGER : VECTOR;
    if ((word & 0x0f200c00) == 0x0e200000) /* three of different lengths */
        return long_opcode >= 8 && long_opcode != 15 ? INTEGER : VECTOR;
    return VECTOR;
}

/* From the encoding (Arm Architecture Reference Manual, C4.1): QEMU's disassembler knows nothing after ARMv8.0. */
static int kind_of(uint32_t word)
{
    const bool memory = (word >> 25 & 5) == 4, vector = word >> 26 & 1;
    if ((word >> 25 & 7) == 7) return vector_kind_of(word);
    if ((word >> 26 & 7) == 5) return BRANCH;
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

static void begin_step(unsigned int cpu, void *data)
{
    if (is_inside) end(cpu, data);
    is_inside = true;
    begin(cpu, data);
}

static void end_program(unsigned int cpu, void *data)
{
    if (!is_inside) return;
    end(cpu, data);
    exit(0);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        const uint64_t address = qemu_plugin_insn_vaddr(insn);
        uint32_t word;
        memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
        if (begin_address && (address == begin_address || address == end_address))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, address == begin_address ? begin_step : end_program,
                                                   NO_REGISTERS, NULL);
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
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0 && !(out = fopen(argv[i] + 4, "w"))) return 1;
        if (strncmp(argv[i], "begin=", 6) == 0) begin_address = strtoull(argv[i] + 6, NULL, 16);
        if (strncmp(argv[i], "end=", 4) == 0) end_address = strtoull(argv[i] + 4, NULL, 16);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
