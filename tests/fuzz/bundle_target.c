/* SPDX-License-Identifier: MIT */
/* Any bytes as a bundle that is opened and run by every kernel table that this CPU has, or as an image that is read: nothing
 * outside its memory is touched, and all tables give the same bits.
 *
 * A bundle is looked at as it is, and once more with its CRCs made right, for a fuzzer never gets past them otherwise. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mp_crc.h"
#include "mprun/net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A network that only the seeds' size takes; larger ones find nothing more, and take longer. */
enum { MAX_IMAGE = 1 << 16 };
#ifndef LEFT_OUT /* of the tables */
#define LEFT_OUT ""
#endif

static void repair_piece(uint8_t *bundle, const mpb_section *data, mpb_piece *piece)
{
    if (piece->at <= data->bytes && piece->bytes <= data->bytes - piece->at)
        piece->crc = mp_crc32c(0, bundle + data->at + piece->at, piece->bytes);
}

static void repair(uint8_t *bundle, size_t size)
{
    mpb_header *header = (void *)bundle;
    mpb_section *table = (void *)(header + 1), sections[MPB_SECTIONS];
    const size_t head = sizeof *header + sizeof sections;
    if (size < head) return;
    memcpy(sections, table, sizeof sections); /* records may lie over the table, and change it below */
    header->bytes = size;
    header->version = MPB_VERSION;
    if (header->sections != MPB_SECTIONS) return;
    for (int s = 0; s < MPB_SECTIONS; s++) {
        mpb_section *section = &sections[s];
        if (section->at > size || section->bytes > size - section->at || section->at % MPB_ALIGN) return;
    }
    const mpb_section *data = &sections[MPB_DATA], *own = &sections[MPB_CONVOLUTIONS], *packed = &sections[MPB_PACKED];
    for (size_t i = 0; i < own->bytes / sizeof(mpb_convolution); i++) {
        mpb_convolution *one = (mpb_convolution *)(void *)(bundle + own->at) + i;
        repair_piece(bundle, data, &one->weights);
        repair_piece(bundle, data, &one->bias);
        repair_piece(bundle, data, &one->scale);
    }
    for (size_t i = 0; i < sections[MPB_STEPS].bytes / sizeof(mpb_step); i++)
        repair_piece(bundle, data, &((mpb_step *)(void *)(bundle + sections[MPB_STEPS].at))[i].values);
    for (size_t i = 0; i < packed->bytes / sizeof(mpb_packed); i++)
        repair_piece(bundle, data, &((mpb_packed *)(void *)(bundle + packed->at))[i].weights);
    for (int s = 0; s < MPB_DATA; s++) table[s].crc = mp_crc32c(0, bundle + sections[s].at, sections[s].bytes);
    header->crc = 0;
    header->crc = mp_crc32c(mp_crc32c(0, header, sizeof *header), table, head - sizeof *header);
}

/* What a table made of a bundle. */
typedef struct {
    char error[MPR_ERROR];
    uint32_t bits; /* of the tensors and boxes of all programs: a CRC */
} outcome;

static void add(outcome *made, const void *data, size_t bytes) { made->bits = mp_crc32c(made->bits, data, bytes); }

static void add_outputs(outcome *made, const mpr_pass *pass)
{
    for (int32_t i = 0; i < pass->program->outputs; i++) {
        const float *data;
        const mpb_slot *slot = mpr_pass_output(pass, i, &data);
        add(made, data, mpr_slot_bytes(slot));
    }
}

static void run_others(outcome *made, mprun *net)
{
    for (int64_t p = 1; p < net->file.count[MPB_PROGRAMS]; p++) {
        mpr_pass pass;
        char error[MPR_ERROR] = "";
        if (!mpr_pass_open(&pass, &net->weights, p, error)) {
            memset(pass.image, 0, mpr_slot_bytes(&pass.slots[0]));
            if (!mpr_pass_run(&pass, error)) add_outputs(made, &pass);
            mpr_pass_close(&pass);
        }
        add(made, error, strlen(error));
    }
}

static outcome run_table(const uint8_t *bundle, size_t size, const char *table)
{
    outcome made = {0};
    mprun *net = calloc(1, sizeof *net);
    if (!net) abort();
    const int threads = 1 + size % 2;
    if (!mpr_file_of(&net->file, "bundle", bundle, size, made.error) &&
        !mpr_net_open(net, table, threads, made.error)) {
        uint8_t image[5 * 7 * 3];
        const mprun_box *boxes = 0;
        for (size_t i = 0; i < sizeof image; i++) image[i] = (uint8_t)(i * 37);
        const int count = mprun_detections(net, image, 7, 5, 0.1, -1, &boxes);
        const char *error = mprun_error(net);
        if (count < 0 && !*error) abort();
        strcpy(made.error, error);
        for (int i = 0; i < count; i++) {
            const mprun_box *b = &boxes[i];
            add(&made, (const float[]){(float)b->category, b->score, b->x, b->y, b->width, b->height}, 24);
        }
        /* Without a head to decode there are tensors all the same. */
        if (count >= 0 || strstr(error, ": has no head")) add_outputs(&made, &net->pass);
        run_others(&made, net);
        mpr_net_close(net);
    } else if (!*made.error || strchr(made.error, '\n')) {
        abort(); /* whatever is refused is said in one line */
    }
    free(net);
    return made;
}

/* Weights that were packed for a table are that table's own: then only memory is watched. */
static int is_packed(const uint8_t *bundle, size_t size)
{
    char error[MPR_ERROR];
    mpr_file file;
    return mpr_file_of(&file, "bundle", bundle, size, error) == 0 && file.count[MPB_PACKED] > 0;
}

static void run_bundle(const uint8_t *bundle, size_t size)
{
    outcome first;
    for (int i = 0, done = 0; i < mp_table_count(); i++) {
        const char *name = mp_table_name(mp_table_at(i));
        if (!mp_table_usable(mp_table_at(i)) || strcmp(name, LEFT_OUT) == 0) continue;
        const outcome made = run_table(bundle, size, name);
        if (!done++) {
            first = made;
        } else if (!is_packed(bundle, size) && (strcmp(made.error, first.error) || made.bits != first.bits)) {
            fprintf(stderr, "%s: '%s', bits %08x\nanother: '%s', bits %08x\n", name, made.error, made.bits, first.error,
                    first.bits);
            abort();
        }
        if (strstr(made.error, "header is damaged")) return; /* as for all */
    }
}

static void read_image(const uint8_t *data, size_t size)
{
    char error[MPR_ERROR] = "";
    mpr_image image;
    uint8_t *file = malloc(size ? size : 1);
    if (!file) abort();
    memcpy(file, data, size);
    const int failed = mpr_image_of(&image, "image", file, size, (mpr_memory){0}, error);
    if (!failed != (image.rgb != 0) || (failed && !*error)) abort();
    volatile uint8_t last = failed ? 0 : image.rgb[(size_t)image.width * image.height * 3 - 1]; /* it is there */
    (void)last;
    mpr_image_drop(&image);
    free(file);
}

/* The size in the header of what looks like an image, so that huge ones are left alone. */
static int is_small(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 9 <= size; ++at)
        if (data[at] == 0xff && data[at + 1] >= 0xc0 && data[at + 1] <= 0xc2 &&
            (int64_t)(data[at + 5] << 8 | data[at + 6]) * (data[at + 7] << 8 | data[at + 8]) > MAX_IMAGE)
            return 0;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8 || memcmp(data, "mpbundle", 8) != 0) {
        if (is_small(data, size)) read_image(data, size);
        return 0;
    }
    void *bundle = 0;
    if (posix_memalign(&bundle, MPB_ALIGN, size)) abort();
    memcpy(bundle, data, size);
    run_bundle(bundle, size);
    memcpy(bundle, data, size);
    repair(bundle, size);
    run_bundle(bundle, size);
    free(bundle);
    return 0;
}
