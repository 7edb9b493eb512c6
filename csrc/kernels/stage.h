/* SPDX-License-Identifier: MIT */
/* Staging: source elements -> what tiles multiply. */
static void stage_f32(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    memcpy(staged, source, count * sizeof(float));
}

/* A narrow real type as float. */
#define STAGE_WIDENED(NAME, TYPE)                                                                                      \
    static void NAME(void *staged, const void *source, size_t count, int zero_point)                                   \
    {                                                                                                                  \
        (void)zero_point;                                                                                              \
        cast_from(TYPE, source, staged, MP_TYPE_F32, count);                                                           \
    }
STAGE_WIDENED(stage_f16, MP_TYPE_F16)
STAGE_WIDENED(stage_bf16, MP_TYPE_BF16)

/* q - zero_point as int16: in [-255, 255]. */
static void stage_s16(void *staged, const void *source, size_t count, int zero_point)
{
    int16_t *to = staged;
    const int8_t *from = source;
    const int16_t zero = (int16_t)zero_point;
    for (size_t i = 0; i < count; i++) to[i] = (int16_t)(from[i] - zero);
}

/* int16 as it is, its zero point 0. */
static void stage_i16(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    memcpy(staged, source, count * sizeof(int16_t));
}

/* q + 128 as an unsigned byte: the sign bit flipped. */
static inline void stage_u8(void *staged, const void *source, size_t count, int zero_point)
{
    (void)zero_point;
    uint8_t *to = staged;
    const uint8_t *from = source;
    for (size_t i = 0; i < count; i++) to[i] = from[i] ^ 0x80;
}
