/* SPDX-License-Identifier: MIT */
#include "../mp_math.h"
#include "../mpnet.h"
#include "cutoff.h"
#include "mp_detect.h"
#include "sort.h"

/* Bytes per entry: two sort buffers and a copy of category, score and box to permute from. */
int64_t mp_decode_scratch(int64_t entries)
{
    return entries * (int64_t)(2 * sizeof(mp_sort_item) + sizeof(int32_t) + 5 * sizeof(float));
}

typedef struct {
    int32_t *category;
    float *score, *box;
    int64_t count, capacity;
} entry_list;

static void add(entry_list *list, int32_t category, float score, const float box[4])
{
    if (list->count < list->capacity) {
        list->category[list->count] = category;
        list->score[list->count] = score;
        memcpy(list->box + 4 * list->count, box, 4 * sizeof(float));
    }
    list->count += 1;
}

/* raw: x, y, w, h, objectness, classes. Returns 0 when a value is not finite. */
static int decode_box(const mp_yolo_head *yolo, const float *anchor, const float *raw, int32_t cell,
                      const float *geometry, float box[4])
{
    float x, y, w, h;
    const float shift = 0.5f * (yolo->scale_x_y - 1.0f);
    if (yolo->new_coords) {
        x = raw[0];
        y = raw[1];
        w = yolo->new_coords == 1 ? raw[2] * raw[2] * 4.0f : raw[2];
        h = yolo->new_coords == 1 ? raw[3] * raw[3] * 4.0f : raw[3];
    } else {
        x = mp_logisticf(raw[0]);
        y = mp_logisticf(raw[1]);
        w = mp_expf(raw[2]);
        h = mp_expf(raw[3]);
    }
    x = x * yolo->scale_x_y - shift;
    y = y * yolo->scale_x_y - shift;
    x = ((float)(cell % yolo->grid_w) + x) / (float)yolo->grid_w;
    y = ((float)(cell / yolo->grid_w) + y) / (float)yolo->grid_h;
    w = w * anchor[0] / yolo->net_w;
    h = h * anchor[1] / yolo->net_h;
    box[0] = (x - geometry[0]) / geometry[2];
    box[1] = (y - geometry[1]) / geometry[3];
    box[2] = w / geometry[2];
    box[3] = h / geometry[3];
    return isfinite(box[0]) && isfinite(box[1]) && isfinite(box[2]) && isfinite(box[3]);
}

/* Objectness values lie `size` floats apart, most boxes end there, and the tensors of many images do not fit a cache:
 * without asking ahead, waiting for memory is half the time. */
enum { AHEAD = 16 };

static inline void prefetch(const float *address, const float *end)
{
#if defined(__GNUC__)
    if (address < end) __builtin_prefetch(address);
#else
    (void)address, (void)end;
#endif
}

/* rows: of the head; cells: which one each is, NULL: all in order. */
static int decode_image(const mp_yolo_head *yolo, const float *anchor_wh, const float *head, const int32_t *cells,
                        int64_t rows, const float *geometry, float threshold, entry_list *list)
{
    const int64_t size = 5 + yolo->classes;
    const float *end = head + rows * yolo->anchors * size;
    const float objectness_cutoff = yolo->new_coords ? threshold : mp_cutoff(threshold);
    for (int64_t row = 0; row < rows; row++) {
        const int32_t cell = cells ? cells[row] : (int32_t)row;
        for (int32_t anchor = 0; cell >= 0 && anchor < yolo->anchors; anchor++) {
            const float *raw = head + (row * yolo->anchors + anchor) * size;
            prefetch(raw + AHEAD * size + 4, end);
            if (!(raw[4] > objectness_cutoff)) continue;
            const float objectness = yolo->new_coords ? raw[4] : mp_logisticf(raw[4]);
            if (!(objectness > threshold)) continue;
            const float wanted = threshold / objectness;
            const float class_cutoff = yolo->new_coords ? -1e30f : mp_cutoff(wanted);
            float box[4];
            int known = 0;
            for (int32_t c = 0; c < yolo->classes; c++) {
                if (!(raw[5 + c] > class_cutoff)) continue;
                const float probability = yolo->new_coords ? raw[5 + c] : mp_logisticf(raw[5 + c]);
                const float score = objectness * probability;
                if (!(score > threshold)) continue;
                if (!known && !(isfinite(score) && decode_box(yolo, anchor_wh + 2 * anchor, raw, cell, geometry, box)))
                    return MP_NONFINITE;
                known = 1;
                add(list, c, score, box);
            }
        }
    }
    return MP_OK;
}

static void sort_entries(entry_list *list, int64_t first, void *scratch)
{
    const int64_t count = list->count - first;
    mp_sort_item *items = scratch, *spare = items + count;
    float *box = (float *)(spare + count), *score = box + 4 * count;
    int32_t *category = (int32_t *)(score + count);
    for (int64_t i = 0; i < count; i++) {
        items[i].key = mp_sort_key(list->category[first + i], list->score[first + i]);
        items[i].index = i;
    }
    const mp_sort_item *sorted = mp_sort(items, spare, count);
    memcpy(box, list->box + 4 * first, (size_t)count * 4 * sizeof(float));
    memcpy(score, list->score + first, (size_t)count * sizeof(float));
    memcpy(category, list->category + first, (size_t)count * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = sorted[i].index;
        list->category[first + i] = category[from];
        list->score[first + i] = score[from];
        memcpy(list->box + 4 * (first + i), box + 4 * from, 4 * sizeof(float));
    }
}

int mp_decode_yolo(const mp_yolo_head *yolo, const float *anchor_wh, const float *head, const int64_t *starts,
                   const int32_t *cells, int32_t images, const float *geometry, float threshold, int64_t capacity,
                   void *scratch, int64_t *needed, int64_t *offsets, int32_t *category, float *score, float *box)
{
    if (images < 0 || capacity < 0 || yolo->grid_h <= 0 || yolo->grid_w <= 0 || yolo->anchors <= 0 ||
        yolo->classes <= 0 || !(threshold >= 0.0f) || !(yolo->net_w > 0.0f) || !(yolo->net_h > 0.0f))
        return MP_BAD_ARGUMENT;
    const int64_t size = (int64_t)yolo->anchors * (5 + yolo->classes), all = (int64_t)yolo->grid_h * yolo->grid_w;
    entry_list list = {category, score, box, 0, capacity};
    offsets[0] = 0;
    for (int32_t i = 0; i < images; i++) {
        const int64_t first = list.count, row = cells ? starts[i] : i * all, rows = cells ? starts[i + 1] - row : all;
        const int status = decode_image(yolo, anchor_wh, head + row * size, cells ? cells + row : 0, rows,
                                        geometry + 4 * (int64_t)i, threshold, &list);
        if (status != MP_OK) {
            *needed = i;
            return status;
        }
        offsets[i + 1] = list.count;
        if (list.count <= capacity) sort_entries(&list, first, scratch);
    }
    *needed = list.count;
    return MP_OK;
}

void mp_exp_array(int64_t count, const float *x, float *out)
{
    for (int64_t i = 0; i < count; i++) out[i] = mp_expf(x[i]);
}

void mp_logistic_array(int64_t count, const float *x, float *out)
{
    for (int64_t i = 0; i < count; i++) out[i] = mp_logisticf(x[i]);
}
