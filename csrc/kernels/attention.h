/* SPDX-License-Identifier: MIT */
/* Attention. Queries are the lanes, one or two vectors of them at once, so that every sum of docs/arithmetic.md is a lane's own:
 * the eight of a product, that of the shares, and those of the values, where channels are the lanes. */

enum {
    LONGEST_KEY = 512, /* of those that are turned into lanes */
    ATTENTION_ROOM = (MP_MOST_POSITIONS + LONGEST_KEY + 8) * VL
};

#define EACH_OF_FOUR(DO) DO(0) DO(1) DO(2) DO(3)

/* Of four keys, or four queries, with two vectors. */
typedef struct {
    vf a0, a1, a2, a3, b0, b1, b2, b3;
} eight_sums;

static inline __attribute__((always_inline)) eight_sums no_sums(void)
{
    const vf zero = vf_set1(0.0f);
    return (eight_sums){zero, zero, zero, zero, zero, zero, zero, zero};
}

/* The products of every eighth channel from `first` on. */
static inline __attribute__((always_inline)) eight_sums every_eighth(const float *queries, const float *const *keys,
                                                                     int key, int first, const int vectors)
{
    eight_sums s = no_sums();
    for (int d = first; d < key; d += 8) {
        const float *at = queries + (size_t)d * vectors * VL;
        const vf a = vf_load(at), b = vectors > 1 ? vf_load(at + VL) : a;
#define STEP(I)                                                                                                        \
    {                                                                                                                  \
        const vf k = vf_set1(keys[I][d]);                                                                              \
        s.a##I = vf_add(s.a##I, vf_mul(a, k));                                                                         \
        if (vectors > 1) s.b##I = vf_add(s.b##I, vf_mul(b, k));                                                        \
    }
        EACH_OF_FOUR(STEP)
#undef STEP
    }
    return s;
}

/* Four keys' scores. */
static inline __attribute__((always_inline)) eight_sums four_scores(const float *queries, const float *const *keys,
                                                                    int key, const int vectors)
{
    /* So ordered, the sums that are added to each other follow each other: those of 0 and 4; 2 and 6, and the two; ... */
    static const int8_t order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    eight_sums kept[3], s;
    for (int i = 0, count = 0;; i++) {
        s = every_eighth(queries, keys, key, order[i], vectors);
        for (int level = i; level & 1; level >>= 1) {
            const eight_sums *with = &kept[--count];
#define STEP(I)                                                                                                        \
    s.a##I = vf_add(with->a##I, s.a##I);                                                                               \
    if (vectors > 1) s.b##I = vf_add(with->b##I, s.b##I);
            EACH_OF_FOUR(STEP)
#undef STEP
        }
        if (i == 7) return s;
        kept[count++] = s;
    }
}

/* A key too long to be turned: one score. */
static float score_of(const float *query, const float *key, int count)
{
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f, s4 = 0.0f, s5 = 0.0f, s6 = 0.0f, s7 = 0.0f;
    int d = 0;
    for (; d + 8 <= count; d += 8) {
        const float *q = query + d, *k = key + d;
        s0 = s0 + q[0] * k[0], s1 = s1 + q[1] * k[1], s2 = s2 + q[2] * k[2], s3 = s3 + q[3] * k[3];
        s4 = s4 + q[4] * k[4], s5 = s5 + q[5] * k[5], s6 = s6 + q[6] * k[6], s7 = s7 + q[7] * k[7];
    }
    float sums[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
    for (int k = 0; d + k < count; k++) sums[k] = sums[k] + query[d + k] * key[d + k];
    for (int distance = 4; distance > 0; distance /= 2)
        for (int k = 0; k < distance; k++) sums[k] = sums[k] + sums[k + distance];
    return sums[0];
}

/* Shares of up to vectors * VL queries: of a position vectors * VL side by side. */
static inline __attribute__((always_inline)) float *find_shares(const float *queries, size_t count, const float *keys,
                                                                size_t row, size_t positions, int key, float scale,
                                                                float *room, const int vectors)
{
    const size_t lanes = (size_t)vectors * VL;
    const vf factor = vf_set1(scale), least = vf_set1(-INFINITY);
    float *shares = key > LONGEST_KEY ? room : room + key * lanes;
    vf top_a = least, top_b = least;
    if (key <= LONGEST_KEY)
        for (size_t q = 0; q < lanes; q++)
            for (int d = 0; d < key; d++) room[d * lanes + q] = q < count ? queries[q * row + d] : 0.0f;
    for (size_t j = 0; j < positions; j += 4) {
        float *to = shares + j * lanes;
        const float *four[4];
        for (size_t i = 0; i < 4; i++) four[i] = keys + (j + i < positions ? j + i : positions - 1) * row;
        if (key > LONGEST_KEY) {
            for (size_t i = 0; i < 4; i++)
                for (size_t q = 0; q < lanes; q++)
                    to[i * lanes + q] = score_of(queries + (q < count ? q : 0) * row, four[i], key);
        }
        const eight_sums s = key > LONGEST_KEY ? (eight_sums){vf_load(to),
                                                              vf_load(to + lanes),
                                                              vf_load(to + 2 * lanes),
                                                              vf_load(to + 3 * lanes),
                                                              vf_load(to + lanes - VL),
                                                              vf_load(to + 2 * lanes - VL),
                                                              vf_load(to + 3 * lanes - VL),
                                                              vf_load(to + 4 * lanes - VL)}
                                               : four_scores(room, four, key, vectors);
#define STEP(I)                                                                                                        \
    {                                                                                                                  \
        const vf score = vf_mul(s.a##I, factor);                                                                       \
        vf_store(to + I * lanes, score);                                                                               \
        top_a = vf_max(score, top_a);                                                                                  \
    }                                                                                                                  \
    if (vectors > 1) {                                                                                                 \
        const vf score = vf_mul(s.b##I, factor);                                                                       \
        vf_store(to + I * lanes + VL, score);                                                                          \
        top_b = vf_max(score, top_b);                                                                                  \
    }
        EACH_OF_FOUR(STEP)
#undef STEP
    }
    vd sum_a = vd_set1(0.0), sum_b = sum_a;
    for (size_t j = 0; j < positions; j++) {
        float *at = shares + j * lanes;
        const vf a = vf_exp(vf_sub(vf_load(at), top_a));
        vf_store(at, a);
        sum_a = vd_add(sum_a, vd_widen(a));
        if (vectors > 1) {
            const vf b = vf_exp(vf_sub(vf_load(at + VL), top_b));
            vf_store(at + VL, b);
            sum_b = vd_add(sum_b, vd_widen(b));
        }
    }
    for (size_t j = 0; j < positions; j++) {
        float *at = shares + j * lanes;
        vf_store(at, vd_narrow(vd_div(vd_widen(vf_load(at)), sum_a)));
        if (vectors > 1) vf_store(at + VL, vd_narrow(vd_div(vd_widen(vf_load(at + VL)), sum_b)));
    }
    return shares;
}

/* Values of four queries, or fewer: two vectors of channels, or one, the last of n. */
static inline __attribute__((always_inline)) void four_values(const float *shares, size_t lanes, size_t count,
                                                              const float *values, size_t row, size_t positions,
                                                              float *out, size_t out_row, const int vectors, int n)
{
    const size_t q1 = count > 1 ? 1 : 0, q2 = count > 2 ? 2 : 0, q3 = count > 3 ? 3 : 0;
    const int first_count = vectors > 1 ? VL : n;
    eight_sums s = no_sums();
    for (size_t j = 0; j < positions; j++, shares += lanes, values += row) {
        const vf a = load_as(values, 0, MP_TYPE_F32, first_count),
                 b = vectors > 1 ? load_as(values, VL, MP_TYPE_F32, n) : a;
        const float share0 = shares[0], share1 = shares[q1], share2 = shares[q2], share3 = shares[q3];
#define STEP(I)                                                                                                        \
    {                                                                                                                  \
        const vf share = vf_set1(share##I);                                                                            \
        s.a##I = vf_add(s.a##I, vf_mul(share, a));                                                                     \
        if (vectors > 1) s.b##I = vf_add(s.b##I, vf_mul(share, b));                                                    \
    }
        EACH_OF_FOUR(STEP)
#undef STEP
    }
#define STEP(I)                                                                                                        \
    if (I < count) {                                                                                                   \
        store_as(out + I * out_row, 0, MP_TYPE_F32, s.a##I, first_count);                                              \
        if (vectors > 1) store_as(out + I * out_row, VL, MP_TYPE_F32, s.b##I, n);                                      \
    }
    EACH_OF_FOUR(STEP)
#undef STEP
}

static void attention(const float *queries, size_t count, const float *keys, const float *values, size_t row,
                      size_t positions, int key, int value, float scale, float *out, size_t out_row)
{
    float room[ATTENTION_ROOM];
    for (size_t step; count > 0; count -= step, queries += step * row, out += step * out_row) {
        const int vectors = count > VL && 2 * (positions + key) <= MP_MOST_POSITIONS + LONGEST_KEY ? 2 : 1;
        const size_t lanes = (size_t)vectors * VL;
        step = count < lanes ? count : lanes;
        const float *shares = vectors > 1 ? find_shares(queries, step, keys, row, positions, key, scale, room, 2)
                                          : find_shares(queries, step, keys, row, positions, key, scale, room, 1);
        /* A few channels of all queries, which the next queries then find in the nearest cache. */
        for (int d = 0; d < value; d += 2 * VL)
            for (size_t q = 0; q < step; q += 4) {
                const int left = value - d;
#define VALUES(VECTORS, N)                                                                                             \
    four_values(shares + q, lanes, step - q, values + d, row, positions, out + q * out_row + d, out_row, VECTORS, N)
                if (left >= 2 * VL)
                    VALUES(2, VL);
                else if (left > VL)
                    VALUES(2, left - VL);
                else
                    VALUES(1, left);
#undef VALUES
            }
    }
}
