/* Two wires between the same ranks as one: the first half of its lanes goes over the first, the
 * second half over the other. */
#ifndef HALLEY_WIRES_PAIR_H
#define HALLEY_WIRES_PAIR_H

#include "halley/wire.h"

/* first, second: of equal rank, ranks and lanes; owned by *out from here on, on failure still the
 * caller's. A rank is dead or failed when either says so, and then both ways end. While parts are
 * awaited on both, `wait` sleeps on the first and looks at the second: whoever rings should ring
 * the first. errors HL_E_MEMORY */
enum hl_status hl_wire_pair(struct hl_mem *mem, struct hl_wire *first, struct hl_wire *second,
                            struct hl_wire **out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
