/* From folders of runs to a page and a picture. */
#include "halley/report.h"

#include <stdio.h>

#include "report/compare.h"
#include "report/page.h"
#include "report/panels.h"
#include "report/run.h"

static enum hl_status write_file(const char *path, const struct hl_buf *text,
                                 struct hl_diag *diag) {
    if (text->failed) return hl_fail_memory(diag, text->n, "the report");
    FILE *file = fopen(path, "wbe");
    if (!file) return hl_fail(diag, HL_E_IO, "cannot write %s: %m", path);
    size_t n = fwrite(text->data, 1, text->n, file);
    if (fclose(file) || n != text->n) return hl_fail(diag, HL_E_IO, "cannot write %s: %m", path);
    return HL_OK;
}

/* What is to be written, from which runs. */
struct request {
    const char *const *run_dirs;
    int n_runs;
    bool compares;
    const char *about, *html_path, *svg_path;
};

static enum hl_status write_all(struct hl_mem *mem, const struct hl_run *runs,
                                const struct request *q, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    struct hl_buf html = {.mem = mem}, svg = {.mem = mem};
    if (q->html_path) {
        if (q->compares) hl_compare_page(&html, runs, q->n_runs, q->about);
        else hl_page_html(&html, runs, q->n_runs);
        status = write_file(q->html_path, &html, diag);
    }
    if (q->svg_path && !status) {
        if (q->compares) hl_compare_plot(&svg, runs, q->n_runs, HL_BY_SECONDS, true);
        else hl_panel_loss(&svg, runs, q->n_runs, true);
        status = write_file(q->svg_path, &svg, diag);
    }
    hl_buf_free(&html);
    hl_buf_free(&svg);
    return status;
}

static enum hl_status report(struct hl_mem *mem, const struct request *q, struct hl_log *log,
                             struct hl_diag *diag) {
    if (q->n_runs < 1) return hl_fail(diag, HL_E_USER, "a report needs at least one run");
    struct hl_run *runs = hl_alloc(mem, (size_t)q->n_runs, sizeof *runs);
    if (!runs) return hl_fail_memory(diag, (size_t)q->n_runs * sizeof *runs, "runs");
    enum hl_status status = HL_OK;
    for (int r = 0; r < q->n_runs && !status; r++)
        status = hl_run_read(&runs[r], mem, q->run_dirs[r], log, diag);
    if (!status) status = write_all(mem, runs, q, diag);
    for (int r = 0; r < q->n_runs; r++) hl_run_free(&runs[r]);
    hl_free(mem, runs);
    return status;
}

enum hl_status hl_report_write(struct hl_mem *mem, const char *const *run_dirs, int n_runs,
                               const char *html_path, const char *svg_path, struct hl_log *log,
                               struct hl_diag *diag) {
    const struct request request = {
        .run_dirs = run_dirs, .n_runs = n_runs, .html_path = html_path, .svg_path = svg_path};
    return report(mem, &request, log, diag);
}

enum hl_status hl_report_compare(struct hl_mem *mem, const char *const *run_dirs, int n_runs,
                                 const char *about, const char *html_path, const char *svg_path,
                                 struct hl_log *log, struct hl_diag *diag) {
    const struct request request = {.run_dirs = run_dirs,
                                    .n_runs = n_runs,
                                    .compares = true,
                                    .about = about,
                                    .html_path = html_path,
                                    .svg_path = svg_path};
    return report(mem, &request, log, diag);
}
