/* Streams of parts over messages: for wires that hand whole messages to a peer, in order, and learn
 * when it is gone. The transport (src/wires/wan.c) embeds struct hl_mail and gives two functions.
 *
 * Each stream has so many credits, one for each part that the reader has room for: a sender spends
 * one with a part and gets it back with the reader's acknowledgement. So memory is bounded on both
 * ends, and nothing blocks. */
#ifndef HALLEY_WIRES_MAIL_H
#define HALLEY_WIRES_MAIL_H

#include "halley/wire.h"

enum hl_mail_kind {
    HL_MAIL_HELLO = 1, /* the transport's own: number is what it likes */
    HL_MAIL_PART,      /* number: of the part in its stream, from 1 */
    HL_MAIL_ACK,       /* number: of the last part that was released */
    HL_MAIL_STATE,     /* number: the step; text: the rank that is waited for, or none */
    HL_MAIL_LEFT,
    HL_MAIL_FAILED, /* the payload says why */
};
/* In front of every message. */
struct hl_mail_head {
    uint8_t kind, lane, to_everyone, phase;
    uint32_t bytes; /* that follow */
    int64_t number;
};

struct hl_mail;
struct hl_mail_transport {
    /* Hand over; never blocks. What cannot be sent is dropped: the loss of the peer is found apart.
     */
    void (*send)(struct hl_mail *m, int peer, const struct hl_mail_head *head, const void *data);
    /* Give what has come to hl_mail_take, whom we lost to hl_mail_lost; sleep for the first of it
     * at most timeout_ns. */
    void (*receive)(struct hl_mail *m, int64_t timeout_ns);
};

/* A stream's end at its sender. */
struct hl_mail_out {
    int64_t sent;
    char *room; /* [part_bytes] */
};
/* At its reader: a ring of n_slots parts. */
struct hl_mail_in {
    int64_t arrived, released;
    char *slots; /* [n_slots * part_bytes], once a part came */
    uint32_t *bytes;
};
struct hl_mail {
    struct hl_wire wire; /* first */
    const struct hl_mail_transport *transport;
    struct hl_mem *mem;
    int n_slots;
    struct hl_mail_out *out;            /* [lane][to; to oneself is to everyone] */
    int64_t *acked;                     /* [lane][reader][to everyone] */
    struct hl_mail_in *in;              /* [lane][from][to everyone] */
    struct hl_peer peers[HL_MAX_RANKS]; /* one's own too */
    bool news, failed;                  /* news: since the last wait returned */
};

/* wire: all but ops is filled in. peers: host and pid as known. Frees nothing on failure but its
 * own. */
enum hl_status hl_mail_init(struct hl_mail *m, struct hl_mem *mem, int n_slots,
                            const struct hl_mail_transport *transport,
                            struct hl_diag *diag) HL_MUST_CHECK;
void hl_mail_fini(struct hl_mail *m);
/* A message from peer; it need not be well formed. */
void hl_mail_take(struct hl_mail *m, int peer, const struct hl_mail_head *head, const void *data);
/* Nothing more will come from peer; all that came before was taken. */
void hl_mail_lost(struct hl_mail *m, int peer);
/* Still to be talked to: neither left, failed nor lost. */
bool hl_mail_has(const struct hl_mail *m, int peer);
/* To all of those. */
void hl_mail_send_all(struct hl_mail *m, enum hl_mail_kind kind, int64_t number, const char *text);

/* For the transport's table of calls; close is its own. */
enum hl_status hl_mail_reserve(struct hl_wire *wire, struct hl_stream stream, void **room_out);
enum hl_status hl_mail_commit(struct hl_wire *wire, struct hl_stream stream, size_t bytes);
enum hl_status hl_mail_view(struct hl_wire *wire, struct hl_stream stream, const void **data_out,
                            size_t *bytes_out);
enum hl_status hl_mail_release(struct hl_wire *wire, struct hl_stream stream);
enum hl_status hl_mail_wait(struct hl_wire *wire, int64_t timeout_ns);
void hl_mail_tell(struct hl_wire *wire, enum hl_phase phase, int64_t step);
void hl_mail_peer(struct hl_wire *wire, int rank, struct hl_peer *out);
void hl_mail_give_up(struct hl_wire *wire, const char *why);

#endif
