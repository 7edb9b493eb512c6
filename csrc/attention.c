/* SPDX-License-Identifier: MIT */
/* Driver of attention: blocks of the queries of one head go over the threads. */
#include "table.h"
#include "team.h"

typedef struct {
    const mp_table *table;
    const float *x;
    float *out;
    size_t positions; /* that attend to each other, one area after the other */
    size_t block, blocks;
    int heads, key, value;
    float scale;
} attended;

static void attention_item(const void *context, int64_t item, int member)
{
    const attended *o = context;
    /* The blocks of a head follow each other: they read the same keys and values. */
    const size_t block = (size_t)item % o->blocks, head = (size_t)item / o->blocks % o->heads,
                 first = (size_t)item / o->blocks / o->heads * o->positions;
    const size_t query = block * o->block, left = o->positions - query;
    const size_t row = (size_t)o->heads * (2 * (size_t)o->key + o->value), out_row = (size_t)o->heads * o->value;
    const float *x = o->x + first * row, *keys = x + (o->heads + head) * o->key;
    const float *values = x + 2 * (size_t)o->heads * o->key + head * o->value;
    (void)member;
    o->table->attention(x + query * row + head * o->key, left < o->block ? left : o->block, keys, values, row,
                        o->positions, o->key, o->value, o->scale, o->out + (first + query) * out_row + head * o->value,
                        out_row);
}

int mp_attention(const mp_table *table, const float *x, float *out, size_t images, size_t pixels, int heads, int key,
                 int value, int areas, float scale, int threads)
{
    if (!table || !x || !out || threads < 1) return MP_BAD_ARGUMENT;
    if (heads < 1 || key < 1 || value < 1 || areas < 1 || pixels % (size_t)areas ||
        pixels / (size_t)areas > MP_MOST_POSITIONS)
        return MP_BAD_SHAPE;
    const size_t positions = pixels / (size_t)areas, block = 2 * (size_t)table->lanes;
    const attended o = {table, x, out, positions, block, (positions + block - 1) / block, heads, key, value, scale};
    const size_t rows = images * pixels * (size_t)heads;
    mp_share(mp_team_size(threads, rows * positions * (size_t)key), (int64_t)(images * areas * heads * o.blocks),
             attention_item, &o);
    return MP_OK;
}
