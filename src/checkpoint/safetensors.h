/* The safetensors format: 8 bytes little-endian header length, a JSON object {name: {dtype, shape,
 * data_offsets}}, the data. Reading trusts nothing: every length, offset and product is checked
 * before use, and the tensors must tile the data part exactly. Writing streams; nobody holds a
 * second copy of a tensor. Source: the format's description,
 * https://github.com/huggingface/safetensors (README, "Format"). */
#ifndef HALLEY_CHECKPOINT_SAFETENSORS_H
#define HALLEY_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/out_file.h"
#include "halley/checkpoint.h"
#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"

enum { HL_ST_MAX_DIMS = 8, HL_ST_PREFIX = 8, HL_ST_MAX_HEADER = 100000000 };

enum hl_st_dtype {
    HL_ST_F32,
    HL_ST_F16,
    HL_ST_BF16,
    HL_ST_OTHER
}; /* OTHER: known size, never converted */

struct hl_st_tensor {
    char *name; /* owner: the table */
    enum hl_st_dtype dtype;
    char dtype_name[16];
    int n_dims;
    int64_t shape[HL_ST_MAX_DIMS];
    int64_t n;            /* elements */
    int64_t begin, bytes; /* begin counts from the start of the file */
    bool used;            /* for the caller: somebody read it */
};

struct hl_st_table {
    struct hl_mem *mem;
    int n_tensors;
    struct hl_st_tensor *tensors; /* in the order of the header */
};

/* The length of the JSON header from the first bytes of a file (n of them, at least 8 unless the
 * file is shorter). errors HL_E_FORMAT: not a safetensors file (git-lfs pointers, HTML pages and
 * pickles are named), or a length that cannot be. */
enum hl_status hl_st_header_bytes(const void *first, size_t n, int64_t file_bytes, const char *file,
                                  int64_t *out, struct hl_diag *diag) HL_MUST_CHECK;

/* Parse the JSON header of a file of file_bytes. Free with hl_st_table_free. */
enum hl_status hl_st_parse(struct hl_mem *mem, const char *json, size_t n, int64_t file_bytes,
                           const char *file, struct hl_st_table *out,
                           struct hl_diag *diag) HL_MUST_CHECK;
void hl_st_table_free(struct hl_st_table *table);

/* An opened file. */
struct hl_st_file {
    struct hl_fs *fs;
    int handle;
    char *path; /* owner */
    struct hl_st_table table;
};
enum hl_status hl_st_open(struct hl_mem *mem, struct hl_fs *fs, const char *path,
                          struct hl_st_file *out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_st_close(struct hl_st_file *file);

/* Elements first .. first + n - 1 of a tensor as f32. scratch: n * 4 bytes at least, may be out
 * itself for f32. errors HL_E_UNSUPPORTED: dtype is not F32, F16 or BF16. */
enum hl_status hl_st_read(const struct hl_st_file *file, const struct hl_st_tensor *tensor,
                          int64_t first, int64_t n, float *out, void *scratch,
                          struct hl_diag *diag) HL_MUST_CHECK;

float hl_f16_to_f32(uint16_t bits);

/* ---- writing ---- */

/* What will be written, in file order. All f32. */
struct hl_st_plan_row {
    const char *name;
    int n_dims;
    int64_t shape[2];
    const float *data; /* [shape[0], shape[1]] row-major; transposed: stored as [shape[1], shape[0]]
                          in memory. NULL: from the source */
    bool transposed;
    const struct hl_checkpoint_source *source;
    int array; /* of the source, and where in it the row begins */
    int64_t first;
};

/* Header and data of all rows into an open file; scratch memory stays below 8 MiB. */
enum hl_status hl_st_write(struct hl_mem *mem, struct hl_out_file *out,
                           const struct hl_st_plan_row *rows, int n_rows,
                           struct hl_diag *diag) HL_MUST_CHECK;

#endif
