/* The manifest's text, both ways. See manifest.h. */
#include "checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/out_file.h"

static const char FORMAT[] = "halley checkpoint";
static const char SEAL[] =
    ",\n  \"manifest_xxh3\": \""; /* everything before it is what the checksum covers */

bool hl_plain_name(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof((struct hl_manifest_file *)0)->name) return false;
    if (!strcmp(name, ".") || !strcmp(name, "..")) return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20) return false;
    return true;
}

const struct hl_manifest_file *hl_manifest_find(const struct hl_manifest *manifest,
                                                const char *name) {
    for (int i = 0; i < manifest->n_files; i++)
        if (!strcmp(manifest->files[i].name, name)) return &manifest->files[i];
    return NULL;
}

void hl_manifest_print(const struct hl_manifest *manifest, const char *made_with_json,
                       struct hl_buf *out) {
    size_t start = out->n;
    hl_buf_printf(out, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n", FORMAT,
                  HL_MANIFEST_VERSION);
    hl_buf_printf(out, "  \"serial\": %" PRId64 ",\n  \"step\": %" PRId64 ",\n  \"files\": [",
                  manifest->serial, manifest->step);
    for (int i = 0; i < manifest->n_files; i++) {
        const struct hl_manifest_file *file = &manifest->files[i];
        hl_buf_puts(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        hl_buf_json_string(out, file->name);
        hl_buf_printf(out, ", \"bytes\": %" PRId64 ", \"xxh3\": \"%016" PRIx64 "\"}", file->bytes,
                      file->xxh3);
    }
    hl_buf_puts(out, "\n  ],\n  \"made_with\": ");
    hl_buf_puts(out, made_with_json && *made_with_json ? made_with_json : "{}");
    if (out->failed) return;
    uint64_t seal = hl_text_xxh3(out->data + start, out->n - start);
    hl_buf_printf(out, "%s%016" PRIx64 "\"\n}\n", SEAL, seal);
}

/* ---- reading ---- */

struct parser {
    const char *file;
    struct hl_diag *diag;
};

static enum hl_status bad(const struct parser *p, const char *what) {
    return hl_fail_at(p->diag, HL_E_FORMAT, p->file, 0, 0,
                      "%s; the checkpoint is damaged, take an older one", what);
}

static bool parse_hex(const char *text, uint64_t *out) {
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static const char *find_last(const char *text, size_t n, const char *what) {
    size_t length = strlen(what);
    for (size_t i = n < length ? 0 : n - length + 1; i-- > 0;)
        if (!memcmp(text + i, what, length)) return text + i;
    return NULL;
}

static enum hl_status check_seal(const struct parser *p, const char *text, size_t n,
                                 const json_t *root) {
    const char *seal = find_last(text, n, SEAL);
    uint64_t want;
    if (!seal || !parse_hex(json_string_value(json_object_get(root, "manifest_xxh3")), &want))
        return bad(p, "manifest_xxh3 is missing");
    if (hl_text_xxh3(text, (size_t)(seal - text)) != want)
        return bad(p, "the manifest's checksum does not match its text");
    return HL_OK;
}

static enum hl_status parse_file(const struct parser *p, const json_t *row,
                                 struct hl_manifest *manifest) {
    struct hl_manifest_file *file = &manifest->files[manifest->n_files];
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *bytes = json_object_get(row, "bytes");
    if (!name || !hl_plain_name(name))
        return bad(p, "a file's name is missing or leads out of the folder");
    if (hl_manifest_find(manifest, name)) return bad(p, "a file is listed twice");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return bad(p, "a file's size is missing");
    if (!parse_hex(json_string_value(json_object_get(row, "xxh3")), &file->xxh3))
        return bad(p, "a file's checksum is missing");
    file->bytes = json_integer_value(bytes);
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    manifest->n_files++;
    return HL_OK;
}

static enum hl_status parse_root(const struct parser *p, const json_t *root,
                                 struct hl_manifest *out) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version"),
                 *files = json_object_get(root, "files");
    if (!format || strcmp(format, FORMAT) != 0) return bad(p, "this is not a Halley manifest");
    if (!json_is_integer(version)) return bad(p, "version is missing");
    if (json_integer_value(version) != HL_MANIFEST_VERSION)
        return hl_fail_at(
            p->diag, HL_E_UNSUPPORTED, p->file, 0, 0,
            "checkpoint version %lld; this Halley reads version %d: use a newer Halley",
            (long long)json_integer_value(version), HL_MANIFEST_VERSION);
    const json_t *serial = json_object_get(root, "serial"), *step = json_object_get(root, "step");
    if (!json_is_integer(serial) || json_integer_value(serial) < 1)
        return bad(p, "serial is missing");
    if (!json_is_integer(step) || json_integer_value(step) < 0) return bad(p, "step is missing");
    out->serial = json_integer_value(serial);
    out->step = json_integer_value(step);
    if (!json_is_array(files)) return bad(p, "files is missing");
    if (json_array_size(files) > HL_MANIFEST_MAX_FILES) return bad(p, "too many files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        enum hl_status status = parse_file(p, json_array_get(files, i), out);
        if (status) return status;
    }
    return HL_OK;
}

static enum hl_status copy_made_with(struct hl_mem *mem, const json_t *root, char **out,
                                     struct hl_diag *diag) {
    const json_t *made_with = json_object_get(root, "made_with");
    char *text = json_is_object(made_with) ? json_dumps(made_with, JSON_SORT_KEYS) : NULL;
    *out = hl_strdup(mem, text ? text : "{}");
    free(text);
    return *out ? HL_OK : hl_fail_memory(diag, 1, "a manifest");
}

enum hl_status hl_manifest_parse(struct hl_mem *mem, const char *text, size_t n, const char *file,
                                 struct hl_manifest *out, char **made_with_out,
                                 struct hl_diag *diag) {
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return hl_fail_at(diag, HL_E_FORMAT, file, error.line, error.column,
                          "%s; the checkpoint is damaged, take an older one", error.text);
    struct parser p = {file, diag};
    struct hl_manifest manifest = {0};
    enum hl_status status = parse_root(&p, root, &manifest);
    if (!status) status = check_seal(&p, text, n, root);
    if (!status && made_with_out) status = copy_made_with(mem, root, made_with_out, diag);
    json_decref(root);
    if (!status) *out = manifest;
    return status;
}

static enum hl_status check_sizes(struct hl_fs *fs, const char *folder,
                                  const struct hl_manifest *manifest, struct hl_diag *diag) {
    for (int i = 0; i < manifest->n_files; i++) {
        const struct hl_manifest_file *file = &manifest->files[i];
        char path[HL_PATH_CAPACITY];
        if (!hl_path_join(path, folder, file->name))
            return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", folder);
        int64_t bytes = fs->size(fs, path);
        if (bytes < 0 && errno != ENOENT)
            return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot read: %m");
        if (bytes < 0)
            return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                              "missing; the checkpoint is damaged, take an older one");
        if (bytes != file->bytes)
            return hl_fail_at(
                diag, HL_E_FORMAT, path, 0, 0,
                "%lld bytes instead of %lld; the checkpoint is damaged, take an older one",
                (long long)bytes, (long long)file->bytes);
    }
    return HL_OK;
}

enum hl_status hl_manifest_read(struct hl_mem *mem, struct hl_fs *fs, const char *folder,
                                struct hl_manifest *out, char **made_with_out,
                                struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (!hl_path_join(path, folder, HL_MANIFEST_NAME))
        return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", folder);
    if (fs->size(fs, path) < 0 && errno == ENOENT) return HL_END;
    char *text, *made_with = NULL;
    size_t n;
    enum hl_status status = hl_fs_read_text(mem, fs, path, HL_MANIFEST_MAX_BYTES, &text, &n, diag);
    if (status) return status;
    struct hl_manifest manifest;
    status =
        hl_manifest_parse(mem, text, n, path, &manifest, made_with_out ? &made_with : NULL, diag);
    hl_free(mem, text);
    if (!status) status = check_sizes(fs, folder, &manifest, diag);
    if (status) {
        hl_free(mem, made_with);
        return status;
    }
    *out = manifest;
    if (made_with_out) *made_with_out = made_with;
    return HL_OK;
}
