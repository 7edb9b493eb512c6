/* SPDX-License-Identifier: MIT */
/* First layers: three windows x 16 channels. */
#define WINDOW_SUMS(M) M(0, 0) M(1, 0) M(2, 0)
#define WINDOWS_TOGETHER 3
#define WINDOW_VECTORS 1
#define WINDOW_SHARES
/* c + x * b where c is: with nearly all registers in use clang copies and stores sums around the intrinsic. */
static inline vf window_fma(vf c, vf x, vf b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(b));
    return c;
}

/* Tiles of 12 pixels x 32 channels: 24 sums, 2 weights and a spread activation in 32 registers. */
#define MP_MR 12
#define TILE_ROWS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define TILE_CASES(F, ...)                                                                                             \
    switch (rows) {                                                                                                    \
    case 1: F(1, __VA_ARGS__); break;                                                                                  \
    case 2: F(2, __VA_ARGS__); break;                                                                                  \
    case 3: F(3, __VA_ARGS__); break;                                                                                  \
    case 4: F(4, __VA_ARGS__); break;                                                                                  \
    case 5: F(5, __VA_ARGS__); break;                                                                                  \
    case 6: F(6, __VA_ARGS__); break;                                                                                  \
    case 7: F(7, __VA_ARGS__); break;                                                                                  \
    case 8: F(8, __VA_ARGS__); break;                                                                                  \
    case 9: F(9, __VA_ARGS__); break;                                                                                  \
    case 10: F(10, __VA_ARGS__); break;                                                                                \
    case 11: F(11, __VA_ARGS__); break;                                                                                \
    default: F(12, __VA_ARGS__); break;                                                                                \
    }
