/* The pool's mode nc-wb on processors whose caches nobody keeps coherent (tests/support/shadow.h).
 *
 * All ranks run in one thread, in an order that the seed decides, so a failure comes back with its
 * seed: HALLEY_SEED=n runs that one alone. `make soak` (HALLEY_SOAK=1) runs thousands. With a rule
 * left out, some seed must fail: each rule is needed, and the shadow would notice its absence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/threads.h"
#include "support/collective_case.h"
#include "support/shadow.h"

enum { MOST_RANKS = 8, MOST_OPS = 6, MOST_POLLS = 400000, MOST_INSIDE = 64, INCARNATION = 99 };

struct operation {
    struct hl_collective_args args;
    struct hl_collective state[MOST_RANKS];
    float *data[MOST_RANKS], *out[MOST_RANKS];
    bool started[MOST_RANKS], done[MOST_RANKS];
};

struct scene {
    uint64_t seed;
    struct shadow shadow;
    struct shadow_random random;
    struct hl_pool_head head;
    struct hl_ring_shape shape;
    struct hl_wire *wires[MOST_RANKS];
    struct hl_group *groups[MOST_RANKS];
    bool busy[MOST_RANKS];
    struct operation ops[MOST_OPS];
    int n_ops;
    int n_inside;    /* polls in the middle of the one that is played */
    char wrong[300]; /* empty: nothing yet */
};

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

static uint32_t roll(struct scene *s, uint32_t below) { return shadow_next(&s->random, below); }

/* ---- what is to be done ---- */

static int64_t choose_size(struct scene *s, bool large) {
    int64_t part = (int64_t)(s->shape.part_bytes / 4), n = s->shape.n_ranks;
    const int64_t sizes[] = {0,  1,         15,       16,       17,       63,       64,
                             65, part,      part - 1, part + 1, part * n, part * 9, part * 5 + 7,
                             n,  16 * n - 1};
    if (large) return 2 * 1024 * 1024 + 2;
    return sizes[roll(s, sizeof sizes / sizeof *sizes)];
}

static void choose_operation(struct scene *s, struct operation *op, int number, bool large) {
    int n = s->shape.n_ranks;
    op->args = (struct hl_collective_args){.kind = (enum hl_collective_kind)roll(s, HL_BARRIER + 1),
                                           .lane = (int)roll(s, (uint32_t)s->shape.n_lanes),
                                           .root = (int)roll(s, (uint32_t)n),
                                           .n = choose_size(s, large && number == 0),
                                           .element_bytes = 4,
                                           .wire = roll(s, 4) ? HL_F32 : HL_BF16};
    struct hl_collective_args *a = &op->args;
    if (a->kind == HL_BARRIER) a->wire = HL_F32;
    a->one_stage = a->kind == HL_ALL_REDUCE && roll(s, 2);
    if (a->kind == HL_ALL_TO_ALL) {
        a->unit = a->n / n;
        a->n = a->unit * n;
        if (!a->unit) a->kind = HL_ALL_GATHER, a->unit = 0;
    }
    for (int r = 0; r < n; r++) {
        op->data[r] = malloc((size_t)(a->n + 1) * sizeof(float));
        op->out[r] = malloc((size_t)(a->n + 1) * sizeof(float));
        for (int64_t i = 0; i < a->n; i++) op->data[r][i] = case_element(i + number, r);
    }
}

/* ---- how it must end ---- */

static float moved(float x, enum hl_dtype wire, bool own) {
    return wire == HL_BF16 && !own ? hl_bf16_to_f32(hl_bf16_from_f32(x)) : x;
}

static void check_all_to_all(struct scene *s, const struct operation *op, int r) {
    const struct hl_collective_args *a = &op->args;
    int number = (int)(op - s->ops);
    for (int64_t i = 0; i < a->n; i++) {
        int from = (int)(i / a->unit);
        float want =
            moved(case_element(r * a->unit + i % a->unit + number, from), a->wire, from == r);
        if (memcmp(&want, &op->out[r][i], sizeof want) != 0 && !*s->wrong)
            (void)snprintf(s->wrong, sizeof s->wrong, "all-to-all: element %lld of rank %d",
                           (long long)i, r);
    }
}

static void check_barrier(struct scene *s, const struct operation *op) {
    for (int r = 0; r < s->shape.n_ranks; r++)
        if (!op->started[r] && !*s->wrong)
            (void)snprintf(s->wrong, sizeof s->wrong, "a barrier that rank %d had not reached", r);
}

/* case_expected, for elements that are shifted by the operation's number. */
static void check_elements(struct scene *s, const struct operation *op, int r) {
    const struct hl_collective_args *a = &op->args;
    int number = (int)(op - s->ops), n = s->shape.n_ranks;
    for (int64_t i = 0; i < a->n; i++) {
        float want = case_expected_from(a, i, number, r, n);
        if (memcmp(&want, &op->data[r][i], sizeof want) != 0 && !*s->wrong)
            (void)snprintf(s->wrong, sizeof s->wrong,
                           "kind %d, n %lld, wire %d: element %lld of rank %d is %a, not %a",
                           a->kind, (long long)a->n, a->wire, (long long)i, r,
                           (double)op->data[r][i], (double)want);
    }
}

static void check(struct scene *s, const struct operation *op, int r) {
    if (op->args.kind == HL_ALL_TO_ALL) check_all_to_all(s, op, r);
    else if (op->args.kind == HL_BARRIER) check_barrier(s, op);
    else check_elements(s, op, r);
}

/* ---- ranks, a poll at a time ---- */

static void start_next(struct scene *s, int r) {
    for (int o = 0; o < s->n_ops; o++) {
        struct operation *op = &s->ops[o];
        if (op->started[r]) continue;
        struct hl_collective_args args = op->args;
        args.data = op->data[r];
        if (args.kind == HL_ALL_TO_ALL) args.out = op->out[r];
        op->started[r] = true;
        hl_collective_start(s->groups[r], &args, &op->state[r]);
        return;
    }
}

static void poll(struct scene *s, int r) {
    struct hl_diag diag = {0};
    s->busy[r] = true;
    if (!roll(s, 4)) start_next(s, r);
    enum hl_status status = hl_group_poll(s->groups[r], &diag);
    if (status < 0 && !*s->wrong)
        (void)snprintf(s->wrong, sizeof s->wrong, "rank %d: %.250s", r, diag.text);
    for (int o = 0; o < s->n_ops; o++) {
        struct operation *op = &s->ops[o];
        if (!op->started[r] || op->done[r] || op->state[r].status != HL_OK) continue;
        op->done[r] = true;
        check(s, op, r);
    }
    s->busy[r] = false;
}

/* In the middle of what another one does. Without a limit, ranks that all wait, each within the
 * other's poll, take minutes. */
static void run_another(void *context) {
    struct scene *s = context;
    int r = (int)roll(s, (uint32_t)s->shape.n_ranks);
    if (s->busy[r] || *s->wrong || s->n_inside == MOST_INSIDE) return;
    s->n_inside++;
    poll(s, r);
}

static bool all_done(const struct scene *s) {
    for (int o = 0; o < s->n_ops; o++)
        for (int r = 0; r < s->shape.n_ranks; r++)
            if (!s->ops[o].done[r]) return false;
    return true;
}

/* ---- a scene ---- */

static void choose_shape(struct scene *s, bool large) {
    static const int ranks[] = {2, 3, 4, 7, 8}, devices[] = {1, 2, 6}, slots[] = {1, 2, 3, 4};
    static const size_t parts[] = {64, 128, 192, 256, 1024};
    s->shape = (struct hl_ring_shape){.n_ranks = large ? 2 : ranks[roll(s, 5)],
                                      .n_lanes = 1 + (int)roll(s, 2),
                                      .n_slots = slots[roll(s, 4)],
                                      .part_bytes = large ? 16384 : parts[roll(s, 5)],
                                      .stripe_bytes = large ? 32768 : 4096,
                                      .n_devices = devices[roll(s, 3)]};
}

static void open_ranks(struct scene *s) {
    struct hl_diag diag;
    bool read_back = roll(s, 2);
    for (int r = 0; r < s->shape.n_ranks; r++) {
        const struct hl_ring_place place = {
            .name = "shadow",
            .shape = s->shape,
            .rank = r,
            .memory = shadow_memory(&s->shadow, r, &s->head, &s->shape, read_back),
            .incarnation = INCARNATION};
        if (hl_ring_open(hl_mem_default(), &place, &s->wires[r], &diag) != HL_OK ||
            hl_group_new(hl_mem_default(), s->wires[r], kernels(), 1000000000, &s->groups[r],
                         &diag) != HL_OK)
            abort();
    }
}

static struct scene *new_scene(uint64_t seed, enum shadow_rule off, bool evicts, bool large) {
    struct scene *s = calloc(1, sizeof *s);
    struct hl_ring_layout layout;
    if (!s) abort();
    s->seed = seed;
    s->random.state = seed * 7919 + 1;
    choose_shape(s, large);
    hl_ring_lay_out(&s->shape, &layout);
    hl_pool_head_begin(&s->head, (uint32_t)s->shape.n_devices, 0, HL_POOL_WRITE_BACK, false);
    s->head.stripe_bytes = s->shape.stripe_bytes;
    s->head.device_bytes =
        hl_pool_head_lay_out(&s->head, layout.lines_end, layout.end - layout.slots);
    const struct shadow_noise noise = {.every = 1 + (int)roll(s, 40),
                                       .evicts = evicts,
                                       .lines = evicts ? 64u << roll(s, 5) : 1u << 14};
    shadow_new(&s->shadow, s->head.device_bytes * s->head.n_devices, s->shape.n_ranks, &noise,
               seed);
    s->shadow.off = off;
    open_ranks(s);
    s->shadow.others = run_another; /* ranks that open late have the others look already */
    s->shadow.context = s;
    s->n_ops = 1 + (int)roll(s, MOST_OPS);
    for (int o = 0; o < s->n_ops; o++) choose_operation(s, &s->ops[o], o, large);
    return s;
}

static void free_scene(struct scene *s) {
    s->shadow.others = NULL;
    for (int r = 0; r < s->shape.n_ranks; r++) {
        hl_group_free(s->groups[r]);
        s->wires[r]->ops->close(s->wires[r]);
        for (int o = 0; o < s->n_ops; o++) {
            free(s->ops[o].data[r]);
            free(s->ops[o].out[r]);
        }
    }
    shadow_free(&s->shadow);
    free(s);
}

/* Nothing moves any more, or it takes far longer than it may. */
static void play(struct scene *s, long most_polls) {
    for (long i = 0; i < most_polls && !*s->wrong; i++) {
        if (all_done(s)) return;
        s->n_inside = 0;
        poll(s, (int)roll(s, (uint32_t)s->shape.n_ranks));
    }
    if (!*s->wrong) (void)snprintf(s->wrong, sizeof s->wrong, "it hangs");
}

static bool holds(uint64_t seed, enum shadow_rule off, bool evicts, bool large, char words[500]) {
    struct scene *s = new_scene(seed, off, evicts, large);
    play(s, off ? MOST_POLLS / 10 : MOST_POLLS);
    (void)snprintf(words, 500,
                   "HALLEY_SEED=%llu: %s (%d ranks, %d lanes, %d slots of %zu bytes, %d devices)",
                   (unsigned long long)seed, s->wrong, s->shape.n_ranks, s->shape.n_lanes,
                   s->shape.n_slots, s->shape.part_bytes, s->shape.n_devices);
    bool good = !*s->wrong;
    free_scene(s);
    return good;
}

/* ---- tests ---- */

static bool soak(void) {
    const char *word = getenv("HALLEY_SOAK");
    return word && *word && *word != '0';
}

static void test_all_rules_kept(void **state) {
    const char *one = getenv("HALLEY_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t n = one ? 1 : soak() ? 5000 : 400;
    char words[500];
    (void)state;
    for (uint64_t seed = first; seed < first + n; seed++)
        for (int evicts = 0; evicts < 2; evicts++)
            if (!holds(seed, SHADOW_ALL_KEPT, evicts, false, words)) fail_msg("%s", words);
}

/* 8 MiB and a bit, over many turns of each ring. */
static void test_large(void **state) {
    uint64_t n = soak() ? 20 : 1;
    char words[500];
    (void)state;
    for (uint64_t seed = 1; seed <= n; seed++)
        if (!holds(seed, SHADOW_ALL_KEPT, true, true, words)) fail_msg("%s", words);
}

/* Until one seed notices; all of them when soaking. Some rules need rare moments. */
static void test_each_rule_is_needed(void **state) {
    (void)state;
    for (enum shadow_rule rule = SHADOW_ALL_KEPT + 1; rule < SHADOW_RULES; rule++) {
        char words[500];
        int n_caught = 0, n = 0, most = soak() ? 5000 : 3000;
        while (n < most && (n_caught == 0 || soak())) {
            n++;
            n_caught += !holds((uint64_t)n, rule, n % 2, false, words);
        }
        print_message("rule %s: %d of %d seeds notice\n", shadow_rule_name(rule), n_caught, n);
        if (n_caught == 0) fail_msg("nobody noticed: rule %s", shadow_rule_name(rule));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_rules_kept),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_each_rule_is_needed),
    };
    hl_threads_set(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
