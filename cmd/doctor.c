/* halley doctor: what this machine can do, what was chosen and why, and whether anything is in the
 * way. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "doctor_measure.h"
#include "doctor_report.h"
#include "halley/data.h"
#include "halley/option.h"
#include "halley/text_number.h"
#include "halley/wire.h"
#include "kernels/threads.h"
#include "os/cpu.h"
#include "os/fs.h"
#include "os/memory.h"
#include "os/terminal.h"

struct doctor_options {
    int64_t threads, ranks;
    struct hl_string_list data;
    char *tokenizer;
};

static const struct hl_option rows[] = {
    {.name = "threads",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct doctor_options, threads),
     .initial = "0",
     .least = 0,
     .most = 8192,
     .aliases = "n_threads",
     .help = "compute threads; 0 = as a run would choose"},
    {.name = "ranks",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct doctor_options, ranks),
     .initial = "2",
     .least = 2,
     .most = HL_MAX_RANKS,
     .aliases = "n n_ranks",
     .help = "ranks that this machine shall have: is there room for them?"},
    {.name = "data",
     .kind = HL_OPT_LIST,
     .offset = offsetof(struct doctor_options, data),
     .help = "files to look into"},
    {.name = "tokenizer",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct doctor_options, tokenizer),
     .help = "a tokenizer.json to try"},
};

/* ---- the machine ---- */

static void show_processor(struct doctor_report *report, int64_t asked) {
    struct hl_cpu cpu;
    char why[256], quota[40];
    hl_cpu_read(&cpu);
    report->n_threads = hl_cpu_threads(&cpu, asked, why, sizeof why);
    doctor_line("processor", "%s", cpu.name);
    doctor_line("", "%d logical processors, %d allowed, %d physical cores", cpu.n_online,
                cpu.n_allowed, cpu.n_cores);
    hl_print_fixed(quota, sizeof quota, cpu.quota, 2);
    if (cpu.quota > 0) doctor_line("", "the control group allows the time of %s processors", quota);
    doctor_line("threads", "%d: %s", report->n_threads, why);
    if (report->n_threads > cpu.n_threads)
        doctor_complain(
            report, false,
            "%d threads are more than the %d that this process has cores for: expect it to be "
            "slower",
            report->n_threads, cpu.n_threads);
    if (cpu.quota > 0 && cpu.quota < 1)
        doctor_complain(
            report, false,
            "the control group gives less than one processor (%s): training will stall in bursts",
            quota);
}

static void show_kernels(struct doctor_report *report) {
    struct hl_diag diag;
    const struct hl_kernels *kernels;
    char available[64] = "";
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512BF16; isa++)
        if (hl_kernels_of((enum hl_isa)isa, HL_F32, &kernels, NULL) == HL_OK) {
            (void)strncat(available, " ", sizeof available - strlen(available) - 1);
            (void)strncat(available, hl_isa_name((enum hl_isa)isa),
                          sizeof available - strlen(available) - 1);
        }
    if (hl_kernels_get(HL_F32, &kernels, &diag) != HL_OK) {
        doctor_complain(report, true, "%s", diag.text);
        return;
    }
    const char *forced = getenv("HALLEY_ISA");
    doctor_line("kernels", "%s%s (available:%s)", hl_isa_name(kernels->isa),
                forced && *forced ? ", forced by HALLEY_ISA" : "", available);
}

static void show_memory(struct doctor_report *report) {
    struct hl_memory memory;
    char total[40], available[40], limit[40];
    hl_memory_read(&memory);
    doctor_line("memory", "%s, %s available", doctor_bytes(total, memory.total_bytes),
                doctor_bytes(available, memory.available_bytes));
    if (memory.limit_bytes)
        doctor_line("", "the control group allows %s", doctor_bytes(limit, memory.limit_bytes));
    bool used = !strcmp(memory.huge_pages, "always") || !strcmp(memory.huge_pages, "madvise");
    doctor_line("huge pages", "%s%s", memory.huge_pages, used ? ": used for large arrays" : "");
    if (!used)
        doctor_complain(
            report, false,
            "huge pages are off: 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled' "
            "(as root) makes large models faster");
    if (memory.available_bytes && memory.available_bytes < (512u << 20))
        doctor_complain(
            report, false,
            "only %s of memory are available: choose a small model, see 'halley plan --memory'",
            available);
}

static void show_rates(struct doctor_report *report) {
    struct hl_diag diag;
    struct hl_products *products;
    static const char *const names[] = {"f32", "bf16"};
    doctor_line("products", "%s", hl_products_describe());
    if (hl_products_new(report->mem, &products, &diag) != HL_OK) {
        doctor_complain(report, true, "%s", diag.text);
        return;
    }
    hl_threads_set(report->n_threads);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        char rate[40];
        hl_print_fixed(rate, sizeof rate,
                       measure_products(report->mem, products, (enum hl_dtype)dtype) * 1e-9, 1);
        doctor_line(dtype ? "" : "rate", "%s GFLOP/s in %s (512 x 512 x 512)", rate, names[dtype]);
        double error = measure_product_error(report->mem, products, (enum hl_dtype)dtype);
        if (error < 0 || error > 16)
            doctor_complain(
                report, true,
                "products in %s are wrong on this processor: reinstall or replace the library (%s)",
                names[dtype], hl_products_describe());
    }
    hl_products_free(products);
    char rate[40];
    hl_print_fixed(rate, sizeof rate, measure_copy(report->mem, report->n_threads) * 1e-9, 1);
    doctor_line("copy", "%s GB/s read and written", rate);
}

/* ---- the place ---- */

static void show_folder(struct doctor_report *report) {
    char folder[HL_PATH_CAPACITY], room[40];
    if (!getcwd(folder, sizeof folder)) {
        doctor_complain(report, true, "the current folder cannot be named: %s", strerror(errno));
        return;
    }
    int64_t left = hl_fs_os()->free_bytes(hl_fs_os(), ".");
    doctor_line("disk", "%s free in %s", left < 0 ? "?" : doctor_bytes(room, (uint64_t)left),
                folder);
    if (access(".", W_OK))
        doctor_complain(report, false,
                        "this folder cannot be written: give runs another --output_dir");
    if (left >= 0 && left < (1 << 30))
        doctor_complain(report, false, "less than 1 GiB is free here: checkpoints may not fit");
}

static void show_surroundings(void) {
    static const char *const variables[] = {"LC_ALL", "LC_NUMERIC", "LANG"};
    const char *locale = "C";
    for (int i = 2; i >= 0; i--) {
        const char *value = getenv(variables[i]);
        if (value && *value) locale = value;
    }
    doctor_line("locale", "%s; numbers in files are the same under any locale", locale);
    if (hl_terminal_is(1))
        doctor_line("terminal", "%d columns, %s", hl_terminal_columns(1),
                    hl_terminal_utf8() ? "UTF-8" : "no UTF-8: plain signs");
    else doctor_line("terminal", "none: progress is written as plain lines");
}

/* ---- files that were named ---- */

/* Line ends, marks and bytes that are not text, in the first mebibyte. */
static void sniff(struct doctor_report *report, const char *path, const unsigned char *text,
                  size_t n, uint64_t size) {
    size_t n_nul = 0, n_cr = 0, n_high = 0;
    char bytes[40];
    for (size_t i = 0; i < n; i++) {
        n_nul += text[i] == 0;
        n_cr += text[i] == '\r';
        n_high += text[i] >= 0x80;
    }
    bool bom = n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3);
    doctor_line("data", "%s: %s%s%s%s", path, doctor_bytes(bytes, size),
                bom ? ", byte order mark" : "", n_cr ? ", CR line ends" : "",
                n_nul    ? ", binary (shards?)"
                : n_high ? ""
                         : ", ASCII");
    if (!strncmp((const char *)text, "version https://git-lfs", n < 23 ? n : 23) && n)
        doctor_complain(report, true, "%s is a Git LFS pointer, not the data: run 'git lfs pull'",
                        path);
    if (n >= 2 && text[0] == 0x1f && text[1] == 0x8b)
        doctor_complain(report, true, "%s is compressed: unpack it with gunzip", path);
    if (size < 10000 && !n_nul)
        doctor_complain(report, false, "%s is tiny: a model would only learn it by heart", path);
}

static void show_data(struct doctor_report *report, const char *path) {
    enum { LOOK = 1 << 20 };
    FILE *file = fopen(path, "rb");
    unsigned char *text = hl_alloc(report->mem, LOOK, 1);
    size_t n = file && text ? fread(text, 1, LOOK, file) : 0;
    if (!file || ferror(file))
        doctor_complain(report, true, "%s cannot be read: %s", path, strerror(errno));
    else if (!n) doctor_complain(report, true, "%s is empty", path);
    else sniff(report, path, text, n, (uint64_t)hl_fs_os()->size(hl_fs_os(), path));
    hl_free(report->mem, text);
    if (file) (void)fclose(file);
}

static void show_tokenizer(struct doctor_report *report, const char *path) {
    struct hl_tokenizer *tokenizer;
    struct hl_diag diag;
    if (!*path) return;
    if (hl_tokenizer_open(report->mem, path, &tokenizer, &diag) != HL_OK) {
        doctor_complain(report, true, "%s", diag.text);
        return;
    }
    doctor_line("tokenizer", "%s: %lld tokens", path,
                (long long)hl_tokenizer_vocab_size(tokenizer));
    hl_tokenizer_free(tokenizer);
}

/* ---- all together ---- */

static int examine(const struct doctor_options *options) {
    struct doctor_report report = {.mem = hl_mem_os(), .complaints.mem = hl_mem_default()};
    doctor_line("halley", "%s", HALLEY_VERSION);
    show_processor(&report, options->threads);
    show_kernels(&report);
    show_memory(&report);
    show_rates(&report);
    doctor_show_ranks(&report, (int)options->ranks);
    show_folder(&report);
    show_surroundings();
    for (size_t i = 0; i < options->data.n; i++) show_data(&report, options->data.items[i]);
    show_tokenizer(&report, options->tokenizer);
    printf("\n%s", report.complaints.data ? report.complaints.data : "");
    if (report.n_failures)
        printf("not ready: %d problem%s\n", report.n_failures, report.n_failures == 1 ? "" : "s");
    else if (report.n_warnings)
        printf("ready, with %d hint%s\n", report.n_warnings, report.n_warnings == 1 ? "" : "s");
    else printf("ready\n");
    hl_buf_free(&report.complaints);
    return report.n_failures > 0;
}

static void print_help(const struct hl_option_set *set) {
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_config_print_help(set, 1, hl_terminal_is(1) ? hl_terminal_columns(1) : 80, &text);
    printf("usage: halley doctor [--ranks N] [--data FILE...] [--tokenizer FILE]: what this "
           "machine can do, "
           "and what is in the way\n\n%s",
           text.data ? text.data : "");
    hl_buf_free(&text);
}

int command_doctor(int n_args, char **args) {
    struct doctor_options options;
    const struct hl_option_set set = {NULL, rows, sizeof rows / sizeof *rows, &options};
    struct hl_config *config;
    struct hl_diag diag = {0};
    size_t n_words = 0;
    if (n_args == 1 && (!strcmp(args[0], "--help") || !strcmp(args[0], "-h")))
        return print_help(&set), 0;
    if (hl_config_new(hl_mem_default(), &set, 1, &config, &diag) != HL_OK)
        return fprintf(stderr, "halley doctor: %s\n", diag.text), 1;
    const char **words = hl_alloc(hl_mem_default(), (size_t)n_args + 1, sizeof *words);
    enum hl_status status =
        words ? hl_config_read_flags(config, n_args, args, words, &n_words, &diag)
              : hl_fail_memory(&diag, (size_t)n_args * sizeof *words, "the command line");
    if (status == HL_OK && n_words)
        status =
            hl_fail(&diag, HL_E_USER, "'%s' is not an option; files stand after --data", words[0]);
    hl_free(hl_mem_default(), words);
    if (status != HL_OK) fprintf(stderr, "halley doctor: %s\n", diag.text);
    int result = status != HL_OK ? 2 : examine(&options);
    hl_config_free(config);
    return result;
}
