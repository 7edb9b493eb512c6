/* SPDX-License-Identifier: MIT */
/* Drivers of what works element by element on one or two tensors (kernels/combine.h). */
#include "half.h"
#include "table.h"
#include "team.h"

enum { PIECE = 1 << 14 };

typedef struct {
    const mp_table *table;
    const char *a, *b;
    char *out;
    int type, out_type, activation;
    float scale, shift;
    size_t count;
    const float *a_weight, *b_weight;
    int h, w, c, b_h, b_w, b_c, kind;
} work;

static int fits(const mp_table *table, const void *a, const void *out, int type, int out_type, int activation, int last,
                int threads)
{
    return table && a && out && mp_is_real(type) && mp_is_real(out_type) && activation >= 0 && activation <= last &&
           threads >= 1;
}

static size_t piece_at(const work *o, int64_t item, size_t *count)
{
    const size_t at = (size_t)item * PIECE;
    *count = o->count - at < PIECE ? o->count - at : PIECE;
    return at;
}
static int64_t pieces(size_t count) { return (int64_t)((count + PIECE - 1) / PIECE); }

static void map_item(const void *context, int64_t item, int member)
{
    const work *o = context;
    size_t count;
    const size_t at = piece_at(o, item, &count);
    (void)member;
    o->table->map(o->a + at * mp_type_bytes(o->type), o->out + at * mp_type_bytes(o->out_type), o->type, o->out_type,
                  o->activation, o->scale, o->shift, count);
}

int mp_map(const mp_table *table, const void *x, int type, void *out, int out_type, int activation, float scale,
           float shift, size_t count, int threads)
{
    if (!fits(table, x, out, type, out_type, activation, MP_HARD_SWISH, threads)) return MP_BAD_ARGUMENT;
    const work o = {.table = table,
                    .a = x,
                    .out = out,
                    .type = type,
                    .out_type = out_type,
                    .activation = activation,
                    .scale = scale,
                    .shift = shift,
                    .count = count};
    mp_share(mp_team_size(threads, count), pieces(count), map_item, &o);
    return MP_OK;
}

/* One row of the result. */
static void combine_item(const void *context, int64_t item, int member)
{
    const work *o = context;
    (void)member;
    /* A larger b is read at every `skip`th pixel, a smaller one stands at every `spread`th. */
    const int skip = o->b_w > o->w ? o->b_w / o->w : 1, spread = o->w > o->b_w ? o->w / o->b_w : 1;
    const int wide = o->b_w < o->w ? o->b_w : o->w, high = o->b_h < o->h ? o->b_h : o->h;
    const int y = (int)(item % o->h), shared = o->b_c < o->c ? o->b_c : o->c;
    const size_t bytes = mp_type_bytes(o->type), out_bytes = mp_type_bytes(o->out_type);
    const char *a = o->a + (size_t)item * o->w * o->c * bytes;
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
    const work o = {.table = table,
                    .a = a,
                    .b = b,
                    .out = out,
                    .type = type,
                    .out_type = out_type,
                    .activation = activation,
                    .a_weight = a_weight,
                    .b_weight = b_weight,
                    .h = h,
                    .w = w,
                    .c = c,
                    .b_h = b_h,
                    .b_w = b_w,
                    .b_c = b_c};
    mp_share(mp_team_size(threads, images * h * w * c), (int64_t)images * h, combine_item, &o);
    return MP_OK;
}

/* A piece of the whole, or one pixel. */
static void multiply_item(const void *context, int64_t item, int member)
{
    const work *o = context;
    const size_t bytes = mp_type_bytes(o->type), out_bytes = mp_type_bytes(o->out_type);
    size_t count;
    (void)member;
    if (o->kind == MP_SAME) {
        const size_t at = piece_at(o, item, &count);
        o->table->multiply(o->a + at * bytes, o->b + at * bytes, o->out + at * out_bytes, o->type, o->out_type,
                           o->activation, count);
        return;
    }
    /* A row of `count` pixels. */
    const size_t channels = (size_t)o->c, first = (size_t)item * o->w, image = first / o->count;
    const size_t end = first + o->w;
    for (size_t p = first; p < end; p++) {
        const char *a = o->a + p * channels * bytes;
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
    const work o = {.table = table,
                    .a = a,
                    .b = b,
                    .out = out,
                    .type = type,
                    .out_type = out_type,
                    .activation = activation,
                    .count = kind == MP_SAME ? all : pixels,
                    .w = w,
                    .c = c,
                    .kind = kind};
    mp_share(mp_team_size(threads, all), kind == MP_SAME ? pieces(all) : (int64_t)images * h, multiply_item, &o);
    return MP_OK;
}
