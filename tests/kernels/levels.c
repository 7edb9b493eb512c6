/* SPDX-License-Identifier: MIT */
/* Every kernel table that this CPU can run against one of them, REFERENCE (default: scalar), by equality, without Python: for
 * emulators that run nothing else, and for sanitizers on other architectures. LEFT_OUT names a table that is not compared.
 * The tests in Python cover far more cases; these cover every template with tails, borders and extreme values.
 *
 * levels [--list] [--test=NAME] [--level=NAME] [--seed=N] [--bench=NAME] [--digest]
 *   --list        names of cases, a line for each level and case; runs none
 *   --test=NAME   only cases with NAME in their names, such as --test=conv-3x3-s1 or --test=int8
 *   --level=NAME  only this table; the reference itself: every case of any table
 *   --seed=N      other values; the same N and case give the same ones, whichever cases run beside it
 *   --bench=NAME  cases as by --test, and how long each takes with this table and with the reference (the fastest of many calls)
 *   --digest      lines with digests of what the reference gives, the same on every CPU: `digest CASE results HEX`
 *
 * Beside equal bits every case asks that nothing is written beside results, scratch and packed weights, that every function keeps the
 * registers that it must (checked_call.h; with one thread), and that nothing crashes: a signal is caught and said with its case.
 * A line per failure (level, case, seed, threads) and per level; exit status 1 when there was one, 2 for options that mean nothing. */
#include "runner.h"

static alignas(64) uint8_t input[MOST * 4], other[MOST * 4], packed[2][PACKED + GUARD];
static alignas(64) uint8_t weights[MOST * 4], scratch[SCRATCH + GUARD];
static float bias[512], scales[512];

static uint32_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float real(void) { return (float)((int32_t)(next() & 0xffff) - 32768) / 16384.0f; }

enum { RANDOM, LARGEST, LEAST, TINY, HUGE_SUMS };
/* Reals of which the results are zeros of both signs, or round to them; or overflow halves. */
static float edge(int extreme)
{
    static const float tiny[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1p-75f, -0x1p-75f, 0x1p-13f, -0x1p-13f};
    return extreme == TINY ? tiny[next() & 7] : next() % 5 ? real() : real() * 0x1p+8f;
}

/* to: `input`, `other` or `weights`, which hold as much from then on. extreme: one of the above; codes know the first three. */
static void fill(void *to, size_t count, int type, int extreme)
{
    HOLDS(to, count * mp_type_bytes(type), sizeof input);
    if (extreme > LEAST && !mp_is_real(type)) extreme = RANDOM;
    for (size_t i = 0; i < count; i++) {
        if (extreme > LEAST && type != MP_TYPE_F32) {
            ((uint16_t *)to)[i] =
                (uint16_t)(next() & 0x8000) | (extreme == TINY ? next() % 3 : 0x5800 + (next() & 255));
            continue;
        }
        const float value = extreme > LEAST ? edge(extreme) : extreme ? (extreme == LARGEST ? 2.0f : -2.0f) : real();
        if (type == MP_TYPE_F32)
            ((float *)to)[i] = value;
        else if (type == MP_TYPE_I8)
            ((int8_t *)to)[i] = (int8_t)(extreme ? (extreme == 1 ? 127 : -128) : (int)(next() & 255) - 128);
        else if (type == MP_TYPE_I16)
            ((int16_t *)to)[i] =
                (int16_t)(extreme ? (extreme == 1 ? INT16_MAX : INT16_MIN) : (int)(next() & 65535) - 32768);
        else /* halves below 2 with any mantissa */
            ((uint16_t *)to)[i] = (uint16_t)(extreme ? (extreme == 1 ? 0x4000 : 0xc000)
                                                     : (next() & 0xbfff & ~0x4000u) | (next() & 1) << 15);
    }
}

static const char *const FILLS[] = {"random", "largest", "least", "tiny", "huge"};

/* 1: only the middle row of their taps has weights, 2: only the last column. */
static int kept;

/* What the convolutions compared next begin from, or give: sums of integers; or codes alone, by factors. */
static enum { ALL_CHANNELS, TAKES_SUMS, GIVES_SUMS, IN_CODES } part;

/* Of the output stage in integers: the least and the largest among multipliers; the last is nothing. */
static int32_t multipliers[512], shifts[512];
static void draw_factors(int count, int least, int most)
{
    for (int i = 0; i < count; i++) {
        const uint32_t which = next() & 7;
        multipliers[i] = which == 0 ? 1 << 30 : which == 1 ? INT32_MAX : (int32_t)((1u << 30) + (next() & 0x3fffffff));
        shifts[i] = least + (int)(next() % (uint32_t)(most - least + 1));
    }
    if (count > 4) multipliers[count - 1] = shifts[count - 1] = 0;
}

/* Each that all kernels have, and some of those that only convolutions and mp_map have. */
static int activation_of(int number)
{
    static const int RARE[] = {MP_HARD_SWISH, MP_GELU_ERF, MP_TANH, MP_SQRT};
    if (number > 20) return RARE[number % 4];
    return number > MP_SWISH && number % 7 == MP_SWISH ? MP_HARD_SWISH : number % 7;
}

/* Whether a level was compared before this one. */
static int again;

/* kind: the beginning of its name. pool: 0, or 1 + the padding of a 2x2/2 pooling behind it. number: decides activation and rounding. */
static void convolution(const char *kind, mp_conv_shape s, int precision, int out_type, int extreme, int number,
                        int pool)
{
    const int storage = mp_precisions[precision].type, codes = !mp_is_real(storage);
    const int span = s.dilation * (s.size - 1) + 1;
    const int h = (s.in_h + 2 * s.padding - span) / s.stride + 1, w = (s.in_w + 2 * s.padding - span) / s.stride + 1;
    const size_t pixels = (size_t)s.in_h * s.in_w * s.in_c, results = (size_t)h * w * s.out_c;
    const int pool_h = pool ? (h + pool - 1) / 2 : 0, pool_w = pool ? (w + pool - 1) / 2 : 0;
    if (pool && (!pool_h || !pool_w)) return;
    const size_t taps = (size_t)s.out_c * s.in_c / s.groups * s.size * s.size;
    const size_t stored = (pool ? (size_t)pool_h * pool_w * s.out_c : results) * IMAGES * mp_type_bytes(out_type);
    repeats = again && !codes;
    CASE("%s%s-%dx%d-s%d-p%d-d%d-g%d-%dx%dx%d-%d-%s-%s-%s-%d", kind,
         pool ? (pool == 1 ? "-pooled" : "-pooled-padded") : "", s.size, s.size, s.stride, s.padding, s.dilation,
         s.groups, s.in_h, s.in_w, s.in_c, s.out_c, precision_name(precision), type_name(out_type), FILLS[extreme],
         number)
    {
        float in_scale[IMAGES] = {0.02f, 0.5f}, in_offset[IMAGES] = {0}, ranges[2][2 * IMAGES] = {{0}};
        float inverse[IMAGES] = {3.0f, activation_of(number) == MP_RELU6 ? 50.0f : 0.25f};
        int32_t zero[IMAGES] = {-7, 100}, out_zero[IMAGES] = {5, -128};
        if (storage == MP_TYPE_I16) /* around 0, its results about as large as those of int8 */
            zero[0] = zero[1] = 0, in_scale[0] /= 256.0f, in_scale[1] /= 256.0f;
        if (codes && part == ALL_CHANNELS && number % 4 == 1) in_offset[0] = 0.01f, in_offset[1] = -0.25f;
        if (out_type == MP_TYPE_I16) out_zero[0] = out_zero[1] = 0, inverse[0] *= 256.0f, inverse[1] *= 256.0f;
        fill(input, IMAGES * pixels, storage, extreme);
        fill(weights, taps, codes ? MP_TYPE_I8 : MP_TYPE_F32, extreme);
        if (codes)
            for (size_t i = 0; i < taps; i++)
                ((int8_t *)weights)[i] =
                    (int8_t)(((int8_t *)weights)[i] % (mp_largest_code(&mp_precisions[precision]) + 1));
        for (size_t i = 0; kept && i < taps; i++) {
            const int tap = (int)(i % (size_t)(s.size * s.size)), bytes = codes ? 1 : (int)sizeof(float);
            if (kept == 1 ? tap / s.size != s.size / 2 : tap % s.size != s.size - 1)
                memset(weights + i * bytes, 0, bytes);
        }
        /* Narrow ones of every other convolution in groups: multiples of codes, for each channel, tap and 32 inputs. */
        const int square = s.size * s.size, inputs = s.in_c / s.groups, bits = mp_precisions[precision].bits;
        if (bits && number % 2)
            for (size_t i = 0; i < taps && inputs > 1; i++) {
                const size_t c = i / square % inputs, group = (i / square / inputs * square + i % square) * 40 + c / 32;
                ((int8_t *)weights)[i] = (int8_t)(((int8_t *)weights)[i] * (1 + (int)(group * 7 % (1u << (8 - bits)))));
            }
        HOLDS(bias, (size_t)s.out_c * sizeof *bias, sizeof bias);
        HOLDS(scales, (size_t)s.out_c * sizeof *scales, sizeof scales);
        for (int i = 0; i < s.out_c; i++) {
            bias[i] = extreme == TINY ? edge(TINY) : real();
            scales[i] = 0.001f + 0.01f * (float)(next() & 255);
        }
        HOLDS(other, part == TAKES_SUMS ? IMAGES * results * sizeof(int32_t) : 0, sizeof other);
        for (size_t i = 0; part == TAKES_SUMS && i < IMAGES * results; i++)
            ((int32_t *)other)[i] = (int32_t)(next() & 0xfffff) - 0x80000;
        const int wide = storage == MP_TYPE_I16 || out_type == MP_TYPE_I16, leaky = part == IN_CODES && number % 2;
        int64_t wide_bias[512];
        int32_t narrow_bias[512], leaky_multiplier[2], leaky_shift[2];
        if (part == IN_CODES) {
            draw_factors(2, -4, 1);
            memcpy(leaky_multiplier, multipliers, sizeof leaky_multiplier);
            memcpy(leaky_shift, shifts, sizeof leaky_shift);
            draw_factors(s.out_c, storage == MP_TYPE_I16 ? -24 : wide ? -14 : -22, wide ? MP_MOST_SHIFT : 2);
            for (int i = 0; i < s.out_c; i++) wide_bias[i] = narrow_bias[i] = (int)(next() % 40001) - 20000;
        }
        const int measured = part < GIVES_SUMS && (mp_is_real(out_type) || (!pool && number % 4 == 3));
        mp_conv_args a[2];
        int written = 0;
        for (int k = 0; k < 2; k++) {
            HOLDS(packed[k], sizeof packed[k], sizeof packed[k]);
            const size_t size = mp_pack_bytes(tables[k], &s, precision, weights);
            if (size == 0 || size > PACKED) break;
            memset(packed[k] + size, GUARDED, GUARD);
            if (mp_pack_conv(tables[k], &s, precision, weights, packed[k], size)) break;
            if (is_touched(packed[k] + size)) fails("%s packed more than it said", mp_table_name(tables[k]));
            HOLDS(packed[k], size, sizeof packed[k]);
            const size_t needed = mp_conv_scratch_bytes(tables[k], packed[k], pool, THREADS);
            if (needed > SCRATCH) break;
            a[k] = (mp_conv_args){
                .shape = s,
                .precision = precision,
                .activation = part == IN_CODES ? MP_LINEAR : activation_of(number),
                .out_type = out_type,
                .out_rounding = number % 3,
                .out_low = out_type == MP_TYPE_I16 ? INT16_MIN : INT8_MIN,
                .out_high = out_type == MP_TYPE_I16 ? INT16_MAX : INT8_MAX,
                .images = IMAGES,
                .threads = THREADS,
                .packed = packed[k],
                .pool_h = pool_h,
                .pool_w = pool_w,
                .in = input,
                .out = out[k] + GUARD,
                .bias = bias,
                .weight_scale = scales,
                .in_scale = in_scale,
                .in_zero_point = zero,
                .in_offset = in_offset,
                .out_inv_scale = inverse,
                .out_zero_point = out_zero,
                .ranges = measured ? ranges[k] : 0,
                .sums = part == TAKES_SUMS ? (const int32_t *)other : 0,
                .gives_sums = part == GIVES_SUMS,
                .integer_bias = wide ? (const void *)wide_bias : narrow_bias,
                .multiplier = part == IN_CODES ? multipliers : 0,
                .shift = shifts,
                .leaky_multiplier = leaky ? leaky_multiplier : 0,
                .leaky_shift = leaky_shift,
                .leaky_low = (out_type == MP_TYPE_I16 ? INT16_MIN : INT8_MIN) - 5,
                .leaky_high = out_type == MP_TYPE_I16 ? INT16_MAX : INT8_MAX,
                .scratch = scratch,
                .scratch_bytes = needed,
            };
            written++;
        }
        running = 0;
        if (written < 2) {
            fails("weights could not be packed, or the scratch of this program is too small");
        } else if ((part == TAKES_SUMS || part == GIVES_SUMS) &&
                   !(mp_conv_takes_sums(tables[0], packed[0]) && mp_conv_takes_sums(tables[1], packed[1]))) {
            compared--;
        } else {
            running = 1;
            BOTH(stored, (memset(scratch + a[k].scratch_bytes, GUARDED, GUARD),
                          called(mp_conv)(t, &a[k]) + 100 * is_touched(scratch + a[k].scratch_bytes)))
            if (part == IN_CODES && status[0]) fails("status %d", status[0]);
            if (measured && !failed && !status[0]) {
                digest("ranges", ranges[0], sizeof ranges[0]);
                if (memcmp(ranges[0], ranges[1], sizeof ranges[0]) != 0)
                    fails("ranges differ from those of %s", REFERENCE);
            }
        }
    }
}

static int is_compared(const mp_table *table)
{
    if (!options.level && table == reference()) return 0;
    return mp_table_usable(table) && strcmp(mp_table_name(table), LEFT_OUT) != 0 &&
           (!options.level || strcmp(mp_table_name(table), options.level) == 0);
}

/* Whether a table before this one was compared with the same code: in a precision, or (-1) in what is no convolution. */
static int seen(int precision)
{
    const mp_table *table = level;
    for (int i = 0; mp_table_at(i) != table; i++) {
        const mp_table *other = mp_table_at(i);
        if (!is_compared(other) || other->output != table->output) continue;
        if (precision < 0) return 1;
        const int tiles = mp_precisions[precision].tiles;
        if (other->micro[tiles] == table->micro[tiles] &&
            (other->matrix == table->matrix || mp_is_real(mp_precisions[precision].type)))
            return 1;
    }
    return 0;
}

/* Whether another width of weights has its turn: they differ before they are multiplied, and packing is most of what emulators do. */
static int others_turn(int precision, int turn)
{
    const mp_precision *traits = &mp_precisions[precision];
    return traits->bits && (REPEATED > 1 || traits->type == MP_TYPE_I16) && turn % 4 != 6 - traits->bits;
}

static void convolutions(void)
{
    static const mp_conv_shape SHAPES[] = {
        /* in_h, in_w, in_c, out_c, size, stride, padding, dilation, groups */
        {1, 1, 1, 1, 1, 1, 0, 1, 1},     {5, 7, 3, 16, 3, 1, 1, 1, 1},   {6, 6, 16, 33, 3, 1, 1, 1, 1},
        {9, 8, 17, 40, 1, 1, 0, 1, 1},   {7, 9, 32, 32, 3, 2, 1, 1, 1},  {13, 13, 8, 70, 3, 1, 1, 1, 1},
        {5, 5, 12, 12, 3, 1, 1, 1, 12},  {8, 8, 40, 40, 3, 2, 1, 1, 40}, {6, 7, 16, 24, 3, 1, 1, 1, 4},
        {9, 9, 5, 9, 5, 2, 2, 1, 1},     {10, 9, 6, 20, 3, 1, 2, 2, 1},  {5, 5, 64, 64, 1, 1, 0, 1, 1},
        {4, 4, 130, 65, 3, 1, 1, 1, 1},  {2, 3, 4, 5, 2, 1, 0, 1, 1},    {1, 40, 24, 48, 1, 1, 0, 1, 1},
        {11, 10, 16, 20, 3, 3, 2, 2, 1}, {2, 94, 64, 65, 3, 1, 1, 1, 1}, {5, 16, 8, 4, 1, 1, 0, 1, 1},
        {3, 12, 4, 24, 1, 1, 0, 1, 1},   {7, 8, 3, 8, 3, 2, 1, 1, 1},    {5, 4, 24, 24, 5, 1, 2, 1, 24},
        {3, 5, 600, 20, 1, 1, 0, 1, 1},  {4, 7, 70, 40, 3, 2, 1, 1, 1},  {2, 2, 1100, 9, 1, 1, 0, 1, 1},
        {5, 49, 3, 8, 3, 2, 1, 1, 1},    {2, 13, 12, 28, 1, 1, 0, 1, 1}, {5, 5, 112, 20, 1, 1, 0, 1, 1},
    };
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES); i++)
        for (int extreme = 0; extreme < 5; extreme++) {
            /* The last two: pooled, random values. */
            const int pool = extreme < 3 ? 0 : extreme - 2, how = extreme < 3 ? extreme : 0;
            if (how && i % 3) continue;
            for (int precision = 0; precision < MP_PRECISIONS; precision++)
                for (int out_type = 0;
                     mp_is_type(out_type) && !seen(precision) && !others_turn(precision, i / 2 + extreme); out_type++)
                    if (out_type == mp_precisions[precision].type ||
                        (out_type == MP_TYPE_F32 && !mp_is_real(mp_precisions[precision].type)))
                        convolution("conv", SHAPES[i], precision, out_type, how, i, pool);
        }
}

/* Filters of one row or column of taps. */
static void edges(void)
{
    static const mp_conv_shape SHAPES[] = {{9, 8, 20, 33, 7, 1, 3, 1, 1},
                                           {6, 20, 64, 40, 3, 1, 1, 1, 1},
                                           {8, 6, 3, 16, 3, 1, 1, 1, 1},
                                           {9, 9, 16, 24, 5, 2, 2, 1, 2}};
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES); i++)
        for (int precision = 0; precision < MP_PRECISIONS; precision++)
            for (kept = 1; kept < 3 && !seen(precision) && (REPEATED == 1 || !others_turn(precision, i)); kept++)
                convolution(kept == 1 ? "row" : "column", SHAPES[i], precision, i % 2 ? MP_TYPE_F32 : MP_TYPE_I8,
                            RANDOM, i, i == 2);
    kept = 0;
}

/* Whole vectors of channels and others, for mp_depthwise.lines: rows of one group, of several, and of what two share; every activation. */
static void depthwise(void)
{
    static const int SHAPES[][6] = {
        /* in_h, in_w, channels, size, stride, padding */
        {3, 21, 8, 3, 1, 1},  {5, 7, 32, 5, 1, 2},  {4, 14, 16, 5, 2, 2}, {9, 9, 48, 3, 2, 1},  {3, 20, 16, 3, 1, 0},
        {6, 10, 16, 5, 1, 0}, {8, 13, 64, 3, 1, 1}, {1, 4, 32, 3, 1, 1},  {5, 11, 16, 5, 2, 1}, {8, 17, 16, 3, 2, 0},
        {4, 8, 64, 5, 1, 2},  {5, 9, 70, 3, 1, 1},  {4, 13, 60, 5, 2, 2}, {3, 11, 24, 3, 2, 1}, {3, 9, 130, 5, 1, 2}};
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES); i++)
        for (int precision = 0; precision < MP_PRECISIONS; precision++)
            for (int extreme = RANDOM; extreme <= (mp_precisions[precision].bits ? RANDOM : HUGE_SUMS); extreme++)
                for (int type = 0; mp_is_type(type) && !seen(precision) && !others_turn(precision, i); type++) {
                    const int *of = SHAPES[i], own = mp_precisions[precision].type;
                    const mp_conv_shape s = {of[0], of[1], of[2], of[2], of[3], of[4], of[5], 1, of[2]};
                    if (type == own || (type == MP_TYPE_F32 && !mp_is_real(own)))
                        convolution("depthwise", s, precision, type, extreme, i + 3 * extreme, i == 2 || i == 8);
                }
}

/* Which have kernels of their own where they are pooled (mp_micro.windows): every activation, rounding and type; panels that are
 * full and not; results whose zeros have either sign, and that overflow. Elsewhere they are convolutions like others. */
static void first_layers(void)
{
    enum { NUMBERS = 21, EDGES = 7, FEW_NUMBERS = 3, FEW_EDGES = 1 };
    static const int SIDES[][3] = {{8, 8, 16}, {6, 14, 5}, {4, 22, 33}, {10, 6, 24}}; /* in_h, in_w, out_c */
    for (int i = 0; i < (int)(sizeof SIDES / sizeof *SIDES); i++)
        for (int extreme = RANDOM; extreme <= HUGE_SUMS; extreme++)
            for (int precision = 0; precision < MP_PRECISIONS; precision++) {
                if (seen(precision) || others_turn(precision, i + extreme)) continue;
#ifdef __SANITIZE_THREAD__ /* races don't ask for activations */
                const int few = 1;
#else
                const int few = mp_precisions[precision].bits ||
                                (level != reference() && !level->micro[mp_precisions[precision].tiles]->windows);
#endif
                const int numbers = few ? (extreme ? FEW_EDGES : FEW_NUMBERS) : (extreme ? EDGES : NUMBERS);
                for (int number = 0; number < numbers; number++)
                    for (int out_type = 0; mp_is_type(out_type); out_type++) {
                        const mp_conv_shape s = {SIDES[i][0], SIDES[i][1], 3, SIDES[i][2], 3, 1, i != 2, 1, 1};
                        convolution("first", s, precision, out_type, extreme, number, 1);
                    }
            }
}

/* Tiles of a matrix unit: rows that are cut unevenly, whole images as one row, depth in several steps and passes, windows, strides,
 * groups, one channel more than a tile has. */
static void matrices(void)
{
    static const mp_conv_shape SHAPES[] = {
        {5, 35, 16, 33, 3, 1, 1, 1, 1},  {13, 13, 128, 40, 1, 1, 0, 1, 1}, {6, 42, 32, 16, 3, 1, 1, 1, 1},
        {9, 39, 24, 17, 3, 2, 1, 1, 1},  {1, 1, 64, 32, 1, 1, 0, 1, 1},    {2, 3, 1024, 33, 3, 1, 1, 1, 1},
        {3, 5, 8288, 8, 1, 1, 0, 1, 1},  {7, 20, 96, 96, 3, 1, 1, 1, 3},   {8, 12, 18, 30, 3, 1, 0, 1, 1},
        {10, 17, 20, 20, 5, 1, 4, 2, 1}, {3, 300, 16, 8, 1, 2, 0, 1, 1},
    };
    /* Narrow weights differ before they are multiplied, so that one width says enough; to emulators what is not pooled. */
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES) && (level->matrix || level == reference()); i++)
        for (int precision = 0; precision < MP_PRECISIONS; precision++)
            for (int pool = 0; pool < 3; pool++)
                for (int out_type = 0; mp_is_type(out_type); out_type++)
                    if ((out_type == MP_TYPE_F32 || out_type == MP_TYPE_I8) &&
                        (precision == MP_INT8 || precision == MP_INT16 ||
                         ((REPEATED == 1 || !pool) && (precision == MP_INT5 || precision == MP_INT16W5))))
                        convolution("matrix", SHAPES[i], precision, out_type, pool ? RANDOM : i % 3, i, pool);
}

/* Some input channels of a convolution: panels that are full and not, rows and whole images as tiles, one pass and several. */
static void partial_sums(void)
{
    static const mp_conv_shape SHAPES[] = {
        {5, 7, 16, 33, 3, 1, 1, 1, 1},    {9, 8, 17, 40, 1, 1, 0, 1, 1},   {7, 9, 32, 32, 3, 2, 1, 1, 1},
        {5, 35, 16, 33, 3, 1, 1, 1, 1},   {2, 3, 1024, 33, 3, 1, 1, 1, 1}, {3, 5, 8288, 8, 1, 1, 0, 1, 1},
        {13, 13, 128, 40, 1, 1, 0, 1, 1}, {7, 20, 96, 96, 3, 1, 1, 1, 3},  {1, 95, 64, 65, 3, 1, 1, 1, 1},
        {6, 8, 12, 8, 1, 1, 0, 1, 1},     {4, 12, 9, 24, 3, 1, 1, 1, 1},
    };
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES); i++)
        for (int precision = 0; precision < MP_PRECISIONS; precision++) {
            if (seen(precision) || (precision != MP_INT8 && precision != MP_INT5)) continue;
            for (part = TAKES_SUMS; part <= GIVES_SUMS; part++)
                convolution(part == TAKES_SUMS ? "takes-sums" : "gives-sums", SHAPES[i], precision, MP_TYPE_F32, RANDOM,
                            i, 0);
        }
    part = ALL_CHANNELS;
}

/* Codes in integers alone: every tile and Winograd, groups, depthwise (beside each other, and of too many taps for sums of 32 bits),
 * interleaved pixels; with LeakyReLU and without, pooled and not. */
static void in_codes(void)
{
    static const mp_conv_shape SHAPES[] = {
        {7, 9, 3, 16, 3, 1, 1, 1, 1},   {13, 11, 24, 70, 1, 1, 0, 1, 1}, {10, 12, 32, 48, 3, 1, 1, 1, 1},
        {9, 8, 20, 33, 3, 2, 1, 1, 1},  {8, 6, 24, 18, 3, 1, 1, 1, 3},   {11, 9, 37, 37, 3, 1, 1, 1, 37},
        {6, 8, 12, 10, 1, 1, 0, 1, 1},  {7, 8, 10, 10, 3, 1, 1, 1, 10},  {23, 23, 18, 18, 23, 1, 0, 1, 18},
        {2, 2, 1100, 9, 1, 1, 0, 1, 1}, {5, 35, 16, 33, 3, 1, 1, 1, 1},  {3, 12, 4, 24, 1, 1, 0, 1, 1},
    };
    static const int GIVES[][2] = {
        {MP_INT8, MP_TYPE_I8}, {MP_INT8, MP_TYPE_I16}, {MP_INT16, MP_TYPE_I16}, {MP_INT16W5, MP_TYPE_I16}};
    part = IN_CODES;
    for (int i = 0; i < (int)(sizeof SHAPES / sizeof *SHAPES); i++)
        for (int g = 0; g < (int)(sizeof GIVES / sizeof *GIVES); g++)
            for (int number = 0; number < 4 && !seen(GIVES[g][0]); number++)
                for (int pool = 0; pool < 3; pool++)
                    convolution("codes", SHAPES[i], GIVES[g][0], GIVES[g][1], pool ? RANDOM : number % 3, number, pool);
    part = ALL_CHANNELS;
}

static const char *operation_name(const char *operation, int type, int count, const char *what, int number)
{
    static char text[64];
    snprintf(text, sizeof text, number < 0 ? "%s-%s-%d" : "%s-%s-%d-%s%d", operation, type_name(type), count, what,
             number);
    return text;
}
/* number: of an activation or rounding (`what`), or less than 0. */
#define OPERATION(NAME, WHAT, NUMBER, BYTES, CALL)                                                                     \
    CASE("%s", operation_name(NAME, type, COUNTS[i], WHAT, NUMBER))                                                    \
    {                                                                                                                  \
        fill(input, n * 30, type, RANDOM);                                                                             \
        fill(other, n, type, RANDOM);                                                                                  \
        BOTH(BYTES, CALL)                                                                                              \
    }

static void elementwise(void)
{
    static const int COUNTS[] = {1, 3, 8, 15, 16, 17, 31, 33, 64, 67, 129};
    const float inverse[1] = {20.0f}, scale[1] = {0.05f}, offset[1] = {0.01f};
    const int32_t zero[1] = {-3};
    HOLDS(scales, sizeof scales, sizeof scales);
    for (int i = 0; i < 512; i++) scales[i] = 0.001f + 0.01f * (float)(i * 37 & 255);
    for (int i = 0; i < (int)(sizeof COUNTS / sizeof *COUNTS); i++) {
        const size_t n = COUNTS[i];
        const int32_t parts[3] = {0, COUNTS[i] > 1 ? COUNTS[i] / 2 : 1, COUNTS[i]};
        for (int type = 0; mp_is_type(type); type++) {
            const size_t bytes = mp_type_bytes(type);
            OPERATION("maxpool", "", -1, n * 12 * bytes,
                      called(mp_maxpool)(t, input, to, type, 1, 5, 6, (int)n, 3, 4, 3, 1, 0, THREADS))
            OPERATION("maxpool-padded", "", -1, n * 30 * bytes,
                      called(mp_maxpool)(t, input, to, type, 1, 5, 6, (int)n, 5, 6, 2, 1, 1, THREADS))
            OPERATION("upsample", "", -1, n * 120 * bytes,
                      called(mp_upsample)(t, input, to, type, 1, 5, 6, (int)n, 2, THREADS))
            OPERATION("shuffle", "", -1, n * 30 * bytes,
                      called(mp_shuffle)(t, input, to, type, 5, (int)n * 6, 2 + i % 2, THREADS))
            if (!mp_is_real(type)) continue;
            OPERATION("avgpool", "", -1, n * bytes, called(mp_avgpool)(t, input, to, type, 1, 5, 6, (int)n, THREADS))
            OPERATION("local-mean", "", -1, n * 15 * bytes,
                      called(mp_local_avgpool)(t, input, to, type, 1, 5, 6, (int)n, 3, 5, 3, 1, 2, 2, THREADS))
            OPERATION("layer-norm", "", -1, n * 30 * bytes,
                      called(mp_normalize)(t, input, to, type, MP_LAYER, 30, n, parts, n > 1 ? 2 : 1, 1e-5f, 0, 0, 0,
                                           THREADS))
            OPERATION("range", "", -1, 8, called(mp_value_range)(t, input, type, 1, n, (float *)to, THREADS))
            for (int rounding = 0; rounding < 3; rounding++)
                for (int wide = 0; wide < 2; wide++)
                    OPERATION(wide ? "quantize-wide" : "quantize", "rounding", rounding, n << wide,
                              called(mp_quantize)(t, input, type, to, wide ? MP_TYPE_I16 : MP_TYPE_I8, 1, n, inverse,
                                                  zero, rounding, wide ? INT16_MIN : -128, wide ? INT16_MAX : 127,
                                                  THREADS))
            for (int out_type = 0; mp_is_type(out_type); out_type++)
                if (mp_is_real(out_type))
                    OPERATION("cast", "to", out_type, n * mp_type_bytes(out_type),
                              called(mp_cast)(t, input, type, to, out_type, n, THREADS))
            for (int activation = 0; activation <= MP_LAST_ACTIVATION; activation++)
                OPERATION("map", "activation", activation, n * bytes,
                          called(mp_map)(t, input, type, to, type, activation, 1.5f, 0.25f, n, THREADS))
            for (int activation = 0; activation < 7; activation++) {
                OPERATION("add", "activation", activation, n * bytes,
                          called(mp_add)(t, input, other, to, type, type, activation, n, THREADS))
                OPERATION("multiply", "activation", activation, n * bytes,
                          called(mp_multiply)(t, input, other, to, type, type, activation, MP_PER_CHANNEL, 1, 1, 1,
                                              (int)n, THREADS))
                OPERATION("combine", "activation", activation, n * bytes,
                          called(mp_combine)(t, input, other, to, type, type, activation, scales, scales, 1, 1, 1,
                                             (int)n, 1, 1, (int)n, THREADS))
            }
            for (int codes = 0; mp_is_type(codes); codes++)
                if (!mp_is_real(codes)) CASE("%s", operation_name("dequantize", type, (int)n, "from", codes))
                    {
                        fill(input, n, codes, RANDOM);
                        BOTH(n * bytes,
                             called(mp_dequantize)(t, input, codes, to, type, 1, n, scale, zero, offset, THREADS))
                    }
        }
    }
}

/* Whole and partial blocks of queries, vectors of channels and eights of products; keys too long to be turned, and positions too many
 * for two vectors of queries. */
static void attention(void)
{
    static const int SIZES[][5] = {
        /* positions, areas, heads, key, value */
        {1, 1, 1, 1, 1},   {7, 2, 2, 5, 3},    {10, 1, 3, 8, 33},  {33, 2, 2, 12, 17},
        {49, 1, 1, 64, 8}, {40, 1, 2, 32, 64}, {37, 1, 1, 515, 5}, {2300, 1, 1, 4, 9},
    };
    for (int i = 0; i < (int)(sizeof SIZES / sizeof *SIZES); i++)
        for (int extreme = 0; extreme < 5; extreme += extreme ? 1 : 3) {
            const int positions = SIZES[i][0], areas = SIZES[i][1], heads = SIZES[i][2], key = SIZES[i][3],
                      value = SIZES[i][4];
            const size_t pixels = (size_t)positions * areas;
            CASE("attention-%d-areas%d-heads%d-%d-%d-%s", positions, areas, heads, key, value, FILLS[extreme])
            {
                fill(input, pixels * heads * (2 * key + value), MP_TYPE_F32, extreme);
                BOTH(pixels * heads * value * sizeof(float),
                     called(mp_attention)(t, (const float *)input, (float *)to, 1, pixels, heads, key, value, areas,
                                          0.5f, THREADS))
                if (status[0]) fails("status %d", status[0]);
            }
        }
}

/* What is between convolutions where there are codes alone. */
static void between_codes(void)
{
    static const int COUNTS[] = {1, 7, 16, 33, 64, 129, 1000}, CODES[] = {MP_TYPE_I8, MP_TYPE_I16};
    for (int i = 0; i < (int)(sizeof COUNTS / sizeof *COUNTS); i++)
        for (int from = 0; from < 4; from++) {
            const size_t n = COUNTS[i];
            const int type = CODES[from & 1], to_type = CODES[from >> 1], is_byte = to_type == MP_TYPE_I8;
            const int low = is_byte ? INT8_MIN : INT16_MIN, high = is_byte ? INT8_MAX : INT16_MAX;
            const int zero = type == MP_TYPE_I8 ? 5 : 0, to_zero = is_byte ? -9 : 0;
            for (int up = 0; up < 2; up++)
                CASE("rescale-%s-%s-%d-%s", type_name(type), type_name(to_type), (int)n, up ? "up" : "down")
                {
                    fill(input, n, type, RANDOM);
                    draw_factors(2, up ? 0 : -31, up ? (type == MP_TYPE_I16 ? 14 : 22) : 0);
                    BOTH(n * mp_type_bytes(to_type),
                         called(mp_rescale)(t, input, type, to, to_type, zero, to_zero, low, high, multipliers[0],
                                            shifts[0], multipliers[1], shifts[1], n, THREADS))
                    if (status[0]) fails("status %d", status[0]);
                }
            if (from & 1) continue;
            CASE("divide-%s-%d", type_name(to_type), (int)n)
            {
                fill(input, n, MP_TYPE_F32, RANDOM);
                for (size_t k = 0; k < n; k += 3)
                    ((float *)input)[k] = 0.25f * (float)((int)(next() & 511) - 255) / 2.0f;
                BOTH(n * mp_type_bytes(to_type),
                     called(mp_quantize_by_division)(t, (const float *)input, to, to_type, 0.25f, to_zero, n, THREADS))
            }
            CASE("add-codes-%s-%d", type_name(to_type), (int)n)
            {
                const int32_t zeros[3] = {is_byte ? -128 : 0, is_byte ? 5 : 0, is_byte ? 127 : 0};
                fill(input, n, to_type, RANDOM);
                fill(other, n, to_type, RANDOM);
                draw_factors(3, -16, 0);
                BOTH(n * mp_type_bytes(to_type), called(mp_add_codes)(t, input, other, to, to_type, zeros, multipliers,
                                                                      shifts, low, high - 1, n, THREADS))
                if (status[0]) fails("status %d", status[0]);
            }
        }
}

/* Whether this thread has tiles that the system must save. */
static int matrix_in_use(void)
{
#if defined(__x86_64__) && !defined(MP_EMULATED_TILES)
    uint32_t low = 0, high = 0;
    if (mp_cpu_detect() & MP_CPU_AMX_INT8) __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return (low >> 17 & 3) != 0;
#else
    return 0;
#endif
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        if (!understood(words[i])) {
            fprintf(
                stderr,
                "levels: %s: not an option; --list, --test=NAME, --level=NAME, --seed=N, --bench=NAME and --digest are\n",
                words[i]);
            return 2;
        }
    if (!reference() || !mp_table_usable(reference())) return printf("no table %s here\n", REFERENCE), 1;
    catch_signals();
    int cases = 0;
    for (int i = 0; i < mp_table_count(); i++) {
        level = mp_table_at(i);
        if (!is_compared(level)) continue;
        tables[0] = checked_table(reference()), tables[1] = checked_table(level);
        compared = 0;
        const int before = wrong;
        convolutions();
        edges();
        depthwise();
        first_layers();
        matrices();
        partial_sums();
        in_codes();
        repeats = again;
        if (!seen(-1)) elementwise(), attention(), between_codes();
        cases += compared, again = 1;
        if (options.list) continue;
        if (matrix_in_use()) wrong++, printf("%s: leaves tiles in use\n", mp_table_name(level));
        printf("%s: %d of %d comparisons with %s equal\n", mp_table_name(level), compared - (wrong - before), compared,
               REFERENCE);
        fflush(stdout);
    }
    if (cases || options.list || !(options.test || options.level || options.bench)) return wrong != 0;
    fprintf(stderr, "levels: no case and level here has such a name; --list says which there are\n");
    return 2;
}
