/* SPDX-License-Identifier: MIT */
/* Threads that share the items of one call. Internal. */
#ifndef MP_TEAM_H
#define MP_TEAM_H
#include <stddef.h>
#include <stdint.h>

/* item: which one. member: who does it, in [0, threads); nobody else has that number during the call. */
typedef void mp_work(const void *context, int64_t item, int member);

/* Does all items in [0, items), in any order, by the caller and up to threads - 1 helpers, and returns when all are done.
 * Any number of threads may call at once. Nothing is reported: what can fail leaves that in context's memory. */
void mp_share(int threads, int64_t items, mp_work *work, const void *context);

/* How far on the item is that the thread of `item` most likely takes next. Threads take items in order; two begin at both ends, so that
 * each has the same part of the image from layer to layer, which then lies in its own cache: to fetch a line that the other
 * one wrote takes several times as long as from the third level. */
static inline int mp_share_step(int threads, int64_t item, int64_t items)
{
    return threads != 2 ? threads : 2 * item < items ? 1 : -1;
}

/* Elements that a thread takes at a time, where items are no rows or images: a quarter of the first cache level and more, and a
 * multiple of every vector width. */
enum { MP_PIECE = 1 << 14 };
static inline size_t mp_pieces(size_t count) { return (count + MP_PIECE - 1) / MP_PIECE; }
static inline size_t mp_piece_size(size_t count, size_t piece)
{
    const size_t left = count - piece * MP_PIECE;
    return left < MP_PIECE ? left : MP_PIECE;
}

/* Below this many elements starting threads costs more than they save. */
#ifndef MP_WORTH_THREADS
#define MP_WORTH_THREADS (1 << 16)
#endif
static inline int mp_team_size(int threads, size_t elements) { return elements >= MP_WORTH_THREADS ? threads : 1; }
#endif
