/* wan: ranks on machines that only a network joins. ZeroMQ over TCP; everything is encrypted and
 * authenticated by CURVE (CurveZMQ, RFC 26) with keys that come from the job's token.
 *
 * Ranks meet at rank 0, say who they are and where they listen, and get everybody's address. Then
 * each pair has one connection: the higher rank connects to a port that the lower one opened for it
 * alone. When all stand, the doors are shut. Streams are those of mail.h. A connection that is gone
 * is a peer that is gone: nothing is sent again.
 *
 * Who does not know the token does not get through a handshake: the server's public key is derived
 * from the token too and is never sent, and without it the first box cannot be made. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/sha256.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/net.h"
#include "wires/mail.h"
#include "wires/wires.h"

enum {
    KEY_TEXT = 41, /* 32 bytes in Z85, and a zero */
    LEAST_TOKEN = 16,
    TOKEN_ROUNDS = 20000,
    MOST_REJECTIONS = 10,
    FAREWELL_MS = 1000,
    SHORT_SLEEP_NS = 100000,
    EVENTS = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
             ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
             ZMQ_EVENT_DISCONNECTED,
};

/* ---- what ranks say to rank 0, and its answers; equal machines, so bytes as they lie ---- */

static const uint64_t JOIN = 0x316e696f6a6c6877, ROSTER = 0x3174736f726c6877,
                      REFUSAL = 0x31657375666c6877;
struct member {
    int64_t pid;
    char host[64], ip[48];
    uint16_t ports[HL_MAX_RANKS]; /* one for each higher rank */
};
struct join {
    uint64_t what;
    char version[32];
    int32_t rank, n_ranks, n_lanes, unused;
    uint64_t part_bytes;
    struct member self;
};
struct roster {
    uint64_t what;
    struct member members[HL_MAX_RANKS];
};
struct refusal {
    uint64_t what;
    char text[600];
};

struct keys {
    char server[KEY_TEXT], server_secret[KEY_TEXT], client[KEY_TEXT], client_secret[KEY_TEXT];
};
/* A socket, and what happens to its connections. */
struct line {
    void *socket, *monitor;
    int door; /* the listening socket; owned by ZeroMQ; -1: none */
    int fd;   /* of the connection, once the other end said hello; else -1 */
};
struct wan {
    struct hl_mail mail; /* first */
    struct hl_mem *mem;
    const struct hl_wire_place *place; /* only while it opens */
    const struct keys *keys;           /* only while it opens */
    void *context;
    int64_t timeout_ns;
    struct hl_net_address meeting_at, here;
    struct line lines[HL_MAX_RANKS], meeting;
    /* while they meet */
    struct join self;
    struct roster roster;
    bool joined[HL_MAX_RANKS], has_roster;
    unsigned char ids[HL_MAX_RANKS][8]; /* rank 0: by which a ROUTER knows them */
    size_t n_ids[HL_MAX_RANKS];
    int n_greeted, n_strangers, n_rejections;
    bool reached; /* rank 0 answered */
    struct hl_diag refused;
};

static struct wan *wan_of(struct hl_mail *m) { return (struct wan *)(void *)m; }
static bool greeted(const struct wan *w, int peer) { return w->lines[peer].fd >= 0; }

/* ---- keys ---- */

static bool key_pair(const unsigned char seed[HL_SHA256_BYTES], const char *use,
                     char public_out[KEY_TEXT], char secret_out[KEY_TEXT]) {
    unsigned char secret[HL_SHA256_BYTES];
    hl_hmac_sha256(seed, HL_SHA256_BYTES, use, strlen(use), secret);
    bool made = zmq_z85_encode(secret_out, secret, sizeof secret) &&
                zmq_curve_public(public_out, secret_out) == 0;
    explicit_bzero(secret, sizeof secret);
    return made;
}

static enum hl_status make_keys(const char *token, struct keys *out, struct hl_diag *diag) {
    unsigned char seed[HL_SHA256_BYTES];
    if (!token || strlen(token) < LEAST_TOKEN)
        return hl_fail(diag, HL_E_USER,
                       "the wire wan needs a token of at least %d characters, the same on all "
                       "ranks and known to nobody else; 'openssl rand -hex 16' makes one",
                       LEAST_TOKEN);
    hl_pbkdf2_sha256(token, "halley wan 1", TOKEN_ROUNDS, seed);
    bool made = key_pair(seed, "server", out->server, out->server_secret) &&
                key_pair(seed, "client", out->client, out->client_secret);
    explicit_bzero(seed, sizeof seed);
    if (made) return HL_OK;
    return hl_fail(diag, HL_E_UNSUPPORTED, "this libzmq was built without CURVE encryption");
}

/* ---- sockets ---- */

static void set(void *socket, int option, int value) {
    (void)zmq_setsockopt(socket, option, &value, sizeof value);
}

static void set_keys(void *socket, bool server, const struct keys *k) {
    if (server) {
        set(socket, ZMQ_CURVE_SERVER, 1);
        (void)zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, k->server_secret, KEY_TEXT);
        return;
    }
    (void)zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, k->server, KEY_TEXT);
    (void)zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, k->client, KEY_TEXT);
    (void)zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, k->client_secret, KEY_TEXT);
}

/* The heart is ZeroMQ's own, which beats while this rank computes. */
static void set_times(void *socket, int64_t timeout_ns) {
    int ms = timeout_ns < 2000000000000 ? (int)(timeout_ns / 1000000) : 2000000;
    int beat = ms / 4 < 50 ? 50 : ms / 4 > 5000 ? 5000 : ms / 4;
    set(socket, ZMQ_HEARTBEAT_IVL, beat);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, ms > 2 * beat ? ms - beat : beat);
    set(socket, ZMQ_HANDSHAKE_IVL, 10000);
    set(socket, ZMQ_RECONNECT_IVL, 100);
    set(socket, ZMQ_RECONNECT_IVL_MAX, 1000);
}

static bool watch(struct wan *w, struct line *line) {
    char name[64];
    (void)snprintf(name, sizeof name, "inproc://events-%p", line->socket);
    line->monitor = zmq_socket(w->context, ZMQ_PAIR);
    if (!line->monitor) return false;
    set(line->monitor, ZMQ_RCVHWM, 0); /* or ZeroMQ's own thread would wait for us */
    return !zmq_socket_monitor(line->socket, name, EVENTS) && !zmq_connect(line->monitor, name);
}

static enum hl_status open_line(struct wan *w, struct line *line, int type, bool server,
                                struct hl_diag *diag) {
    size_t most = sizeof(struct hl_mail_head) + w->mail.wire.part_bytes;
    if (most < sizeof(struct roster)) most = sizeof(struct roster);
    line->socket = zmq_socket(w->context, type);
    if (!line->socket || !watch(w, line))
        return hl_fail(diag, HL_E_IO,
                       "no more sockets: %s; 'ulimit -n' says how many files a "
                       "process may open",
                       zmq_strerror(zmq_errno()));
    set(line->socket, ZMQ_LINGER, 0);
    set(line->socket, ZMQ_SNDHWM, 0); /* credits keep queues short */
    set(line->socket, ZMQ_RCVHWM, 0);
    set(line->socket, ZMQ_IPV6, 1);
    if (type == ZMQ_ROUTER) set(line->socket, ZMQ_ROUTER_MANDATORY, 1);
    const int64_t most_bytes = (int64_t)most + 256;
    (void)zmq_setsockopt(line->socket, ZMQ_MAXMSGSIZE, &most_bytes, sizeof most_bytes);
    set_keys(line->socket, server, w->keys);
    set_times(line->socket, w->timeout_ns);
    return HL_OK;
}

static void close_line(struct line *line, int linger_ms) {
    if (line->socket) {
        (void)zmq_socket_monitor(line->socket, NULL, 0);
        set(line->socket, ZMQ_LINGER, linger_ms);
        (void)zmq_close(line->socket);
    }
    if (line->monitor) (void)zmq_close(line->monitor);
    *line = (struct line){.door = -1, .fd = line->fd};
}

static void endpoint(const char *ip, int port, char out[80]) {
    (void)snprintf(out, 80, strchr(ip, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d", ip, port);
}

static enum hl_status listen_at(struct line *line, struct hl_net_address *at,
                                struct hl_diag *diag) {
    char text[80];
    line->door = hl_net_listen(at, diag);
    if (line->door < 0) return HL_E_IO;
    endpoint(at->ip, at->port, text);
    (void)zmq_setsockopt(line->socket, ZMQ_USE_FD, &line->door, sizeof line->door);
    if (zmq_bind(line->socket, text) == 0) return HL_OK;
    (void)close(line->door);
    line->door = -1;
    return hl_fail(diag, HL_E_IO, "cannot listen at %s: %s", text, zmq_strerror(zmq_errno()));
}

static enum hl_status connect_to(struct line *line, const char *ip, int port,
                                 struct hl_diag *diag) {
    char text[80];
    endpoint(ip, port, text);
    if (zmq_connect(line->socket, text) == 0) return HL_OK;
    return hl_fail(diag, HL_E_IO, "cannot connect to %s: %s", text, zmq_strerror(zmq_errno()));
}

/* ---- messages between two ranks ---- */

static void send_mail(struct hl_mail *m, int peer, const struct hl_mail_head *head,
                      const void *data) {
    struct line *line = &wan_of(m)->lines[peer];
    zmq_msg_t message;
    if (!line->socket) return;
    if (zmq_msg_init_size(&message, sizeof *head + head->bytes)) {
        hl_mail_lost(m, peer);
        return;
    }
    char *to = zmq_msg_data(&message);
    memcpy(to, head, sizeof *head);
    if (head->bytes) memcpy(to + sizeof *head, data, head->bytes);
    /* Fails when the connection has ended. What came through it, perhaps why, is still to be read:
     * the event says when nothing is left. */
    if (zmq_msg_send(&message, line->socket, ZMQ_DONTWAIT) < 0) (void)zmq_msg_close(&message);
}

static void say_hello(struct wan *w, int peer) {
    const struct hl_mail_head hello = {.kind = HL_MAIL_HELLO, .number = w->mail.wire.rank};
    send_mail(&w->mail, peer, &hello, NULL);
}

/* The lower rank answers; both know then that the connection works both ways. */
static void take_hello(struct wan *w, int peer, const struct hl_mail_head *head, zmq_msg_t *from) {
    int fd = zmq_msg_get(from, ZMQ_SRCFD);
    if (greeted(w, peer) || head->number != peer || fd < 0) return;
    w->lines[peer].fd = fd;
    w->mail.peers[peer].state = HL_PEER_ALIVE;
    w->n_greeted++;
    if (peer > w->mail.wire.rank) say_hello(w, peer);
}

static void take_mail(struct wan *w, int peer, zmq_msg_t *message) {
    struct hl_mail_head head;
    const char *data = zmq_msg_data(message);
    size_t n = zmq_msg_size(message);
    if (n < sizeof head) return;
    memcpy(&head, data, sizeof head);
    if (n != sizeof head + head.bytes) return;
    if (head.kind == HL_MAIL_HELLO) take_hello(w, peer, &head, message);
    else if (greeted(w, peer)) hl_mail_take(&w->mail, peer, &head, data + sizeof head);
}

static void receive_line(struct wan *w, int peer) {
    zmq_msg_t message;
    (void)zmq_msg_init(&message);
    while (w->lines[peer].socket &&
           zmq_msg_recv(&message, w->lines[peer].socket, ZMQ_DONTWAIT) >= 0)
        take_mail(w, peer, &message);
    (void)zmq_msg_close(&message);
}

/* ---- what happens to connections ---- */

struct event {
    uint16_t what;
    uint32_t value;
};

static bool next_event(void *monitor, struct event *out) {
    unsigned char frame[6];
    if (zmq_recv(monitor, frame, sizeof frame, ZMQ_DONTWAIT) != (int)sizeof frame) return false;
    memcpy(&out->what, frame, sizeof out->what);
    memcpy(&out->value, frame + sizeof out->what, sizeof out->value);
    (void)zmq_recv(monitor, frame, 0, 0); /* the address */
    return true;
}

static void watch_line(struct wan *w, int peer) {
    struct line *line = &w->lines[peer];
    struct event e;
    while (line->monitor && next_event(line->monitor, &e)) {
        if (e.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && peer < w->mail.wire.rank) say_hello(w, peer);
        if (e.what != ZMQ_EVENT_DISCONNECTED || (int)e.value != line->fd) continue;
        receive_line(w, peer); /* what came before the end */
        hl_mail_lost(&w->mail, peer);
        close_line(line, 0);
    }
}

/* ---- the meeting, as rank 0 sees it ---- */

static bool send_to_id(struct wan *w, const void *id, size_t n_id, const void *data, size_t n) {
    return zmq_send(w->meeting.socket, id, n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(w->meeting.socket, data, n, ZMQ_DONTWAIT) >= 0;
}

static void refuse(struct wan *w, const void *id, size_t n_id, const char *text) {
    struct refusal r = {.what = REFUSAL};
    (void)snprintf(r.text, sizeof r.text, "%s", text);
    (void)send_to_id(w, id, n_id, &r, sizeof r);
}

/* Nobody can go on. */
static void refuse_all(struct wan *w, const char *text) {
    for (int p = 1; p < w->mail.wire.n_ranks; p++)
        if (w->joined[p]) refuse(w, w->ids[p], w->n_ids[p], text);
}

/* What of a newcomer does not fit, or nothing. */
static bool fits(const struct wan *w, const struct join *j, struct hl_diag *why) {
    const struct join *own = &w->self;
    if (strcmp(j->version, own->version) != 0)
        (void)hl_fail(why, HL_E_USER, "rank %d on %s runs halley %s, rank 0 runs %s", j->rank,
                      j->self.host, j->version, own->version);
    else if (j->n_ranks != own->n_ranks || j->rank <= 0 || j->rank >= own->n_ranks)
        (void)hl_fail(why, HL_E_USER, "a rank %d of %d on %s came to a job of %d ranks", j->rank,
                      j->n_ranks, j->self.host, own->n_ranks);
    else if (j->n_lanes != own->n_lanes || j->part_bytes != own->part_bytes)
        (void)hl_fail(why, HL_E_USER,
                      "rank %d on %s has %d lanes and parts of %llu bytes, rank 0 has %d and %llu: "
                      "the ranks do not run the same configuration",
                      j->rank, j->self.host, j->n_lanes, (unsigned long long)j->part_bytes,
                      own->n_lanes, (unsigned long long)own->part_bytes);
    else return true;
    return false;
}

/* A ROUTER refuses to send to who is gone. */
static bool is_there(struct wan *w, int rank) {
    static const uint64_t nothing = 0;
    return w->joined[rank] && send_to_id(w, w->ids[rank], w->n_ids[rank], &nothing, sizeof nothing);
}

/* By another process that still lives. */
static bool is_taken(struct wan *w, const struct join *j) {
    const struct member *there = &w->roster.members[j->rank];
    bool same = there->pid == j->self.pid && !strcmp(there->host, j->self.host);
    return !same && is_there(w, j->rank);
}

/* Those who came and died may come again: all must be there at once. */
static bool all_are_there(struct wan *w) {
    bool all = true;
    for (int p = 1; p < w->mail.wire.n_ranks; p++) all &= w->joined[p] = is_there(w, p);
    return all;
}

static void enter(struct wan *w, const struct join *j, const void *id, size_t n_id) {
    memcpy(w->ids[j->rank], id, n_id);
    w->n_ids[j->rank] = n_id;
    w->roster.members[j->rank] = j->self;
    w->joined[j->rank] = true;
    bool complete = w->has_roster || all_are_there(w);
    for (int p = 1; p < w->mail.wire.n_ranks && complete; p++)
        if (!w->has_roster || p == j->rank)
            (void)send_to_id(w, w->ids[p], w->n_ids[p], &w->roster, sizeof w->roster);
    w->has_roster |= complete;
}

static void take_join(struct wan *w, const void *id, size_t n_id, struct join *j) {
    struct hl_diag why;
    j->version[sizeof j->version - 1] = 0;
    j->self.host[sizeof j->self.host - 1] = j->self.ip[sizeof j->self.ip - 1] = 0;
    if (!fits(w, j, &why)) {
        refuse(w, id, n_id, why.text);
        refuse_all(w, why.text);
        w->refused = why;
    } else if (is_taken(w, j)) {
        const struct member *there = &w->roster.members[j->rank];
        (void)hl_fail(&why, HL_E_USER,
                      "rank %d is taken by process %lld on %s; this one is process %lld on %s: two "
                      "were started with the same rank",
                      j->rank, (long long)there->pid, there->host, (long long)j->self.pid,
                      j->self.host);
        refuse(w, id, n_id, why.text);
    } else enter(w, j, id, n_id);
}

static void receive_joins(struct wan *w) {
    unsigned char id[8];
    struct join j;
    for (;;) {
        int n_id = zmq_recv(w->meeting.socket, id, sizeof id, ZMQ_DONTWAIT);
        if (n_id < 0 || n_id > (int)sizeof id) return;
        int n = zmq_recv(w->meeting.socket, &j, sizeof j, ZMQ_DONTWAIT);
        if (n >= (int)sizeof j.what && j.what == JOIN) {
            if (n == (int)sizeof j) take_join(w, id, (size_t)n_id, &j);
            else refuse(w, id, (size_t)n_id, "rank 0 runs another version of halley");
        }
    }
}

/* ---- the meeting, as the others see it ---- */

static void take_roster(struct wan *w, const struct roster *r) {
    int rank = w->mail.wire.rank;
    if (w->has_roster) return;
    w->has_roster = true;
    w->roster = *r;
    for (int p = 0; p < rank && w->refused.status == HL_OK; p++) {
        struct member *m = &w->roster.members[p];
        m->ip[sizeof m->ip - 1] = 0;
        (void)connect_to(&w->lines[p], m->ip, m->ports[rank], &w->refused);
    }
}

static void receive_answer(struct wan *w) {
    union {
        uint64_t what;
        struct roster roster;
        struct refusal refusal;
    } a;
    int n = zmq_recv(w->meeting.socket, &a, sizeof a, ZMQ_DONTWAIT);
    if (n == (int)sizeof a.roster && a.what == ROSTER) take_roster(w, &a.roster);
    if (n == (int)sizeof a.refusal && a.what == REFUSAL) {
        a.refusal.text[sizeof a.refusal.text - 1] = 0;
        (void)hl_fail(&w->refused, HL_E_USER, "%s", a.refusal.text);
    }
}

static enum hl_status not_accepted(const struct wan *w, struct hl_diag *diag) {
    return hl_fail(diag, HL_E_USER,
                   "%s port %d does not accept this rank: its token is another one, or no rank 0 "
                   "listens there",
                   w->meeting_at.ip, w->meeting_at.port);
}

static void watch_meeting(struct wan *w) {
    struct event e;
    bool first = w->mail.wire.rank == 0;
    while (next_event(w->meeting.monitor, &e)) {
        if (e.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            w->reached = true;
            if (!first) (void)zmq_send(w->meeting.socket, &w->self, sizeof w->self, ZMQ_DONTWAIT);
        } else if (e.what != ZMQ_EVENT_DISCONNECTED) {
            w->n_strangers++;
            if (!first && ++w->n_rejections == MOST_REJECTIONS && !w->reached)
                (void)not_accepted(w, &w->refused);
        }
    }
}

/* ---- one turn: what has come, of anything ---- */

static void add_items(const struct line *line, zmq_pollitem_t *items, int *n) {
    if (!line->socket) return;
    items[(*n)++] = (zmq_pollitem_t){.socket = line->socket, .events = ZMQ_POLLIN};
    items[(*n)++] = (zmq_pollitem_t){.socket = line->monitor, .events = ZMQ_POLLIN};
}

static void turn(struct wan *w, int64_t timeout_ns) {
    zmq_pollitem_t items[2 * HL_MAX_RANKS + 2];
    int n = 0, n_ranks = w->mail.wire.n_ranks;
    for (int p = 0; p < n_ranks; p++) add_items(&w->lines[p], items, &n);
    add_items(&w->meeting, items, &n);
    if (zmq_poll(items, n, timeout_ns > 0 ? (long)(timeout_ns / 1000000) : 0) <= 0) {
        if (timeout_ns <= 0 || timeout_ns >= 1000000) return;
        hl_sleep_ns(timeout_ns < SHORT_SLEEP_NS ? timeout_ns : SHORT_SLEEP_NS);
        if (zmq_poll(items, n, 0) <= 0) return; /* it counts in milliseconds */
    }
    for (int p = 0; p < n_ranks; p++) {
        receive_line(w, p);
        watch_line(w, p);
    }
    if (!w->meeting.socket) return;
    watch_meeting(w);
    if (w->mail.wire.rank == 0) receive_joins(w);
    else receive_answer(w);
}

static void receive(struct hl_mail *m, int64_t timeout_ns) { turn(wan_of(m), timeout_ns); }
static const struct hl_mail_transport transport = {.send = send_mail, .receive = receive};

/* ---- opening ---- */

/* The user says that all ranks are here; not: a name that happens to mean loopback on this machine,
 * as a host's own name often does. */
static bool says_loopback(const char *address) {
    return !strncmp(address, "127.", 4) || !strncmp(address, "localhost:", 10) ||
           !strncmp(address, "[::1]", 5);
}

/* Where this rank listens, and where all meet. */
static enum hl_status choose_address(struct wan *w, struct hl_diag *diag) {
    const struct hl_wire_place *place = w->place;
    bool named = place->interface && *place->interface && !says_loopback(place->address);
    enum hl_status status = hl_net_resolve(place->address, &w->meeting_at, diag);
    if (status != HL_OK) return status;
    int port = w->meeting_at.port;
    if (named) status = hl_net_interface(place->interface, w->meeting_at.ipv6, &w->here, diag);
    else if (place->rank > 0) status = hl_net_route(&w->meeting_at, &w->here, diag);
    else w->here = w->meeting_at;
    if (named && place->rank == 0 && w->meeting_at.loopback) w->meeting_at = w->here;
    w->meeting_at.port = port;
    w->here.port = 0;
    return status;
}

/* One's own lines: those to lower ranks wait for the roster. */
static enum hl_status open_lines(struct wan *w, struct hl_diag *diag) {
    int rank = w->mail.wire.rank;
    enum hl_status status = HL_OK;
    for (int p = 0; p < w->mail.wire.n_ranks && status == HL_OK; p++) {
        struct hl_net_address at = w->here;
        if (p != rank) status = open_line(w, &w->lines[p], ZMQ_DEALER, p > rank, diag);
        if (p <= rank || status != HL_OK) continue;
        status = listen_at(&w->lines[p], &at, diag);
        w->self.self.ports[p] = (uint16_t)at.port;
    }
    return status;
}

static enum hl_status open_meeting(struct wan *w, struct hl_diag *diag) {
    bool first = w->mail.wire.rank == 0;
    enum hl_status status = open_line(w, &w->meeting, first ? ZMQ_ROUTER : ZMQ_DEALER, first, diag);
    if (status != HL_OK) return status;
    if (!first) return connect_to(&w->meeting, w->meeting_at.ip, w->meeting_at.port, diag);
    w->roster.what = ROSTER;
    w->roster.members[0] = w->self.self;
    return listen_at(&w->meeting, &w->meeting_at, diag);
}

static void introduce(struct wan *w) {
    struct hl_wire *wire = &w->mail.wire;
    struct join *self = &w->self;
    *self = (struct join){.what = JOIN,
                          .rank = wire->rank,
                          .n_ranks = wire->n_ranks,
                          .n_lanes = wire->n_lanes,
                          .part_bytes = wire->part_bytes,
                          .self.pid = getpid()};
    (void)snprintf(self->version, sizeof self->version, "%s", HALLEY_VERSION);
    (void)snprintf(self->self.ip, sizeof self->self.ip, "%s", w->here.ip);
    if (gethostname(self->self.host, sizeof self->self.host - 1))
        (void)snprintf(self->self.host, sizeof self->self.host, "?");
    w->roster.members[wire->rank] = self->self;
}

/* "1, 4, 5": who has not come. */
static void list_missing(const struct wan *w, char *out, size_t capacity) {
    size_t used = 0;
    bool joins = w->mail.wire.rank == 0 && !w->has_roster;
    for (int p = 0; p < w->mail.wire.n_ranks && used + 8 < capacity; p++)
        if (p != w->mail.wire.rank && !(joins ? w->joined[p] : greeted(w, p)))
            used += (size_t)snprintf(out + used, capacity - used, "%s%d", used ? ", " : "", p);
}

/* The deadline has passed. */
static enum hl_status missing(struct wan *w, struct hl_diag *diag) {
    char who[100] = "", more[200] = "";
    const struct hl_net_address *at = &w->meeting_at;
    struct hl_diag why;
    long long s = (long long)(w->timeout_ns / 1000000000);
    bool first = w->mail.wire.rank == 0;
    list_missing(w, who, sizeof who);
    if (first && w->n_strangers)
        (void)snprintf(more, sizeof more,
                       "; %d connections were refused, of a rank with another token or of a "
                       "stranger",
                       w->n_strangers);
    else if (at->loopback && !says_loopback(w->place->address))
        (void)snprintf(more, sizeof more,
                       "; %.100s is %s here, which other machines cannot reach: give an address",
                       w->place->address, at->ip);
    if (!first && !w->reached && w->n_rejections > 0) return not_accepted(w, diag);
    if (!first && !w->reached)
        (void)hl_fail(&why, HL_E_TIMEOUT, "rank 0 did not answer at %s port %d within %lld s%s",
                      at->ip, at->port, s, more);
    else
        (void)hl_fail(
            &why, HL_E_TIMEOUT,
            "rank %s of %d did not come to %s port %d within %lld s; start it, or give it "
            "more time with --timeout%s",
            who, w->mail.wire.n_ranks, at->ip, at->port, s, more);
    if (first) refuse_all(w, why.text);
    return hl_fail(diag, HL_E_TIMEOUT, "%s", why.text);
}

static enum hl_status meet(struct wan *w, struct hl_diag *diag) {
    int64_t deadline = hl_clock_ns() + w->timeout_ns;
    if (w->mail.wire.rank > 0) deadline += 1000000000; /* rank 0 knows more: it speaks first */
    while (w->refused.status == HL_OK &&
           (w->n_greeted < w->mail.wire.n_ranks - 1 || !w->has_roster)) {
        int64_t left = deadline - hl_clock_ns();
        if (left <= 0) return missing(w, diag);
        turn(w, left < 200000000 ? left : 200000000);
    }
    if (diag && w->refused.status != HL_OK) *diag = w->refused;
    return w->refused.status;
}

/* All have come, or nobody shall any more. */
static void end_meeting(struct wan *w) {
    for (int p = 0; p < w->mail.wire.n_ranks; p++) {
        struct hl_peer *peer = &w->mail.peers[p];
        if (w->lines[p].door >= 0) hl_net_shut_door(w->lines[p].door);
        peer->pid = w->roster.members[p].pid;
        memcpy(peer->host, w->roster.members[p].host, sizeof peer->host);
        peer->host[sizeof peer->host - 1] = 0;
    }
    if (w->meeting.door >= 0) hl_net_shut_door(w->meeting.door); /* it closes later */
    if (w->meeting.socket) close_line(&w->meeting, FAREWELL_MS);
    w->place = NULL;
    w->keys = NULL;
}

static void free_wan(struct wan *w, int linger_ms) {
    for (int p = 0; p < w->mail.wire.n_ranks; p++)
        close_line(&w->lines[p], hl_mail_has(&w->mail, p) ? linger_ms : 0);
    while (w->context && zmq_ctx_term(w->context) && zmq_errno() == EINTR) continue;
    hl_mail_fini(&w->mail);
    hl_free(w->mem, w);
}

/* Stay a moment, until the others have heard it or leave too: bytes under way are lost when a
 * connection ends while more comes in. */
static void close_wan(struct hl_wire *wire) {
    struct wan *w = (struct wan *)(void *)wire;
    int64_t now = hl_clock_ns(), until = now + FAREWELL_MS * 1000000LL;
    bool in_order = !w->mail.failed && wire->failed_rank < 0;
    if (!w->mail.failed) hl_mail_send_all(&w->mail, HL_MAIL_LEFT, 0, "");
    for (int p = 0; p < wire->n_ranks && in_order; p++)
        while (hl_mail_has(&w->mail, p) && (now = hl_clock_ns()) < until) turn(w, until - now);
    free_wan(w, FAREWELL_MS);
}

static const struct hl_wire_ops ops = {.reserve = hl_mail_reserve,
                                       .commit = hl_mail_commit,
                                       .view = hl_mail_view,
                                       .release = hl_mail_release,
                                       .wait = hl_mail_wait,
                                       .tell = hl_mail_tell,
                                       .peer = hl_mail_peer,
                                       .give_up = hl_mail_give_up,
                                       .close = close_wan};

/* Parts under way in a stream: about as many from a rank whatever the number of its peers. Enough
 * to fill a long way; more would let a connection that TCP favours run ahead of the others, and
 * sums wait for the slowest. */
static int slots_for(int n_ranks) {
    int n_peers = n_ranks > 1 ? n_ranks - 1 : 1;
    return 24 / n_peers < 4 ? 4 : 24 / n_peers;
}

static enum hl_status join_others(struct wan *w, struct hl_diag *diag) {
    enum hl_status status = choose_address(w, diag);
    if (status != HL_OK) return status;
    w->context = zmq_ctx_new();
    if (!w->context) return hl_fail_memory(diag, 0, "ZeroMQ");
    introduce(w);
    if (w->mail.wire.n_ranks == 1) return HL_OK;
    status = open_lines(w, diag);
    if (status == HL_OK) status = open_meeting(w, diag);
    return status == HL_OK ? meet(w, diag) : status;
}

static enum hl_status open_with(struct hl_mem *mem, const struct hl_wire_place *place,
                                const struct keys *keys, struct hl_wire **out,
                                struct hl_diag *diag) {
    struct wan *w = hl_alloc(mem, 1, sizeof *w);
    if (!w) return hl_fail_memory(diag, sizeof *w, "the wan wire");
    w->mem = mem;
    w->keys = keys;
    w->place = place;
    w->timeout_ns = place->timeout_ns;
    w->mail.wire = (struct hl_wire){.ops = &ops,
                                    .name = "wan",
                                    .rank = place->rank,
                                    .n_ranks = place->n_ranks,
                                    .n_lanes = place->n_lanes,
                                    .part_bytes = place->part_bytes,
                                    .failed_rank = -1,
                                    .slow = true};
    for (int p = 0; p < HL_MAX_RANKS; p++) w->lines[p] = (struct line){.door = -1, .fd = -1};
    w->meeting = (struct line){.door = -1, .fd = -1};
    enum hl_status status =
        hl_mail_init(&w->mail, mem, slots_for(place->n_ranks), &transport, diag);
    if (status == HL_OK) status = join_others(w, diag);
    end_meeting(w);
    if (status != HL_OK) {
        free_wan(w, 0);
        return status;
    }
    w->mail.peers[place->rank].state = HL_PEER_ALIVE;
    *out = &w->mail.wire;
    return HL_OK;
}

static enum hl_status open_wan(struct hl_mem *mem, const struct hl_wire_place *place,
                               struct hl_wire **out, struct hl_diag *diag) {
    struct keys keys;
    if (!place->address || !*place->address)
        return hl_fail(diag, HL_E_USER,
                       "the wire wan needs the host:port of rank 0, as in MASTER_ADDR and "
                       "MASTER_PORT");
    enum hl_status status = make_keys(place->token, &keys, diag);
    if (status == HL_OK) status = open_with(mem, place, &keys, out, diag);
    explicit_bzero(&keys, sizeof keys);
    return status;
}

static enum hl_status available(struct hl_diag *diag) {
    if (zmq_has("curve")) return HL_OK;
    return hl_fail(diag, HL_E_UNSUPPORTED, "this libzmq was built without CURVE encryption");
}

const struct hl_wire_plugin hl_wire_wan = {.name = "wan",
                                           .summary = "encrypted TCP between any machines",
                                           .processes = true,
                                           .available = available,
                                           .open = open_wan};
