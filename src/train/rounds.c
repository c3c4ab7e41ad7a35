/* See rounds.h. */
#include "train/rounds.h"

#include <jansson.h>
#include <string.h>

#include "os/fs.h"

enum { MOST_BYTES = 1 << 30 };

struct hl_rounds {
    struct hl_mem *mem;
    int n_ranks;
    int64_t n_steps, capacity;
    int64_t *counts; /* [n_steps][n_ranks][2]: after the round before, until this one */
};

static int64_t *line_of(const struct hl_rounds *r, int64_t step) {
    return r->counts + (step - 1) * r->n_ranks * 2;
}

static bool grow(struct hl_rounds *r) {
    if (r->n_steps < r->capacity) return true;
    int64_t capacity = r->capacity ? 2 * r->capacity : 64;
    size_t each = (size_t)r->n_ranks * 2 * sizeof *r->counts;
    int64_t *counts = hl_realloc(r->mem, r->counts, (size_t)capacity, each);
    if (!counts) return false;
    r->counts = counts;
    r->capacity = capacity;
    return true;
}

/* Steps follow each other from 1. */
static enum hl_status add_line(struct hl_rounds *r, const json_t *line, const char *path,
                               long number, struct hl_diag *diag) {
    const json_t *ranks = json_object_get(line, "micro_batches");
    if (json_integer_value(json_object_get(line, "step")) != r->n_steps + 1 ||
        !json_is_array(ranks))
        return hl_fail_at(
            diag, HL_E_FORMAT, path, number, 0,
            "is no record of step %lld; give the rounds.jsonl of a run from its first "
            "step",
            (long long)r->n_steps + 1);
    if (json_array_size(ranks) != (size_t)r->n_ranks)
        return hl_fail_at(diag, HL_E_USER, path, number, 0,
                          "is of %d ranks, and this run has %d; start as many",
                          (int)json_array_size(ranks), r->n_ranks);
    if (!grow(r)) return hl_fail_memory(diag, (size_t)r->capacity * 16, "the record of rounds");
    int64_t *to = line_of(r, ++r->n_steps);
    for (size_t i = 0; i < (size_t)r->n_ranks * 2; i++) {
        const json_t *value = json_array_get(json_array_get(ranks, i / 2), i % 2);
        to[i] = json_integer_value(value);
        if (!json_is_integer(value) || to[i] < 0)
            return hl_fail_at(diag, HL_E_FORMAT, path, number, 0,
                              "rank %d has no two counts of micro-batches", (int)(i / 2));
    }
    return HL_OK;
}

static enum hl_status read_lines(struct hl_rounds *r, char *text, const char *path,
                                 struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    long number = 1;
    for (char *at = text, *end; *at && status == HL_OK; at = end, number++) {
        end = strchr(at, '\n');
        if (!end) return HL_OK; /* half a line: the run was killed */
        *end++ = 0;
        json_error_t error;
        json_t *line = json_loads(at, 0, &error);
        status = line ? add_line(r, line, path, number, diag)
                      : hl_fail_at(diag, HL_E_FORMAT, path, number, error.column, "%s", error.text);
        json_decref(line);
    }
    return status;
}

enum hl_status hl_rounds_read(struct hl_mem *mem, const char *path, int n_ranks,
                              struct hl_rounds **out, struct hl_diag *diag) {
    char *text = NULL;
    size_t n;
    struct hl_rounds *r = hl_alloc(mem, 1, sizeof *r);
    if (!r) return hl_fail_memory(diag, sizeof *r, "the record of rounds");
    *r = (struct hl_rounds){.mem = mem, .n_ranks = n_ranks};
    enum hl_status status = hl_fs_read_text(mem, hl_fs_os(), path, MOST_BYTES, &text, &n, diag);
    if (status == HL_OK) status = read_lines(r, text, path, diag);
    hl_free(mem, text);
    if (status == HL_OK) *out = r;
    else hl_rounds_free(r);
    return status;
}

void hl_rounds_free(struct hl_rounds *r) {
    if (!r) return;
    hl_free(r->mem, r->counts);
    hl_free(r->mem, r);
}

void hl_rounds_of(const struct hl_rounds *r, int64_t step, int rank, int64_t *until_out,
                  int64_t *after_out) {
    *until_out = step <= r->n_steps ? line_of(r, step)[2 * rank + 1] : 0;
    *after_out = step < r->n_steps ? line_of(r, step + 1)[2 * rank] : 0;
}
