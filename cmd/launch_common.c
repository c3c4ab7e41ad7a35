/* What all ways to launch need: words, variables, log files, and another attempt. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "os/fs.h"
#include "report/append.h"
#include "train/folder.h"

bool launch_is_over(const struct launch *l, const char *wire) {
    size_t n = strlen(wire);
    const char *at = strstr(l->wire, wire);
    return at && (at == l->wire || at[-1] == '+') && (!at[n] || at[n] == '+');
}

/* ---- words and variables ---- */

enum hl_status launch_find_program(struct launch *l, struct hl_diag *diag) {
    ssize_t n = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    return n > 0 ? HL_OK : hl_fail(diag, HL_E_IO, "/proc/self/exe: this program's own path: %m");
}

char **launch_words(const struct launch *l, char *const *front, int n_front, bool resume) {
    static char train[] = "train", bench[] = "bench-net", resuming[] = "--resume",
                keep[] = "--no-overwrite_output_dir";
    char *command = l->command->resumes ? train : bench;
    char **words = hl_alloc(l->mem, (size_t)(n_front + l->n_args) + 4, sizeof *words);
    int n = 0;
    if (!words) return NULL;
    for (int i = 0; i < n_front; i++) words[n++] = front[i];
    words[n++] = command;
    for (int i = 0; i < l->n_args; i++) words[n++] = l->args[i];
    if (resume) words[n++] = resuming, words[n] = keep;
    return words;
}

void launch_set(struct launch_variables *v, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(v->text[v->n], LAUNCH_VARIABLE_BYTES, format, arguments);
    va_end(arguments);
    v->list[v->n] = v->text[v->n];
    v->n++;
}

/* Teams that spin while they wait take the cores from one another when ranks share them. */
void launch_set_waiting(struct launch_variables *v) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    launch_set(v, "GOMP_SPINCOUNT=10000");
    launch_set(v, "OMP_WAIT_POLICY=passive");
}

/* ---- log files ---- */

struct log_file {
    struct hl_append file;
    bool open, failed;
};
struct launch_logs {
    struct launch *l;
    char folder[HL_PATH_CAPACITY];
    int n;
    struct log_file files[HL_MAX_RANKS];
};

enum hl_status launch_logs_new(struct launch *l, int n, struct launch_logs **out,
                               struct hl_diag *diag) {
    struct launch_logs *logs = hl_alloc(l->mem, 1, sizeof *logs);
    const char *asked = l->options.log_dir;
    if (!logs) return hl_fail_memory(diag, sizeof *logs, "the ranks' logs");
    logs->l = l;
    logs->n = n;
    if (!*asked && !l->command->resumes) return *out = logs, HL_OK; /* folder: none */
    int length =
        *asked ? snprintf(logs->folder, sizeof logs->folder, "%s", asked)
               : snprintf(logs->folder, sizeof logs->folder, "%s/logs", l->run.train.output_dir);
    if (length >= (int)sizeof logs->folder) {
        hl_free(l->mem, logs);
        return hl_fail(diag, HL_E_USER, "log_dir: the path is too long");
    }
    *out = logs;
    return HL_OK;
}

static bool open_log(struct launch_logs *logs, struct log_file *log, const char *name,
                     struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY], file[80];
    (void)snprintf(file, sizeof file, "%.60s.log", name);
    enum hl_status status = hl_run_folder_make(hl_fs_os(), logs->folder, diag);
    if (status == HL_OK && !hl_path_join(path, logs->folder, file))
        status = hl_fail(diag, HL_E_USER, "log_dir: the path is too long");
    if (status == HL_OK)
        status = hl_append_open(&log->file, logs->l->mem, path, INT64_MAX, false, diag);
    return log->open = status == HL_OK;
}

void launch_logs_add(struct launch_logs *logs, int i, const char *name, const char *line,
                     size_t n) {
    struct log_file *log = &logs->files[i];
    struct hl_diag diag = {0};
    if (log->failed || !*logs->folder) return;
    if ((log->open || open_log(logs, log, name, &diag)) &&
        hl_append_record(&log->file, line, n, &diag) == HL_OK)
        return;
    hl_log(&logs->l->log, HL_LOG_WARN, "the log of %s is not written any more: %s", name,
           diag.text);
    log->failed = true;
}

void launch_logs_free(struct launch_logs *logs) {
    if (!logs) return;
    for (int i = 0; i < logs->n; i++)
        if (logs->files[i].open) hl_append_close(&logs->files[i].file);
    hl_free(logs->l->mem, logs);
}

/* ---- attempts ---- */

/* Is there a point in starting again? Not when somebody asked to stop, or the mistake is the
 * user's.
 */
static bool worth_another(const struct hl_supervise_end *end) {
    return end->root >= 0 && !end->asked && end->status != 2;
}

enum hl_status launch_attempts(struct launch *l, launch_attempt attempt, void *context,
                               int *exit_out, struct hl_diag *diag) {
    struct hl_supervise_end end = {.root = -1};
    enum hl_status status = attempt(context, false, &end, diag);
    for (int64_t left = l->options.elastic ? 0 : l->options.max_restarts;
         status == HL_OK && left > 0 && worth_another(&end); left--) {
        hl_log(&l->log, HL_LOG_WARN,
               "all ranks are started again from the newest checkpoint (--max_restarts: %lld left)",
               (long long)left - 1);
        status = attempt(context, true, &end, diag);
    }
    *exit_out = end.status;
    return status;
}
