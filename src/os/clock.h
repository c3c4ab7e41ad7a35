/* The two clocks of the machine. Durations come from the monotonic one; the wall clock is only for
 * labels. */
#ifndef HALLEY_OS_CLOCK_H
#define HALLEY_OS_CLOCK_H

#include <stdint.h>

int64_t hl_clock_ns(void);        /* monotonic nanoseconds; the zero is arbitrary */
int64_t hl_clock_coarse_ns(void); /* its last tick, up to 10 ms ago: read in a fifth of the time */
double hl_clock_wall_seconds(void); /* seconds since 1970, UTC */

/* What hl_clock_ns reads. */
struct hl_clock_facts {
    char source[32];     /* "tsc", ...; empty: the kernel does not say */
    char available[128]; /* other sources, with blanks between them */
    int64_t step_ns;     /* the smallest difference it promises */
    double read_ns;      /* the time that reading it takes */
};
void hl_clock_look(struct hl_clock_facts *out);

#endif
