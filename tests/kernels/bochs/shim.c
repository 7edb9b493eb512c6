/* SPDX-License-Identifier: MIT */
/* Just enough of an operating system to run one static Linux program inside an emulated machine: it loads the
 * ELF, serves the handful of system calls that glibc makes, and shows what the program writes on the emulator's
 * debug port. Used to execute the AVX-512 and VNNI kernels where the real CPU lacks them. */
#include <elf.h>
#include <stdint.h>

extern const unsigned char program_start[], program_end[];
void enter_program(uint64_t entry, uint64_t *stack);

static uint64_t break_now;             /* program break, grows from the end of the loaded segments */
static uint64_t map_next = 0x20000000; /* anonymous mappings, 512 MiB upwards, below the 1 GiB that is mapped */
enum { MAP_END = 0x38000000 };

static void out8(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }

static void put(const char *text, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) out8(0xE9, (uint8_t)text[i]);
}

static void power_off(void)
{
    const char *word = "Shutdown"; /* Bochs leaves when this arrives on its shutdown port */
    while (*word) out8(0x8900, (uint8_t)*word++);
    for (;;) __asm__ volatile("hlt");
}

static void fill(void *to, int value, uint64_t n)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
}
static void copy(void *to, const void *from, uint64_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

int64_t system_call(int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    (void)d, (void)e;
    switch (number) {
    case 1: /* write */ put((const char *)b, c); return (int64_t)c;
    case 20: { /* writev */
        const struct {
            const char *base;
            uint64_t length;
        } *v = (const void *)b;
        int64_t total = 0;
        for (uint64_t i = 0; i < c; i++) {
            put(v[i].base, v[i].length);
            total += (int64_t)v[i].length;
        }
        return total;
    }
    case 9: { /* mmap: anonymous only */
        uint64_t size = (b + 4095) & ~4095ull, at = map_next;
        if (at + size > MAP_END) return -12;
        map_next += size;
        fill((void *)at, 0, size);
        return (int64_t)at;
    }
    case 12: /* brk */
        if (a > break_now && a < 0x20000000) {
            fill((void *)break_now, 0, a - break_now);
            break_now = a;
        }
        return (int64_t)break_now;
    case 158: /* arch_prctl(ARCH_SET_FS) */
        if (a != 0x1002) return -22;
        __asm__ volatile("wrfsbase %0" : : "r"(b));
        return 0;
    case 318: /* getrandom: fixed, so that runs repeat */ fill((void *)a, 0x5A, b); return (int64_t)b;
    case 10:
    case 11:
    case 218:
    case 273: /* mprotect, munmap, set_tid_address, set_robust_list */ return 0;
    case 60:
    case 231: /* exit, exit_group */
        put("\nBOCHS-EXIT ", 12);
        out8(0xE9, (uint8_t)(a ? '1' : '0'));
        put("\n", 1);
        power_off();
        return 0;
    default: return -38; /* ENOSYS: glibc copes with what is missing */
    }
}

void kernel_main(void)
{
    const Elf64_Ehdr *elf = (const void *)program_start;
    const Elf64_Phdr *segment = (const void *)(program_start + elf->e_phoff);
    for (int i = 0; i < elf->e_phnum; i++) {
        if (segment[i].p_type != PT_LOAD) continue;
        copy((void *)segment[i].p_vaddr, program_start + segment[i].p_offset, segment[i].p_filesz);
        fill((void *)(segment[i].p_vaddr + segment[i].p_filesz), 0, segment[i].p_memsz - segment[i].p_filesz);
        uint64_t end = (segment[i].p_vaddr + segment[i].p_memsz + 4095) & ~4095ull;
        break_now = end > break_now ? end : break_now;
    }
    static unsigned char random_bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    uint64_t *program_stack = (uint64_t *)0x3FF00000, *p = program_stack;
    *p++ = 1; /* argc */
    *p++ = (uint64_t)"program";
    *p++ = 0;
    *p++ = 0; /* no environment */
    const uint64_t auxiliary[] = {AT_PHDR,   0,
                                  AT_PHENT,  sizeof(Elf64_Phdr),
                                  AT_PHNUM,  elf->e_phnum,
                                  AT_PAGESZ, 4096,
                                  AT_ENTRY,  elf->e_entry,
                                  AT_RANDOM, (uint64_t)random_bytes,
                                  AT_SECURE, 0,
                                  AT_NULL,   0};
    for (unsigned i = 0; i < sizeof auxiliary / sizeof *auxiliary; i++) *p++ = auxiliary[i];
    for (int i = 0; i < elf->e_phnum; i++) /* the headers as the program sees them */
        if (segment[i].p_type == PT_LOAD && segment[i].p_offset == 0)
            program_stack[5] = segment[i].p_vaddr + elf->e_phoff;
    enter_program(elf->e_entry, program_stack);
}
