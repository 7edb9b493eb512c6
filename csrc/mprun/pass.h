/* A program of a bundle made ready to run: checked, memory taken, weights packed or mapped. Internal. */
#ifndef MPR_PASS_H
#define MPR_PASS_H
#include "../quantize/mp_quantize.h"
#include "file.h"

/* The weights of a bundle for one table; programs share them. */
typedef struct {
    const mpr_file *file;
    const mp_table *table;
    int threads;
    const void **packed; /* by convolution; NULL: not asked for yet */
    void **own;          /* what of it was packed here, to be freed */
    int64_t mapped, packed_here;
} mpr_weights;

int mpr_weights_open(mpr_weights *weights, const mpr_file *file, const mp_table *table, int threads, char *error);
void mpr_weights_close(mpr_weights *weights);
/* Finds or packs a convolution's weights, and looks at its biases and scales: 0, or -1 with a line in error. */
int mpr_weights_ready(mpr_weights *weights, int32_t number, char *error);
/* Memory at a multiple of MPB_ALIGN, on huge pages where it is large, to be freed with free(); NULL when there is none. */
void *mpr_take(size_t bytes);

/* A tensor at run time. params: of codes. range: of reals, while known. */
typedef struct {
    void *data;
    mp_quant_params params;
    float range[2];
    int measured, known; /* measured: some step asks for the range; known: it is in `range` */
    int readers;         /* steps that read it, and outputs that it is */
    int left;            /* nothing is written: the convolution that reads it converts the image */
} mpr_tensor;

typedef struct {
    mpr_weights *weights;
    const mpb_program *program;
    const mpb_slot *slots;
    const mpb_step *steps;
    const int32_t *places;
    mpr_tensor *tensors;
    void *memory; /* of the tensors and all that follows */
    size_t memory_bytes;
    float *image;
    void *arena, *scratch;
    size_t scratch_bytes;
    float *wide; /* values of a half tensor on their way to or from TensorFlow's codes */
} mpr_pass;

/* 0, or -1 with a line in error. */
int mpr_pass_open(mpr_pass *pass, mpr_weights *weights, int64_t program, char *error);
void mpr_pass_close(mpr_pass *pass);
/* Touches all of its memory but so many bytes at the end, so that the first pass does not wait for pages. */
void mpr_pass_touch(mpr_pass *pass, size_t but);
/* One forward pass of `image`. The outputs stay until the next. */
int mpr_pass_run(mpr_pass *pass, char *error);
/* One of its steps, for measurements: an mp_status. */
int mpr_pass_step(mpr_pass *pass, const mpb_step *step);
const mpb_slot *mpr_pass_output(const mpr_pass *pass, int number, const float **data);

/* Whether a program can be run without leaving its memory: 0, or -1 with a line in error. */
int mpr_check_program(const mpr_file *file, int64_t program, char *error);
/* Whether what a step brings along fits it: 0, or -1 with a line in error. */
int mpr_check_values(const mpr_file *file, const mpb_step *step, const mpb_slot *in, const mpb_slot *out, char *error);
static inline uint64_t mpr_values(const mpb_slot *slot) { return (uint64_t)slot->h * slot->w * slot->c; }
uint64_t mpr_slot_bytes(const mpb_slot *slot);
/* Whether a step makes codes; if so, fills the scheme. */
int mpr_makes_codes(const mpb_step *step, mp_activation_scheme *scheme);
const char *mpr_operation_name(const mpb_step *step);
#endif
