/* CPU features as the operating system lets a program use them. */
#ifndef MP_CPU_H
#define MP_CPU_H

typedef struct {
    int avx2, fma, f16c, avx512, avx512vnni; /* avx512: F, BW, VL, DQ */
    int amx;                                 /* tiles and their int8 products, which the system lets this process use */
    int neon, fp16, dotprod, i8mm, crc;
} mp_cpu;

/* Asks the CPU each time; cheap, and without hidden state but the system's own: Linux is asked to let this process use tiles. */
void mp_cpu_detect(mp_cpu *cpu);
#endif
