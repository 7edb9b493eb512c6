/* SPDX-License-Identifier: MIT */
/* Packed weights: a header, the sums of each packed channel's weights, the weights in the order in which tiles read them. Internal. */
#ifndef MP_CONV_PACK_H
#define MP_CONV_PACK_H
#include "plan.h"

/* Starts every packed buffer, so that a mismatch of table, layout, shape or precision is noticed instead of computed.
 * No address stands in it: a packed buffer may be kept in a file and mapped by another process. */
typedef struct {
    uint64_t magic;
    char table[16]; /* its name, the rest 0 */
    uint64_t bytes; /* of the whole buffer */
    mp_conv_shape shape;
    int32_t precision, winograd;
    int32_t version, nr, kstep,
        weight_type; /* the layout: MP_PACK_VERSION, of narrow weights MP_NARROW_VERSION, and what the tiles say */
    int32_t grouped;
    int32_t interleave; /* interleaved pixels but the first */
    mp_edges empty;
} mp_packed_header;
#define MP_PACKED_MAGIC 0x6d706e657470616bull
enum { MP_HEADER_BYTES = 128 };
_Static_assert(sizeof(mp_packed_header) <= MP_HEADER_BYTES, "sums follow the header");

static inline const int32_t *mp_packed_sums(const void *packed)
{
    return (const int32_t *)((const char *)packed + MP_HEADER_BYTES);
}
static inline const char *mp_packed_weights(const mp_conv_plan *plan, const void *packed)
{
    return (const char *)packed + MP_HEADER_BYTES + mp_align((size_t)plan->packed_channels * sizeof(int32_t));
}
size_t mp_conv_packed_bytes(const mp_conv_plan *plan);
/* Everything that a buffer packed for this plan and table begins with. */
void mp_packed_header_of(const mp_conv_plan *plan, const mp_table *table, mp_packed_header *header);
/* Whether all weights are codes of the precision, or multiples of some. */
int mp_conv_packable(const mp_conv_plan *plan, const int8_t *weights);
void mp_conv_pack(const mp_conv_plan *plan, const mp_table *table, const void *weights, void *packed);
#endif
