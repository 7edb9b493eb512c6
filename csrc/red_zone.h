/* SPDX-License-Identifier: MIT */
/* Fuzzers compile with MP_RED_ZONE bytes, which nobody may touch, behind every part of a memory that is cut up. Internal. */
#ifndef MP_RED_ZONE_H
#define MP_RED_ZONE_H
#ifdef MP_RED_ZONE
#include <sanitizer/asan_interface.h>
static inline void mp_forbid(void *at) { ASAN_POISON_MEMORY_REGION(at, MP_RED_ZONE); }
#else
enum { MP_RED_ZONE = 0 };
static inline void mp_forbid(void *at) { (void)at; }
#endif
#endif
