/* A finished or running run, read back from its folder: series of numbers, samples of text, tables
 * of words. */
#ifndef HALLEY_REPORT_RUN_H
#define HALLEY_REPORT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/log.h"
#include "halley/mem.h"
#include "halley/status.h"

enum { HL_RUN_SERIES = 48, HL_RUN_SAMPLES = 8 };

struct hl_series {
    char *name;
    double *x, *y; /* x: step, strictly ascending: when a step comes again (a file not cut at
                      resume) the later line counts */
    size_t n, capacity;
};

struct hl_sample {
    int64_t step;
    char *text;
    size_t n;
};
struct hl_row {
    char *key, *value;
}; /* keys of nested maps are joined by points */
struct hl_rows {
    struct hl_row *at;
    size_t n, capacity;
};

struct hl_run {
    struct hl_mem *mem;
    const char *folder; /* borrowed */
    char *name;         /* last part of the folder's path */
    struct hl_series series[HL_RUN_SERIES];
    int n_series, n_series_dropped, next_guess;
    struct hl_sample samples[HL_RUN_SAMPLES]; /* evenly over the run, oldest first */
    int n_samples;
    struct hl_rows config, info;    /* run.yaml, run.json; empty when not there */
    long n_lines, n_bad, first_bad; /* of metrics.jsonl */
};

/* log gets a warning per file that is damaged. errors HL_E_IO: the folder or its metrics.jsonl is
 * not there; HL_E_MEMORY */
enum hl_status hl_run_read(struct hl_run *run, struct hl_mem *mem, const char *folder,
                           struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;
void hl_run_free(struct hl_run *run); /* also after a failed read */
const struct hl_series *hl_run_series(const struct hl_run *run, const char *name); /* NULL: none */

/* Read a YAML or JSON file into rows. errors HL_E_FORMAT with file:line:column, HL_E_IO,
 * HL_E_MEMORY; rows read so far stay. */
enum hl_status hl_rows_read(struct hl_rows *rows, struct hl_mem *mem, const char *path,
                            struct hl_diag *diag) HL_MUST_CHECK;
void hl_rows_free(struct hl_rows *rows, struct hl_mem *mem);

#endif
