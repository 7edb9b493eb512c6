/* The handle of mprun.h, for the program's own commands. Internal. */
#ifndef MPR_NET_H
#define MPR_NET_H
#include "../detect/mp_detect.h"
#include "../image/mp_resize.h"
#include "mprun.h"
#include "pass.h"

typedef struct {
    int64_t offsets[2];
    int32_t *category;
    float *score, *box;
    int64_t room, count;
} mpr_found; /* of one head, or of all */

/* An image's pixels, RGB. own: what is to be freed; NULL: they lie in memory of somebody else. */
typedef struct {
    uint8_t *rgb;
    int width, height;
    void *own;
} mpr_image;
/* Memory that lies idle while an image is decoded, at a multiple of MPB_ALIGN. */
typedef struct {
    void *at;
    size_t bytes;
} mpr_room;

struct mprun {
    mpr_file file;
    mpr_weights weights;
    mpr_pass pass;
    mpr_found heads[16], kept;
    void *scratch, *ready;
    size_t scratch_bytes, ready_bytes; /* ready: a head of another kind as one of [yolo] */
    mprun_box *boxes;
    char error[MPR_ERROR];
};

/* A table by name; NULL with a line in error. */
const mp_table *mpr_table(const char *isa, char *error);
int mpr_cores(void);
/* Opens the first program of a bundle that is mapped already; closes the file when it fails. */
int mpr_net_open(mprun *net, const char *isa, int threads, char *error);
void mpr_net_close(mprun *net);
/* Whether the heads fit their tensors: 0, or -1 with a line in error. */
int mpr_check_heads(const mprun *net, char *error);
/* What decoding takes of a head: its own tensor, or the one that is made of it; NULL with a line in net->error. */
const float *mpr_head_tensor(mprun *net, const mpb_head *head, double confidence, mp_yolo_head *yolo);
/* Memory that grows, and keeps nothing. 0, or -1 with a line in net->error. */
int mpr_grow(mprun *net, void **memory, size_t *have, size_t bytes);
/* The boxes in an image by class, then falling score, cut at its edges; their number or -1. resize -1: as the bundle says. The
 * image is dropped as soon as it is the network's input. */
int mpr_detect(mprun *net, mpr_image *image, double confidence, double nms, int resize);
/* What a pass writes its tensors to, between two passes. */
mpr_room mpr_room_of(const mprun *net);
/* Those boxes by falling score, equal ones in their order. */
void mpr_best_first(mprun *net, int count);
/* Reads a whole file of at most `most` bytes; free() it. */
uint8_t *mpr_read(const char *path, size_t most, size_t *bytes, char *error);
/* From a file's bytes: 0, or -1 with a line in error. The pixels lie in the room where they and all else fit there, else in
 * memory of their own; mpr_image_drop frees it. */
int mpr_image_of(mpr_image *image, const char *name, const uint8_t *data, size_t bytes, mpr_room room, char *error);
int mpr_image_read(mpr_image *image, const char *path, mpr_room room, char *error);
void mpr_image_drop(mpr_image *image);
#endif
