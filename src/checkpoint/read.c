/* Opening a checkpoint folder, ours or a Hugging Face one, and its small files. The weights:
 * read_params.c. */
#include "checkpoint/reader.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "checkpoint/config_json.h"
#include "checkpoint/out_file.h"

enum { MAX_TEXT = 256 << 20 };

static bool is_there(const struct hl_checkpoint_reader *r, const char *name) {
    char path[HL_PATH_CAPACITY];
    return hl_path_join(path, r->folder, name) && r->fs->size(r->fs, path) >= 0;
}

static enum hl_status read_text(struct hl_checkpoint_reader *r, const char *name, char **out,
                                struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (!hl_path_join(path, r->folder, name))
        return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", r->folder);
    return hl_fs_read_text(r->mem, r->fs, path, MAX_TEXT, out, NULL, diag);
}

/* ---- the manifest ---- */

static enum hl_status verify(struct hl_checkpoint_reader *r, const struct hl_manifest *manifest,
                             struct hl_diag *diag) {
    for (int i = 0; i < manifest->n_files; i++) {
        const struct hl_manifest_file *file = &manifest->files[i];
        char path[HL_PATH_CAPACITY];
        if (!hl_path_join(path, r->folder, file->name))
            return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", r->folder);
        uint64_t xxh3;
        enum hl_status status = hl_file_xxh3(r->mem, r->fs, path, &xxh3, diag);
        if (status) return status;
        if (xxh3 != file->xxh3)
            return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                              "the content is not what was saved (checksum); take an older "
                              "checkpoint, or, if it was changed "
                              "on purpose, delete manifest.json and import the folder as a model");
    }
    return HL_OK;
}

static enum hl_status read_manifest(struct hl_checkpoint_reader *r, struct hl_diag *diag) {
    struct hl_manifest *manifest = hl_alloc(r->mem, 1, sizeof *manifest);
    if (!manifest) return hl_fail_memory(diag, sizeof *manifest, "a manifest");
    enum hl_status status =
        hl_manifest_read(r->mem, r->fs, r->folder, manifest, &r->made_with_json, diag);
    if (!status) status = verify(r, manifest, diag);
    if (!status)
        r->has_state = hl_manifest_find(manifest, "state.safetensors") &&
                       hl_manifest_find(manifest, "loop.json");
    hl_free(r->mem, manifest);
    return status == HL_END ? HL_OK : status;
}

/* ---- weights: one file, or an index of several ---- */

static enum hl_status open_weights(struct hl_checkpoint_reader *r, const char *name,
                                   struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (!hl_path_join(path, r->folder, name))
        return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", r->folder);
    struct hl_st_file *grown = hl_realloc(r->mem, r->files, (size_t)r->n_files + 1, sizeof *grown);
    if (!grown) return hl_fail_memory(diag, sizeof *grown, "a weight file");
    r->files = grown;
    enum hl_status status = hl_st_open(r->mem, r->fs, path, &r->files[r->n_files], diag);
    if (!status) r->n_files++;
    return status;
}

static bool is_open(const struct hl_checkpoint_reader *r, const char *name) {
    for (int i = 0; i < r->n_files; i++) {
        const char *slash = strrchr(r->files[i].path, '/');
        if (!strcmp(slash ? slash + 1 : r->files[i].path, name)) return true;
    }
    return false;
}

static enum hl_status open_index(struct hl_checkpoint_reader *r, const json_t *root,
                                 const char *file, struct hl_diag *diag) {
    const json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0, "weight_map is missing");
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || !hl_plain_name(name))
            return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0,
                              "tensor '%.80s' lies in a file whose name leads out of the folder",
                              tensor);
        if (is_open(r, name)) continue;
        enum hl_status status = open_weights(r, name, diag);
        if (status) return status;
    }
    return HL_OK;
}

/* Each tensor must lie in the file that the index names, and nowhere else. */
static enum hl_status check_index(const struct hl_checkpoint_reader *r, const json_t *root,
                                  const char *file, struct hl_diag *diag) {
    const json_t *map = json_object_get(root, "weight_map");
    size_t n_found = 0;
    for (int i = 0; i < r->n_files; i++) {
        const char *slash = strrchr(r->files[i].path, '/');
        const struct hl_st_table *table = &r->files[i].table;
        for (int t = 0; t < table->n_tensors; t++, n_found++) {
            const char *said = json_string_value(json_object_get(map, table->tensors[t].name));
            if (!said || strcmp(said, slash ? slash + 1 : r->files[i].path) != 0)
                return hl_fail_at(diag, HL_E_FORMAT, r->files[i].path, 0, 0,
                                  "tensor '%.80s' is here, but the index says '%.80s'",
                                  table->tensors[t].name, said ? said : "nothing");
        }
    }
    if (n_found != json_object_size(map))
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0,
                          "the index names %zu tensors, the files hold %zu", json_object_size(map),
                          n_found);
    return HL_OK;
}

static enum hl_status read_index(struct hl_checkpoint_reader *r, struct hl_diag *diag) {
    static const char NAME[] = "model.safetensors.index.json";
    char *text;
    enum hl_status status = read_text(r, NAME, &text, diag);
    if (status) return status;
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        status = hl_fail_at(diag, HL_E_FORMAT, NAME, error.line, error.column, "%s", error.text);
    if (!status) status = open_index(r, root, NAME, diag);
    if (!status) status = check_index(r, root, NAME, diag);
    json_decref(root);
    hl_free(r->mem, text);
    return status;
}

static enum hl_status read_weight_headers(struct hl_checkpoint_reader *r, struct hl_diag *diag) {
    if (is_there(r, "model.safetensors")) return open_weights(r, "model.safetensors", diag);
    if (is_there(r, "model.safetensors.index.json")) return read_index(r, diag);
    if (is_there(r, "pytorch_model.bin") || is_there(r, "pytorch_model.bin.index.json"))
        return hl_fail_at(diag, HL_E_UNSUPPORTED, r->folder, 0, 0,
                          "the weights are PyTorch pickles; convert them to safetensors first "
                          "(save_pretrained does)");
    return hl_fail_at(diag, HL_E_FORMAT, r->folder, 0, 0, "holds no model.safetensors");
}

/* ---- the calls ---- */

static enum hl_status open_all(struct hl_checkpoint_reader *r, struct hl_diag *diag) {
    if (!is_there(r, "config.json"))
        return hl_fail_at(diag, HL_E_USER, r->folder, 0, 0,
                          "holds no config.json: this is not a checkpoint or model folder");
    enum hl_status status = read_manifest(r, diag);
    if (status) return status;
    char *config = NULL, path[HL_PATH_CAPACITY];
    status = read_text(r, "config.json", &config, diag);
    if (status) return status;
    if (!hl_path_join(path, r->folder, "config.json")) path[0] = 0;
    status = hl_config_json_read(config, path, &r->config, r->log, diag);
    hl_free(r->mem, config);
    if (!status) status = read_weight_headers(r, diag);
    if (!status && r->has_state) {
        status = read_text(r, "loop.json", &r->loop_json, diag);
        if (!status && hl_path_join(path, r->folder, "state.safetensors"))
            status = hl_st_open(r->mem, r->fs, path, &r->state, diag);
    }
    if (!status && r->made_with_json && is_there(r, "run.yaml"))
        status = read_text(r, "run.yaml", &r->run_yaml, diag);
    return status;
}

enum hl_status hl_checkpoint_open(struct hl_mem *mem, struct hl_fs *fs, const char *folder,
                                  struct hl_checkpoint_reader **out, struct hl_log *log,
                                  struct hl_diag *diag) {
    struct hl_checkpoint_reader *r = hl_alloc(mem, 1, sizeof *r);
    if (!r) return hl_fail_memory(diag, sizeof *r, "reading a checkpoint");
    *r = (struct hl_checkpoint_reader){
        .mem = mem, .fs = fs, .log = log, .state = {.table = {.mem = mem}}};
    r->folder = hl_strdup(mem, folder);
    enum hl_status status =
        r->folder ? open_all(r, diag) : hl_fail_memory(diag, strlen(folder) + 1, "a path");
    if (status) hl_checkpoint_close(r);
    else *out = r;
    return status;
}

void hl_checkpoint_close(struct hl_checkpoint_reader *r) {
    if (!r) return;
    for (int i = 0; i < r->n_files; i++) hl_st_close(&r->files[i]);
    hl_st_close(&r->state);
    struct hl_mem *mem = r->mem;
    hl_free(mem, r->files);
    hl_free(mem, r->folder);
    hl_free(mem, r->loop_json);
    hl_free(mem, r->made_with_json);
    hl_free(mem, r->run_yaml);
    hl_free(mem, r);
}

const struct hl_model_config *hl_checkpoint_config(const struct hl_checkpoint_reader *r) {
    return &r->config;
}
bool hl_checkpoint_has_state(const struct hl_checkpoint_reader *r) { return r->has_state; }
const char *hl_checkpoint_loop_json(const struct hl_checkpoint_reader *r) { return r->loop_json; }
const char *hl_checkpoint_made_with_json(const struct hl_checkpoint_reader *r) {
    return r->made_with_json;
}
const char *hl_checkpoint_run_yaml(const struct hl_checkpoint_reader *r) { return r->run_yaml; }
