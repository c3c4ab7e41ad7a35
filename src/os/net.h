/* Addresses of this machine and of others, and sockets that listen: what a wire over TCP must know
 * before a library takes over. Addresses are IPv4 or IPv6. */
#ifndef HALLEY_OS_NET_H
#define HALLEY_OS_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/status.h"

struct hl_net_address {
    char ip[48]; /* as text, without brackets or zone */
    int port;
    bool ipv6, loopback;
};

/* "host:port", "10.0.0.7:29500", "[fe80::1]:29500". A name is looked up, which may take seconds.
 * errors HL_E_USER: it is none, or has no address */
enum hl_status hl_net_resolve(const char *text, struct hl_net_address *out,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* The address of ours from which packets to `to` leave; port 0. Sends nothing.
 * errors HL_E_IO: there is no route */
enum hl_status hl_net_route(const struct hl_net_address *to, struct hl_net_address *out,
                            struct hl_diag *diag) HL_MUST_CHECK;
/* The address of the network interface `name`; port 0.
 * errors HL_E_USER: there is none, with the names that there are */
enum hl_status hl_net_interface(const char *name, bool ipv6, struct hl_net_address *out,
                                struct hl_diag *diag) HL_MUST_CHECK;

/* An interface that is up, by one of its addresses. */
struct hl_net_link {
    char name[32];
    struct hl_net_address address; /* port 0 */
    int64_t mbit;                  /* per second, as its driver says; 0: it does not */
    int mtu;                       /* bytes; 0: not known */
};
/* The first `capacity` of them, IPv4 first. returns how many there are; 0 when they cannot be
 * listed */
int hl_net_links(struct hl_net_link *out, int capacity);
/* What this machine calls itself, and the address behind that name: where others would look for a
 * rank 0 that told it. A look-up may take seconds. errors HL_E_USER: it has no address */
enum hl_status hl_net_own_name(char *name_out, size_t capacity, struct hl_net_address *out,
                               struct hl_diag *diag) HL_MUST_CHECK;

/* Listen at that address and no other; port 0: any free one, filled in.
 * returns a socket, to be closed by who takes it; -1: diag says why (HL_E_IO) */
int hl_net_listen(struct hl_net_address *at, struct hl_diag *diag);
/* A port that is free and stays so while the socket that is returned is open: hl_net_listen can
 * have it, in any process, and nobody who asks for port 0. at, returns and errors as hl_net_listen.
 */
int hl_net_reserve(struct hl_net_address *at, struct hl_diag *diag);
/* From now on nobody can connect to a listening socket; connections that stand are not touched.
 * For a socket that a library owns and cannot be told to stop. */
void hl_net_shut_door(int listening);

#endif
