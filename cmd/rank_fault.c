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

enum hl_status rank_fault_read(struct rank_fault *out, struct hl_diag *diag) {
    const char *text = getenv("HALLEY_FAULT");
    char kind[16], phase[16];
    long long step;
    *out = (struct rank_fault){.kind = NONE};
    if (!text || !*text) return HL_OK;
    if (sscanf(text, "%15[a-z]:%d:%15[a-z]:%lld", kind, &out->rank, phase, &step) != 4 ||
        !find_phase(phase, &out->phase) || !find_kind(kind, &out->kind))
        return hl_fail(diag, HL_E_USER, "HALLEY_FAULT=%s is not KIND:RANK:PHASE:STEP", text);
    out->step = step;
    return HL_OK;
}

void rank_fault_at(const struct rank_fault *f, int rank, enum hl_phase phase, int64_t step) {
    if (f->kind == NONE || f->rank != rank || f->phase != phase || step < f->step) return;
    switch ((enum kind)f->kind) {
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
