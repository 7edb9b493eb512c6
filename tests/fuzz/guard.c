/* SPDX-License-Identifier: MIT */
/* A page that nobody may touch behind every block of memory, and one before it, for programs built as users have them: linked with
 * --wrap for each function here. What was given back is never lent again, and other garbage lies in each new block, so that
 * nothing may hang on it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Addresses that the system gives to nobody unasked. */
static const uintptr_t LOW = 1ull << 44, HIGH = 1ull << 46;
enum { PAGE = 4096, SLACK = 0xa5 };
typedef struct {
    uintptr_t map;
    size_t map_bytes, bytes;
} block; /* at the end of the page before the memory */

void *__real_malloc(size_t bytes), *__wrap_malloc(size_t bytes), *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __real_free(void *memory), __wrap_free(void *memory);
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes);

static block *block_of(const void *memory) { return (block *)((uintptr_t)memory / PAGE * PAGE) - 1; }

static void *take(size_t align, size_t bytes, int garbage)
{
    static uintptr_t next = 1ull << 44;
    static uint8_t other;
    const size_t room = (bytes + align - 1) / align * align, pages = (room + PAGE - 1) / PAGE * PAGE;
    const size_t more = align > PAGE ? align : PAGE, map_bytes = more + pages + PAGE;
    const uintptr_t map =
        (__atomic_fetch_add(&next, (map_bytes + more - 1) / more * more + more, __ATOMIC_RELAXED) + more - 1) / more *
        more;
    if (bytes > HIGH || map + map_bytes > HIGH) return 0;
    char *memory =
        mmap((void *)map, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED) return 0;
    char *end = memory + more + pages, *at = end - room;
    if (mprotect(end, PAGE, PROT_NONE)) return 0;
    *block_of(at) = (block){map, map_bytes, bytes};
    if (garbage) memset(at, ++other, bytes);
    memset(at + bytes, SLACK, room - bytes);
    return at;
}

void *__wrap_malloc(size_t bytes) { return take(16, bytes, 1); }
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes)
{
    return (*memory = take(align, bytes, 1)) ? 0 : ENOMEM;
}
void *__wrap_calloc(size_t count, size_t bytes)
{
    return bytes && count > SIZE_MAX / bytes ? 0 : take(16, count * bytes, 0);
}

void __wrap_free(void *memory)
{
    if ((uintptr_t)memory < LOW || (uintptr_t)memory >= HIGH) {
        __real_free(memory); /* what a library took for itself */
        return;
    }
    const block own = *block_of(memory);
    const uint8_t *end = (const uint8_t *)(own.map + own.map_bytes - PAGE);
    for (const uint8_t *slack = (const uint8_t *)memory + own.bytes; slack < end; slack++)
        if (*slack != SLACK) fputs("guard: written behind a block of memory\n", stderr), abort();
    munmap((void *)own.map, own.map_bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    void *made = take(16, bytes, 1);
    if (!made || !old) return made;
    const size_t before = block_of(old)->bytes;
    memcpy(made, old, before < bytes ? before : bytes);
    __wrap_free(old);
    return made;
}
