/* The files that a run writes for people and tools: metrics.jsonl, samples.jsonl, TensorBoard
 * events.
 *
 * metrics.jsonl is the truth; the others may be thrown away. A line is one write; half a line (a
 * crash, a full disk) never stays. Samples are opened at the first one. Formats:
 * docs/formats/metrics.md. */
#include "halley/report.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "os/clock.h"
#include "report/append.h"
#include "report/events.h"
#include "report/lines.h"
#include "report/utf8.h"

struct hl_metrics {
    struct hl_mem *mem;
    struct hl_append lines, samples, events, rounds;
    struct hl_buf text; /* scratch, reused: no allocation in a steady step */
    int64_t n_lost;
    bool told;
};

/* ---- opening ---- */

static char *join(struct hl_mem *mem, const char *folder, const char *name) {
    struct hl_buf path = {.mem = mem};
    hl_buf_printf(&path, "%s/%s", folder, name);
    if (path.failed) hl_buf_free(&path);
    return path.data;
}

static bool line_step(const char *text, int64_t *step) {
    static const char ours[] = "{\"step\": ";
    if (!strncmp(text, ours, sizeof ours - 1)) {
        char *end;
        errno = 0;
        *step = strtoll(text + sizeof ours - 1, &end, 10);
        if (!errno && (*end == ',' || *end == '}')) return true;
    }
    json_t *object = json_loads(text, 0, NULL), *value = json_object_get(object, "step");
    bool found = json_is_integer(value);
    if (found) *step = json_integer_value(value);
    json_decref(object);
    return found;
}

/* Where a JSON-lines file is to be cut so that nothing after the step stays: before its first line
 * of a later step, or before half a last line. A file that is not there is cut at 0. */
static enum hl_status find_cut(struct hl_mem *mem, const char *path, int64_t keep_through_step,
                               int64_t *cut, struct hl_diag *diag) {
    struct hl_lines lines;
    struct stat info;
    *cut = 0;
    if (keep_through_step < 0 || (stat(path, &info) && errno == ENOENT)) return HL_OK;
    enum hl_status status = hl_lines_open(&lines, mem, path, diag);
    if (status) return status;
    struct hl_line line;
    int64_t step = 0;
    while (!(status = hl_lines_next(&lines, &line, diag)) && line.whole) {
        if (line_step(line.text, &step) && step > keep_through_step) break;
        *cut = lines.offset;
    }
    hl_lines_close(&lines);
    return status == HL_END ? HL_OK : status;
}

static enum hl_status open_lines(struct hl_metrics *metrics, struct hl_append *file,
                                 const char *folder, const char *name, int64_t keep_through_step,
                                 struct hl_diag *diag) {
    char *path = join(metrics->mem, folder, name);
    if (!path) return hl_fail_memory(diag, strlen(folder), "a path");
    int64_t cut;
    enum hl_status status = find_cut(metrics->mem, path, keep_through_step, &cut, diag);
    if (!status) status = hl_append_open(file, metrics->mem, path, cut, false, diag);
    hl_free(metrics->mem, path);
    return status;
}

/* The number in a new event file's name: now, or one more than the newest there, because
 * TensorBoard reads in order of names. */
static int64_t event_number(const char *folder) {
    static const char prefix[] = "events.out.tfevents.";
    int64_t number = (int64_t)hl_clock_wall_seconds();
    DIR *dir = opendir(folder);
    if (!dir) return number;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        int64_t other = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
        if (other >= number && other < INT64_MAX / 2) number = other + 1;
    }
    (void)closedir(dir);
    return number;
}

static enum hl_status open_events(struct hl_metrics *metrics, const char *output_dir,
                                  int64_t first_step, struct hl_diag *diag) {
    char *folder = join(metrics->mem, output_dir, "runs");
    if (!folder) return hl_fail_memory(diag, strlen(output_dir), "a path");
    enum hl_status status = HL_OK;
    if (mkdir(folder, 0777) && errno != EEXIST)
        status = hl_fail(diag, HL_E_IO, "cannot make the folder %s: %m", folder);
    struct hl_buf path = {.mem = metrics->mem};
    if (!status)
        hl_buf_printf(&path, "%s/events.out.tfevents.%010lld.halley", folder,
                      (long long)event_number(folder));
    if (!status && path.failed) status = hl_fail_memory(diag, strlen(folder), "a path");
    if (!status) status = hl_append_open(&metrics->events, metrics->mem, path.data, 0, true, diag);
    hl_buf_free(&path);
    hl_free(metrics->mem, folder);
    if (status) return status;
    metrics->text.n = 0;
    hl_event_version(&metrics->text, hl_clock_wall_seconds());
    hl_event_restart(&metrics->text, hl_clock_wall_seconds(), first_step);
    if (metrics->text.failed) return hl_fail_memory(diag, 128, "an event");
    return hl_append_record(&metrics->events, metrics->text.data, metrics->text.n, diag);
}

enum hl_status hl_metrics_open(struct hl_mem *mem, const char *output_dir,
                               int64_t keep_through_step, bool tensorboard, struct hl_metrics **out,
                               struct hl_diag *diag) {
    struct hl_metrics *metrics = hl_alloc(mem, 1, sizeof *metrics);
    if (!metrics) return hl_fail_memory(diag, sizeof *metrics, "metrics");
    metrics->mem = metrics->text.mem = mem;
    metrics->lines.fd = metrics->samples.fd = metrics->events.fd = metrics->rounds.fd = -1;
    enum hl_status status = HL_OK;
    if (mkdir(output_dir, 0777) && errno != EEXIST)
        status = hl_fail(diag, HL_E_IO, "cannot make the folder %s: %m", output_dir);
    if (!status)
        status = open_lines(metrics, &metrics->lines, output_dir, "metrics.jsonl",
                            keep_through_step, diag);
    if (!status)
        status = open_lines(metrics, &metrics->samples, output_dir, "samples.jsonl",
                            keep_through_step, diag);
    if (!status && tensorboard)
        status = open_events(metrics, output_dir, keep_through_step + 1, diag);
    if (status) hl_metrics_close(metrics);
    else *out = metrics;
    return status;
}

enum hl_status hl_metrics_open_rounds(struct hl_metrics *metrics, const char *output_dir,
                                      int64_t keep_through_step, struct hl_diag *diag) {
    return open_lines(metrics, &metrics->rounds, output_dir, "rounds.jsonl", keep_through_step,
                      diag);
}

void hl_metrics_close(struct hl_metrics *metrics) {
    if (!metrics) return;
    hl_append_close(&metrics->events);
    hl_append_close(&metrics->rounds);
    hl_append_close(&metrics->samples);
    hl_append_close(&metrics->lines);
    hl_buf_free(&metrics->text);
    hl_free(metrics->mem, metrics);
}

/* ---- writing ---- */

/* Write the scratch text; the first failure of a run is passed on, later ones are only counted. */
static enum hl_status put_record(struct hl_metrics *metrics, struct hl_append *file,
                                 struct hl_diag *diag) {
    struct hl_diag quiet;
    enum hl_status status = HL_OK;
    struct hl_diag *where = metrics->told ? &quiet : diag;
    if (metrics->text.failed)
        status = hl_fail_memory(where, metrics->text.n, "a record of metrics");
    else status = hl_append_record(file, metrics->text.data, metrics->text.n, where);
    metrics->text.failed = false;
    if (!status) return HL_OK;
    metrics->n_lost++;
    if (metrics->told) return HL_OK;
    metrics->told = true;
    return status;
}

int64_t hl_metrics_n_lost(const struct hl_metrics *metrics) { return metrics->n_lost; }

static void put_number(struct hl_buf *text, const struct hl_metric *value) {
    if (!isfinite(value->value)) {
        hl_buf_puts(text, "\"");
        hl_buf_f64(text, value->value);
        hl_buf_puts(text, "\"");
    } else if (value->is_integer && fabs(value->value) < 9e18)
        hl_buf_printf(text, "%lld", (long long)value->value);
    else hl_buf_f64(text, value->value);
}

static void put_scalars(struct hl_buf *text, int64_t step, const struct hl_metric *values, int n) {
    double wall = hl_clock_wall_seconds();
    for (int i = 0; i < n; i++) {
        bool eval = !strncmp(values[i].name, "eval_", 5);
        char tag[128];
        (void)snprintf(tag, sizeof tag, eval ? "eval/%s" : "train/%s",
                       values[i].name + (eval ? 5 : 0));
        hl_event_scalar(text, wall, step, tag, values[i].value);
    }
}

enum hl_status hl_metrics_write(struct hl_metrics *metrics, int64_t step,
                                const struct hl_metric *values, int n, struct hl_diag *diag) {
    struct hl_buf *text = &metrics->text;
    text->n = 0;
    hl_buf_printf(text, "{\"step\": %lld", (long long)step);
    for (int i = 0; i < n; i++) {
        hl_buf_puts(text, ", ");
        hl_buf_json_string(text, values[i].name);
        hl_buf_puts(text, ": ");
        put_number(text, &values[i]);
    }
    hl_buf_puts(text, "}\n");
    enum hl_status status = put_record(metrics, &metrics->lines, diag);
    if (metrics->events.fd < 0 || !n) return status;
    text->n = 0;
    put_scalars(text, step, values, n);
    enum hl_status second = put_record(metrics, &metrics->events, diag);
    return status ? status : second;
}

/* TensorBoard renders Markdown: four blanks in front of each line keep the text as it is. */
static void put_indented(struct hl_buf *out, const char *text, size_t n) {
    for (const char *end = text + n; text <= end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline ? newline : end) - text);
        hl_buf_puts(out, "    ");
        hl_buf_add(out, text, length);
        if (!newline) break;
        hl_buf_puts(out, "\n");
        text = newline + 1;
    }
}

enum hl_status hl_metrics_text(struct hl_metrics *metrics, int64_t step, const char *tag,
                               const char *text, struct hl_diag *diag) {
    struct hl_buf clean = {.mem = metrics->mem}, shown = {.mem = metrics->mem},
                  *out = &metrics->text;
    hl_utf8_clean(&clean, text, strlen(text), HL_CLEAN_KEEP_CONTROLS);
    out->n = 0;
    hl_buf_printf(out, "{\"step\": %lld, \"tag\": ", (long long)step);
    hl_buf_json_string(out, tag);
    hl_buf_puts(out, ", \"text\": ");
    hl_buf_json_string(out, clean.data ? clean.data : "");
    hl_buf_puts(out, "}\n");
    out->failed |= clean.failed;
    enum hl_status status = put_record(metrics, &metrics->samples, diag), second = HL_OK;
    if (metrics->events.fd >= 0) {
        out->n = 0;
        put_indented(&shown, clean.data ? clean.data : "", clean.n);
        hl_event_text(out, hl_clock_wall_seconds(), step, tag, shown.data, shown.n);
        out->failed |= clean.failed || shown.failed;
        second = put_record(metrics, &metrics->events, diag);
    }
    hl_buf_free(&shown);
    hl_buf_free(&clean);
    return status ? status : second;
}

enum hl_status hl_metrics_rounds(struct hl_metrics *metrics, int64_t step, const int64_t *counts,
                                 int n_ranks, struct hl_diag *diag) {
    struct hl_buf *out = &metrics->text;
    out->n = 0;
    hl_buf_printf(out, "{\"step\": %lld, \"micro_batches\": [", (long long)step);
    for (int r = 0; r < n_ranks; r++)
        hl_buf_printf(out, "%s[%lld, %lld]", r ? ", " : "", (long long)counts[2 * r],
                      (long long)counts[2 * r + 1]);
    hl_buf_puts(out, "]}\n");
    return put_record(metrics, &metrics->rounds, diag);
}

enum hl_status hl_metrics_flush(struct hl_metrics *metrics, struct hl_diag *diag) {
    enum hl_status status = hl_append_sync(&metrics->lines, diag);
    if (!status) status = hl_append_sync(&metrics->samples, diag);
    if (!status && metrics->rounds.fd >= 0) status = hl_append_sync(&metrics->rounds, diag);
    return status;
}
