/* SPDX-License-Identifier: MIT */
/* Stands between a program and its disk, by LD_PRELOAD: the n-th change of a regular file is refused, or all from it on; or every
 * change is written down, so that a power cut can be played. Standard streams, pipes and sockets are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE = 2, SYNC = 3, UNLINK = 4, MARK = 5, ROOM = 64 << 20 };
typedef struct {
    long long what, offset, bytes, path_bytes;
} entry;

static long calls, refused_from, refused_to;
static int reason, recording;
static char book[ROOM];
static size_t written;

/* From the `from`-th change on, `count` are refused with an error; 0: none. */
void disk_refuse(long from, long count, int error)
{
    calls = 0;
    refused_from = from;
    refused_to = from + count;
    reason = error;
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

static int refuses(void)
{
    calls++;
    if (calls < refused_from || calls >= refused_to) return 0;
    errno = reason;
    return 1;
}

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
    if (refuses()) return -1;
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
        if (refuses()) return -1;                                                                                      \
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
        if (refuses()) return -1;                                                                                      \
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
        if (refuses()) return -1;                                                                                      \
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
    return refuses() ? -1 : next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    return refuses() ? -1 : next(path, mode);
}
