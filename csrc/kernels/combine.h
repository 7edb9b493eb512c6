/* SPDX-License-Identifier: MIT */
/* One or two tensors, element by element: activations, scaling, weighted sums, products. */

static void map(const void *x, void *out, int type, int out_type, int activation, float scale, float shift,
                size_t count)
{
    const vf factor = vf_set1(scale), addend = vf_set1(shift);
    const int shifted = shift != 0.0f;
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf v = vf_mul(load_as(x, AT, type, N), factor);                                                                \
        if (shifted) v = vf_add(v, addend);                                                                            \
        store_as(out, AT, out_type, vf_activate_any(v, activation), N);                                                \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void combine(const void *a, const void *b, const float *a_weight, const float *b_weight, void *out, int type,
                    int out_type, int activation, size_t count)
{
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf v = load_as(a, AT, type, N);                                                                                \
        if (a_weight) v = vf_mul(v, load_as(a_weight, AT, MP_TYPE_F32, N));                                            \
        if (b) v = vf_fma(load_as(b, AT, type, N), load_as(b_weight, AT, MP_TYPE_F32, N), v);                          \
        store_as(out, AT, out_type, vf_activate(v, activation), N);                                                    \
    }
    FOR_VECTORS(count, BODY);
#undef BODY
}

static void multiply(const void *a, const void *b, void *out, int type, int out_type, int activation, size_t count)
{
#define BODY(AT, N)                                                                                                    \
    store_as(out, AT, out_type, vf_activate(vf_mul(load_as(a, AT, type, N), load_as(b, AT, type, N)), activation), N)
    FOR_VECTORS(count, BODY);
#undef BODY
}
