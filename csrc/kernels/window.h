/* SPDX-License-Identifier: MIT */
/* First layers: 3x3 over MP_WINDOW_CHANNELS channels at stride 1, pooled 2x2/2, a row of windows at a time. Their depth is so
 * short that tiles would wait for what lies between them; here sums stay in registers until they are pooled results.
 *
 * Included once per kind of sums, with WINDOW_NAME, WINDOW_BYTES of a staged element, WINDOW_SPREAD(p), a step's four bytes at p in
 * all lanes (a float, two int16 or four bytes), and WINDOW_MAC(sum, spread, weights). The level brings WINDOW_SUMS(M) = M(window,
 * vector of channels) ..., WINDOWS_TOGETHER and WINDOW_VECTORS, the numbers of both, and WINDOW_SHARES where loads are what floats
 * wait for. Pixels 0 and 1 of a window lie above 2 and 3.
 * Or the level multiplies itself: WINDOW_PREPARE stands before a row, for channels from `first` on, and WINDOW_MULTIPLY declares the
 * sums of the window at `upper`. */
#define WINDOW_ROW MP_JOIN(WINDOW_NAME, _row)
#ifdef WINDOW_INT
#define WINDOW_SUM vi
#define WINDOW_LOAD vi_load
#define WINDOW_STORE vi_store
#define WINDOW_FLOAT 0
#else
#define WINDOW_SUM vf
#define WINDOW_LOAD(p) vf_load((const float *)(p))
#define WINDOW_STORE(p, x) vf_store((float *)(p), x)
#define WINDOW_FLOAT 1
#endif
/* Else gcc carries activations from step to step, out of registers. */
#define WINDOW_OPAQUE(p, lower) __asm__("" : "+r"(p), "+r"(lower));
#ifdef __clang__
/* Else clang lets a sum change its register in each step, by two copies. */
#define WINDOW_BEGINS(k) 1
#define WINDOW_STAYS(w, v) __asm__("" : "+v"(c##w##v##0), "+v"(c##w##v##1), "+v"(c##w##v##2), "+v"(c##w##v##3));
#else
/* True, but gcc, when it knows, copies each sum in each step. */
#define WINDOW_BEGINS(k) ((k) > 0)
#define WINDOW_STAYS(w, v)
#endif

/* The steps of a row of windows, as macros: they share named vectors, the sums c<window><vector of channels><pixel> and what belongs to
 * them, which an array would keep out of registers. WINDOW_SUMS repeats most of them for every window and vector. */
/* Sums begin from the panel's starting values. */
#define WINDOW_DECLARE(w, v) WINDOW_SUM c##w##v##0 = i##v, c##w##v##1 = i##v, c##w##v##2 = i##v, c##w##v##3 = i##v;
#ifdef WINDOW_SHARES
/* A kernel row by its three taps, three steps each: the right pixel's activations are the left one's at the next tap. First the left pixels'
 * at the first tap; then of each step both pixels' products, between which the right one's activations are loaded. */
#define WINDOW_LEFT(w, v)                                                                                              \
    WINDOW_SUM u##w##0 = WINDOW_SPREAD(p + (2 * w) * PIXEL), l##w##0 = WINDOW_SPREAD(lower + (2 * w) * PIXEL);         \
    WINDOW_SUM u##w##1 = WINDOW_SPREAD(p + (2 * w) * PIXEL + STEP),                                                    \
               l##w##1 = WINDOW_SPREAD(lower + (2 * w) * PIXEL + STEP);                                                \
    WINDOW_SUM u##w##2 = WINDOW_SPREAD(p + (2 * w) * PIXEL + 2 * STEP),                                                \
               l##w##2 = WINDOW_SPREAD(lower + (2 * w) * PIXEL + 2 * STEP);
#define WINDOW_CHANNEL(w, v, channel)                                                                                  \
    c##w##v##0 = WINDOW_MAC(c##w##v##0, u##w##channel, b0);                                                            \
    c##w##v##2 = WINDOW_MAC(c##w##v##2, l##w##channel, b0);                                                            \
    u##w##channel = WINDOW_SPREAD(p + (2 * w + 1) * PIXEL + channel * STEP);                                           \
    l##w##channel = WINDOW_SPREAD(lower + (2 * w + 1) * PIXEL + channel * STEP);                                       \
    c##w##v##1 = WINDOW_MAC(c##w##v##1, u##w##channel, b0);                                                            \
    c##w##v##3 = WINDOW_MAC(c##w##v##3, l##w##channel, b0);
#define WINDOW_CHANNEL_0(w, v) WINDOW_CHANNEL(w, v, 0)
#define WINDOW_CHANNEL_1(w, v) WINDOW_CHANNEL(w, v, 1)
#define WINDOW_CHANNEL_2(w, v) WINDOW_CHANNEL(w, v, 2)
#define WINDOW_KERNEL_ROW                                                                                              \
    WINDOW_SUMS(WINDOW_LEFT)                                                                                           \
    for (int k = row->steps; k > 0; k -= 3) {                                                                          \
        WINDOW_OPAQUE(p, lower)                                                                                        \
        WINDOW_SUM b0 = WINDOW_LOAD(b);                                                                                \
        WINDOW_SUMS(WINDOW_CHANNEL_0)                                                                                  \
        b0 = WINDOW_LOAD(b + B_STEP);                                                                                  \
        WINDOW_SUMS(WINDOW_CHANNEL_1)                                                                                  \
        b0 = WINDOW_LOAD(b + 2 * B_STEP);                                                                              \
        WINDOW_SUMS(WINDOW_CHANNEL_2)                                                                                  \
        p += PIXEL, lower += PIXEL, b += 3 * B_STEP;                                                                   \
    }
#else
/* A kernel row step by step, all four pixels of a window at once. */
#define WINDOW_STEP(w, v)                                                                                              \
    c##w##v##0 = WINDOW_MAC(c##w##v##0, WINDOW_SPREAD(p + (2 * w) * PIXEL), b##v);                                     \
    c##w##v##1 = WINDOW_MAC(c##w##v##1, WINDOW_SPREAD(p + (2 * w + 1) * PIXEL), b##v);                                 \
    c##w##v##2 = WINDOW_MAC(c##w##v##2, WINDOW_SPREAD(lower + (2 * w) * PIXEL), b##v);                                 \
    c##w##v##3 = WINDOW_MAC(c##w##v##3, WINDOW_SPREAD(lower + (2 * w + 1) * PIXEL), b##v);
#define WINDOW_KERNEL_ROW                                                                                              \
    int k = row->steps;                                                                                                \
    if (WINDOW_BEGINS(k)) {                                                                                            \
        do {                                                                                                           \
            WINDOW_OPAQUE(p, lower)                                                                                    \
            const WINDOW_SUM b0 = WINDOW_LOAD(b), b1 = WINDOW_VECTORS > 1 ? WINDOW_LOAD(b + VL * STEP) : b0;           \
            (void)b1;                                                                                                  \
            WINDOW_SUMS(WINDOW_STEP)                                                                                   \
            WINDOW_SUMS(WINDOW_STAYS)                                                                                  \
            p += STEP, lower += STEP, b += B_STEP;                                                                     \
        } while (--k > 0);                                                                                             \
    }
#endif
/* All products of the windows at `upper`: the level's, or those of three kernel rows, each over two staged rows. */
#ifdef WINDOW_MULTIPLY
#define WINDOW_PRODUCTS                                                                                                \
    (void)b;                                                                                                           \
    WINDOW_MULTIPLY
#else
#define WINDOW_PRODUCTS                                                                                                \
    WINDOW_SUMS(WINDOW_DECLARE)                                                                                        \
    for (int s = 0; s < 3; s++) {                                                                                      \
        const char *p = upper, *next = upper + row->stage_row, *lower = next;                                          \
        WINDOW_KERNEL_ROW                                                                                              \
        upper = next;                                                                                                  \
    }
#endif
/* The largest of a window's four sums, as float; what is not finite, or would overflow a narrow type, is noted. */
#ifdef WINDOW_INT
#define WINDOW_LARGEST(w, v)                                                                                           \
    vf x = scaled(vi_max(vi_max(c##w##v##0, c##w##v##1), vi_max(c##w##v##2, c##w##v##3)), vf_load(scale + v * VL),     \
                  vf_load(bias + v * VL));
#else
#define WINDOW_LARGEST(w, v)                                                                                           \
    bad = note_bad(note_bad(note_bad(note_bad(bad, c##w##v##0), c##w##v##1), c##w##v##2), c##w##v##3);                 \
    if (narrow) {                                                                                                      \
        least = vf_min_any(vf_min_any(c##w##v##0, c##w##v##1), least);                                                 \
        least = vf_min_any(vf_min_any(c##w##v##2, c##w##v##3), least);                                                 \
    }                                                                                                                  \
    vf x = largest_of(c##w##v##0, c##w##v##1, c##w##v##2, c##w##v##3);
#endif
/* The output stage of a window in registers: activation, rounding, range, store. */
#define WINDOW_FINISH(w, v)                                                                                            \
    if (n##v > 0) {                                                                                                    \
        WINDOW_LARGEST(w, v)                                                                                           \
        x = vf_activate(n##v == VL ? x : vf_keep_n(x, n##v), activation);                                              \
        if (narrow) x = round_as(out_type, x);                                                                         \
        if (signs_differ) unsure |= vf_any_zero(x);                                                                    \
        if (measured) {                                                                                                \
            minimum = vf_min_any(x, minimum);                                                                          \
            maximum = vf_max_any(x, maximum);                                                                          \
        }                                                                                                              \
        bad = store_finished(&q, o->rounding, out, position + w * row->out_ld + v * VL, out_type, x, n##v, bad);       \
    }
/* The sums in memory, for `output`. */
#define WINDOW_KEEP(w, v)                                                                                              \
    WINDOW_STORE(sums + (4 * w + 0) * LD + v * VL, c##w##v##0);                                                        \
    WINDOW_STORE(sums + (4 * w + 1) * LD + v * VL, c##w##v##1);                                                        \
    WINDOW_STORE(sums + (4 * w + 2) * LD + v * VL, c##w##v##2);                                                        \
    WINDOW_STORE(sums + (4 * w + 3) * LD + v * VL, c##w##v##3);

/* general: the output stage finishes all sums; else only where the largest is a zero, whose sign may come from another pixel than
 * the largest sum. */
static inline __attribute__((always_inline)) void WINDOW_ROW(mp_output *o, const int activation, const int out_type,
                                                             const int general, const mp_window_row *row)
{
    enum { PIXEL = MP_WINDOW_CHANNELS * WINDOW_BYTES, STEP = 4, B_STEP = 2 * VL * STEP, LD = WINDOW_VECTORS * VL };
    const out_scale q = out_scale_of(o);
    const int measured = o->measured, narrow = mp_is_real(out_type) && mp_type_bytes(out_type) < sizeof(float);
    const int signs_differ = WINDOW_FLOAT && (activation == MP_LEAKY || activation == MP_LINEAR);
    vf minimum = vf_set1(INFINITY), maximum = vf_set1(-INFINITY), least = minimum, bad = vf_set1(0.0f);
    for (int first = 0; first < row->channels; first += LD) {
        const int left = row->channels - first, n0 = left < VL ? left : VL, n1 = left - n0 < VL ? left - n0 : VL;
        const char *init = (const char *)row->init + first * 4;
        const WINDOW_SUM i0 = WINDOW_LOAD(init), i1 = WINDOW_VECTORS > 1 ? WINDOW_LOAD(init + VL * 4) : i0;
        const float *scale = o->scale + row->channel + first, *bias = o->bias + row->channel + first;
        (void)i1, (void)n1, (void)scale, (void)bias;
#ifdef WINDOW_PREPARE
        WINDOW_PREPARE
#endif
        for (int window = 0; window < row->windows; window += WINDOWS_TOGETHER) {
            /* The last ones are computed twice. */
            const int last = row->windows - WINDOWS_TOGETHER, begin = window < last ? window : last;
            const char *upper = row->staged + begin * 2 * PIXEL, *b = (const char *)row->b + first * STEP;
            char *out = row->out;
            size_t position = begin * row->out_ld + first;
            int unsure = general;
            WINDOW_PRODUCTS
            if (!general) {
                WINDOW_SUMS(WINDOW_FINISH)
            }
            if (__builtin_expect(unsure, general)) {
                int32_t sums[WINDOWS_TOGETHER * 4 * LD];
                WINDOW_SUMS(WINDOW_KEEP)
                output(o, sums, LD, 4 * WINDOWS_TOGETHER, left < LD ? left : LD, row->channel + first,
                       out + position * mp_type_bytes(o->out_type), row->out_ld);
            }
        }
    }
    if (narrow) bad = note_bad(bad, round_as(out_type, vf_activate(vf_min(least, vf_set1(0.0f)), activation)));
    vf_store(o->minimum, vf_min_any(minimum, vf_load(o->minimum)));
    vf_store(o->maximum, vf_max_any(maximum, vf_load(o->maximum)));
    vf_store(o->bad, vf_add(bad, vf_load(o->bad)));
}

static void WINDOW_NAME(mp_output *o, const mp_window_row *row)
{
#define ROW(TYPE, ACTIVATION) WINDOW_ROW(o, ACTIVATION, TYPE, 0, row)
    const int fast = never_falls(o->activation) &&
                     (WINDOW_FLOAT || (o->rising && (o->out_type == MP_TYPE_F32 || o->out_type == MP_TYPE_I8)));
    if (!fast || (!mp_is_real(o->out_type) && (o->out_type != MP_TYPE_I8 || o->rounding != MP_HALF_TO_EVEN)))
        WINDOW_ROW(o, MP_LINEAR, MP_TYPE_F32, 1, row);
    else if (o->activation == MP_LEAKY)
        BY_OUT_TYPE(ROW, MP_LEAKY);
    else
        BY_OUT_TYPE(ROW, o->activation);
#undef ROW
}
#undef WINDOW_ROW
#undef WINDOW_SUM
#undef WINDOW_LOAD
#undef WINDOW_STORE
#undef WINDOW_FLOAT
#undef WINDOW_OPAQUE
#undef WINDOW_BEGINS
#undef WINDOW_STAYS
#undef WINDOW_NAME
#undef WINDOW_BYTES
#undef WINDOW_SPREAD
#undef WINDOW_MAC
#undef WINDOW_DECLARE
#undef WINDOW_LEFT
#undef WINDOW_CHANNEL
#undef WINDOW_CHANNEL_0
#undef WINDOW_CHANNEL_1
#undef WINDOW_CHANNEL_2
#undef WINDOW_STEP
#undef WINDOW_KERNEL_ROW
#undef WINDOW_PRODUCTS
#undef WINDOW_LARGEST
#undef WINDOW_FINISH
#undef WINDOW_KEEP
