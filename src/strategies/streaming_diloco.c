/* streaming_diloco: diloco in fragments of blocks, each with its own time in the interval, so that
 * little is exchanged at once; what is exchanged arrives while training goes on, and is used a
 * fixed number of steps later.
 * Paper: Douillard et al., Streaming DiLoCo with overlapping communication (arXiv:2501.18512).
 * deviates: fragments are of blocks b with equal b mod F; codes are gathered and not requantised.
 */
#include <string.h>

#include "strategies/local_steps.h"

enum codec { CODEC_F32, CODEC_BF16 }; /* those behind them are plug-ins */
#define CODECS "f32 bf16 int8 int4 e3m0"

struct options {
    struct hl_outer_options outer;
    int64_t fragments, delay;
    double alpha;
    bool carry;
    int codec;
};

static const struct hl_option rows[] = {
    HL_OUTER_ROWS(struct options, outer, "0.4"),
    {.name = "fragments",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct options, fragments),
     .initial = "0",
     .least = 0,
     .most = 4096,
     .section = "strategy",
     .help = "F: block b is of fragment b mod F; 0 = three blocks in each"},
    {.name = "delay",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct options, delay),
     .initial = "1",
     .least = 0,
     .most = 1e6,
     .unit = "steps",
     .section = "strategy",
     .help = "from the start of a fragment's exchange to its use; below sync_every"},
    {.name = "alpha",
     .kind = HL_OPT_F64,
     .offset = offsetof(struct options, alpha),
     .initial = "0.5",
     .least = 0,
     .most = 1,
     .section = "strategy",
     .help = "share of a rank's own weights in the mix with the outer ones"},
    {.name = "carry",
     .kind = HL_OPT_BOOL,
     .offset = offsetof(struct options, carry),
     .initial = "false",
     .section = "strategy",
     .help = "instead of mixing: all that a rank did during the delay goes on top of the outer "
             "weights"},
    {.name = "codec",
     .kind = HL_OPT_CHOICE,
     .offset = offsetof(struct options, codec),
     .initial = "int4",
     .choices = CODECS,
     .section = "strategy",
     .help = "of what ranks changed, on the wire"},
};

static const struct hl_codec *codec_of(const struct options *o) {
    static const char *const names[] = {NULL, NULL, "int8", "int4", "e3m0"};
    for (const struct hl_codec *const *c = hl_codecs(); names[o->codec] && *c; c++)
        if (!strcmp((*c)->name, names[o->codec])) return *c;
    return NULL;
}

static enum hl_status plan_of(const struct hl_strategy_env *env, struct hl_local_plan *out,
                              struct hl_diag *diag) {
    const struct options *o = env->options;
    int64_t n_blocks = env->layout->n_blocks, n = o->fragments ? o->fragments : (n_blocks + 2) / 3;
    *out = (struct hl_local_plan){.n_fragments = (int)(n < n_blocks ? n : n_blocks),
                                  .every = env->sync_every,
                                  .delay = o->delay,
                                  .alpha = o->carry ? 0 : o->alpha,
                                  .carry = o->carry,
                                  .wire = o->codec == CODEC_BF16 ? HL_BF16 : HL_F32,
                                  .codec = codec_of(o)};
    if (o->delay >= env->sync_every)
        return hl_fail(diag, HL_E_USER,
                       "streaming_diloco.delay: %lld steps, but a fragment's next exchange begins "
                       "after sync_every %lld; choose a smaller delay or a larger sync_every",
                       (long long)o->delay, (long long)env->sync_every);
    return hl_local_outer(env, "streaming_diloco", &o->outer, out, diag);
}

HL_LOCAL_LIFE(plan_of)

const struct hl_strategy hl_strategy_streaming_diloco = {
    .name = "streaming_diloco",
    .summary = "diloco in fragments, exchanged in few bits while training goes on",
    .paper = "arXiv:2501.18512",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .options_bytes = sizeof(struct options),
    .check = check,
    .cost = cost,
    .init = init,
    HL_LOCAL_SLOTS};
