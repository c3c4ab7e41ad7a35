/* Hosts on one machine: a network namespace for each, joined by a bridge, each link shaped both
 * ways. They live in a network that is this process's alone (os/isolate.h) and go with it. */
#ifndef HALLEY_CMD_EMULATED_H
#define HALLEY_CMD_EMULATED_H

#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

enum { EMULATED_MOST = 64 };
#define EMULATED_INTERFACE "eth0" /* of each host */

/* "h0", "h1", ...: what `ip netns exec` calls it */
void emulated_name(char out[16], int host);
/* Address of host 0, where ranks meet. */
#define EMULATED_ADDRESS "10.77.0.1:29500"

/* Make n hosts. bits_per_s of each link, each way; 0: not shaped. This process's network is gone
 * afterwards.
 * *signal_out: what asked to stop meanwhile, else 0.
 * errors HL_E_USER, HL_E_UNSUPPORTED, HL_E_IO: what is missing here, and what to do about it */
enum hl_status emulated_hosts(struct hl_mem *mem, int n, double bits_per_s, int *signal_out,
                              struct hl_diag *diag) HL_MUST_CHECK;

#endif
