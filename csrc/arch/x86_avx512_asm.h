/* The depth loop of a full tile, 12 pixels x 2 vectors of channels, in assembly: compilers spill and copy sums where none of
 * that is needed (gcc 12: 111 instructions for 24 VPDPBUSD), and park row pointers in vector registers, from where they
 * come back through a multiplier's port. Tiles with fewer rows stay in C.
 *
 * Fifteen general registers: the first row's address moves, the other eleven rows are distances from it; rdi weights, rbx
 * what to fetch ahead, rbp the end of a segment's weights. The compiler may not lend rbx and rbp (frame and base pointers),
 * so they are saved here, below the red zone; what else the loop needs lies beside them on the stack. */
#ifndef MP_X86_AVX512_ASM_H
#define MP_X86_AVX512_ASM_H
#include <stddef.h>

typedef struct {
    const char *const *rows;
    const char *ahead;
    const ptrdiff_t *seg;
    ptrdiff_t segments;
    const void *start;    /* sums to begin with; the next row's are start_step further */
    ptrdiff_t start_step;
    const void *b;
    ptrdiff_t b_run;      /* bytes of weights of a segment */
    ptrdiff_t ahead_step;
} asm_tile;

#define ASM_START(i) "vmovups (%%rax), %[c" #i "0]\n vmovups 64(%%rax), %[c" #i "1]\n add %%rcx, %%rax\n"
#define ASM_DISTANCE(at, row) "mov " #at "(%%rbp), %%" #row "\n sub %%rax, %%" #row "\n"

/* One depth position (four bytes) of a row: BROADCAST to zmm31, times the weights in zmm28 and zmm29. */
#define ASM_ROW(BROADCAST, MAC, i, address) BROADCAST " " address ", %%zmm31\n" MAC(28, i, 0) MAC(29, i, 1)
#define ASM_FMA(b, i, half) "vfmadd231ps %%zmm31, %%zmm" #b ", %[c" #i #half "]\n"
#define ASM_DOT8(b, i, half) "vpdpbusd %%zmm" #b ", %%zmm31, %[c" #i #half "]\n"
#define ASM_DOT16(b, i, half) "vpmaddwd %%zmm" #b ", %%zmm31, %%zmm30\n vpaddd %%zmm30, %[c" #i #half "], %[c" #i #half "]\n"

#define ASM_SUM(i) [c##i##0] "=&v"(c##i##0), [c##i##1] "=&v"(c##i##1)
/* Sets the sums c00 to c111. Within kernels/tile.h. */
#define TILE_ASM(BROADCAST, MAC, KSTEP)                                                                        \
    const asm_tile of = {a, ahead, seg, segments, init ? init : acc, init ? 0 : 8 * VL, b, run / KSTEP * 8 * VL, ahead_step}; \
    const asm_tile *at = &of;                                                                                          \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n"                                                                        \
                     "push %%rbx\n"                                                                                    \
                     "push %%rbp\n"                                                                                    \
                     "mov 32(%%rdi), %%rax\n"                                                                          \
                     "mov 40(%%rdi), %%rcx\n" TILE_ROWS(ASM_START)                                                     \
                     "mov (%%rdi), %%rbp\n"                                                                            \
                     "mov (%%rbp), %%rax\n" ASM_DISTANCE(8, rcx) ASM_DISTANCE(16, rdx) ASM_DISTANCE(24, rsi)           \
                     ASM_DISTANCE(32, r8) ASM_DISTANCE(40, r9) ASM_DISTANCE(48, r10) ASM_DISTANCE(56, r11)             \
                     ASM_DISTANCE(64, r12) ASM_DISTANCE(72, r13) ASM_DISTANCE(80, r14) ASM_DISTANCE(88, r15)           \
                     "pushq 64(%%rdi)\n" /* 32(%rsp): bytes to fetch further */                                        \
                     "pushq 56(%%rdi)\n" /* 24(%rsp): bytes of weights of a segment */                                 \
                     "pushq 24(%%rdi)\n" /* 16(%rsp): segments left */                                                 \
                     "pushq 16(%%rdi)\n" /* 8(%rsp): where their offsets are */                                        \
                     "push %%rax\n"      /* (%rsp): the first row */                                                   \
                     "mov 8(%%rdi), %%rbx\n"                                                                           \
                     "mov 48(%%rdi), %%rdi\n"                                                                          \
                     "1: mov 8(%%rsp), %%rbp\n"                                                                        \
                     "addq $8, 8(%%rsp)\n"                                                                             \
                     "mov (%%rbp), %%rax\n"                                                                            \
                     "add (%%rsp), %%rax\n"                                                                            \
                     "mov 24(%%rsp), %%rbp\n"                                                                          \
                     "add %%rdi, %%rbp\n"                                                                              \
                     "2: vmovups (%%rdi), %%zmm28\n"                                                                   \
                     "vmovups 64(%%rdi), %%zmm29\n"                                                                    \
                     "prefetcht1 (%%rbx)\n"                                                                            \
                     "add 32(%%rsp), %%rbx\n" ASM_ROW(BROADCAST, MAC, 0, "(%%rax)")                                    \
                     ASM_ROW(BROADCAST, MAC, 1, "(%%rax,%%rcx)") ASM_ROW(BROADCAST, MAC, 2, "(%%rax,%%rdx)")           \
                     ASM_ROW(BROADCAST, MAC, 3, "(%%rax,%%rsi)") ASM_ROW(BROADCAST, MAC, 4, "(%%rax,%%r8)")            \
                     ASM_ROW(BROADCAST, MAC, 5, "(%%rax,%%r9)") ASM_ROW(BROADCAST, MAC, 6, "(%%rax,%%r10)")            \
                     ASM_ROW(BROADCAST, MAC, 7, "(%%rax,%%r11)") ASM_ROW(BROADCAST, MAC, 8, "(%%rax,%%r12)")           \
                     ASM_ROW(BROADCAST, MAC, 9, "(%%rax,%%r13)") ASM_ROW(BROADCAST, MAC, 10, "(%%rax,%%r14)")          \
                     ASM_ROW(BROADCAST, MAC, 11, "(%%rax,%%r15)")                                                      \
                     "add $128, %%rdi\n"                                                                               \
                     "add $4, %%rax\n"                                                                                 \
                     "cmp %%rbp, %%rdi\n"                                                                              \
                     "jb 2b\n"                                                                                         \
                     "decq 16(%%rsp)\n"                                                                                \
                     "jnz 1b\n"                                                                                        \
                     "add $40, %%rsp\n"                                                                                \
                     "pop %%rbp\n"                                                                                     \
                     "pop %%rbx\n"                                                                                     \
                     "lea 128(%%rsp), %%rsp\n"                                                                         \
                     : "+D"(at), ASM_SUM(0), ASM_SUM(1), ASM_SUM(2), ASM_SUM(3), ASM_SUM(4), ASM_SUM(5), ASM_SUM(6),   \
                       ASM_SUM(7), ASM_SUM(8), ASM_SUM(9), ASM_SUM(10), ASM_SUM(11)                                    \
                     :                                                                                                 \
                     : "memory", "cc", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",      \
                       "r15", "xmm28", "xmm29", "xmm30", "xmm31");                                                     \
    summed = 1;

#define TILE_LOOP_F32 TILE_ASM("vbroadcastss", ASM_FMA, 1)
#ifdef MP_HAS_DOT8
#define TILE_LOOP_I8 TILE_ASM("vpbroadcastd", ASM_DOT8, 4)
#else
#define TILE_LOOP_I8 TILE_ASM("vpbroadcastd", ASM_DOT16, 2)
#endif
#endif
