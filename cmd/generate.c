/* halley generate: text from a model, streamed as it is made. */
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/terminal.h"
#include "report/utf8.h"
#include "serve/loaded.h"

static const char usage[] =
    "halley generate FOLDER [--prompt TEXT] [--key value ...]: continue a text\n\n"
    "  halley generate halley-run --prompt 'In the beginning'     newest checkpoint of a run\n"
    "  halley generate gpt2-folder --greedy --max_new_tokens 40   any Hugging Face folder\n\n"
    "The text goes to standard output as it is made; the same seed gives the same text.\n\n";

struct words {
    char *prompt, *tokenizer;
    int64_t max_new_tokens, top_k, seed, threads;
    double temperature, top_p;
    bool greedy, bf16, ignore_eos, stats;
};

#define AT(field) .offset = offsetof(struct words, field), .section = "generation"
static const struct hl_option rows[] = {
    {.name = "prompt",
     .kind = HL_OPT_STRING,
     AT(prompt),
     .initial = "",
     .help = "text to continue; empty = the end-of-text token"},
    {.name = "max_new_tokens",
     .kind = HL_OPT_I64,
     AT(max_new_tokens),
     .initial = "200",
     .least = 1,
     .most = 1e9,
     .unit = "tokens",
     .aliases = "max_tokens n_predict",
     .help = "stop after so many"},
    {.name = "temperature",
     .kind = HL_OPT_F64,
     AT(temperature),
     .initial = "0.8",
     .least = 0,
     .most = 100,
     .help = "0 = always the most likely token"},
    {.name = "top_k",
     .kind = HL_OPT_I64,
     AT(top_k),
     .initial = "0",
     .least = 0,
     .most = 1e9,
     .help = "draw among the k most likely; 0 = all"},
    {.name = "top_p",
     .kind = HL_OPT_F64,
     AT(top_p),
     .initial = "1",
     .least = 0,
     .most = 1,
     .help = "draw among the most likely that make up this share of what top_k leaves"},
    {.name = "seed",
     .kind = HL_OPT_I64,
     AT(seed),
     .initial = "0",
     .least = 0,
     .most = 9e18,
     .help = "of the draws"},
    {.name = "greedy",
     .kind = HL_OPT_BOOL,
     AT(greedy),
     .initial = "false",
     .help = "the same as --temperature 0"},
    {.name = "ignore_eos",
     .kind = HL_OPT_BOOL,
     AT(ignore_eos),
     .initial = "false",
     .help = "go on after the end of a text"},
    {.name = "tokenizer",
     .kind = HL_OPT_STRING,
     AT(tokenizer),
     .initial = "",
     .help = "byte or a tokenizer.json; empty = the folder's"},
    {.name = "bf16", .kind = HL_OPT_BOOL, AT(bf16), .initial = "false", .help = "compute in bf16"},
    {.name = "threads",
     .kind = HL_OPT_I64,
     AT(threads),
     .initial = "0",
     .least = 0,
     .most = 4096,
     .help = "0 = physical cores"},
    {.name = "stats",
     .kind = HL_OPT_BOOL,
     AT(stats),
     .initial = "false",
     .help = "tokens per second on standard error"},
};

/* Whole characters are written as soon as their last byte is known. */
struct stream {
    const struct hl_loaded *model;
    struct hl_buf waiting;
    bool terminal;
    int64_t n;
};

static void put(struct stream *s, const char *bytes, size_t n) {
    struct hl_buf clean = {.mem = hl_mem_default()};
    if (s->terminal) hl_utf8_clean(&clean, bytes, n, HL_CLEAN_TERMINAL);
    else hl_buf_add(&clean, bytes, n);
    fwrite(clean.data ? clean.data : "", 1, clean.n, stdout);
    fflush(stdout);
    hl_buf_free(&clean);
}

/* Bytes at the end that may be the start of a character. */
static size_t unfinished(const char *text, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)text[n - k];
        if (c >= 0xC0) return (c >= 0xF0 ? 4u : c >= 0xE0 ? 3u : 2u) > k ? k : 0;
        if (c < 0x80) return 0;
    }
    return 0;
}

static bool emit(void *context, int32_t token) {
    struct stream *s = context;
    struct hl_diag diag;
    s->n++;
    if (hl_tokenizer_decode(s->model->tokenizer, &token, 1, false, &s->waiting, &diag) != HL_OK)
        return false;
    size_t keep = unfinished(s->waiting.data ? s->waiting.data : "", s->waiting.n),
           ready = s->waiting.n - keep;
    if (ready) put(s, s->waiting.data, ready);
    if (ready && keep) memmove(s->waiting.data, s->waiting.data + ready, keep);
    s->waiting.n = keep;
    return hl_signal_pending() == 0;
}

static enum hl_status encode_prompt(const struct hl_loaded *m, const char *text,
                                    struct hl_tokens *out, struct hl_diag *diag) {
    int32_t bos = hl_tokenizer_bos(m->tokenizer), eos = hl_tokenizer_eos(m->tokenizer),
            first = bos >= 0 ? bos : eos;
    bool begin = first >= 0 &&
                 (!*text || (m->model->config.bos_token_id == first && bos >= 0 && bos != eos));
    if (begin) {
        if (!(out->ids = hl_alloc(out->mem, 1, sizeof *out->ids)))
            return hl_fail_memory(diag, 4, "the prompt");
        out->ids[0] = first;
        out->n = out->capacity = 1;
    }
    if (!*text) return begin ? HL_OK : hl_tokenizer_encode(m->tokenizer, "\n", 1, false, out, diag);
    return hl_tokenizer_encode(m->tokenizer, text, strlen(text), false, out, diag);
}

static enum hl_status run(struct hl_mem *mem, const char *folder, const struct words *w,
                          struct hl_log *log, struct hl_diag *diag) {
    struct hl_loaded model;
    /* No token is shorter than a byte: memory for this text, not for the longest that the model is
     * made for. */
    struct hl_loaded_shape shape = {.dtype = w->bf16 ? HL_BF16 : HL_F32,
                                    .tokenizer = w->tokenizer,
                                    .max_positions =
                                        (int64_t)strlen(w->prompt) + 2 + w->max_new_tokens};
    enum hl_status status = hl_loaded_open(mem, folder, &shape, log, &model, diag);
    if (status != HL_OK) return status;
    hl_signal_watch();
    struct hl_tokens prompt = {.mem = mem};
    struct stream stream = {
        .model = &model, .waiting = {.mem = mem}, .terminal = hl_terminal_is(1)};
    struct hl_generate_options options = {.max_new_tokens = w->max_new_tokens,
                                          .temperature = w->greedy ? 0 : w->temperature,
                                          .top_k = w->top_k,
                                          .top_p = w->top_p,
                                          .seed = (uint64_t)w->seed,
                                          .ignore_eos = w->ignore_eos,
                                          .n_tokens = hl_tokenizer_vocab_size(model.tokenizer)};
    struct hl_generator g = hl_loaded_generator(&model);
    status = encode_prompt(&model, w->prompt, &prompt, diag);
    int64_t before = hl_clock_ns();
    if (status == HL_OK) {
        put(&stream, w->prompt, strlen(w->prompt));
        status = hl_generate(&g, prompt.ids, (int64_t)prompt.n, &options,
                             hl_tokenizer_eos(model.tokenizer), emit, &stream, diag);
        if (stream.waiting.n) put(&stream, stream.waiting.data, stream.waiting.n);
        puts("");
        fflush(stdout);
    }
    double seconds = (double)(hl_clock_ns() - before) * 1e-9;
    if (w->stats) {
        char rate[32];
        hl_print_fixed(rate, sizeof rate, (double)stream.n / seconds, 1);
        fprintf(stderr, "%lld tokens, %s tokens/s\n", (long long)stream.n, rate);
    }
    hl_buf_free(&stream.waiting);
    hl_tokens_free(&prompt);
    hl_loaded_close(&model);
    return status;
}

int command_generate(int n_args, char **args) {
    struct words words;
    struct hl_option_set set = {NULL, rows, sizeof rows / sizeof *rows, &words};
    struct hl_diag diag = {0};
    struct hl_log log = command_log();
    log.least = HL_LOG_WARN;
    if (command_wants_help(n_args, args)) return command_print_help(usage, &set, 1), 0;
    const char *folder;
    struct hl_config *config = NULL;
    enum hl_status status = command_read(
        n_args, args, &set, 1, &folder,
        "name a run's output_dir, a checkpoint or a Hugging Face folder", &config, &diag);
    if (status == HL_OK) {
        command_set_threads(words.threads);
        status = run(hl_mem_os(), folder, &words, &log, &diag);
    }
    hl_config_free(config);
    if (status != HL_OK) return command_fail("generate", status, &diag);
    int signal = hl_signal_pending();
    return signal ? 128 + signal : 0;
}
