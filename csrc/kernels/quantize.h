/* SPDX-License-Identifier: MIT */
/* Range measurement, quantisation, dequantisation, casts: docs/arithmetic.md, sections 4 and 5. Each is a loop of one type,
 * called with the type as a constant. */

static inline __attribute__((always_inline)) void range_of(const int type, const void *x, size_t count, float *minimum,
                                                           float *maximum, float *bad)
{
    vf low = vf_load(minimum), high = vf_load(maximum), odd = vf_load(bad);
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        const vf v = vf_keep_n(load_as(x, AT, type, N), N);                                                            \
        odd = note_bad(odd, v);                                                                                        \
        low = vf_min_any(v, low);                                                                                      \
        high = vf_max_any(v, high);                                                                                    \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
    vf_store(minimum, low);
    vf_store(maximum, high);
    vf_store(bad, odd);
}

static void range(const void *x, int type, size_t count, float *minimum, float *maximum, float *bad)
{
#define RANGE(TYPE) range_of(TYPE, x, count, minimum, maximum, bad)
    BY_REAL_TYPE(type, RANGE);
#undef RANGE
}

static inline __attribute__((always_inline)) void quantize_from(const int type, const int rounding, const void *x,
                                                                void *out, const int out_type, size_t count,
                                                                float inv_scale, int zero_point, int low, int high)
{
    const vf inv = vf_set1(inv_scale), zero = vf_set1((float)zero_point);
    const vf bottom = vf_set1((float)(low - zero_point)), top = vf_set1((float)(high - zero_point));
#define CLAMPED(AT, N) vf_min_any(vf_max(vf_mul(load_as(x, AT, type, N), inv), bottom), top)
#ifdef MP_OUTPUT_USUAL
    if (type == MP_TYPE_F32 && rounding == MP_HALF_TO_EVEN && out_type == MP_TYPE_I8) {
        const size_t done = quantize_usual(x, out, count, inv_scale, zero_point, low, high);
        x = (const float *)x + done;
        out = (int8_t *)out + done;
        count -= done;
    }
#endif
#ifdef VI_STORES_FOUR
    if (rounding == MP_HALF_TO_EVEN && out_type == MP_TYPE_I8) {
        const size_t vectorized = count / (4 * VL) * (4 * VL);
        for (size_t at = 0; at < vectorized; at += 4 * VL)
            vi_store_four_s8((int8_t *)out + at, vi_near(CLAMPED(at, VL)), vi_near(CLAMPED(at + VL, VL)),
                             vi_near(CLAMPED(at + 2 * VL, VL)), vi_near(CLAMPED(at + 3 * VL, VL)), zero_point);
        x = (const char *)x + vectorized * mp_type_bytes(type);
        out = (int8_t *)out + vectorized;
        count -= vectorized;
    }
#endif
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        const vf t = CLAMPED(AT, N);                                                                                   \
        if (rounding == MP_HALF_TO_EVEN && out_type == MP_TYPE_I8)                                                     \
            store_code(out, AT, t, vi_set1(zero_point), N);                                                            \
        else                                                                                                           \
            store_as(out, AT, out_type, vf_add(round_by(t, rounding), zero), N);                                       \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
#undef CLAMPED
}

#ifndef MP_SHARED
static void quantize(const void *x, int type, void *out, int out_type, size_t count, float inv_scale, int zero_point,
                     int rounding, int low, int high)
{
#define QUANTIZE_AS(TYPE, ROUNDING, CODES)                                                                             \
    quantize_from(TYPE, ROUNDING, x, out, CODES, count, inv_scale, zero_point, low, high)
#define QUANTIZE(TYPE)                                                                                                 \
    if (rounding != MP_HALF_TO_EVEN)                                                                                   \
        QUANTIZE_AS(TYPE, rounding, out_type);                                                                         \
    else if (out_type == MP_TYPE_I8)                                                                                   \
        QUANTIZE_AS(TYPE, MP_HALF_TO_EVEN, MP_TYPE_I8);                                                                \
    else                                                                                                               \
        QUANTIZE_AS(TYPE, MP_HALF_TO_EVEN, MP_TYPE_I16)
    BY_REAL_TYPE(type, QUANTIZE);
#undef QUANTIZE
#undef QUANTIZE_AS
}
#endif

static inline __attribute__((always_inline)) void dequantize_to(const int out_type, const void *x, const int type,
                                                                void *out, size_t count, float scale, int zero_point,
                                                                float offset)
{
    const vf step = vf_set1(scale), zero = vf_set1((float)zero_point), shift = vf_set1(offset);
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        const vf centered = vf_sub(load_as(x, AT, type, N), zero);                                                     \
        store_as(out, AT, out_type, vf_add(vf_mul(centered, step), shift), N);                                         \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void dequantize(const void *x, int type, void *out, int out_type, size_t count, float scale, int zero_point,
                       float offset)
{
#define DEQUANTIZE(TYPE)                                                                                               \
    if (type == MP_TYPE_I8)                                                                                            \
        dequantize_to(TYPE, x, MP_TYPE_I8, out, count, scale, zero_point, offset);                                     \
    else                                                                                                               \
        dequantize_to(TYPE, x, MP_TYPE_I16, out, count, scale, zero_point, offset)
    BY_REAL_TYPE(out_type, DEQUANTIZE);
#undef DEQUANTIZE
}

static inline __attribute__((always_inline)) void cast_from(const int type, const void *x, void *out,
                                                            const int out_type, size_t count)
{
#define BODY(AT, N) store_as(out, AT, out_type, load_as(x, AT, type, N), N)
    FOR_VECTORS(count, BODY);
#undef BODY
}

/* All types widen to float exactly, so that one rounding is left. */
static void cast(const void *x, int type, void *out, int out_type, size_t count)
{
#define NARROW(TYPE) cast_from(MP_TYPE_F32, x, out, TYPE, count)
#define WIDEN(TYPE) cast_from(TYPE, x, out, MP_TYPE_F32, count)
    if (type == out_type)
        memcpy(out, x, count * mp_type_bytes(type));
    else if (type == MP_TYPE_F32)
        BY_REAL_TYPE(out_type, NARROW);
    else if (out_type == MP_TYPE_F32)
        BY_REAL_TYPE(type, WIDEN);
    else
        cast_from(type, x, out, out_type, count);
#undef NARROW
#undef WIDEN
}
