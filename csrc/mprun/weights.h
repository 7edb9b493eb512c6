/* SPDX-License-Identifier: MIT */
/* A bundle's weights as a table reads them: mapped where they were packed for it, else packed. Internal. */
#ifndef MPR_WEIGHTS_H
#define MPR_WEIGHTS_H
#include "file.h"

/* The weights of a bundle for one table; programs share them. */
typedef struct {
    const mpr_file *file;
    const mp_table *table;
    int threads;
    const void **packed; /* by convolution; NULL: not prepared yet */
    void **allocated;    /* those of them that were packed here, to be freed */
    int *
        max_distance; /* by convolution: the largest distance from the real 0 of codes for which its integer sums were checked */
    int64_t mapped, packed_here;
} mpr_weights;

int mpr_weights_open(mpr_weights *weights, const mpr_file *file, const mp_table *table, int threads, char *error);
void mpr_weights_close(mpr_weights *weights);
/* Finds or packs a convolution's weights, and looks at its biases and scales: 0, or -1 with a line in error. max_distance: of the codes
 * that it reads, in steps from the real 0, where it is an integer convolution. */
int mpr_prepare_weights(mpr_weights *weights, int32_t number, int max_distance, char *error);
#endif
