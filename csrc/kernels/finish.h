/* SPDX-License-Identifier: MIT */
/* The output stage of a full tile of whole numbers whose sums are still in registers: MP_MR pixels x 2 VL channels, named as in
 * tile.h. Only what is asked most; the rest goes through memory to `output`, which gives the same bits. */

static inline int finishes(const mp_output *o)
{
    return o->rising && (o->activation == MP_LINEAR || o->activation == MP_LEAKY) &&
           (o->out_type == MP_TYPE_F32 || (o->out_type == MP_TYPE_I8 && o->rounding == MP_HALF_TO_EVEN));
}

#define FINISH_SUMS(i) vi c##i##0, vi c##i##1,
static inline __attribute__((always_inline)) void finish_as(TILE_ROWS(FINISH_SUMS) const tile_results *results,
                                                            const int activation, const int out_type, const int windows)
{
    mp_output *o = results->output;
    char *out = results->out;
    const out_scale q = out_scale_of(o);
    const size_t ld = results->out_ld;
    const int measured = o->measured;
    const vf bad = vf_set1(0.0f); /* what rises is finite */
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum);
#define FINISH(SUM, AT)                                                                                                \
    {                                                                                                                  \
        const vf x = vf_activate(scaled(SUM, scale, bias), activation);                                                \
        if (measured) {                                                                                                \
            minimum = vf_min_any(x, minimum);                                                                          \
            maximum = vf_max_any(x, maximum);                                                                          \
        }                                                                                                              \
        store_finished(&q, MP_HALF_TO_EVEN, out, AT, out_type, x, VL, bad);                                            \
    }
#define FINISH_VECTOR(v)                                                                                               \
    {                                                                                                                  \
        const vf scale = vf_load(o->scale + results->channel + v * VL),                                                \
                 bias = vf_load(o->bias + results->channel + v * VL);                                                  \
        size_t at = v * VL;                                                                                            \
        if (windows) {                                                                                                 \
            vi largest = vi_set1(0);                                                                                   \
            TILE_ROWS(FINISH_WINDOW_##v)                                                                               \
        } else {                                                                                                       \
            TILE_ROWS(FINISH_ROW_##v)                                                                                  \
        }                                                                                                              \
    }
#define FINISH_ROW(SUM)                                                                                                \
    FINISH(SUM, at)                                                                                                    \
    at += ld;
#define FINISH_WINDOW(i, SUM)                                                                                          \
    largest = i % 4 ? vi_max(largest, SUM) : SUM;                                                                      \
    if (i % 4 == 3) {                                                                                                  \
        FINISH(largest, at)                                                                                            \
        at += ld;                                                                                                      \
    }
#define FINISH_ROW_0(i) FINISH_ROW(c##i##0)
#define FINISH_ROW_1(i) FINISH_ROW(c##i##1)
#define FINISH_WINDOW_0(i) FINISH_WINDOW(i, c##i##0)
#define FINISH_WINDOW_1(i) FINISH_WINDOW(i, c##i##1)
    FINISH_VECTOR(0)
    FINISH_VECTOR(1)
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
#undef FINISH
}

#define FINISH_ARGUMENTS(i) c##i##0, c##i##1,
#define FINISH_CASE(ACTIVATION, TYPE)                                                                                  \
    do {                                                                                                               \
        if (results->output->windows)                                                                                  \
            finish_as(TILE_ROWS(FINISH_ARGUMENTS) results, ACTIVATION, TYPE, 1);                                       \
        else                                                                                                           \
            finish_as(TILE_ROWS(FINISH_ARGUMENTS) results, ACTIVATION, TYPE, 0);                                       \
    } while (0)
static inline __attribute__((always_inline)) void finish_tile(TILE_ROWS(FINISH_SUMS) const tile_results *results)
{
    const int leaky = results->output->activation == MP_LEAKY;
    if (results->output->out_type == MP_TYPE_F32) {
        if (leaky)
            FINISH_CASE(MP_LEAKY, MP_TYPE_F32);
        else
            FINISH_CASE(MP_LINEAR, MP_TYPE_F32);
    } else {
        if (leaky)
            FINISH_CASE(MP_LEAKY, OUT_I8_EVEN);
        else
            FINISH_CASE(MP_LINEAR, OUT_I8_EVEN);
    }
}
