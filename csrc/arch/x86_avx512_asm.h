/* Full tiles, 12 pixels x 2 vectors of channels, or x 1 where a panel has no more: in assembly, since compilers spill and copy
 * sums where none of that is needed (gcc 12: 111 instructions for 24 VPDPBUSD), and park row pointers in vector registers,
 * from where they come back through a multiplier's port. Tiles with fewer rows stay in C.
 *
 * zmm0 to zmm23 sums, two a row; zmm28 and zmm29 weights, zmm31 a row's activation in all lanes, where two multiplications
 * read it. All fifteen general registers: the first row's address moves, the other eleven rows are distances from it; rdi
 * weights, rbx what to fetch ahead, rbp the end of a segment's weights. The compiler may not lend rbx and rbp (frame and base
 * pointers), so they are saved here, below the red zone; what else is needed lies beside them on the stack. */
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
    void *acc;
} asm_tile;

/* M(first sum, second sum, row's distance) */
#define ASM_ROWS(M)                                                                                                    \
    M(0, 1, "") M(2, 3, ",%%rcx") M(4, 5, ",%%rdx") M(6, 7, ",%%rsi") M(8, 9, ",%%r8") M(10, 11, ",%%r9")              \
    M(12, 13, ",%%r10") M(14, 15, ",%%r11") M(16, 17, ",%%r12") M(18, 19, ",%%r13") M(20, 21, ",%%r14")                \
    M(22, 23, ",%%r15")
#define ASM_START_2(c0, c1, row) ASM_START_1(c0, c1, row) "vmovups 64(%%rax), %%zmm" #c1 "\n"
#define ASM_START_1(c0, c1, row) "add %%rcx, %%rax\n vmovups (%%rax), %%zmm" #c0 "\n"
#define ASM_END_2(c0, c1, row) ASM_END_1(c0, c1, row) "vmovups %%zmm" #c1 ", " #c1 "*64(%%rax)\n"
#define ASM_END_1(c0, c1, row) "vmovups %%zmm" #c0 ", " #c0 "*64(%%rax)\n"
#define ASM_DISTANCE(at, row) "mov " #at "(%%rbp), %%" #row "\n sub %%rax, %%" #row "\n"

/* Four bytes of a row times the weights: an fp32 activation, four int8 or two int16. */
#define ASM_MAC_F32(b, c) "vfmadd231ps %%zmm" #b ", %%zmm31, %%zmm" #c "\n"
#define ASM_MAC_U8(b, c) "vpdpbusd %%zmm" #b ", %%zmm31, %%zmm" #c "\n"
#define ASM_MAC_S16(b, c) "vpmaddwd %%zmm" #b ", %%zmm31, %%zmm30\n vpaddd %%zmm30, %%zmm" #c ", %%zmm" #c "\n"
#define ASM_ROW_F32_2(c0, c1, row)                                                                                     \
    "vbroadcastss (%%rax" row "), %%zmm31\n" ASM_MAC_F32(28, c0) ASM_MAC_F32(29, c1)
#define ASM_ROW_F32_1(c0, c1, row) "vfmadd231ps (%%rax" row ")%{1to16%}, %%zmm28, %%zmm" #c0 "\n"
#define ASM_ROW_U8_2(c0, c1, row) ASM_ROW_U8_1(c0, c1, row) ASM_MAC_U8(29, c1)
#define ASM_ROW_U8_1(c0, c1, row) "vpbroadcastd (%%rax" row "), %%zmm31\n" ASM_MAC_U8(28, c0)
#define ASM_ROW_S16_2(c0, c1, row) ASM_ROW_S16_1(c0, c1, row) ASM_MAC_S16(29, c1)
#define ASM_ROW_S16_1(c0, c1, row) "vpbroadcastd (%%rax" row "), %%zmm31\n" ASM_MAC_S16(28, c0)
#define ASM_SECOND_2 "vmovups 64(%%rdi), %%zmm29\n prefetcht1 (%%rbx)\n add 32(%%rsp), %%rbx\n"
#define ASM_SECOND_1 /* bound by loads: what is ahead is fetched before */

#define ASM_TILE(NAME, ROW, VECTORS)                                                                                   \
    __attribute__((noinline)) static void NAME(const asm_tile *tile)                                                   \
    {                                                                                                                  \
        __asm__ volatile("lea -128(%%rsp), %%rsp\n"                                                                    \
                         "push %%rbx\n"                                                                                \
                         "push %%rbp\n"                                                                                \
                         "mov 32(%%rdi), %%rax\n"                                                                      \
                         "mov 40(%%rdi), %%rcx\n"                                                                      \
                         "sub %%rcx, %%rax\n" ASM_ROWS(ASM_START_##VECTORS)                                            \
                         "mov (%%rdi), %%rbp\n"                                                                        \
                         "mov (%%rbp), %%rax\n" ASM_DISTANCE(8, rcx) ASM_DISTANCE(16, rdx) ASM_DISTANCE(24, rsi)       \
                         ASM_DISTANCE(32, r8) ASM_DISTANCE(40, r9) ASM_DISTANCE(48, r10) ASM_DISTANCE(56, r11)         \
                         ASM_DISTANCE(64, r12) ASM_DISTANCE(72, r13) ASM_DISTANCE(80, r14) ASM_DISTANCE(88, r15)       \
                         "pushq 72(%%rdi)\n" /* 40(%rsp): where the sums go */                                         \
                         "pushq 64(%%rdi)\n" /* 32(%rsp): bytes to fetch further */                                    \
                         "pushq 56(%%rdi)\n" /* 24(%rsp): bytes of weights of a segment */                             \
                         "pushq 24(%%rdi)\n" /* 16(%rsp): segments left */                                             \
                         "pushq 16(%%rdi)\n" /* 8(%rsp): where their offsets are */                                    \
                         "push %%rax\n"      /* (%rsp): the first row */                                               \
                         "mov 8(%%rdi), %%rbx\n"                                                                       \
                         "mov 48(%%rdi), %%rdi\n"                                                                      \
                         "1: mov 8(%%rsp), %%rbp\n"                                                                    \
                         "addq $8, 8(%%rsp)\n"                                                                         \
                         "mov (%%rbp), %%rax\n"                                                                        \
                         "add (%%rsp), %%rax\n"                                                                        \
                         "mov 24(%%rsp), %%rbp\n"                                                                      \
                         "add %%rdi, %%rbp\n"                                                                          \
                         ".p2align 6\n"                                                                                \
                         "2: vmovups (%%rdi), %%zmm28\n" ASM_SECOND_##VECTORS                                          \
                         ASM_ROWS(ASM_ROW_##ROW##_##VECTORS)                                                           \
                         "add $128, %%rdi\n"                                                                           \
                         "add $4, %%rax\n"                                                                             \
                         "cmp %%rbp, %%rdi\n"                                                                          \
                         "jb 2b\n"                                                                                     \
                         "decq 16(%%rsp)\n"                                                                            \
                         "jnz 1b\n"                                                                                    \
                         "mov 40(%%rsp), %%rax\n" ASM_ROWS(ASM_END_##VECTORS)                                          \
                         "add $48, %%rsp\n"                                                                            \
                         "vzeroupper\n" /* the compiler does not see the upper halves, which slow the driver's SSE code */ \
                         "pop %%rbp\n"                                                                                 \
                         "pop %%rbx\n"                                                                                 \
                         "lea 128(%%rsp), %%rsp\n"                                                                     \
                         : "+D"(tile)                                                                                  \
                         :                                                                                             \
                         : "memory", "cc", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",  \
                           "r15", ASM_VECTORS);                                                                        \
    }
#define ASM_VECTORS                                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",\
        "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm28", "xmm29",    \
        "xmm30", "xmm31"

/* Within a tile of kernels/tile.h: full ones, and then returns. The compiler is told that no others have twelve rows. */
#define ASM_FULL(NAME, KSTEP)                                                                                          \
    if (rows >= MP_MR) {                                                                                               \
        const ptrdiff_t row = 8 * VL;                                                                                  \
        const asm_tile tile = {a, ahead, seg, segments, init ? init : acc, init ? 0 : row, b, run / KSTEP * row,       \
                               ahead_step, acc};                                                                       \
        if (channels > VL) {                                                                                           \
            NAME##_full(&tile);                                                                                        \
            return;                                                                                                    \
        }                                                                                                              \
        const char *const end = ahead + (ptrdiff_t)segments * (run / KSTEP) * ahead_step;                              \
        for (const char *line = ahead; line < end; line += 64) __builtin_prefetch(line, 0, 2);                         \
        NAME##_half(&tile);                                                                                            \
        return;                                                                                                        \
    }                                                                                                                  \
    if (rows < 1)                                                                                                      \
        __builtin_unreachable();
ASM_TILE(tile_f32_full, F32, 2)
ASM_TILE(tile_f32_half, F32, 1)
#define TILE_FULL_F32 ASM_FULL(tile_f32, 1)
#ifdef MP_HAS_DOT8
ASM_TILE(tile_u8_full, U8, 2)
ASM_TILE(tile_u8_half, U8, 1)
#define TILE_FULL_I8 ASM_FULL(tile_u8, 4)
#else
ASM_TILE(tile_s16_full, S16, 2)
ASM_TILE(tile_s16_half, S16, 1)
#define TILE_FULL_I8 ASM_FULL(tile_s16, 2)
#endif
#endif
