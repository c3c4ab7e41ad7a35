/* A safetensors file from any bytes: refused, or every tensor lies inside the file and can be read.
 */
#include <stdlib.h>

#include "checkpoint/safetensors.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    int64_t length;
    struct hl_diag diag;
    struct hl_st_table table;
    if (hl_st_header_bytes(data, n < HL_ST_PREFIX ? n : HL_ST_PREFIX, (int64_t)n, "fuzz", &length,
                           &diag))
        return 0;
    if (length < 2 || (size_t)length > n - HL_ST_PREFIX) abort();
    if (hl_st_parse(hl_mem_default(), (const char *)data + HL_ST_PREFIX, (size_t)length, (int64_t)n,
                    "fuzz", &table, &diag))
        return 0;
    int64_t sum = HL_ST_PREFIX + length;
    for (int i = 0; i < table.n_tensors; i++) {
        const struct hl_st_tensor *t = &table.tensors[i];
        if (t->begin < HL_ST_PREFIX + length || t->bytes < 0 || t->begin + t->bytes > (int64_t)n)
            abort();
        if (t->dtype == HL_ST_F32 && t->n * 4 != t->bytes) abort();
        sum += t->bytes;
    }
    if (sum != (int64_t)n) abort();
    hl_st_table_free(&table);
    return 0;
}
