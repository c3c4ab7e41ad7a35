/* A network of this process's own, which the kernel takes away with the last process in it, however
 * that ends: nothing has to be cleaned up, and no other process can have the same names. */
#ifndef HALLEY_OS_ISOLATE_H
#define HALLEY_OS_ISOLATE_H

#include "halley/status.h"

/* From here on this process (which has one thread) and its children see no network but their own,
 * which is empty, and an empty /run/netns, so that `ip netns add` makes names for them alone. Other
 * processes notice nothing; files are the same.
 * errors HL_E_USER: not root; HL_E_UNSUPPORTED: root may not either, as in most containers */
enum hl_status hl_isolate_network(struct hl_diag *diag) HL_MUST_CHECK;

#endif
