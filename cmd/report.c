/* halley report: a page and a picture out of the folder of a run. */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halley/report.h"

static const char usage[] =
    "usage: halley report RUN [RUN ...] [--html FILE] [--svg FILE]\n\n"
    "RUN is the output_dir of a training run. Several runs are drawn side by side in the same "
    "plots.\n\n"
    "  --html FILE   write the page there (default: RUN/report.html, for one run without --svg)\n"
    "  --svg FILE    write the loss curve alone, for a README\n\n"
    "The page needs no network and no script. What is damaged in metrics.jsonl is skipped and "
    "said.\n";

static void print_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)log;
    fprintf(stderr, "halley report: %s%s\n", level == HL_LOG_WARN ? "warning: " : "", text);
}

struct request {
    const char **runs, *html, *svg;
    int n_runs;
};

/* -1: go on, else the exit status */
static int read_words(int n_args, char **args, struct request *request) {
    for (int i = 0; i < n_args; i++) {
        const char *word = args[i];
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return fputs(usage, stdout), 0;
        const char **path = !strncmp(word, "--html", 6)  ? &request->html
                            : !strncmp(word, "--svg", 5) ? &request->svg
                                                         : NULL;
        size_t n = path == &request->html ? 6 : 5;
        if (word[0] != '-') request->runs[request->n_runs++] = word;
        else if (path && word[n] == '=' && word[n + 1]) *path = word + n + 1;
        else if (path && !word[n] && i + 1 < n_args) *path = args[++i];
        else if (path && (!word[n] || word[n] == '='))
            return fprintf(stderr, "halley report: %.*s needs a file name\n", (int)n, word), 2;
        else
            return fprintf(stderr,
                           "halley report: no option '%s'; there are --html FILE and --svg FILE\n",
                           word),
                   2;
    }
    if (!request->n_runs)
        return fprintf(stderr, "halley report: which run? give its output_dir\n\n%s", usage), 2;
    if (request->n_runs > 1 && !request->html && !request->svg)
        return fprintf(stderr, "halley report: several runs have no folder in common; say where "
                               "with --html FILE\n"),
               2;
    return -1;
}

static int write_report(struct request *request) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_log log = {print_line, HL_LOG_INFO, NULL};
    struct hl_diag diag = {0};
    struct hl_buf html = {.mem = mem};
    if (!request->html && !request->svg) {
        size_t n = strlen(request->runs[0]);
        while (n > 1 && request->runs[0][n - 1] == '/') n--;
        hl_buf_printf(&html, "%.*s/report.html", (int)n, request->runs[0]);
        request->html = html.data;
    }
    enum hl_status status = html.failed ? hl_fail_memory(&diag, 1, "a path") : HL_OK;
    if (!status)
        status = hl_report_write(mem, request->runs, request->n_runs, request->html, request->svg,
                                 &log, &diag);
    if (status) fprintf(stderr, "halley report: %s\n", diag.text);
    else if (request->html) printf("%s\n", request->html);
    if (!status && request->svg) printf("%s\n", request->svg);
    hl_buf_free(&html);
    return status ? 1 : 0;
}

int command_report(int n_args, char **args) {
    struct request request = {.runs = calloc((size_t)n_args + 1, sizeof(char *))};
    if (!request.runs) return fprintf(stderr, "halley report: out of memory\n"), 1;
    int code = read_words(n_args, args, &request);
    if (code < 0) code = write_report(&request);
    free(request.runs);
    return code;
}
