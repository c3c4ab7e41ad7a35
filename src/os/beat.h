/* A thread that calls one short function again and again: the heart of a process. */
#ifndef HALLEY_OS_BEAT_H
#define HALLEY_OS_BEAT_H

#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_beat;
/* beat(context) every period_ns, the first time one period from now, until stopped. Its thread
 * takes no signals. errors HL_E_MEMORY; HL_E_IO: no thread can be started */
enum hl_status hl_beat_start(struct hl_mem *mem, int64_t period_ns, void (*beat)(void *context),
                             void *context, struct hl_beat **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_beat_stop(struct hl_beat *beat); /* when it returns, beat() has ended; NULL is allowed */

#endif
