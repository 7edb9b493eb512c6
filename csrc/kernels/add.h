/* SPDX-License-Identifier: MIT */
/* out = activation(a + b), in float. */
static void add(const void *a, const void *b, void *out, int type, int out_type, int activation, size_t count)
{
#define BODY(ACTIVATION, AT, N)                                                                                        \
    store_as(out, AT, out_type, vf_activate(vf_add(load_as(a, AT, type, N), load_as(b, AT, type, N)), ACTIVATION), N)
#define LINEAR(AT, N) BODY(MP_LINEAR, AT, N)
#define OTHER(AT, N) BODY(activation, AT, N)
    if (activation == MP_LINEAR)
        FOR_VECTORS(count, LINEAR);
    else
        FOR_VECTORS(count, OTHER);
#undef BODY
#undef LINEAR
#undef OTHER
}
