/* A configuration from any bytes: refused or read; when read, what is saved reads back. */
#include <stdlib.h>

#include "fuzz_target.h"
#include "halley/option.h"

struct values {
    int64_t steps;
    double rate;
    bool bf16;
    char *out;
    int curve;
    struct hl_string_list data;
};
static const struct hl_option rows[] = {
    {.name = "max_steps",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct values, steps),
     .least = 1,
     .most = 100,
     .aliases = "iters"},
    {.name = "learning_rate",
     .kind = HL_OPT_F64,
     .offset = offsetof(struct values, rate),
     .initial = "5e-5",
     .aliases = "lr"},
    {.name = "bf16", .kind = HL_OPT_BOOL, .offset = offsetof(struct values, bf16)},
    {.name = "output_dir", .kind = HL_OPT_STRING, .offset = offsetof(struct values, out)},
    {.name = "curve",
     .kind = HL_OPT_CHOICE,
     .offset = offsetof(struct values, curve),
     .choices = "linear cosine"},
    {.name = "data", .kind = HL_OPT_LIST, .offset = offsetof(struct values, data)},
};
static const struct hl_option plugin_rows[] = {
    {.name = "rounds", .kind = HL_OPT_I64, .initial = "2"}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct values v;
    int64_t rounds;
    const struct hl_option_set sets[] = {{NULL, rows, sizeof rows / sizeof *rows, &v},
                                         {"acco", plugin_rows, 1, &rounds}};
    struct hl_config *config;
    struct hl_diag diag;
    if (hl_config_new(hl_mem_default(), sets, 2, &config, &diag)) return 0;
    if (!hl_config_parse_yaml(config, (const char *)data, n, "run.yaml", &diag)) {
        struct hl_buf saved = {.mem = hl_mem_default()};
        hl_config_print_yaml(config, n % 2, &saved);
        if (hl_config_parse_yaml(config, saved.data, saved.n, "saved.yaml", &diag)) abort();
        hl_buf_free(&saved);
    }
    hl_config_free(config);
    return 0;
}
