/* SPDX-License-Identifier: MIT */
/* Operations in plain C, compiled once without any ISA flag: sums in one order, in double where they are long. What they cost
 * is nothing beside the convolutions around them. */
#include <math.h>
#include <string.h>
#include "half.h"
#include "mp_math.h"
#include "table.h"
#include "team.h"

typedef struct {
    const void *x;
    void *out;
    int type;
    size_t in_count, out_count;
    const int32_t *index, *fill;
} gathered;

static void gather_item(const void *context, int64_t item, int member)
{
    const gathered *g = context;
    (void)member;
    const size_t per_image = mp_pieces(g->out_count), image = (size_t)item / per_image,
                 piece = (size_t)item % per_image;
    const size_t first = piece * MP_PIECE, last = first + mp_piece_size(g->out_count, piece);
#define COPY(STORAGE, FILL)                                                                                            \
    {                                                                                                                  \
        const STORAGE *x = (const STORAGE *)g->x + image * g->in_count;                                                \
        STORAGE *out = (STORAGE *)g->out + image * g->out_count;                                                       \
        for (size_t i = first; i < last; i++) out[i] = g->index[i] < 0 ? (FILL) : x[g->index[i]];                      \
    }
    switch (mp_type_bytes(g->type)) {
    case 4: COPY(float, 0.0f) break;
    case 2: COPY(int16_t, (int16_t)(g->fill && !mp_is_real(g->type) ? g->fill[image] : 0)) break;
    default: COPY(int8_t, (int8_t)(g->fill ? g->fill[image] : 0)) break;
    }
#undef COPY
}

int mp_gather(const mp_table *table, const void *x, void *out, int type, size_t images, size_t in_count,
              size_t out_count, const int32_t *index, const int32_t *fill, int threads)
{
    if (!table || !x || !out || !index || !mp_is_type(type) || threads < 1 || (!mp_is_real(type) && !fill))
        return MP_BAD_ARGUMENT;
    for (size_t i = 0; i < out_count; i++)
        if (index[i] >= 0 && (size_t)index[i] >= in_count) return MP_BAD_SHAPE;
    const gathered g = {x, out, type, in_count, out_count, index, fill};
    mp_share(mp_team_size(threads, images * out_count), (int64_t)(images * mp_pieces(out_count)), gather_item, &g);
    return MP_OK;
}

typedef struct {
    const mp_table *table;
    const void *x;
    void *out;
    int type, kind, segments;
    size_t rows, length;
    const int32_t *starts;
    float p[4];
} normalised;

static void local_response(const normalised *o, size_t at)
{
    const int size = (int)o->p[0];
    const double alpha = o->p[1];
    double norm = o->p[3];
    for (int k = 0; k < size / 2 && (size_t)k < o->length; k++) {
        const double v = mp_real_at(o->x, at + k, o->type);
        norm += alpha * (v * v);
    }
    for (int64_t k = 0; k < (int64_t)o->length; k++) {
        if (k > 0) {
            const int64_t gone = k - (size - 1) / 2 - 1, come = k + size / 2;
            if (gone >= 0) {
                const double v = mp_real_at(o->x, at + gone, o->type);
                norm -= alpha * (v * v);
            }
            if (come < (int64_t)o->length) {
                const double v = mp_real_at(o->x, at + come, o->type);
                norm += alpha * (v * v);
            }
        }
        /* Darknet's sum can fall below 0, which has no power. */
        const float factor = norm > 0.0 ? mp_expf((float)(-(double)o->p[2] * mp_log(norm))) : NAN;
        mp_put_real(o->out, at + k, o->type, mp_real_at(o->x, at + k, o->type) * factor);
    }
}

/* One segment: first its parts, then their sum. */
static void shares(const normalised *o, size_t at, size_t count)
{
    const int type = o->type, kind = o->kind;
    float top = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        const float v = mp_real_at(o->x, at + i, type);
        top = v > top ? v : top;
    }
    double sum = kind == MP_SOFTMAX || kind == MP_L2 ? 0.0 : (double)0.0001f;
#define PART(V)                                                                                                        \
    (kind == MP_SOFTMAX            ? mp_expf(((V) - top) / o->p[0])                                                    \
     : kind == MP_CHANNELS         ? ((V) > 0.0f ? (V) : 0.0f)                                                         \
     : kind == MP_CHANNELS_EXP     ? mp_expf(V)                                                                        \
     : kind == MP_CHANNELS_EXP_MAX ? mp_expf((V) - top)                                                                \
                                   : (V))
    for (size_t i = 0; i < count; i++) {
        const double part = PART(mp_real_at(o->x, at + i, type));
        sum += kind == MP_L2 ? part * part : part;
    }
    if (kind == MP_L2) sum = sqrt(sum);
    for (size_t i = 0; i < count; i++) {
        const double part = PART(mp_real_at(o->x, at + i, type));
        mp_put_real(o->out, at + i, type, (float)(part / sum));
    }
#undef PART
}

static void normalize_item(const void *context, int64_t item, int member)
{
    const normalised *o = context;
    const size_t at = (size_t)item * o->length;
    (void)member;
    if (o->kind == MP_LOCAL_RESPONSE) {
        local_response(o, at);
        return;
    }
    for (int i = 0; i < o->segments; i++)
        shares(o, at + (size_t)o->starts[i], (size_t)(o->starts[i + 1] - o->starts[i]));
}

/* Rows that a level has side by side, and some more. */
enum { LAYER_ROWS = 8 };
static void layer_item(const void *context, int64_t item, int member)
{
    const normalised *o = context;
    const size_t row = (size_t)item * LAYER_ROWS, left = o->rows - row, bytes = mp_type_bytes(o->type);
    (void)member;
    for (int s = 0; s < o->segments; s++) {
        const size_t at = (row * o->length + (size_t)o->starts[s]) * bytes;
        o->table->layer_norm((const char *)o->x + at, (char *)o->out + at, o->type,
                             left < LAYER_ROWS ? left : LAYER_ROWS, o->length,
                             (size_t)(o->starts[s + 1] - o->starts[s]), o->p[0]);
    }
}

int mp_normalize(const mp_table *table, const void *x, void *out, int type, int kind, size_t rows, size_t length,
                 const int32_t *starts, int segments, float p0, float p1, float p2, float p3, int threads)
{
    if (!table || !x || !out || !starts || !mp_is_real(type) || kind < MP_SOFTMAX || kind > MP_LAYER || segments < 1 ||
        threads < 1)
        return MP_BAD_ARGUMENT;
    if (starts[0] != 0 || (size_t)starts[segments] != length) return MP_BAD_SHAPE;
    for (int s = 0; s < segments; s++)
        if (starts[s + 1] <= starts[s]) return MP_BAD_SHAPE;
    const normalised o = {table, x, out, type, kind, segments, rows, length, starts, {p0, p1, p2, p3}};
    const int is_layer = kind == MP_LAYER;
    mp_share(mp_team_size(threads, rows * length), (int64_t)(is_layer ? (rows + LAYER_ROWS - 1) / LAYER_ROWS : rows),
             is_layer ? layer_item : normalize_item, &o);
    return MP_OK;
}

int mp_channel_max(const mp_table *table, const void *x, void *out, int type, size_t pixels, int c, int out_c,
                   int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (c < 1 || out_c < 1 || out_c > c) return MP_BAD_SHAPE;
    const size_t bytes = mp_type_bytes(type);
    for (size_t p = 0; p < pixels; p++)
        for (int g = 0; g < out_c; g++) {
            size_t best = p * c + g;
            for (int k = g + out_c; k < c; k += out_c) {
                const size_t at = p * c + k;
                const int larger = mp_is_real(type)      ? mp_real_at(x, at, type) > mp_real_at(x, best, type)
                                   : type == MP_TYPE_I16 ? ((const int16_t *)x)[at] > ((const int16_t *)x)[best]
                                                         : ((const int8_t *)x)[at] > ((const int8_t *)x)[best];
                best = larger ? at : best;
            }
            memcpy((char *)out + (p * out_c + g) * bytes, (const char *)x + best * bytes, bytes);
        }
    return MP_OK;
}

typedef struct {
    const void *x;
    void *out;
    int type;
    size_t pixels, groups, part; /* part: channels of a group */
} shuffled;

enum { SHUFFLE_PIXELS = 64 }; /* per item */

static void shuffle_item(const void *context, int64_t item, int member)
{
    const shuffled *o = context;
    (void)member;
    const size_t first = (size_t)item * SHUFFLE_PIXELS, groups = o->groups, part = o->part, c = groups * part,
                 last = first + SHUFFLE_PIXELS < o->pixels ? first + SHUFFLE_PIXELS : o->pixels;
    /* Two groups, which all ShuffleNets have, in a loop that compilers turn into vectors. */
#define MOVE(STORAGE)                                                                                                  \
    for (size_t p = first; p < last; p++) {                                                                            \
        const STORAGE *restrict x = (const STORAGE *)o->x + p * c;                                                     \
        STORAGE *restrict out = (STORAGE *)o->out + p * c;                                                             \
        if (groups == 2)                                                                                               \
            for (size_t i = 0; i < part; i++) {                                                                        \
                out[2 * i] = x[i];                                                                                     \
                out[2 * i + 1] = x[part + i];                                                                          \
            }                                                                                                          \
        else                                                                                                           \
            for (size_t g = 0; g < groups; g++)                                                                        \
                for (size_t i = 0; i < part; i++) out[i * groups + g] = x[g * part + i];                               \
    }
    switch (mp_type_bytes(o->type)) {
    case 4: MOVE(float) break;
    case 2: MOVE(int16_t) break;
    default: MOVE(int8_t) break;
    }
#undef MOVE
}

int mp_shuffle(const mp_table *table, const void *x, void *out, int type, size_t pixels, int c, int groups, int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1) return MP_BAD_ARGUMENT;
    if (c < 1 || groups < 1 || c % groups) return MP_BAD_SHAPE;
    const shuffled o = {x, out, type, pixels, (size_t)groups, (size_t)(c / groups)};
    mp_share(mp_team_size(threads, pixels * c), (int64_t)((pixels + SHUFFLE_PIXELS - 1) / SHUFFLE_PIXELS), shuffle_item,
             &o);
    return MP_OK;
}
