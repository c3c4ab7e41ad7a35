/* Where ranks of one machine or several meet, and the secret that they share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "os/identity.h"
#include "os/net.h"

/* ---- who is here ---- */

/* torchrun's way: as many ranks on each machine, in the order of node_rank. */
static enum hl_status count_nodes(struct launch *l, struct hl_diag *diag) {
    const struct launch_options *o = &l->options;
    if (o->standalone && o->nnodes > 1)
        return hl_fail(diag, HL_E_USER, "standalone: means one machine, and nnodes is %lld",
                       (long long)o->nnodes);
    if (o->node_rank >= o->nnodes)
        return hl_fail(diag, HL_E_USER, "node_rank: %lld is not below nnodes, %lld",
                       (long long)o->node_rank, (long long)o->nnodes);
    if (o->nnodes > 1 && !hl_config_given(l->config, "node_rank"))
        return hl_fail(diag, HL_E_USER, "node_rank: which of the %lld machines is this? 0 to %lld",
                       (long long)o->nnodes, (long long)o->nnodes - 1);
    int64_t all = o->ranks_in_all ? o->ranks_in_all : o->nnodes * o->n,
            first = o->ranks_in_all ? o->ranks_before : o->node_rank * o->n;
    if (all > HL_MAX_RANKS || first + o->n > all)
        return hl_fail(diag, HL_E_USER, "%lld ranks in all; %d are the most", (long long)all,
                       HL_MAX_RANKS);
    l->n_ranks = (int)all;
    l->first_rank = (int)first;
    return HL_OK;
}

/* Several machines: over TCP, or in a pool that all of them map. */
static enum hl_status check_far(const struct launch *l, struct hl_diag *diag) {
    bool pool = launch_is_over(l, "pool");
    if (pool && !*l->options.pool)
        return hl_fail(diag, HL_E_USER,
                       "pool: which one do all machines map? --pool POOL, made with 'halley pool "
                       "create'; without one, ranks of several machines meet over --wire wan");
    if (pool || launch_is_over(l, "wan")) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "wire: launch joins several machines over wan, or over a pool that they share; "
                   "for '%s' start the command there by mpirun or srun",
                   l->wire);
}

enum hl_status launch_settle(struct launch *l, struct hl_diag *diag) {
    const struct launch_options *o = &l->options;
    const char *asked = *o->wire ? o->wire : l->run.ranks.wire;
    int64_t seconds = o->timeout ? o->timeout : l->run.ranks.timeout;
    enum hl_status status = *o->hosts ? HL_OK : count_nodes(l, diag);
    if (status != HL_OK) return status;
    l->far = *o->hosts || l->n_ranks > o->n;
    l->timeout_ns = (seconds ? seconds : HL_DEFAULT_TIMEOUT_S) * 1000000000;
    l->interface = *o->interface ? o->interface : l->run.ranks.interface;
    l->wire = *asked ? asked : (l->far || *o->rdzv_endpoint) && !*o->pool ? "wan" : "pool";
    if (o->elastic && (l->far || strcmp(l->wire, "pool") != 0))
        return hl_fail(
            diag, HL_E_USER,
            "elastic: the state outlives a rank in the memory of one machine's pool, and "
            "the wire is '%s'%s; use --wire pool on one machine, or --max_restarts",
            l->wire, l->far ? " between several" : "");
    return l->far ? check_far(l, diag) : HL_OK;
}

/* ---- address ---- */

static enum hl_status free_port(struct launch *l, struct hl_diag *diag) {
    struct hl_net_address at = {.ip = "127.0.0.1", .loopback = true};
    if (l->port_socket) (void)close(l->port_socket);
    l->port_socket = 0;
    int s = hl_net_reserve(&at, diag);
    if (s < 0) return diag->status;
    l->port_socket = s;
    (void)snprintf(l->address, sizeof l->address, "127.0.0.1:%d", at.port);
    return HL_OK;
}

static enum hl_status find_address(struct launch *l, struct hl_diag *diag) {
    const char *endpoint = l->options.rdzv_endpoint;
    if (*endpoint && strlen(endpoint) < sizeof l->address) {
        bool has_port = strrchr(endpoint, ':') > strrchr(endpoint, ']');
        (void)snprintf(l->address, sizeof l->address, "%s%s", endpoint, has_port ? "" : ":29500");
        return HL_OK;
    }
    if (l->n_ranks == l->options.n) return free_port(l, diag);
    return hl_fail(diag, HL_E_USER,
                   "rdzv_endpoint: where do the machines meet? HOST:PORT of rank 0's machine");
}

/* ---- secret ---- */

static enum hl_status random_token(struct launch *l, struct hl_diag *diag) {
    unsigned char bytes[32];
    if (!hl_random_bytes(bytes, sizeof bytes))
        return hl_fail(diag, HL_E_IO, "the kernel gives no random bytes: %m");
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(l->token + 2 * i, sizeof l->token - 2 * i, "%02x", bytes[i]);
    return HL_OK;
}

/* The first line, and no byte behind it. */
static enum hl_status read_token(struct launch *l, struct hl_diag *diag) {
    for (size_t n = 0; n + 1 < sizeof l->token; n++) {
        ssize_t got = read(STDIN_FILENO, &l->token[n], 1);
        if (got < 0 && errno == EINTR) n--;
        else if (got <= 0) break;
        else if (l->token[n] == '\n') return l->token[n] = 0, HL_OK;
    }
    return hl_fail(diag, HL_E_USER, "secret_on_stdin: there is no line on standard input");
}

static enum hl_status find_token(struct launch *l, struct hl_diag *diag) {
    const char *given = getenv("HALLEY_TOKEN");
    if (*l->token) return HL_OK; /* of an earlier attempt */
    if (l->options.secret_on_stdin) return read_token(l, diag);
    if (given && *given) {
        int n = snprintf(l->token, sizeof l->token, "%s", given);
        return n < (int)sizeof l->token ? HL_OK
                                        : hl_fail(diag, HL_E_USER, "HALLEY_TOKEN is too long");
    }
    if (l->n_ranks == l->options.n || *l->options.hosts) return random_token(l, diag);
    return hl_fail(
        diag, HL_E_USER,
        "HALLEY_TOKEN: not set; give all machines the same secret, such as what 'openssl "
        "rand -hex 32' prints once");
}

enum hl_status launch_meet(struct launch *l, struct hl_diag *diag) {
    bool in_pool_only = !launch_is_over(l, "wan");
    if (in_pool_only && !*l->options.hosts && !l->options.secret_on_stdin) return HL_OK;
    enum hl_status status = in_pool_only || *l->options.hosts ? HL_OK : find_address(l, diag);
    return status == HL_OK ? find_token(l, diag) : status;
}
