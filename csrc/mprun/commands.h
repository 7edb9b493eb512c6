/* SPDX-License-Identifier: MIT */
/* What the program does, one function each: 0, or -1 with a line in net->error. Internal. */
#ifndef MPR_COMMANDS_H
#define MPR_COMMANDS_H
#include "net.h"
#include "output.h"

/* Names of files. */
typedef struct {
    char **path;
    int count, capacity;
} mpr_paths;
/* An image, or the images of a folder by name. */
int mpr_paths_add(mpr_paths *paths, const char *path, char *error);
void mpr_paths_free(mpr_paths *paths);

/* Detections of all images as COCO results; list: a folder, or a file with an image a line, as `path` or `id path`. */
int mpr_evaluate(mprun *net, const char *list, const char *out, double confidence, double nms, int resize);
enum { MPR_POOR = 1 };
/* The latency table that `mpnet sweep` takes. MPR_POOR: written, but its predictions are too far off; a line in net->error. */
int mpr_profile(mprun *net, const char *out, int repeats);
/* Milliseconds of `repeats` passes: of each step, step_ms[step * repeats + r], and of the whole pass, pass_ms[r]. Passes that are
 * timed step by step and passes that are timed as a whole alternate; without step_ms (NULL) there are only the latter.
 * 0, or -1 with a line in error. */
int mpr_time(mpr_pass *pass, int repeats, double *step_ms, double *pass_ms, char *error);
/* Milliseconds of a pass and its steps. */
int mpr_bench(mprun *net, int repeats, int json);
/* What the CPU and, if there is one, the bundle offer. */
void mpr_info(const mprun *net, const mp_table *table, int threads, int json);
/* The processor's name as the system gives it. */
void mpr_cpu_name(char *name, int capacity);
#endif
