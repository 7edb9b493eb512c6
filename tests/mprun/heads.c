/* SPDX-License-Identifier: MIT */
/* Forward passes by the library: heads ISA THREADS LIST, each line of LIST `BUNDLE INPUT OUTPUT`, raw floats. */
#include <stdio.h>
#include <stdlib.h>
#include "mprun.h"

static int one(const char *isa, int threads, const char *bundle, const char *input, const char *output)
{
    char error[320];
    int width, height, channels, shape[3];
    mprun *net = mprun_open(bundle, isa, threads, error, sizeof error);
    if (!net) return fprintf(stderr, "%s\n", error);
    mprun_input_size(net, &width, &height, &channels);
    const size_t count = (size_t)width * height * channels;
    float *x = malloc(count * sizeof *x);
    FILE *in = fopen(input, "rb"), *out = fopen(output, "wb");
    int failed = !x || !in || !out || fread(x, sizeof *x, count, in) != count || mprun_forward(net, x);
    const float *head;
    for (int h = 0; !failed && (head = mprun_head(net, h, shape)) != 0; h++)
        failed = !fwrite(head, sizeof *head * shape[0] * shape[1] * shape[2], 1, out);
    if (failed) fprintf(stderr, "%s: %s\n", bundle, mprun_error(net));
    if (in) fclose(in);
    if (out) fclose(out);
    free(x);
    mprun_close(net);
    return failed;
}

int main(int count, char **words)
{
    char bundle[1024], input[1024], output[1024];
    FILE *list = count == 4 ? fopen(words[3], "r") : 0;
    if (!list) return 2;
    int failed = 0;
    while (fscanf(list, "%1023s %1023s %1023s", bundle, input, output) == 3)
        failed |= one(words[1], atoi(words[2]), bundle, input, output);
    fclose(list);
    return failed != 0;
}
