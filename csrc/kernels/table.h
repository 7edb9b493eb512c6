/* SPDX-License-Identifier: MIT */
/* The table of one ISA level from the templates. Defined before: MP_LEVEL (the table's identifier suffix), MP_MR (rows of
 * a tile). MP_HAS_DOT8: int8 tiles multiply bytes, else pairs of int16.
 * MP_INT8_WINOGRAD: 3x3 int8 goes through kernels/winograd.h where that gives the same integers sooner: mp_winograd's bounds.
 * MP_INT8_RATE: int8 products that its best instruction makes in the time of an fp32 one; default 2 (pairs of int16).
 * MP_INT8_WORDS, MP_FP16_WORDS: what int8 and fp16 cost here, for people (`mprun --info`).
 * MP_OWN_I8, MP_HAS_FP16_HALF, MP_OWN_S16: the level brings its own micro_i8, micro_half, micro_s16 (Winograd's).
 * MP_HALF_WINOGRAD_INPUT: the transform of inputs that this micro_half multiplies.
 * MP_DOT_PAIRS: int16 is multiplied as it is; beside MP_HAS_DOT8 only where that takes no more instructions than its two bytes do.
 * MP_COLUMNS: its mp_depthwise.lines of codes, by columns.
 * MP_NARROW_TILES: initialisers of mp_table.micro for weights below eight bits, where products of these are cheaper.
 * MP_MATRIX_LEVEL: a second table of the same with a matrix unit: its suffix; MP_MATRIX_RATE, MP_MATRIX_WORDS, MP_MATRIX_MICRO. */
#ifndef MP_NARROW_TILES
#define MP_NARROW_TILES
#endif
#ifndef MP_POINTS
#define MP_POINTS(SUMS) .points = 0
#endif
#ifndef TILE_OUTPUT_F32
#define TILE_OUTPUT_F32 0
#endif
#ifndef TILE_OUTPUT_I8
#define TILE_OUTPUT_I8 0
#endif
#ifndef MP_INT8_RATE
#define MP_INT8_RATE 2
#endif
#ifndef MP_INT8_WORDS
#define MP_INT8_WORDS "no dot product: 16-bit products in pairs"
#endif
#ifndef MP_FP16_WORDS
#define MP_FP16_WORDS "storage only: fp16 computes no faster than fp32"
#endif
#define MP_JOIN2(a, b) a##b
#define MP_JOIN(a, b) MP_JOIN2(a, b)
#define MP_STRING2(a) #a
#define MP_STRING(a) MP_STRING2(a)

#if defined WINDOW_SUMS && !defined WINDOW_MULTIPLY
#define WINDOW_NAME windows_f32
#define WINDOW_BYTES 4
#define WINDOW_SPREAD(p) vf_set1(*(const float *)(p))
#ifdef WINDOW_SHARES
#define WINDOW_MAC window_fma
#else
#define WINDOW_MAC(c, x, b) vf_fma(x, b, c)
#endif
#include "window.h"
#else
#define windows_f32 0
#endif
#ifdef WINDOW_SUMS
#undef WINDOW_SHARES
#define WINDOW_INT
#define WINDOW_NAME windows_i8
#define WINDOW_SPREAD(p) vi_set1(load_group(p))
#ifdef WINDOW_MULTIPLY
#define WINDOW_BYTES 1
#elif defined MP_HAS_DOT8
#define WINDOW_BYTES 1
#define WINDOW_MAC vi_dot8
#else
#define WINDOW_BYTES 2
#define WINDOW_MAC vi_dot16
#endif
#include "window.h"
#else
#define windows_i8 0
#endif

#include "unpack.h"

#define MP_OWN_LEAF(RESULT, NAME, ARGUMENTS) .NAME = NAME,

/* clang-format off */
static const mp_micro micro_f32 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 1, .a_bytes = 4, .weight_type = MP_W_F32,
                                   .stage = stage_f32, .tile = tile_f32, .tile_output = TILE_OUTPUT_F32, MP_POINTS(f32), .windows = windows_f32};
static const mp_micro micro_f16 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 1, .a_bytes = 4, .weight_type = MP_W_F32, .needs_stage = 1,
                                   .stage = stage_f16, .tile = tile_f32, .tile_output = TILE_OUTPUT_F32, MP_POINTS(f32), .windows = windows_f32};
static const mp_micro micro_bf16 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 1, .a_bytes = 4, .weight_type = MP_W_F32,
                                    .needs_stage = 1, .stage = stage_bf16, .tile = tile_f32, .tile_output = TILE_OUTPUT_F32, MP_POINTS(f32), .windows = windows_f32};
#ifndef MP_HAS_FP16_HALF
static const mp_micro micro_half = {.mr = MP_MR, .nr = 2 * VL, .kstep = 1, .a_bytes = 4, .weight_type = MP_W_F32,
                                    .needs_stage = 1, .stage = stage_f16, .tile = tile_half};
#endif
#if !defined(MP_OWN_I8) && defined(MP_HAS_DOT8)
static const mp_micro micro_i8 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 4, .a_bytes = 1, .weight_type = MP_W_I8, .needs_stage = 1,
                                  .bias_q = 128, .stage = stage_u8, .tile = tile_u8, .tile_output = TILE_OUTPUT_I8, MP_POINTS(u8), .windows = windows_i8};
#elif !defined(MP_OWN_I8)
static const mp_micro micro_i8 = {.mr = MP_MR, .nr = 2 * VL, .kstep = VL > 1 ? 2 : 1, .a_bytes = 2, .weight_type = MP_W_I16,
                                  .needs_stage = 1, .subtracts_zero = 1, .stage = stage_s16, .tile = tile_s16, .tile_output = TILE_OUTPUT_I8, MP_POINTS(s16), .windows = windows_i8};
#endif
#ifdef MP_DOT_PAIRS
#ifdef MP_HAS_DOT8 /* a deeper layer's byte planes are as quick, and its weights half as long */
#define MP_INT16_PARTS .carry = 0
#else
#define MP_INT16_PARTS .tile_output = TILE_OUTPUT_I8, MP_POINTS(s16), .windows = windows_i8, .carry = carry
#endif
static const mp_micro micro_i16 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 2, .a_bytes = 2, .weight_type = MP_W_I16,
                                   .subtracts_zero = 1, .stage = stage_i16, .tile = tile_s16, MP_INT16_PARTS};
#define MP_INT16_TILES &micro_i16
#elif !defined(MP_INT16_TILES)
#define MP_INT16_TILES 0
#endif
#ifdef MP_PARTIAL_VECTORS
#define MP_LINES_REALS MP_LINES(reals), .partial = 1, .least_channels = 16
#else
#define MP_LINES_REALS MP_LINES(reals)
#endif
static const mp_depthwise depthwise_micro_f32 = {.a_bytes = 4, .weight_type = MP_W_F32, .stage = stage_f32, .row = depthwise_f32, .row_output = depthwise_f32_output, MP_LINES_REALS, .in_place = 1};
static const mp_depthwise depthwise_micro_f16 = {.a_bytes = 4, .weight_type = MP_W_F32, .stage = stage_f16, .row = depthwise_f32, .row_output = depthwise_f32_output, MP_LINES_REALS};
static const mp_depthwise depthwise_micro_bf16 = {.a_bytes = 4, .weight_type = MP_W_F32, .stage = stage_bf16, .row = depthwise_f32, .row_output = depthwise_f32_output, MP_LINES_REALS};
static const mp_depthwise depthwise_micro_half = {.a_bytes = 4, .weight_type = MP_W_F32, .stage = stage_f16, .row = depthwise_half};
#ifdef MP_DOT_PAIRS
#define MP_DEPTHWISE_ROW(TYPE) .pair = pair_##TYPE, .row = depthwise_pairs, .row_output = depthwise_pairs_output
#else
#define MP_DEPTHWISE_ROW(TYPE) .row = depthwise_s16
#endif
#ifdef MP_COLUMNS
#define MP_LINES_I8 .lines = MP_COLUMNS, .partial = 1, .columns = COLUMNS_CHANNELS, .least_channels = 32
#else
#define MP_LINES_I8 MP_LINES(codes), .least_channels = 64
#endif
static const mp_depthwise depthwise_micro_i8 = {.a_bytes = 2, .weight_type = MP_W_I16, .subtracts_zero = 1, .stage = stage_s16, MP_DEPTHWISE_ROW(s8), MP_LINES_I8, .in_place = 1};
static const mp_depthwise depthwise_micro_i16 = {.a_bytes = 2, .weight_type = MP_W_I16, .subtracts_zero = 1, .stage = stage_i16, MP_DEPTHWISE_ROW(s16)};
#ifndef MP_HALF_WINOGRAD_INPUT
#define MP_HALF_WINOGRAD_INPUT winograd_input_half
#endif
static const mp_winograd winograd_half = {.micro = &micro_half, .input = MP_HALF_WINOGRAD_INPUT, .output = winograd_output_half};
static const mp_winograd winograd_f32 = {.micro = &micro_f32, .input = winograd_input_f32, .output = winograd_output_f32};
#ifdef MP_INT8_WINOGRAD
#if defined(MP_OWN_S16)
#elif defined(MP_HAS_DOT8)
static const mp_micro micro_s16 = {.mr = MP_MR, .nr = 2 * VL, .kstep = 2, .a_bytes = 2, .weight_type = MP_W_I16,
                                   .needs_stage = 1, .subtracts_zero = 1, .stage = stage_s16, .tile = tile_s16};
#else
#define micro_s16 micro_i8
#endif
static const mp_winograd winograd_i8 = {.micro = &micro_s16, MP_INT8_WINOGRAD, .input = winograd_input_s16,
                                        .output = winograd_output_s32};
#endif

#ifdef MP_INT8_WINOGRAD
#define MP_WINOGRAD_I8 &winograd_i8
#else
#define MP_WINOGRAD_I8 0
#endif
#define MP_TABLE(LEVEL, RATE, WORDS, WINOGRAD, INT16, MATRIX)                                                                        \
    const mp_table MP_JOIN(mp_table_, LEVEL) = {                                                                              \
        .name = MP_STRING(LEVEL),                                                                                             \
        .fp16 = MP_FP16_WORDS,                                                                                                \
        .int8 = WORDS,                                                                                                        \
        .micro = {[MP_FP32] = &micro_f32, [MP_FP16] = &micro_f16, [MP_INT8] = &micro_i8, [MP_FP16_HALF] = &micro_half,        \
                  [MP_FP32_WINOGRAD] = &micro_f32, [MP_BF16] = &micro_bf16, [MP_INT16] = INT16,                        \
                  [MP_FP16_HALF_WINOGRAD] = &micro_half, MP_NARROW_TILES},                                                    \
        .matrix = MATRIX,                                                                                                     \
        .depthwise = {[MP_FP32] = &depthwise_micro_f32, [MP_FP16] = &depthwise_micro_f16, [MP_INT8] = &depthwise_micro_i8,    \
                      [MP_FP16_HALF] = &depthwise_micro_half, [MP_FP32_WINOGRAD] = &depthwise_micro_f32,                      \
                      [MP_BF16] = &depthwise_micro_bf16, [MP_INT16] = &depthwise_micro_i16},                                                                     \
        .winograd = {[MP_FP32_WINOGRAD] = &winograd_f32, [MP_FP16_HALF_WINOGRAD] = &winograd_half, [MP_INT8] = WINOGRAD},     \
        MP_LEAVES(MP_OWN_LEAF).lanes = VL,                                                                                    \
        .int8_rate = RATE,                                                                                                    \
    };
MP_TABLE(MP_LEVEL, MP_INT8_RATE, MP_INT8_WORDS, MP_WINOGRAD_I8, MP_INT16_TILES, 0)
#ifdef MP_MATRIX_LEVEL
MP_TABLE(MP_MATRIX_LEVEL, MP_MATRIX_RATE, MP_MATRIX_WORDS, 0, 0, MP_MATRIX_MICRO)
#endif
/* clang-format on */
