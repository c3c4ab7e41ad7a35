/* halley bench-net: round trip and bandwidth between each two ranks, over the wire that a run would
 * use. One pair at a time; the others sleep. Rank 0 opens the gate for each pair and collects. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/text_number.h"
#include "link_talk.h"
#include "os/memory.h"
#include "os/signal.h"
#include "ranks.h"

static const char usage[] =
    "halley bench-net [--key value ...]: round-trip time and bandwidth between each two ranks\n\n"
    "  halley launch -n 2 bench-net                         processes of this machine, over a "
    "pool\n"
    "  halley launch --hosts hosts.txt bench-net --json links.json\n"
    "  mpirun -n 4 halley bench-net                         over MPI\n\n"
    "It is started as 'halley train' is; 'halley help links' tells more.\n\n";

static const struct hl_option rows[] = {
    {.name = "json",
     .kind = HL_OPT_STRING,
     .offset = offsetof(struct bench_net_options, json),
     .section = "measuring",
     .help = "file that rank 0 writes the numbers to"},
    {.name = "seconds",
     .kind = HL_OPT_F64,
     .offset = offsetof(struct bench_net_options, seconds),
     .initial = "0.5",
     .least = 0.001,
     .most = 3600,
     .unit = "seconds",
     .section = "measuring",
     .help = "for each direction of each pair, roughly; sizes that take much longer are left out"},
};

/* What a rank tells about itself, and about a link that it led. */
struct hello {
    char version[16], host[64];
    int64_t pid;
};
struct bench {
    struct hl_mem *mem;
    struct bench_net_options options;
    struct hl_config *config;
    struct ranks ranks;
    struct link_talk talk;
    struct hello all[HL_MAX_RANKS];
    struct link_rates *links; /* rank 0: [n_ranks * n_ranks], from * n_ranks + to */
};

static void option_sets(struct bench_net_options *o, struct hl_option_set sets[2]) {
    sets[0] = (struct hl_option_set){NULL, rows, sizeof rows / sizeof *rows, o};
    sets[1] = rank_option_set(&o->ranks);
}

enum hl_status bench_net_read(struct hl_mem *mem, int n_args, char **args,
                              struct bench_net_options *options, struct hl_config **config_out,
                              struct hl_diag *diag) {
    struct hl_option_set sets[2];
    option_sets(options, sets);
    enum hl_status status = hl_config_new(mem, sets, 2, config_out, diag);
    if (status != HL_OK) return status;
    const char **words = hl_alloc(mem, (size_t)n_args + 1, sizeof *words);
    size_t n_words = 0;
    status = words ? hl_config_read_flags(*config_out, n_args, args, words, &n_words, diag)
                   : hl_fail_memory(diag, (unsigned)n_args * sizeof *words, "the command line");
    if (status == HL_OK && n_words)
        status = hl_fail(diag, HL_E_USER, "'%s' is one word too many", words[0]);
    hl_free(mem, words);
    return status;
}

/* ---- the round ---- */

static void tell(struct bench *b, enum hl_phase phase, int64_t step) {
    b->talk.phase = phase;
    b->talk.step = step;
    b->talk.wire->ops->tell(b->talk.wire, phase, step);
    ranks_told(&b->ranks, phase, step);
}

/* Rank 0 learns who is there. */
static enum hl_status meet(struct bench *b, struct hl_diag *diag) {
    struct hello *own = &b->all[b->talk.wire->rank];
    (void)snprintf(own->version, sizeof own->version, "%s", HALLEY_VERSION);
    if (gethostname(own->host, sizeof own->host - 1)) own->host[0] = 0;
    own->pid = getpid();
    if (b->talk.wire->rank) return link_send(&b->talk, 0, own, sizeof *own, diag);
    for (int r = 1; r < b->talk.wire->n_ranks; r++) {
        struct hello *h = &b->all[r];
        enum hl_status status =
            link_receive(&b->talk, r, false, h, sizeof *h, b->talk.timeout_ns, diag);
        if (status != HL_OK) return status;
        h->version[sizeof h->version - 1] = h->host[sizeof h->host - 1] = 0;
        if (strcmp(h->version, own->version) != 0)
            return hl_fail(diag, HL_E_USER, "rank %d on %s is halley %s, and rank 0 is %s", r,
                           h->host, h->version, own->version);
    }
    return HL_OK;
}

/* The two ends give up after the timeout; whoever waits for them hears their reason before its own
 * patience ends. */
static int64_t patience(const struct bench *b, int more_seconds) {
    return b->talk.timeout_ns + more_seconds * 1000000000ll;
}

static enum hl_status open_gate(struct bench *b, int64_t link, struct hl_diag *diag) {
    int64_t said = link;
    if (b->talk.wire->rank == 0) return link_send(&b->talk, HL_EVERYONE, &said, sizeof said, diag);
    enum hl_status status =
        link_receive(&b->talk, 0, true, &said, sizeof said, patience(b, 4), diag);
    if (status == HL_OK && said != link)
        return hl_fail(diag, HL_E_FORMAT, "rank 0 is at link %lld, and rank %d at %lld",
                       (long long)said, b->talk.wire->rank, (long long)link);
    return status;
}

static enum hl_status measure(struct bench *b, int from, int to, struct hl_diag *diag) {
    int rank = b->talk.wire->rank, n = b->talk.wire->n_ranks;
    struct link_rates rates = {0};
    enum hl_status status = HL_OK;
    if (rank == to) status = link_follow(&b->talk, from, diag);
    if (rank == from) status = link_lead(&b->talk, to, b->options.seconds, &rates, diag);
    if (status == HL_OK && rank == from && rank != 0)
        status = link_send(&b->talk, 0, &rates, sizeof rates, diag);
    if (status == HL_OK && rank == 0 && from != 0)
        status = link_receive(&b->talk, from, false, &rates, sizeof rates, patience(b, 2), diag);
    if (status == HL_OK && rank == 0) b->links[from * n + to] = rates;
    return status;
}

static enum hl_status measure_all(struct bench *b, struct hl_diag *diag) {
    int n = b->talk.wire->n_ranks;
    int64_t link = 0;
    enum hl_status status = meet(b, diag);
    for (int from = 0; from < n && status == HL_OK; from++)
        for (int to = 0; to < n && status == HL_OK; to++) {
            if (from == to) continue;
            tell(b, HL_PHASE_DATA, ++link);
            status = open_gate(b, link, diag);
            if (status == HL_OK) status = measure(b, from, to, diag);
        }
    if (status == HL_OK) tell(b, HL_PHASE_SAVE, link);
    return status;
}

/* ---- what it says ---- */

static void print_matrix(const struct bench *b, const char *title, int size) {
    int n = b->talk.wire->n_ranks;
    printf("\n%s\nfrom \\ to", title);
    for (int to = 0; to < n; to++) printf(" %9d", to);
    printf("\n");
    for (int from = 0; from < n; from++) {
        printf("%9d", from);
        for (int to = 0; to < n; to++) {
            const struct link_rates *l = &b->links[from * n + to];
            double value = size < 0 ? l->round_trip_ns * 1e-3 : l->bytes_per_s[size] * 1e-6;
            char text[40] = "-";
            if (value > 0) hl_print_fixed(text, sizeof text, value, value < 1000 ? 1 : 0);
            printf(" %9s", text);
        }
        printf("\n");
    }
}

static bool any(const struct bench *b, int size) {
    int n = b->talk.wire->n_ranks;
    for (int i = 0; i < n * n; i++)
        if (b->links[i].bytes_per_s[size] > 0) return true;
    return false;
}

static void print_all(const struct bench *b) {
    char title[80], bytes[40];
    int n = b->talk.wire->n_ranks;
    printf("%d ranks over %s\n", n, b->talk.wire->name);
    for (int r = 0; r < n; r++) printf("rank %d: %s\n", r, b->all[r].host);
    print_matrix(b, "round trip, us", -1);
    for (int s = 0; s < LINK_SIZES && any(b, s); s++) {
        hl_print_bytes(bytes, sizeof bytes, (uint64_t)link_sizes[s]);
        (void)snprintf(title, sizeof title, "MB/s one way, %s at a time", bytes);
        print_matrix(b, title, s);
    }
}

static void add_number(struct hl_buf *out, const char *before, double value) {
    char text[40];
    hl_print_f64(text, sizeof text, value);
    hl_buf_printf(out, "%s%s", before, text);
}

static void add_link(const struct bench *b, int from, int to, struct hl_buf *out) {
    const struct link_rates *l = &b->links[from * b->talk.wire->n_ranks + to];
    hl_buf_printf(out, "%s\n    {\"from\": %d, \"to\": %d", from || to > 1 ? "," : "", from, to);
    add_number(out, ", \"round_trip_ns\": ", l->round_trip_ns);
    hl_buf_puts(out, ", \"transfers\": [");
    for (int s = 0; s < LINK_SIZES && l->bytes_per_s[s] > 0; s++) {
        hl_buf_printf(out, "%s{\"bytes\": %lld", s ? ", " : "", (long long)link_sizes[s]);
        add_number(out, ", \"bytes_per_s\": ", l->bytes_per_s[s]);
        hl_buf_puts(out, "}");
    }
    hl_buf_puts(out, "]}");
}

/* Host names have letters, digits, - and . in them; whatever else would break the file. */
static void add_host(struct hl_buf *out, const char *host) {
    for (; *host; host++) {
        bool plain = strchr("-._", *host) || (*host >= '0' && *host <= '9') ||
                     (*host >= 'A' && *host <= 'Z') || (*host >= 'a' && *host <= 'z');
        hl_buf_add(out, plain ? host : "?", 1);
    }
}

static void add_all(const struct bench *b, struct hl_buf *out) {
    int n = b->talk.wire->n_ranks;
    hl_buf_printf(out, "{\n  \"halley\": \"%s\",\n  \"wire\": \"%s\",\n  \"ranks\": [",
                  HALLEY_VERSION, b->talk.wire->name);
    for (int r = 0; r < n; r++) {
        hl_buf_printf(out, "%s\n    {\"rank\": %d, \"host\": \"", r ? "," : "", r);
        add_host(out, b->all[r].host);
        hl_buf_printf(out, "\", \"pid\": %lld}", (long long)b->all[r].pid);
    }
    hl_buf_puts(out, "\n  ],\n  \"links\": [");
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            if (from != to) add_link(b, from, to, out);
    hl_buf_puts(out, "\n  ]\n}\n");
}

static enum hl_status write_json(const struct bench *b, struct hl_diag *diag) {
    struct hl_buf text = {.mem = b->mem};
    const char *path = b->options.json;
    add_all(b, &text);
    enum hl_status status = text.failed ? hl_fail_memory(diag, text.n, "the numbers") : HL_OK;
    FILE *file = status == HL_OK ? fopen(path, "w") : NULL;
    if (status == HL_OK && (!file || fwrite(text.data, 1, text.n, file) != text.n || fflush(file)))
        status = hl_fail(diag, HL_E_IO, "%s: cannot be written: %m", path);
    if (file && fclose(file) && status == HL_OK)
        status = hl_fail(diag, HL_E_IO, "%s: cannot be written: %m", path);
    hl_buf_free(&text);
    return status;
}

/* ---- all together ---- */

static enum hl_status prepare(struct bench *b, struct hl_diag *diag) {
    int n = b->ranks.place.n_ranks;
    if (n < 2)
        return hl_fail(diag, HL_E_USER,
                       "one rank has no links; 'halley launch -n 2 bench-net' starts two");
    b->talk.data = hl_alloc(b->mem, LINK_LARGEST, 1);
    b->links = hl_alloc(b->mem, (size_t)n * (size_t)n, sizeof *b->links);
    if (!b->talk.data || !b->links) return hl_fail_memory(diag, LINK_LARGEST, "messages");
    memset(b->talk.data, 1, LINK_LARGEST); /* pages are not part of what is measured */
    return HL_OK;
}

static enum hl_status run(struct bench *b, struct hl_diag *diag) {
    enum hl_status status = prepare(b, diag);
    if (status == HL_OK) status = ranks_open_wire(&b->ranks, &b->options.ranks, diag);
    if (status != HL_OK) return status;
    b->talk.wire = b->ranks.wire;
    if (b->talk.wire->n_paths > 1)
        return hl_fail(diag, HL_E_USER, "%s is two wires: measure one after the other with --wire",
                       b->talk.wire->name);
    b->talk.timeout_ns = b->ranks.place.timeout_ns;
    hl_signal_ignore_pipe();
    status = measure_all(b, diag);
    if (status != HL_OK || b->talk.wire->rank) return status;
    print_all(b);
    return *b->options.json ? write_json(b, diag) : HL_OK;
}

int bench_net_as_rank(const struct hl_cluster_place *place, int n_args, char **args) {
    struct hl_mem *mem = hl_mem_os();
    struct bench *b = hl_alloc(mem, 1, sizeof *b);
    struct hl_diag diag = {0};
    if (!b) return 1;
    b->mem = mem;
    enum hl_status status = ranks_place(mem, place, &b->ranks, &diag);
    if (status == HL_OK) status = bench_net_read(mem, n_args, args, &b->options, &b->config, &diag);
    if (status == HL_OK) status = run(b, &diag);
    ranks_close(&b->ranks, status, 0, &diag);
    int result = status == HL_OK ? 0 : ranks_fail(&b->ranks, "bench-net", status, &diag);
    hl_free(mem, b->links);
    hl_free(mem, b->talk.data);
    hl_config_free(b->config);
    hl_free(mem, b);
    return result;
}

int command_bench_net(int n_args, char **args) {
    struct bench_net_options options;
    struct hl_option_set sets[2];
    option_sets(&options, sets);
    if (command_wants_help(n_args, args)) return command_print_help(usage, sets, 2), 0;
    return bench_net_as_rank(NULL, n_args, args);
}
