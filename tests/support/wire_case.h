/* What every wire must do. */
#ifndef HALLEY_TESTS_WIRE_CASE_H
#define HALLEY_TESTS_WIRE_CASE_H

#include "support/ranks.h"

enum { WIRE_PART_BYTES = 256 }; /* of the wires that wire_every_stream is run on */

/* Wait for room, or for a part. */
enum hl_status wire_send_part(struct hl_wire *w, struct hl_stream s, const void *data, size_t n);
enum hl_status wire_next_part(struct hl_wire *w, struct hl_stream s, const void **data, size_t *n);
/* A body for ranks_run: 200 parts of all sizes on each stream of each lane, whole and in order. */
void wire_every_stream(struct rank_context *r);

#endif
