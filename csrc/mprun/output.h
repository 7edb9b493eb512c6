/* SPDX-License-Identifier: MIT */
/* What the program prints: JSON, text in columns, files that appear whole or not at all. Internal. */
#ifndef MPR_OUTPUT_H
#define MPR_OUTPUT_H
#include <stdio.h>

/* A JSON string; bytes that are no UTF-8 as lone surrogates, as Python reads file names. */
void mpr_json_text(FILE *out, const char *text);
/* The shortest of 15 to 17 digits that gives the number back. */
void mpr_json_number(FILE *out, double value);
/* For terminals: control characters of names, which could move the cursor or rename the window, as '?'. */
void mpr_plain_text(FILE *out, const char *text);
/* On standard error, what is wrong with a JPEG that is read all the same; flaws: MP_JPEG_... */
void mpr_note_flaws(const char *path, int flaws);
/* Characters, for columns. */
int mpr_width(const char *text);

/* A file that takes its name when it is complete. A signal that ends the program removes it; one at a time. */
typedef struct {
    FILE *file;
    const char *path;
    char temporary_path[4096];
} mpr_output;
/* path NULL: standard output. 0, or -1 with a line in error. */
int mpr_output_open(mpr_output *out, const char *path, char *error);
int mpr_output_finish(mpr_output *out, char *error);
void mpr_output_drop(mpr_output *out);

/* Milliseconds of a clock that only runs forward. */
double mpr_now_ms(void);
double mpr_median(double *values, int count);
#endif
