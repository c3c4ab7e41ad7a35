/* halley data: shards from text, a tokenizer from text, a look into a shard. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/data.h"
#include "halley/text_number.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/terminal.h"
#include "text/build.h"
#include "text/inspect.h"

struct data_options {
    struct hl_string_list data, inspect;
    char *tokenizer, *out, *text_key;
    int64_t train_tokenizer, shard_tokens, show_tokens, threads;
    int text_format;
    bool strict;
};

#define AT(field) .offset = offsetof(struct data_options, field)
static const struct hl_option rows[] = {
    {.name = "data",
     .kind = HL_OPT_LIST,
     AT(data),
     .section = "build",
     .aliases = "train_file train_files dataset datasets",
     .help = "text files (.txt, .jsonl) and globs"},
    {.name = "tokenizer",
     .kind = HL_OPT_STRING,
     AT(tokenizer),
     .section = "build",
     .initial = "byte",
     .help = "byte, a tokenizer.json or a folder that holds one"},
    {.name = "out",
     .kind = HL_OPT_STRING,
     AT(out),
     .section = "build",
     .aliases = "output output_dir output_path",
     .help = "folder for the shards, or with --train-tokenizer the tokenizer.json to write"},
    {.name = "shard_tokens",
     .kind = HL_OPT_I64,
     AT(shard_tokens),
     .section = "build",
     .initial = "100000000",
     .least = 1,
     .most = 1e12,
     .unit = "tokens",
     .aliases = "shard_size",
     .help = "a shard ends with the document that brings it to so many"},
    {.name = "train_tokenizer",
     .kind = HL_OPT_I64,
     AT(train_tokenizer),
     .section = "build",
     .initial = "0",
     .least = 0,
     .most = 1000000,
     .unit = "tokens",
     .aliases = "vocab_size",
     .help = "learn a BPE with so many tokens instead of building shards"},
    {.name = "text_key",
     .kind = HL_OPT_STRING,
     AT(text_key),
     .section = "build",
     .initial = "text",
     .aliases = "text_column text_field json_key",
     .help = "key of the text in each JSONL row"},
    {.name = "text_format",
     .kind = HL_OPT_CHOICE,
     AT(text_format),
     .section = "build",
     .initial = "auto",
     .choices = "auto document lines jsonl",
     .help = "document: a file is one document; lines: each line is one; auto: by the file's name"},
    {.name = "strict",
     .kind = HL_OPT_BOOL,
     AT(strict),
     .section = "build",
     .initial = "false",
     .help = "stop at a line that cannot be read instead of skipping and counting it"},
    {.name = "threads",
     .kind = HL_OPT_I64,
     AT(threads),
     .section = "build",
     .initial = "0",
     .least = 0,
     .most = 1024,
     .unit = "threads",
     .help = "threads that tokenise; 0 = as many as cores"},
    {.name = "inspect",
     .kind = HL_OPT_LIST,
     AT(inspect),
     .section = "look",
     .help = "shards to look into; their checksums are compared"},
    {.name = "show_tokens",
     .kind = HL_OPT_I64,
     AT(show_tokens),
     .section = "look",
     .initial = "32",
     .least = 0,
     .most = 100000,
     .unit = "tokens",
     .help = "so many of the first tokens are shown"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int print_help(void) {
    struct data_options options;
    const struct hl_option_set set = {NULL, rows, N_ROWS, &options};
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_config_print_help(&set, 1, hl_terminal_is(1) ? hl_terminal_columns(1) : 100, &text);
    printf("halley data turns text into tokens on disk.\n\n"
           "Training reads text directly; shards save the tokenising when the text is large or "
           "used often.\n\n"
           "  learn a tokenizer      halley data --train-tokenizer 4096 --data 'corpus/*.txt' "
           "--out tokenizer.json\n"
           "  build shards           halley data --data 'corpus/*.jsonl' --tokenizer "
           "tokenizer.json --out shards\n"
           "  look into one          halley data --inspect shards/data-000000.hls\n"
           "  train from them        halley train --data 'shards/*.hls' --tokenizer "
           "shards/tokenizer.json\n\n%s",
           text.data ? text.data : "");
    hl_buf_free(&text);
    return 0;
}

/* ---- what people see ---- */

static void print_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)log;
    fprintf(stderr, "halley data: %s%s\n", level >= HL_LOG_WARN ? "warning: " : "", text);
}

static int fail(enum hl_status status, const struct hl_diag *diag) {
    return command_fail("data", status, diag);
}

struct meter {
    int64_t start_ns, shown_ns;
    bool terminal;
};

/* Once per second on a terminal, every ten seconds elsewhere; nothing for what is done at once. */
static void show_progress(void *context, uint64_t done, uint64_t total) {
    struct meter *meter = context;
    int64_t now = hl_clock_ns(), pause = meter->terminal ? 1000000000 : 10000000000;
    if (now - meter->shown_ns < pause) return;
    meter->shown_ns = now;
    char size[32], speed[32], percent[32];
    hl_print_bytes(size, sizeof size, done);
    hl_print_bytes(speed, sizeof speed,
                   (uint64_t)((double)done / ((double)(now - meter->start_ns) * 1e-9)));
    hl_print_fixed(percent, sizeof percent, total ? 100.0 * (double)done / (double)total : 0, 0);
    fprintf(stderr, meter->terminal ? "\r%s of text, %s %%, %s/s   " : "%s of text, %s %%, %s/s\n",
            size, percent, speed);
}

static void clear_progress(const struct meter *meter) {
    if (meter->terminal && meter->shown_ns != meter->start_ns) fputs("\r\033[K", stderr);
}

static void print_speed(const struct meter *meter, const struct hl_built *built) {
    double seconds = (double)(hl_clock_ns() - meter->start_ns) * 1e-9;
    char size[32], speed[32], took[32];
    hl_print_bytes(size, sizeof size, built->n_bytes);
    hl_print_bytes(speed, sizeof speed, (uint64_t)((double)built->n_bytes / seconds));
    hl_print_fixed(took, sizeof took, seconds, 1);
    printf("%" PRIu64 " file%s, %s in %s s (%s/s)", built->n_files, built->n_files == 1 ? "" : "s",
           size, took, speed);
    if (built->n_skipped) printf("; %" PRIu64 " skipped, see above", built->n_skipped);
    printf("\n");
}

/* ---- the three jobs ---- */

static struct hl_build new_build(const struct data_options *options, struct hl_log *log,
                                 struct meter *meter) {
    struct hl_cpu cpu;
    char why[128];
    hl_cpu_read(&cpu);
    *meter = (struct meter){hl_clock_ns(), 0, hl_terminal_is(2)};
    meter->shown_ns = meter->start_ns;
    return (struct hl_build){.mem = hl_mem_default(),
                             .data = &options->data,
                             .text_key = options->text_key,
                             .text_format = options->text_format,
                             .strict = options->strict,
                             .n_threads = hl_cpu_threads(&cpu, options->threads, why, sizeof why),
                             .log = log,
                             .progress = show_progress,
                             .progress_context = meter};
}

static int train_tokenizer(const struct data_options *options, struct hl_log *log) {
    struct meter meter;
    struct hl_build build = new_build(options, log, &meter);
    struct hl_tokenizer *tokenizer;
    struct hl_built built;
    struct hl_diag diag;
    enum hl_status status =
        hl_build_tokenizer(&build, options->train_tokenizer, &tokenizer, &built, &diag);
    clear_progress(&meter);
    if (status) return fail(status, &diag);
    status = hl_tokenizer_write(build.mem, tokenizer, options->out, &diag);
    hl_tokenizer_free(tokenizer);
    if (status) return fail(status, &diag);
    print_speed(&meter, &built);
    printf("%s: %" PRIu64 " tokens\n", options->out, built.n_tokens);
    return 0;
}

static int build_shards(const struct data_options *options, struct hl_log *log) {
    struct meter meter;
    struct hl_build build = new_build(options, log, &meter);
    struct hl_tokenizer *tokenizer;
    struct hl_built built;
    struct hl_diag diag;
    enum hl_status status = hl_tokenizer_open(build.mem, options->tokenizer, &tokenizer, &diag);
    if (status) return fail(status, &diag);
    status = hl_build_shards(&build, tokenizer, options->out, (uint64_t)options->shard_tokens,
                             &built, &diag);
    hl_tokenizer_free(tokenizer);
    clear_progress(&meter);
    if (status) return fail(status, &diag);
    print_speed(&meter, &built);
    printf("%s: %" PRIu64 " shard%s, %" PRIu64 " documents, %" PRIu64 " tokens\n", options->out,
           built.n_shards, built.n_shards == 1 ? "" : "s", built.n_documents, built.n_tokens);
    return 0;
}

/* The tokenizer that was asked for, or the one beside the shard, or none. */
static enum hl_status tokenizer_for(const char *path, const char *asked, struct hl_tokenizer **out,
                                    struct hl_diag *diag) {
    struct hl_mem *mem = hl_mem_default();
    const char *slash = strrchr(path, '/');
    struct hl_buf beside = {.mem = mem};
    *out = NULL;
    if (asked) return hl_tokenizer_open(mem, asked, out, diag);
    hl_buf_printf(&beside, "%.*stokenizer.json", slash ? (int)(slash + 1 - path) : 0, path);
    if (!beside.failed && !access(beside.data, R_OK) &&
        hl_tokenizer_open(mem, beside.data, out, diag))
        *out = NULL;
    hl_buf_free(&beside);
    return HL_OK;
}

static int inspect(const struct data_options *options, const char *asked) {
    int result = 0;
    for (size_t i = 0; i < options->inspect.n; i++) {
        struct hl_buf text = {.mem = hl_mem_default()};
        struct hl_tokenizer *tokenizer;
        struct hl_diag diag;
        enum hl_status status = tokenizer_for(options->inspect.items[i], asked, &tokenizer, &diag);
        if (!status)
            status = hl_shard_describe(text.mem, options->inspect.items[i], tokenizer,
                                       (size_t)options->show_tokens, &text, &diag);
        if (text.data) printf("%s%s", i ? "\n" : "", text.data);
        if (status) result = fail(status, &diag);
        hl_tokenizer_free(tokenizer);
        hl_buf_free(&text);
    }
    return result;
}

static int run_job(struct hl_config *config, const struct data_options *options) {
    struct hl_log log = {print_line, HL_LOG_INFO, NULL};
    if (options->inspect.n)
        return inspect(options, hl_config_given(config, "tokenizer") ? options->tokenizer : NULL);
    if (!options->data.n || !*options->out) {
        fprintf(stderr, "halley data: give %s; 'halley data --help' shows examples\n",
                options->data.n ? "--out" : "--data and --out, or --inspect SHARD");
        return 2;
    }
    return options->train_tokenizer ? train_tokenizer(options, &log) : build_shards(options, &log);
}

int command_data(int n_args, char **args) {
    struct data_options options;
    const struct hl_option_set set = {NULL, rows, N_ROWS, &options};
    struct hl_config *config;
    struct hl_diag diag;
    for (int i = 0; i < n_args; i++)
        if (!strcmp(args[i], "--help") || !strcmp(args[i], "-h")) return print_help();
    enum hl_status status = hl_config_new(hl_mem_default(), &set, 1, &config, &diag);
    if (status) return fail(status, &diag);
    const char **words = hl_alloc(hl_mem_default(), (size_t)n_args + 1, sizeof *words);
    size_t n_words = 0;
    status = words ? hl_config_read_flags(config, n_args, args, words, &n_words, &diag)
                   : hl_fail_memory(&diag, (unsigned)n_args * sizeof *words, "the command line");
    if (!status && n_words)
        status = hl_fail(&diag, HL_E_USER,
                         "'%s' belongs to no option; files come behind --data, shards to look into "
                         "behind --inspect",
                         words[0]);
    int result = status ? fail(status, &diag) : run_job(config, &options);
    hl_free(hl_mem_default(), words);
    hl_config_free(config);
    return result;
}
