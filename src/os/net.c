/* See net.h. */
#include "os/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/cgroup.h"

enum { BACKLOG = 1024 };

union any {
    struct sockaddr plain;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool read_address(const struct sockaddr *from, struct hl_net_address *out) {
    const union any *a = (const union any *)(const void *)from;
    *out = (struct hl_net_address){.ipv6 = from->sa_family == AF_INET6};
    if (from->sa_family == AF_INET) {
        out->port = ntohs(a->v4.sin_port);
        out->loopback = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
        return inet_ntop(AF_INET, &a->v4.sin_addr, out->ip, sizeof out->ip) != NULL;
    }
    if (from->sa_family != AF_INET6) return false;
    out->port = ntohs(a->v6.sin6_port);
    out->loopback = IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return inet_ntop(AF_INET6, &a->v6.sin6_addr, out->ip, sizeof out->ip) != NULL;
}

static socklen_t write_address(const struct hl_net_address *from, union any *out) {
    memset(out, 0, sizeof *out);
    if (from->ipv6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)from->port);
        (void)inet_pton(AF_INET6, from->ip, &out->v6.sin6_addr);
        return sizeof out->v6;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)from->port);
    (void)inet_pton(AF_INET, from->ip, &out->v4.sin_addr);
    return sizeof out->v4;
}

/* ---- names ---- */

/* Cuts a copy of "host:port" or "[host]:port". */
static bool split(char *text, char **host, char **port) {
    char *colon = strrchr(text, ':');
    if (!colon || !colon[1]) return false;
    *colon = 0;
    *port = colon + 1;
    *host = text;
    if (*text != '[') return *text && !strchr(text, ':');
    if (colon == text || colon[-1] != ']') return false;
    colon[-1] = 0;
    *host = text + 1;
    return **host != 0;
}

static bool is_port(const char *text) {
    char *end;
    long port = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && port > 0 && port < 65536;
}

enum hl_status hl_net_resolve(const char *text, struct hl_net_address *out, struct hl_diag *diag) {
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char copy[300], *host, *port;
    if (strlen(text) >= sizeof copy || !split(strcpy(copy, text), &host, &port) || !is_port(port))
        return hl_fail(diag, HL_E_USER,
                       "'%.200s' is no address; write host:port, as in 10.0.0.7:29500", text);
    int error = getaddrinfo(host, port, &want, &found);
    if (error)
        return hl_fail(diag, HL_E_USER, "the host '%s' has no address: %s", host,
                       gai_strerror(error));
    bool read = read_address(found->ai_addr, out);
    freeaddrinfo(found);
    return read ? HL_OK : hl_fail(diag, HL_E_USER, "the host '%s' has no IP address", host);
}

/* ---- this machine ---- */

enum hl_status hl_net_route(const struct hl_net_address *to, struct hl_net_address *out,
                            struct hl_diag *diag) {
    union any there, here;
    struct hl_net_address target = *to;
    if (!target.port) target.port = 9; /* discard; a datagram socket that never sends */
    socklen_t n = write_address(&target, &there), n_here = sizeof here;
    int s = socket(to->ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = s >= 0 && !connect(s, &there.plain, n) && !getsockname(s, &here.plain, &n_here) &&
                 read_address(&here.plain, out);
    enum hl_status status =
        found ? HL_OK
              : hl_fail(diag, HL_E_IO, "there is no route from this machine to %s: %m", to->ip);
    if (s >= 0) (void)close(s);
    out->port = 0;
    return status;
}

/* "lo, eth0, eth1": those that have an address. */
static void list_interfaces(const struct ifaddrs *all, char *out, size_t capacity) {
    size_t used = 0;
    *out = 0;
    for (const struct ifaddrs *i = all; i && used < capacity; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", used ? ", " : "",
                                     i->ifa_name);
}

enum hl_status hl_net_interface(const char *name, bool ipv6, struct hl_net_address *out,
                                struct hl_diag *diag) {
    struct ifaddrs *all = NULL;
    char names[200];
    bool found = false;
    if (getifaddrs(&all))
        return hl_fail(diag, HL_E_IO, "the network interfaces cannot be listed: %m");
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        found = i->ifa_addr && !strcmp(i->ifa_name, name) &&
                i->ifa_addr->sa_family == (ipv6 ? AF_INET6 : AF_INET) &&
                read_address(i->ifa_addr, out);
    list_interfaces(all, names, sizeof names);
    freeifaddrs(all);
    if (found) return out->port = 0, HL_OK;
    return hl_fail(diag, HL_E_USER, "no network interface '%s' with an %s address; there are: %s",
                   name, ipv6 ? "IPv6" : "IPv4", names);
}

/* A small number from /sys, which says -1 when it is not known. */
static int64_t link_number(const char *name, const char *what) {
    char path[96], text[32];
    (void)snprintf(path, sizeof path, "/sys/class/net/%.32s/%s", name, what);
    int64_t number = hl_read_small(path, text, sizeof text) ? strtol(text, NULL, 10) : 0;
    return number > 0 ? number : 0;
}

static void add_links(const struct ifaddrs *all, int family, struct hl_net_link *out, int capacity,
                      int *n) {
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct hl_net_link link = {.mbit = 0};
        if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
            !read_address(i->ifa_addr, &link.address))
            continue;
        (void)snprintf(link.name, sizeof link.name, "%s", i->ifa_name);
        link.mbit = link_number(link.name, "speed");
        link.mtu = (int)link_number(link.name, "mtu");
        if (*n < capacity) out[*n] = link;
        ++*n;
    }
}

int hl_net_links(struct hl_net_link *out, int capacity) {
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all)) return 0;
    add_links(all, AF_INET, out, capacity, &n);
    add_links(all, AF_INET6, out, capacity, &n);
    freeifaddrs(all);
    return n;
}

enum hl_status hl_net_own_name(char *name_out, size_t capacity, struct hl_net_address *out,
                               struct hl_diag *diag) {
    char address[300];
    if (gethostname(name_out, capacity)) return hl_fail(diag, HL_E_USER, "no host name: %m");
    name_out[capacity - 1] = 0;
    (void)snprintf(address, sizeof address, "%.250s:9", name_out);
    enum hl_status status = hl_net_resolve(address, out, diag);
    out->port = 0;
    return status;
}

/* ---- listening ---- */

static int bind_socket(struct hl_net_address *at, bool listens, struct hl_diag *diag) {
    static const int on = 1;
    union any here;
    socklen_t n = write_address(at, &here);
    int s = socket(at->ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && !setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !bind(s, &here.plain, n) && (!listens || !listen(s, BACKLOG)) &&
        !getsockname(s, &here.plain, &n) && read_address(&here.plain, at))
        return s;
    const char *fix = errno == EADDRINUSE      ? "; is another job, or another rank 0, there?"
                      : errno == EADDRNOTAVAIL ? "; it is no address of this machine"
                                               : "";
    (void)hl_fail(diag, HL_E_IO, "cannot listen at %s port %d: %m%s", at->ip, at->port, fix);
    if (s >= 0) (void)close(s);
    return -1;
}

int hl_net_listen(struct hl_net_address *at, struct hl_diag *diag) {
    return bind_socket(at, true, diag);
}

/* With SO_REUSEADDR on both, a second socket may have the port as long as the first does not
 * listen, and the kernel gives it to nobody who asks for any. */
int hl_net_reserve(struct hl_net_address *at, struct hl_diag *diag) {
    return bind_socket(at, false, diag);
}

/* The kernel drops whatever comes for the listening socket; sockets that it has accepted are
 * others. */
void hl_net_shut_door(int listening) {
    struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {.len = 1, .filter = &none};
    (void)setsockopt(listening, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
