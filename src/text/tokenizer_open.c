/* Opening a tokenizer by name or path. See halley/data.h. */
#include <string.h>

#include "text/tokenizer_internal.h"

enum hl_status hl_tokenizer_open(struct hl_mem *mem, const char *name_or_path,
                                 struct hl_tokenizer **out, struct hl_diag *diag) {
    if (strcmp(name_or_path, "byte") == 0) return hl_tokenizer_byte(mem, out, diag);
    return hl_fail(diag, HL_E_UNSUPPORTED,
                   "%s: reading tokenizer.json comes with the next commit; use byte", name_or_path);
}
