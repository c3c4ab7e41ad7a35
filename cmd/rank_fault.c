/* See rank_fault.h. */
#include "rank_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/futex.h"
#include "os/signal.h"

static const char *const kinds[] = {"", "kill", "stop", "segv", "exit", "hang"};
enum kind { NONE, KILL, STOP, SEGV, EXIT, HANG, N_KINDS };

static bool find_kind(const char *word, int *out) {
    for (*out = 1; *out < N_KINDS; ++*out)
        if (!strcmp(kinds[*out], word)) return true;
    return false;
}

static bool find_phase(const char *word, enum hl_phase *out) {
    for (*out = HL_PHASE_START; *out <= HL_PHASE_SHUTDOWN; ++*out)
        if (!strcmp(hl_phase_name(*out), word)) return true;
    return false;
}

static bool read_one(const char *text, struct one_fault *out) {
    char kind[16], phase[16];
    long long step;
    unsigned long long generation = 1;
    if (sscanf(text, "%15[a-z]:%d:%15[a-z]:%lld:%llu", kind, &out->rank, phase, &step,
               &generation) < 4)
        return false;
    out->step = step;
    out->generation = generation;
    return find_phase(phase, &out->phase) && find_kind(kind, &out->kind);
}

enum hl_status rank_fault_read(struct rank_fault *out, struct hl_diag *diag) {
    const char *text = getenv("HALLEY_FAULT");
    *out = (struct rank_fault){.n = 0};
    for (const char *at = text; at && *at; at += strcspn(at, ","), at += *at == ',') {
        if (out->n < RANK_FAULTS && read_one(at, &out->list[out->n])) out->n++;
        else
            return hl_fail(diag, HL_E_USER,
                           "HALLEY_FAULT=%s is not KIND:RANK:PHASE:STEP[:GENERATION], or %d of "
                           "them with commas between",
                           text, RANK_FAULTS);
    }
    return HL_OK;
}

static void fail_as(enum kind kind) {
    switch (kind) {
    case KILL: hl_signal_kill_self(); break;
    case STOP: hl_signal_raise(HL_SIGNAL_STOP); break;
    case SEGV: hl_signal_raise(HL_SIGNAL_SEGV); break;
    case EXIT: _exit(1);
    case HANG:
        for (;;) hl_sleep_ns(1000000000);
    case NONE:
    case N_KINDS: break;
    }
}

void rank_fault_at(const struct rank_fault *fault, uint64_t generation, int rank,
                   enum hl_phase phase, int64_t step) {
    for (int i = 0; i < fault->n; i++) {
        const struct one_fault *f = &fault->list[i];
        if (f->generation == generation && f->rank == rank && f->phase == phase && step >= f->step)
            fail_as((enum kind)f->kind);
    }
}
