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
