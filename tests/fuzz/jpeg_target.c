/* SPDX-License-Identifier: MIT */
/* Any bytes as a JPEG: nothing outside its memory is touched, and what it decodes hangs on the bytes alone.
 *
 * The file is decoded twice, into buffers of exact size that hold different garbage, with red zones between the parts of the
 * scratch memory (csrc/red_zone.h). */
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpnet.h"
#include "image/mp_jpeg.h"

enum { MAX_PIXELS = 1 << 13 }; /* larger images find nothing more, and take longer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Width and height after the first marker that looks like a frame's: what a caller would pass. */
static int find_size(const uint8_t *data, size_t size, int32_t *width, int32_t *height)
{
    for (size_t at = 2; at + 9 <= size; ++at)
        if (data[at] == 0xff && data[at + 1] >= 0xc0 && data[at + 1] <= 0xc2) {
            *height = data[at + 5] << 8 | data[at + 6];
            *width = data[at + 7] << 8 | data[at + 8];
            return 1;
        }
    return 0;
}

static int decode(const uint8_t *data, size_t size, int32_t width, int32_t height, int garbage, uint8_t *rgb)
{
    const int64_t bytes = mp_jpeg_scratch(data, (int64_t)size, width, height);
    if (bytes == 0) return MP_UNSUPPORTED;
    void *scratch = malloc((size_t)bytes);
    if (!scratch) abort();
    memset(scratch, garbage, (size_t)bytes);
    memset(rgb, garbage, (size_t)width * height * 3);
    int32_t flaws;
    const int status = mp_jpeg_decode(data, (int64_t)size, width, height, scratch, bytes, rgb, &flaws);
    ASAN_UNPOISON_MEMORY_REGION(scratch, (size_t)bytes);
    free(scratch);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t width = 0, height = 0;
    if (!find_size(data, size, &width, &height) || (int64_t)width * height > MAX_PIXELS) return -1;
    const size_t bytes = (size_t)width * height * 3;
    /* The file itself in memory of exact size. */
    uint8_t *file = malloc(size), *first = malloc(bytes ? bytes : 1), *second = malloc(bytes ? bytes : 1);
    if (!file || !first || !second) abort();
    memcpy(file, data, size);
    const int status = decode(file, size, width, height, 0x00, first);
    if (decode(file, size, width, height, 0xa5, second) != status ||
        (status == MP_OK && memcmp(first, second, bytes) != 0)) {
        fputs("jpeg: what is decoded hangs on what memory held before\n", stderr);
        abort();
    }
    if (status != MP_OK && status != MP_UNSUPPORTED) abort();
    if (status == MP_OK && mp_jpeg_scratch(file, (int64_t)size, width + 1, height) != 0) abort(); /* not its size */
    free(file);
    free(first);
    free(second);
    return 0;
}
