/* SPDX-License-Identifier: MIT */
/* Bilinear with aligned corners, each axis by itself, the horizontal one first, every operation one float32 rounding:
 * src = i * ((in - 1) / (out - 1)), i0 = (int)src, d = src - i0, value = (1 - d) * p[i0] + d * p[i0 + 1]. */
#include "image/mp_resize.h"
#include <math.h>
#include "mpnet.h"

enum { CHANNELS = 3 };
static const float FILL = 0.5f;

/* To the nearest whole number, halves to even; x from -1 to 2^30. */
static int32_t nearest(double x)
{
    const double below = floor(x), rest = x - below;
    return (int32_t)below + (rest > 0.5 || (rest == 0.5 && fmod(below, 2) != 0));
}

static int32_t side(int32_t image, double ratio, int32_t net)
{
    const int32_t rounded = nearest(image * ratio);
    return rounded < 1 ? 1 : rounded > net ? net : rounded;
}

/* Where Ultralytics' programs put the content, and the scale by which they bring boxes back. */
static int32_t margin(int32_t net, int32_t content) { return nearest((net - content) / 2.0 - 0.1); }

static int fit_opencv(int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h, mp_geometry *geometry)
{
    const double across = (double)net_w / image_w, down = (double)net_h / image_h,
                 ratio = across < down ? across : down;
    geometry->width = side(image_w, ratio, net_w);
    geometry->height = side(image_h, ratio, net_h);
    geometry->relative[0] = (float)((double)margin(net_w, geometry->width) / net_w);
    geometry->relative[1] = (float)((double)margin(net_h, geometry->height) / net_h);
    geometry->relative[2] = (float)(image_w * ratio / net_w);
    geometry->relative[3] = (float)(image_h * ratio / net_h);
    return MP_OK;
}

int mp_fit(int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h, int mode, mp_geometry *geometry)
{
    if (!geometry || image_w < 1 || image_h < 1 || image_w > MP_MAX_IMAGE_SIDE || image_h > MP_MAX_IMAGE_SIDE ||
        net_w < 1 || net_h < 1 || net_w > MP_MAX_NET_SIDE || net_h > MP_MAX_NET_SIDE || mode < MP_STRETCH ||
        mode > MP_LETTERBOX_OPENCV)
        return MP_BAD_ARGUMENT;
    if (mode == MP_LETTERBOX_OPENCV) return fit_opencv(image_w, image_h, net_w, net_h, geometry);
    int64_t width = net_w, height = net_h;
    if (mode == MP_CROP && image_w < image_h)
        height = (int64_t)image_h * net_w / image_w;
    else if (mode == MP_CROP)
        width = (int64_t)image_w * net_w / image_h, height = net_w;
    else if (mode == MP_LETTERBOX && (int64_t)net_w * image_h < (int64_t)net_h * image_w) /* the width is what limits */
        height = (int64_t)image_h * net_w / image_w;
    else if (mode == MP_LETTERBOX)
        width = (int64_t)image_w * net_h / image_h;
    geometry->width = width < 1 ? 1 : (int32_t)width;
    geometry->height = height < 1 ? 1 : (int32_t)height;
    /* Half the margin, also when it is odd and the image is pasted half a pixel further left or up: Darknet's arithmetic. */
    geometry->relative[0] = (float)((net_w - geometry->width) / 2.0 / net_w);
    geometry->relative[1] = (float)((net_h - geometry->height) / 2.0 / net_h);
    geometry->relative[2] = (float)((double)geometry->width / net_w);
    geometry->relative[3] = (float)((double)geometry->height / net_h);
    return MP_OK;
}

/* Of one output position: the first source position and the second; of Darknet's resize the second one's weight and whether
 * it is the last position, of OpenCV's the shares of both, of 2048. */
typedef struct {
    int32_t first, second;
    union {
        struct {
            float weight;
            int32_t last;
        };
        int32_t shares[2];
    };
} position;

/* Positions start .. start + count - 1 of `out`; what lies outside is the nearest inside. */
static void set_positions(int32_t in, int32_t out, int32_t start, int32_t count, position *p)
{
    const float step = out > 1 ? (float)(in - 1) / (float)(out - 1) : 0.0f;
    for (int32_t k = 0; k < count; k++) {
        const int32_t i = start + k < 0 ? 0 : start + k < out ? start + k : out - 1;
        const float source = (float)i * step;
        p[k].first = (int32_t)source;
        p[k].weight = source - (float)p[k].first;
        p[k].last = i == out - 1;
        /* Rounding can only lead past the end where nothing is weighed with it. */
        if (p[k].first > in - 1) p[k].first = in - 1;
        p[k].second = p[k].first + 1 < in ? p[k].first + 1 : in - 1;
    }
}

/* The scratch: where each part lies. */
typedef struct {
    float *line[2], *unit;
    position *columns, *rows;
} parts;

static parts parts_of(void *scratch, int32_t net_w, int32_t net_h)
{
    parts p;
    p.columns = scratch;
    p.rows = p.columns + net_w;
    p.unit = (float *)(p.rows + net_h);
    p.line[0] = p.unit + 256;
    p.line[1] = p.line[0] + (int64_t)CHANNELS * net_w;
    return p;
}

int64_t mp_preprocess_scratch(int32_t image_w, int32_t net_w, int32_t net_h)
{
    (void)image_w;
    return ((int64_t)net_w + net_h) * (int64_t)sizeof(position) +
           (256 + 2 * (int64_t)CHANNELS * net_w) * (int64_t)sizeof(float);
}

/* Which of two lines is for a row of the image, whose numbers loaded_rows keeps; is_missing: it is not there yet. The line of the other
 * row that is needed now stays. */
static int line_of(int32_t loaded_rows[2], int32_t source_row, int32_t other_row, int *is_missing)
{
    *is_missing = loaded_rows[0] != source_row && loaded_rows[1] != source_row;
    if (!*is_missing) return loaded_rows[0] != source_row;
    const int at = loaded_rows[0] == other_row;
    loaded_rows[at] = source_row;
    return at;
}

/* One row of the image, as wide as the content. */
static void widen(const parts *p, const uint8_t *row, int32_t in_w, int32_t width, float *line)
{
    const float *unit = p->unit;
    for (int32_t x = 0; x < width; x++) {
        const float d = p->columns[x].weight, e = 1.0f - d;
        const uint8_t *a = row + (int64_t)CHANNELS * p->columns[x].first;
        const uint8_t *b = row + (int64_t)CHANNELS * p->columns[x].second;
        for (int c = 0; c < CHANNELS; c++) line[CHANNELS * x + c] = e * unit[a[c]] + d * unit[b[c]];
    }
    if (p->columns[width - 1].last)
        for (int c = 0; c < CHANNELS; c++)
            line[CHANNELS * (width - 1) + c] = unit[row[(int64_t)CHANNELS * (in_w - 1) + c]];
}

/* OpenCV's INTER_LINEAR of bytes: centres aligned, shares of 2048, horizontal first. at: of each output position the first source
 * position, the second, and their shares; `clamped`: shares beyond the border are given to it, as OpenCV does across only. */
static void place_opencv(int32_t in, int32_t out, int clamped, position *p)
{
    const double scale = 1.0 / ((double)out / in);
    for (int32_t i = 0; i < out; i++) {
        const float source = (float)((i + 0.5) * scale - 0.5);
        int32_t first = (int32_t)floorf(source);
        float weight = source - (float)first;
        if (clamped && (first < 0 || first >= in - 1)) weight = 0.0f;
        p[i].first = first < 0 ? 0 : first > in - 1 ? in - 1 : first;
        p[i].second = first + 1 < 0 ? 0 : first + 1 > in - 1 ? in - 1 : first + 1;
        p[i].shares[0] = nearest((1.0f - weight) * 2048.0f);
        p[i].shares[1] = nearest(weight * 2048.0f);
    }
}

static void widen_opencv(const position *columns, const uint8_t *row, int32_t width, int32_t *line)
{
    for (int32_t x = 0; x < width; x++) {
        const uint8_t *a = row + (int64_t)CHANNELS * columns[x].first, *b = row + (int64_t)CHANNELS * columns[x].second;
        const int32_t *share = columns[x].shares;
        for (int c = 0; c < CHANNELS; c++) line[CHANNELS * x + c] = a[c] * share[0] + b[c] * share[1];
    }
}

static void resize_opencv(const uint8_t *rgb, int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h,
                          const parts *p, float *out, const mp_geometry *geometry)
{
    const int32_t width = geometry->width, height = geometry->height;
    const int64_t pitch = (int64_t)CHANNELS * net_w, count = (int64_t)CHANNELS * width,
                  row = (int64_t)CHANNELS * image_w;
    for (int64_t i = 0; i < pitch * net_h; i++) out[i] = p->unit[114];
    out += margin(net_h, height) * pitch + (int64_t)margin(net_w, width) * CHANNELS;
    if (image_w == 2 * width && image_h == 2 * height) { /* then OpenCV takes means of four pixels */
        for (int32_t y = 0; y < height; y++)
            for (int64_t i = 0; i < count; i++) {
                const uint8_t *from = rgb + 2 * y * row + i / CHANNELS * 2 * CHANNELS + i % CHANNELS;
                out[y * pitch + i] = p->unit[(from[0] + from[CHANNELS] + from[row] + from[row + CHANNELS] + 2) >> 2];
            }
        return;
    }
    place_opencv(image_w, width, 1, p->columns);
    place_opencv(image_h, height, 0, p->rows);
    int32_t *lines[2] = {(int32_t *)p->line[0], (int32_t *)p->line[1]}, loaded_rows[2] = {-1, -1};
    for (int32_t y = 0; y < height; y++) {
        const int32_t source_rows[2] = {p->rows[y].first, p->rows[y].second}, *share = p->rows[y].shares, *line[2];
        for (int k = 0; k < 2; k++) {
            int is_missing;
            const int at = line_of(loaded_rows, source_rows[k], source_rows[!k], &is_missing);
            if (is_missing) widen_opencv(p->columns, rgb + row * source_rows[k], width, lines[at]);
            line[k] = lines[at];
        }
        for (int64_t i = 0; i < count; i++)
            out[y * pitch + i] =
                p->unit[((share[0] * (line[0][i] >> 4) >> 16) + (share[1] * (line[1][i] >> 4) >> 16) + 2) >> 2];
    }
}

int mp_preprocess(const uint8_t *rgb, int32_t image_w, int32_t image_h, int32_t net_w, int32_t net_h, int mode,
                  int blend_last_row, void *scratch, float *out, mp_geometry *geometry)
{
    const int status = mp_fit(image_w, image_h, net_w, net_h, mode, geometry);
    if (status != MP_OK) return status;
    if (!rgb || !scratch || !out) return MP_BAD_ARGUMENT;
    const int is_crop = mode == MP_CROP;
    const int32_t width = is_crop ? net_w : geometry->width,
                  height = is_crop ? net_h : geometry->height; /* of what is seen */
    const parts p = parts_of(scratch, net_w, net_h);
    for (int i = 0; i < 256; i++) p.unit[i] = (float)(i / 255.0);
    if (mode == MP_LETTERBOX_OPENCV) {
        resize_opencv(rgb, image_w, image_h, net_w, net_h, &p, out, geometry);
        return MP_OK;
    }
    set_positions(image_w, geometry->width, is_crop ? (geometry->width - net_w) / 2 : 0, width, p.columns);
    set_positions(image_h, geometry->height, is_crop ? (geometry->height - net_h) / 2 : 0, height, p.rows);
    const int64_t pitch = (int64_t)CHANNELS * net_w, count = (int64_t)CHANNELS * width;
    if (width < net_w || height < net_h)
        for (int64_t i = 0; i < pitch * net_h; i++) out[i] = FILL;
    out += (net_h - height) / 2 * pitch + (net_w - width) / 2 * CHANNELS;
    int32_t loaded_rows[2] = {-1, -1};
    for (int32_t y = 0; y < height; y++) {
        const int32_t source_rows[2] = {p.rows[y].first, p.rows[y].second};
        const float *line[2];
        for (int k = 0; k < 2; k++) {
            int is_missing;
            const int at = line_of(loaded_rows, source_rows[k], source_rows[!k], &is_missing);
            if (is_missing) widen(&p, rgb + (int64_t)CHANNELS * image_w * source_rows[k], image_w, width, p.line[at]);
            line[k] = p.line[at];
        }
        const float d = p.rows[y].weight, e = 1.0f - d;
        float *to = out + y * pitch;
        if (p.rows[y].last && (!blend_last_row || image_h == 1))
            for (int64_t i = 0; i < count; i++) to[i] = e * line[0][i];
        else
            for (int64_t i = 0; i < count; i++) to[i] = e * line[0][i] + d * line[1][i];
    }
    return MP_OK;
}
