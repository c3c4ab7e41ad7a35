/* See ranks.h. */
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "os/parallel.h"
#include "wires/wires.h"

struct world {
    struct rank_context ranks[HL_MAX_RANKS];
    void (*body)(struct rank_context *r);
};

void ranks_fail(struct rank_context *r, const char *format, ...) {
    va_list arguments;
    if (*r->failure) return; /* the first one counts */
    va_start(arguments, format);
    (void)vsnprintf(r->failure, sizeof r->failure, format, arguments);
    va_end(arguments);
}

static void run_rank(void *context, int i) {
    struct world *w = context;
    struct rank_context *r = &w->ranks[i];
    w->body(r);
    if (!r->closed) r->wire->ops->close(r->wire);
}

void ranks_run(int n_ranks, int n_lanes, size_t part_bytes, void (*body)(struct rank_context *r),
               void *shared) {
    static struct world w;
    struct hl_threads_shared *meeting;
    struct hl_diag diag = {0};
    w = (struct world){.body = body};
    assert_int_equal(
        hl_threads_wire_new(hl_mem_default(), n_ranks, n_lanes, part_bytes, &meeting, &diag),
        HL_OK);
    for (int i = 0; i < n_ranks; i++) {
        const struct hl_wire_place place = {.rank = i, .n_ranks = n_ranks, .shared = meeting};
        w.ranks[i] = (struct rank_context){.rank = i, .n_ranks = n_ranks, .shared = shared};
        assert_int_equal(hl_wire_threads.open(hl_mem_default(), &place, &w.ranks[i].wire, &diag),
                         HL_OK);
    }
    hl_parallel(n_ranks, run_rank, &w);
    hl_threads_wire_free(meeting);
    for (int i = 0; i < n_ranks; i++)
        if (*w.ranks[i].failure) fail_msg("rank %d of %d: %s", i, n_ranks, w.ranks[i].failure);
}
