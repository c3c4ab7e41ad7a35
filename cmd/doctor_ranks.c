/* What doctor says about several ranks: what they can exchange over and how fast, and whether the
 * machine has room for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "doctor_report.h"
#include "halley/cluster.h"
#include "halley/text_number.h"
#include "halley/wire.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/net.h"
#include "os/shared.h"
#include "pool_check.h"
#include "ranks.h"

static const char *fixed(char out[40], double value, int decimals) {
    hl_print_fixed(out, 40, value, decimals);
    return out;
}

/* ---- processors ---- */

static void show_share(struct doctor_report *report, int n_ranks) {
    struct hl_cpu cpu;
    char why[256], load_text[40];
    double load = 0;
    hl_cpu_read(&cpu);
    int n_all = cpu.n_threads;
    hl_cpu_share(&cpu, n_ranks);
    int each = hl_cpu_threads(&cpu, 0, why, sizeof why);
    doctor_line("ranks", "%d on this machine: %d thread%s each (%s)", n_ranks, each,
                each == 1 ? "" : "s", why);
    if (n_ranks * each > n_all)
        doctor_complain(report, false,
                        "%d ranks with %d thread%s each are more than the %d threads that this "
                        "machine has cores for: start fewer ranks%s",
                        n_ranks, each, each == 1 ? "" : "s", n_all,
                        each > 1 ? ", or unset OMP_NUM_THREADS" : "");
    if (getloadavg(&load, 1) != 1) return;
    doctor_line("load", "%s of %d processors were busy or waited for in the last minute",
                fixed(load_text, load, 1), cpu.n_allowed);
    if (load > cpu.n_allowed)
        doctor_complain(report, false,
                        "other programs want all processors (load %s of %d): ranks wait for the "
                        "slowest of them; see 'top'",
                        load_text, cpu.n_allowed);
}

static void show_clock(struct doctor_report *report) {
    struct hl_clock_facts c;
    char read[40];
    hl_clock_look(&c);
    doctor_line("clock", "%s, steps of %lld ns, %s ns to read", *c.source ? c.source : "unknown",
                (long long)c.step_ns, fixed(read, c.read_ns, 0));
    if (c.step_ns > 1000 || c.read_ns > 1000)
        doctor_complain(report, false,
                        "the clock is coarse or slow to read: 'echo tsc > "
                        "/sys/devices/system/clocksource/clocksource0/current_clocksource' as "
                        "root, if it is among: %s",
                        *c.available ? c.available : "(unknown)");
}

/* ---- memory ---- */

static void show_limits(void) {
    struct rlimit limit;
    char text[40];
    if (getrlimit(RLIMIT_MEMLOCK, &limit)) return;
    doctor_line("memlock", "%s; only MPI over InfiniBand needs more ('ulimit -l unlimited')",
                limit.rlim_cur == RLIM_INFINITY ? "unlimited" : doctor_bytes(text, limit.rlim_cur));
}

static void show_shared_memory(void) {
    struct hl_shared_room room;
    char left[40], total[40];
    if (hl_shared_room(HL_POOL_PARENT, &room, NULL) != HL_OK)
        doctor_line(HL_POOL_PARENT, "is not there");
    else if (!room.known || !room.total_bytes) doctor_line(HL_POOL_PARENT, "no limit is known");
    else
        doctor_line(HL_POOL_PARENT, "%s, %s free", doctor_bytes(total, room.total_bytes),
                    doctor_bytes(left, room.free_bytes));
}

static void print_pool(const struct pool_exchange *e, const struct pool_rates *r) {
    char in[40], out[40], trip[40], way[40];
    doctor_line("pool", "%s GB/s copied in, %s GB/s out by one thread",
                fixed(in, r->write * 1e-9, 1), fixed(out, r->read * 1e-9, 1));
    doctor_line("", "%s us there and back between two, %s GB/s each way",
                fixed(trip, e->round_trip_ns * 1e-3, 1), fixed(way, e->rate * 1e-9, 1));
}

/* A pool like that of 'halley launch -n n_ranks'. */
static void try_pool(struct doctor_report *report, int n_ranks) {
    static const int64_t PATIENCE_NS = 10000000000;
    struct pool_exchange exchange = {0};
    struct pool_rates rates = {0};
    struct hl_wire_place shape;
    struct hl_diag diag = {0};
    ranks_shape(n_ranks, &shape);
    const struct hl_pool_wire_spec spec = {.n_ranks = n_ranks,
                                           .n_lanes = shape.n_lanes,
                                           .part_bytes = shape.part_bytes,
                                           .one_kernel = true,
                                           .dead_after_ns = PATIENCE_NS};
    enum hl_status status = pool_try(report->mem, &spec, PATIENCE_NS, &exchange, &rates, &diag);
    if (status != HL_OK) {
        doctor_line("pool", "none for %d ranks", n_ranks);
        doctor_complain(report, false, "no pool for %d ranks: %s", n_ranks, diag.text);
        return;
    }
    print_pool(&exchange, &rates);
    if (exchange.n_wrong || rates.n_wrong)
        doctor_complain(report, true,
                        "memory in " HL_POOL_PARENT " does not keep what is written to it: this "
                        "machine is broken");
}

/* ---- wires ---- */

static void show_wires(void) {
    const char *title = "wires";
    for (const struct hl_wire_plugin *const *w = hl_wires(); *w; w++, title = "") {
        struct hl_diag diag = {0};
        bool there = (*w)->available(&diag) == HL_OK;
        doctor_line(title, "%-8s %s%s", (*w)->name,
                    there ? "yes: " : "no: ", there ? (*w)->summary : diag.text);
    }
}

/* ---- network ---- */

static void show_links(void) {
    enum { MOST = 16 };
    struct hl_net_link links[MOST];
    char speed[48];
    int n = hl_net_links(links, MOST);
    for (int i = 0; i < n && i < MOST; i++) {
        *speed = 0;
        if (links[i].mbit)
            (void)snprintf(speed, sizeof speed, ", %lld Mbit/s", (long long)links[i].mbit);
        doctor_line(i ? "" : "network", "%s %s, packets of %d bytes%s", links[i].name,
                    links[i].address.ip, links[i].mtu, speed);
    }
    if (!n) doctor_line("network", "no interface is up");
    if (n > MOST) doctor_line("", "and %d more", n - MOST);
}

/* Which interface has this address of ours? */
static const char *link_of(const struct hl_net_address *a, char out[32]) {
    enum { MOST = 64 };
    struct hl_net_link links[MOST];
    int n = hl_net_links(links, MOST);
    (void)strcpy(out, "some interface");
    for (int i = 0; i < n && i < MOST; i++)
        if (!strcmp(links[i].address.ip, a->ip)) return strcpy(out, links[i].name);
    return out;
}

static void show_default_route(void) {
    static const struct hl_net_address outside = {.ip = "203.0.113.1"}; /* nobody's (RFC 5737) */
    struct hl_net_address from;
    struct hl_diag diag;
    char name[32];
    if (hl_net_route(&outside, &from, &diag) != HL_OK)
        doctor_line("", "no route to other networks: ranks of other machines must be on these");
    else
        doctor_line("", "the route to other networks leaves %s, from %s", link_of(&from, name),
                    from.ip);
}

/* The place that a launcher's variables tell, if there are any. */
static void show_place(struct doctor_report *report) {
    struct hl_cluster_place p;
    struct hl_net_address to, from;
    struct hl_diag diag = {0};
    char name[32];
    enum hl_status status = hl_cluster_from_environment(&p, &diag);
    if (status == HL_END) return;
    if (status != HL_OK) {
        doctor_complain(report, true, "%s", diag.text);
        return;
    }
    doctor_line("place", "rank %d of %d, as %s says; wire %s", p.rank, p.n_ranks, p.source,
                *p.wire ? p.wire : "not told");
    if (strcmp(p.wire, "wan") != 0 || !*p.address) return;
    if (hl_net_resolve(p.address, &to, &diag) != HL_OK ||
        hl_net_route(&to, &from, &diag) != HL_OK) {
        doctor_complain(report, true, "the ranks' meeting place %s: %s", p.address, diag.text);
        return;
    }
    doctor_line("", "to %s (%s) from %s, %s", p.address, to.ip, from.ip, link_of(&from, name));
    if (to.loopback && p.n_local && p.n_local < p.n_ranks)
        doctor_complain(report, true,
                        "%s is this machine alone: rank 0 must be told by an address that other "
                        "machines reach, see /etc/hosts",
                        p.address);
}

static void show_own_name(void) {
    char name[200];
    struct hl_net_address a;
    struct hl_diag diag;
    (void)setenv("RES_OPTIONS", "timeout:1 attempts:1",
                 0); /* a silent name server keeps no doctor */
    if (hl_net_own_name(name, sizeof name, &a, &diag) != HL_OK) {
        doctor_line("host", "%s, which has no address here: name it by an address", name);
        return;
    }
    doctor_line("host", "%s is %s", name, a.ip);
    if (a.loopback)
        doctor_line("", "only this machine finds it there: tell other machines an address above");
}

void doctor_show_ranks(struct doctor_report *report, int n_ranks) {
    show_share(report, n_ranks);
    show_clock(report);
    show_wires();
    show_shared_memory();
    show_limits();
    try_pool(report, n_ranks);
    show_links();
    show_default_route();
    show_own_name();
    show_place(report);
}
