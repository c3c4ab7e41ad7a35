/* The tables of kernels, one per instruction set and compute type, and the choice between them.
 * They are composed once, before main, and never written again: no lock is needed and no first call
 * is slow. */
#include "kernels/table.h"

#include <stdlib.h>
#include <string.h>

enum { N_ISAS = 4, N_DTYPES = 2 };

static struct hl_kernels tables[N_ISAS][N_DTYPES]; /* written by compose_all only */
static const char *const isa_names[N_ISAS] = {"ref", "avx2", "avx512", "avx512bf16"};

/* The processor's flags and the operating system's consent to save its registers. */
static bool processor_has(enum hl_isa isa) {
#if defined(__x86_64__)
    if (isa == HL_ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == HL_ISA_AVX512)
        return processor_has(HL_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (isa == HL_ISA_AVX512BF16)
        return processor_has(HL_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
    return isa == HL_ISA_REF;
}

static void compose(struct hl_kernels *k, enum hl_isa isa, enum hl_dtype dtype) {
    *k = (struct hl_kernels){.isa = isa, .dtype = dtype};
    hl_rows_fill_ref(k);
    hl_updates_fill_ref(k);
    hl_attention_fill_ref(k);
#if defined(__x86_64__)
    if (isa >= HL_ISA_AVX2) {
        hl_rows_fill_avx2(k);
        hl_updates_fill_avx2(k);
        hl_attention_fill_avx2(k);
    }
    if (isa >= HL_ISA_AVX512) {
        hl_rows_fill_avx512(k);
        hl_updates_fill_avx512(k);
        hl_attention_fill_avx512(k);
    }
#endif
}

__attribute__((constructor)) static void compose_all(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (int isa = 0; isa < N_ISAS; isa++)
        for (int dtype = 0; dtype < N_DTYPES; dtype++)
            if (processor_has((enum hl_isa)isa))
                compose(&tables[isa][dtype], (enum hl_isa)isa, (enum hl_dtype)dtype);
}

const char *hl_isa_name(enum hl_isa isa) { return isa_names[isa]; }

enum hl_status hl_kernels_of(enum hl_isa isa, enum hl_dtype dtype, const struct hl_kernels **out,
                             struct hl_diag *diag) {
    if (!processor_has(isa))
        return hl_fail(diag, HL_E_USER,
                       "this processor has no %s kernels; choose HALLEY_ISA=ref or leave it out",
                       hl_isa_name(isa));
    *out = &tables[isa][dtype];
    return HL_OK;
}

enum hl_status hl_kernels_get(enum hl_dtype dtype, const struct hl_kernels **out,
                              struct hl_diag *diag) {
    const char *wanted = getenv("HALLEY_ISA");
    if (!wanted || !*wanted) {
        int best = N_ISAS - 1;
        while (!processor_has((enum hl_isa)best)) best--;
        return hl_kernels_of((enum hl_isa)best, dtype, out, diag);
    }
    for (int isa = 0; isa < N_ISAS; isa++)
        if (strcmp(wanted, isa_names[isa]) == 0)
            return hl_kernels_of((enum hl_isa)isa, dtype, out, diag);
    return hl_fail(diag, HL_E_USER,
                   "HALLEY_ISA: there is no instruction set \"%s\"; use ref, avx2, avx512 or "
                   "avx512bf16, or leave it out",
                   wanted);
}
