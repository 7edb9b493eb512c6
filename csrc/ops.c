/* SPDX-License-Identifier: MIT */
/* Drivers of all operations that are not convolutions: cut the work over threads, call leaf kernels. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include "half.h"
#include "table.h"
#include "team.h"

/* What the items of one call read; each operation uses its own part. */
typedef struct {
    const mp_table *table;
    const char *x, *b;
    char *out;
    int type, out_type, activation, rounding, low, high, kind;
    size_t count, pixel; /* elements per image; bytes of a pixel */
    const float *scale, *offset;
    const int32_t *zero_point;
    float multiplier, shift;
    const float *a_weight, *b_weight;
    int h, w, c, out_h, out_w, b_h, b_w, b_c, size, stride, stride_y, padding, factor;
    size_t out_pixel;
} op;

/* The part that all have; b may be NULL. */
static op op_of(const mp_table *table, const void *x, const void *b, void *out, int type, int out_type)
{
    return (op){.table = table, .x = x, .b = b, .out = out, .type = type, .out_type = out_type};
}

/* Reals to reals, with an activation of 0 to last. */
static int fits(const mp_table *table, const void *x, const void *out, int type, int out_type, int activation, int last,
                int threads)
{
    return table && x && out && mp_is_real(type) && mp_is_real(out_type) && activation >= 0 && activation <= last &&
           threads >= 1;
}

typedef struct {
    size_t image, at, count;
} piece_place;
static piece_place place_of(const op *o, int64_t item)
{
    const size_t per_image = mp_pieces(o->count), piece = (size_t)item % per_image, image = (size_t)item / per_image;
    return (piece_place){image, image * o->count + piece * MP_PIECE, mp_piece_size(o->count, piece)};
}

static int share_pieces(const op *o, size_t images, mp_work *item, int threads)
{
    mp_share(mp_team_size(threads, images * o->count), (int64_t)(images * mp_pieces(o->count)), item, o);
    return MP_OK;
}

typedef struct {
    const mp_table *table;
    const char *x;
    int type;
    size_t count;
    pthread_mutex_t lock;
    float low, high;
    int bad;
} range_found;

static void range_item(const void *context, int64_t piece, int member)
{
    range_found *found = (range_found *)context;
    float minimum[MP_MAX_LANES], maximum[MP_MAX_LANES], odd[MP_MAX_LANES];
    (void)member;
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        minimum[lane] = INFINITY;
        maximum[lane] = -INFINITY;
        odd[lane] = 0.0f;
    }
    found->table->range(found->x + (size_t)piece * MP_PIECE * mp_type_bytes(found->type), found->type,
                        mp_piece_size(found->count, (size_t)piece), minimum, maximum, odd);
    pthread_mutex_lock(&found->lock);
    for (int lane = 0; lane < MP_MAX_LANES; lane++) {
        found->low = minimum[lane] < found->low ? minimum[lane] : found->low;
        found->high = maximum[lane] > found->high ? maximum[lane] : found->high;
        found->bad |= odd[lane] != 0.0f; /* NaN compares unequal */
    }
    pthread_mutex_unlock(&found->lock);
}

int mp_value_range(const mp_table *table, const void *x, int type, size_t images, size_t count, float *ranges,
                   int threads)
{
    if (!table || !x || !ranges || !mp_is_real(type) || threads < 1 || !count) return MP_BAD_ARGUMENT;
    int bad = 0;
    for (size_t image = 0; image < images; image++) {
        range_found found = {table,
                             (const char *)x + image * count * mp_type_bytes(type),
                             type,
                             count,
                             PTHREAD_MUTEX_INITIALIZER,
                             INFINITY,
                             -INFINITY,
                             0};
        mp_share(mp_team_size(threads, count), (int64_t)mp_pieces(count), range_item, &found);
        ranges[2 * image] = found.low + 0.0f; /* -0 and 0 compare equal: leave one of them */
        ranges[2 * image + 1] = found.high + 0.0f;
        bad |= found.bad;
    }
    return bad ? MP_NONFINITE : MP_OK;
}

static void quantize_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const piece_place p = place_of(o, item);
    o->table->quantize(o->x + p.at * mp_type_bytes(o->type), o->type, o->out + p.at * mp_type_bytes(o->out_type),
                       o->out_type, p.count, o->scale[p.image], o->zero_point[p.image], o->rounding, o->low, o->high);
}

int mp_quantize(const mp_table *table, const void *x, int type, void *out, int out_type, size_t images, size_t count,
                const float *inv_scale, const int32_t *zero_point, int rounding, int low, int high, int threads)
{
    if (!table || !x || !out || !inv_scale || !zero_point || !mp_is_real(type) || threads < 1 || rounding < 0 ||
        rounding > MP_TRUNCATE || !mp_are_its_codes(out_type, low, high))
        return MP_BAD_ARGUMENT;
    op o = op_of(table, x, NULL, out, type, out_type);
    o.count = count, o.scale = inv_scale, o.zero_point = zero_point;
    o.rounding = rounding, o.low = low, o.high = high;
    return share_pieces(&o, images, quantize_item, threads);
}

static void dequantize_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const piece_place p = place_of(o, item);
    o->table->dequantize(o->x + p.at * mp_type_bytes(o->type), o->type, o->out + p.at * mp_type_bytes(o->out_type),
                         o->out_type, p.count, o->scale[p.image], o->zero_point[p.image], o->offset[p.image]);
}

int mp_dequantize(const mp_table *table, const void *x, int type, void *out, int out_type, size_t images, size_t count,
                  const float *scale, const int32_t *zero_point, const float *offset, int threads)
{
    if (!table || !x || !out || !scale || !zero_point || !offset || !mp_is_type(type) || mp_is_real(type) ||
        !mp_is_real(out_type) || threads < 1)
        return MP_BAD_ARGUMENT;
    op o = op_of(table, x, NULL, out, type, out_type);
    o.count = count, o.scale = scale, o.zero_point = zero_point, o.offset = offset;
    return share_pieces(&o, images, dequantize_item, threads);
}

static void cast_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const piece_place p = place_of(o, item);
    o->table->cast(o->x + p.at * mp_type_bytes(o->type), o->type, o->out + p.at * mp_type_bytes(o->out_type),
                   o->out_type, p.count);
}

int mp_cast(const mp_table *table, const void *x, int type, void *out, int out_type, size_t count, int threads)
{
    if (!table || !x || !out || !mp_is_real(type) || !mp_is_real(out_type) || threads < 1) return MP_BAD_ARGUMENT;
    op o = op_of(table, x, NULL, out, type, out_type);
    o.count = count;
    return share_pieces(&o, 1, cast_item, threads);
}

static void add_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const piece_place p = place_of(o, item);
    o->table->add(o->x + p.at * mp_type_bytes(o->type), o->b + p.at * mp_type_bytes(o->type),
                  o->out + p.at * mp_type_bytes(o->out_type), o->type, o->out_type, o->activation, p.count);
}

int mp_add(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
           size_t count, int threads)
{
    if (!fits(table, a, out, type, out_type, activation, MP_SWISH, threads) || !b) return MP_BAD_ARGUMENT;
    op o = op_of(table, a, b, out, type, out_type);
    o.activation = activation, o.count = count;
    return share_pieces(&o, 1, add_item, threads);
}

static void map_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    const piece_place p = place_of(o, item);
    (void)member;
    o->table->map(o->x + p.at * mp_type_bytes(o->type), o->out + p.at * mp_type_bytes(o->out_type), o->type,
                  o->out_type, o->activation, o->multiplier, o->shift, p.count);
}

int mp_map(const mp_table *table, const void *x, int type, void *out, int out_type, int activation, float scale,
           float shift, size_t count, int threads)
{
    if (!fits(table, x, out, type, out_type, activation, MP_LAST_ACTIVATION, threads)) return MP_BAD_ARGUMENT;
    op o = op_of(table, x, NULL, out, type, out_type);
    o.activation = activation, o.multiplier = scale, o.shift = shift, o.count = count;
    return share_pieces(&o, 1, map_item, threads);
}

/* One row of the result. */
static void combine_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    /* A larger b is read at every `skip`th pixel, a smaller one stands at every `spread`th. */
    const int skip = o->b_w > o->w ? o->b_w / o->w : 1, spread = o->w > o->b_w ? o->w / o->b_w : 1;
    const int wide = o->b_w < o->w ? o->b_w : o->w, high = o->b_h < o->h ? o->b_h : o->h;
    const int y = (int)(item % o->h), shared = o->b_c < o->c ? o->b_c : o->c;
    const size_t bytes = mp_type_bytes(o->type), out_bytes = mp_type_bytes(o->out_type);
    const char *a = o->x + (size_t)item * o->w * o->c * bytes;
    const char *b = o->b + (size_t)(item / o->h) * o->b_h * o->b_w * o->b_c * bytes;
    char *out = o->out + (size_t)item * o->w * o->c * out_bytes;
    const int row = y % spread == 0 && y / spread < high && (y / spread) * skip < o->b_h;
    for (int x = 0; x < o->w; x++, a += o->c * bytes, out += o->c * out_bytes) {
        if (!row || x % spread || x / spread >= wide) {
            o->table->combine(a, 0, 0, 0, out, o->type, o->out_type, o->activation, (size_t)o->c);
            continue;
        }
        const char *from = b + ((size_t)(y / spread) * skip * o->b_w + (size_t)(x / spread) * skip) * o->b_c * bytes;
        o->table->combine(a, from, o->a_weight, o->b_weight, out, o->type, o->out_type, o->activation, (size_t)shared);
        if (shared < o->c)
            o->table->combine(a + shared * bytes, 0, o->a_weight + shared, 0, out + shared * out_bytes, o->type,
                              o->out_type, o->activation, (size_t)(o->c - shared));
    }
}

int mp_combine(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
               const float *a_weight, const float *b_weight, size_t images, int h, int w, int c, int b_h, int b_w,
               int b_c, int threads)
{
    if (!fits(table, a, out, type, out_type, activation, MP_SWISH, threads) || !b || !a_weight || !b_weight)
        return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || b_h < 1 || b_w < 1 || b_c < 1) return MP_BAD_SHAPE;
    op o = op_of(table, a, b, out, type, out_type);
    o.activation = activation, o.a_weight = a_weight, o.b_weight = b_weight;
    o.h = h, o.w = w, o.c = c, o.b_h = b_h, o.b_w = b_w, o.b_c = b_c;
    mp_share(mp_team_size(threads, images * h * w * c), (int64_t)images * h, combine_item, &o);
    return MP_OK;
}

/* A piece of the whole, or one pixel. */
static void multiply_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    const size_t bytes = mp_type_bytes(o->type), out_bytes = mp_type_bytes(o->out_type);
    (void)member;
    if (o->kind == MP_SAME) {
        const piece_place p = place_of(o, item);
        o->table->multiply(o->x + p.at * bytes, o->b + p.at * bytes, o->out + p.at * out_bytes, o->type, o->out_type,
                           o->activation, p.count);
        return;
    }
    /* A row of `count` pixels. */
    const size_t channels = (size_t)o->c, first = (size_t)item * o->w, image = first / o->count;
    const size_t end = first + o->w;
    for (size_t p = first; p < end; p++) {
        const char *a = o->x + p * channels * bytes;
        char *out = o->out + p * channels * out_bytes;
        if (o->kind == MP_PER_CHANNEL)
            o->table->multiply(a, o->b + image * channels * bytes, out, o->type, o->out_type, o->activation, channels);
        else
            o->table->map(a, out, o->type, o->out_type, o->activation, mp_real_at(o->b, p, o->type), 0.0f, channels);
    }
}

int mp_multiply(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
                int kind, size_t images, int h, int w, int c, int threads)
{
    if (!fits(table, a, out, type, out_type, activation, MP_SWISH, threads) || !b || kind < MP_SAME ||
        kind > MP_PER_PIXEL)
        return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1) return MP_BAD_SHAPE;
    const size_t pixels = (size_t)h * w, all = images * pixels * c;
    op o = op_of(table, a, b, out, type, out_type);
    o.activation = activation, o.kind = kind, o.count = kind == MP_SAME ? all : pixels, o.w = w, o.c = c;
    if (kind == MP_SAME) return share_pieces(&o, 1, multiply_item, threads);
    mp_share(mp_team_size(threads, all), (int64_t)images * h, multiply_item, &o);
    return MP_OK;
}

enum { MAX_WINDOW = 256 };

static void maxpool_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const char *image = o->x + (size_t)(item / o->out_h) * o->h * o->w * o->pixel;
    const int offset = o->padding / 2, top = (int)(item % o->out_h) * o->stride - offset;
    const int y0 = top < 0 ? 0 : top, y1 = top + o->size < o->h ? top + o->size : o->h;
    const char *rows[MAX_WINDOW];
    for (int y = y0; y < y1; y++) rows[y - y0] = image + (size_t)y * o->w * o->pixel;
    o->table->maxpool(rows, y1 - y0, o->w, o->c, o->type, o->size, o->stride, offset, o->out_w,
                      o->out + (size_t)item * o->out_w * o->pixel, (size_t)o->c);
}

int mp_maxpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c, int out_h,
               int out_w, int size, int stride, int padding, int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || size < 1 || stride < 1 || padding < 0 || h > 1 << 24 || w > 1 << 24 ||
        size > 1 << 24 || stride > 1 << 24 || padding > 1 << 24 || out_h != (h + padding - size) / stride + 1 ||
        out_w != (w + padding - size) / stride + 1 || out_h < 1 || out_w < 1)
        return MP_BAD_SHAPE;
    if (size > MAX_WINDOW) return MP_UNSUPPORTED;
    op o = op_of(table, x, NULL, out, type, type);
    o.pixel = (size_t)c * mp_type_bytes(type);
    o.h = h, o.w = w, o.c = c, o.out_h = out_h, o.out_w = out_w;
    o.size = size, o.stride = stride, o.padding = padding;
    mp_share(mp_team_size(threads, images * out_h * out_w * c), (int64_t)images * out_h, maxpool_item, &o);
    return MP_OK;
}

int mp_avgpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
               int threads)
{
    if (!table || !x || !out || !mp_is_real(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1) return MP_BAD_SHAPE;
    const size_t pixels = (size_t)h * w, bytes = mp_type_bytes(type);
    (void)threads; /* the order of the sum is fixed, and the work is small */
    for (size_t image = 0; image < images; image++)
        table->mean((const char *)x + image * pixels * c * bytes, (char *)out + image * c * bytes, type, pixels,
                    (size_t)c);
    return MP_OK;
}

static void local_mean_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const size_t row = o->w * o->pixel;
    const int offset = o->padding / 2, top = (int)(item % o->out_h) * o->stride_y - offset;
    const int y0 = top < 0 ? 0 : top, y1 = top + o->size < o->h ? top + o->size : o->h;
    o->table->local_mean(o->x + ((size_t)(item / o->out_h) * o->h + y0) * row, row, y1 - y0, o->w, o->c, o->type,
                         o->size, o->stride, offset, o->out_w, o->out + (size_t)item * o->out_w * o->pixel);
}

/* Whether every window has a value of the `length` there are; all sizes from 1 to 2^24. */
static int windows_hold_some(int length, int windows, int size, int stride, int before)
{
    return size > before && (int64_t)(windows - 1) * stride - before < length;
}

int mp_local_avgpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
                     int out_h, int out_w, int size, int stride_x, int stride_y, int padding, int threads)
{
    if (!table || !x || !out || !mp_is_real(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || out_h < 1 || out_w < 1 || size < 1 || stride_x < 1 || stride_y < 1 || padding < 0 ||
        h > 1 << 24 || w > 1 << 24 || size > 1 << 24 || !windows_hold_some(h, out_h, size, stride_y, padding / 2) ||
        !windows_hold_some(w, out_w, size, stride_x, padding / 2))
        return MP_BAD_SHAPE;
    op o = op_of(table, x, NULL, out, type, type);
    o.pixel = (size_t)c * mp_type_bytes(type);
    o.h = h, o.w = w, o.c = c, o.out_h = out_h, o.out_w = out_w;
    o.size = size, o.stride = stride_x, o.stride_y = stride_y, o.padding = padding;
    mp_share(mp_team_size(threads, images * out_h * out_w * c), (int64_t)images * out_h, local_mean_item, &o);
    return MP_OK;
}

static void upsample_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const size_t out_row = (size_t)o->w * o->factor * o->pixel;
    const char *from = o->x + (size_t)item * o->w * o->pixel;
    char *to = o->out + (size_t)item * o->factor * out_row, *at = to;
    for (int ix = 0; ix < o->w; ix++)
        for (int f = 0; f < o->factor; f++, at += o->pixel) memcpy(at, from + ix * o->pixel, o->pixel);
    for (int f = 1; f < o->factor; f++) memcpy(to + f * out_row, to, out_row);
}

int mp_upsample(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c,
                int factor, int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || factor < 1) return MP_BAD_SHAPE;
    const op o = {.x = x, .out = out, .pixel = (size_t)c * mp_type_bytes(type), .w = w, .factor = factor};
    mp_share(mp_team_size(threads, images * h * w * c * factor * factor), (int64_t)images * h, upsample_item, &o);
    return MP_OK;
}

enum { COPIED_PIXELS = 256 }; /* per item */

/* A call for a few bytes takes longer than copying them. */
static void copy_pixels(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes, size_t count)
{
    enum { UNIT = 16, FEW = 256 };
    for (size_t p = 0; p < count; p++, to += to_step, from += from_step) {
        if (bytes % UNIT || bytes > FEW) {
            memcpy(to, from, bytes);
            continue;
        }
        for (size_t at = 0; at < bytes; at += UNIT) memcpy(to + at, from + at, UNIT);
    }
}

static void copy_channels_item(const void *context, int64_t item, int member)
{
    const op *o = context;
    (void)member;
    const size_t first = (size_t)item * COPIED_PIXELS, left = o->count - first;
    copy_pixels(o->out + first * o->out_pixel, o->out_pixel, o->x + first * o->pixel, o->pixel,
                o->c * mp_type_bytes(o->type), left < COPIED_PIXELS ? left : COPIED_PIXELS);
}

int mp_copy_channels(const mp_table *table, const void *x, void *out, int type, size_t pixels, int in_c, int from,
                     int out_c, int to, int c, int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (c < 1 || in_c < 1 || out_c < 1 || from < 0 || to < 0 || c > in_c - from || c > out_c - to) return MP_BAD_SHAPE;
    const size_t bytes = mp_type_bytes(type);
    const op o = {.x = (const char *)x + from * bytes,
                  .out = (char *)out + to * bytes,
                  .pixel = in_c * bytes,
                  .out_pixel = out_c * bytes,
                  .type = type,
                  .c = c,
                  .count = pixels};
    mp_share(mp_team_size(threads, pixels * c), (int64_t)((pixels + COPIED_PIXELS - 1) / COPIED_PIXELS),
             copy_channels_item, &o);
    return MP_OK;
}
