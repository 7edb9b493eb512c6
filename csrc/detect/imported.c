/* SPDX-License-Identifier: MIT */
/* Heads of the programs that networks are imported from. One formula each, with s the logistic function; x and y of a centre in
 * cells from the cell's corner, w and h relative to the network's input:
 *
 *     yolov5  x = 2 s(x) - 0.5, w = (2 s(w))^2 anchor; objectness s(o), classes s(c)
 *     yolov8  distance = mean of the bins 0 .. reg_max - 1 by softmax (of one bin: its value), in cells; objectness 1, classes s(c)
 *     rtmdet  as yolov8, from the cell's corner, where yolov8's distances begin in its middle; of one bin v, the distance is e^v,
 *             linear: v
 *     picodet as yolov8, classes sqrt(s(c) s(v)) of the last value, an alignment
 *     yolov8_obb  as yolov8, about axes that turn by a; the upright box around it. a = pi (s(v) - 1/4), linear: v, of the last value
 *     yolox   x = x, w = e^w cells; objectness s(o), classes s(c)
 *     ssd     x = 0.5 + x v0 w_a / cell, w = e^(w v2) w_a (linear: w v2 w_a); objectness 1, classes: softmax with background, or s(c)
 *
 * A side below 0 is 0. Every operation rounds to float32 in the order in which it stands here: equal bits on every CPU. */
#include "../mp_math.h"
#include "../mpnet.h"
#include "mp_detect.h"

static void logistic(const float *x, int32_t count, float *out)
{
    for (int32_t i = 0; i < count; i++) out[i] = mp_logisticf(x[i]);
}

static void yolov5(const mp_imported_head *h, const float *raw, const float relative[2], float *out)
{
    for (int k = 0; k < 2; k++) {
        const float side = 2.0f * mp_logisticf(raw[2 + k]);
        out[k] = 2.0f * mp_logisticf(raw[k]) - 0.5f;
        out[2 + k] = side * side * relative[k];
    }
    logistic(raw + 4, 1 + h->classes, out + 4);
}

/* The mean of the bins 0, 1, ... by softmax; one alone is the distance itself. */
static float distance(const float *bins, int32_t count)
{
    if (count == 1) return bins[0];
    float top = bins[0], total = 0.0f, weighted = 0.0f;
    for (int32_t i = 1; i < count; i++) top = bins[i] > top ? bins[i] : top;
    for (int32_t i = 0; i < count; i++) {
        const float share = mp_expf(bins[i] - top);
        total += share;
        weighted += (float)i * share;
    }
    return weighted / total;
}

/* point: where in its cell distances begin; exponential: one bin alone is the logarithm of the distance. */
static void distances(const mp_imported_head *h, const float *raw, const float cell[2], float point, int exponential,
                      float *out)
{
    const int32_t bins = h->how.reg_max;
    for (int k = 0; k < 2; k++) {
        const float *low = raw + k * bins, *high = raw + (2 + k) * bins;
        const float near = exponential ? mp_expf(*low) : distance(low, bins);
        const float far = exponential ? mp_expf(*high) : distance(high, bins);
        out[k] = point + (far - near) * 0.5f;
        out[2 + k] = (near + far) * cell[k];
    }
    out[4] = 1.0f;
    logistic(raw + 4 * bins, h->classes, out + 5);
}

static void yolov8(const mp_imported_head *h, const float *raw, const float cell[2], float *out)
{
    distances(h, raw, cell, 0.5f, 0, out);
}

static void picodet(const mp_imported_head *h, const float *raw, const float cell[2], float *out)
{
    const float alignment = mp_logisticf(raw[4 * h->how.reg_max + h->classes]);
    yolov8(h, raw, cell, out);
    for (int32_t i = 0; i < h->classes; i++) out[5 + i] = sqrtf(out[5 + i] * alignment);
}

static void rtmdet(const mp_imported_head *h, const float *raw, const float cell[2], float *out)
{
    distances(h, raw, cell, 0.0f, h->how.reg_max == 1 && !h->how.linear, out);
}

static void yolov8_obb(const mp_imported_head *h, const float *raw, const float cell[2], float *out)
{
    const float last = raw[4 * h->how.reg_max + h->classes];
    const float angle = h->how.linear ? last : (mp_logisticf(last) - 0.25f) * 3.14159265f;
    const float unit[2] = {1.0f, 1.0f};
    double sine, cosine;
    mp_sine_cosine(angle, &sine, &cosine);
    yolov8(h, raw, unit, out);
    const double x = out[0] - 0.5, y = out[1] - 0.5, width = fabs((double)out[2]), height = fabs((double)out[3]);
    out[0] = (float)(0.5 + (x * cosine - y * sine));
    out[1] = (float)(0.5 + (x * sine + y * cosine));
    out[2] = (float)(width * fabs(cosine) + height * fabs(sine)) * cell[0];
    out[3] = (float)(width * fabs(sine) + height * fabs(cosine)) * cell[1];
}

static void yolox(const mp_imported_head *h, const float *raw, const float cell[2], float *out)
{
    for (int k = 0; k < 2; k++) {
        out[k] = raw[k];
        out[2 + k] = mp_expf(raw[2 + k]) * cell[k];
    }
    logistic(raw + 4, 1 + h->classes, out + 4);
}

/* Shares of all classes without that of the first, the background. */
static void shares(const float *x, int32_t classes, float *out)
{
    float top = x[0];
    for (int32_t i = 1; i <= classes; i++) top = x[i] > top ? x[i] : top;
    double total = 0.0;
    for (int32_t i = 0; i <= classes; i++) total += mp_expf(x[i] - top);
    for (int32_t i = 0; i < classes; i++) out[i] = (float)(mp_expf(x[i + 1] - top) / total);
}

static void ssd(const mp_imported_head *h, const float *raw, const float *scores, const float relative[2],
                const float cell[2], float *out)
{
    const mp_decoding *how = &h->how;
    for (int k = 0; k < 2; k++) {
        const float at = raw[how->yx ? 1 - k : k] * how->variances[k];
        const float side = raw[2 + (how->yx ? 1 - k : k)] * how->variances[2 + k];
        out[k] = 0.5f + at * relative[k] / cell[k];
        out[2 + k] = (how->linear ? side : mp_expf(side)) * relative[k];
    }
    out[4] = 1.0f;
    if (how->softmax)
        shares(scores, h->classes, out + 5);
    else
        logistic(scores, h->classes, out + 5);
}

int64_t mp_imported_channels(const mp_imported_head *h)
{
    const int64_t boxes = h->boxes, classes = h->classes;
    switch (h->how.decoder) {
    case MP_YOLOV5: return boxes * (5 + classes);
    case MP_YOLOV8:
    case MP_RTMDET: return boxes == 1 ? 4 * (int64_t)h->how.reg_max + classes : -1;
    case MP_PICODET:
    case MP_YOLOV8_OBB: return boxes == 1 ? 4 * (int64_t)h->how.reg_max + classes + 1 : -1;
    case MP_YOLOX: return boxes == 1 ? 5 + classes : -1;
    case MP_SSD: return boxes * (h->how.coords + classes + h->how.softmax);
    default: return -1;
    }
}

int mp_ready_imported(const mp_imported_head *h, const float *anchor_wh, const float *head, int64_t cells, float *out)
{
    const int64_t channels = mp_imported_channels(h), wide = 5 + (int64_t)h->classes;
    const mp_decoding *how = &h->how;
    if (cells < 0 || h->boxes < 1 || h->classes < 1 || h->grid_w < 1 || h->grid_h < 1 || channels < 1 ||
        how->reg_max < 1 || how->coords < 4 || how->softmax < 0 || how->softmax > 1)
        return MP_BAD_ARGUMENT;
    const float cell[2] = {1.0f / (float)h->grid_w, 1.0f / (float)h->grid_h};
    for (int64_t i = 0; i < cells * h->boxes; i++, out += wide) {
        const int64_t box = i % h->boxes;
        const float *raw = head + i / h->boxes * channels, *anchor = anchor_wh ? anchor_wh + 2 * box : cell;
        const float relative[2] = {anchor[0] / h->net_w, anchor[1] / h->net_h};
        switch (how->decoder) {
        case MP_YOLOV5: yolov5(h, raw + box * wide, relative, out); break;
        case MP_YOLOV8: yolov8(h, raw, cell, out); break;
        case MP_YOLOV8_OBB: yolov8_obb(h, raw, cell, out); break;
        case MP_PICODET: picodet(h, raw, cell, out); break;
        case MP_RTMDET: rtmdet(h, raw, cell, out); break;
        case MP_YOLOX: yolox(h, raw, cell, out); break;
        default:
            ssd(h, raw + box * how->coords, raw + h->boxes * (int64_t)how->coords + box * (h->classes + how->softmax),
                relative, cell, out);
        }
        /* Sides that are values of the network, not their exponentials, can be below nothing. */
        for (int k = 2; k < 4; k++) out[k] = out[k] < 0.0f ? 0.0f : out[k];
    }
    return MP_OK;
}
