/* See emulated.h. iproute2 does the work: a script makes all of it, and the first command that
 * fails ends it with its own words. */
#include "emulated.h"

#include <stdio.h>
#include <string.h>

#include "os/children.h"
#include "os/clock.h"
#include "os/isolate.h"

/* $1 hosts, $2 bits per second or 0, $3 bytes of burst */
static const char script[] =
    "set -e\n"
    "ip link set lo up\n"
    "ip link add br0 type bridge\n"
    "ip link set br0 up\n"
    "shape() {\n"
    "    [ $rate = 0 ] || tc \"$@\" root tbf rate ${rate}bit burst $burst latency 50ms\n"
    "}\n"
    "n=$1 rate=$2 burst=$3 i=0\n"
    "while [ $i -lt $n ]; do\n"
    "    ip netns add h$i\n"
    "    ip link add to-h$i type veth peer name eth0 netns h$i\n"
    "    ip link set to-h$i master br0 up\n"
    "    ip -n h$i addr add 10.77.0.$((i + 1))/24 dev eth0\n"
    "    ip -n h$i link set lo up\n"
    "    ip -n h$i link set eth0 up\n"
    "    shape qdisc add dev to-h$i\n"
    "    shape -n h$i qdisc add dev eth0\n"
    "    i=$((i + 1))\n"
    "done\n";

static const int64_t PATIENCE_NS = 60000000000;

void emulated_name(char out[16], int host) { (void)snprintf(out, 16, "h%d", host); }

/* What a link may send at once: some milliseconds' worth, or the rate is not reached between two
 * ticks of the kernel; and more than one packet, segments joined. */
static int64_t burst_of(double bits_per_s) {
    double bytes = bits_per_s / 8 * 4e-3;
    return bytes > 65536 ? (int64_t)bytes : 65536;
}

/* What it prints is kept, the last line of it counts. */
static enum hl_status await(struct hl_children *children, char *said, size_t capacity,
                            int *status_out, int *signal_out) {
    int64_t end = hl_clock_ns() + PATIENCE_NS;
    for (size_t n = 0; hl_clock_ns() < end;) {
        struct hl_child_event e;
        hl_children_next(children, 250000000, &e);
        if (e.kind == HL_CHILDREN_SIGNAL) {
            *signal_out = e.status;
            return HL_OK;
        }
        if (e.kind == HL_CHILD_ENDED) {
            *status_out = e.status;
            return HL_OK;
        }
        if (e.kind != HL_CHILD_OUTPUT) continue;
        size_t room = capacity - 1 - n, more = e.n < room ? e.n : room;
        memcpy(said + n, e.bytes, more);
        n += more;
        said[n] = 0;
    }
    return HL_E_TIMEOUT;
}

static char *last_line(char *text) {
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n') text[--n] = 0;
    char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static enum hl_status run_script(struct hl_mem *mem, int n, double bits_per_s, int *signal_out,
                                 struct hl_diag *diag) {
    static char shell[] = "sh", flag[] = "-c";
    char text[sizeof script], hosts[16], rate[32], burst[32], said[2048] = "";
    char *args[] = {shell, flag, text, shell, hosts, rate, burst, NULL};
    struct hl_children *children;
    int child, ended = 0;
    memcpy(text, script, sizeof script);
    (void)snprintf(hosts, sizeof hosts, "%d", n);
    (void)snprintf(rate, sizeof rate, "%.0f", bits_per_s);
    (void)snprintf(burst, sizeof burst, "%lld", (long long)burst_of(bits_per_s));
    const struct hl_child_setup setup = {.program = "/bin/sh", .args = args, .keep_fd = -1};
    enum hl_status status = hl_children_new(mem, 1, &children, diag);
    if (status != HL_OK) return status;
    status = hl_children_start(children, &setup, &child, diag);
    if (status == HL_OK && await(children, said, sizeof said, &ended, signal_out) != HL_OK)
        status = hl_fail(diag, HL_E_TIMEOUT, "making %d hosts took too long", n);
    hl_children_free(children);
    if (status != HL_OK || !ended) return status;
    char *why = last_line(said);
    if (strstr(why, "not found"))
        return hl_fail(diag, HL_E_USER, "%s; apt install iproute2 gives ip and tc", why);
    return hl_fail(diag, HL_E_UNSUPPORTED, "hosts of namespaces cannot be made here: %s", why);
}

enum hl_status emulated_hosts(struct hl_mem *mem, int n, double bits_per_s, int *signal_out,
                              struct hl_diag *diag) {
    *signal_out = 0;
    enum hl_status status = hl_isolate_network(diag);
    return status == HL_OK ? run_script(mem, n, bits_per_s, signal_out, diag) : status;
}
