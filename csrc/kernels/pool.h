/* SPDX-License-Identifier: MIT */
/* Pooling: a vector of channels at a time, the window in row order; the global mean adds pixels in order. */

/* The window's first value is the start, so that of -0 and 0 the first stays. */
static inline __attribute__((always_inline)) void largest(const char *const *rows, int count, int x0, int x1,
                                                          int channels, const int type, char *out)
{
    const size_t bytes = mp_type_bytes(type);
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf top = load_as(rows[0] + (size_t)x0 * channels * bytes, AT, type, N);                                        \
        for (int r = 0; r < count; r++)                                                                                \
            for (int x = x0 + (r == 0); x < x1; x++)                                                                   \
                top = vf_max(load_as(rows[r] + (size_t)x * channels * bytes, AT, type, N), top);                       \
        store_as(out, AT, type, top, N);                                                                               \
    }
    FOR_VECTORS((size_t)channels, BODY);
#undef BODY
}

#ifdef VB_BYTES
/* Two maxima, so that one does not wait for the other. */
static inline void largest_s8(const char *const *rows, int count, int x0, int x1, int channels, int8_t *out)
{
    for (int c = 0; c < channels; c += VB_BYTES) {
        const int n = channels - c < VB_BYTES ? channels - c : VB_BYTES;
        vb even = vb_lowest(), odd = even;
        for (int r = 0; r < count; r++) {
            const char *p = rows[r] + (size_t)x0 * channels + c;
            int x = x0;
            for (; x + 1 < x1; x += 2, p += 2 * channels) {
                even = vb_max_n(even, p, n);
                odd = vb_max_n(odd, p + channels, n);
            }
            if (x < x1) even = vb_max_n(even, p, n);
        }
        vb_store_n(out + c, vb_max(even, odd), n);
    }
}
#else
/* 32, sixteen and eight int8, an extension that gcc and clang share: from an array in a loop gcc makes moves of single bytes. */
typedef int8_t pool_s8x32 __attribute__((vector_size(32)));
typedef int8_t pool_s8x16 __attribute__((vector_size(16)));
typedef int8_t pool_s8x8 __attribute__((vector_size(8)));
#define LARGEST_S8(VECTOR)                                                                                             \
    for (int c = 0;;) {                                                                                                \
        enum { STEP = sizeof(VECTOR) };                                                                                \
        VECTOR top, value;                                                                                             \
        memset(&top, -128, sizeof top);                                                                                \
        for (int r = 0; r < count; r++)                                                                                \
            for (int x = x0; x < x1; x++) {                                                                            \
                memcpy(&value, rows[r] + (size_t)x * channels + c, sizeof value);                                      \
                const VECTOR larger = value > top;                                                                     \
                top = (value & larger) | (top & ~larger);                                                              \
            }                                                                                                          \
        memcpy(out + c, &top, sizeof top);                                                                             \
        if (c + STEP == channels) return;                                                                              \
        /* The last channels once more rather than one by one. */                                                      \
        c = c + 2 * STEP <= channels ? c + STEP : channels - STEP;                                                     \
    }

static inline __attribute__((always_inline)) void largest_s8(const char *const *rows, int count, int x0, int x1,
                                                             int channels, int8_t *out)
{
    if (channels >= 32) LARGEST_S8(pool_s8x32)
    if (channels >= 16) LARGEST_S8(pool_s8x16)
    if (channels >= 8) LARGEST_S8(pool_s8x8)
    for (int c = 0; c < channels; c++) {
        int8_t top = -128;
        for (int r = 0; r < count; r++)
            for (int x = x0; x < x1; x++) {
                const int8_t v = ((const int8_t *)rows[r])[(size_t)x * channels + c];
                top = v > top ? v : top;
            }
        out[c] = top;
    }
}
#endif

/* The usual windows, 2x2 side by side and complete. */
static inline __attribute__((always_inline)) void pairs(const char *top, const char *bottom, int channels,
                                                        const int type, int count, void *out, size_t out_ld)
{
    for (int ox = 0; ox < count; ox++) {
        const size_t left = (size_t)2 * ox * channels, right = left + channels, to = ox * out_ld;
        if (type == MP_TYPE_I8) {
            const char *rows[2] = {top + left, bottom + left};
            largest_s8(rows, 2, 0, 2, channels, (int8_t *)out + to);
            continue;
        }
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        const vf upper = vf_max(load_as(top, right + AT, type, N), load_as(top, left + AT, type, N));                  \
        const vf lower = vf_max(load_as(bottom, left + AT, type, N), upper);                                           \
        store_as(out, to + AT, type, vf_max(load_as(bottom, right + AT, type, N), lower), N);                          \
    }
        FOR_VECTORS((size_t)channels, BODY);
#undef BODY
    }
}

static void maxpool(const char *const *rows, int count, int w, int channels, int type, int size, int stride, int offset,
                    int out_w, void *out, size_t out_ld)
{
    int ox = 0;
    if (size == 2 && stride == 2 && offset == 0 && count == 2) {
        ox = out_w < w / 2 ? out_w : w / 2;
#define PAIRS(TYPE) pairs(rows[0], rows[1], channels, TYPE, ox, out, out_ld)
        BY_STORED_TYPE(type, PAIRS);
#undef PAIRS
    }
    for (; ox < out_w; ox++) {
        const int left = ox * stride - offset;
        const int x0 = left < 0 ? 0 : left, x1 = left + size < w ? left + size : w;
        const size_t at = ox * out_ld;
        if (type == MP_TYPE_I8) {
            largest_s8(rows, count, x0, x1, channels, (int8_t *)out + at);
        } else if (count < 1 || x0 >= x1) {
            const vf lowest = vf_set1(type == MP_TYPE_I16 ? (float)INT16_MIN : -INFINITY);
            for (int c = 0; c < channels; c++) store_as(out, at + c, type, lowest, 1);
        } else if (type == MP_TYPE_I16) {
            largest(rows, count, x0, x1, channels, MP_TYPE_I16, (char *)out + at * sizeof(int16_t));
        } else {
#define LARGEST(TYPE) largest(rows, count, x0, x1, channels, TYPE, (char *)out + at * mp_type_bytes(TYPE))
            BY_REAL_TYPE(type, LARGEST);
#undef LARGEST
        }
    }
}

static void mean(const void *x, void *out, int type, size_t pixels, size_t channels)
{
    const vf count = vf_set1((float)pixels);
#define BODY(AT, N)                                                                                                    \
    {                                                                                                                  \
        vf sum = vf_set1(0.0f);                                                                                        \
        for (size_t p = 0; p < pixels; p++) sum = vf_add(sum, load_as(x, p * channels + AT, type, N));                 \
        store_as(out, AT, type, vf_div(sum, count), N);                                                                \
    }
    FOR_VECTORS(channels, BODY);
#undef BODY
}
