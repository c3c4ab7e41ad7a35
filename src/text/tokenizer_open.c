/* Opening a tokenizer by name or path. See halley/data.h. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "os/map.h"
#include "text/tokenizer_internal.h"

static enum hl_status open_file(struct hl_mem *mem, const char *path, struct hl_tokenizer **out,
                                struct hl_diag *diag) {
    struct hl_map map;
    enum hl_status status = hl_map_open(path, &map, diag);
    if (status != HL_OK) return status;
    if (map.n_bytes == 0) status = hl_fail_at(diag, HL_E_FORMAT, path, 0, 0, "is empty");
    else status = hl_tokenizer_from_json(mem, map.data, map.n_bytes, path, out, diag);
    hl_map_close(&map);
    return status;
}

static enum hl_status open_folder(struct hl_mem *mem, const char *folder, struct hl_tokenizer **out,
                                  struct hl_diag *diag) {
    struct hl_buf path = {.mem = mem};
    hl_buf_puts(&path, folder);
    hl_buf_puts(&path, "/tokenizer.json");
    enum hl_status status =
        path.failed ? hl_fail_memory(diag, path.n, "a path") : open_file(mem, path.data, out, diag);
    hl_buf_free(&path);
    return status;
}

enum hl_status hl_tokenizer_open(struct hl_mem *mem, const char *name_or_path,
                                 struct hl_tokenizer **out, struct hl_diag *diag) {
    struct stat info;
    if (strcmp(name_or_path, "byte") == 0) return hl_tokenizer_byte(mem, out, diag);
    if (stat(name_or_path, &info) != 0)
        return hl_fail_at(
            diag, errno == ENOENT ? HL_E_USER : HL_E_IO, name_or_path, 0, 0,
            "cannot open: %m; give \"byte\", a tokenizer.json or a folder that holds one");
    return S_ISDIR(info.st_mode) ? open_folder(mem, name_or_path, out, diag)
                                 : open_file(mem, name_or_path, out, diag);
}
