/* Shared by the NEON tiles: rows as macros. Accumulators are named, not an array: gcc spills arrays.
 * ROWS8(M) is M(0) ... M(7). CASES calls F with the number of rows as a constant, so that missing rows cost nothing. */
#ifndef MP_ARM_NEON_ROWS_H
#define MP_ARM_NEON_ROWS_H

#define ROWS4(M) M(0) M(1) M(2) M(3)
#define ROWS8(M) ROWS4(M) M(4) M(5) M(6) M(7)
#define CASES4(F, ...)                                                                                                 \
    switch (rows) {                                                                                                    \
    case 1: F(1, __VA_ARGS__); break;                                                                                  \
    case 2: F(2, __VA_ARGS__); break;                                                                                  \
    case 3: F(3, __VA_ARGS__); break;                                                                                  \
    default: F(4, __VA_ARGS__); break;                                                                                 \
    }
#define CASES8(F, ...)                                                                                                 \
    switch (rows) {                                                                                                    \
    case 1: F(1, __VA_ARGS__); break;                                                                                  \
    case 2: F(2, __VA_ARGS__); break;                                                                                  \
    case 3: F(3, __VA_ARGS__); break;                                                                                  \
    case 4: F(4, __VA_ARGS__); break;                                                                                  \
    case 5: F(5, __VA_ARGS__); break;                                                                                  \
    case 6: F(6, __VA_ARGS__); break;                                                                                  \
    case 7: F(7, __VA_ARGS__); break;                                                                                  \
    default: F(8, __VA_ARGS__); break;                                                                                 \
    }
#define TILE_ARGUMENTS                                                                                                 \
    const char *const *a, const ptrdiff_t *seg, int segments, int run, const void *b, const void *init, void *acc
#define TILE_ENTRY(NAME, CASES)                                                                                        \
    static void NAME(TILE_ARGUMENTS, int rows, const char *ahead, ptrdiff_t ahead_step)                                \
    {                                                                                                                  \
        (void)ahead, (void)ahead_step; /* these cores prefetch by themselves */                                        \
        CASES(NAME##_rows, a, seg, segments, run, b, init, acc)                                                        \
    }
#endif
