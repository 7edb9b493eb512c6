/* SPDX-License-Identifier: MIT */
/* Which steps of the first program leave their conversion of the image to the convolution that reads it: conversions BUNDLE prints
 * their numbers, a line each. */
#include <stdio.h>
#include <string.h>
#include "net.h"

int main(int count, char **words)
{
    char error[MPR_ERROR] = "";
    if (count != 2) return 2;
    mprun *net = mprun_open(words[1], "scalar", 1, error, sizeof error);
    if (!net) return fprintf(stderr, "%s\n", error) > 0;
    const mpr_pass *pass = &net->pass;
    for (int32_t n = 0; n < pass->program->steps; n++)
        if (pass->tensors[pass->steps[n].output].is_deferred) printf("%d\n", (int)n);
    mprun_close(net);
    return 0;
}
