/* SPDX-License-Identifier: MIT */
/* A bundle in memory: mapped, its sections checked; weights are checked when they are taken. Internal. */
#ifndef MPR_FILE_H
#define MPR_FILE_H
#include <stddef.h>
#include "bundle.h"

enum { MPR_ERROR = 320 };
/* Writes one line into error[MPR_ERROR] and gives -1. */
int mpr_fail(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Bytes of the control character that begins here; 0: none does. */
int mpr_control(const char *text);

typedef struct {
    const char *name; /* of the file, for messages */
    const unsigned char *base;
    uint64_t bytes;
    int mapped;
    const mpb_network *network;
    const mpb_program *programs;
    const mpb_slot *slots;
    const mpb_step *steps;
    const int32_t *places;
    const mpb_convolution *convolutions;
    const mpb_head *heads;
    const float *anchors;
    const mpb_packed *packed;
    const char *text, *origin;
    const unsigned char *data;
    int64_t count[MPB_SECTIONS]; /* records of each section */
} mpr_file;

/* 0, or -1 with a line in error. The name stays the caller's. */
int mpr_file_map(mpr_file *file, const char *path, char *error);
/* The same of bytes that the caller keeps, at a multiple of MPB_ALIGN. */
int mpr_file_of(mpr_file *file, const char *name, const void *bytes, uint64_t count, char *error);
void mpr_file_close(mpr_file *file);

/* A text; "" where there is none. */
const char *mpr_text(const mpr_file *file, uint32_t at);
/* The text after this one, for lists of them. */
const char *mpr_next_text(const mpr_file *file, const char *text);
const char *mpr_layer_name(const mpr_file *file, int layer);
const char *mpr_class_name(const mpr_file *file, int category);
/* Whether count records from first lie in a section. */
int mpr_has(const mpr_file *file, int section, int64_t first, int64_t count);

static inline uint64_t mpr_values(const mpb_slot *slot) { return (uint64_t)slot->h * slot->w * slot->c; }
uint64_t mpr_slot_bytes(const mpb_slot *slot);

/* The bytes of a piece of weights, its CRC checked; NULL with a line in error when it is damaged or not of this size. */
const void *mpr_piece(const mpr_file *file, const mpb_piece *piece, uint64_t bytes, const char *label, char *error);
/* Its pages are not needed in memory any more. */
void mpr_forget(const mpr_file *file, const mpb_piece *piece);
#endif
