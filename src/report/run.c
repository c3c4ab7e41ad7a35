/* Reading a run's folder. Every key of metrics.jsonl becomes a series. What is damaged is skipped,
 * counted and said, because a report of most of a run is worth more than none. Does not decide what
 * is shown. */
#include "report/run.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/lines.h"

const struct hl_series *hl_run_series(const struct hl_run *run, const char *name) {
    for (int k = 0; k < run->n_series; k++)
        if (!strcmp(run->series[k].name, name)) return &run->series[k];
    return NULL;
}

/* ---- metrics.jsonl ---- */

static bool number_of(const json_t *value, double *out) {
    if (json_is_number(value)) return *out = json_number_value(value), true;
    const char *word = json_string_value(value);
    if (!word) return false;
    if (!strcmp(word, "NaN")) return *out = (double)NAN, true;
    if (!strcmp(word, "Infinity")) return *out = (double)INFINITY, true;
    if (!strcmp(word, "-Infinity")) return *out = -(double)INFINITY, true;
    return false;
}

/* Find or begin a series. Keys come in the same order line after line: look first behind the last
 * one found. */
static struct hl_series *series_of(struct hl_run *run, const char *name, struct hl_diag *diag,
                                   enum hl_status *status) {
    for (int i = 0; i < run->n_series; i++) {
        int k = (run->next_guess + i) % run->n_series;
        if (strcmp(run->series[k].name, name) != 0) continue;
        run->next_guess = k + 1;
        return &run->series[k];
    }
    if (run->n_series == HL_RUN_SERIES) return run->n_series_dropped++, NULL;
    char *copy = hl_strdup(run->mem, name);
    if (!copy)
        return *status = hl_fail_memory(diag, strlen(name) + 1, "the name of a series"), NULL;
    run->series[run->n_series].name = copy;
    return &run->series[run->n_series++];
}

static enum hl_status series_add(struct hl_mem *mem, struct hl_series *s, double x, double y,
                                 struct hl_diag *diag) {
    while (s->n && s->x[s->n - 1] >= x) s->n--;
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? s->capacity * 2 : 256;
        double *xs = hl_realloc(mem, s->x, capacity, sizeof *xs);
        if (!xs) return hl_fail_memory(diag, capacity * sizeof *xs, "a series");
        s->x = xs;
        double *ys = hl_realloc(mem, s->y, capacity, sizeof *ys);
        if (!ys) return hl_fail_memory(diag, capacity * sizeof *ys, "a series");
        s->y = ys;
        s->capacity = capacity;
    }
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return HL_OK;
}

static enum hl_status take_object(struct hl_run *run, json_t *object, double step,
                                  struct hl_diag *diag) {
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        double number;
        enum hl_status status = HL_OK;
        if (!strcmp(name, "step") || !number_of(value, &number)) continue;
        struct hl_series *series = series_of(run, name, diag, &status);
        if (series) status = series_add(run->mem, series, step, number, diag);
        if (status) return status;
    }
    return HL_OK;
}

static bool is_blank(const struct hl_line *line) {
    return !line->too_long && strspn(line->text, " \t\r") == line->n;
}

static enum hl_status take_line(struct hl_run *run, const struct hl_line *line,
                                struct hl_diag *diag) {
    if (is_blank(line)) return HL_OK;
    run->n_lines++;
    json_t *object = line->too_long ? NULL : json_loadb(line->text, line->n, 0, NULL),
           *step = json_object_get(object, "step");
    enum hl_status status = HL_OK;
    if (json_is_integer(step) && json_integer_value(step) >= 0)
        status = take_object(run, object, (double)json_integer_value(step), diag);
    else if (line->whole) { /* half a last line is being written at this moment */
        if (!run->n_bad++) run->first_bad = line->number;
    }
    json_decref(object);
    return status;
}

static enum hl_status read_metrics(struct hl_run *run, const char *path, struct hl_log *log,
                                   struct hl_diag *diag) {
    struct hl_lines lines;
    struct hl_line line;
    enum hl_status status = hl_lines_open(&lines, run->mem, path, diag);
    if (status)
        return hl_fail(diag, status,
                       "cannot read %s: %m; a run's folder is the output_dir of halley train",
                       path);
    while (!(status = hl_lines_next(&lines, &line, diag)) &&
           !(status = take_line(run, &line, diag))) {}
    hl_lines_close(&lines);
    if (status != HL_END) return status;
    if (run->n_bad)
        hl_log(log, HL_LOG_WARN, "%s:%ld: no metrics in this line; %ld of %ld lines skipped", path,
               run->first_bad, run->n_bad, run->n_lines);
    if (!run->n_series) hl_log(log, HL_LOG_WARN, "%s: nothing logged yet", path);
    return HL_OK;
}

/* ---- samples.jsonl ---- */

static enum hl_status take_sample(struct hl_run *run, const struct hl_line *line,
                                  struct hl_diag *diag) {
    json_t *object = json_loadb(line->text, line->n, JSON_ALLOW_NUL, NULL),
           *text = json_object_get(object, "text");
    json_t *step = json_object_get(object, "step");
    enum hl_status status = HL_OK;
    if (json_is_string(text) && json_is_integer(step) && run->n_samples < HL_RUN_SAMPLES) {
        size_t n = json_string_length(text);
        char *copy = hl_strndup(run->mem, json_string_value(text), n);
        if (copy)
            run->samples[run->n_samples++] = (struct hl_sample){json_integer_value(step), copy, n};
        else status = hl_fail_memory(diag, n, "a sample");
    }
    json_decref(object);
    return status;
}

/* The number of lines (out), or those samples that are evenly spread over so many lines. */
static enum hl_status walk_samples(struct hl_run *run, const char *path, long n_lines, long *out,
                                   struct hl_diag *diag) {
    struct hl_lines lines;
    struct hl_line line;
    enum hl_status status = hl_lines_open(&lines, run->mem, path, diag);
    if (status) return status;
    long n = 0, wanted = 0;
    while (!(status = hl_lines_next(&lines, &line, diag))) {
        if (!line.whole || is_blank(&line)) continue;
        long last = HL_RUN_SAMPLES - 1,
             due = n_lines > HL_RUN_SAMPLES ? wanted * (n_lines - 1) / last : n;
        if (n_lines && n == due && !line.too_long) {
            status = take_sample(run, &line, diag);
            if (status) break;
        }
        wanted += n == due;
        n++;
    }
    hl_lines_close(&lines);
    *out = n;
    return status == HL_END ? HL_OK : status;
}

static enum hl_status read_samples(struct hl_run *run, const char *path, struct hl_diag *diag) {
    struct stat info;
    long n_lines, n;
    if (stat(path, &info)) return HL_OK;
    enum hl_status status = walk_samples(run, path, 0, &n_lines, diag);
    if (!status && n_lines) status = walk_samples(run, path, n_lines, &n, diag);
    return status;
}

/* ---- the folder ---- */

static enum hl_status read_table(struct hl_run *run, struct hl_rows *rows, const char *path,
                                 struct hl_log *log, struct hl_diag *diag) {
    struct stat info;
    if (stat(path, &info)) return HL_OK;
    struct hl_diag found = {0};
    enum hl_status status = hl_rows_read(rows, run->mem, path, &found);
    if (status == HL_E_MEMORY) return hl_fail(diag, status, "%s", found.text);
    if (status) hl_log(log, HL_LOG_WARN, "%s", found.text);
    return HL_OK;
}

static char *name_of(struct hl_mem *mem, const char *folder) {
    char whole[PATH_MAX];
    if (strspn(folder, "./") == strlen(folder) && realpath(folder, whole)) folder = whole;
    size_t end = strlen(folder), begin;
    while (end > 1 && folder[end - 1] == '/') end--;
    for (begin = end; begin && folder[begin - 1] != '/'; begin--) {}
    return hl_strndup(mem, folder + begin, end - begin);
}

static enum hl_status read_file(struct hl_run *run, const char *name, struct hl_log *log,
                                struct hl_diag *diag) {
    struct hl_buf path = {.mem = run->mem};
    enum hl_status status;
    hl_buf_printf(&path, "%s/%s", run->folder, name);
    if (path.failed) status = hl_fail_memory(diag, strlen(run->folder), "a path");
    else if (!strcmp(name, "metrics.jsonl")) status = read_metrics(run, path.data, log, diag);
    else if (!strcmp(name, "samples.jsonl")) status = read_samples(run, path.data, diag);
    else
        status = read_table(run, strcmp(name, "run.yaml") ? &run->info : &run->config, path.data,
                            log, diag);
    hl_buf_free(&path);
    return status;
}

enum hl_status hl_run_read(struct hl_run *run, struct hl_mem *mem, const char *folder,
                           struct hl_log *log, struct hl_diag *diag) {
    static const char *const files[] = {"metrics.jsonl", "samples.jsonl", "run.yaml", "run.json"};
    *run = (struct hl_run){.mem = mem, .folder = folder};
    struct stat info;
    if (stat(folder, &info)) return hl_fail(diag, HL_E_IO, "no run at %s: %m", folder);
    if (!S_ISDIR(info.st_mode))
        return hl_fail(diag, HL_E_IO, "%s is not a folder; give the output_dir of a run", folder);
    run->name = name_of(mem, folder);
    if (!run->name) return hl_fail_memory(diag, strlen(folder), "a name");
    enum hl_status status = HL_OK;
    for (int i = 0; i < 4 && !status; i++) status = read_file(run, files[i], log, diag);
    return status;
}

void hl_run_free(struct hl_run *run) {
    if (!run->mem) return;
    for (int k = 0; k < run->n_series; k++) {
        hl_free(run->mem, run->series[k].name);
        hl_free(run->mem, run->series[k].x);
        hl_free(run->mem, run->series[k].y);
    }
    for (int i = 0; i < run->n_samples; i++) hl_free(run->mem, run->samples[i].text);
    hl_rows_free(&run->config, run->mem);
    hl_rows_free(&run->info, run->mem);
    hl_free(run->mem, run->name);
    *run = (struct hl_run){0};
}
