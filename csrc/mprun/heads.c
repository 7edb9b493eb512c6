/* SPDX-License-Identifier: MIT */
#include "heads.h"
#include <math.h>
#include <string.h>

static const char *tree_problem(const mpr_file *file, const mpb_head *head)
{
    const int32_t *starts = file->places + head->first_start, *parents = file->places + head->first_parent;
    const int32_t *map = file->places + head->first_map;
    if (head->groups < 1 || !mpr_has(file, MPB_PLACES, head->first_start, (int64_t)head->groups + 1) ||
        !mpr_has(file, MPB_PLACES, head->first_parent, head->raw_classes) ||
        (head->mapped && !mpr_has(file, MPB_PLACES, head->first_map, head->classes)))
        return "its tree is missing";
    if (starts[0] != 0 || starts[head->groups] != head->raw_classes) return "its tree makes no sense";
    for (int32_t g = 0; g < head->groups; g++)
        if (starts[g + 1] <= starts[g]) return "its tree makes no sense";
    for (int32_t i = 0; i < head->raw_classes; i++)
        if (parents[i] < -1 || parents[i] >= i) return "its tree makes no sense";
    for (int32_t i = 0; head->mapped && i < head->classes; i++)
        if (map[i] < 0 || map[i] >= head->raw_classes) return "its classes are no nodes";
    return 0;
}

static mp_imported_head imported_head(const mpr_file *file, const mpb_head *head, const mpb_slot *slot)
{
    return (mp_imported_head){.how = head->how,
                              .grid_h = slot->h,
                              .grid_w = slot->w,
                              .boxes = head->anchors,
                              .classes = head->classes,
                              .net_w = (float)file->network->in_w,
                              .net_h = (float)file->network->in_h};
}

/* Sizes of boxes: behind those of the network's input, which stand for a head that is made ready. */
static int has_own_anchors(const mp_decoding *how) { return how->decoder == MP_YOLOV5 || how->decoder == MP_SSD; }

static const char *imported_problem(const mpr_file *file, const mpb_head *head, const mpb_slot *slot)
{
    const mp_decoding *how = &head->how;
    if (how->decoder < MP_NOT_DECODED || how->decoder > MP_LAST_DECODER) return "its kind is unknown";
    if (how->reg_max < 1 || how->reg_max > 64 || how->coords < 4 || how->coords > 1024 || how->softmax < 0 ||
        how->softmax > 1)
        return "its numbers make no sense";
    for (int k = 0; k < 4; k++)
        if (!isfinite(how->variances[k])) return "its numbers make no sense";
    if (how->decoder == MP_NOT_DECODED) return 0;
    if (has_own_anchors(how) && !mpr_has(file, MPB_ANCHORS, head->first_anchor, 2 * (int64_t)head->anchors))
        return "its anchors are missing";
    const mp_imported_head spec = imported_head(file, head, slot);
    return mp_imported_channels(&spec) == slot->c ? 0 : "does not fit its tensor";
}

static const char *head_problem(const mpr_file *file, const mpb_head *head, const mpb_slot *slot)
{
    if (head->anchors < 1 || head->anchors > 1 << 10 || head->classes < 1 || head->classes > 1 << 16 ||
        head->classes != file->network->classes || !mpr_has(file, MPB_ANCHORS, head->first_anchor, head->anchors) ||
        !isfinite(head->scale_x_y))
        return "its numbers make no sense";
    const int64_t classes = head->kind == MPB_HEAD_YOLO ? head->classes : head->raw_classes;
    const int tree = head->kind == MPB_HEAD_REGION && head->classes_by == MP_BY_TREE;
    if (classes < 1 || classes > 1 << 16 || (tree && head->mapped ? head->classes > classes : head->classes != classes))
        return "its numbers make no sense";
    if (head->classes_by < MP_BY_LOGISTIC || head->classes_by > MP_BY_TREE || head->point < MP_CENTER ||
        head->point > MP_RIGHT_BOTTOM)
        return "its kind is unknown";
    switch (head->kind) {
    case MPB_HEAD_YOLO: return slot->c == head->anchors * (5 + classes) ? 0 : "does not fit its tensor";
    case MPB_HEAD_REGION:
        if (slot->c != head->anchors * (5 + classes)) return "does not fit its tensor";
        return tree ? tree_problem(file, head) : 0;
    case MPB_HEAD_GAUSSIAN:
        if (head->classes_by == MP_BY_TREE) return "its kind is unknown";
        return slot->c == head->anchors * (9 + classes) ? 0 : "does not fit its tensor";
    case MPB_HEAD_DETECTION:
        return head->side >= 1 && head->side <= 1024 &&
                       (int64_t)head->side * head->side * head->anchors * (5 + classes) <= 1 << 24 &&
                       mpr_values(slot) == (uint64_t)head->side * head->side * (classes + 5 * head->anchors)
                   ? 0
                   : "does not fit its tensor";
    case MPB_HEAD_IMPORTED: return imported_problem(file, head, slot);
    default: return "its kind is unknown";
    }
}

int mpr_check_heads(const mpr_pass *pass, char *error)
{
    const mpr_file *file = pass->weights->file;
    for (int64_t h = 0; h < file->count[MPB_HEADS]; h++) {
        const mpb_head *head = &file->heads[h];
        const float *data;
        const mpb_slot *slot =
            head->output >= 0 && head->output < pass->program->outputs ? mpr_pass_output(pass, head->output, &data) : 0;
        const char *problem = slot ? head_problem(file, head, slot) : "does not fit its tensor";
        if (problem) return mpr_fail(error, "%s: head %d: %s; export it again", file->name, (int)h, problem);
    }
    return 0;
}

/* Rows of classes, of objectness, of boxes -> cells of [boxes][x, y, w, h, objectness, classes]. */
static void make_yolo_of_detection(const mpb_head *head, const mpb_slot *slot, const float *data, float *flat,
                                   float *out)
{
    const int64_t cells = (int64_t)head->side * head->side, boxes = head->anchors, classes = head->raw_classes;
    const int64_t pixels = (int64_t)slot->h * slot->w;
    /* What a layer makes without a connected one before it lies in another order. */
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < slot->c; c++) flat[c * pixels + p] = data[p * slot->c + c];
    const float *objectness = flat + cells * classes, *places = objectness + cells * boxes;
    if (head->classes_by == MP_BY_SOFTMAX)
        for (int64_t i = 0; i < cells; i++) mp_softmax(flat + i * classes, (int32_t)classes, flat + i * classes);
    for (int64_t i = 0; i < cells * boxes; i++, out += 5 + classes) {
        memcpy(out, places + 4 * i, 4 * sizeof *out);
        /* Decoding squares them. */
        for (int k = 2; k < 4 && !head->root; k++) out[k] = sqrtf(out[k] < 0 ? 0 : out[k]);
        out[4] = objectness[i];
        memcpy(out + 5, flat + i / boxes * classes, (size_t)classes * sizeof *out);
    }
}

/* [region] and [Gaussian_yolo]; node: scratch of as many values as the tensor has classes. */
static int make_yolo_of_other(const mpr_file *file, const mpb_head *head, const mpb_slot *slot, double confidence,
                              const float *data, float *node, float *out)
{
    const int gaussian = head->kind == MPB_HEAD_GAUSSIAN, tree = head->classes_by == MP_BY_TREE;
    const mp_other_head spec = {.gaussian = gaussian,
                                .grid_h = slot->h,
                                .grid_w = slot->w,
                                .anchors = head->anchors,
                                .entries = gaussian ? 9 : 5,
                                .classes = head->raw_classes,
                                .out_classes = head->classes,
                                .classes_by = head->classes_by,
                                .point = head->point,
                                .background = head->background,
                                .net_w = (float)file->network->in_w,
                                .net_h = (float)file->network->in_h,
                                .scale_x_y = head->scale_x_y,
                                .threshold = (float)confidence,
                                .groups = head->groups,
                                .starts = tree ? file->places + head->first_start : 0,
                                .parents = tree ? file->places + head->first_parent : 0,
                                .map = tree && head->mapped ? file->places + head->first_map : 0};
    return mp_ready_head(&spec, file->anchors + 2 * (int64_t)head->first_anchor, data, (int64_t)slot->h * slot->w, node,
                         out);
}

static int make_yolo_of_imported(const mpr_file *file, const mpb_head *head, const mpb_slot *slot, const float *data,
                                 float *out)
{
    const mp_imported_head spec = imported_head(file, head, slot);
    const float *anchors =
        has_own_anchors(&head->how) ? file->anchors + 2 * ((int64_t)head->first_anchor + head->anchors) : 0;
    return mp_ready_imported(&spec, anchors, data, (int64_t)slot->h * slot->w, out);
}

const float *mpr_head_tensor(const mpr_pass *pass, const mpb_head *head, double confidence, mpr_memory *ready,
                             mp_yolo_head *yolo, char *error)
{
    const mpr_file *file = pass->weights->file;
    const float *data;
    const mpb_slot *slot = mpr_pass_output(pass, head->output, &data);
    *yolo = (mp_yolo_head){.grid_h = slot->h,
                           .grid_w = slot->w,
                           .anchors = head->anchors,
                           .classes = head->classes,
                           .net_w = (float)file->network->in_w,
                           .net_h = (float)file->network->in_h,
                           .scale_x_y = head->scale_x_y,
                           .new_coords = head->new_coords};
    if (head->kind == MPB_HEAD_YOLO) return data;
    /* Its centres are stretched already. */
    yolo->scale_x_y = 1.0f;
    yolo->new_coords = head->kind == MPB_HEAD_DETECTION ? 1 : 2;
    if (head->kind == MPB_HEAD_DETECTION) yolo->grid_h = yolo->grid_w = head->side;
    /* What nobody decodes: one box, which is no object. */
    const int is_undecoded = head->kind == MPB_HEAD_IMPORTED && head->how.decoder == MP_NOT_DECODED;
    if (is_undecoded) yolo->grid_h = yolo->grid_w = yolo->anchors = 1;
    const size_t value_count = (size_t)yolo->grid_h * yolo->grid_w * yolo->anchors * (5 + (size_t)head->classes);
    const size_t extra_count = mpr_values(slot) + (size_t)head->raw_classes;
    if (mpr_grow(ready, (value_count + extra_count) * sizeof(float), file->name, error)) return 0;
    float *out = ready->start;
    int status = MP_OK;
    if (is_undecoded)
        memset(out, 0, value_count * sizeof *out);
    else if (head->kind == MPB_HEAD_DETECTION)
        make_yolo_of_detection(head, slot, data, out + value_count, out);
    else if (head->kind == MPB_HEAD_IMPORTED)
        status = make_yolo_of_imported(file, head, slot, data, out);
    else
        status = make_yolo_of_other(file, head, slot, confidence, data, out + value_count, out);
    if (status == MP_OK) return out;
    mpr_fail(error, "%s: a head cannot be decoded; export it again", file->name);
    return 0;
}
