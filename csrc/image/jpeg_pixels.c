/* SPDX-License-Identifier: MIT */
/* Inverse DCT, chroma upsampling and colour conversion, in integers. */
#include <string.h>

#include "image/jpeg.h"

/* Constants of the inverse DCT in 1/4096; the negative ones are rounded towards zero, as the reference does. */
enum {
    C_0541 = 2217,
    C_0765 = 3135,
    C_1175 = 4816,
    C_0298 = 1223,
    C_2053 = 8410,
    C_3072 = 12586,
    C_1501 = 6149,
    N_1847 = -7567,
    N_0899 = -3685,
    N_2562 = -10497,
    N_1961 = -8034,
    N_0390 = -1597
};

/* Hostile coefficients may exceed 32 bits; unsigned arithmetic wraps where signed would be undefined. */
typedef uint32_t word;

static uint8_t clamp_byte(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

/* Eight inputs to the four even sums x[] and the four odd ones t[]: out[k] = x[k] + t[3 - k], out[7 - k] = x[k] - t[3 - k]. */
#define IDCT_1D(s0, s1, s2, s3, s4, s5, s6, s7)                                                                        \
    const word even = ((s2) + (s6)) * (word)C_0541;                                                                    \
    const word e2 = even + (s6) * (word)N_1847, e3 = even + (s2) * (word)C_0765;                                       \
    const word e0 = ((s0) + (s4)) * 4096u, e1 = ((s0) - (s4)) * 4096u;                                                 \
    const word x0 = e0 + e3, x3 = e0 - e3, x1 = e1 + e2, x2 = e1 - e2;                                                 \
    const word p5 = ((s7) + (s3) + (s5) + (s1)) * (word)C_1175;                                                        \
    const word p1 = p5 + ((s7) + (s1)) * (word)N_0899, p2 = p5 + ((s5) + (s3)) * (word)N_2562;                         \
    const word p3 = ((s7) + (s3)) * (word)N_1961, p4 = ((s5) + (s1)) * (word)N_0390;                                   \
    const word t0 = (s7) * (word)C_0298 + p1 + p3, t1 = (s5) * (word)C_2053 + p2 + p4;                                 \
    const word t2 = (s3) * (word)C_3072 + p2 + p3, t3 = (s1) * (word)C_1501 + p1 + p4;

void jpeg_block(const int16_t *c, int dc_only, uint8_t *out, int64_t stride)
{
    if (dc_only) {
        const uint8_t value = clamp_byte((int32_t)((word)(int32_t)c[0] * 16384u + 65536u + (128u << 17)) >> 17);
        for (int row = 0; row < 8; ++row) memset(out + row * stride, value, 8);
        return;
    }
    word v[64];
    for (int i = 0; i < 8; ++i) {
        IDCT_1D((word)(int32_t)c[i], (word)(int32_t)c[8 + i], (word)(int32_t)c[16 + i], (word)(int32_t)c[24 + i],
                (word)(int32_t)c[32 + i], (word)(int32_t)c[40 + i], (word)(int32_t)c[48 + i], (word)(int32_t)c[56 + i])
        /* Two more bits than the input are kept for the second pass. */
        v[i] = (word)((int32_t)(x0 + t3 + 512u) >> 10);
        v[56 + i] = (word)((int32_t)(x0 - t3 + 512u) >> 10);
        v[8 + i] = (word)((int32_t)(x1 + t2 + 512u) >> 10);
        v[48 + i] = (word)((int32_t)(x1 - t2 + 512u) >> 10);
        v[16 + i] = (word)((int32_t)(x2 + t1 + 512u) >> 10);
        v[40 + i] = (word)((int32_t)(x2 - t1 + 512u) >> 10);
        v[24 + i] = (word)((int32_t)(x3 + t0 + 512u) >> 10);
        v[32 + i] = (word)((int32_t)(x3 - t0 + 512u) >> 10);
    }
    const word bias = 65536u + (128u << 17); /* one half, and samples are stored around 128 */
    for (int i = 0; i < 8; ++i) {
        const word *r = v + 8 * i;
        uint8_t *o = out + i * stride;
        IDCT_1D(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7])
        o[0] = clamp_byte((int32_t)(x0 + t3 + bias) >> 17);
        o[7] = clamp_byte((int32_t)(x0 - t3 + bias) >> 17);
        o[1] = clamp_byte((int32_t)(x1 + t2 + bias) >> 17);
        o[6] = clamp_byte((int32_t)(x1 - t2 + bias) >> 17);
        o[2] = clamp_byte((int32_t)(x2 + t1 + bias) >> 17);
        o[5] = clamp_byte((int32_t)(x2 - t1 + bias) >> 17);
        o[3] = clamp_byte((int32_t)(x3 + t0 + bias) >> 17);
        o[4] = clamp_byte((int32_t)(x3 - t0 + bias) >> 17);
    }
}

/* A row twice as wide: each pixel 3/4 of the nearer sample and 1/4 of the other neighbour. */
static void widen(const uint8_t *in, int n, uint8_t *out)
{
    if (n == 1) {
        out[0] = out[1] = in[0];
        return;
    }
    out[0] = in[0];
    out[1] = (uint8_t)((in[0] * 3 + in[1] + 2) >> 2);
    for (int i = 1; i < n - 1; ++i) {
        const int middle = 3 * in[i] + 2;
        out[2 * i] = (uint8_t)((middle + in[i - 1]) >> 2);
        out[2 * i + 1] = (uint8_t)((middle + in[i + 1]) >> 2);
    }
    /* The last pair but one leans to the farther sample: a slip of the reference that belongs to its pixels. */
    out[2 * n - 2] = (uint8_t)((in[n - 2] * 3 + in[n - 1] + 2) >> 2);
    out[2 * n - 1] = in[n - 1];
}

/* The same in both directions, from the nearer and the farther row. */
static void widen_both(const uint8_t *near, const uint8_t *far, int n, uint8_t *out)
{
    int here = 3 * near[0] + far[0];
    out[0] = (uint8_t)((here + 2) >> 2);
    for (int i = 1; i < n; ++i) {
        const int before = here;
        here = 3 * near[i] + far[i];
        out[2 * i - 1] = (uint8_t)((3 * before + here + 8) >> 4);
        out[2 * i] = (uint8_t)((3 * here + before + 8) >> 4);
    }
    out[2 * n - 1] = (uint8_t)((here + 2) >> 2);
}

/* One row of a component at full width. near, far: its rows around the pixel row. */
static const uint8_t *full_row(const uint8_t *near, const uint8_t *far, int hs, int vs, int width, uint8_t *out)
{
    const int n = (width + hs - 1) / hs;
    if (hs == 1 && vs == 1) return near;
    if (hs == 1 && vs == 2) {
        for (int i = 0; i < n; ++i) out[i] = (uint8_t)((3 * near[i] + far[i] + 2) >> 2);
    } else if (hs == 2 && vs == 1) {
        widen(near, n, out);
    } else if (hs == 2 && vs == 2) {
        widen_both(near, far, n, out);
    } else {
        for (int i = 0; i < n; ++i)
            for (int k = 0; k < hs; ++k) out[i * hs + k] = near[i];
    }
    return out;
}

/* Coefficients in 1/4096, shifted by 8 more: y is taken at 20 fractional bits. */
#define COLOUR(x) (((int32_t)((x) * 4096.0 + 0.5)) * 256)

static void convert_row(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int width, uint8_t *rgb)
{
    for (int i = 0; i < width; ++i) {
        const int32_t base = ((int32_t)y[i] << 20) + (1 << 19);
        const int32_t red = cr[i] - 128, blue = cb[i] - 128;
        /* The blue share of green loses its low 16 bits, as in the reference. */
        const int32_t green = (int32_t)((uint32_t)(-blue * COLOUR(0.34414)) & 0xffff0000u);
        rgb[3 * i] = clamp_byte((base + red * COLOUR(1.402)) >> 20);
        rgb[3 * i + 1] = clamp_byte((base - red * COLOUR(0.71414) + green) >> 20);
        rgb[3 * i + 2] = clamp_byte((base + blue * COLOUR(1.772)) >> 20);
    }
}

void jpeg_colours(const jpeg_decoder *j, uint8_t *line, uint8_t *rgb)
{
    const int is_rgb =
        j->components == 3 && ((j->component[0].id == 'R' && j->component[1].id == 'G' && j->component[2].id == 'B') ||
                               (j->adobe_transform == 0 && !j->jfif));
    int step[JPEG_COMPONENTS] = {0}, row[JPEG_COMPONENTS] = {0};
    const uint8_t *upper[JPEG_COMPONENTS] = {0}, *lower[JPEG_COMPONENTS] = {0};
    for (int k = 0; k < j->components; ++k) {
        step[k] = (j->max_v / j->component[k].v) >> 1;
        upper[k] = lower[k] = j->component[k].plane;
    }
    for (int at = 0; at < j->height; ++at) {
        const uint8_t *full[JPEG_COMPONENTS] = {0};
        for (int k = 0; k < j->components; ++k) {
            const jpeg_component *c = &j->component[k];
            const int hs = j->max_h / c->h, vs = j->max_v / c->v;
            const int nearer_below = step[k] >= (vs >> 1);
            full[k] = full_row(nearer_below ? lower[k] : upper[k], nearer_below ? upper[k] : lower[k], hs, vs, j->width,
                               line + (int64_t)k * (j->width + 16));
            if (++step[k] >= vs) {
                step[k] = 0;
                upper[k] = lower[k];
                if (++row[k] < c->height) lower[k] += (int64_t)c->blocks_w * 8;
            }
        }
        uint8_t *out = rgb + (int64_t)at * j->width * 3;
        if (j->components == 1) {
            for (int i = 0; i < j->width; ++i) out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = full[0][i];
        } else if (is_rgb) {
            for (int i = 0; i < j->width; ++i)
                for (int k = 0; k < 3; ++k) out[3 * i + k] = full[k][i];
        } else {
            convert_row(full[0], full[1], full[2], j->width, out);
        }
    }
}
