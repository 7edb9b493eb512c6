/* SPDX-License-Identifier: MIT */
/* What __fp16 storage means: each sum is computed in fp32 and rounded to half when it is stored. */
#include <stdio.h>

int main(void)
{
    __fp16 a = 1.12f, b = 0.68f, c, d, e;
    c = a + a;
    d = b + b;
    e = a + b;
    printf("%f %f %f\n", (double)c, (double)d, (double)e);
    return 0;
}
