/* SPDX-License-Identifier: MIT */
/* Stands between a program and its disk and memory, by LD_PRELOAD: the n-th change of a regular file fails, or all from it on, or
 * the n-th reading of one, or the n-th request for much memory; or every change is written down, so that a power cut can be
 * played. Standard streams, pipes, sockets and what Python itself loads are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE = 2, SYNC = 3, UNLINK = 4, MARK = 5, ROOM = 64 << 20 };
typedef struct {
    long long what, offset, bytes, path_bytes;
} entry;

typedef enum { CHANGES, READS, MEMORY } kind;

static long calls, refused_from, refused_to;
static int reason, recording;
static kind refused;
static size_t much; /* bytes from which a request for memory counts */
static char book[ROOM];
static size_t written;

/* Of calls of one kind, `count` fail from the `from`-th on; 0: none. bytes: from which a request for memory counts. */
void disk_refuse(int what, long from, long count, int error, size_t bytes)
{
    calls = 0;
    refused = (kind)what;
    refused_from = from;
    refused_to = from + count;
    reason = error;
    much = bytes;
}
long disk_calls(void) { return calls; }
void disk_record(int on) { recording = on; }
const char *disk_book(size_t *bytes)
{
    *bytes = written;
    return book;
}

static void note(long long what, const char *path, long long offset, const void *data, long long bytes)
{
    const entry e = {what, offset, bytes, (long long)strlen(path)};
    if (written + sizeof e + (size_t)e.path_bytes + (data ? (size_t)bytes : 0) > ROOM) _exit(99);
    memcpy(book + written, &e, sizeof e);
    written += sizeof e;
    memcpy(book + written, path, (size_t)e.path_bytes);
    written += (size_t)e.path_bytes;
    if (!data) return;
    memcpy(book + written, data, (size_t)bytes);
    written += (size_t)bytes;
}
void disk_mark(long long number) { note(MARK, "", number, 0, 0); }

static int is_file(int handle)
{
    struct stat status;
    return handle > 2 && fstat(handle, &status) == 0 && S_ISREG(status.st_mode);
}

static int refuses(kind what)
{
    if (what != refused) return 0;
    calls++;
    if (calls < refused_from || calls >= refused_to) return 0;
    errno = reason;
    return 1;
}
static int lacks(size_t bytes) { return much && bytes >= much && refuses(MEMORY); }

static void note_file(long long what, int handle, long long offset, const void *data, long long bytes)
{
    char link[64], path[4096];
    if (!recording) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    note(what, path, offset, data, bytes);
}

#define NEXT(NAME)                                                                                                     \
    static __typeof__(&NAME) next;                                                                                     \
    if (!next) next = (__typeof__(&NAME))dlsym(RTLD_NEXT, #NAME)

ssize_t write(int handle, const void *data, size_t bytes)
{
    NEXT(write);
    if (!is_file(handle)) return next(handle, data, bytes);
    if (refuses(CHANGES)) return -1;
    const off_t at = lseek(handle, 0, SEEK_CUR);
    const ssize_t done = next(handle, data, bytes);
    if (done > 0) note_file(WRITE, handle, at, data, done);
    return done;
}

#define POSITIONED(NAME, OFFSET)                                                                                       \
    ssize_t NAME(int handle, const void *data, size_t bytes, OFFSET at)                                                \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        if (!is_file(handle)) return next(handle, data, bytes, at);                                                    \
        if (refuses(CHANGES)) return -1;                                                                               \
        const ssize_t done = next(handle, data, bytes, at);                                                            \
        if (done > 0) note_file(WRITE, handle, at, data, done);                                                        \
        return done;                                                                                                   \
    }
POSITIONED(pwrite, off_t)
POSITIONED(pwrite64, off64_t)

#define SIZED(NAME, OFFSET)                                                                                            \
    int NAME(int handle, OFFSET bytes)                                                                                 \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        if (!is_file(handle)) return next(handle, bytes);                                                              \
        if (refuses(CHANGES)) return -1;                                                                               \
        const int failed = next(handle, bytes);                                                                        \
        if (!failed) note_file(TRUNCATE, handle, bytes, 0, 0);                                                         \
        return failed;                                                                                                 \
    }
SIZED(ftruncate, off_t)
SIZED(ftruncate64, off64_t)

#define SYNCED(NAME)                                                                                                   \
    int NAME(int handle)                                                                                               \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        if (!is_file(handle)) return next(handle);                                                                     \
        if (refuses(CHANGES)) return -1;                                                                               \
        const int failed = next(handle);                                                                               \
        if (!failed) note_file(SYNC, handle, 0, 0, 0);                                                                 \
        return failed;                                                                                                 \
    }
SYNCED(fsync)
SYNCED(fdatasync)

int unlink(const char *path)
{
    NEXT(unlink);
    const int failed = next(path);
    if (!failed && recording) note(UNLINK, path, 0, 0, 0);
    return failed;
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    return refuses(CHANGES) ? -1 : next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    return refuses(CHANGES) ? -1 : next(path, mode);
}

/* What Python loads while it runs: without it there is no one who could say what is wrong. */
static int is_input(const char *path)
{
    struct stat status;
    const char *suffix = strrchr(path, '.');
    if (strstr(path, "/python3") || (suffix && (!strncmp(suffix, ".py", 3) || !strncmp(suffix, ".so", 3)))) return 0;
    return strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5) && stat(path, &status) == 0 &&
           S_ISREG(status.st_mode);
}

static int reads_input(int handle)
{
    char link[64], path[4096];
    if (refused != READS || !is_file(handle)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_input(path);
}

ssize_t read(int handle, void *data, size_t bytes)
{
    NEXT(read);
    return reads_input(handle) && refuses(READS) ? -1 : next(handle, data, bytes);
}

#define POSITIONED_READ(NAME, OFFSET)                                                                                  \
    ssize_t NAME(int handle, void *data, size_t bytes, OFFSET at)                                                      \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        return reads_input(handle) && refuses(READS) ? -1 : next(handle, data, bytes, at);                             \
    }
POSITIONED_READ(pread, off_t)
POSITIONED_READ(pread64, off64_t)

#define OPENED(NAME)                                                                                                   \
    int NAME(const char *path, int how, ...)                                                                           \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, how);                                                                                           \
        const mode_t mode = how & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                                  \
        va_end(more);                                                                                                  \
        struct stat status;                                                                                            \
        const int makes = how & (O_CREAT | O_TRUNC) && (stat(path, &status) != 0 || S_ISREG(status.st_mode));          \
        const int fails = makes ? refuses(CHANGES) : refused == READS && is_input(path) && refuses(READS);             \
        return fails ? -1 : next(path, how, mode);                                                                     \
    }
OPENED(open)
OPENED(open64)

int symlink(const char *target, const char *path)
{
    NEXT(symlink);
    return refuses(CHANGES) ? -1 : next(target, path);
}

/* dlsym itself asks for memory, so these go to the C library by its own names. */
void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes), *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *malloc(size_t bytes) { return lacks(bytes) ? 0 : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes)
{
    const size_t all = bytes && count > (size_t)-1 / bytes ? (size_t)-1 : count * bytes;
    return lacks(all) ? 0 : __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) { return lacks(bytes) ? 0 : __libc_realloc(old, bytes); }
int posix_memalign(void **memory, size_t align, size_t bytes)
{
    if (lacks(bytes)) return ENOMEM;
    *memory = __libc_memalign(align, bytes);
    return *memory ? 0 : ENOMEM;
}
#define MAPPED(NAME, OFFSET)                                                                                           \
    void *NAME(void *at, size_t bytes, int how, int flags, int handle, OFFSET from)                                    \
    {                                                                                                                  \
        NEXT(NAME);                                                                                                    \
        const int fails = lacks(bytes) || (handle >= 0 && reads_input(handle) && refuses(READS));                      \
        return fails ? MAP_FAILED : next(at, bytes, how, flags, handle, from);                                         \
    }
MAPPED(mmap, off_t)
MAPPED(mmap64, off64_t)
