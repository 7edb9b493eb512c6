/* SPDX-License-Identifier: MIT */
/* Half arithmetic where the CPU has none: the roundings of FMLA .8h, emulated. Exactness counts here, not speed. */
#include "arm_neon_rows.h"

static void tile_half(TILE_ARGUMENTS, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)
{
    (void)channels, (void)ahead, (void)ahead_step;
    for (int r = 0; r < rows; r++) {
        float *sums = (float *)acc + 8 * r;
        vf c0 = vf_load(init ? init : sums), c1 = vf_load((init ? (const float *)init : sums) + 4);
        const float *w = b;
        for (int s = 0; s < segments; s++) {
            const float *x = (const float *)(a[r] + seg[s]);
            for (int k = 0; k < run; k++, w += 8) {
                c0 = vf_fma_half(vf_set1(x[k]), vf_load(w), c0);
                c1 = vf_fma_half(vf_set1(x[k]), vf_load(w + 4), c1);
            }
        }
        vf_store(sums, c0);
        vf_store(sums + 4, c1);
    }
}
