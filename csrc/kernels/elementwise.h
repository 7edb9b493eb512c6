/* SPDX-License-Identifier: MIT */
/* Loops over vectors of any stored type: load -> float -> operation -> store. */

static inline vf vf_same(vf x) { return x; }

static inline __attribute__((always_inline)) vf load_as(const void *p, size_t at, int type, int n)
{
#define CASE(NAME, STORAGE, LOAD, ...)                                                                                 \
    case MP_TYPE_##NAME: return n == VL ? LOAD((const STORAGE *)p + at) : LOAD##_n((const STORAGE *)p + at, n);
    switch (type) {
        MP_STORED_TYPES(CASE)
    default: __builtin_unreachable();
    }
#undef CASE
}

/* Of vectors whose length is asked; where storing a part is as quick, without asking. */
#ifdef MP_PARTIAL_VECTORS
#define MP_IS_FULL_VECTOR(n) (__builtin_constant_p(n) && (n) == VL)
#else
#define MP_IS_FULL_VECTOR(n) ((n) == VL)
#endif
static inline __attribute__((always_inline)) void store_as(void *p, size_t at, int type, vf x, int n)
{
#define CASE(NAME, STORAGE, LOAD, STORE, ...)                                                                          \
    case MP_TYPE_##NAME:                                                                                               \
        if (MP_IS_FULL_VECTOR(n))                                                                                      \
            STORE((STORAGE *)p + at, x);                                                                               \
        else                                                                                                           \
            STORE##_n((STORAGE *)p + at, x, n);                                                                        \
        break;
    switch (type) {
        MP_STORED_TYPES(CASE)
    default: __builtin_unreachable();
    }
#undef CASE
}

/* What store_as would leave of x. */
static inline __attribute__((always_inline)) vf round_as(int type, vf x)
{
#define CASE(NAME, STORAGE, LOAD, STORE, ROUND, ...)                                                                   \
    case MP_TYPE_##NAME: return ROUND(x);
    switch (type) {
        MP_STORED_TYPES(CASE)
    default: __builtin_unreachable();
    }
#undef CASE
}

/* BODY(at, n) for whole vectors, then for the rest. */
#define FOR_VECTORS(COUNT, BODY)                                                                                       \
    do {                                                                                                               \
        size_t at_ = 0;                                                                                                \
        for (; at_ + VL <= (COUNT); at_ += VL) BODY(at_, VL);                                                          \
        if (at_ < (COUNT)) BODY(at_, (int)((COUNT) - at_));                                                            \
    } while (0)
/* CALL(type, ...) with the type as a constant. */
#define TYPE_CASE(NAME, STORAGE, LOAD, STORE, ROUND, CALL, ...)                                                        \
    case MP_TYPE_##NAME: CALL(MP_TYPE_##NAME, ##__VA_ARGS__); break;
#define BY_STORED_TYPE(TYPE, CALL)                                                                                     \
    do {                                                                                                               \
        switch (TYPE) {                                                                                                \
            MP_STORED_TYPES(TYPE_CASE, CALL)                                                                           \
        }                                                                                                              \
    } while (0)
#define BY_REAL_TYPE(TYPE, CALL)                                                                                       \
    do {                                                                                                               \
        switch (TYPE) {                                                                                                \
            MP_REAL_TYPES(TYPE_CASE, CALL)                                                                             \
        }                                                                                                              \
    } while (0)
