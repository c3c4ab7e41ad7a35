/* The two clocks of the machine, over clock_gettime. Does not sleep and does not know calendars. */
#include "os/clock.h"

#include <time.h>

int64_t hl_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double hl_clock_wall_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
