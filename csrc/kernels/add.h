/* SPDX-License-Identifier: MIT */
/* out = activation(a + b), in float. */
static void add(const void *a, const void *b, void *out, int type, int out_type, int activation, size_t count)
{
#define BODY(TYPE, OUT_TYPE, ACTIVATION, AT, N)                                                                        \
    store_as(out, AT, OUT_TYPE, vf_activate(vf_add(load_as(a, AT, TYPE, N), load_as(b, AT, TYPE, N)), ACTIVATION), N)
#define REALS(AT, N) BODY(MP_TYPE_F32, MP_TYPE_F32, MP_LINEAR, AT, N)
#define LINEAR(AT, N) BODY(type, out_type, MP_LINEAR, AT, N)
#define OTHER(AT, N) BODY(type, out_type, activation, AT, N)
    /* The usual sum, of whose types nothing is asked at every vector. */
    if (activation == MP_LINEAR && type == MP_TYPE_F32 && out_type == MP_TYPE_F32)
        FOR_VECTORS(count, REALS);
    else if (activation == MP_LINEAR)
        FOR_VECTORS(count, LINEAR);
    else
        FOR_VECTORS(count, OTHER);
#undef BODY
#undef REALS
#undef LINEAR
#undef OTHER
}
