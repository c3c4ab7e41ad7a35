/* A launcher on each machine of a list, started through ssh. Their ranks meet over wan,
 * or in a pool that all of these machines map.
 *
 * The job's secret goes over standard input, never on a command line. While that input is open the
 * other launcher knows that this one lives; words on it pass signals on. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "os/children.h"
#include "os/signal.h"
#include "os/terminal.h"

struct host {
    char name[200];
    int n, first;            /* its ranks */
    char first_failure[600]; /* as its launcher told it */
};
struct hosts {
    struct launch *l;
    struct launch_logs *logs;
    struct hl_children *children;
    struct host list[HL_MAX_RANKS];
    int n;
};

/* ---- the list ---- */

/* "name", "name slots=4" (Open MPI) or "name:4" (MPICH); n_default: neither is said. */
static enum hl_status read_host(const char *file, long number, char *line, int n_default,
                                struct host *out, struct hl_diag *diag) {
    char *slots = strstr(line, "slots="), *colon = strrchr(line, ':');
    long n = n_default;
    char *end = line + strcspn(line, " \t");
    if (slots) n = strtol(slots + 6, NULL, 10);
    else if (colon && strchr(line, ':') == colon) n = strtol(colon + 1, NULL, 10), end = colon;
    *end = 0;
    if (n < 1 || n > HL_MAX_RANKS)
        return hl_fail_at(diag, HL_E_USER, file, number, 0,
                          "how many ranks on %s? 'slots=2' behind it, or -n for all", line);
    if (strlen(line) >= sizeof out->name || *line == '-')
        return hl_fail_at(diag, HL_E_USER, file, number, 0, "'%.80s' is no host", line);
    (void)strcpy(out->name, line);
    out->n = (int)n;
    return HL_OK;
}

static enum hl_status read_hosts(struct hosts *x, struct hl_diag *diag) {
    const char *path = x->l->options.hosts;
    char *text;
    enum hl_status status =
        hl_fs_read_text(x->l->mem, hl_fs_os(), path, 1 << 20, &text, NULL, diag);
    if (status != HL_OK) return status;
    long number = 1;
    x->l->n_ranks = 0;
    for (char *line = text, *next; *line && status == HL_OK; line = next, number++) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        line[length] = 0;
        line[strcspn(line, "#\r")] = 0;
        while (isspace((unsigned char)*line)) line++;
        if (!*line) continue;
        if (x->n == HL_MAX_RANKS)
            status = hl_fail_at(diag, HL_E_USER, path, number, 0, "more than %d hosts", x->n);
        else status = read_host(path, number, line, (int)x->l->options.n, &x->list[x->n], diag);
        if (status != HL_OK) break;
        x->list[x->n].first = x->l->n_ranks;
        x->l->n_ranks += x->list[x->n++].n;
    }
    hl_free(x->l->mem, text);
    if (status == HL_OK && (x->n == 0 || x->l->n_ranks > HL_MAX_RANKS))
        return hl_fail(diag, HL_E_USER, "hosts: %s names %d ranks; 1 to %d are possible", path,
                       x->l->n_ranks, HL_MAX_RANKS);
    return status;
}

/* Any port that is likely free on the first host, below those that connections get; another run by
 * the same list takes another. */
static void choose_address(struct hosts *x) {
    struct launch *l = x->l;
    if (*l->options.rdzv_endpoint) return;
    unsigned port = 20000 + (unsigned)getpid() % 12000;
    const char *at = strchr(x->list[0].name, '@'); /* user@host */
    (void)snprintf(l->address, sizeof l->address, "%.200s:%u", at ? at + 1 : x->list[0].name, port);
}

/* ---- the command there ---- */

/* For a shell: within ' ', every ' as '\''. */
static void quote(struct hl_buf *out, const char *word) {
    hl_buf_puts(out, " '");
    for (; *word; word++)
        if (*word == '\'') hl_buf_puts(out, "'\\''");
        else hl_buf_add(out, word, 1);
    hl_buf_puts(out, "'");
}

static void quote_flag(struct hl_buf *out, const char *flag, const char *value) {
    hl_buf_printf(out, " --%s", flag);
    quote(out, value);
}

/* Runs in the folder of the same name, if it is there. */
static void print_command(const struct hosts *x, const struct host *h, bool resume,
                          struct hl_buf *out) {
    const struct launch *l = x->l;
    char folder[HL_PATH_CAPACITY];
    if (getcwd(folder, sizeof folder)) {
        hl_buf_puts(out, "cd");
        quote(out, folder);
        hl_buf_puts(out, " && ");
    }
    hl_buf_puts(out, "exec");
    quote(out, l->program);
    hl_buf_printf(out, " launch --secret_on_stdin -n %d --ranks_before %d --ranks_in_all %d", h->n,
                  h->first, l->n_ranks);
    hl_buf_printf(out, " --timeout %lld", (long long)(l->timeout_ns / 1000000000));
    quote_flag(out, "wire", l->wire);
    if (launch_is_over(l, "pool")) quote_flag(out, "pool", l->options.pool);
    if (launch_is_over(l, "wan"))
        quote_flag(out, "rdzv_endpoint",
                   *l->options.rdzv_endpoint ? l->options.rdzv_endpoint : l->address);
    if (*l->interface) quote_flag(out, "interface", l->interface);
    if (*l->options.log_dir) quote_flag(out, "log_dir", l->options.log_dir);
    hl_buf_printf(out, " %s", l->command->name);
    for (int i = 0; i < l->n_args; i++) quote(out, l->args[i]);
    if (resume) hl_buf_puts(out, " --resume --no-overwrite_output_dir");
}

static enum hl_status start_host(struct hosts *x, const struct host *h, bool resume,
                                 struct hl_diag *diag) {
    static char ssh[] = "ssh", option[] = "-o", batch[] = "BatchMode=yes", end[] = "--";
    struct hl_buf command = {.mem = x->l->mem};
    char name[sizeof h->name], secret[HL_TOKEN_CAPACITY + 2];
    int child;
    print_command(x, h, resume, &command);
    if (command.failed) return hl_fail_memory(diag, command.n, "a command line");
    (void)strcpy(name, h->name);
    char *words[] = {ssh, option, batch, end, name, command.data, NULL};
    const struct hl_child_setup setup = {
        .program = ssh, .args = words, .keep_fd = -1, .input = true};
    enum hl_status status = hl_children_start(x->children, &setup, &child, diag);
    (void)snprintf(secret, sizeof secret, "%s\n", x->l->token);
    if (status == HL_OK)
        (void)hl_children_write(x->children, child, secret); /* an ssh that ended says why itself */
    hl_buf_free(&command);
    return status;
}

/* ---- watch ---- */

static void name_host(void *context, int child, char *out, size_t capacity) {
    const struct hosts *x = context;
    const struct host *h = &x->list[child];
    (void)snprintf(out, capacity, "the launcher of ranks %d to %d on %.60s", h->first,
                   h->first + h->n - 1, h->name);
}

/* Lines of ranks come with their prefix. */
static void pass_line(void *context, int child, int stream, const char *text, size_t n) {
    static const char rank[] = "[rank ", failure[] = "halley launch: first failure: ";
    struct hosts *x = context;
    struct host *h = &x->list[child];
    struct hl_buf line = {.mem = x->l->mem};
    if (n < sizeof rank || memcmp(text, rank, sizeof rank - 1) != 0)
        hl_buf_printf(&line, "[%s] ", h->name);
    if (n >= sizeof failure && !memcmp(text, failure, sizeof failure - 1))
        (void)snprintf(h->first_failure, sizeof h->first_failure, "%.*s",
                       (int)(n - sizeof failure + 1), text + sizeof failure - 1);
    hl_buf_add(&line, text, n);
    hl_buf_puts(&line, "\n");
    if (!line.failed) {
        hl_terminal_write(stream, line.data, line.n);
        launch_logs_add(x->logs, child, h->name, line.data, line.n);
    }
    hl_buf_free(&line);
}

static void ask(void *context, int child, int number) {
    struct hosts *x = context;
    (void)hl_children_write(x->children, child, hl_stop_word(number));
}

static enum hl_status watch(struct hosts *x, struct hl_supervise_end *end, struct hl_diag *diag) {
    const struct hl_supervise_setup setup = {.mem = x->l->mem,
                                             .children = x->children,
                                             .n = x->n,
                                             .timeout_ns = x->l->timeout_ns +
                                                           5000000000, /* theirs comes first */
                                             .saving = -1,
                                             .log = &x->l->log,
                                             .line = pass_line,
                                             .name = name_host,
                                             .ask = ask,
                                             .context = x};
    enum hl_status status = hl_supervise(&setup, end, diag);
    if (status != HL_OK || end->root < 0) return status;
    const struct host *h = &x->list[end->root];
    fprintf(stderr, "halley launch: first failure: %s\n",
            *h->first_failure ? h->first_failure : end->why);
    return status;
}

static enum hl_status attempt(void *context, bool resume, struct hl_supervise_end *end,
                              struct hl_diag *diag) {
    struct hosts *x = context;
    enum hl_status status = hl_children_new(x->l->mem, x->n, &x->children, diag);
    for (int i = 0; i < x->n && status == HL_OK; i++) {
        x->list[i].first_failure[0] = 0;
        status = start_host(x, &x->list[i], resume, diag);
    }
    if (status == HL_OK) status = watch(x, end, diag);
    hl_children_free(x->children);
    x->children = NULL;
    return status;
}

enum hl_status launch_hosts(struct launch *l, int *exit_out, struct hl_diag *diag) {
    struct hosts *x = hl_alloc(l->mem, 1, sizeof *x);
    if (!x) return hl_fail_memory(diag, sizeof *x, "the list of hosts");
    x->l = l;
    hl_signal_ignore_pipe();
    enum hl_status status = read_hosts(x, diag);
    if (status == HL_OK) status = launch_meet(l, diag);
    if (status == HL_OK) choose_address(x);
    if (status == HL_OK) status = launch_logs_new(l, x->n, &x->logs, diag);
    if (status == HL_OK) status = launch_attempts(l, attempt, x, exit_out, diag);
    launch_logs_free(x->logs);
    hl_free(l->mem, x);
    return status;
}
