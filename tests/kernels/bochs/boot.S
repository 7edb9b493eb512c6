/* SPDX-License-Identifier: MIT */
# Multiboot entry (32-bit protected mode, paging off) to 64-bit C, with SSE, AVX and AVX-512 switched on.
# Memory is mapped one to one (1 GiB in 2 MiB pages); everything runs in ring 0; no interrupts.
        .code32
        .section .multiboot, "a"
        .align 4
        .long 0x1BADB002, 0x00000003, -(0x1BADB002 + 0x00000003)

        .section .text
        .globl start
start:  cli
        mov     $stack_top, %esp
        mov     $pml4, %edi             # page tables: clear, then link
        xor     %eax, %eax
        mov     $(3 * 4096 / 4), %ecx
        rep stosl
        movl    $(pdpt + 3), pml4
        movl    $(pd + 3), pdpt
        mov     $pd, %edi
        mov     $0x83, %eax             # present, writable, 2 MiB
        mov     $512, %ecx
1:      mov     %eax, (%edi)
        add     $0x200000, %eax
        add     $8, %edi
        loop    1b
        mov     $pml4, %eax
        mov     %eax, %cr3
        mov     %cr4, %eax
        or      $((1 << 5) | (1 << 9) | (1 << 10) | (1 << 16) | (1 << 18)), %eax  # PAE OSFXSR OSXMMEXCPT FSGSBASE OSXSAVE
        mov     %eax, %cr4
        mov     $0xC0000080, %ecx       # EFER: long mode and SYSCALL
        rdmsr
        or      $0x101, %eax
        wrmsr
        mov     %cr0, %eax
        and     $~(1 << 2), %eax        # no x87 emulation
        or      $((1 << 31) | (1 << 1)), %eax
        mov     %eax, %cr0
        lgdt    gdt_pointer
        ljmp    $8, $long_mode

        .code64
long_mode:
        mov     $16, %ax
        mov     %ax, %ds
        mov     %ax, %es
        mov     %ax, %ss
        xor     %ecx, %ecx
        xgetbv
        or      $0xE7, %eax             # x87 SSE AVX opmask ZMM-high ZMM16-31
        xsetbv
        mov     $0xC0000081, %ecx       # STAR: code segment 8, stack 16
        xor     %eax, %eax
        mov     $8, %edx
        wrmsr
        mov     $0xC0000082, %ecx       # LSTAR: where SYSCALL lands
        mov     $syscall_entry, %rax
        mov     %rax, %rdx
        shr     $32, %rdx
        wrmsr
        mov     $stack_top, %rsp
        call    kernel_main
2:      hlt
        jmp     2b

        .globl syscall_entry
syscall_entry:                          # rax number; rdi rsi rdx r10 r8 r9 arguments; rcx return address; r11 flags
        push    %rcx
        push    %r11
        push    %rdi
        push    %rsi
        push    %rdx
        push    %r10
        push    %r8
        push    %r9
        mov     %r10, %rcx
        push    %r9
        mov     %r8, %r9
        mov     %rcx, %r8
        mov     %rdx, %rcx
        mov     %rsi, %rdx
        mov     %rdi, %rsi
        mov     %rax, %rdi
        call    system_call
        pop     %r9
        pop     %r9
        pop     %r8
        pop     %r10
        pop     %rdx
        pop     %rsi
        pop     %rdi
        pop     %r11
        pop     %rcx
        jmp     *%rcx

        .globl enter_program            # rdi: entry point, rsi: stack
enter_program:
        mov     %rsi, %rsp
        xor     %edx, %edx
        jmp     *%rdi

        .section .rodata
        .align 8
gdt:    .quad   0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF
gdt_pointer:
        .word   23
        .long   gdt

        .globl program_start, program_end
        .align 4096
program_start:
        .incbin "program.elf"
program_end:

        .bss
        .align 4096
pml4:   .skip   4096
pdpt:   .skip   4096
pd:     .skip   4096
        .skip   65536
stack_top:
