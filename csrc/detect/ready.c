/* SPDX-License-Identifier: MIT */
#include "../mp_math.h"
#include "../mpnet.h"
#include "mp_detect.h"

static void gaussian_box(const mp_other_head *h, const float *anchor, const float *raw, float *out)
{
    const float shift = 0.5f * (h->scale_x_y - 1.0f);
    out[0] = mp_logisticf(raw[0]) * h->scale_x_y - shift;
    out[1] = mp_logisticf(raw[2]) * h->scale_x_y - shift;
    out[2] = mp_expf(raw[4]);
    out[3] = mp_expf(raw[6]);
    if (h->point == MP_CENTER) return;
    /* In cells: half of the box lies between its corner and its centre. */
    const float side = h->point == MP_LEFT_TOP ? 0.5f : -0.5f;
    out[0] += side * (out[2] * anchor[0] / h->net_w * (float)h->grid_w);
    out[1] += side * (out[3] * anchor[1] / h->net_h * (float)h->grid_h);
}

void mp_softmax(const float *x, int32_t count, float *out)
{
    float top = x[0];
    for (int32_t i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    double sum = 0.0;
    for (int32_t i = 0; i < count; i++) sum += mp_expf(x[i] - top);
    for (int32_t i = 0; i < count; i++) out[i] = (float)(mp_expf(x[i] - top) / sum);
}

/* Probabilities of nodes in `node`, then of classes in `out`. Returns whether objectness still has to scale them. */
static int tree_classes(const mp_other_head *h, const float *raw, float *node, float *out)
{
    for (int32_t g = 0; g < h->groups; g++)
        mp_softmax(raw + h->starts[g], h->starts[g + 1] - h->starts[g], node + h->starts[g]);
    for (int32_t i = 0; i < h->classes; i++)
        if (h->parents[i] >= 0) node[i] = node[i] * node[h->parents[i]];
    if (h->map) {
        for (int32_t i = 0; i < h->out_classes; i++) out[i] = node[h->map[i]];
        return 1;
    }
    int found = 0;
    for (int32_t i = h->classes - 1; i >= 0; i--) {
        out[i] = !found && node[i] > 0.5f ? node[i] : 0.0f;
        found |= node[i] > 0.5f;
    }
    return 0;
}

int mp_ready_head(const mp_other_head *h, const float *anchor_wh, const float *head, int64_t cells, float *node,
                  float *out)
{
    if (cells < 0 || h->anchors < 1 || h->classes < 1 || h->out_classes < 1 || h->entries < 5 || h->grid_w < 1 ||
        h->grid_h < 1 || (h->classes_by == MP_BY_TREE && (!node || !h->starts || !h->parents)))
        return MP_BAD_ARGUMENT;
    const int32_t at = h->gaussian ? 8 : 4, in = h->entries + h->classes, wide = 5 + h->out_classes;
    for (int64_t i = 0; i < cells * h->anchors; i++) {
        const float *raw = head + i * in, *classes = raw + h->entries;
        float *to = out + i * wide;
        memset(to, 0, (size_t)wide * sizeof *to);
        float objectness = h->background ? 1.0f : mp_logisticf(raw[at]);
        if (h->gaussian) {
            float unsure = 0.0f;
            for (int k = 1; k < 8; k += 2) unsure += mp_logisticf(raw[k]);
            if (objectness > h->threshold) objectness *= 1.0f - unsure / 4.0f;
        }
        /* A NaN goes on, to be found in its box. */
        if (objectness <= h->threshold) continue;
        if (h->gaussian) {
            gaussian_box(h, anchor_wh + 2 * (i % h->anchors), raw, to);
        } else {
            to[0] = mp_logisticf(raw[0]);
            to[1] = mp_logisticf(raw[1]);
            to[2] = mp_expf(raw[2]);
            to[3] = mp_expf(raw[3]);
        }
        to[4] = objectness;
        if (h->classes_by == MP_BY_TREE) {
            if (!tree_classes(h, classes, node, to + 5)) to[4] = 1.0f;
        } else if (h->classes_by == MP_BY_SOFTMAX && h->background) {
            /* The background is the first of what shares the probability. */
            double sum = 0.0;
            float top = raw[at];
            for (int32_t k = 0; k < h->classes; k++) top = classes[k] > top ? classes[k] : top;
            for (int32_t k = -1; k < h->classes; k++) sum += mp_expf(classes[k] - top);
            for (int32_t k = 0; k < h->classes; k++) to[5 + k] = (float)(mp_expf(classes[k] - top) / sum);
        } else if (h->classes_by == MP_BY_SOFTMAX) {
            mp_softmax(classes, h->classes, to + 5);
        } else {
            for (int32_t k = 0; k < h->classes; k++)
                to[5 + k] = h->classes_by == MP_BY_LOGISTIC ? mp_logisticf(classes[k]) : classes[k];
        }
    }
    return MP_OK;
}
