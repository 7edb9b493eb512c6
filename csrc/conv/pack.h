/* Packed weights: a header, the sums of each packed channel's weights, the weights in the order in which tiles read them. Internal. */
#ifndef MP_CONV_PACK_H
#define MP_CONV_PACK_H
#include "plan.h"

/* Starts every packed buffer, so that a mismatch of table, shape or precision is noticed instead of computed. */
typedef struct {
    uint64_t magic;
    const mp_table *table;
    mp_conv_shape shape;
    int32_t precision;
    int32_t winograd;
} mp_packed_header;
#define MP_PACKED_MAGIC 0x6d706e657470616bull
enum { MP_HEADER_BYTES = 128 };

static inline const int32_t *mp_packed_sums(const void *packed)
{
    return (const int32_t *)((const char *)packed + MP_HEADER_BYTES);
}
static inline const char *mp_packed_weights(const mp_conv_plan *plan, const void *packed)
{
    return (const char *)packed + MP_HEADER_BYTES + mp_align((size_t)plan->packed_channels * sizeof(int32_t));
}
size_t mp_conv_packed_bytes(const mp_conv_plan *plan);
void mp_conv_pack(const mp_conv_plan *plan, const mp_table *table, const void *weights, void *packed);
#endif
