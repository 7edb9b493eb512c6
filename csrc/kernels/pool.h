/* Pooling over a window is maximum() of one pixel after the other; the global mean adds pixels in order. */

static void maximum(void *out, const void *x, int type, size_t count)
{
    if (type == MP_TYPE_I8) {
        int8_t *to = out;
        const int8_t *from = x;
        for (size_t i = 0; i < count; i++)
            to[i] = from[i] > to[i] ? from[i] : to[i];
        return;
    }
#define F32(AT, N) store_as(out, AT, MP_TYPE_F32, vf_max(load_as(x, AT, MP_TYPE_F32, N), load_as(out, AT, MP_TYPE_F32, N)), N)
#define F16(AT, N) store_as(out, AT, MP_TYPE_F16, vf_max(load_as(x, AT, MP_TYPE_F16, N), load_as(out, AT, MP_TYPE_F16, N)), N)
    if (type == MP_TYPE_F32)
        FOR_VECTORS(count, F32);
    else
        FOR_VECTORS(count, F16);
#undef F32
#undef F16
}

static void mean(const void *x, void *out, int type, size_t pixels, size_t channels)
{
    const vf count = vf_set1((float)pixels);
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf sum = vf_set1(0.0f);                                                                                        \
        for (size_t p = 0; p < pixels; p++)                                                                            \
            sum = vf_add(sum, load_as(x, p * channels + AT, type, N));                                                 \
        store_as(out, AT, type, vf_div(sum, count), N);                                                                \
    }
    FOR_VECTORS(channels, BODY);
#undef BODY
}
