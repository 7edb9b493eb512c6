/* SPDX-License-Identifier: MIT */
/* Memory of a pass and of what decodes images and boxes. Internal. */
#ifndef MPR_MEMORY_H
#define MPR_MEMORY_H
#include <stddef.h>

/* Memory with its size: lent by somebody, or what mpr_grow gave. */
typedef struct {
    void *start;
    size_t bytes;
} mpr_memory;

/* Memory at a multiple of MPB_ALIGN, on huge pages where it is large, to be freed with free(); NULL when there is none. */
void *mpr_allocate(size_t bytes);
/* Makes the memory at least so large; what it held is lost. 0, or -1 with a line about `name` in error. Its end: free(memory->start). */
int mpr_grow(mpr_memory *memory, size_t bytes, const char *name, char *error);
#endif
