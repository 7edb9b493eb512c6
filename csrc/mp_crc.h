/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli), by the CPU's instruction where it has one: what files of mpnet are checked with. */
#ifndef MP_CRC_H
#define MP_CRC_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
/* crc: 0, or the result for the bytes before these. */
uint32_t mp_crc32c(uint32_t crc, const void *data, size_t bytes);
/* cdef end */
#endif
