/* The two clocks of the machine. Durations come from the monotonic one; the wall clock is only for
 * labels. */
#ifndef HALLEY_OS_CLOCK_H
#define HALLEY_OS_CLOCK_H

#include <stdint.h>

int64_t hl_clock_ns(void);          /* monotonic nanoseconds; the zero is arbitrary */
double hl_clock_wall_seconds(void); /* seconds since 1970, UTC */

#endif
