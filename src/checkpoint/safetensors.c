/* Reading safetensors from hands we do not trust. See safetensors.h. */
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the first bytes say ---- */

static bool begins(const void *first, size_t n, const char *with) {
    size_t length = strlen(with);
    return n >= length && !memcmp(first, with, length);
}

/* Files that people have by mistake where a safetensors file should be. */
static const char *impostor(const void *first, size_t n) {
    if (begins(first, n, "version "))
        return "this is a git-lfs pointer, not the weights; run 'git lfs pull'";
    if (begins(first, n, "<!") || begins(first, n, "<html"))
        return "this is a web page, not the weights; download it again";
    if (begins(first, n, "PK\3\4") || begins(first, n, "\x80\x02"))
        return "this is a PyTorch pickle; convert it to safetensors first";
    if (begins(first, n, "GGUF"))
        return "this is a GGUF file; give the Hugging Face folder with safetensors";
    return NULL;
}

enum hl_status hl_st_header_bytes(const void *first, size_t n, int64_t file_bytes, const char *file,
                                  int64_t *out, struct hl_diag *diag) {
    const char *what = impostor(first, n);
    bool short_file = file_bytes < HL_ST_PREFIX || n < HL_ST_PREFIX;
    uint64_t length = 0;
    for (int i = HL_ST_PREFIX - 1; i >= 0 && !short_file; i--)
        length = length << 8 | ((const unsigned char *)first)[i];
    /* a length that fits may begin with any bytes */
    if (what && (short_file || length > (uint64_t)(file_bytes - HL_ST_PREFIX)))
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0, "%s", what);
    if (short_file)
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0,
                          "%lld bytes are too few for a safetensors file", (long long)file_bytes);
    if (length < 2)
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0, "not safetensors: header length %llu",
                          (unsigned long long)length);
    if (length > (uint64_t)(file_bytes - HL_ST_PREFIX))
        return hl_fail_at(
            diag, HL_E_FORMAT, file, 0, 0,
            "not safetensors, or cut off: the header claims %llu bytes, the file has %lld",
            (unsigned long long)length, (long long)file_bytes);
    if (length > HL_ST_MAX_HEADER)
        return hl_fail_at(diag, HL_E_UNSUPPORTED, file, 0, 0,
                          "header of %llu bytes; at most %d are read", (unsigned long long)length,
                          HL_ST_MAX_HEADER);
    *out = (int64_t)length;
    return HL_OK;
}

/* ---- the header ---- */

static const struct {
    const char *name;
    enum hl_st_dtype dtype;
    int64_t bytes;
} dtypes[] = {
    {"F32", HL_ST_F32, 4},    {"F16", HL_ST_F16, 2},       {"BF16", HL_ST_BF16, 2},
    {"F64", HL_ST_OTHER, 8},  {"I64", HL_ST_OTHER, 8},     {"I32", HL_ST_OTHER, 4},
    {"I16", HL_ST_OTHER, 2},  {"I8", HL_ST_OTHER, 1},      {"U64", HL_ST_OTHER, 8},
    {"U32", HL_ST_OTHER, 4},  {"U16", HL_ST_OTHER, 2},     {"U8", HL_ST_OTHER, 1},
    {"BOOL", HL_ST_OTHER, 1}, {"F8_E4M3", HL_ST_OTHER, 1}, {"F8_E5M2", HL_ST_OTHER, 1},
    {"C64", HL_ST_OTHER, 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

struct parser {
    const char *file;
    int64_t data_start, data_bytes;
    struct hl_diag *diag;
};

static enum hl_status bad(const struct parser *p, const char *name, const char *what) {
    return hl_fail_at(p->diag, HL_E_FORMAT, p->file, 0, 0, "tensor '%.80s': %s", name, what);
}

static enum hl_status parse_shape(const struct parser *p, const char *name, const json_t *shape,
                                  struct hl_st_tensor *out) {
    if (!json_is_array(shape)) return bad(p, name, "shape is not a list");
    size_t n_dims = json_array_size(shape);
    if (n_dims > HL_ST_MAX_DIMS) return bad(p, name, "more than 8 dimensions");
    out->n_dims = (int)n_dims;
    out->n = 1;
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return bad(p, name, "shape holds something else than counts");
        out->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(out->n, out->shape[i], &out->n))
            return bad(p, name, "shape overflows");
    }
    return HL_OK;
}

static enum hl_status parse_offsets(const struct parser *p, const char *name, const json_t *offsets,
                                    int64_t element_bytes, struct hl_st_tensor *out) {
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return bad(p, name, "data_offsets is not a pair of numbers");
    int64_t begin = json_integer_value(json_array_get(offsets, 0)),
            end = json_integer_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin || end > p->data_bytes)
        return hl_fail_at(
            p->diag, HL_E_FORMAT, p->file, 0, 0,
            "tensor '%.80s': bytes %lld to %lld of %lld; the file is damaged or cut off", name,
            (long long)begin, (long long)end, (long long)p->data_bytes);
    int64_t want;
    if (__builtin_mul_overflow(out->n, element_bytes, &want) || want != end - begin)
        return bad(p, name, "shape and dtype do not match the number of bytes");
    out->begin = p->data_start + begin;
    out->bytes = want;
    return HL_OK;
}

static enum hl_status parse_tensor(const struct parser *p, const char *name, const json_t *row,
                                   struct hl_st_tensor *out) {
    if (!json_is_object(row)) return bad(p, name, "not an object");
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    if (!dtype) return bad(p, name, "dtype is missing");
    int d = 0;
    while (d < N_DTYPES && strcmp(dtypes[d].name, dtype) != 0) d++;
    if (d == N_DTYPES)
        return hl_fail_at(p->diag, HL_E_UNSUPPORTED, p->file, 0, 0,
                          "tensor '%.80s': dtype '%.20s' is not known", name, dtype);
    out->dtype = dtypes[d].dtype;
    strcpy(out->dtype_name, dtypes[d].name);
    enum hl_status status = parse_shape(p, name, json_object_get(row, "shape"), out);
    if (status) return status;
    return parse_offsets(p, name, json_object_get(row, "data_offsets"), dtypes[d].bytes, out);
}

static int by_begin(const void *a, const void *b) {
    const struct hl_st_tensor *x = *(const struct hl_st_tensor *const *)a,
                              *y = *(const struct hl_st_tensor *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The tensors must cover the data part exactly: an overlap would make two weights one, a gap could
 * hide anything. */
static enum hl_status check_tiling(struct hl_mem *mem, const struct parser *p,
                                   const struct hl_st_table *table) {
    size_t n = (size_t)table->n_tensors;
    const struct hl_st_tensor **order = hl_alloc(mem, n, sizeof *order);
    if (!order) return hl_fail_memory(p->diag, n * sizeof *order, "a safetensors header");
    for (size_t i = 0; i < n; i++) order[i] = &table->tensors[i];
    qsort(order, n, sizeof *order, by_begin);
    int64_t at = p->data_start;
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (order[i]->begin < at) status = bad(p, order[i]->name, "overlaps the tensor before it");
        else if (order[i]->begin > at)
            status = bad(p, order[i]->name, "leaves a gap behind the tensor before it");
        at = order[i]->begin + order[i]->bytes;
    }
    if (!status && at != p->data_start + p->data_bytes)
        status =
            hl_fail_at(p->diag, HL_E_FORMAT, p->file, 0, 0, "%lld bytes follow the last tensor",
                       (long long)(p->data_start + p->data_bytes - at));
    hl_free(mem, order);
    return status;
}

static enum hl_status parse_all(struct hl_mem *mem, const struct parser *p, json_t *root,
                                struct hl_st_table *table) {
    size_t n = json_object_size(root);
    table->tensors = hl_alloc(mem, n, sizeof *table->tensors);
    if (!table->tensors)
        return hl_fail_memory(p->diag, n * sizeof *table->tensors, "a safetensors header");
    const char *name;
    json_t *row;
    json_object_foreach(root, name, row) {
        if (!strcmp(name, "__metadata__")) continue;
        struct hl_st_tensor *tensor = &table->tensors[table->n_tensors];
        enum hl_status status = parse_tensor(p, name, row, tensor);
        if (status) return status;
        tensor->name = hl_strdup(mem, name);
        if (!tensor->name) return hl_fail_memory(p->diag, strlen(name) + 1, "a tensor's name");
        table->n_tensors++;
    }
    return check_tiling(mem, p, table);
}

enum hl_status hl_st_parse(struct hl_mem *mem, const char *json, size_t n, int64_t file_bytes,
                           const char *file, struct hl_st_table *out, struct hl_diag *diag) {
    json_error_t error;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return hl_fail_at(diag, HL_E_FORMAT, file, 0, 0,
                          "safetensors header, line %d column %d: %s", error.line, error.column,
                          error.text);
    struct parser p = {file, HL_ST_PREFIX + (int64_t)n, file_bytes - HL_ST_PREFIX - (int64_t)n,
                       diag};
    struct hl_st_table table = {.mem = mem};
    enum hl_status status = HL_OK;
    if (!json_is_object(root))
        status = hl_fail_at(diag, HL_E_FORMAT, file, 0, 0, "safetensors header is not an object");
    else if (p.data_bytes < 0)
        status =
            hl_fail_at(diag, HL_E_FORMAT, file, 0, 0, "safetensors header is longer than the file");
    else status = parse_all(mem, &p, root, &table);
    json_decref(root);
    if (status) hl_st_table_free(&table);
    else *out = table;
    return status;
}

void hl_st_table_free(struct hl_st_table *table) {
    for (int i = 0; i < table->n_tensors; i++) hl_free(table->mem, table->tensors[i].name);
    hl_free(table->mem, table->tensors);
    *table = (struct hl_st_table){.mem = table->mem};
}

/* ---- files ---- */

static enum hl_status read_header(struct hl_mem *mem, struct hl_st_file *file, int64_t file_bytes,
                                  struct hl_diag *diag) {
    char first[HL_ST_PREFIX];
    size_t n_first = file_bytes < HL_ST_PREFIX ? (size_t)file_bytes : HL_ST_PREFIX;
    enum hl_status status =
        hl_fs_read_exact(file->fs, file->handle, file->path, first, n_first, 0, diag);
    int64_t length = 0;
    if (!status) status = hl_st_header_bytes(first, n_first, file_bytes, file->path, &length, diag);
    if (status) return status;
    char *json = hl_alloc(mem, (size_t)length, 1);
    if (!json) return hl_fail_memory(diag, (unsigned long long)length, "a safetensors header");
    status = hl_fs_read_exact(file->fs, file->handle, file->path, json, (size_t)length,
                              HL_ST_PREFIX, diag);
    if (!status)
        status = hl_st_parse(mem, json, (size_t)length, file_bytes, file->path, &file->table, diag);
    hl_free(mem, json);
    return status;
}

enum hl_status hl_st_open(struct hl_mem *mem, struct hl_fs *fs, const char *path,
                          struct hl_st_file *out, struct hl_diag *diag) {
    int64_t file_bytes = fs->size(fs, path);
    if (file_bytes < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    struct hl_st_file file = {
        .fs = fs, .handle = -1, .table = {.mem = mem}, .path = hl_strdup(mem, path)};
    if (!file.path) return hl_fail_memory(diag, strlen(path) + 1, "a path");
    file.handle = fs->open(fs, path, HL_FS_READ);
    enum hl_status status = file.handle < 0
                                ? hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m")
                                : read_header(mem, &file, file_bytes, diag);
    if (status) hl_st_close(&file);
    else *out = file;
    return status;
}

void hl_st_close(struct hl_st_file *file) {
    if (!file->path) return;
    if (file->handle >= 0) (void)file->fs->close(file->fs, file->handle);
    struct hl_mem *mem = file->table.mem;
    hl_st_table_free(&file->table);
    hl_free(mem, file->path);
    file->path = NULL;
    file->handle = -1;
}

float hl_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
             mantissa = bits & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } v;
    if (exponent == 0) { /* zero and subnormal: mantissa * 2^-24 */
        v.f = (float)mantissa * 0x1p-24f;
        v.u |= sign;
    } else if (exponent == 31) {
        v.u = sign | 0x7f800000u | mantissa << 13;
    } else {
        v.u = sign | (exponent + 112) << 23 | mantissa << 13;
    }
    return v.f;
}

enum hl_status hl_st_read(const struct hl_st_file *file, const struct hl_st_tensor *tensor,
                          int64_t first, int64_t n, float *out, void *scratch,
                          struct hl_diag *diag) {
    if (tensor->dtype == HL_ST_OTHER)
        return hl_fail_at(diag, HL_E_UNSUPPORTED, file->path, 0, 0,
                          "tensor '%.80s' has dtype %s; F32, BF16 and F16 are read", tensor->name,
                          tensor->dtype_name);
    bool wide = tensor->dtype == HL_ST_F32;
    int64_t width = wide ? 4 : 2;
    enum hl_status status =
        hl_fs_read_exact(file->fs, file->handle, file->path, wide ? (void *)out : scratch,
                         (size_t)(n * width), tensor->begin + first * width, diag);
    if (status || wide) return status;
    const uint16_t *half = scratch;
    if (tensor->dtype == HL_ST_F16) {
        for (int64_t i = 0; i < n; i++) out[i] = hl_f16_to_f32(half[i]);
    } else {
        for (int64_t i = 0; i < n; i++) {
            union {
                uint32_t u;
                float f;
            } v = {.u = (uint32_t)half[i] << 16};
            out[i] = v.f;
        }
    }
    return HL_OK;
}
