/* A file that is being written: counts and checksums the bytes as they pass, and reaches the medium
 * before it is closed. */
#ifndef HALLEY_CHECKPOINT_OUT_FILE_H
#define HALLEY_CHECKPOINT_OUT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"

struct hl_out_file {
    struct hl_mem *mem;
    struct hl_fs *fs;
    const char *path; /* borrowed */
    int handle;       /* -1: closed */
    int64_t bytes;
    void *hash; /* XXH3 state */
};

/* errors HL_E_IO in all of them: errno keeps the reason for hl_out_explain. */
enum hl_status hl_out_open(struct hl_mem *mem, struct hl_fs *fs, const char *path,
                           struct hl_out_file *out, struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_out_write(struct hl_out_file *out, const void *data, size_t n,
                            struct hl_diag *diag) HL_MUST_CHECK;
/* fsync and close; the checksum (XXH3, 64 bits) of everything written. */
enum hl_status hl_out_commit(struct hl_out_file *out, uint64_t *xxh3_out,
                             struct hl_diag *diag) HL_MUST_CHECK;
/* Close without caring; for the way out. */
void hl_out_abandon(struct hl_out_file *out);

/* HL_E_IO for a failed write under path, from errno: what happened, how much is free, what to do.
 */
enum hl_status hl_out_explain(struct hl_fs *fs, const char *path, const char *verb,
                              struct hl_diag *diag);

/* XXH3 of a file's content, read in pieces. */
enum hl_status hl_file_xxh3(struct hl_mem *mem, struct hl_fs *fs, const char *path, uint64_t *out,
                            struct hl_diag *diag) HL_MUST_CHECK;
uint64_t hl_text_xxh3(const void *data, size_t n);

#endif
