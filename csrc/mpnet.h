/* SPDX-License-Identifier: MIT */
/* The public C API of mpnet. Opaque kernel tables, caller-owned buffers, no globals that change results,
 * no allocation in kernels, no printing, int status. Declarations between the cdef marks are read by cffi.
 *
 * Activations are dense NHWC. fp16 and bf16 cross this border as uint16_t bits. What each function computes, bit for
 * bit, stands in docs/arithmetic.md; nothing here depends on `threads` or on the table that is chosen. */
#ifndef MPNET_H
#define MPNET_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
enum { MP_OK = 0, MP_BAD_ARGUMENT = 1, MP_BAD_SHAPE = 2, MP_OVERFLOW = 3, MP_NONFINITE = 4, MP_UNSUPPORTED = 5 };
enum { MP_FP32 = 0, MP_FP16 = 1, MP_INT8 = 2, MP_FP32_WINOGRAD = 3, MP_FP16_HALF = 4 }; /* precisions */
enum { MP_INT4 = 5, MP_INT5 = 6, MP_INT6 = 7, MP_BF16 = 8, MP_INT3 = 9, MP_INT16 = 10 };
enum { MP_INT16W6 = 11, MP_INT16W5 = 12, MP_INT16W4 = 13, MP_INT16W3 = 14 };
enum { MP_FP16_HALF_WINOGRAD = 15 };
enum { MP_TYPE_F32 = 0, MP_TYPE_F16 = 1, MP_TYPE_I8 = 2, MP_TYPE_BF16 = 3, MP_TYPE_I16 = 4 }; /* stored types */
enum { MP_LINEAR = 0, MP_LEAKY = 1, MP_RELU = 2, MP_RELU6 = 3, MP_LOGISTIC = 4, MP_MISH = 5, MP_SWISH = 6 };
/* Those that only mp_conv and mp_map have. */
enum { MP_LOGGY = 7, MP_TANH = 8, MP_RELIE = 9, MP_RAMP = 10, MP_PLSE = 11, MP_ELU = 12, MP_SELU = 13, MP_GELU = 14 };
enum { MP_STAIR = 15, MP_HARDTAN = 16, MP_LHTAN = 17, MP_HARD_MISH = 18, MP_HARD_SIGMOID = 19, MP_HARD_SWISH = 20 };
enum { MP_GELU_ERF = 21, MP_SQRT = 22, MP_LAST_ACTIVATION = MP_SQRT };
enum { MP_SAME = 0, MP_PER_CHANNEL = 1, MP_PER_PIXEL = 2 }; /* what mp_multiply's b has values for */
enum {
    MP_SOFTMAX = 0,
    MP_CHANNELS = 1,
    MP_CHANNELS_EXP = 2,
    MP_CHANNELS_EXP_MAX = 3,
    MP_L2 = 4,
    MP_LOCAL_RESPONSE = 5,
    MP_LAYER = 6
};
enum { MP_MOST_POSITIONS = 4096 };                               /* that attend to each other */
enum { MP_HALF_TO_EVEN = 0, MP_HALF_AWAY = 1, MP_TRUNCATE = 2 }; /* rounding */
enum { MP_PACK_VERSION = 1 }; /* raised when the order or the values of packed weights change for the same tiles */

typedef struct mp_table mp_table;

typedef struct {
    int32_t in_h, in_w, in_c, out_c;
    int32_t size, stride, padding, dilation, groups;
} mp_conv_shape;

typedef struct {
    mp_conv_shape shape;
    int32_t precision, activation, out_type, out_rounding, out_low, out_high, images, threads;
    int32_t pool_h, pool_w; /* out after mp_maxpool of size 2, stride 2, padding 0 or 1; 0, 0: not pooled */
    const void *packed;     /* by mp_pack_conv of the same table, shape and precision; 64-byte aligned */
    const void *in;    /* images x in_h x in_w x in_c: float, bits of 16-bit reals, or codes, as the precision says */
    void *out;         /* images x out_h x out_w (or pool_h x pool_w) x out_c of out_type */
    const float *bias; /* out_c */
    const float *weight_scale;     /* codes: out_c */
    const float *in_scale;         /* codes: images */
    const int32_t *in_zero_point;  /* codes: images; 0 of int16 */
    const float *in_offset;        /* codes: images */
    const float *out_inv_scale;    /* codes as output: images */
    const int32_t *out_zero_point; /* codes as output: images */
    float *ranges;                 /* images x 2: minimum and maximum of the fp32 result; of what is stored, if
                                  * that is pooled reals; or NULL, which it has to be for pooled codes */
    void *scratch;                 /* mp_conv_scratch_bytes, 64-byte aligned; contents need not survive */
    size_t scratch_bytes;
    /* converts = 1: `in` holds reals of in_type, another than the precision reads, which become what it reads on their way: as
     * by mp_cast, or by mp_quantize with in_zero_point and these. Not for precisions that read float. */
    int32_t converts, in_type, in_rounding, in_low, in_high;
    const float *in_inv_scale; /* codes: images */
    /* int8, where mp_conv_takes_sums: what sums of products begin from (images x out_h x out_w x out_c), or NULL. gives_sums = 1: out
     * receives them as they are, int32, instead of results; out_type is float's and ranges NULL. Not pooled, in_offset 0. So the
     * sums of some input channels are continued by those of the others, each with weights of their own. */
    const int32_t *sums;
    int32_t gives_sums;
    /* Codes in and out in integers alone, where multiplier is not NULL: the sum of a channel and its integer_bias, times its
     * multiplier * 2^(shift - 31), plus out_zero_point, within out_low and out_high: by fixed_point.h's rule of 32, or by that of 64
     * where codes of either have 16 bits. activation is MP_LINEAR; bias, scales and ranges mean nothing. */
    const void *integer_bias;          /* out_c: int32, or int64 by the rule of 64; sums stay within 31, or 47 */
    const int32_t *multiplier, *shift; /* out_c: in [2^30, 2^31) and [-31, 7], or 0 and 0 */
    /* Or NULL: LeakyReLU follows, by a factor above 0 and one below. Before it sums are steps from the real 0, within these. */
    const int32_t *leaky_multiplier, *leaky_shift;
    int32_t leaky_low, leaky_high;
} mp_conv_args;

const char *mp_compiler(void);

/* Tables, best first; all that were compiled in, whether this CPU can run them or not. */
int mp_table_count(void);
const mp_table *mp_table_at(int index);
const char *mp_table_name(const mp_table *table);
int mp_table_usable(const mp_table *table);
int mp_table_has(const mp_table *table, int precision);
/* Words for the features of this CPU that levels need, one after the other; NULL behind the last. */
const char *mp_cpu_feature(int index);

/* Tables that weights can be packed with: all of the above, then those of other machines, which can do nothing else. NULL:
 * there is none. */
const mp_table *mp_packing_table_at(int index);
const mp_table *mp_packing_table(const char *name);

/* Weights: (out_c, in_c / groups, size, size) floats; int8 in [-127, 127] for MP_INT8 and MP_INT16, in [-7, 7] for MP_INT4, MP_INT16W4 and
 * so on. Sizes are 0 when refused; mp_check_conv says why: MP_BAD_SHAPE, MP_OVERFLOW (int8 sums could leave int32), MP_UNSUPPORTED. */
int mp_check_conv(const mp_table *table, const mp_conv_shape *shape, int precision);
size_t mp_pack_bytes(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights);
int mp_pack_conv(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights, void *packed,
                 size_t packed_bytes);
/* The same from weights as the precision stores them: reals of 16 bits are rounded already. */
size_t mp_pack_bytes_stored(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights);
int mp_pack_conv_stored(const mp_table *table, const mp_conv_shape *shape, int precision, const void *weights,
                        void *packed, size_t packed_bytes);
/* Packed weights hold no address, so they may come from a file: MP_OK when this table would have begun packed_bytes of its own
 * for this shape and precision in the same way. What follows the header is not looked at. */
int mp_check_packed(const mp_table *table, const mp_conv_shape *shape, int precision, const void *packed,
                    size_t packed_bytes);
size_t mp_conv_scratch_bytes(const mp_table *table, const void *packed, int pooled, int threads);
/* Whether mp_conv takes and gives sums with these weights. */
int mp_conv_takes_sums(const mp_table *table, const void *packed);
/* MP_NONFINITE: a result (before the activation, or after rounding to half) is not finite; out is then unspecified. */
int mp_conv(const mp_table *table, const mp_conv_args *args);

/* count: elements per image, images one after the other. */
int mp_value_range(const mp_table *table, const void *x, int type, size_t images, size_t count, float *ranges,
                   int threads);
int mp_quantize(const mp_table *table, const void *x, int type, void *out, int out_type, size_t images, size_t count,
                const float *inv_scale, const int32_t *zero_point, int rounding, int low, int high, int threads);
int mp_dequantize(const mp_table *table, const void *x, int type, void *out, int out_type, size_t images, size_t count,
                  const float *scale, const int32_t *zero_point, const float *offset, int threads);
int mp_cast(const mp_table *table, const void *x, int type, void *out, int out_type, size_t count, int threads);
int mp_add(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
           size_t count, int threads);
int mp_maxpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c, int out_h,
               int out_w, int size, int stride, int padding, int threads);
int mp_avgpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
               int threads);
int mp_upsample(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
                int factor, int threads);
/* Along channels: copies `c` of them, from channel `from` of an input of in_c to channel `to` of an output of out_c. */
int mp_copy_channels(const mp_table *table, const void *x, void *out, int type, size_t pixels, int in_c, int from,
                     int out_c, int to, int c, int threads);
/* out = activation(x * scale + shift), without the sum where shift is 0. */
int mp_map(const mp_table *table, const void *x, int type, void *out, int out_type, int activation, float scale,
           float shift, size_t count, int threads);
/* out = activation(a * a_weight + b * b_weight); weights per channel of out. b may have other sizes than a and out: the first
 * channels of both count; a wider b is read at every (b_w / w)th pixel, a narrower one stands at every (w / b_w)th. Channels
 * that b lacks: activation(a * a_weight); pixels that it lacks: activation(a). */
int mp_combine(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
               const float *a_weight, const float *b_weight, size_t images, int h, int w, int c, int b_h, int b_w,
               int b_c, int threads);
/* out = activation(a * b). b: as a; or one value per image and channel; or one per pixel. */
int mp_multiply(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
                int kind, size_t images, int h, int w, int c, int threads);
/* out[i] = x[index[i]] of each image; index < 0: 0, for codes `fill` of the image. */
int mp_gather(const mp_table *table, const void *x, void *out, int type, size_t images, size_t in_count,
              size_t out_count, const int32_t *index, const int32_t *fill, int threads);
/* Rows of `length` values, cut into segments at starts[0 .. segments]; what each kind does with p0 .. p3: docs/arithmetic.md. */
int mp_normalize(const mp_table *table, const void *x, void *out, int type, int kind, size_t rows, size_t length,
                 const int32_t *starts, int segments, float p0, float p1, float p2, float p3, int threads);
/* x: images x pixels x (queries, keys, values of `heads` heads, `key`, `key` and `value` channels each); out: images x pixels x
 * heads * value. Pixels attend to those of their own of `areas` equal parts, of at most MP_MOST_POSITIONS pixels. */
int mp_attention(const mp_table *table, const float *x, float *out, size_t images, size_t pixels, int heads, int key,
                 int value, int areas, float scale, int threads);
/* Mean of what of each window lies inside; padding: total. */
int mp_local_avgpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
                     int out_h, int out_w, int size, int stride_x, int stride_y, int padding, int threads);
/* out[g] = the largest of the channels g, g + out_c, g + 2 out_c, ... of a pixel. */
int mp_channel_max(const mp_table *table, const void *x, void *out, int type, size_t pixels, int c, int out_c,
                   int threads);
/* Of each pixel: out[i * groups + g] = x[g * (c / groups) + i]. */
int mp_shuffle(const mp_table *table, const void *x, void *out, int type, size_t pixels, int c, int groups,
               int threads);
/* Codes in integers alone (docs/arithmetic.md, section 10). rescale: of what lies below zero_point by a factor of its own. */
enum { MP_ADD_SHIFT_8 = 20, MP_ADD_SHIFT_16 = 15 }; /* of codes before they are added */
enum { MP_MOST_SHIFT = 7 };                         /* of a convolution's factors */
int mp_rescale(const mp_table *table, const void *x, int type, void *out, int out_type, int zero_point,
               int out_zero_point, int low, int high, int multiplier, int shift, int below_multiplier, int below_shift,
               size_t count, int threads);
/* Of a, of b, of their sum: zero points and factors. */
int mp_add_codes(const mp_table *table, const void *a, const void *b, void *out, int type, const int32_t *zero_points,
                 const int32_t *multipliers, const int32_t *shifts, int low, int high, size_t count, int threads);
/* Reals over scale, rounded half away from zero. */
int mp_quantize_by_division(const mp_table *table, const float *x, void *out, int out_type, float scale, int zero_point,
                            size_t count, int threads);
/* For measuring the machine: rounds of independent multiply-adds in registers. start: 12 * mp_lanes() floats. result: something
 * that depends on all of them. Returns their number, 0 for bad arguments. */
int64_t mp_multiply_adds(const mp_table *table, const float *start, int64_t rounds, float *result);
int mp_lanes(const mp_table *table);
/* int8 products that the table's best instruction makes in the time of an fp32 one. */
int mp_int8_rate(const mp_table *table);
/* cdef end */
#endif
