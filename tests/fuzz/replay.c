/* SPDX-License-Identifier: MIT */
/* Gives files to a fuzz target once each, for compilers without libFuzzer. Usage: replay FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **names)
{
    for (int k = 1; k < count; ++k) {
        FILE *file = fopen(names[k], "rb");
        if (!file || fseek(file, 0, SEEK_END)) return perror(names[k]), 2;
        const long size = ftell(file);
        uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
        rewind(file);
        if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) return perror(names[k]), 2;
        fclose(file);
        fprintf(stderr, "%s\n", names[k]); /* the last one named is the one that fails */
        LLVMFuzzerTestOneInput(data, (size_t)size);
        free(data);
    }
    return 0;
}
