/* See collective_case.h. */
#include "collective_case.h"

float case_element(int64_t i, int r) {
    uint32_t x = (uint32_t)(i * 2654435761u) ^ ((uint32_t)r * 40503u * 65537u);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x & 0xffff) - 32768.0f) * (1.0f / (float)(1 << (x >> 28)));
}
static float rounded(float x) { return hl_bf16_to_f32(hl_bf16_from_f32(x)); }

static float sum_from(int64_t i, int64_t shift, int n_ranks, enum hl_dtype wire) {
    float sum = wire ? rounded(case_element(i + shift, 0)) : case_element(i + shift, 0);
    for (int r = 1; r < n_ranks; r++)
        sum += wire ? rounded(case_element(i + shift, r)) : case_element(i + shift, r);
    return wire ? rounded(sum) : sum;
}
float case_sum_of(int64_t i, int n_ranks, enum hl_dtype wire) {
    return sum_from(i, 0, n_ranks, wire);
}

static int owner(int64_t i, int64_t n, int n_ranks) {
    for (int r = 0; r < n_ranks; r++) {
        struct hl_range s = hl_slice(n, HL_SLICE_UNIT, r, n_ranks);
        if (i >= s.offset && i < s.offset + s.n) return r;
    }
    return -1;
}

float case_expected(const struct hl_collective_args *a, int64_t i, int r, int n_ranks) {
    return case_expected_from(a, i, 0, r, n_ranks);
}

float case_expected_from(const struct hl_collective_args *a, int64_t i, int64_t shift, int r,
                         int n_ranks) {
    int o = owner(i, a->n, n_ranks);
    bool own = o == r, root = r == a->root;
    float moved =
        a->wire && !own ? rounded(case_element(i + shift, o)) : case_element(i + shift, o);
    switch (a->kind) {
    case HL_ALL_REDUCE: return sum_from(i, shift, n_ranks, n_ranks > 1 ? a->wire : HL_F32);
    case HL_REDUCE_SCATTER:
        return own ? sum_from(i, shift, n_ranks, n_ranks > 1 ? a->wire : HL_F32)
                   : case_element(i + shift, r);
    case HL_REDUCE:
        return own || root ? sum_from(i, shift, n_ranks, n_ranks > 1 ? a->wire : HL_F32)
                           : case_element(i + shift, r);
    case HL_ALL_GATHER: return moved;
    case HL_GATHER: return root ? moved : case_element(i + shift, r);
    case HL_BROADCAST:
        return root || !a->wire ? case_element(i + shift, a->root)
                                : rounded(case_element(i + shift, a->root));
    case HL_SCATTER:
        if (!own) return case_element(i + shift, r);
        return root || !a->wire ? case_element(i + shift, a->root)
                                : rounded(case_element(i + shift, a->root));
    default: return 0;
    }
}
