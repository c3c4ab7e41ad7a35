/* Answers bench/run.py: one subject per process, one measurement per line of standard input, so
 * that ours and a peer's process can be asked in turn. Prints "ready" with what a reader should
 * know, then a number per question.
 *
 * - bench_worker step f32|bf16 [recompute]: step (seconds), products (library), halley (our
 *   products), loss
 * - bench_worker attention f32|bf16 T: run
 * - bench_worker adamw f32|bf16: run, copy
 * - bench_worker head f32|bf16: run, logits (bytes)
 * - bench_worker codec NAME: encode, decode, feedback, copy
 * - bench_worker loader FILE TOKENIZER: run (seconds to read and tokenise the file with one thread)
 *
 * Every subject answers: peak and resident (bytes). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kernels/threads.h"
#include "model/run_internal.h"
#include "os/cpu.h"
#include "os/memory.h"
#include "train/trainer_internal.h"

enum { ROWS = 4, TOKENS = 256, HEADS = 12, HEAD_SIZE = 64 };

struct worker {
    struct hl_mem *mem;
    enum hl_dtype dtype;
    struct bench_step *step;
    double loss;
    struct bench_product list[BENCH_MOST_PRODUCTS];
    struct bench_products *products;
    struct bench_attention *attention;
    struct bench_adamw *adamw;
    struct bench_head *head;
    struct bench_codec *codec;
    struct hl_tokenizer *tokenizer;
    char *file;
};

/* ---- questions ---- */

static enum hl_status ask_step(struct worker *w, double *out, struct hl_diag *diag) {
    return bench_step_run(w->step, out, &w->loss, diag);
}

static enum hl_status ask_loss(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = w->loss;
    return HL_OK;
}

static enum hl_status products(struct worker *w, enum bench_engine engine, double *out,
                               struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!w->products) {
        const struct hl_model_run *run = bench_step_trainer(w->step)->run;
        int n = bench_products_of(run->model, ROWS * TOKENS, run->chunk_rows, w->list);
        status = bench_products_new(w->mem, w->list, n, w->dtype, &w->products, diag);
        if (!status)
            status = bench_products_step(w->products, engine, out,
                                         diag); /* the first prepares the library */
    }
    return status ? status : bench_products_step(w->products, engine, out, diag);
}

static enum hl_status ask_products(struct worker *w, double *out, struct hl_diag *diag) {
    return products(w, BENCH_ENGINE_LIBRARY, out, diag);
}

static enum hl_status ask_halley(struct worker *w, double *out, struct hl_diag *diag) {
    return products(w, BENCH_ENGINE_HALLEY, out, diag);
}

static enum hl_status ask_run(struct worker *w, double *out, struct hl_diag *diag) {
    if (w->attention) *out = bench_attention_run(w->attention);
    else if (w->adamw) *out = bench_adamw_run(w->adamw);
    else if (w->head) return bench_head_run(w->head, out, diag);
    else {
        struct hl_data_options options = {.data = {&w->file, 1},
                                          .text_key = (char[]){"text"},
                                          .text_format = HL_TEXT_DOCUMENT,
                                          .block_size = TOKENS,
                                          .seed = 1,
                                          .cache_dir = (char[]){""}};
        struct hl_dataset *dataset;
        double start = bench_now();
        enum hl_status status =
            hl_dataset_open(w->mem, &options, w->tokenizer, 1, NULL, &dataset, diag);
        *out = bench_now() - start;
        if (status) return status;
        hl_dataset_free(dataset);
    }
    return HL_OK;
}

static enum hl_status ask_copy(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = w->codec ? bench_codec_copy(w->codec) : bench_adamw_copy(w->adamw);
    return HL_OK;
}

static enum hl_status ask_encode(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = bench_codec_encode(w->codec);
    return HL_OK;
}

static enum hl_status ask_decode(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = bench_codec_decode(w->codec);
    return HL_OK;
}

static enum hl_status ask_feedback(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = bench_codec_feedback(w->codec);
    return HL_OK;
}

static enum hl_status ask_peak(struct worker *w, double *out, struct hl_diag *diag) {
    (void)w, (void)diag;
    *out = (double)hl_memory_peak_resident_bytes();
    return HL_OK;
}

static enum hl_status ask_resident(struct worker *w, double *out, struct hl_diag *diag) {
    (void)w, (void)diag;
    *out = (double)hl_memory_resident_bytes();
    return HL_OK;
}

static enum hl_status ask_logits(struct worker *w, double *out, struct hl_diag *diag) {
    (void)diag;
    *out = (double)bench_head_logits_bytes(w->head);
    return HL_OK;
}

static const struct {
    const char *name;
    enum hl_status (*answer)(struct worker *w, double *out, struct hl_diag *diag);
} questions[] = {{"step", ask_step},     {"loss", ask_loss},         {"products", ask_products},
                 {"halley", ask_halley}, {"run", ask_run},           {"copy", ask_copy},
                 {"peak", ask_peak},     {"resident", ask_resident}, {"logits", ask_logits},
                 {"encode", ask_encode}, {"decode", ask_decode},     {"feedback", ask_feedback}};

/* ---- subjects ---- */

static enum hl_status prepare(struct worker *w, int n, char **words, struct hl_diag *diag) {
    if (n == 3 && !strcmp(words[0], "loader")) {
        w->file = words[1];
        return hl_tokenizer_open(w->mem, words[2], &w->tokenizer, diag);
    }
    if (n == 2 && !strcmp(words[0], "codec"))
        return bench_codec_new(w->mem, words[1], 32000000, &w->codec, diag);
    w->dtype = n > 1 && !strcmp(words[1], "bf16") ? HL_BF16 : HL_F32;
    if (n > 1 && !strcmp(words[0], "step")) {
        struct bench_step_setup setup = {"gpt2-124m",
                                         ROWS,
                                         TOKENS,
                                         0,
                                         w->dtype == HL_BF16,
                                         n > 2 && !strcmp(words[2], "recompute")};
        return bench_step_new(w->mem, &setup, &w->step, diag);
    }
    if (n == 3 && !strcmp(words[0], "attention"))
        return bench_attention_new(w->mem, w->dtype, 1, atoll(words[2]), HEADS, HEAD_SIZE,
                                   &w->attention, diag);
    if (n == 2 && !strcmp(words[0], "adamw"))
        return bench_adamw_new(w->mem, w->dtype, 32000000, &w->adamw, diag);
    if (n == 2 && !strcmp(words[0], "head"))
        return bench_head_new(w->mem, w->dtype, ROWS * TOKENS, &w->head, diag);
    return hl_fail(diag, HL_E_USER,
                   "usage: bench_worker step|attention|adamw|head|codec|loader ...; see the head "
                   "of bench_worker.c");
}

static enum hl_status answer(struct worker *w, const char *question, struct hl_diag *diag) {
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        if (strcmp(question, questions[i].name) != 0) continue;
        double value;
        enum hl_status status = questions[i].answer(w, &value, diag);
        if (!status) printf("%.9g\n", value);
        return status;
    }
    return hl_fail(diag, HL_E_USER, "no such question: %s", question);
}

static enum hl_status serve(struct worker *w, struct hl_diag *diag) {
    char line[64];
    enum hl_status status = HL_OK;
    while (!status && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        status = answer(w, line, diag);
        (void)fflush(stdout);
    }
    return status;
}

int main(int argc, char **argv) {
    struct hl_diag diag = {0};
    struct hl_cpu cpu;
    struct worker w = {.mem = hl_mem_os()};
    hl_cpu_read(&cpu);
    char why[256];
    int threads = hl_cpu_threads(&cpu, 0, why, sizeof why);
    hl_threads_set(threads);
    hl_denormals_off();
    enum hl_status status = prepare(&w, argc - 1, argv + 1, &diag);
    if (!status) {
        printf("ready %d threads, %s\n", threads, hl_products_describe());
        (void)fflush(stdout);
        status = serve(&w, &diag);
    }
    bench_products_free(w.products);
    bench_step_free(w.step);
    bench_attention_free(w.attention);
    bench_adamw_free(w.adamw);
    bench_head_free(w.head);
    bench_codec_free(w.codec);
    hl_tokenizer_free(w.tokenizer);
    if (!status) return 0;
    (void)fprintf(stderr, "bench_worker: %s\n", diag.text);
    return 1;
}
