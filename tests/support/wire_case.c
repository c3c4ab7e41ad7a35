/* See wire_case.h. */
#include "wire_case.h"

#include <string.h>

enum { PARTS = 200 };

enum hl_status wire_send_part(struct hl_wire *w, struct hl_stream s, const void *data, size_t n) {
    void *room;
    enum hl_status status;
    while ((status = w->ops->reserve(w, s, &room)) == HL_PENDING) (void)w->ops->wait(w, 1000000000);
    if (status != HL_OK) return status;
    memcpy(room, data, n);
    return w->ops->commit(w, s, n);
}

enum hl_status wire_next_part(struct hl_wire *w, struct hl_stream s, const void **data, size_t *n) {
    enum hl_status status;
    while ((status = w->ops->view(w, s, data, n)) == HL_PENDING) (void)w->ops->wait(w, 1000000000);
    return status;
}

/* Bytes of part i of a stream: its length and content say where it came from. */
static size_t make_part(struct hl_stream s, int i, unsigned char *out) {
    size_t n = (size_t)((i * 7 + s.from) % (WIRE_PART_BYTES + 1));
    for (size_t b = 0; b < n; b++)
        out[b] = (unsigned char)(i * 31 + s.from * 5 + s.to * 3 + s.lane + (int)b);
    return n;
}

static void check_part(struct rank_context *r, struct hl_stream s, int i) {
    unsigned char want[WIRE_PART_BYTES];
    const void *data = NULL, *again = NULL;
    size_t n = 0, n_again = 0, n_want = make_part(s, i, want);
    ranks_check(r, wire_next_part(r->wire, s, &data, &n) == HL_OK);
    ranks_check(r, r->wire->ops->view(r->wire, s, &again, &n_again) == HL_OK && again == data);
    if (n != n_want || memcmp(data, want, n) != 0)
        ranks_fail(r, "part %d from %d to %d on lane %d is wrong", i, s.from, s.to, s.lane);
    ranks_check(r, r->wire->ops->release(r->wire, s) == HL_OK);
}

void wire_every_stream(struct rank_context *r) {
    unsigned char part[WIRE_PART_BYTES];
    for (int i = 0; i < PARTS; i++)
        for (int lane = 0; lane < r->wire->n_lanes; lane++) {
            for (int p = HL_EVERYONE; p < r->n_ranks; p++) {
                struct hl_stream s = {lane, r->rank, p};
                if (p == r->rank) continue;
                ranks_check(r, wire_send_part(r->wire, s, part, make_part(s, i, part)) == HL_OK);
            }
            for (int p = 0; p < r->n_ranks; p++) {
                if (p == r->rank) continue;
                check_part(r, (struct hl_stream){lane, p, r->rank}, i);
                check_part(r, (struct hl_stream){lane, p, HL_EVERYONE}, i);
            }
        }
}
