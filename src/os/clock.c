/* The two clocks of the machine, over clock_gettime. Does not sleep and does not know calendars. */
#include "os/clock.h"

#include <string.h>
#include <time.h>

#include "os/cgroup.h"

static int64_t read_ns(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
int64_t hl_clock_ns(void) { return read_ns(CLOCK_MONOTONIC); }
int64_t hl_clock_coarse_ns(void) { return read_ns(CLOCK_MONOTONIC_COARSE); }

double hl_clock_wall_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void read_word(const char *path, char *out, size_t capacity) {
    if (!hl_read_small(path, out, capacity)) *out = 0;
    out[strcspn(out, "\n")] = 0;
}

#define SOURCES "/sys/devices/system/clocksource/clocksource0/"
void hl_clock_look(struct hl_clock_facts *out) {
    enum { READS = 1000 };
    struct timespec step = {0};
    *out = (struct hl_clock_facts){.step_ns = 0};
    read_word(SOURCES "current_clocksource", out->source, sizeof out->source);
    read_word(SOURCES "available_clocksource", out->available, sizeof out->available);
    (void)clock_getres(CLOCK_MONOTONIC, &step);
    out->step_ns = (int64_t)step.tv_sec * 1000000000 + step.tv_nsec;
    int64_t start = hl_clock_ns();
    for (int i = 0; i < READS - 1; i++) (void)hl_clock_ns();
    out->read_ns = (double)(hl_clock_ns() - start) / READS;
}
