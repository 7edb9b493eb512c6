/* SPDX-License-Identifier: MIT */
/* CPU features as the operating system lets a program use them. */
#ifndef MP_CPU_H
#define MP_CPU_H

/* MP_CPU_<name>, a bit for each feature of isa.def; those of another architecture are never there. */
enum {
#define X86_FEATURE(NAME, ...) MP_CPU_NUMBER_##NAME,
#define ARM_FEATURE(NAME, ...) MP_CPU_NUMBER_##NAME,
#include "isa.def"
};
enum {
#define X86_FEATURE(NAME, ...) MP_CPU_##NAME = 1 << MP_CPU_NUMBER_##NAME,
#define ARM_FEATURE(NAME, ...) MP_CPU_##NAME = 1 << MP_CPU_NUMBER_##NAME,
#include "isa.def"
};

/* The features of this CPU. Asks it each time; cheap, and without hidden state but the system's own: Linux is asked to let this
 * process use tiles. */
unsigned mp_cpu_detect(void);
#endif
