/* SPDX-License-Identifier: MIT */
/* Full tiles, 12 pixels x 2 vectors of channels, or x 1 where a panel has no more: in assembly, since compilers spill and copy
 * sums where none of that is needed (gcc 12: 111 instructions for 24 VPDPBUSD), and park row pointers in vector registers,
 * from where they come back through a multiplier's port. Tiles with fewer rows stay in C.
 *
 * Sums are the compiler's variables, two a row, so that they are still in registers where they are stored or finished; zmm28 and
 * zmm29 weights, zmm31 a row's activation in all lanes, where two multiplications read it. All fifteen general registers: the
 * first row's address moves, the other eleven rows are distances from it; rdi weights, rbx what to fetch ahead, rbp the end of a
 * segment's weights. The compiler may not lend rbx and rbp (frame and base pointers), so they are saved here, below the red zone;
 * what else is needed lies beside them on the stack. */
#ifndef MP_X86_AVX512_ASM_H
#define MP_X86_AVX512_ASM_H
#include <stddef.h>
#include "../kernels/finish.h"

typedef struct {
    const char *const *rows; /* NULL: they lie evenly apart */
    const char *ahead;
    const ptrdiff_t *seg;
    ptrdiff_t segments;
    const void *start;    /* sums to begin with; the next row's are start_step further */
    ptrdiff_t start_step;
    const void *b;
    ptrdiff_t b_run;      /* bytes of weights of a segment */
    ptrdiff_t ahead_step;
    size_t pixel; /* bytes from row to row, where they lie evenly apart, and */
    const char *first;
    void *acc;            /* where the sums go, or */
    tile_results results; /* their results: */
    int last;             /* channels of the last vector */
} asm_tile;

/* M(row, row's distance) */
#define ASM_ROWS(M)                                                                                                    \
    M(0, "") M(1, ",%%rcx") M(2, ",%%rdx") M(3, ",%%rsi") M(4, ",%%r8") M(5, ",%%r9")                                  \
    M(6, ",%%r10") M(7, ",%%r11") M(8, ",%%r12") M(9, ",%%r13") M(10, ",%%r14") M(11, ",%%r15")
#define ASM_START_2(i, row) ASM_START_1(i, row) "vmovups 64(%%rax), %[c" #i "1]\n"
#define ASM_START_1(i, row) "add %%rcx, %%rax\n vmovups (%%rax), %[c" #i "0]\n"
#define ASM_INIT_1 "vmovups (%%rax), %[c00]\n"
#define ASM_INIT_2 ASM_INIT_1 "vmovups 64(%%rax), %[c01]\n"
#define ASM_COPY_1(i) "vmovaps %[c00], %[c" #i "0]\n"
#define ASM_COPY_2(i) ASM_COPY_1(i) "vmovaps %[c01], %[c" #i "1]\n"
/* Of rcx, in the order of ASM_ROWS. */
#define ASM_MULTIPLES                                                                                                  \
    "lea (%%rcx,%%rcx), %%rdx\n lea (%%rcx,%%rcx,2), %%rsi\n lea (,%%rcx,4), %%r8\n lea (%%rcx,%%rcx,4), %%r9\n"       \
    "lea (%%rsi,%%rsi), %%r10\n lea (%%r8,%%rsi), %%r11\n lea (,%%rcx,8), %%r12\n lea (%%rcx,%%rcx,8), %%r13\n"        \
    "lea (%%r9,%%r9), %%r14\n lea (%%r13,%%rdx), %%r15\n"
#define ASM_DISTANCE(at, row) "mov " #at "(%%rbp), %%" #row "\n sub %%rax, %%" #row "\n"

/* Four bytes of a row times the weights: an fp32 activation, four int8 or two int16. */
#define ASM_MAC_F32(b, c) "vfmadd231ps %%zmm" #b ", %%zmm31, %[c" #c "]\n"
#define ASM_MAC_U8(b, c) "vpdpbusd %%zmm" #b ", %%zmm31, %[c" #c "]\n"
#ifdef MP_HAS_DOT8
#define ASM_MAC_S16(b, c) "vpdpwssd %%zmm" #b ", %%zmm31, %[c" #c "]\n"
#else
#define ASM_MAC_S16(b, c) "vpmaddwd %%zmm" #b ", %%zmm31, %%zmm30\n vpaddd %%zmm30, %[c" #c "], %[c" #c "]\n"
#endif
#define ASM_ROW_F32_2(i, row) "vbroadcastss (%%rax" row "), %%zmm31\n" ASM_MAC_F32(28, i##0) ASM_MAC_F32(29, i##1)
#define ASM_ROW_F32_1(i, row) "vfmadd231ps (%%rax" row ")%{1to16%}, %%zmm28, %[c" #i "0]\n"
#define ASM_ROW_U8_2(i, row) ASM_ROW_U8_1(i, row) ASM_MAC_U8(29, i##1)
#define ASM_ROW_U8_1(i, row) "vpbroadcastd (%%rax" row "), %%zmm31\n" ASM_MAC_U8(28, i##0)
#define ASM_ROW_S16_2(i, row) ASM_ROW_S16_1(i, row) ASM_MAC_S16(29, i##1)
#define ASM_ROW_S16_1(i, row) "vpbroadcastd (%%rax" row "), %%zmm31\n" ASM_MAC_S16(28, i##0)
#define ASM_SECOND_2 "vmovups 64(%%rdi), %%zmm29\n prefetcht1 (%%rbx)\n add 32(%%rsp), %%rbx\n"
#define ASM_SECOND_1 /* bound by loads: what is ahead is fetched before */

#define ASM_SUM(name) , [name] "=&v"(name)
#define ASM_SUMS_1(i) ASM_SUM(c##i##0)
#define ASM_SUMS_2(i) ASM_SUM(c##i##0) ASM_SUM(c##i##1)
#define ASM_DECLARE_vf_1(i) vf c##i##0;
#define ASM_DECLARE_vf_2(i) vf c##i##0, c##i##1;
#define ASM_DECLARE_vi_1(i) vi c##i##0;
#define ASM_DECLARE_vi_2(i) vi c##i##0, c##i##1;
#define ASM_STORE(p, sum) memcpy(p, &sum, sizeof sum)
#define ASM_STORE_1(i) ASM_STORE(acc + i * 8 * VL, c##i##0);
#define ASM_STORE_2(i) ASM_STORE_1(i) ASM_STORE(acc + i * 8 * VL + 4 * VL, c##i##1);

/* FINISH: what else may be done with the sums. */
#define ASM_TILE(NAME, ROW, SUM, VECTORS, FINISH)                                                                           \
    __attribute__((noinline)) static void NAME(const asm_tile *tile)                                                   \
    {                                                                                                                  \
        TILE_ROWS(ASM_DECLARE_##SUM##_##VECTORS) \
        const asm_tile *at = tile;                                                                                     \
        __asm__ volatile("lea -128(%%rsp), %%rsp\n"                                                                    \
                         "push %%rbx\n"                                                                                \
                         "push %%rbp\n"                                                                                \
                         "mov 32(%%rdi), %%rax\n"                                                                      \
                         "mov 40(%%rdi), %%rcx\n"                                                                      \
                         "test %%rcx, %%rcx\n"                                                                         \
                         "jnz 3f\n" ASM_INIT_##VECTORS TILE_ROWS(ASM_COPY_##VECTORS)                                   \
                         "jmp 4f\n"                                                                                    \
                         "3: sub %%rcx, %%rax\n" ASM_ROWS(ASM_START_##VECTORS)                                         \
                         "4: mov (%%rdi), %%rbp\n"                                                                     \
                         "test %%rbp, %%rbp\n"                                                                         \
                         "jz 5f\n"                                                                                     \
                         "mov (%%rbp), %%rax\n" ASM_DISTANCE(8, rcx) ASM_DISTANCE(16, rdx) ASM_DISTANCE(24, rsi)       \
                         ASM_DISTANCE(32, r8) ASM_DISTANCE(40, r9) ASM_DISTANCE(48, r10) ASM_DISTANCE(56, r11)         \
                         ASM_DISTANCE(64, r12) ASM_DISTANCE(72, r13) ASM_DISTANCE(80, r14) ASM_DISTANCE(88, r15)       \
                         "jmp 6f\n"                                                                                    \
                         "5: mov 72(%%rdi), %%rcx\n"                                                                   \
                         "mov 80(%%rdi), %%rax\n" ASM_MULTIPLES                                                        \
                         "6:\n"                                                                                        \
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
                         "add $40, %%rsp\n"                                                                            \
                         "pop %%rbp\n"                                                                                 \
                         "pop %%rbx\n"                                                                                 \
                         "lea 128(%%rsp), %%rsp\n"                                                                     \
                         : "+D"(at) TILE_ROWS(ASM_SUMS_##VECTORS)                                                      \
                         :                                                                                             \
                         : "memory", "cc", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",  \
                           "r15", "xmm28", "xmm29", "xmm30", "xmm31");                                                 \
        FINISH                                                                                                         \
        char *acc = tile->acc;                                                                                         \
        TILE_ROWS(ASM_STORE_##VECTORS)                                                                                 \
    }

/* Within a tile of kernels/tile.h: full ones, and then returns. The compiler is told that no others have twelve rows. */
#define ASM_ROW_BYTES ((ptrdiff_t)8 * VL) /* of sums, and of weights of a step */
#define ASM_TILE_OF(KSTEP)                                                                                             \
    .rows = a, .ahead = ahead, .seg = seg, .segments = segments, .start = init ? init : acc,                           \
    .start_step = init ? 0 : ASM_ROW_BYTES, .b = b, .b_run = run / KSTEP * ASM_ROW_BYTES, .ahead_step = ahead_step
#define ASM_FETCH(FROM, BYTES)                                                                                         \
    for (ptrdiff_t fetched = 0, bytes = BYTES; fetched < bytes; fetched += 64) __builtin_prefetch((FROM) + fetched, 0, 2);
#define ASM_FULL(NAME, KSTEP)                                                                                          \
    if (rows >= MP_MR) {                                                                                               \
        const asm_tile tile = {ASM_TILE_OF(KSTEP), .acc = acc};                                                        \
        if (channels > VL) {                                                                                           \
            NAME##_full(&tile);                                                                                        \
            return;                                                                                                    \
        }                                                                                                              \
        ASM_FETCH(ahead, segments * (run / KSTEP) * ahead_step)                                                        \
        NAME##_single(&tile);                                                                                            \
        return;                                                                                                        \
    }                                                                                                                  \
    if (rows < 1)                                                                                                      \
        __builtin_unreachable();
/* One function for each activation and type of results: behind a choice between them, what all load is loaded before it, and sums make
 * room for that. */
typedef void asm_function(const asm_tile *tile);
#define ASM_SUMS_GIVEN_1(i) c##i##0, c##i##0,
#define ASM_SUMS_GIVEN_2(i) c##i##0, c##i##1,
#define ASM_FINISHED(ACTIVATION, NAME, ROW, SUM, VECTORS, CODES, FP16, WINDOWS)                                      \
    ASM_TILE(NAME##_##ACTIVATION, ROW, SUM, VECTORS,                                                                   \
             finish_as_##SUM(TILE_ROWS(ASM_SUMS_GIVEN_##VECTORS) &tile->results, VECTORS, tile->last, MP_##ACTIVATION, \
                             CODES, FP16, WINDOWS);                                                                  \
             return;)
#define ASM_CASE(ACTIVATION, NAME)                                                                                     \
    case MP_##ACTIVATION: return NAME##_##ACTIVATION;
#define ASM_RISING(M, ...) M(LINEAR, __VA_ARGS__) M(LEAKY, __VA_ARGS__) M(RELU, __VA_ARGS__) M(RELU6, __VA_ARGS__)
#define ASM_USUAL(M, ...) ASM_RISING(M, __VA_ARGS__) M(SWISH, __VA_ARGS__) M(HARD_SWISH, __VA_ARGS__)
/* ...: codes, fp16, windows (finish.h) */
#define ASM_CHOICE(NAME, ACTIVATIONS, ROW, SUM, VECTORS, ...)                                                          \
    ACTIVATIONS(ASM_FINISHED, NAME, ROW, SUM, VECTORS, __VA_ARGS__)                                                    \
    static asm_function *NAME(int activation)                                                                          \
    {                                                                                                                  \
        switch (activation) {                                                                                          \
            ACTIVATIONS(ASM_CASE, NAME)                                                                                \
        default: return 0;                                                                                             \
        }                                                                                                              \
    }
#define ASM_CHOOSE_vf(NAME, ROW, VECTORS)                                                                              \
    ASM_CHOICE(NAME##_floats, ASM_USUAL, ROW, vf, VECTORS, 0, 0, 0)                                                    \
    ASM_CHOICE(NAME##_fp16, ASM_USUAL, ROW, vf, VECTORS, 0, 1, 0)                                                    \
    static asm_function *NAME##_for(const mp_output *o)                                                                \
    {                                                                                                                  \
        return (o->out_type == MP_TYPE_F32 ? NAME##_floats : NAME##_fp16)(o->activation);                            \
    }
#define ASM_CHOOSE_vi(NAME, ROW, VECTORS)                                                                              \
    ASM_CHOICE(NAME##_floats, ASM_USUAL, ROW, vi, VECTORS, 0, 0, 0)                                                    \
    ASM_CHOICE(NAME##_codes, ASM_USUAL, ROW, vi, VECTORS, 1, 0, 0)                                                     \
    ASM_CHOICE(NAME##_packs, ASM_USUAL, ROW, vi, VECTORS, 2, 0, 0)                                                     \
    ASM_CHOICE(NAME##_windows_floats, ASM_RISING, ROW, vi, VECTORS, 0, 0, 1)                                           \
    ASM_CHOICE(NAME##_windows_codes, ASM_RISING, ROW, vi, VECTORS, 1, 0, 1)                                            \
    static asm_function *NAME##_for(const mp_output *o)                                                                \
    {                                                                                                                  \
        const int codes = o->out_type == MP_TYPE_I8;                                                                   \
        if (o->windows) return (codes ? NAME##_windows_codes : NAME##_windows_floats)(o->activation);                  \
        return (!codes ? NAME##_floats : o->packs ? NAME##_packs : NAME##_codes)(o->activation);                       \
    }
#define ASM_OUTPUT(NAME, KSTEP)                                                                                        \
    static int NAME##_output(const mp_tile_run *t)                                                                     \
    {                                                                                                                  \
        if (!finishes_vectors(t->output)) return 0;                                                                    \
        const int single = t->channels <= VL;                                                                            \
        asm_function *const run = (single ? NAME##_single_for : NAME##_full_for)(t->output);                               \
        asm_tile tile = {.rows = t->a, .ahead = t->ahead, .seg = t->seg, .segments = t->segments,                      \
                         .start = t->init ? t->init : t->acc, .start_step = t->init ? 0 : ASM_ROW_BYTES, .b = t->b,    \
                         .b_run = t->run / KSTEP * ASM_ROW_BYTES, .ahead_step = t->ahead_step,                         \
                         .results = {t->output, t->channel, t->out, t->out_ld}, .last = t->channels - (single ? 0 : VL)};\
        for (int i = 0; i < t->tiles; i++) {                                                                           \
            if (t->fetched_bytes)                                                                                      \
                mp_fetch_results(tile.results.out, t->results, t->out_tile / t->results, t->fetched_bytes);            \
            if (single) {                                                                                                \
                ASM_FETCH(tile.ahead, t->segments * (t->run / KSTEP) * t->ahead_step)                                  \
            }                                                                                                          \
            run(&tile);                                                                                                \
            tile.rows += MP_MR;                                                                                        \
            tile.ahead += t->ahead_tile;                                                                               \
            if (!t->init) tile.start = (const char *)tile.start + t->acc_tile;                                         \
            tile.results.out += t->out_tile;                                                                           \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
/* mp_micro.points. The last tile begins early where it would not be full, and computes some results once more, unless so many products
 * take longer than the beginning and the end of a smaller tile. */
enum { ASM_SMALL_TILE = 150, ASM_WAITS = 5 }; /* cycles; rows whose products wait for each other */
#define ASM_POINTS(NAME, TILE, KSTEP)                                                                                  \
    static int NAME(const mp_points *t)                                                                                \
    {                                                                                                                  \
        if (!finishes_vectors(t->output) || t->pixels < MP_MR) return 0;                                               \
        const int single = t->channels <= VL, rest = t->pixels % MP_MR, steps = t->segments * t->steps;                  \
        const size_t out_pixel = t->out_ld * mp_type_bytes(t->output->out_type);                                       \
        asm_function *const run = (single ? TILE##_single_for : TILE##_full_for)(t->output);                               \
        asm_tile tile = {.seg = t->seg, .segments = t->segments, .start = t->init, .b = t->b,                          \
                         .b_run = t->steps * ASM_ROW_BYTES, .ahead = t->b, .pixel = t->pixel,                          \
                         .results = {t->output, t->channel, 0, t->out_ld}, .last = t->channels - (single ? 0 : VL)};     \
        const int apart = rest && steps * (MP_MR - (rest < ASM_WAITS ? ASM_WAITS : rest)) > (single ? 2 : 1) * ASM_SMALL_TILE; \
        for (int at = 0; at < t->pixels - (apart ? rest : 0); at += MP_MR) {                                           \
            if (at + MP_MR > t->pixels) at = t->pixels - MP_MR;                                                        \
            tile.first = t->a + at * t->pixel;                                                                         \
            tile.results.out = t->out + at * out_pixel;                                                                \
            run(&tile);                                                                                                \
        }                                                                                                              \
        if (!apart) return 1;                                                                                          \
        const char *a[MP_MR];                                                                                          \
        char acc[MP_MR * ASM_ROW_BYTES];                                                                               \
        for (int i = 0; i < MP_MR; i++)                                                                                \
            a[i] = t->a + (size_t)(t->pixels - rest + (i < rest ? i : 0)) * t->pixel;                                  \
        TILE(a, t->seg, t->segments, t->steps * KSTEP, t->b, t->init, acc, rest, t->channels, t->b, 0);                \
        output(t->output, acc, 2 * VL, rest, t->channels, t->channel, t->out + (t->pixels - rest) * out_pixel, t->out_ld); \
        return 1;                                                                                                      \
    }
#define ASM_TILES(NAME, ROW, SUM, KSTEP)                                                                               \
    ASM_TILE(NAME##_full, ROW, SUM, 2, )                                                                               \
    ASM_TILE(NAME##_single, ROW, SUM, 1, )                                                                               \
    ASM_CHOOSE_##SUM(NAME##_full, ROW, 2)                                                                              \
    ASM_CHOOSE_##SUM(NAME##_single, ROW, 1)                                                                              \
    ASM_OUTPUT(NAME, KSTEP)
ASM_TILES(tile_f32, F32, vf, 1)
#define TILE_FULL_F32 ASM_FULL(tile_f32, 1)
#define TILE_OUTPUT_F32 tile_f32_output
#define MP_POINTS(SUMS) .points = points_##SUMS
#ifdef MP_HAS_DOT8
ASM_TILES(tile_u8, U8, vi, 4)
#define TILE_FULL_U8 ASM_FULL(tile_u8, 4)
#define TILE_OUTPUT_I8 tile_u8_output
ASM_TILE(tile_s16_full, S16, vi, 2, )
ASM_TILE(tile_s16_single, S16, vi, 1, )
#else
ASM_TILES(tile_s16, S16, vi, 2)
#define TILE_OUTPUT_I8 tile_s16_output
#endif
#define TILE_FULL_S16 ASM_FULL(tile_s16, 2)
#endif
