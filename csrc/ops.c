/* Drivers of all operations that are not convolutions: cut the work over threads, call leaf kernels. */
#include <math.h>
#include <string.h>
#include "table.h"

enum { PIECE = 1 << 14 }; /* elements per leaf call: a quarter of the first cache level and more */

static size_t pieces(size_t count) { return (count + PIECE - 1) / PIECE; }
static size_t piece_size(size_t count, size_t piece)
{
    const size_t left = count - piece * PIECE;
    return left < PIECE ? left : PIECE;
}

#ifdef _OPENMP
#define PARALLEL _Pragma("omp parallel for schedule(static) num_threads(team)")
#else
#define PARALLEL
#endif
/* Below this many elements starting threads costs more than they save. */
enum { WORTH_THREADS = 1 << 16 };
static int team_size(int threads, size_t elements) { return elements >= WORTH_THREADS ? threads : 1; }

int mp_value_range(const mp_table *table, const void *x, int type, size_t images, size_t count, float *ranges, int threads)
{
    if (!table || !x || !ranges || !mp_is_real(type) || threads < 1 || !count)
        return MP_BAD_ARGUMENT;
    int bad = 0;
    for (size_t image = 0; image < images; image++) {
        const char *at = (const char *)x + image * count * mp_type_bytes(type);
        float low = INFINITY, high = -INFINITY;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && count >= WORTH_THREADS)              \
    reduction(| : bad) reduction(min : low) reduction(max : high)
#endif
        for (size_t piece = 0; piece < pieces(count); piece++) {
            float minimum[MP_MAX_LANES], maximum[MP_MAX_LANES], odd[MP_MAX_LANES];
            for (int lane = 0; lane < MP_MAX_LANES; lane++) {
                minimum[lane] = INFINITY;
                maximum[lane] = -INFINITY;
                odd[lane] = 0.0f;
            }
            table->range(at + piece * PIECE * mp_type_bytes(type), type, piece_size(count, piece), minimum, maximum, odd);
            for (int lane = 0; lane < MP_MAX_LANES; lane++) {
                low = minimum[lane] < low ? minimum[lane] : low;
                high = maximum[lane] > high ? maximum[lane] : high;
                bad |= odd[lane] != 0.0f; /* NaN compares unequal */
            }
        }
        ranges[2 * image] = low + 0.0f; /* -0 and 0 compare equal: leave one of them */
        ranges[2 * image + 1] = high + 0.0f;
    }
    return bad ? MP_NONFINITE : MP_OK;
}

int mp_quantize(const mp_table *table, const void *x, int type, int8_t *out, size_t images, size_t count,
                const float *inv_scale, const int32_t *zero_point, int rounding, int low, int high, int threads)
{
    if (!table || !x || !out || !inv_scale || !zero_point || !mp_is_real(type) || threads < 1 || rounding < 0 ||
        rounding > MP_TRUNCATE || low < -128 || high > 127 || low > high)
        return MP_BAD_ARGUMENT;
    const size_t per_image = pieces(count);
    const int team = team_size(threads, images * count);
    (void)team;
    PARALLEL
    for (size_t item = 0; item < images * per_image; item++) {
        const size_t image = item / per_image, piece = item % per_image, at = image * count + piece * PIECE;
        table->quantize((const char *)x + at * mp_type_bytes(type), type, out + at, piece_size(count, piece),
                        inv_scale[image], zero_point[image], rounding, low, high);
    }
    return MP_OK;
}

int mp_dequantize(const mp_table *table, const int8_t *x, void *out, int type, size_t images, size_t count,
                  const float *scale, const int32_t *zero_point, const float *offset, int threads)
{
    if (!table || !x || !out || !scale || !zero_point || !offset || !mp_is_real(type) || threads < 1)
        return MP_BAD_ARGUMENT;
    const size_t per_image = pieces(count);
    const int team = team_size(threads, images * count);
    (void)team;
    PARALLEL
    for (size_t item = 0; item < images * per_image; item++) {
        const size_t image = item / per_image, piece = item % per_image, at = image * count + piece * PIECE;
        table->dequantize(x + at, (char *)out + at * mp_type_bytes(type), type, piece_size(count, piece), scale[image],
                          zero_point[image], offset[image]);
    }
    return MP_OK;
}

int mp_cast(const mp_table *table, const void *x, int type, void *out, int out_type, size_t count, int threads)
{
    if (!table || !x || !out || !mp_is_real(type) || !mp_is_real(out_type) || threads < 1)
        return MP_BAD_ARGUMENT;
    const int team = team_size(threads, count);
    (void)team;
    PARALLEL
    for (size_t piece = 0; piece < pieces(count); piece++)
        table->cast((const char *)x + piece * PIECE * mp_type_bytes(type), type,
                    (char *)out + piece * PIECE * mp_type_bytes(out_type), out_type, piece_size(count, piece));
    return MP_OK;
}

int mp_add(const mp_table *table, const void *a, const void *b, void *out, int type, int out_type, int activation,
           size_t count, int threads)
{
    if (!table || !a || !b || !out || !mp_is_real(type) || !mp_is_real(out_type) || threads < 1 ||
        activation < 0 || activation > MP_SWISH)
        return MP_BAD_ARGUMENT;
    const int team = team_size(threads, count);
    (void)team;
    PARALLEL
    for (size_t piece = 0; piece < pieces(count); piece++) {
        const size_t at = piece * PIECE;
        table->add((const char *)a + at * mp_type_bytes(type), (const char *)b + at * mp_type_bytes(type),
                   (char *)out + at * mp_type_bytes(out_type), type, out_type, activation, piece_size(count, piece));
    }
    return MP_OK;
}

enum { MAX_WINDOW = 256 };

int mp_maxpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c, int out_h,
               int out_w, int size, int stride, int padding, int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1)
        return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || size < 1 || stride < 1 || padding < 0 || h > 1 << 24 || w > 1 << 24 || size > 1 << 24 ||
        stride > 1 << 24 || padding > 1 << 24 || out_h != (h + padding - size) / stride + 1 ||
        out_w != (w + padding - size) / stride + 1 || out_h < 1 || out_w < 1)
        return MP_BAD_SHAPE;
    if (size > MAX_WINDOW)
        return MP_UNSUPPORTED;
    const size_t pixel = (size_t)c * mp_type_bytes(type);
    const int offset = padding / 2;
    const int team = team_size(threads, images * out_h * out_w * c);
    (void)team;
    PARALLEL
    for (size_t row = 0; row < images * out_h; row++) {
        const char *image = (const char *)x + row / out_h * h * w * pixel;
        const int top = (int)(row % out_h) * stride - offset;
        const int y0 = top < 0 ? 0 : top, y1 = top + size < h ? top + size : h;
        const char *rows[MAX_WINDOW];
        for (int y = y0; y < y1; y++)
            rows[y - y0] = image + (size_t)y * w * pixel;
        table->maxpool(rows, y1 - y0, w, c, type, size, stride, offset, out_w, (char *)out + row * out_w * pixel, (size_t)c);
    }
    return MP_OK;
}

int mp_avgpool(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c, int threads)
{
    if (!table || !x || !out || !mp_is_real(type) || threads < 1)
        return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1)
        return MP_BAD_SHAPE;
    const size_t pixels = (size_t)h * w, bytes = mp_type_bytes(type);
    (void)threads; /* the order of the sum is fixed, and the work is small */
    for (size_t image = 0; image < images; image++)
        table->mean((const char *)x + image * pixels * c * bytes, (char *)out + image * c * bytes, type, pixels, (size_t)c);
    return MP_OK;
}

int mp_upsample(const mp_table *table, const void *x, void *out, int type, size_t images, int h, int w, int c, int factor,
                int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1)
        return MP_BAD_ARGUMENT;
    if (h < 1 || w < 1 || c < 1 || factor < 1)
        return MP_BAD_SHAPE;
    const size_t pixel = (size_t)c * mp_type_bytes(type), out_row = (size_t)w * factor * pixel;
    const int team = team_size(threads, images * h * w * c * factor * factor);
    (void)team;
    PARALLEL
    for (size_t row = 0; row < images * h; row++) {
        const char *from = (const char *)x + row * w * pixel;
        char *to = (char *)out + row * factor * out_row, *at = to;
        for (int ix = 0; ix < w; ix++)
            for (int f = 0; f < factor; f++, at += pixel)
                memcpy(at, from + ix * pixel, pixel);
        for (int f = 1; f < factor; f++)
            memcpy(to + f * out_row, to, out_row);
    }
    return MP_OK;
}

int mp_concat_part(const mp_table *table, const void *x, void *out, int type, size_t pixels, int c, int out_c, int at,
                   int threads)
{
    if (!table || !x || !out || !mp_is_type(type) || threads < 1)
        return MP_BAD_ARGUMENT;
    if (c < 1 || at < 0 || out_c < 1 || c > out_c - at)
        return MP_BAD_SHAPE;
    const size_t bytes = mp_type_bytes(type);
    const int team = team_size(threads, pixels * c);
    (void)team;
    PARALLEL
    for (size_t p = 0; p < pixels; p++)
        memcpy((char *)out + (p * out_c + at) * bytes, (const char *)x + p * c * bytes, c * bytes);
    return MP_OK;
}
