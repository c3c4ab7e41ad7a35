/* A manifest from any bytes: refused, or its names stay in the folder and printing and parsing it
 * again gives the same. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct hl_manifest manifest, again;
    struct hl_diag diag;
    char *made_with;
    if (hl_manifest_parse(hl_mem_default(), (const char *)data, n, "fuzz", &manifest, &made_with,
                          &diag))
        return 0;
    for (int i = 0; i < manifest.n_files; i++)
        if (!hl_plain_name(manifest.files[i].name)) abort();
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_manifest_print(&manifest, made_with, &text);
    if (hl_manifest_parse(hl_mem_default(), text.data, text.n, "again", &again, NULL, &diag))
        abort();
    if (again.n_files != manifest.n_files || again.serial != manifest.serial ||
        again.step != manifest.step)
        abort();
    hl_buf_free(&text);
    hl_free(hl_mem_default(), made_with);
    return 0;
}
