/* A small option table with one row of each kind, and one plug-in. */
#ifndef HALLEY_TEST_OPTION_FIXTURE_H
#define HALLEY_TEST_OPTION_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "halley/option.h"

enum fixture_curve { CURVE_CONSTANT, CURVE_LINEAR, CURVE_COSINE };

struct fixture_values {
    int64_t max_steps, save_bytes;
    double learning_rate, any;
    bool bf16, strict;
    char *output_dir;
    int curve;
    struct hl_string_list data;
};
struct fixture_plugin {
    int64_t micro_batches;
    bool fast;
};

#define AT(field) .offset = offsetof(struct fixture_values, field)
static const struct hl_option fixture_rows[] = {
    {.name = "max_steps",
     .kind = HL_OPT_I64,
     AT(max_steps),
     .initial = "-1",
     .least = 1,
     .most = 1e15,
     .unit = "steps",
     .aliases = "train_iters iters",
     .section = "training",
     .help = "stop after this many updates"},
    {.name = "learning_rate",
     .kind = HL_OPT_F64,
     AT(learning_rate),
     .initial = "5e-5",
     .least = 0,
     .most = 10,
     .aliases = "lr",
     .section = "training",
     .help = "the highest rate"},
    {.name = "lr_scheduler_type",
     .kind = HL_OPT_CHOICE,
     AT(curve),
     .initial = "linear",
     .choices = "constant linear cosine",
     .section = "training",
     .help = "how the rate changes"},
    {.name = "bf16",
     .kind = HL_OPT_BOOL,
     AT(bf16),
     .initial = "false",
     .section = "training",
     .help = "compute in bf16"},
    {.name = "data",
     .kind = HL_OPT_LIST,
     AT(data),
     .section = "data",
     .help = "files to learn from"},
    {.name = "strict",
     .kind = HL_OPT_BOOL,
     AT(strict),
     .initial = "true",
     .section = "data",
     .help = "stop at a bad line"},
    {.name = "output_dir",
     .kind = HL_OPT_STRING,
     AT(output_dir),
     .initial = "out",
     .section = "training",
     .help = "where results go"},
    {.name = "save_bytes", .kind = HL_OPT_I64, AT(save_bytes), .unit = "bytes", .help = "a size"},
    {.name = "any", .kind = HL_OPT_F64, AT(any), .help = "any number"},
};
static const struct hl_option fixture_plugin_rows[] = {
    {.name = "micro_batches_per_round",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct fixture_plugin, micro_batches),
     .initial = "2",
     .least = 1,
     .most = 64,
     .aliases = "rounds",
     .help = "micro-batches in one round"},
    {.name = "fast",
     .kind = HL_OPT_BOOL,
     .offset = offsetof(struct fixture_plugin, fast),
     .help = "be fast"},
};

struct fixture {
    struct hl_mem_probe probe;
    struct fixture_values v;
    struct fixture_plugin p;
    struct hl_option_set sets[2];
    struct hl_config *config;
    struct hl_diag diag;
};

static inline enum hl_status fixture_open(struct fixture *f, long fail_at) {
    memset(f, 0, sizeof *f);
    hl_mem_probe_init(&f->probe, fail_at);
    f->probe.mem.context = &f->probe;
    f->sets[0] = (struct hl_option_set){NULL, fixture_rows,
                                        sizeof fixture_rows / sizeof *fixture_rows, &f->v};
    f->sets[1] =
        (struct hl_option_set){"acco", fixture_plugin_rows,
                               sizeof fixture_plugin_rows / sizeof *fixture_plugin_rows, &f->p};
    return hl_config_new(&f->probe.mem, f->sets, 2, &f->config, &f->diag);
}

static inline void fixture_close(struct fixture *f) {
    hl_config_free(f->config);
    assert_int_equal(f->probe.n_live, 0);
}

static inline enum hl_status fixture_yaml(struct fixture *f, const char *text) {
    return hl_config_parse_yaml(f->config, text, strlen(text), "run.yaml", &f->diag);
}

/* The text is refused with exactly this sentence. */
static inline void yaml_refused(const char *text, const char *sentence) {
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(fixture_yaml(&f, text), HL_E_USER);
    assert_string_equal(f.diag.text, sentence);
    fixture_close(&f);
}

#endif
