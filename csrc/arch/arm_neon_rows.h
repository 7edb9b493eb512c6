/* SPDX-License-Identifier: MIT */
/* Shared by the NEON tiles: rows as macros. Accumulators are named, not an array: gcc spills arrays.
 * ROWS8(M) is M(0) ... M(7). CASES calls F##_rows with the number of rows as a constant, so that missing rows cost
 * nothing, and F##_full, in assembly, with all of them. */
#ifndef MP_ARM_NEON_ROWS_H
#define MP_ARM_NEON_ROWS_H

#define ROWS4(M) M(0) M(1) M(2) M(3)
#define ROWS8(M) ROWS4(M) M(4) M(5) M(6) M(7)
#define CASES3(F, ...)                                                                                                 \
    switch (rows) {                                                                                                    \
    case 1: F##_rows(1, __VA_ARGS__); break;                                                                           \
    case 2: F##_rows(2, __VA_ARGS__); break;                                                                           \
    case 3: F##_rows(3, __VA_ARGS__); break;                                                                           \
    default: F##_full(__VA_ARGS__); break;                                                                             \
    }
#define CASES7(F, ...)                                                                                                 \
    switch (rows) {                                                                                                    \
    case 1: F##_rows(1, __VA_ARGS__); break;                                                                           \
    case 2: F##_rows(2, __VA_ARGS__); break;                                                                           \
    case 3: F##_rows(3, __VA_ARGS__); break;                                                                           \
    case 4: F##_rows(4, __VA_ARGS__); break;                                                                           \
    case 5: F##_rows(5, __VA_ARGS__); break;                                                                           \
    case 6: F##_rows(6, __VA_ARGS__); break;                                                                           \
    case 7: F##_rows(7, __VA_ARGS__); break;                                                                           \
    default: F##_full(__VA_ARGS__); break;                                                                             \
    }
#define TILE_ARGUMENTS                                                                                                 \
    const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b, const void *init, void *acc
#define TILE_ENTRY(NAME, CASES)                                                                                        \
    static void NAME(TILE_ARGUMENTS, int rows, int channels, const char *ahead, ptrdiff_t ahead_step)                  \
    {                                                                                                                  \
        (void)channels, (void)ahead, (void)ahead_step; /* these cores prefetch by themselves */                        \
        CASES(NAME, a, seg, segments, run, b, init, acc)                                                               \
    }
#endif
