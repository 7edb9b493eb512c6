/* Range measurement, quantisation, dequantisation, casts: docs/arithmetic.md, sections 4 and 5. */

static void range(const void *x, int type, size_t count, float *minimum, float *maximum, float *bad)
{
    vf low = vf_load(minimum), high = vf_load(maximum), odd = vf_load(bad);
#define BODY(T, AT, N)                                                                                                 \
    {                                                                                                                  \
        const vf v = vf_keep_n(load_as(x, AT, T, N), N);                                                               \
        odd = note_bad(odd, v);                                                                                        \
        low = vf_min_any(v, low);                                                                                      \
        high = vf_max_any(v, high);                                                                                    \
    }
#define F32(AT, N) BODY(MP_TYPE_F32, AT, N)
#define F16(AT, N) BODY(MP_TYPE_F16, AT, N)
    if (type == MP_TYPE_F32)
        FOR_VECTORS(count, F32);
    else
        FOR_VECTORS(count, F16);
#undef BODY
#undef F32
#undef F16
    vf_store(minimum, low);
    vf_store(maximum, high);
    vf_store(bad, odd);
}

static inline __attribute__((always_inline)) void quantize_typed(const int type, const int rounding, const void *x,
                                                                 int8_t *out, size_t count, float inv_scale,
                                                                 int zero_point, int low, int high)
{
    const vf inv = vf_set1(inv_scale), zero = vf_set1((float)zero_point);
    const vf bottom = vf_set1((float)(low - zero_point)), top = vf_set1((float)(high - zero_point));
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        const vf t = vf_min_any(vf_max(vf_mul(load_as(x, AT, type, N), inv), bottom), top);                            \
        store_as(out, AT, MP_TYPE_I8, vf_add(round_by(t, rounding), zero), N);                                         \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void quantize(const void *x, int type, int8_t *out, size_t count, float inv_scale, int zero_point, int rounding,
                     int low, int high)
{
    if (type == MP_TYPE_F32 && rounding == MP_HALF_TO_EVEN)
        quantize_typed(MP_TYPE_F32, MP_HALF_TO_EVEN, x, out, count, inv_scale, zero_point, low, high);
    else if (type == MP_TYPE_F32)
        quantize_typed(MP_TYPE_F32, rounding, x, out, count, inv_scale, zero_point, low, high);
    else
        quantize_typed(MP_TYPE_F16, rounding, x, out, count, inv_scale, zero_point, low, high);
}

static void dequantize(const int8_t *x, void *out, int type, size_t count, float scale, int zero_point, float offset)
{
    const vf step = vf_set1(scale), zero = vf_set1((float)zero_point), shift = vf_set1(offset);
#define BODY(T, AT, N)                                                                                                 \
    {                                                                                                                  \
        const vf whole = vf_sub(load_as(x, AT, MP_TYPE_I8, N), zero);                                                  \
        store_as(out, AT, T, vf_add(vf_mul(whole, step), shift), N);                                                   \
    }
#define F32(AT, N) BODY(MP_TYPE_F32, AT, N)
#define F16(AT, N) BODY(MP_TYPE_F16, AT, N)
    if (type == MP_TYPE_F32)
        FOR_VECTORS(count, F32);
    else
        FOR_VECTORS(count, F16);
#undef BODY
#undef F32
#undef F16
}

static void cast(const void *x, int type, void *out, int out_type, size_t count)
{
    if (type == out_type) {
        memcpy(out, x, count * (type == MP_TYPE_F32 ? 4 : 2));
        return;
    }
#define NARROW(AT, N) store_as(out, AT, MP_TYPE_F16, load_as(x, AT, MP_TYPE_F32, N), N)
#define WIDEN(AT, N) store_as(out, AT, MP_TYPE_F32, load_as(x, AT, MP_TYPE_F16, N), N)
    if (type == MP_TYPE_F32)
        FOR_VECTORS(count, NARROW);
    else
        FOR_VECTORS(count, WIDEN);
#undef NARROW
#undef WIDEN
}
