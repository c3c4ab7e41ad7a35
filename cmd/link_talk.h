/* Messages between two ranks of a wire, and what they say about the link: for `halley bench-net`.
 *
 * Nothing here sums or overlaps: one rank sends, the other copies out and answers. All waits have
 * the wire's patience as their deadline. */
#ifndef HALLEY_LINK_TALK_H
#define HALLEY_LINK_TALK_H

#include "halley/wire.h"

enum { LINK_SIZES = 4, LINK_LARGEST = 16 << 20 };
extern const int64_t link_sizes[LINK_SIZES]; /* bytes, ascending */

struct link_talk {
    struct hl_wire *wire;
    int64_t timeout_ns; /* how long a peer may make no progress */
    enum hl_phase phase;
    int64_t step; /* as told last */
    char *data;   /* [LINK_LARGEST]; owner: caller */
};

/* errors HL_E_PEER, HL_E_TIMEOUT: names the other rank, its host, phase and step. to may be
 * HL_EVERYONE. */
enum hl_status link_send(struct link_talk *talk, int to, const void *data, size_t bytes,
                         struct hl_diag *diag) HL_MUST_CHECK;
/* A part of exactly that many bytes. everyone: from the stream to all. patience_ns: for it to come.
 * errors as above; HL_E_FORMAT: another size */
enum hl_status link_receive(struct link_talk *talk, int from, bool everyone, void *out,
                            size_t bytes, int64_t patience_ns, struct hl_diag *diag) HL_MUST_CHECK;

struct link_rates {
    double round_trip_ns;           /* of 16 bytes, answered by 8: the median */
    double bytes_per_s[LINK_SIZES]; /* one way, the answer's time taken off, medians; 0: would have
                                       taken too long */
};
/* Both ends call their half at the same time. seconds: for the whole, roughly. */
enum hl_status link_lead(struct link_talk *talk, int to, double seconds, struct link_rates *out,
                         struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status link_follow(struct link_talk *talk, int from, struct hl_diag *diag) HL_MUST_CHECK;

#endif
