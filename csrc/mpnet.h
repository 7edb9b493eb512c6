/* The public C API of mpnet. Opaque kernel tables, caller-owned buffers, no globals that change results,
 * no allocation in kernels, no printing, int status. Declarations between the cdef marks are read by cffi. */
#ifndef MPNET_H
#define MPNET_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
enum { MP_OK = 0, MP_BAD_ARGUMENT = 1, MP_BAD_SHAPE = 2, MP_OVERFLOW = 3, MP_NONFINITE = 4, MP_UNSUPPORTED = 5 };

const char *mp_compiler(void);
int mp_has_openmp(void);
/* cdef end */
#endif
