/* SPDX-License-Identifier: MIT */
/* Calls that notice when a function breaks the calling convention: registers that it must leave as they were (those for general use,
 * AArch64's d8 to d15), and how it was told to round. Included by levels.c only; for one thread.
 *
 * mp_checked(function) is an address to call instead of `function`, with the same arguments. Behind it stands one of mp_check_stubs,
 * which lets the function see its arguments where they were, on the stack as well: it puts the return address aside, fills the
 * registers with known values, calls, compares, restores the caller's. Calls may nest: an operation calls its leaf kernels. */
#ifndef MP_CHECKED_CALL_H
#define MP_CHECKED_CALL_H
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(__SANITIZE_THREAD__)
#define MP_CHECKS_CALLS
#endif

/* Read and written by the assembly below. */
enum { MP_STUBS = 512, MP_NESTED = 16, MP_SAVED_BYTES = 192 };
void (*mp_check_targets[MP_STUBS])(void);
uint8_t mp_check_saved[MP_NESTED * MP_SAVED_BYTES];
uint64_t mp_check_depth;     /* in bytes of mp_check_saved */
uint64_t mp_check_clobbered; /* not 0: some call changed a register that it must not */

#ifdef MP_CHECKS_CALLS
extern const char mp_check_stubs[];
enum { MP_STUB_BYTES = 16 };
/* clang-format off */
#if defined(__x86_64__)
#define MP_EACH(DO) DO(rbx, 8) DO(rbp, 16) DO(r12, 24) DO(r13, 32) DO(r14, 40) DO(r15, 48)
#define MP_SAVE(R, AT) "movq %" #R ", " #AT "(%r10)\n movabsq $0x1b1b1b1b00000000+" #AT ", %" #R "\n"
#define MP_COMPARE(R, AT) "movabsq $0x1b1b1b1b00000000+" #AT ", %rcx\n xorq %" #R ", %rcx\n orq %rcx, %r11\n"
#define MP_RESTORE(R, AT) "movq " #AT "(%r10), %" #R "\n"
/* Free before the call: rax, r10, r11; behind it all but rax, rdx and xmm0. */
__asm__(".text\n.balign 16\nmp_check_stubs:\n"
        ".set mp_check_number, 0\n.rept 512\n.balign 16\n movl $mp_check_number, %r11d\n jmp mp_check_common\n"
        ".set mp_check_number, mp_check_number + 1\n.endr\n"
        "mp_check_common:\n"
        " movq mp_check_depth(%rip), %r10\n addq $192, mp_check_depth(%rip)\n"
        " leaq mp_check_saved(%rip), %rax\n addq %rax, %r10\n popq (%r10)\n stmxcsr 56(%r10)\n" MP_EACH(MP_SAVE)
        " leaq mp_check_targets(%rip), %rax\n call *(%rax,%r11,8)\n"
        " subq $192, mp_check_depth(%rip)\n movq mp_check_depth(%rip), %r10\n"
        " leaq mp_check_saved(%rip), %rcx\n addq %rcx, %r10\n stmxcsr 60(%r10)\n"
        /* The upper bits say how to round and what to trap; the lower ones collect what happened. */
        " movl 60(%r10), %r11d\n xorl 56(%r10), %r11d\n andl $0xffc0, %r11d\n" MP_EACH(MP_COMPARE)
        " orq %r11, mp_check_clobbered(%rip)\n" MP_EACH(MP_RESTORE) " ldmxcsr 56(%r10)\n jmp *(%r10)\n");
#else
#define MP_EACH(DO)                                                                                                    \
    DO(x19, 8) DO(x20, 16) DO(x21, 24) DO(x22, 32) DO(x23, 40) DO(x24, 48) DO(x25, 56) DO(x26, 64) DO(x27, 72)         \
    DO(x28, 80) DO(x29, 88)
#define MP_EACH_REAL(DO) DO(d8, 96) DO(d9, 104) DO(d10, 112) DO(d11, 120) DO(d12, 128) DO(d13, 136) DO(d14, 144) DO(d15, 152)
#define MP_ADDRESS(R, OF) "adrp " #R ", " #OF "\n add " #R ", " #R ", :lo12:" #OF "\n"
#define MP_SAVE(R, AT) "str " #R ", [x10, #" #AT "]\n add " #R ", x12, #" #AT "\n"
#define MP_SAVE_REAL(R, AT) "str " #R ", [x10, #" #AT "]\n add x13, x12, #" #AT "\n fmov " #R ", x13\n"
#define MP_COMPARE(R, AT) "add x13, x12, #" #AT "\n eor x13, x13, " #R "\n orr x11, x11, x13\n"
#define MP_COMPARE_REAL(R, AT) "fmov x14, " #R "\n add x13, x12, #" #AT "\n eor x13, x13, x14\n orr x11, x11, x13\n"
#define MP_RESTORE(R, AT) "ldr " #R ", [x10, #" #AT "]\n"
#define MP_MAGIC "movz x12, #0x1b1b, lsl #16\n movk x12, #0x1b1b, lsl #48\n"
/* Free: x9 to x17. */
__asm__(".text\n.balign 16\nmp_check_stubs:\n"
        ".set mp_check_number, 0\n.rept 512\n.balign 16\n mov w17, #mp_check_number\n b mp_check_common\n"
        ".set mp_check_number, mp_check_number + 1\n.endr\n"
        "mp_check_common:\n" MP_ADDRESS(x9, mp_check_depth) " ldr x10, [x9]\n add x11, x10, #192\n str x11, [x9]\n"
        MP_ADDRESS(x11, mp_check_saved) " add x10, x10, x11\n str x30, [x10]\n mrs x11, fpcr\n str x11, [x10, #160]\n"
        MP_MAGIC MP_EACH(MP_SAVE) MP_EACH_REAL(MP_SAVE_REAL)
        MP_ADDRESS(x11, mp_check_targets) " ldr x11, [x11, x17, lsl #3]\n blr x11\n"
        MP_ADDRESS(x9, mp_check_depth) " ldr x10, [x9]\n sub x10, x10, #192\n str x10, [x9]\n"
        MP_ADDRESS(x11, mp_check_saved) " add x10, x10, x11\n mrs x11, fpcr\n ldr x13, [x10, #160]\n msr fpcr, x13\n eor x11, x11, x13\n"
        MP_MAGIC MP_EACH(MP_COMPARE) MP_EACH_REAL(MP_COMPARE_REAL)
        MP_ADDRESS(x9, mp_check_clobbered) " ldr x13, [x9]\n orr x11, x11, x13\n str x11, [x9]\n"
        MP_EACH(MP_RESTORE) MP_EACH_REAL(MP_RESTORE) " ldr x30, [x10]\n ret\n");
#endif
/* clang-format on */
#endif

/* What to call instead of `function`; the function itself where calls are not checked. */
static void (*mp_check_stub(void (*function)(void)))(void)
{
#ifdef MP_CHECKS_CALLS
    for (int i = 0; i < MP_STUBS && function; i++) {
        if (!mp_check_targets[i]) mp_check_targets[i] = function;
        if (mp_check_targets[i] == function) return (void (*)(void))(uintptr_t)(mp_check_stubs + i * MP_STUB_BYTES);
    }
#endif
    return function;
}
#define mp_checked(FUNCTION) ((__typeof__(&*(FUNCTION)))mp_check_stub((void (*)(void))(FUNCTION)))
#endif
