/* A wire of two paths: how fast each is, and which one an operation takes.
 *
 * T = rounds * latency + max(sent to one each / each + sent to everyone / all, received / each), of
 * the busiest rank. On a network a part for everyone costs its bytes once for each reader, in a
 * pool it is written once: `all` says which, as it was measured. */
#include <string.h>

#include "collectives/group.h"
#include "os/clock.h"

enum { PROBE_BYTES = 1 << 20, BATCHES = 2, TIMES = 2, LATENCY_TIMES = 8, LEAST_SHARE = 4 };
static const double WORTH_A_SPLIT = 0.9;

/* ---- the model ---- */

static void take_most(int64_t *most, int64_t value) {
    if (value > *most) *most = value;
}

/* Of the busiest rank: a root differs from the others, and those hardly from one another. */
static struct hl_load busiest(const struct hl_collective_args *args, int n_ranks) {
    int other = args->kind == HL_SEND ? args->to : (args->root + 1) % n_ranks;
    struct hl_load load = hl_collective_load(args, args->root, n_ranks),
                   second = hl_collective_load(args, other, n_ranks);
    take_most(&load.out_each, second.out_each);
    take_most(&load.out_all, second.out_all);
    take_most(&load.in, second.in);
    return load;
}

/* Seconds without the latency. */
static double moving(const struct hl_path *p, const struct hl_load *load) {
    double out = (double)load->out_each / p->each_bytes_per_s +
                 (double)load->out_all / p->all_bytes_per_s,
           in = (double)load->in / p->each_bytes_per_s;
    return out > in ? out : in;
}

double hl_path_seconds(const struct hl_path *p, const struct hl_collective_args *args,
                       int n_ranks) {
    struct hl_load load = busiest(args, n_ranks);
    return load.rounds * p->latency_s + moving(p, &load);
}

static double both(const double latency[2], const double moves[2], double share) {
    double first = latency[0] + share * moves[0], second = latency[1] + (1 - share) * moves[1];
    return first > second ? first : second;
}

int hl_path_share(const struct hl_paths *paths, const struct hl_collective_args *args,
                  int n_ranks) {
    struct hl_load load = busiest(args, n_ranks);
    double latency[2], moves[2];
    for (int i = 0; i < 2; i++) {
        latency[i] = load.rounds * paths->path[i].latency_s;
        moves[i] = moving(&paths->path[i], &load);
    }
    double alone[2] = {latency[0] + moves[0], latency[1] + moves[1]};
    int better = alone[0] <= alone[1] ? HL_SHARES : 0;
    if (moves[0] + moves[1] <= 0) return better;
    double share = (alone[1] - latency[0]) / (moves[0] + moves[1]); /* both end at once */
    if (share <= 0 || share >= 1) return better;
    int cut = (int)(share * HL_SHARES + 0.5);
    double split = paths->together * both(latency, moves, (double)cut / HL_SHARES);
    return split < WORTH_A_SPLIT * alone[better == 0] ? cut : better;
}

/* ---- what paths do ---- */

struct probe {
    struct hl_group *group;
    char *data, *out; /* [PROBE_BYTES] each */
    int n_ranks;
};

static enum hl_status once(const struct probe *p, const struct hl_collective_args *args,
                           struct hl_diag *diag) {
    struct hl_collective op;
    hl_collective_start(p->group, args, &op);
    return hl_collective_wait(p->group, &op, diag);
}

/* The slowest rank's seconds for one of several in a row. The first of all empties what a link has
 * saved while it was idle. */
static enum hl_status batch(const struct probe *p, const struct hl_collective_args *args, int times,
                            double *seconds_out, struct hl_diag *diag) {
    double all[HL_MAX_RANKS] = {0}, most = 0;
    enum hl_status status = once(p, args, diag);
    int64_t start = hl_clock_ns();
    for (int i = 0; i < times && status == HL_OK; i++) status = once(p, args, diag);
    all[hl_group_rank(p->group)] = 1e-9 * (double)(hl_clock_ns() - start) / times;
    if (status == HL_OK) status = hl_group_share(p->group, all, 1, diag);
    for (int r = 0; r < p->n_ranks; r++)
        if (all[r] > most) most = all[r];
    *seconds_out = most;
    return status;
}

static enum hl_status fastest(const struct probe *p, const struct hl_collective_args *args,
                              int times, double *seconds_out, struct hl_diag *diag) {
    double seconds = 0;
    enum hl_status status = HL_OK;
    for (int i = 0; i < BATCHES && status == HL_OK; i++) {
        status = batch(p, args, times, &seconds, diag);
        if (i == 0 || seconds < *seconds_out) *seconds_out = seconds;
    }
    return status;
}

static struct hl_collective_args exchange(const struct probe *p) {
    int64_t unit = HL_SLICE_UNIT * p->n_ranks;
    return (struct hl_collective_args){.kind = HL_ALL_TO_ALL,
                                       .data = p->data,
                                       .out = p->out,
                                       .n = PROBE_BYTES / unit * unit,
                                       .element_bytes = 1};
}
/* As many bytes leave its root where each reader costs them once more. */
static struct hl_collective_args broadcast(const struct probe *p) {
    return (struct hl_collective_args){.kind = HL_BROADCAST,
                                       .data = p->data,
                                       .n = PROBE_BYTES / (p->n_ranks - 1),
                                       .element_bytes = 1};
}

/* A measured time has the latency in it, and may be hardly longer. */
static double rate(int64_t bytes, double seconds, double latency) {
    double moved = seconds - latency > seconds / 4 ? seconds - latency : seconds / 4;
    return (double)bytes / (moved > 1e-9 ? moved : 1e-9);
}

static enum hl_status measure(const struct probe *p, struct hl_path *out, struct hl_diag *diag) {
    const struct hl_collective_args barrier = {.kind = HL_BARRIER}, each = exchange(p),
                                    all = broadcast(p);
    double seconds[3] = {0};
    enum hl_status status = fastest(p, &barrier, LATENCY_TIMES, &seconds[0], diag);
    if (status == HL_OK) status = fastest(p, &each, TIMES, &seconds[1], diag);
    if (status == HL_OK) status = fastest(p, &all, TIMES, &seconds[2], diag);
    *out =
        (struct hl_path){.latency_s = seconds[0],
                         .each_bytes_per_s = rate(hl_collective_load(&each, 0, p->n_ranks).out_each,
                                                  seconds[1], seconds[0]),
                         .all_bytes_per_s = rate(all.n, seconds[2], seconds[0])};
    return status;
}

/* Both ways may want the same processors or the same bus: at once, as the model would split it. */
static enum hl_status measure_both(const struct probe *p, struct hl_paths *paths,
                                   struct hl_diag *diag) {
    const struct hl_collective_args args = exchange(p);
    double seconds = 0, latency[2], moves[2];
    for (int i = 0; i < 2; i++) {
        latency[i] = paths->path[i].latency_s;
        moves[i] = hl_path_seconds(&paths->path[i], &args, p->n_ranks) - latency[i];
    }
    int share = (int)(HL_SHARES * moves[1] / (moves[0] + moves[1]));
    if (share < LEAST_SHARE) share = LEAST_SHARE;
    if (share > HL_SHARES - LEAST_SHARE) share = HL_SHARES - LEAST_SHARE;
    hl_group_set_share(p->group, share);
    enum hl_status status = fastest(p, &args, TIMES, &seconds, diag);
    paths->together = seconds / both(latency, moves, (double)share / HL_SHARES);
    if (!(paths->together > 1)) paths->together = 1;
    return status;
}

enum hl_status hl_paths_measure(struct hl_mem *mem, struct hl_group *group, struct hl_paths *out,
                                struct hl_diag *diag) {
    struct probe p = {.group = group, .n_ranks = hl_group_n_ranks(group)};
    *out = (struct hl_paths){{{0, 1, 1}, {0, 1, 1}}, 1};
    if (p.n_ranks == 1) return HL_OK;
    p.data = hl_alloc(mem, 2 * (size_t)PROBE_BYTES, 1);
    if (!p.data) return hl_fail_memory(diag, 2 * (size_t)PROBE_BYTES, "measuring two paths");
    memset(p.data, 0, 2 * (size_t)PROBE_BYTES); /* pages are not part of what is measured */
    p.out = p.data + PROBE_BYTES;
    hl_group_set_share(group, HL_SHARES);
    enum hl_status status = measure(&p, &out->path[0], diag);
    hl_group_set_share(group, 0);
    if (status == HL_OK) status = measure(&p, &out->path[1], diag);
    if (status == HL_OK) status = measure_both(&p, out, diag);
    hl_group_set_share(group, -1);
    hl_free(mem, p.data);
    return status;
}
