/* halley bench: what this machine gives, measured with the parts that training uses. Medians of a
 * few rounds, for people; comparisons with other programs are bench/run.py's work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cmd_common.h"
#include "command.h"
#include "halley/halley.h"
#include "kernels/threads.h"
#include "model/run_internal.h"
#include "os/cpu.h"
#include "os/memory.h"
#include "os/terminal.h"
#include "train/trainer_internal.h"

struct bench_options {
    char *model;
    int64_t block_size, rows, threads, rounds;
    int numbers, only;
};
enum { NUMBERS_BOTH, NUMBERS_F32, NUMBERS_BF16 };
enum { ONLY_ALL, ONLY_PRODUCTS, ONLY_ATTENTION, ONLY_ADAMW, ONLY_STEP };
enum { MOST_ROUNDS = 101 };

#define AT(field) .offset = offsetof(struct bench_options, field)
static const struct hl_option rows[] = {
    {.name = "model",
     .kind = HL_OPT_STRING,
     AT(model),
     .initial = "gpt2-124m",
     .help = "preset whose shapes are measured ('halley help models')"},
    {.name = "block_size",
     .kind = HL_OPT_I64,
     AT(block_size),
     .initial = "256",
     .least = 1,
     .most = 1 << 20,
     .unit = "tokens",
     .aliases = "seq_length max_length",
     .help = "tokens in a row"},
    {.name = "per_device_train_batch_size",
     .kind = HL_OPT_I64,
     AT(rows),
     .initial = "4",
     .least = 1,
     .most = 1 << 16,
     .unit = "rows",
     .aliases = "micro_batch_size batch_size",
     .help = "rows in a step"},
    {.name = "numbers",
     .kind = HL_OPT_CHOICE,
     AT(numbers),
     .initial = "both",
     .choices = "both f32 bf16",
     .help = "type to compute in"},
    {.name = "only",
     .kind = HL_OPT_CHOICE,
     AT(only),
     .initial = "all",
     .choices = "all products attention adamw step",
     .help = "one part"},
    {.name = "rounds",
     .kind = HL_OPT_I64,
     AT(rounds),
     .initial = "3",
     .least = 1,
     .most = MOST_ROUNDS,
     .help = "measurements, of which the median is shown"},
    {.name = "threads",
     .kind = HL_OPT_I64,
     AT(threads),
     .initial = "0",
     .least = 0,
     .most = 4096,
     .unit = "threads",
     .help = "compute threads; 0 = physical cores this process may use"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int print_help(void) {
    struct bench_options options;
    const struct hl_option_set set = {NULL, rows, N_ROWS, &options};
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_config_print_help(&set, 1, hl_terminal_is(1) ? hl_terminal_columns(1) : 100, &text);
    printf(
        "halley bench measures what a training step is made of on this machine.\n\n"
        "  halley bench                          GPT-2 124M, 4 rows of 256 tokens, f32 and bf16\n"
        "  halley bench --model gpt2-tiny        a second, instead of a minute\n"
        "  halley bench --only products          matrix products, shape by shape\n\n%s",
        text.data ? text.data : "");
    hl_buf_free(&text);
    return 0;
}

static bool wants(const struct bench_options *o, int part) {
    return o->only == ONLY_ALL || o->only == part;
}
static const char *fixed(char out[32], double value, int decimals) {
    return hl_print_fixed(out, 32, value, decimals), out;
}
static const char *dtype_name(enum hl_dtype dtype) { return dtype == HL_F32 ? "f32" : "bf16"; }

/* ---- products ---- */

static enum hl_status products_of_type(struct hl_mem *mem, const struct bench_options *o,
                                       struct bench_product *list, int n, enum hl_dtype dtype,
                                       double *seconds_out, struct hl_diag *diag) {
    struct bench_products *products;
    enum hl_status status = bench_products_new(mem, list, n, dtype, &products, diag);
    if (status) return status;
    for (int i = 0; i < n && !status; i++) {
        double took[MOST_ROUNDS], first;
        status = bench_products_run(products, BENCH_ENGINE_HALLEY, i, 1, &first, diag);
        int64_t times =
            first > 0.05 ? 1 : (int64_t)(0.05 / (first + 1e-7)) + 1; /* long enough to measure */
        for (int64_t r = 0; r < o->rounds && !status; r++) {
            status = bench_products_run(products, BENCH_ENGINE_HALLEY, i, times, &took[r], diag);
            took[r] /= (double)times;
        }
        seconds_out[i] = status ? 0 : bench_median(took, (int)o->rounds);
    }
    bench_products_free(products);
    return status;
}

static void product_row(const struct bench_product *p, const struct bench_options *o,
                        double seconds[2][BENCH_MOST_PRODUCTS], int i) {
    char a[32], b[32];
    double flops = bench_product_flops(p) * 1e-9;
    printf("  %-10s %7lld %7lld %7lld %6lld %10s %10s\n", p->name, (long long)p->M, (long long)p->N,
           (long long)p->K, (long long)p->times,
           o->numbers == NUMBERS_BF16 ? "-" : fixed(a, flops / seconds[HL_F32][i], 1),
           o->numbers == NUMBERS_F32 ? "-" : fixed(b, flops / seconds[HL_BF16][i], 1));
}

static bool uses(const struct bench_options *o, enum hl_dtype dtype) {
    return o->numbers == NUMBERS_BOTH || (o->numbers == NUMBERS_F32) == (dtype == HL_F32);
}

static enum hl_status show_products(struct hl_mem *mem, const struct bench_options *o,
                                    const struct hl_model *model, struct hl_diag *diag) {
    struct bench_product list[BENCH_MOST_PRODUCTS];
    int64_t N = o->rows * o->block_size;
    const struct hl_kernels *k;
    struct hl_products *unused = NULL;
    struct hl_model_run *run;
    struct hl_model_run_shape shape = {.max_tokens = N, .max_positions = o->block_size};
    enum hl_status status = hl_kernels_get(HL_F32, &k, diag);
    if (!status) status = hl_model_run_new(mem, model, k, unused, &shape, &run, diag);
    if (status) return status;
    int n = bench_products_of(model, N, run->chunk_rows, list);
    hl_model_run_free(run);
    double seconds[2][BENCH_MOST_PRODUCTS] = {{0}};
    for (int dtype = HL_F32; dtype <= HL_BF16 && !status; dtype++)
        if (uses(o, (enum hl_dtype)dtype))
            status = products_of_type(mem, o, list, n, (enum hl_dtype)dtype, seconds[dtype], diag);
    if (status) return status;
    printf("\nproducts of a step, GFLOP/s\n  %-10s %7s %7s %7s %6s %10s %10s\n", "", "M", "N", "K",
           "times", "f32", "bf16");
    for (int i = 0; i < n; i++) product_row(&list[i], o, seconds, i);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        double total = 0, flops = 0;
        for (int i = 0; i < n; i++) {
            total += seconds[dtype][i] * (double)list[i].times;
            flops += bench_product_flops(&list[i]) * (double)list[i].times;
        }
        char a[32], b[32];
        if (uses(o, (enum hl_dtype)dtype))
            printf("  all in %-4s %s s, %s GFLOP/s\n", dtype_name((enum hl_dtype)dtype),
                   fixed(a, total, 3), fixed(b, flops / total * 1e-9, 1));
    }
    return HL_OK;
}

/* ---- kernels ---- */

static enum hl_status show_attention(struct hl_mem *mem, const struct bench_options *o,
                                     const struct hl_model_config *c, struct hl_diag *diag) {
    printf("\nattention, forward and backward, %lld heads of %lld\n",
           (long long)c->num_attention_heads, (long long)c->head_dim);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        struct bench_attention *attention;
        double took[MOST_ROUNDS];
        char a[32], b[32];
        if (!uses(o, (enum hl_dtype)dtype)) continue;
        enum hl_status status =
            bench_attention_new(mem, (enum hl_dtype)dtype, o->rows, o->block_size,
                                c->num_attention_heads, c->head_dim, &attention, diag);
        if (status) return status;
        (void)bench_attention_run(attention);
        for (int64_t r = 0; r < o->rounds; r++) took[r] = bench_attention_run(attention);
        double seconds = bench_median(took, (int)o->rounds);
        printf("  %-4s  %s ms for a layer, %s GFLOP/s\n", dtype_name((enum hl_dtype)dtype),
               fixed(a, 1e3 * seconds, 2),
               fixed(b, bench_attention_flops(attention) / seconds * 1e-9, 1));
        bench_attention_free(attention);
    }
    return HL_OK;
}

static enum hl_status show_adamw(struct hl_mem *mem, const struct bench_options *o,
                                 const struct hl_model *model, struct hl_diag *diag) {
    int64_t n = model->layout.n_parameters < 32000000 ? model->layout.n_parameters : 32000000;
    printf("\nadamw over %lld parameters, beside a copy that moves as many bytes\n", (long long)n);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        struct bench_adamw *adamw;
        double mine[MOST_ROUNDS], copy[MOST_ROUNDS], share[MOST_ROUNDS];
        char a[32], b[32], c[32];
        if (!uses(o, (enum hl_dtype)dtype)) continue;
        enum hl_status status = bench_adamw_new(mem, (enum hl_dtype)dtype, n, &adamw, diag);
        if (status) return status;
        (void)bench_adamw_run(adamw), (void)bench_adamw_copy(adamw);
        for (int64_t r = 0; r < o->rounds; r++) {
            mine[r] = bench_adamw_run(adamw);
            copy[r] = bench_adamw_copy(adamw);
            share[r] = copy[r] / mine[r];
        }
        double bytes = bench_adamw_bytes(adamw) * 1e-9;
        printf("  %-4s  %s GB/s, copy %s GB/s, share %s\n", dtype_name((enum hl_dtype)dtype),
               fixed(a, bytes / bench_median(mine, (int)o->rounds), 1),
               fixed(b, bytes / bench_median(copy, (int)o->rounds), 1),
               fixed(c, bench_median(share, (int)o->rounds), 2));
        bench_adamw_free(adamw);
    }
    return HL_OK;
}

static enum hl_status show_step(struct hl_mem *mem, const struct bench_options *o,
                                struct hl_diag *diag) {
    printf("\ntraining step, %lld rows of %lld tokens\n", (long long)o->rows,
           (long long)o->block_size);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        struct bench_step_setup setup = {o->model,   o->rows,          o->block_size,
                                         o->threads, dtype == HL_BF16, false};
        struct bench_step *step = NULL;
        double took[MOST_ROUNDS], first;
        char a[32], b[32], c[32];
        if (!uses(o, (enum hl_dtype)dtype)) continue;
        enum hl_status status = bench_step_new(mem, &setup, &step, diag);
        if (!status) status = bench_step_run(step, &first, NULL, diag);
        for (int64_t r = 0; r < o->rounds && !status; r++)
            status = bench_step_run(step, &took[r], NULL, diag);
        if (!status) {
            double seconds = bench_median(took, (int)o->rounds),
                   flops = hl_trainer_flops_per_step(bench_step_trainer(step));
            printf("  %-4s  %s ms, %s tok/s, %s GFLOP/s of products\n",
                   dtype_name((enum hl_dtype)dtype), fixed(a, 1e3 * seconds, 1),
                   fixed(b, (double)(o->rows * o->block_size) / seconds, 1),
                   fixed(c, flops / seconds * 1e-9, 1));
            (void)fflush(stdout);
        }
        bench_step_free(step);
        if (status) return status;
    }
    return HL_OK;
}

static enum hl_status measure(const struct bench_options *o, struct hl_diag *diag) {
    struct hl_mem *mem = hl_mem_os();
    struct hl_model_config config;
    struct hl_model *model;
    struct hl_cpu cpu;
    char why[256];
    enum hl_status status = hl_model_preset(o->model, &config, diag);
    if (!status && o->block_size > config.max_position_embeddings)
        status =
            hl_fail(diag, HL_E_USER, "block_size %lld is longer than the %lld positions of %s",
                    (long long)o->block_size, (long long)config.max_position_embeddings, o->model);
    if (!status) status = hl_model_new(mem, &config, &model, diag);
    if (status) return status;
    hl_cpu_read(&cpu);
    hl_threads_set(hl_cpu_threads(&cpu, o->threads, why, sizeof why));
    hl_denormals_off();
    printf("%s\n%d threads: %s; products by %s\n%s, %lld parameters\n", cpu.name, hl_threads_get(),
           why, hl_products_describe(), o->model, (long long)model->layout.n_weights);
    if (wants(o, ONLY_PRODUCTS)) status = show_products(mem, o, model, diag);
    (void)fflush(stdout);
    if (!status && wants(o, ONLY_ATTENTION)) status = show_attention(mem, o, &config, diag);
    if (!status && wants(o, ONLY_ADAMW)) status = show_adamw(mem, o, model, diag);
    (void)fflush(stdout);
    hl_model_free(model);
    if (!status && wants(o, ONLY_STEP)) status = show_step(mem, o, diag);
    return status;
}

int command_bench(int n_args, char **args) {
    struct bench_options options;
    const struct hl_option_set set = {NULL, rows, N_ROWS, &options};
    struct hl_config *config = NULL;
    struct hl_diag diag = {0};
    size_t n_words = 0;
    if (command_wants_help(n_args, args)) return print_help();
    const char **words = hl_alloc(hl_mem_default(), (size_t)n_args + 1, sizeof *words);
    enum hl_status status =
        words ? hl_config_new(hl_mem_default(), &set, 1, &config, &diag)
              : hl_fail_memory(&diag, (size_t)n_args * sizeof *words, "the command line");
    if (!status) status = hl_config_read_flags(config, n_args, args, words, &n_words, &diag);
    if (!status && n_words)
        status = hl_fail(&diag, HL_E_USER, "'%s' is not an option; a preset stands after --model",
                         words[0]);
    hl_free(hl_mem_default(), words);
    if (!status) status = measure(&options, &diag);
    hl_config_free(config);
    return status ? command_fail("bench", status, &diag) : 0;
}
