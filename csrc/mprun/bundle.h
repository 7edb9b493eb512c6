/* SPDX-License-Identifier: MIT */
/* The bundle: one finished network in one file. docs/bundle.md describes it; these records are the only declaration of it,
 * which Python's writer uses as well. Little-endian; every field lies at a multiple of its size; offsets count from the
 * file's first byte. */
#ifndef MPB_BUNDLE_H
#define MPB_BUNDLE_H
#include <stdint.h>
#include "../detect/mp_detect.h"
#include "../mpnet.h"

/* cdef begin */
enum { MPB_VERSION = 3, MPB_ALIGN = 64 };

/* A table of latencies is measured again, so often at most, while its predictions are off by more on average. */
enum { MPB_PROFILE_ROUNDS = 3, MPB_PROFILE_PERCENT = 8 };

/* Sections, in this order; those of a later minor addition follow and are not read. */
enum {
    MPB_NETWORK = 0,
    MPB_PROGRAMS = 1,
    MPB_SLOTS = 2,
    MPB_STEPS = 3,
    MPB_PLACES = 4, /* int32: lists of slots, identities, places in trees, which other records point into */
    MPB_CONVOLUTIONS = 5,
    MPB_HEADS = 6,
    MPB_ANCHORS = 7, /* floats: width, height in pixels of the network input */
    MPB_PACKED = 8,
    MPB_TEXT = 9,    /* UTF-8, each text ended by 0 */
    MPB_ORIGIN = 10, /* JSON: where it comes from */
    MPB_DATA = 11,   /* weights; each piece has a CRC of its own */
    MPB_SECTIONS = 12
};

typedef struct {
    char magic[8]; /* "mpbundle" */
    uint32_t version, sections;
    uint64_t bytes; /* of the file */
    uint32_t crc;   /* of this header, with 0 here, and the sections' records */
    uint32_t zero;
} mpb_header;

typedef struct {
    uint64_t at, bytes;         /* at a multiple of MPB_ALIGN */
    uint32_t record_bytes, crc; /* crc: 0 for MPB_DATA */
} mpb_section;

/* Bytes within MPB_DATA, at a multiple of MPB_ALIGN; bytes 0: there are none. */
typedef struct {
    uint64_t at, bytes;
    uint32_t crc, zero;
} mpb_piece;

/* Texts are offsets into MPB_TEXT; of several, the others follow the first. */
typedef struct {
    double confidence, nms; /* of the evaluation that it comes from */
    int32_t in_h, in_w, in_c, classes, layers;
    int32_t resize;   /* MP_STRETCH, MP_LETTERBOX, MP_CROP, MP_LETTERBOX_OPENCV */
    int32_t nms_kind; /* MP_NMS_* */
    float nms_beta;
    int32_t max_detections;              /* of an image in an evaluation; 0: all */
    int32_t category_ids;                /* place of the classes' ids in an evaluation's file */
    uint32_t class_names, layer_names;   /* one per class, per layer */
    uint32_t nms_name, cfg, cfg_digest;  /* nms_name: kind of suppression, dialect, batch_norm; SHA-256 of the cfg */
    uint32_t weights_digest, precisions; /* of the weights; words of all that programs have, with commas */
    uint32_t arithmetic;                 /* text: ARITHMETIC_VERSION */
} mpb_network;

/* A forward pass. The first program is the configuration; the others are there to be timed. */
enum { MPB_CONFIGURATION = 0, MPB_COVERING = 1, MPB_CHECK = 2 };
typedef struct {
    uint64_t arena_bytes; /* of all tensors but the image */
    int32_t purpose;
    uint32_t key; /* text: the precisions, one character per layer with weights */
    int32_t first_slot, slots, first_step, steps, first_output, outputs; /* outputs: in MPB_PLACES */
} mpb_program;

/* One tensor, NHWC without n. The first of a program is the image. */
typedef struct {
    int64_t at;            /* in the arena, a multiple of MPB_ALIGN; -1: nowhere (the image, what nothing writes) */
    int32_t h, w, c, type; /* MP_TYPE_* */
    int32_t layer, zero;
} mpb_slot;

enum {
    MPB_CONVOLVE = 0,
    MPB_QUANTIZE = 1,
    MPB_DEQUANTIZE = 2,
    MPB_CAST = 3,
    MPB_MAXPOOL = 4,
    MPB_AVGPOOL = 5,
    MPB_UPSAMPLE = 6,
    MPB_SLICE = 7,
    MPB_CONCAT = 8,
    MPB_ADD = 9,
    MPB_YOLO = 10,
    MPB_MAP = 11,
    MPB_COMBINE = 12,
    MPB_MULTIPLY = 13,
    MPB_CONSTANT = 14,
    MPB_GATHER = 15,
    MPB_NORMALIZE = 16,
    MPB_LOCAL_AVGPOOL = 17,
    MPB_CHANNEL_MAX = 18,
    MPB_ATTENTION = 19,
    /* Codes in integers alone: docs/arithmetic.md, section 10. */
    MPB_INTEGER_CONVOLVE = 20,
    MPB_INTEGER_QUANTIZE = 21,
    MPB_INTEGER_RESCALE = 22,
    MPB_INTEGER_ADD = 23,
    MPB_SHUFFLE = 24,
    MPB_OPERATIONS = 25
};

/* How codes become others in integers: of steps from MPB_INTEGER_CONVOLVE to MPB_INTEGER_ADD. */
typedef struct {
    float scale; /* of the result's codes */
    int32_t zero_point, low, high;
    /* Factors. MPB_INTEGER_RESCALE, LeakyReLU: above the real 0, below; MPB_INTEGER_ADD: of a, of b, of their sum. */
    int32_t multiplier[3];
    int32_t shift[3];
    int32_t leaky, leaky_low, leaky_high; /* MPB_INTEGER_CONVOLVE: LeakyReLU follows, of steps within these */
} mpb_integer_rules;

/* One step; slots count within the program. What an operation does not use is 0. */
typedef struct {
    /* MPB_COMBINE: float32, for each input after the first weights per channel of the sum so far, and of the input.
     * MPB_CONSTANT: float32, the tensor. MPB_GATHER: int32, for each value of the result its place in the input's, -1: 0.
     * Of the integer operations: mpb_integer_rules. */
    mpb_piece values;
    int32_t operation, layer, output;
    int32_t first_input, inputs;          /* in MPB_PLACES */
    uint32_t signature;                   /* text: what its time depends on */
    int32_t convolution;                  /* MPB_CONVOLVE, MPB_INTEGER_CONVOLVE */
    int32_t quantizes, pooled;            /* in the same pass; MPB_INTEGER_CONVOLVE: pooled */
    int32_t calibrated;                   /* quantising by the range low .. high; 0: by the tensor's own */
    int32_t mode, rounding, narrow_range; /* as mp_activation_scheme */
    float ensure_minimum_range, low, high;
    int32_t size, stride, padding; /* MPB_MAXPOOL, MPB_LOCAL_AVGPOOL; padding of both sides together */
    int32_t stride_y;              /* MPB_LOCAL_AVGPOOL, whose stride is the horizontal one */
    int32_t factor;                /* MPB_UPSAMPLE; MPB_ATTENTION: heads; MPB_SHUFFLE: groups */
    int32_t first;                 /* MPB_SLICE: channel */
    int32_t activation;            /* MPB_ADD, MPB_MAP, MPB_COMBINE, MPB_MULTIPLY */
    int32_t kind;    /* MPB_MULTIPLY: what the second input has values for; MPB_NORMALIZE: MP_SOFTMAX, ... */
    int32_t swapped; /* MPB_MULTIPLY: the second input comes first */
    int32_t length, first_start, segments; /* MPB_NORMALIZE: of a row; starts and the end of segments in MPB_PLACES.
                                            * MPB_ATTENTION: channels of a key, 0, areas */
    float parameters[4];                   /* MPB_NORMALIZE; MPB_MAP: scale, shift; MPB_ATTENTION: scale */
} mpb_step;

/* A layer's weights at one precision, as mp_pack_conv_stored takes them. */
typedef struct {
    mpb_piece weights, bias, scale;
    int32_t layer, precision, activation;
    mp_conv_shape shape;
    int32_t stands_in; /* -1: no; else the convolution whose weights serve in their place where only time matters */
    /* MPB_INTEGER_CONVOLVE: bias holds mp_conv_args' integer_bias, multiplier and shift, the first of 4 * bias_words bytes a channel. */
    int32_t bias_words; /* 0: not in integers; 1: int32 biases; 2: int64 biases, by the rule of 64 bits */
} mpb_convolution;

/* Kinds of heads: of the layers [yolo], [region], [Gaussian_yolo], [detection], and [yolo] with a decoder of another program. */
enum { MPB_HEAD_YOLO = 0, MPB_HEAD_REGION = 1, MPB_HEAD_GAUSSIAN = 2, MPB_HEAD_DETECTION = 3, MPB_HEAD_IMPORTED = 4 };
typedef struct {
    int32_t output; /* which of the program's outputs */
    int32_t first_anchor, anchors, classes;
    float scale_x_y;
    int32_t new_coords;                        /* MPB_HEAD_YOLO */
    int32_t kind, raw_classes;                 /* raw_classes: of the tensor, for all but MPB_HEAD_YOLO */
    int32_t classes_by, point, background;     /* as mp_other_head */
    int32_t groups, first_start, first_parent; /* tree: MPB_PLACES has starts[groups + 1], parents[raw_classes] */
    int32_t mapped, first_map;                 /* mapped: MPB_PLACES has map[classes] */
    int32_t side, root;                        /* MPB_HEAD_DETECTION, whose anchors are its boxes */
    /* MPB_HEAD_IMPORTED, whose anchors are as large as the network's input. MP_YOLOV5, MP_SSD: their own follow. */
    mp_decoding how;
} mpb_head;

/* A convolution's weights as one table packs them. */
typedef struct {
    char table[16];
    mpb_piece weights;
    int32_t convolution, zero;
} mpb_packed;
/* cdef end */
#endif
