/* See cmd_common.h. */
#include "cmd_common.h"

#include <stdio.h>
#include <string.h>

#include "kernels/threads.h"
#include "os/cpu.h"
#include "os/fs.h"
#include "os/memory.h"
#include "os/terminal.h"
#include "train/folder.h"

static const struct hl_option word_rows[] = {
    {.name = "tokenizer",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct run_words, tokenizer),
     .initial = "",
     .section = "data",
     .aliases = "tokenizer_name tokenizer_path",
     .help = "byte, or a tokenizer.json; empty = the model folder's, or byte"},
    {.name = "seed",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct run_words, seed),
     .initial = "42",
     .least = 0,
     .most = 9e18,
     .section = "training",
     .aliases = "random_seed",
     .help = "of initial weights, data order and samples: same seed, same bits"},
    {.name = "print_config",
     .kind = HL_OPT_BOOL,
     .offset = offsetof(struct run_words, print_config),
     .initial = "false",
     .section = "output",
     .help = "print the resolved configuration as YAML and do nothing else"},
};

static const struct hl_option rank_rows[] = {
    {.name = "wire",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct rank_options, wire),
     .initial = "",
     .section = "ranks",
     .help =
         "what ranks exchange over ('halley help wires'); empty = what their launcher suggests"},
    {.name = "wire_wrappers",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct rank_options, wire_wrappers),
     .initial = "",
     .section = "ranks",
     .help = "what stands in front of the wire, such as count,throttle=100mbit,delay=2ms; empty = "
             "nothing"},
    {.name = "timeout",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct rank_options, timeout),
     .initial = "0",
     .least = 0,
     .most = 1e9,
     .unit = "seconds",
     .section = "ranks",
     .help = "how long a rank may be missing, or keep the others waiting; 0 = HALLEY_TIMEOUT, or "
             "300"},
    {.name = "interface",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct rank_options, interface),
     .initial = "",
     .section = "ranks",
     .help = "network interface of the wire wan; empty = GLOO_SOCKET_IFNAME, or what the route to "
             "the others says"},
};

struct hl_option_set rank_option_set(struct rank_options *o) {
    return (struct hl_option_set){NULL, rank_rows, sizeof rank_rows / sizeof *rank_rows, o};
}

enum { N_SETS = 6, MAX_SETS = N_SETS + HL_MAX_STRATEGIES };

/* returns how many */
static size_t option_sets(struct run_options *o, struct hl_option_set sets[MAX_SETS]) {
    sets[0] =
        (struct hl_option_set){NULL, word_rows, sizeof word_rows / sizeof *word_rows, &o->words};
    sets[1] = (struct hl_option_set){NULL, hl_data_rows, hl_data_n_rows, &o->data};
    sets[2] = (struct hl_option_set){NULL, hl_model_rows, hl_model_n_rows, &o->model};
    sets[3] = (struct hl_option_set){NULL, hl_train_rows, hl_train_n_rows, &o->train};
    sets[4] = (struct hl_option_set){NULL, hl_optimizer_rows, hl_optimizer_n_rows, &o->optimizer};
    sets[5] = rank_option_set(&o->ranks);
    return N_SETS + (size_t)hl_strategy_option_sets(&o->strategies, sets + N_SETS);
}

static bool is_yaml(const char *path) {
    const char *end = strrchr(path, '.');
    return end && (!strcmp(end, ".yaml") || !strcmp(end, ".yml"));
}

/* --data takes all words up to the next flag: a configuration behind it would be learnt by heart.
 */
static enum hl_status check_data(const struct hl_data_options *o, struct hl_diag *diag) {
    for (size_t i = 0; i < o->data.n && o->text_format == HL_TEXT_AUTO; i++)
        if (is_yaml(o->data.items[i]))
            return hl_fail(diag, HL_E_USER,
                           "--data: '%s' is called like a configuration, which stands in front of "
                           "the flags; if it is text, add --text_format document",
                           o->data.items[i]);
    return HL_OK;
}

/* A word that is not called like a configuration was perhaps meant as the data. */
static enum hl_status read_file(struct hl_config *config, const char *path, struct hl_diag *diag) {
    struct hl_diag why = {0};
    enum hl_status status = hl_config_read_yaml(config, path, &why);
    if (status == HL_OK) return HL_OK;
    return hl_fail(diag, status, "%s%s", why.text,
                   is_yaml(path) ? "" : "; if it is text to learn from, it stands behind --data");
}

static enum hl_status read_words(struct hl_config *config, int n_args, char **args,
                                 const char **words, struct hl_diag *diag) {
    size_t n_words = 0;
    enum hl_status status = hl_config_read_flags(config, n_args, args, words, &n_words, diag);
    for (size_t i = 0; i < n_words && status == HL_OK; i++)
        status = read_file(config, words[i], diag);
    /* once more, so that flags win over files */
    return status == HL_OK && n_words
               ? hl_config_read_flags(config, n_args, args, words, &n_words, diag)
               : status;
}

enum hl_status run_read_options(struct hl_mem *mem, const char *base_yaml, int n_args, char **args,
                                struct run_options *options, struct hl_config **config_out,
                                bool *print_only_out, struct hl_diag *diag) {
    struct hl_option_set sets[MAX_SETS];
    size_t n_sets = option_sets(options, sets);
    enum hl_status status = hl_config_new(mem, sets, n_sets, config_out, diag);
    if (status != HL_OK) return status;
    const char **words = hl_alloc(mem, (size_t)n_args + 1, sizeof *words);
    if (!words) return hl_fail_memory(diag, (unsigned)n_args * sizeof *words, "the command line");
    if (base_yaml) status = hl_config_read_yaml(*config_out, base_yaml, diag);
    if (status == HL_OK) status = read_words(*config_out, n_args, args, words, diag);
    hl_free(mem, words);
    if (status == HL_OK) status = check_data(&options->data, diag);
    options->data.seed = (uint64_t)options->words.seed;
    options->data.to_score = false;
    *print_only_out = options->words.print_config;
    return status;
}

enum hl_status run_check_resume(const struct hl_train_options *o, struct hl_diag *diag) {
    bool named =
        *o->resume_from_checkpoint && hl_is_inside(o->resume_from_checkpoint, o->output_dir);
    if (!o->overwrite_output_dir || !(o->resume || named)) return HL_OK;
    return hl_fail(
        diag, HL_E_USER,
        "%s goes on with the run in %s, and overwrite_output_dir removes it: leave one of "
        "them out",
        named ? "resume_from_checkpoint" : "resume", o->output_dir);
}

enum hl_status command_read(int n_args, char **args, const struct hl_option_set *sets,
                            size_t n_sets, const char **word_out, const char *missing,
                            struct hl_config **config_out, struct hl_diag *diag) {
    struct hl_mem *mem = hl_mem_os();
    enum hl_status status = hl_config_new(mem, sets, n_sets, config_out, diag);
    if (status != HL_OK) return status;
    const char **words = hl_alloc(mem, (size_t)n_args + 1, sizeof *words);
    if (!words) return hl_fail_memory(diag, (unsigned)n_args * sizeof *words, "the command line");
    size_t n_words = 0;
    status = hl_config_read_flags(*config_out, n_args, args, words, &n_words, diag);
    if (status == HL_OK && n_words == 1) *word_out = words[0];
    else if (status == HL_OK)
        status = n_words ? hl_fail(diag, HL_E_USER,
                                   "'%s' is one word too many; quote a text with blanks", words[1])
                         : hl_fail(diag, HL_E_USER, "%s", missing);
    hl_free(mem, words);
    return status;
}

void command_print_help(const char *usage, const struct hl_option_set *sets, size_t n_sets) {
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_config_print_help(sets, n_sets, hl_terminal_is(1) ? hl_terminal_columns(1) : 100, &text);
    printf("%s%s", usage, text.data ? text.data : "");
    hl_buf_free(&text);
}

enum hl_status run_print_config(struct hl_mem *mem, const struct hl_config *config,
                                struct hl_diag *diag) {
    struct hl_buf text = {.mem = mem};
    hl_config_print_yaml(config, false, &text);
    enum hl_status status =
        text.failed ? hl_fail_memory(diag, text.n, "the configuration as text") : HL_OK;
    if (status == HL_OK) (void)fputs(text.data, stdout);
    hl_buf_free(&text);
    return status;
}

void run_print_help(const char *usage) {
    struct run_options options;
    struct hl_option_set sets[MAX_SETS];
    command_print_help(usage, sets, option_sets(&options, sets));
}

void run_print_markdown(struct hl_buf *out) {
    struct run_options options;
    struct hl_option_set sets[MAX_SETS];
    hl_config_print_markdown(sets, option_sets(&options, sets), out);
}

enum hl_status run_tokenizer(struct hl_mem *mem, const struct run_options *options,
                             struct hl_tokenizer **out, struct hl_diag *diag) {
    const char *name = options->words.tokenizer;
    char folder[HL_PATH_CAPACITY], beside[HL_PATH_CAPACITY];
    enum hl_status found =
        *name ? HL_END : hl_model_folder(mem, &options->model, folder, sizeof folder, diag);
    if (found < 0) return found;
    if (found == HL_OK && hl_path_join(beside, folder, "tokenizer.json") &&
        hl_fs_os()->size(hl_fs_os(), beside) >= 0)
        name = beside;
    return hl_tokenizer_open(mem, *name ? name : "byte", out, diag);
}

void command_set_threads(int64_t asked) {
    struct hl_cpu cpu;
    char why[160];
    hl_cpu_read(&cpu);
    hl_threads_set(hl_cpu_threads(&cpu, asked, why, sizeof why));
}

bool command_wants_help(int n_args, char **args) {
    for (int i = 0; i < n_args; i++)
        if (!strcmp(args[i], "--help") || !strcmp(args[i], "-h")) return true;
    return false;
}

static void print_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)log;
    fprintf(stderr, "%s%s\n",
            level >= HL_LOG_ERROR  ? "error: "
            : level == HL_LOG_WARN ? "warning: "
                                   : "",
            text);
}

struct hl_log command_log(void) {
    return (struct hl_log){.line = print_line, .least = HL_LOG_INFO};
}

int command_status(enum hl_status status) {
    switch (status) {
    case HL_E_USER:
    case HL_E_UNSUPPORTED: return 2;
    case HL_E_NUMERIC: return 3;
    case HL_E_PEER:
    case HL_E_TIMEOUT: return COMMAND_PEER_FAILED;
    default: return 1;
    }
}

int command_fail(const char *command, enum hl_status status, const struct hl_diag *diag) {
    fprintf(stderr, "halley %s: %s\n", command, *diag->text ? diag->text : hl_status_name(status));
    return command_status(status);
}
