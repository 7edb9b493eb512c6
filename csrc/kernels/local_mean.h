/* SPDX-License-Identifier: MIT */
/* Means of a row of windows, each of its values in row order; vectors of channels side by side, for one alone would wait. */
static inline __attribute__((always_inline)) void means(const char *x, size_t row_bytes, int count, int w,
                                                        size_t channels, const int type, int size, int stride,
                                                        int offset, int out_w, char *out)
{
    const size_t bytes = mp_type_bytes(type), pixel = channels * bytes;
    for (int ox = 0; ox < out_w; ox++, out += pixel) {
        const int left = ox * stride - offset;
        const int x0 = left < 0 ? 0 : left, x1 = left + size < w ? left + size : w;
        const vf values = vf_set1((float)(count * (x1 - x0)));
        const char *first = x + x0 * pixel;
        size_t at = 0;
#define ADDED(SUM, I) SUM = vf_add(SUM, load_as(from, at + (I) * VL, type, VL))
#define MEAN(SUM, I) store_as(out, at + (I) * VL, type, vf_div(SUM, values), VL)
        for (; at + 4 * VL <= channels; at += 4 * VL) {
            vf a = vf_set1(0.0f), b = a, c = a, d = a;
            for (int r = 0; r < count; r++) {
                const char *from = first + r * row_bytes;
                for (int i = x0; i < x1; i++, from += pixel) ADDED(a, 0), ADDED(b, 1), ADDED(c, 2), ADDED(d, 3);
            }
            MEAN(a, 0), MEAN(b, 1), MEAN(c, 2), MEAN(d, 3);
        }
#undef ADDED
#undef MEAN
        while (at < channels) {
            const int n = channels - at < VL ? (int)(channels - at) : VL;
            vf sum = vf_set1(0.0f);
            for (int r = 0; r < count; r++) {
                const char *from = first + r * row_bytes;
                for (int i = x0; i < x1; i++, from += pixel) sum = vf_add(sum, load_as(from, at, type, n));
            }
            store_as(out, at, type, vf_div(sum, values), n);
            at += n;
        }
    }
}

static void local_mean(const char *x, size_t row_bytes, int count, int w, int channels, int type, int size, int stride,
                       int offset, int out_w, void *out)
{
#define MEANS(TYPE) means(x, row_bytes, count, w, (size_t)channels, TYPE, size, stride, offset, out_w, out)
    BY_REAL_TYPE(type, MEANS);
#undef MEANS
}
