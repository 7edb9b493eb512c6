/* SPDX-License-Identifier: MIT */
#include <string.h>
#include "../mpnet.h"
#include "cutoff.h"
#include "mp_detect.h"

static int is_likely(const float *objectness, int32_t anchors, float cutoff)
{
    int found = 0;
    for (int32_t a = 0; a < anchors; a++) found |= objectness[a] > cutoff;
    return found;
}

int mp_likely_cells(const float *objectness, int32_t images, int32_t cells, int32_t anchors, int32_t apart,
                    float threshold, const void *source, int64_t bytes, int32_t block, int64_t *starts, int32_t *chosen,
                    void *gathered)
{
    if (images < 0 || cells <= 0 || anchors <= 0 || apart < anchors || bytes <= 0 || block <= 0 || !(threshold >= 0.0f))
        return MP_BAD_ARGUMENT;
    const float cutoff = mp_cutoff(threshold);
    int64_t row = 0;
    starts[0] = 0;
    for (int32_t i = 0; i < images; i++) {
        for (int32_t cell = 0; cell < cells; cell++) {
            const int64_t at = (int64_t)i * cells + cell;
            if (!is_likely(objectness + at * apart, anchors, cutoff)) continue;
            memcpy((char *)gathered + row * bytes, (const char *)source + at * bytes, (size_t)bytes);
            chosen[row++] = cell;
        }
        for (; row % block; row++) {
            memcpy((char *)gathered + row * bytes, (char *)gathered + (row - 1) * bytes, (size_t)bytes);
            chosen[row] = -1;
        }
        starts[i + 1] = row;
    }
    return MP_OK;
}
