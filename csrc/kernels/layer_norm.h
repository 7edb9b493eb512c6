/* SPDX-License-Identifier: MIT */
/* Values less their mean, over their deviation. A row's sums have one order, so that four rows go side by side. */

#include "../half.h"

#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)

static inline __attribute__((always_inline)) void standardize(const void *x, void *out, const int type, const int rows,
                                                              size_t row, size_t length, float epsilon)
{
    double sum0 = 0.0, sum1 = 0.0, sum2 = 0.0, sum3 = 0.0, squares0 = 0.0, squares1 = 0.0, squares2 = 0.0,
           squares3 = 0.0;
    const double count = (double)length;
#define STEP(I)                                                                                                        \
    if (I < rows) sum##I += mp_real_at(x, I * row + i, type);
    for (size_t i = 0; i < length; i++) {
        EACH_ROW(STEP)
    }
#undef STEP
    const double mean0 = sum0 / count, mean1 = sum1 / count, mean2 = sum2 / count, mean3 = sum3 / count;
#define STEP(I)                                                                                                        \
    if (I < rows) {                                                                                                    \
        const double centred = mp_real_at(x, I * row + i, type) - mean##I;                                             \
        squares##I += centred * centred;                                                                               \
    }
    for (size_t i = 0; i < length; i++) {
        EACH_ROW(STEP)
    }
#undef STEP
#define BODY(AT, N)                                                                                                    \
    store_as(out, from + AT, type,                                                                                     \
             vd_narrow(vd_div(vd_sub(vd_widen(load_as(x, from + AT, type, N)), mean), deviation)), N)
#define STEP(I)                                                                                                        \
    if (I < rows) {                                                                                                    \
        const size_t from = I * row;                                                                                   \
        const vd mean = vd_set1(mean##I), deviation = vd_set1(sqrt(squares##I / count + epsilon));                     \
        FOR_VECTORS(length, BODY);                                                                                     \
    }
    EACH_ROW(STEP)
#undef STEP
#undef BODY
}
#undef EACH_ROW

static void layer_norm(const void *x, void *out, int type, size_t rows, size_t row, size_t length, float epsilon)
{
    const size_t bytes = row * mp_type_bytes(type);
    for (size_t r = 0; r < rows;) {
        const char *from = (const char *)x + r * bytes;
        char *to = (char *)out + r * bytes;
#define FOUR(TYPE) standardize(from, to, TYPE, 4, row, length, epsilon)
#define ONE(TYPE) standardize(from, to, TYPE, 1, row, length, epsilon)
        if (rows - r >= 4)
            BY_REAL_TYPE(type, FOUR);
        else
            BY_REAL_TYPE(type, ONE);
        r += rows - r >= 4 ? 4 : 1;
#undef FOUR
#undef ONE
    }
}
