/* SPDX-License-Identifier: MIT */
/* The most that a level can multiply: chains that do not wait for each other, in registers, with nothing to load. */
static float multiply_adds(const float *start, int64_t rounds)
{
    const vf factor = vf_set1(0.999f), term = vf_set1(1e-3f);
    /* Named, since gcc keeps an array on the stack. Twelve cover latency times ports of every CPU that a level stands for. */
    vf a = vf_load(start + 0 * VL), b = vf_load(start + 1 * VL), c = vf_load(start + 2 * VL),
       d = vf_load(start + 3 * VL);
    vf e = vf_load(start + 4 * VL), f = vf_load(start + 5 * VL), g = vf_load(start + 6 * VL),
       h = vf_load(start + 7 * VL);
    vf i = vf_load(start + 8 * VL), j = vf_load(start + 9 * VL), k = vf_load(start + 10 * VL),
       l = vf_load(start + 11 * VL);
    for (int64_t round = 0; round < rounds; round++) {
        a = vf_fma(a, factor, term);
        b = vf_fma(b, factor, term);
        c = vf_fma(c, factor, term);
        d = vf_fma(d, factor, term);
        e = vf_fma(e, factor, term);
        f = vf_fma(f, factor, term);
        g = vf_fma(g, factor, term);
        h = vf_fma(h, factor, term);
        i = vf_fma(i, factor, term);
        j = vf_fma(j, factor, term);
        k = vf_fma(k, factor, term);
        l = vf_fma(l, factor, term);
    }
    float lanes[VL];
    const vf first = vf_add(vf_add(a, b), vf_add(c, d)), second = vf_add(vf_add(e, f), vf_add(g, h));
    vf_store(lanes, vf_add(vf_add(first, second), vf_add(vf_add(i, j), vf_add(k, l))));
    return lanes[0];
}
