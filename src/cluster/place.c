/* Variables of the environment to a place. See halley/cluster.h.
 *
 * Sources: torch.distributed.run's manual (RANK ...), Open MPI's mpirun(1), MPICH's hydra and the
 * PMI-1 environment, PMIx's PMIX_RANK, Slurm's srun(1), "OUTPUT ENVIRONMENT VARIABLES". */
#include "halley/cluster.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/slurm.h"

/* Names of one launcher; several words: the first that is set. */
struct family {
    const char *source, *rank, *n_ranks, *local_rank, *n_local;
    const char *wire; /* what such ranks can use without being told */
};
static const struct family halley = {"halley launch",     "HALLEY_RANK",    "HALLEY_N_RANKS",
                                     "HALLEY_LOCAL_RANK", "HALLEY_N_LOCAL", ""};
static const struct family others[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "wan"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpi"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpi"},
};
/* Their sizes are another one's variables, or are set where nothing was started: no half of a pair.
 */
static const struct family pmix = {
    "PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS SLURM_NTASKS", "SLURM_LOCALID", "", "mpi"};
static const struct family slurm = {
    "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS SLURM_NTASKS", "SLURM_LOCALID", "", "wan"};

enum { N_OTHERS = sizeof others / sizeof *others, MOST_RANKS = 1 << 20 };

/* ---- one variable ---- */

struct variable {
    char name[32];
    const char *text; /* NULL: none of the names is set */
};

static struct variable look(const char *names) {
    struct variable v = {.text = NULL};
    while (*names && !v.text) {
        size_t n = strcspn(names, " ");
        (void)snprintf(v.name, sizeof v.name, "%.*s", (int)n, names);
        v.text = getenv(v.name);
        if (v.text && !*v.text) v.text = NULL;
        names += n + strspn(names + n, " ");
    }
    return v;
}

static enum hl_status number(const struct variable *v, int least, int most, int *out,
                             struct hl_diag *diag) {
    char *end;
    long value = strtol(v->text, &end, 10);
    if (*end || value < least || value > most)
        return hl_fail(diag, HL_E_USER, "%s=%s is no number from %d to %d", v->name, v->text, least,
                       most);
    *out = (int)value;
    return HL_OK;
}

static enum hl_status copy(char *out, size_t capacity, const char *name, const char *text,
                           struct hl_diag *diag) {
    if (strlen(text) >= capacity)
        return hl_fail(diag, HL_E_USER, "%s has more than %zu characters", name, capacity - 1);
    (void)strcpy(out, text);
    return HL_OK;
}

/* ---- who and how many ---- */

static enum hl_status read_local(const struct family *f, struct hl_cluster_place *out,
                                 struct hl_diag *diag) {
    const struct variable rank = look(f->local_rank), n = look(f->n_local);
    enum hl_status status = HL_OK;
    if (n.text) status = number(&n, 1, out->n_ranks, &out->n_local, diag);
    if (status == HL_OK && rank.text)
        status =
            number(&rank, 0, (n.text ? out->n_local : out->n_ranks) - 1, &out->local_rank, diag);
    if (status == HL_OK && n.text && !rank.text)
        return hl_fail(diag, HL_E_USER, "%s=%s is set and %s is not; set both or none", n.name,
                       n.text, f->local_rank);
    return status;
}

static enum hl_status read_family(const struct family *f, struct hl_cluster_place *out,
                                  struct hl_diag *diag) {
    const struct variable rank = look(f->rank), n = look(f->n_ranks);
    if (!rank.text && !n.text) return HL_END;
    if (!rank.text || !n.text)
        return hl_fail(diag, HL_E_USER,
                       "%s=%s is set and %s is not, so this process has no place among ranks; set "
                       "both, or unset it to train alone",
                       rank.text ? rank.name : n.name, rank.text ? rank.text : n.text,
                       rank.text ? f->n_ranks : f->rank);
    struct hl_cluster_place place = {.source = f->source};
    enum hl_status status = number(&n, 1, MOST_RANKS, &place.n_ranks, diag);
    if (status == HL_OK) status = number(&rank, 0, place.n_ranks - 1, &place.rank, diag);
    if (status == HL_OK) status = read_local(f, &place, diag);
    if (status != HL_OK) return status;
    (void)snprintf(place.wire, sizeof place.wire, "%s", f->wire);
    *out = place;
    return HL_OK;
}

static enum hl_status compare(const struct family *a, const struct hl_cluster_place *x,
                              const struct family *b, const struct hl_cluster_place *y,
                              struct hl_diag *diag) {
    if (x->rank == y->rank && x->n_ranks == y->n_ranks) return HL_OK;
    bool by_rank = x->rank != y->rank;
    return hl_fail(diag, HL_E_USER,
                   "%s=%d of %s and %s=%d of %s contradict each other; unset those that are left "
                   "over",
                   by_rank ? a->rank : a->n_ranks, by_rank ? x->rank : x->n_ranks, a->source,
                   by_rank ? b->rank : b->n_ranks, by_rank ? y->rank : y->n_ranks, b->source);
}

/* The first of torchrun, Open MPI and MPICH; all that are set must agree. */
static enum hl_status read_others(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct family *first = NULL;
    for (int i = 0; i < N_OTHERS; i++) {
        struct hl_cluster_place place;
        enum hl_status status = read_family(&others[i], &place, diag);
        if (status == HL_END) continue;
        if (status == HL_OK && first) status = compare(first, out, &others[i], &place, diag);
        if (status != HL_OK) return status;
        if (!first) *out = place;
        if (!first) first = &others[i];
    }
    return first ? HL_OK : HL_END;
}

/* srun sets SLURM_STEP_ID for what it starts. A batch script has the other variables too, and is
 * one process. */
static enum hl_status read_slurm(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct variable step = look("SLURM_STEP_ID"), rank = look("SLURM_PROCID"),
                          by_pmix = look("PMIX_RANK");
    bool started = step.text && rank.text;
    if (!started && !by_pmix.text) return HL_END;
    enum hl_status status = read_family(by_pmix.text ? &pmix : &slurm, out, diag);
    if (status == HL_OK) out->n_local = hl_slurm_tasks_here();
    return status;
}

/* ---- how to reach the others ---- */

/* "host:port", with brackets around an IPv6 address. */
static enum hl_status master_address(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct variable host = look("MASTER_ADDR"), port = look("MASTER_PORT");
    int value = 0;
    if (!host.text && !port.text) return HL_END;
    if (!host.text || !port.text)
        return hl_fail(diag, HL_E_USER, "%s=%s is set and %s is not; the ranks meet at both",
                       host.text ? host.name : port.name, host.text ? host.text : port.text,
                       host.text ? "MASTER_PORT" : "MASTER_ADDR");
    enum hl_status status = number(&port, 1, 65535, &value, diag);
    if (status != HL_OK) return status;
    bool v6 = strchr(host.text, ':') && *host.text != '[';
    int n = snprintf(out->address, sizeof out->address, "%s%s%s:%d", v6 ? "[" : "", host.text,
                     v6 ? "]" : "", value);
    return n < (int)sizeof out->address
               ? HL_OK
               : hl_fail(diag, HL_E_USER, "MASTER_ADDR is too long for an address");
}

static enum hl_status read_address(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct variable own = look("HALLEY_ADDRESS");
    if (own.text) return copy(out->address, sizeof out->address, own.name, own.text, diag);
    if (strcmp(out->wire, "wan") != 0) return HL_OK;
    enum hl_status status = master_address(out, diag);
    if (status == HL_END && out->source == slurm.source)
        status = hl_slurm_address(out->address, sizeof out->address);
    if (status != HL_END || out->n_ranks < 2) return status == HL_END ? HL_OK : status;
    return hl_fail(diag, HL_E_USER,
                   "%s says there are %d ranks, but not where they meet; set MASTER_ADDR to the "
                   "host of rank 0 and MASTER_PORT to a free port there",
                   out->source, out->n_ranks);
}

static enum hl_status read_timeout(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct variable text = look("HALLEY_TIMEOUT");
    int seconds = HL_DEFAULT_TIMEOUT_S;
    enum hl_status status = text.text ? number(&text, 1, 1 << 30, &seconds, diag) : HL_OK;
    out->timeout_ns = (int64_t)seconds * 1000000000;
    return status;
}

static enum hl_status read_rest(struct hl_cluster_place *out, struct hl_diag *diag) {
    const struct variable wire = look("HALLEY_WIRE"), token = look("HALLEY_TOKEN"),
                          interface = look("HALLEY_INTERFACE GLOO_SOCKET_IFNAME");
    enum hl_status status = read_timeout(out, diag);
    if (status == HL_OK && wire.text)
        status = copy(out->wire, sizeof out->wire, wire.name, wire.text, diag);
    if (status == HL_OK && token.text)
        status = copy(out->token, sizeof out->token, token.name, token.text, diag);
    if (status == HL_OK && interface.text)
        status = copy(out->interface, sizeof out->interface, interface.name, interface.text, diag);
    return status == HL_OK ? read_address(out, diag) : status;
}

enum hl_status hl_cluster_from_environment(struct hl_cluster_place *out, struct hl_diag *diag) {
    struct hl_cluster_place place = {.n_ranks = 1};
    enum hl_status status = read_family(&halley, &place, diag);
    if (status == HL_END) status = read_others(&place, diag);
    if (status == HL_END) status = read_slurm(&place, diag);
    if (status < 0) return status;
    if (status == HL_END) place = (struct hl_cluster_place){.n_ranks = 1, .source = "one process"};
    enum hl_status rest = read_rest(&place, diag);
    if (rest < 0) return rest;
    *out = place;
    return status;
}
