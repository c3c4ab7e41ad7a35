/* A file that only grows, record by record: a record is in it whole or not at all. */
#ifndef HALLEY_REPORT_APPEND_H
#define HALLEY_REPORT_APPEND_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_append {
    int fd;       /* -1: closed */
    int64_t size; /* bytes of whole records */
    char *path;   /* owner: this */
    struct hl_mem *mem;
};

/* Open for appending, creating it, and cut it to `size` bytes (more than it has: leave as it is).
 * errors HL_E_IO, HL_E_MEMORY */
enum hl_status hl_append_open(struct hl_append *file, struct hl_mem *mem, const char *path,
                              int64_t size, bool exclusive, struct hl_diag *diag) HL_MUST_CHECK;
/* On failure (disk full) the half record is taken back and the file can be used further. errors
 * HL_E_IO */
enum hl_status hl_append_record(struct hl_append *file, const void *bytes, size_t n,
                                struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_append_sync(struct hl_append *file, struct hl_diag *diag) HL_MUST_CHECK;
void hl_append_close(struct hl_append *file);

#endif
