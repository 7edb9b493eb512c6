/* The output stage of a convolution: sums -> float -> bias -> activation -> range -> stored type. */

static inline vf round_by(vf x, int rounding)
{
    switch (rounding) {
    case MP_HALF_AWAY: return vf_trunc(vf_add(x, vf_copysign(vf_set1(0x1.fffffep-2f), x))); /* the float below 0.5 */
    case MP_TRUNCATE: return vf_trunc(x);
    default: return vf_round(x);
    }
}

/* A value that is not finite leaves bits here: x - x is 0 otherwise. */
static inline vf note_bad(vf bad, vf x) { return vf_or(bad, vf_sub(x, x)); }

static inline __attribute__((always_inline)) void
output_rows(mp_output *o, const int kind, const int activation, const int out_type, const int32_t *acc, size_t acc_ld,
            int rows, int channels, int channel, char *out, size_t out_ld)
{
    vf minimum = vf_load(o->minimum), maximum = vf_load(o->maximum), bad = vf_load(o->bad);
    const float *bias = o->bias + channel, *scale = o->scale + channel;
    const vf inv_scale = vf_set1(o->inv_scale), low = vf_set1(o->low), high = vf_set1(o->high);
    const vf zero_point = vf_set1(o->zero_point);
    for (int c = 0; c < channels; c += VL) {
        const int n = channels - c < VL ? channels - c : VL;
        for (int r = 0; r < rows; r++) {
            const int32_t *from = acc + r * acc_ld + c;
            vf x;
            if (kind == MP_SUM_INT)
                x = vf_fma(vf_load_i32(from), vf_load(scale + c), vf_load(bias + c));
            else if (kind == MP_SUM_HALF)
                x = vf_add(vf_load((const float *)from), vf_load(bias + c));
            else
                x = vf_load((const float *)from);
            if (n < VL)
                x = vf_keep_n(x, n);
            bad = note_bad(bad, x);
            x = vf_activate(x, activation);
            minimum = vf_min(x, minimum);
            maximum = vf_max(x, maximum);
            const size_t at = r * out_ld + c;
            if (out_type == MP_TYPE_F32) {
                float *to = (float *)out + at;
                if (n == VL)
                    vf_store(to, x);
                else
                    vf_store_n(to, x, n);
            } else if (out_type == MP_TYPE_F16) {
                uint16_t *to = (uint16_t *)out + at;
                const vf half = vf_round_half(x);
                bad = note_bad(bad, half);
                if (n == VL)
                    vf_store_half(to, half);
                else
                    vf_store_half_n(to, half, n);
            } else {
                int8_t *to = (int8_t *)out + at;
                const vf t = vf_min(vf_max(vf_mul(x, inv_scale), low), high);
                const vf q = vf_add(round_by(t, o->rounding), zero_point);
                if (n == VL)
                    vf_store_s8(to, q);
                else
                    vf_store_s8_n(to, q, n);
            }
        }
    }
    vf_store(o->minimum, minimum);
    vf_store(o->maximum, maximum);
    vf_store(o->bad, bad);
}

#define OUTPUT_CASE(KIND, ACTIVATION, TYPE)                                                                            \
    output_rows(o, KIND, ACTIVATION, TYPE, acc, acc_ld, rows, channels, channel, out, out_ld)
#define OUTPUT_TYPES(KIND, ACTIVATION)                                                                                 \
    do {                                                                                                               \
        if (o->out_type == MP_TYPE_F32)                                                                                \
            OUTPUT_CASE(KIND, ACTIVATION, MP_TYPE_F32);                                                                \
        else if (o->out_type == MP_TYPE_F16)                                                                           \
            OUTPUT_CASE(KIND, ACTIVATION, MP_TYPE_F16);                                                                \
        else                                                                                                           \
            OUTPUT_CASE(KIND, ACTIVATION, MP_TYPE_I8);                                                                 \
    } while (0)
#define OUTPUT_ACTIVATIONS(KIND)                                                                                       \
    do {                                                                                                               \
        if (o->activation == MP_LINEAR)                                                                                \
            OUTPUT_TYPES(KIND, MP_LINEAR);                                                                             \
        else if (o->activation == MP_LEAKY)                                                                            \
            OUTPUT_TYPES(KIND, MP_LEAKY);                                                                              \
        else                                                                                                           \
            OUTPUT_TYPES(KIND, o->activation);                                                                         \
    } while (0)

static void output(mp_output *o, const void *acc, size_t acc_ld, int rows, int channels, int channel, void *out,
                   size_t out_ld)
{
    if (o->kind == MP_SUM_FLOAT)
        OUTPUT_ACTIVATIONS(MP_SUM_FLOAT);
    else if (o->kind == MP_SUM_INT)
        OUTPUT_ACTIVATIONS(MP_SUM_INT);
    else
        OUTPUT_TYPES(MP_SUM_HALF, o->activation);
}
#undef OUTPUT_CASE
#undef OUTPUT_TYPES
#undef OUTPUT_ACTIVATIONS
