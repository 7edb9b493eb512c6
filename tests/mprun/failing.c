/* SPDX-License-Identifier: MIT */
/* Stands between mprun and what it asks the system for: the MPRUN_FAIL-th request fails. At the end it says how many there
 * were and how much memory was not given back. Linked with --wrap for each of WRAPPED in test_memory.py. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MOST = 1 << 14 };
static void *live[MOST];
static atomic_int requests;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fails(void)
{
    const char *which = getenv("MPRUN_FAIL");
    const int own = atomic_fetch_add(&requests, 1) + 1;
    if (!which || own != atoi(which)) return 0;
    errno = ENOMEM;
    return 1;
}

/* What was given back and what came for it; either may be NULL. */
static void note(void *gone, void *came)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; gone && i < MOST; i++)
        if (live[i] == gone) {
            live[i] = 0;
            break;
        }
    for (int i = 0; came && i < MOST; i++)
        if (!live[i]) {
            live[i] = came;
            break;
        }
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void report(void)
{
    int left = 0;
    for (int i = 0; i < MOST; i++) left += live[i] != 0;
    if (getenv("MPRUN_FAIL")) fprintf(stderr, "requests %d, left %d\n", requests, left);
}

/* Declarations and definitions of the wrapped functions. */
void *__real_malloc(size_t bytes), *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes), *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes), *__wrap_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text), *__wrap_strdup(const char *text);
void __real_free(void *memory), __wrap_free(void *memory);
int __real_posix_memalign(void **memory, size_t align, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int how, int flags, int handle, off_t from);
void *__wrap_mmap(void *at, size_t bytes, int how, int flags, int handle, off_t from);
FILE *__real_open_memstream(char **text, size_t *bytes), *__wrap_open_memstream(char **text, size_t *bytes);
FILE *__real_fopen(const char *path, const char *how), *__wrap_fopen(const char *path, const char *how);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

#define TRACKED(CALL)                                                                                                  \
    void *made = fails() ? 0 : (CALL);                                                                                 \
    note(0, made);                                                                                                     \
    return made

void *__wrap_malloc(size_t bytes) { TRACKED(__real_malloc(bytes)); }
void *__wrap_calloc(size_t count, size_t bytes) { TRACKED(__real_calloc(count, bytes)); }
char *__wrap_strdup(const char *text) { TRACKED(__real_strdup(text)); }

void *__wrap_realloc(void *old, size_t bytes)
{
    void *made = fails() ? 0 : __real_realloc(old, bytes);
    if (made) note(old, made);
    return made;
}

void __wrap_free(void *memory)
{
    note(memory, 0);
    __real_free(memory);
}

int __wrap_posix_memalign(void **memory, size_t align, size_t bytes)
{
    if (fails()) return ENOMEM;
    const int failed = __real_posix_memalign(memory, align, bytes);
    if (!failed) note(0, *memory);
    return failed;
}

void *__wrap_mmap(void *at, size_t bytes, int how, int flags, int handle, off_t from)
{
    return fails() ? MAP_FAILED : __real_mmap(at, bytes, how, flags, handle, from);
}

FILE *__wrap_open_memstream(char **text, size_t *bytes) { return fails() ? 0 : __real_open_memstream(text, bytes); }
FILE *__wrap_fopen(const char *path, const char *how) { return fails() ? 0 : __real_fopen(path, how); }

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *with)
{
    return fails() ? EAGAIN : __real_pthread_create(thread, how, work, with);
}
