/* See ranks.h. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/cpu.h"
#include "os/futex.h"
#include "os/signal.h"
#include "train/agree.h"
#include "wires/wrappers.h"

enum { LANES = 3, LARGEST_PART = 128 << 10, LEAST_PART = 4 << 10, SLOTS = 4 };
static const int64_t MOST_BYTES = 256 << 20; /* of slots, where all ranks' lie in one memory */

/* ---- place ---- */

enum hl_status ranks_place(struct hl_mem *mem, const struct hl_cluster_place *given,
                           struct ranks *out, struct hl_diag *diag) {
    *out = (struct ranks){.mem = mem, .n_sharing = 0, .generation = 1};
    if (given) { /* threads cannot break one by one */
        out->place = *given;
        return HL_OK;
    }
    enum hl_status status = hl_cluster_from_environment(&out->place, diag);
    if (status >= 0) status = rank_fault_read(&out->fault, diag);
    if (status < 0) return status;
    status = hl_board_from_environment(out->place.rank, &out->board, &out->entry, diag);
    if (status == HL_OK) hl_board_tell(&out->board, out->entry, HL_PHASE_START, 0);
    if (status == HL_OK) out->snapshot = getenv("HALLEY_SNAPSHOT");
    return status < 0 ? status : HL_OK;
}

void ranks_shape(int n_ranks, struct hl_wire_place *out) {
    int64_t part = LARGEST_PART, streams = (int64_t)LANES * n_ranks * n_ranks;
    while (part > LEAST_PART && streams * SLOTS * part > MOST_BYTES) part /= 2;
    out->n_lanes = LANES;
    out->part_bytes = (size_t)part;
}

/* What `halley launch` said counts; others only suggest. */
static enum hl_status settle(struct hl_cluster_place *p, const struct rank_options *o,
                             struct hl_diag *diag) {
    bool launched = p->shared || !strcmp(p->source, "halley launch");
    if (*o->wire && !launched) (void)snprintf(p->wire, sizeof p->wire, "%s", o->wire);
    if (*o->interface && !launched)
        (void)snprintf(p->interface, sizeof p->interface, "%s", o->interface);
    if (o->timeout && !launched) p->timeout_ns = o->timeout * 1000000000;
    if (p->n_ranks > HL_MAX_RANKS)
        return hl_fail(diag, HL_E_USER, "%s started %d ranks; %d are the most", p->source,
                       p->n_ranks, HL_MAX_RANKS);
    if (p->n_ranks > 1 && !*p->wire)
        return hl_fail(diag, HL_E_USER, "%s started %d ranks without a wire; name one with --wire",
                       p->source, p->n_ranks);
    return HL_OK;
}

/* ---- wire and group ---- */

void ranks_told(struct ranks *r, enum hl_phase phase, int64_t step) {
    r->step = step;
    if (r->board.n) hl_board_tell(&r->board, r->entry, (int)phase, step);
    rank_fault_at(&r->fault, r->generation, r->place.rank, phase, step);
}

static void told(void *context, enum hl_phase phase, int64_t step) {
    ranks_told(context, phase, step);
}

static enum hl_status open_wire(struct ranks *r, const char *wrappers, struct hl_diag *diag) {
    const struct hl_cluster_place *p = &r->place;
    const struct hl_wire_plugin *plugin;
    enum hl_status status = hl_wire_find(p->wire, &plugin, diag);
    if (status == HL_OK) status = plugin->available(diag);
    if (status != HL_OK) return status;
    if (!plugin->processes && !p->shared)
        return hl_fail(diag, HL_E_USER,
                       "wire: '%s' is for the ranks of one process; halley launch --wire %s starts "
                       "them",
                       p->wire, p->wire);
    struct hl_wire_place place = {.rank = p->rank,
                                  .n_ranks = p->n_ranks,
                                  .address = *p->address ? p->address : NULL,
                                  .token = *p->token ? p->token : NULL,
                                  .interface = *p->interface ? p->interface : NULL,
                                  .shared = p->shared,
                                  .timeout_ns = p->timeout_ns};
    if (!r->snapshot) ranks_shape(p->n_ranks, &place); /* else as the first generation's */
    status = plugin->open(r->mem, &place, &r->wire, diag);
    const struct hl_wrap_world world = {.process = !p->shared};
    return status == HL_OK ? hl_wire_wrap(r->mem, wrappers, &world, &r->wire, diag) : status;
}

/* Ranks that may run on the same processors share them. When ranks are lost, those that are left
 * keep their share: sums may depend on the number of threads. */
static enum hl_status count_sharing(struct ranks *r, struct hl_diag *diag) {
    double all[HL_MAX_RANKS] = {0};
    int rank = hl_group_rank(r->group), n = hl_group_n_ranks(r->group);
    all[rank] = (double)(hl_cpu_identity() >> 12); /* exact in a double */
    enum hl_status status = hl_group_share(r->group, all, 1, diag);
    bool first = !r->n_sharing && status == HL_OK;
    for (int i = 0; i < n && first; i++) r->n_sharing += all[i] == all[rank];
    return status;
}

enum hl_status ranks_open_wire(struct ranks *r, const struct rank_options *options,
                               struct hl_diag *diag) {
    enum hl_status status = settle(&r->place, options, diag);
    if (status == HL_OK) status = hl_wire_wrap_check(options->wire_wrappers, diag);
    if (status == HL_OK) ranks_told(r, HL_PHASE_START, 0);
    return status == HL_OK ? open_wire(r, options->wire_wrappers, diag) : status;
}

/* ---- generations ---- */

/* The first that does not wait with us. */
static void name_missing(const struct ranks *r, char *out, size_t capacity) {
    (void)snprintf(out, capacity, "the launcher");
    for (int i = 0; i < r->board.n; i++) {
        struct hl_board_entry e;
        struct hl_board_view v;
        hl_board_read(&r->board, i, &e);
        hl_board_look(&r->board, i, &v);
        if (e.awaits >= r->generation || !v.n_ranks) continue;
        (void)snprintf(out, capacity, "rank %d, last seen in the phase %s of step %lld", v.rank,
                       hl_phase_name((enum hl_phase)(e.phase < 0 ? 0 : e.phase)),
                       (long long)e.step);
        return;
    }
}

/* The launcher says which rank of how many this is now. */
static enum hl_status await_view(struct ranks *r, struct hl_diag *diag) {
    enum { LOOK_NS = 2000000 };
    struct hl_board_view view;
    char missing[120];
    int64_t end = hl_clock_ns() + r->place.timeout_ns;
    for (;; hl_sleep_ns(LOOK_NS)) {
        hl_board_look(&r->board, r->entry, &view);
        if (view.generation >= r->generation) break;
        if (hl_signal_pending())
            return hl_fail(diag, HL_E_PEER, "asked to stop while ranks were missing");
        if (hl_clock_ns() < end) continue;
        name_missing(r, missing, sizeof missing);
        return hl_fail(diag, HL_E_TIMEOUT, "waited %lld s to be one of the ranks again for %s",
                       (long long)(r->place.timeout_ns / 1000000000), missing);
    }
    if (view.generation == HL_BOARD_DONE) return HL_END;
    if (view.generation == HL_BOARD_OVER)
        return hl_fail(diag, HL_E_PEER, "the run ends because of another rank");
    r->generation = view.generation;
    r->place.rank = view.rank;
    r->place.n_ranks = view.n_ranks;
    return HL_OK;
}

bool ranks_lost(void *context) {
    const struct ranks *r = context;
    struct hl_board_view view = {.broken = 0};
    if (r->snapshot) hl_board_look(&r->board, r->entry, &view);
    return view.broken >= r->generation;
}

static void leave_group(struct ranks *r) {
    hl_group_free(r->group);
    if (r->wire) r->wire->ops->close(r->wire);
    r->group = NULL;
    r->wire = NULL;
}

bool ranks_come_back(struct ranks *r, enum hl_status status, const struct hl_diag *diag) {
    if (!r->snapshot || (status != HL_E_PEER && status != HL_E_TIMEOUT)) return false;
    struct hl_board_view view;
    hl_board_look(&r->board, r->entry, &view);
    if (view.generation >= HL_BOARD_OVER || view.generation < r->generation) return false;
    fprintf(stderr, "%s\n", diag->text);
    leave_group(r);
    hl_board_await(&r->board, r->entry, ++r->generation);
    return true;
}

/* What decides which operations take which of two paths. */
static void say_paths(struct ranks *r) {
    const struct hl_paths *paths = hl_group_paths(r->group);
    struct hl_log log = ranks_log(r);
    if (!paths) return;
    for (int i = 0; i < 2; i++)
        hl_log(&log, HL_LOG_INFO,
               "%s path of %s: %.0f us a round, %.0f MB/s to single ranks, %.0f MB/s to all",
               i ? "second" : "first", r->wire->name, paths->path[i].latency_s * 1e6,
               paths->path[i].each_bytes_per_s * 1e-6, paths->path[i].all_bytes_per_s * 1e-6);
    hl_log(&log, HL_LOG_INFO, "both at once take %.2f times as long as they should",
           paths->together);
}

enum hl_status ranks_open(struct ranks *r, const struct rank_options *options,
                          struct hl_diag *diag) {
    const struct hl_kernels *kernels;
    enum hl_status status = r->snapshot ? await_view(r, diag) : HL_OK;
    if (status == HL_OK) status = settle(&r->place, options, diag);
    if (status == HL_OK) status = hl_wire_wrap_check(options->wire_wrappers, diag);
    if (status == HL_OK) status = hl_kernels_get(HL_F32, &kernels, diag);
    if (status == HL_OK && r->place.n_ranks > 1)
        status = open_wire(r, options->wire_wrappers, diag);
    if (status == HL_OK)
        status = hl_group_new(r->mem, r->wire, kernels, r->place.timeout_ns, &r->group, diag);
    if (status != HL_OK) return status;
    hl_group_on_tell(r->group, told, r);
    told(r, HL_PHASE_START, 0);
    say_paths(r);
    return count_sharing(r, diag);
}

void ranks_close(struct ranks *r, enum hl_status status, int end, const struct hl_diag *diag) {
    const char *why = *diag->text ? diag->text : hl_status_name(status);
    if (status < 0) end = command_status(status);
    if (end && r->board.n) hl_board_give_up(&r->board, r->entry, end, why);
    if (status < 0 && r->group) hl_group_give_up(r->group, why);
    else if (status < 0 && r->wire) r->wire->ops->give_up(r->wire, why);
    else if (r->group) hl_group_tell(r->group, HL_PHASE_SHUTDOWN, r->step);
    else if (r->wire) ranks_told(r, HL_PHASE_SHUTDOWN, r->step);
    leave_group(r);
    hl_board_close(&r->board);
}

/* ---- agreement ---- */

static bool may_differ(const char *key) {
    static const char *const keys[] = {"threads",   "output_dir", "data",       "validation_data",
                                       "cache_dir", "tokenizer",  "model",      "wire",
                                       "timeout",   "interface",  "tensorboard"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key)) return true;
    return false;
}

enum { MOST_ITEMS = 256 };
struct items {
    struct hl_agree_item list[MOST_ITEMS];
    int n;
    char *text; /* a copy of the YAML that the keys point into */
};

static void add(struct items *items, const char *key, const char *value) {
    if (items->n < MOST_ITEMS) hl_agree_set(&items->list[items->n++], key, value);
}

/* "key: value", and lines behind it that belong to it. */
static void add_lines(struct items *items) {
    for (char *at = items->text; *at;) {
        char *colon = strchr(at, ':'), *end = strchr(at, '\n');
        while (end && (end[1] == ' ' || end[1] == '-')) end = strchr(end + 1, '\n');
        if (!end) end = at + strlen(at);
        char *next = *end ? end + 1 : end;
        *end = 0;
        if (colon && colon < end && *at != '#') {
            *colon = 0;
            if (!may_differ(at)) add(items, at, colon + 1 + (colon[1] == ' '));
        }
        at = next;
    }
}

enum hl_status ranks_agree_on_config(struct ranks *r, const char *yaml, struct hl_diag *diag) {
    if (r->place.n_ranks == 1) return HL_OK;
    struct items *items = hl_alloc(r->mem, 1, sizeof *items);
    char *text = hl_strdup(r->mem, yaml);
    enum hl_status status = HL_OK;
    if (!items || !text) status = hl_fail_memory(diag, sizeof *items, "the configuration's keys");
    if (status == HL_OK) {
        char size[64];
        items->text = text;
        (void)snprintf(size, sizeof size, "%d lanes, %zu bytes", r->wire->n_lanes,
                       r->wire->part_bytes);
        add(items, "halley's version", HALLEY_VERSION);
        add(items, "the wire", r->place.wire);
        add(items, "the wire's size", size);
        add_lines(items);
        status = hl_agree(r->mem, r->group, "configuration", items->list, items->n, diag);
    }
    hl_free(r->mem, text);
    hl_free(r->mem, items);
    return status;
}

enum hl_status ranks_agree_on_data(struct ranks *r, const struct hl_model_config *model,
                                   const struct hl_tokenizer *tokenizer,
                                   const struct hl_dataset *dataset, struct hl_diag *diag) {
    struct hl_agree_item items[3];
    struct hl_buf json = {.mem = r->mem};
    hl_model_config_to_json(model, &json);
    if (json.failed) return hl_fail_memory(diag, json.n, "the model's configuration");
    hl_agree_set(&items[0], "the model", json.data);
    hl_agree_set_hash(&items[1], "the tokenizer", hl_tokenizer_hash(tokenizer));
    hl_agree_set_hash(&items[2], "the data", hl_dataset_hash(dataset));
    hl_buf_free(&json);
    return hl_agree(r->mem, r->group, "model or the data", items, 3, diag);
}

/* ---- words ---- */

/* Lines of a launcher's child carry its rank already. */
static bool names_itself(const struct ranks *r) {
    return r->place.n_ranks > 1 &&
           (r->place.shared || strcmp(r->place.source, "halley launch") != 0);
}

static void print_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    const struct ranks *r = log->context;
    char rank[32] = "";
    if (names_itself(r) && r->place.rank)
        (void)snprintf(rank, sizeof rank, "rank %d: ", r->place.rank);
    fprintf(stderr, "%s%s%s\n",
            level >= HL_LOG_ERROR  ? "error: "
            : level == HL_LOG_WARN ? "warning: "
                                   : "",
            rank, text);
}

struct hl_log ranks_log(struct ranks *ranks) {
    return (struct hl_log){.line = print_line,
                           .least = ranks->place.rank ? HL_LOG_WARN : HL_LOG_INFO,
                           .context = ranks};
}

int ranks_fail(const struct ranks *r, const char *command, enum hl_status status,
               const struct hl_diag *diag) {
    if (!names_itself(r)) return command_fail(command, status, diag);
    fprintf(stderr, "halley %s: rank %d: %s\n", command, r->place.rank,
            *diag->text ? diag->text : hl_status_name(status));
    return command_status(status);
}
