/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "net.h"
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "heads.h"

const mp_table *mpr_table(const char *isa, char *error)
{
    const int automatic = !isa || !*isa || strcmp(isa, "auto") == 0;
    int is_known = 0;
    for (int i = 0; i < mp_table_count(); i++) {
        const mp_table *table = mp_table_at(i);
        if (!automatic && strcmp(isa, mp_table_name(table)) != 0) continue;
        is_known = 1;
        if (mp_table_usable(table)) return table;
    }
    char names[160] = "";
    for (int i = 0; i < mp_table_count(); i++)
        if (!is_known || mp_table_usable(mp_table_at(i)))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "",
                     mp_table_name(mp_table_at(i)));
    mpr_fail(error,
             is_known ? "ISA level '%.40s': this CPU cannot run it; it can run %s"
                      : "unknown ISA level '%.40s'; this build has %s",
             isa, names);
    return 0;
}

int mpr_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int check_network(const mpr_file *file, char *error)
{
    const mpb_network *n = file->network;
    if (n->in_h < 1 || n->in_w < 1 || n->in_c < 1 || n->classes < 0 || n->classes > 1 << 16 || n->layers < 1 ||
        n->layers > 1 << 20 || n->resize < MP_STRETCH || n->resize > MP_LETTERBOX_OPENCV ||
        (n->nms_kind != MP_NMS_IOU && n->nms_kind != MP_NMS_DISTANCE) || !(n->nms_beta > 0.0f) ||
        !(n->confidence >= 0 && n->confidence < 1) || !(n->nms >= 0 && n->nms <= 1) ||
        !mpr_has(file, MPB_PLACES, n->category_ids, n->classes))
        return mpr_fail(error, "%s: network: its numbers make no sense; export it again", file->name);
    return 0;
}

int mpr_net_open(mprun *net, const char *isa, int threads, char *error)
{
    const mp_table *table = mpr_table(isa, error);
    if (table && !check_network(&net->file, error) &&
        !mpr_weights_open(&net->weights, &net->file, table, threads < 1 ? mpr_cores() : threads, error)) {
        if (!mpr_pass_open(&net->pass, &net->weights, 0, error) && !mpr_check_heads(&net->pass, error)) return 0;
    }
    mpr_net_close(net);
    return -1;
}

void mpr_net_close(mprun *net)
{
    mpr_box_buffer *all[17];
    for (int h = 0; h < 16; h++) all[h] = &net->heads[h];
    all[16] = &net->selected;
    for (int i = 0; i < 17; i++) {
        free(all[i]->category);
        free(all[i]->score);
        free(all[i]->box);
    }
    free(net->scratch.start);
    free(net->ready.start);
    free(net->boxes);
    mpr_pass_close(&net->pass);
    if (net->weights.file) mpr_weights_close(&net->weights);
    mpr_file_close(&net->file);
}

mprun *mprun_open(const char *bundle, const char *isa, int threads, char *error, size_t error_bytes)
{
    char line[MPR_ERROR] = "";
    mprun *net = calloc(1, sizeof *net);
    if (!net)
        mpr_fail(line, "%s: no memory", bundle);
    else if (threads < 0 || threads > 1024)
        mpr_fail(line, "threads: %d is outside 0 to 1024", threads);
    else if (!mpr_file_map(&net->file, bundle, line) && !mpr_net_open(net, isa, threads, line))
        return net;
    free(net);
    if (error_bytes) snprintf(error, error_bytes, "%s", line);
    return 0;
}

void mprun_close(mprun *net)
{
    if (!net) return;
    mpr_net_close(net);
    free(net);
}

void mprun_input_size(const mprun *net, int *width, int *height, int *channels)
{
    if (width) *width = net->file.network->in_w;
    if (height) *height = net->file.network->in_h;
    if (channels) *channels = net->file.network->in_c;
}

const char *mprun_error(const mprun *net) { return net->error; }

int mprun_forward(mprun *net, const float *input)
{
    if (input != net->pass.image) memcpy(net->pass.image, input, mpr_slot_bytes(&net->pass.slots[0]));
    return mpr_pass_run(&net->pass, net->error);
}

const float *mprun_head(const mprun *net, int head, int shape[3])
{
    const float *data;
    if (head < 0 || head >= net->pass.program->outputs) return 0;
    const mpb_slot *slot = mpr_pass_output(&net->pass, head, &data);
    shape[0] = slot->h;
    shape[1] = slot->w;
    shape[2] = slot->c;
    return data;
}

static int reserve_scratch(mprun *net, size_t bytes)
{
    return mpr_grow(&net->scratch, bytes, net->file.name, net->error);
}

static int reserve_boxes(mprun *net, mpr_box_buffer *buffer, int64_t entries)
{
    if (entries <= buffer->capacity) return 0;
    free(buffer->category);
    free(buffer->score);
    free(buffer->box);
    buffer->capacity = entries;
    buffer->category = malloc((size_t)entries * sizeof *buffer->category);
    buffer->score = malloc((size_t)entries * sizeof *buffer->score);
    buffer->box = malloc((size_t)entries * 4 * sizeof *buffer->box);
    if (buffer->category && buffer->score && buffer->box) return 0;
    buffer->capacity = 0;
    return mpr_fail(net->error, "%s: no memory", net->file.name);
}

static int set_image(mprun *net, const mpr_image *image, int resize, mp_geometry *geometry)
{
    const mpb_network *n = net->file.network;
    const int width = image->width, height = image->height;
    if (n->in_c != 3)
        return mpr_fail(net->error, "%s: takes %d channels, but images are RGB", net->file.name, (int)n->in_c);
    if (reserve_scratch(net, (size_t)mp_preprocess_scratch(width, n->in_w, n->in_h))) return -1;
    return mp_preprocess(image->rgb, width, height, n->in_w, n->in_h, resize < 0 ? n->resize : resize, 0,
                         net->scratch.start, net->pass.image, geometry) == MP_OK
               ? 0
               : mpr_fail(net->error, "an image of %d x %d pixels cannot be fitted to %d x %d", width, height,
                          (int)n->in_w, (int)n->in_h);
}

static int decode_head(mprun *net, int number, const mp_geometry *geometry, double confidence)
{
    const mpr_file *file = &net->file;
    const mpb_head *head = &file->heads[number];
    mpr_box_buffer *buffer = &net->heads[number];
    mp_yolo_head yolo;
    const float *data = mpr_head_tensor(&net->pass, head, confidence, &net->ready, &yolo, net->error);
    if (!data) return -1;
    for (int64_t needed = 256;; needed = buffer->count) {
        if (reserve_boxes(net, buffer, needed) || reserve_scratch(net, (size_t)mp_decode_scratch(buffer->capacity)))
            return -1;
        const int status =
            mp_decode_yolo(&yolo, file->anchors + 2 * (int64_t)head->first_anchor, data, 0, 0, 1, geometry->relative,
                           (float)confidence, buffer->capacity, net->scratch.start, &buffer->count, buffer->offsets,
                           buffer->category, buffer->score, buffer->box);
        if (status != MP_OK) return mpr_fail(net->error, "%s: a yolo layer's input is not finite", file->name);
        if (buffer->count <= buffer->capacity) return 0;
    }
}

static float min(float a, float b) { return b < a ? b : a; }
static float max(float a, float b) { return a < b ? b : a; }

/* One side of a box cut at the image's edges: on the corners in float32; where nothing is cut the width stays as it was. */
static void clip(float *start, float *length, float limit)
{
    const float low = min(max(*start, 0.0f), limit), high = min(max(*start + *length, 0.0f), limit);
    if (!(*start == low && *start + *length == high)) *length = high - low;
    *start = low + 0.0f; /* -0 becomes 0 */
    *length += 0.0f;
}

static int decode(mprun *net, const mp_geometry *geometry, int width, int height, double confidence, double nms)
{
    const mpr_file *file = &net->file;
    const mpb_network *n = file->network;
    const int heads = (int)file->count[MPB_HEADS];
    mp_candidates candidates[16];
    int64_t total = 0;
    if (!heads) return mpr_fail(net->error, "%s: has no head, so it detects nothing", file->name);
    confidence = confidence < 0 ? n->confidence : confidence;
    nms = nms < 0 ? n->nms : nms;
    for (int h = 0; h < heads; h++) {
        mpr_box_buffer *buffer = &net->heads[h];
        if (decode_head(net, h, geometry, confidence)) return -1;
        candidates[h] = (mp_candidates){1, buffer->offsets, buffer->category, buffer->score, buffer->box};
        total += buffer->count;
    }
    mpr_box_buffer *selected = &net->selected;
    if (reserve_boxes(net, selected, total ? total : 1) ||
        reserve_scratch(net, 7 * (size_t)(total + MP_NMS_BLOCK) * sizeof(float)))
        return -1;
    const float size[2] = {(float)width, (float)height};
    if (mp_nms(candidates, heads, n->nms_kind, (float)nms, n->nms_beta, size, total, net->scratch.start,
               selected->offsets, selected->category, selected->score, selected->box) != MP_OK)
        return mpr_fail(net->error, "%s: suppression refused its arguments", file->name);
    const int64_t count = selected->offsets[1];
    free(net->boxes);
    net->boxes = malloc(((size_t)count + 1) * sizeof *net->boxes);
    if (!net->boxes || count > INT32_MAX) return mpr_fail(net->error, "%s: no memory", file->name);
    for (int64_t i = 0; i < count; i++) {
        float *box = selected->box + 4 * i;
        clip(&box[0], &box[2], size[0]);
        clip(&box[1], &box[3], size[1]);
        net->boxes[i] = (mprun_box){mpr_class_name(file, selected->category[i]),
                                    selected->category[i],
                                    selected->score[i],
                                    box[0],
                                    box[1],
                                    box[2],
                                    box[3]};
    }
    return (int)count;
}

mpr_memory mpr_idle_arena(const mprun *net) { return (mpr_memory){net->pass.arena, net->pass.program->arena_bytes}; }

int mpr_detect(mprun *net, mpr_image *image, double confidence, double nms, int resize)
{
    mp_geometry geometry;
    const int failed = set_image(net, image, resize, &geometry);
    mpr_image_drop(image);
    if (failed || mpr_pass_run(&net->pass, net->error)) return -1;
    return decode(net, &geometry, image->width, image->height, confidence, nms);
}

static void sort(mprun_box *boxes, mprun_box *spare, int count)
{
    if (count < 2) return;
    const int middle = count / 2;
    sort(boxes, spare, middle);
    sort(boxes + middle, spare, count - middle);
    memcpy(spare, boxes, (size_t)middle * sizeof *spare);
    for (int a = 0, b = middle, next = 0; a < middle; next++)
        boxes[next] = b < count && boxes[b].score > spare[a].score ? boxes[b++] : spare[a++];
}

void mpr_best_first(mprun *net, int count)
{
    if (count > 1 && !reserve_scratch(net, (size_t)count * sizeof *net->boxes))
        sort(net->boxes, net->scratch.start, count);
}

int mprun_detections(mprun *net, const uint8_t *rgb, int width, int height, double confidence, double nms,
                     const mprun_box **boxes)
{
    if (!(confidence < 1) || !(nms <= 1)) return mpr_fail(net->error, "confidence or nms is outside its limits");
    const int count = mpr_detect(net, &(mpr_image){.rgb = (uint8_t *)(uintptr_t)rgb, .width = width, .height = height},
                                 confidence, nms, -1);
    if (count < 0) return -1;
    mpr_best_first(net, count);
    *boxes = net->boxes;
    return count;
}
