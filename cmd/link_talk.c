/* See link_talk.h. A burst is a header, its bytes in parts, and an answer; the leader says in each
 * header whether another burst will come, so that only the leader looks at the clock. */
#include "link_talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"

enum { LANE = 0, MOST_TRIPS = 500, MOST_BURSTS = 15, WARM = 1 };
static const int64_t NAP_NS = 100000000, LONG_NS = 1000000000;
const int64_t link_sizes[LINK_SIZES] = {4 << 10, 64 << 10, 1 << 20, LINK_LARGEST};

struct header {
    int64_t bytes, last;
};

/* ---- waiting ---- */

static enum hl_status explain(const struct link_talk *t, enum hl_status status, int rank,
                              int64_t waited_ns, struct hl_diag *diag) {
    char who[HL_PEER_TEXT];
    if (status == HL_E_PEER && t->wire->failed_rank >= 0) rank = t->wire->failed_rank;
    if (rank < 0)
        return hl_fail(diag, status, "waited %lld s for others to take a message",
                       (long long)(waited_ns / 1000000000));
    (void)hl_peer_describe(t->wire, rank, status, who);
    if (status == HL_E_TIMEOUT)
        return hl_fail(diag, status, "waited %lld s for %s; a larger --timeout waits longer",
                       (long long)(waited_ns / 1000000000), who);
    return hl_fail(diag, status, "%s", who);
}

/* Whom this rank waits for is told after a while. */
static void tell_waiting(struct link_talk *t, bool waits, int rank) {
    if (t->wire->waits == waits && (!waits || t->wire->waits_for == rank)) return;
    t->wire->waits = waits;
    t->wire->waits_for = rank;
    t->wire->ops->tell(t->wire, t->phase, t->step);
}

/* Called while a call answers HL_PENDING. */
static enum hl_status wait_for(struct link_talk *t, int rank, int64_t since_ns, int64_t patience_ns,
                               struct hl_diag *diag) {
    int64_t waited = hl_clock_ns() - since_ns;
    if (waited > patience_ns) return explain(t, HL_E_TIMEOUT, rank, waited, diag);
    if (waited > LONG_NS && rank >= 0) tell_waiting(t, true, rank);
    return t->wire->ops->wait(t->wire, NAP_NS);
}

/* ---- messages ---- */

enum hl_status link_send(struct link_talk *t, int to, const void *data, size_t bytes,
                         struct hl_diag *diag) {
    const struct hl_stream stream = {LANE, t->wire->rank, to};
    int64_t since = hl_clock_ns();
    enum hl_status status;
    void *room;
    while ((status = t->wire->ops->reserve(t->wire, stream, &room)) == HL_PENDING)
        if ((status = wait_for(t, to, since, t->timeout_ns, diag)) != HL_OK) return status;
    if (status == HL_OK) {
        memcpy(room, data, bytes);
        status = t->wire->ops->commit(t->wire, stream, bytes);
    }
    tell_waiting(t, false, 0);
    return status == HL_OK ? HL_OK : explain(t, status, to, 0, diag);
}

enum hl_status link_receive(struct link_talk *t, int from, bool everyone, void *out, size_t bytes,
                            int64_t patience_ns, struct hl_diag *diag) {
    const struct hl_stream stream = {LANE, from, everyone ? HL_EVERYONE : t->wire->rank};
    int64_t since = hl_clock_ns();
    enum hl_status status;
    const void *data;
    size_t n = 0;
    while ((status = t->wire->ops->view(t->wire, stream, &data, &n)) == HL_PENDING)
        if ((status = wait_for(t, from, since, patience_ns, diag)) != HL_OK) return status;
    if (status == HL_OK && n != bytes)
        return hl_fail(diag, HL_E_FORMAT,
                       "rank %d sent %zu bytes where %zu belong: do all ranks run the same version "
                       "of halley?",
                       from, n, bytes);
    if (status == HL_OK) {
        memcpy(out, data, bytes);
        status = t->wire->ops->release(t->wire, stream);
    }
    tell_waiting(t, false, 0);
    return status == HL_OK ? HL_OK : explain(t, status, from, 0, diag);
}

/* ---- bursts ---- */

static enum hl_status burst(struct link_talk *t, int to, int64_t bytes, bool last, double *ns_out,
                            struct hl_diag *diag) {
    const struct header header = {bytes, last};
    int64_t start = hl_clock_ns(), answer, part = (int64_t)t->wire->part_bytes;
    enum hl_status status = link_send(t, to, &header, sizeof header, diag);
    for (int64_t at = 0; at < bytes && status == HL_OK; at += part)
        status =
            link_send(t, to, t->data + at, (size_t)(bytes - at < part ? bytes - at : part), diag);
    if (status == HL_OK)
        status = link_receive(t, to, false, &answer, sizeof answer, t->timeout_ns, diag);
    *ns_out = (double)(hl_clock_ns() - start);
    return status;
}

enum hl_status link_follow(struct link_talk *t, int from, struct hl_diag *diag) {
    struct header h = {0, 0};
    int64_t answer = 0, part = (int64_t)t->wire->part_bytes;
    enum hl_status status = HL_OK;
    while (!h.last && status == HL_OK) {
        status = link_receive(t, from, false, &h, sizeof h, t->timeout_ns, diag);
        if (status == HL_OK && (h.bytes < 0 || h.bytes > LINK_LARGEST))
            return hl_fail(diag, HL_E_FORMAT, "rank %d announced %lld bytes", from,
                           (long long)h.bytes);
        for (int64_t at = 0; at < h.bytes && status == HL_OK; at += part)
            status = link_receive(t, from, false, t->data + at,
                                  (size_t)(h.bytes - at < part ? h.bytes - at : part),
                                  t->timeout_ns, diag);
        if (status == HL_OK) status = link_send(t, from, &answer, sizeof answer, diag);
    }
    return status;
}

/* ---- medians ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bursts of one size until the time is up; the first is not counted when there are more. */
static enum hl_status median_of(struct link_talk *t, int to, int64_t bytes, int most,
                                double seconds, double *ns_out, struct hl_diag *diag) {
    double times[MOST_TRIPS + WARM];
    int n = 0;
    enum hl_status status = HL_OK;
    int64_t end = hl_clock_ns() + (int64_t)(seconds * 1e9);
    while (status == HL_OK && n < most + WARM && (n == 0 || hl_clock_ns() < end))
        status = burst(t, to, bytes, false, &times[n++], diag);
    if (status != HL_OK) return status;
    int skipped = n > WARM ? WARM : 0;
    n -= skipped;
    qsort(times + skipped, (size_t)n, sizeof *times, compare);
    *ns_out = times[skipped + n / 2];
    return HL_OK;
}

/* A size that the one before lets expect to outlast its share of the time is left out. */
enum hl_status link_lead(struct link_talk *t, int to, double seconds, struct link_rates *out,
                         struct hl_diag *diag) {
    double ns, share = seconds / (LINK_SIZES + 1);
    *out = (struct link_rates){.round_trip_ns = 0};
    enum hl_status status = median_of(t, to, 0, MOST_TRIPS, share, &out->round_trip_ns, diag);
    for (int s = 0; s < LINK_SIZES && status == HL_OK; s++) {
        if (s && (double)link_sizes[s] > 4 * share * out->bytes_per_s[s - 1]) break;
        status = median_of(t, to, link_sizes[s], MOST_BURSTS, share, &ns, diag);
        double way = ns - out->round_trip_ns / 2;
        out->bytes_per_s[s] = (double)link_sizes[s] * 1e9 / (way > ns / 4 ? way : ns / 4);
    }
    return status == HL_OK ? burst(t, to, 0, true, &ns, diag) : status;
}
