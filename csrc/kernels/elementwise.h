/* Loops over vectors of any stored type: load -> float -> operation -> store. */

static inline __attribute__((always_inline)) vf load_as(const void *p, size_t at, int type, int n)
{
    if (type == MP_TYPE_F32)
        return n == VL ? vf_load((const float *)p + at) : vf_load_n((const float *)p + at, n);
    if (type == MP_TYPE_F16)
        return n == VL ? vf_load_half((const uint16_t *)p + at) : vf_load_half_n((const uint16_t *)p + at, n);
    return n == VL ? vf_load_s8((const int8_t *)p + at) : vf_load_s8_n((const int8_t *)p + at, n);
}

static inline __attribute__((always_inline)) void store_as(void *p, size_t at, int type, vf x, int n)
{
    if (type == MP_TYPE_F32) {
        if (n == VL)
            vf_store((float *)p + at, x);
        else
            vf_store_n((float *)p + at, x, n);
    } else if (type == MP_TYPE_F16) {
        if (n == VL)
            vf_store_half((uint16_t *)p + at, x);
        else
            vf_store_half_n((uint16_t *)p + at, x, n);
    } else {
        if (n == VL)
            vf_store_s8((int8_t *)p + at, x);
        else
            vf_store_s8_n((int8_t *)p + at, x, n);
    }
}

/* BODY(at, n) for whole vectors, then for the rest. */
#define FOR_VECTORS(COUNT, BODY)                                                                                       \
    do {                                                                                                               \
        size_t at_ = 0;                                                                                                \
        for (; at_ + VL <= (COUNT); at_ += VL)                                                                         \
            BODY(at_, VL);                                                                                             \
        if (at_ < (COUNT))                                                                                             \
            BODY(at_, (int)((COUNT)-at_));                                                                             \
    } while (0)
/* Calls with `type` as a constant. */
#define BY_FLOAT_TYPE(TYPE, CALL)                                                                                      \
    do {                                                                                                               \
        if ((TYPE) == MP_TYPE_F32)                                                                                     \
            CALL(MP_TYPE_F32);                                                                                         \
        else                                                                                                           \
            CALL(MP_TYPE_F16);                                                                                         \
    } while (0)
