/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "image.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../mpnet.h"
#include "../image/mp_jpeg.h"
#include "bundle.h"
#include "file.h"
#include "mprun.h"

enum { MOST_FILE = 1 << 28, MOST_PIXELS = 1 << 25, MOST_SIDE = 65500 };

uint8_t *mpr_read(const char *path, size_t limit, size_t *bytes, char *error)
{
    /* Without waiting for somebody to write into a named pipe: one that nobody has open to write is empty. */
    const int handle = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (handle >= 0) fcntl(handle, F_SETFL, 0);
    FILE *file = handle < 0 ? 0 : fdopen(handle, "rb");
    if (!file) {
        if (handle >= 0) close(handle);
        mpr_fail(error, "%s: cannot be opened (%s); check the path", path, strerror(errno));
        return 0;
    }
    struct stat status;
    const int has_size = fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    /* One byte more shows the end. What is no file, or grows meanwhile, is read in larger and larger pieces. */
    size_t capacity = has_size && (uint64_t)status.st_size < limit ? (size_t)status.st_size + 1 : 1 << 16, count = 0;
    uint8_t *data = malloc(capacity);
    while (data) {
        const size_t bytes_read = fread(data + count, 1, capacity - count, file);
        count += bytes_read;
        if (count < capacity) break;
        if (capacity > limit) break;
        uint8_t *larger = realloc(data, capacity *= 2);
        if (!larger) free(data);
        data = larger;
    }
    const int broken = ferror(file);
    fclose(file);
    if (data && !broken && count && count <= limit) {
        *bytes = count;
        return data;
    }
    if (!data)
        mpr_fail(error, "%s: no memory", path);
    else if (broken)
        mpr_fail(error, "%s: cannot be read; check that it is a file", path);
    else if (!count)
        mpr_fail(error, "%s: is empty; restore or remove it", path);
    else
        mpr_fail(error, "%s: has more than %zu bytes", path, limit);
    free(data);
    return 0;
}

static int sizes_fit(int64_t width, int64_t height)
{
    return width >= 1 && height >= 1 && width <= MOST_SIDE && height <= MOST_SIDE && width * height <= MOST_PIXELS;
}

static int too_large(const char *name, int64_t width, int64_t height, char *error)
{
    return mpr_fail(error, "%s: %lld x %lld pixels are outside the limits (1 to %d a side, %d in all); scale the image",
                    name, (long long)width, (long long)height, MOST_SIDE, MOST_PIXELS);
}

static int is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The next number of a PPM header, -1 when there is none. Comments go to the end of their line. */
static int64_t read_number(const uint8_t *data, size_t bytes, size_t *offset)
{
    int64_t value = -1;
    while (*offset < bytes && (is_space(data[*offset]) || data[*offset] == '#'))
        if (data[*offset] == '#')
            while (*offset < bytes && data[*offset] != '\n') ++*offset;
        else
            ++*offset;
    for (; *offset < bytes && data[*offset] >= '0' && data[*offset] <= '9' && value < 1 << 24; ++*offset)
        value = (value < 0 ? 0 : value) * 10 + (data[*offset] - '0');
    return value;
}

static int read_ppm(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, char *error)
{
    size_t offset = 2;
    const int channels = data[1] == '6' ? 3 : 1;
    const int64_t w = read_number(data, bytes, &offset), h = read_number(data, bytes, &offset),
                  largest = read_number(data, bytes, &offset);
    offset++; /* one separator */
    if (w < 0 || h < 0 || largest != 255)
        return mpr_fail(error, "%s: is no PPM of 8 bits; convert it (`convert IN -depth 8 OUT.ppm`)", name);
    if (!sizes_fit(w, h)) return too_large(name, w, h, error);
    if (offset > bytes || (uint64_t)w * h * channels > bytes - offset)
        return mpr_fail(error, "%s: is cut; its header says %lld x %lld pixels; restore or remove it", name,
                        (long long)w, (long long)h);
    uint8_t *rgb = malloc((size_t)w * h * 3);
    if (!rgb) return mpr_fail(error, "%s: no memory", name);
    for (size_t i = 0; i < (size_t)w * h * 3; i++) rgb[i] = data[offset + (channels == 3 ? i : i / 3)];
    *image = (mpr_image){rgb, (int)w, (int)h, rgb, 0};
    return 0;
}

static int read_jpeg(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, mpr_memory memory,
                     char *error)
{
    int32_t w = 0, h = 0;
    if (mp_jpeg_size(data, (int64_t)bytes, &w, &h) != MP_OK)
        return mpr_fail(error,
                        "%s: is no JPEG of a kind that is read here (8 bits, grey or colour, not CMYK); save it again",
                        name);
    if (!sizes_fit(w, h)) return too_large(name, w, h, error);
    const int64_t needed = mp_jpeg_scratch(data, (int64_t)bytes, w, h);
    const size_t pixels = ((size_t)w * h * 3 + MPB_ALIGN - 1) / MPB_ALIGN * MPB_ALIGN;
    const int borrowed = needed > 0 && (uint64_t)needed + pixels <= memory.bytes;
    uint8_t *rgb = borrowed ? memory.start : malloc(pixels);
    void *scratch = borrowed ? rgb + pixels : needed > 0 ? malloc((size_t)needed) : 0;
    int32_t flaws = 0;
    const int status =
        scratch && rgb ? mp_jpeg_decode(data, (int64_t)bytes, w, h, scratch, needed, rgb, &flaws) : MP_UNSUPPORTED;
    if (!borrowed) free(scratch);
    *image = (mpr_image){rgb, w, h, borrowed ? 0 : rgb, flaws};
    if (status == MP_OK) return 0;
    mpr_image_drop(image);
    return mpr_fail(error, "%s: the image is damaged, or a JPEG of a kind that is not read here; save it again", name);
}

int mpr_image_of(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, mpr_memory memory, char *error)
{
    *image = (mpr_image){0};
    if (bytes > 3 && data[0] == 0xff && data[1] == 0xd8) return read_jpeg(image, name, data, bytes, memory, error);
    if (bytes > 3 && data[0] == 'P' && (data[1] == '6' || data[1] == '5'))
        return read_ppm(image, name, data, bytes, error);
    return mpr_fail(error, "%s: is neither JPEG nor PPM; convert it, for example `convert IN OUT.ppm` (ImageMagick)",
                    name);
}

int mpr_image_read(mpr_image *image, const char *path, mpr_memory memory, char *error)
{
    size_t bytes;
    *image = (mpr_image){0};
    uint8_t *data = mpr_read(path, MOST_FILE, &bytes, error);
    const int failed = data ? mpr_image_of(image, path, data, bytes, memory, error) : -1;
    free(data);
    return failed;
}

void mpr_image_drop(mpr_image *image)
{
    free(image->allocated);
    image->allocated = image->rgb = 0;
}

uint8_t *mprun_read_picture(const char *path, int *width, int *height, char *error, size_t error_bytes)
{
    char line[MPR_ERROR] = "";
    mpr_image image;
    if (mpr_image_read(&image, path, (mpr_memory){0}, line) && error_bytes) snprintf(error, error_bytes, "%s", line);
    *width = image.width;
    *height = image.height;
    return image.rgb;
}
