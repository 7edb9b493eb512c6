/* SPDX-License-Identifier: MIT */
#include "../mpnet.h"
#include "mp_signal.h"

/* 16 lanes are the widest vector of any ISA level, so every compiler can use what it has, to the same bits. */
enum { LANES = 16, ROWS = 8, BLOCK = LANES * ROWS };

static double block_sum(const float *a, const float *b)
{
    float lane[LANES] = {0};
    for (int r = 0; r < ROWS; r++)
        for (int l = 0; l < LANES; l++) {
            const float d = b ? a[r * LANES + l] - b[r * LANES + l] : a[r * LANES + l];
            lane[l] += d * d;
        }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

int mp_squared_difference(int32_t images, int64_t values, const float *a, const float *b, double *sum)
{
    if (images < 0 || values < 0 || (images && values && (!a || !sum))) return MP_BAD_ARGUMENT;
    for (int32_t i = 0; i < images; i++) {
        const float *left = a + i * values, *right = b ? b + i * values : 0;
        double total = 0;
        int64_t v = 0;
        for (; v + BLOCK <= values; v += BLOCK)
            total += right ? block_sum(left + v, right + v) : block_sum(left + v, 0);
        for (; v < values; v++) {
            const float d = right ? left[v] - right[v] : left[v];
            total += d * d;
        }
        sum[i] = total;
    }
    return MP_OK;
}
