/* halley compare: the same run once with each of several strategies, over links of a given rate,
 * and one page about them. Ranks are started and watched as by `halley launch` over wan. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/option_internal.h"
#include "command.h"
#include "emulated.h"
#include "halley/report.h"
#include "halley/text_number.h"
#include "launch.h"
#include "os/memory.h"
#include "train/folder.h"
#include "wires/wrappers.h"

static const char usage[] =
    "halley compare [RUN.yaml] --strategies NAME,NAME,... [--rate 100mbit] [--hosts 4] [--key "
    "value "
    "...]: the same run with each strategy over slow links, and a page that compares them\n\n"
    "  sudo halley compare run.yaml --strategies ddp,zero1 --rate 100mbit --hosts 4\n"
    "  halley compare run.yaml --strategies ddp,zero1 --wire-throttle        without root\n\n"
    "Every option of 'halley train' may follow, strategies' own too. Each strategy runs in "
    "OUTPUT_DIR/NAME, one rank of one thread on each host; the page is OUTPUT_DIR/compare.html. "
    "'halley help compare' tells more.\n\n";

enum { MOST = 16, NAME_BYTES = 48 };

struct compare_options {
    char *strategies, *rate, *html, *svg;
    int64_t hosts;
    bool wire_throttle;
};

#define AT(field) .offset = offsetof(struct compare_options, field), .section = "compare"
static const struct hl_option rows[] = {
    {.name = "strategies",
     .kind = HL_OPT_STRING,
     AT(strategies),
     .help = "names with commas between them ('halley help strategies'); each runs once, in this "
             "order"},
    {.name = "rate",
     .kind = HL_OPT_STRING,
     AT(rate),
     .initial = "100mbit",
     .help = "of each host's link, each way: a number with kbit, mbit or gbit; none = as it is"},
    {.name = "hosts",
     .kind = HL_OPT_I64,
     AT(hosts),
     .initial = "4",
     .least = 2,
     .most = EMULATED_MOST,
     .unit = "hosts",
     .help = "emulated hosts, a rank on each"},
    {.name = "wire_throttle",
     .kind = HL_OPT_BOOL,
     AT(wire_throttle),
     .initial = "false",
     .help = "no network namespaces, hence no root: each rank limits what it sends by itself"},
    {.name = "html",
     .kind = HL_OPT_STRING,
     AT(html),
     .help = "the page; empty = OUTPUT_DIR/compare.html"},
    {.name = "svg",
     .kind = HL_OPT_STRING,
     AT(svg),
     .help = "also write the loss against seconds alone, as a picture; empty = not"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct hl_option_set option_set(struct compare_options *o) {
    return (struct hl_option_set){NULL, rows, N_ROWS, o};
}

struct compare {
    struct hl_mem *mem;
    struct compare_options options;
    struct hl_config *config;
    struct launch launch;
    char **own, **rest; /* words: for compare, for the runs */
    int n_own, n_rest;
    double bits_per_s; /* 0: links as they are */
    char names[MOST][NAME_BYTES];
    char folders[MOST][HL_PATH_CAPACITY];
    int n, n_done; /* strategies; runs that came to their end */
};

/* ---- words ---- */

static const struct hl_option *own_row(const char *word) {
    if (strncmp(word, "--", 2) != 0) return NULL;
    size_t n = strcspn(word + 2, "=");
    for (int i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == n && hl_option_same_n(rows[i].name, word + 2, n))
            return &rows[i];
    return NULL;
}

/* What is ours, with its value, and what is the runs'. */
static enum hl_status split_words(struct compare *c, int n_args, char **args,
                                  struct hl_diag *diag) {
    c->own = hl_alloc(c->mem, (size_t)n_args + 1, sizeof *c->own);
    c->rest = hl_alloc(c->mem, (size_t)n_args + 1, sizeof *c->rest);
    if (!c->own || !c->rest)
        return hl_fail_memory(diag, (unsigned)n_args * sizeof *c->own, "the command line");
    for (int i = 0; i < n_args; i++) {
        const struct hl_option *row = own_row(args[i]);
        if (!row) {
            c->rest[c->n_rest++] = args[i];
            continue;
        }
        c->own[c->n_own++] = args[i];
        bool value_follows = row->kind != HL_OPT_BOOL && !strchr(args[i], '=');
        if (value_follows && i + 1 < n_args) c->own[c->n_own++] = args[++i];
    }
    return HL_OK;
}

static enum hl_status read_own(struct compare *c, struct hl_diag *diag) {
    struct hl_option_set set = option_set(&c->options);
    const char *words[1];
    size_t n_words = 0;
    enum hl_status status = hl_config_new(c->mem, &set, 1, &c->config, diag);
    /* no bare words are among them */
    if (status == HL_OK)
        status = hl_config_read_flags(c->config, c->n_own, c->own, words, &n_words, diag);
    return status;
}

static enum hl_status read_rate(struct compare *c, struct hl_diag *diag) {
    static const struct {
        const char *unit;
        double bits;
    } units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    const char *text = c->options.rate;
    char number[32];
    c->bits_per_s = 0;
    if (!strcmp(text, "none")) return HL_OK;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(text), unit = strlen(units[i].unit);
        if (n <= unit || n - unit >= sizeof number || strcasecmp(text + n - unit, units[i].unit))
            continue;
        (void)snprintf(number, sizeof number, "%.*s", (int)(n - unit), text);
        if (hl_parse_f64(number, &c->bits_per_s) && c->bits_per_s > 0 && c->bits_per_s < 1e9) {
            c->bits_per_s *= units[i].bits;
            return HL_OK;
        }
    }
    return hl_fail(diag, HL_E_USER,
                   "rate: '%s' is none; write a number and its unit, such as 100mbit (kbit, mbit, "
                   "gbit), or none",
                   text);
}

/* ---- strategies ---- */

static enum hl_status add_strategy(struct compare *c, const char *name, size_t n,
                                   struct hl_diag *diag) {
    const struct hl_strategy *found;
    if (c->n == MOST) return hl_fail(diag, HL_E_USER, "strategies: %d are the most at once", MOST);
    (void)snprintf(c->names[c->n], NAME_BYTES, "%.*s", n < NAME_BYTES ? (int)n : NAME_BYTES, name);
    enum hl_status status = hl_strategy_find(c->names[c->n], &found, diag);
    for (int i = 0; i < c->n && status == HL_OK; i++)
        if (!strcmp(c->names[i], c->names[c->n]))
            status = hl_fail(diag, HL_E_USER, "strategies: %s is there twice", c->names[i]);
    c->n++;
    return status;
}

static enum hl_status read_strategies(struct compare *c, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    const char *at = c->options.strategies;
    if (!*at)
        return hl_fail(diag, HL_E_USER,
                       "which strategies? --strategies ddp,zero1 compares two; 'halley help "
                       "strategies' lists them");
    for (; status == HL_OK; at++) {
        size_t n = strcspn(at, ",");
        status = add_strategy(c, at, n, diag);
        at += n;
        if (!*at) break;
    }
    return status;
}

static enum hl_status check_folder(const char *path, bool may_be_used, struct hl_diag *diag) {
    struct hl_diag why = {0};
    enum hl_status status = hl_run_folder_check(hl_fs_os(), path, may_be_used, &why);
    if (status == HL_OK) return HL_OK;
    if (!hl_is_folder(hl_fs_os(), path)) return hl_fail(diag, status, "%s", why.text);
    return hl_fail(diag, status,
                   "output_dir: %s holds a run already; start over with --overwrite_output_dir, or "
                   "name another folder",
                   path);
}

/* Folders are looked at before the first run begins: the last of them may be hours away. */
static enum hl_status find_folders(struct compare *c, struct hl_diag *diag) {
    const struct hl_train_options *o = &c->launch.run.train;
    enum hl_status status = HL_OK;
    for (int i = 0; i < c->n && status == HL_OK; i++) {
        if (!hl_path_join(c->folders[i], o->output_dir, c->names[i]))
            return hl_fail(diag, HL_E_USER, "output_dir: the path is too long");
        status = check_folder(c->folders[i], o->overwrite_output_dir, diag);
    }
    return status == HL_OK ? hl_run_folder_make(hl_fs_os(), o->output_dir, diag) : status;
}

/* Options that a strategy refuses are found before the first run, too. Nothing here may start
 * threads: they would take signals that are meant for the supervisor. */
static enum hl_status check_strategies(struct compare *c, struct hl_diag *diag) {
    struct run_options o = c->launch.run;
    struct hl_tokenizer *tokenizer = NULL;
    struct hl_model_config model;
    enum hl_status status = run_tokenizer(c->mem, &o, &tokenizer, diag);
    if (status == HL_OK)
        status = hl_model_resolve(c->mem, &o.model, hl_tokenizer_vocab_size(tokenizer),
                                  o.data.block_size, &model, diag);
    for (int i = 0; i < c->n && status == HL_OK; i++) {
        o.train.strategy = c->names[i];
        struct hl_trainer_setup setup = {.options = &o.train,
                                         .optimizer_options = &o.optimizer,
                                         .strategy_options = &o.strategies,
                                         .model = &model,
                                         .block_size = o.data.block_size,
                                         .n_ranks = (int)c->options.hosts};
        status = hl_trainer_check(c->mem, &setup, diag);
    }
    hl_tokenizer_free(tokenizer);
    return status;
}

/* ---- configuration of the runs ---- */

static enum hl_status check_run(const struct compare *c, struct hl_diag *diag) {
    const struct hl_train_options *o = &c->launch.run.train;
    if (o->resume || *o->resume_from_checkpoint)
        return hl_fail(diag, HL_E_USER,
                       "%s: compare starts every run from the same beginning; leave it out",
                       o->resume ? "resume" : "resume_from_checkpoint");
    return HL_OK;
}

static enum hl_status read_all(struct compare *c, int n_args, char **args, bool *print_only,
                               struct hl_diag *diag) {
    struct launch *l = &c->launch;
    enum hl_status status = split_words(c, n_args, args, diag);
    if (status == HL_OK) status = read_own(c, diag);
    if (status == HL_OK)
        status = run_read_options(c->mem, NULL, c->n_rest, c->rest, &l->run, &l->run_config,
                                  print_only, diag);
    if (status != HL_OK || *print_only) return status;
    status = read_rate(c, diag);
    if (status == HL_OK) status = read_strategies(c, diag);
    if (status == HL_OK) status = check_run(c, diag);
    if (status == HL_OK) status = hl_wire_wrap_check(l->run.ranks.wire_wrappers, diag);
    if (status == HL_OK) status = check_strategies(c, diag);
    return status == HL_OK ? find_folders(c, diag) : status;
}

/* ---- runs ---- */

/* The words of a run behind the user's own, which they overrule. */
struct last_words {
    char text[8][HL_PATH_CAPACITY];
    int n;
};

static void add_word(struct last_words *w, const char *key, const char *value) {
    (void)snprintf(w->text[w->n++], HL_PATH_CAPACITY, "--%s=%s", key, value);
}

static void own_words(const struct compare *c, int i, struct last_words *w) {
    const char *given = c->launch.run.ranks.wire_wrappers;
    char throttled[512];
    add_word(w, "strategy", c->names[i]);
    add_word(w, "output_dir", c->folders[i]);
    if (!c->launch.run.train.threads) add_word(w, "threads", "1");
    if (!c->options.wire_throttle || c->bits_per_s <= 0) return;
    (void)snprintf(throttled, sizeof throttled, "%s%sthrottle=%.3fkbit", given, *given ? "," : "",
                   c->bits_per_s * 1e-3);
    add_word(w, "wire_wrappers", throttled);
}

/* Ranks as `halley launch --wire wan` starts them; `run` is what a launcher has read. */
static enum hl_status run_one(struct compare *c, int i, int *exit_out, struct hl_diag *diag) {
    struct launch *l = &c->launch;
    struct last_words *words = hl_alloc(c->mem, 1, sizeof *words);
    char **args = hl_alloc(c->mem, (size_t)c->n_rest + 8, sizeof *args);
    enum hl_status status = HL_OK;
    char *parent = l->run.train.output_dir;
    if (!words || !args) status = hl_fail_memory(diag, sizeof *words, "the words of a run");
    if (status == HL_OK) {
        own_words(c, i, words);
        for (int k = 0; k < c->n_rest; k++) args[k] = c->rest[k];
        for (int k = 0; k < words->n; k++) args[c->n_rest + k] = words->text[k];
        l->args = args;
        l->n_args = c->n_rest + words->n;
        l->run.train.output_dir = c->folders[i];
        *l->token = 0;
        status = launch_local(l, exit_out, diag);
    }
    l->run.train.output_dir = parent;
    hl_free(c->mem, args);
    hl_free(c->mem, words);
    return status;
}

/* Until the first that fails or is asked to stop. */
static enum hl_status run_all(struct compare *c, int *exit_out, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    for (int i = 0; i < c->n && status == HL_OK && !*exit_out; i++) {
        fprintf(stderr, "%s (%d of %d)\n", c->names[i], i + 1, c->n);
        status = run_one(c, i, exit_out, diag);
        if (status == HL_OK && !*exit_out) c->n_done++;
        else
            fprintf(stderr, "halley compare: the run of %s did not come to its end\n", c->names[i]);
    }
    return status;
}

/* What a launcher settles from its flags. */
static enum hl_status settle(struct compare *c, struct hl_diag *diag) {
    static const struct launch_command train = {"train", true, train_as_rank, command_train};
    static char none[] = "", meet[] = EMULATED_ADDRESS;
    struct launch *l = &c->launch;
    const struct hl_wire_plugin *plugin;
    bool real = !c->options.wire_throttle;
    int64_t seconds = l->run.ranks.timeout ? l->run.ranks.timeout : HL_DEFAULT_TIMEOUT_S;
    l->mem = c->mem;
    l->log = command_log();
    l->command = &train;
    l->options = (struct launch_options){.n = c->options.hosts,
                                         .nnodes = 1,
                                         .max_restarts = -1,
                                         .wire = none,
                                         .interface = none,
                                         .log_dir = none,
                                         .pool = none,
                                         .hosts = none,
                                         .rdzv_endpoint = real ? meet : none};
    l->wire = "wan";
    l->interface = real ? EMULATED_INTERFACE : "";
    l->timeout_ns = seconds * 1000000000;
    l->n_ranks = (int)c->options.hosts;
    l->emulated = real;
    enum hl_status status = hl_wire_find(l->wire, &plugin, diag);
    if (status == HL_OK) status = plugin->available(diag);
    return status == HL_OK ? launch_find_program(l, diag) : status;
}

/* Why there are no hosts, and the way without them. */
static enum hl_status make_hosts(struct compare *c, int *exit_out, struct hl_diag *diag) {
    struct hl_diag why = {0};
    int signal = 0;
    if (c->options.wire_throttle) return HL_OK;
    enum hl_status status =
        emulated_hosts(c->mem, (int)c->options.hosts, c->bits_per_s, &signal, &why);
    if (signal) *exit_out = 128 + signal;
    if (status == HL_OK) return HL_OK;
    return hl_fail(diag, status, "%s; %s--wire-throttle does without them", why.text,
                   status == HL_E_USER ? "run it with sudo, or " : "");
}

/* ---- page ---- */

static void describe(const struct compare *c, char *out, size_t capacity) {
    char rate[64] = "links as they are";
    if (c->bits_per_s > 0)
        (void)snprintf(rate, sizeof rate, "links of %s each way", c->options.rate);
    if (c->bits_per_s > 0 && c->options.wire_throttle)
        (void)snprintf(rate, sizeof rate, "each sends at most %s", c->options.rate);
    (void)snprintf(
        out, capacity, "%lld %s, a rank of one thread on each; %s.", (long long)c->options.hosts,
        c->options.wire_throttle ? "processes on one machine" : "network namespaces on one machine",
        rate);
}

static enum hl_status write_page(struct compare *c, struct hl_diag *diag) {
    const char *folders[MOST];
    char path[HL_PATH_CAPACITY], about[256];
    const char *html = *c->options.html ? c->options.html : path,
               *svg = *c->options.svg ? c->options.svg : NULL;
    struct hl_log log = command_log();
    if (!c->n_done) return HL_OK;
    if (!hl_path_join(path, c->launch.run.train.output_dir, "compare.html"))
        return hl_fail(diag, HL_E_USER, "output_dir: the path is too long");
    for (int i = 0; i < c->n_done; i++) folders[i] = c->folders[i];
    describe(c, about, sizeof about);
    enum hl_status status =
        hl_report_compare(c->mem, folders, c->n_done, about, html, svg, &log, diag);
    if (status == HL_OK) printf("%s\n", html);
    if (status == HL_OK && svg) printf("%s\n", svg);
    return status;
}

/* ---- the command ---- */

static enum hl_status compare(struct compare *c, int *exit_out, struct hl_diag *diag) {
    struct hl_diag second = {0};
    enum hl_status status = settle(c, diag);
    if (status == HL_OK) status = make_hosts(c, exit_out, diag);
    if (status != HL_OK || *exit_out) return status;
    status = run_all(c, exit_out, diag);
    enum hl_status written = write_page(c, status == HL_OK ? diag : &second);
    return status == HL_OK ? written : status;
}

int command_compare(int n_args, char **args) {
    struct compare *c = hl_alloc(hl_mem_os(), 1, sizeof *c);
    struct hl_diag diag = {0};
    int status_out = 0;
    bool print_only = false;
    if (!c) return command_fail("compare", hl_fail_memory(&diag, sizeof *c, "its options"), &diag);
    c->mem = hl_mem_os();
    struct hl_option_set set = option_set(&c->options);
    if (command_wants_help(n_args, args))
        return command_print_help(usage, &set, 1), hl_free(c->mem, c), 0;
    enum hl_status status = read_all(c, n_args, args, &print_only, &diag);
    if (status == HL_OK && print_only)
        status = run_print_config(c->mem, c->launch.run_config, &diag);
    else if (status == HL_OK) status = compare(c, &status_out, &diag);
    if (status != HL_OK) status_out = command_fail("compare", status, &diag);
    hl_config_free(c->launch.run_config);
    hl_config_free(c->config);
    hl_free(c->mem, c->own);
    hl_free(c->mem, c->rest);
    hl_free(c->mem, c);
    return status_out;
}
