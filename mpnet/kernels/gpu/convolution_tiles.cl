/* SPDX-License-Identifier: MIT */
/* Convolutions of one group of channels by groups of work items that share what they read: SIDE tiles of pixels by SIDE blocks of
 * output channels, of DEPTH input channels at a time. Each sum keeps its order; weights lie as those of mp_convolve. */
#if SUMS == CHAIN || SUMS == INTEGERS
#define SIDE 8
#define DEPTH 16
#define LOADED_PIXELS (SIDE * PIXELS)
#define LOADED_CHANNELS (SIDE * CHANNELS)
#if SUMS == INTEGERS && BYTE_PRODUCTS
/* Words of four input channels. Codes stay as they are, those outside the image being the zero point, which is taken off at the
 * end: times the sum of all weights. */
#define PACKED 4
typedef i32 word_t;
#else
#define PACKED 1
typedef value_t word_t;
#endif
#define WORDS (DEPTH / PACKED)
KERNEL OF_GROUPS void mp_convolve_tiles(const convolution arguments, MEMORIES)
{
    LOCAL word_t values[WORDS][LOADED_PIXELS];
    LOCAL word_t taps[WORDS][LOADED_CHANNELS];
    const convolution *a = &arguments;
    const i32 blocks = a->padded_channels / CHANNELS, tiles = tiles_of(a), item = ITEM_OF_GROUP;
    const i32 block_groups = (blocks + SIDE - 1) / SIDE, tile_groups = (tiles + SIDE - 1) / SIDE;
    const i64 group = ITEM / GROUP;
    const i32 n = (i32)(group / block_groups / tile_groups), first_block = (i32)(group % block_groups) * SIDE;
    const i32 first_tile = (i32)(group / block_groups % tile_groups) * SIDE;
    const i32 block = first_block + item % SIDE, tile = first_tile + item / SIDE;
    const int is_active = block < blocks && tile < tiles;
    const work_item work = work_at(a, n, is_active ? tile : 0, 1, 0, is_active ? block : 0, THEIR_NAMES);
    /* The pixel of which this item loads every second word. */
    const i32 loaded = item / 2, loaded_tile = first_tile + loaded / PIXELS;
    const i32 loaded_y = row_of(a, loaded_tile, loaded % PIXELS), loaded_x = column_of(a, loaded_tile, loaded % PIXELS);
    const int is_loaded = loaded_tile < tiles && loaded_y < a->out_h && loaded_x < a->out_w;
    const i32 zero_point = work.zero_point;
    GLOBAL const weight_t *weights = (GLOBAL const weight_t *)(weights_memory + a->weights_start);
    sum_t sums[PIXELS][CHANNELS];
    i32 ky, kx, c;
    int d, i, p, q;
    begin_sums(a, &work, sums, THEIR_NAMES);
    for (ky = a->top; ky <= a->bottom; ky++) {
        for (kx = a->left; kx <= a->right; kx++) {
            const i64 at = pixel_under(a, n, is_loaded, loaded_y, loaded_x, ky, kx), tap = (i64)(ky * a->size + kx) * a->in_channels;
            for (c = 0; c < a->in_channels; c += DEPTH) {
                const int depth = a->in_channels - c < DEPTH ? a->in_channels - c : DEPTH;
                BARRIER;
                for (d = item % 2; d * PACKED < depth; d += 2) {
#if PACKED == 4
                    u32 word = 0;
                    for (i = 0; i < PACKED; i++) {
                        const int is_there = at >= 0 && d * PACKED + i < depth;
                        const i32 code = is_there ? load_code(x_memory + a->x_start, at + c + d * PACKED + i, STORED) : zero_point;
                        word |= ((u32)code & 0xff) << 8 * i;
                    }
                    values[d][loaded] = (i32)word;
#else
                    values[d][loaded] = at >= 0 ? LOAD(at + c + d) : OUTSIDE;
#endif
                }
                for (i = item; i < WORDS * LOADED_CHANNELS; i += GROUP) {
                    const i32 k = first_block * CHANNELS + i % LOADED_CHANNELS;
                    d = i / LOADED_CHANNELS;
                    if (d * PACKED < depth && k < a->padded_channels) {
                        GLOBAL const weight_t *w = weights + (tap + c + d * PACKED) * a->padded_channels + k;
#if PACKED == 4
                        u32 word = 0;
                        for (p = 0; p < PACKED && d * PACKED + p < depth; p++)
                            word |= ((u32)(i32)w[p * a->padded_channels] & 0xff) << 8 * p;
                        taps[d][i % LOADED_CHANNELS] = (i32)word;
#else
                        taps[d][i % LOADED_CHANNELS] = *w;
#endif
                    }
                }
                BARRIER;
                for (d = 0; is_active && d * PACKED < depth; d++) {
                    for (p = 0; p < PIXELS; p++) {
                        const word_t value = values[d][item / SIDE * PIXELS + p];
                        for (q = 0; q < CHANNELS; q++) {
                            const word_t weight = taps[d][item % SIDE * CHANNELS + q];
#if PACKED == 4
                            sums[p][q] = add_byte_products(value, weight, sums[p][q]);
#else
                            sums[p][q] = STEP(value, weight, sums[p][q]);
#endif
                        }
                    }
                }
            }
        }
    }
    if (!is_active) return;
#if PACKED == 4
    for (q = 0; q < work.channels; q++)
        for (p = 0; p < PIXELS; p++) sums[p][q] -= zero_point * (i32)READ(float, weight_sum, work.k0 + q);
#endif
    store_tile(a, sums, &work.pixels, work.n, work.k0, work.channels, THEIR_NAMES);
}
#endif
