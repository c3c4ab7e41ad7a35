/* Which wires exist. */
#include <stdio.h>
#include <string.h>

#include "halley/option.h"
#include "wires/wires.h"

static const struct hl_wire_plugin *const wires[] = {
#define HL_WIRE(name, maturity, summary) &hl_wire_##name,
#include "wires/wires.def"
#undef HL_WIRE
    NULL};

const struct hl_wire_plugin *const *hl_wires(void) { return wires; }

enum hl_status hl_wire_find(const char *name, const struct hl_wire_plugin **out,
                            struct hl_diag *diag) {
    const char *names[sizeof wires / sizeof *wires];
    size_t n = 0;
    for (; wires[n]; n++) {
        names[n] = wires[n]->name;
        if (!strcmp(names[n], name)) return *out = wires[n], HL_OK;
    }
    const char *near = hl_nearest_word(name, names, n);
    return hl_fail(diag, HL_E_USER, "wire: unknown '%s'; %s%s; 'halley help wires' lists them",
                   name, near ? "did you mean " : "", near ? near : "no name is near");
}

const char *hl_phase_name(enum hl_phase phase) {
    static const char *const names[] = {"start",  "data",       "forward", "backward",
                                        "update", "evaluation", "save",    "shutdown"};
    return (size_t)phase < sizeof names / sizeof *names ? names[phase] : "?";
}

enum hl_peer_state hl_peer_describe(struct hl_wire *wire, int rank, enum hl_status status,
                                    char out[HL_PEER_TEXT]) {
    struct hl_peer p = {0};
    char waits[48] = "";
    wire->ops->peer(wire, rank, &p);
    if (p.waits && status == HL_E_TIMEOUT)
        (void)snprintf(waits, sizeof waits, "itself waiting for rank %d; ", p.waits_for);
    int n = snprintf(out, HL_PEER_TEXT, "rank %d (%shost %s, pid %lld; last seen: %s of step %lld)",
                     rank, waits, *p.host ? p.host : "not known", (long long)p.pid,
                     hl_phase_name(p.phase), (long long)p.step);
    if (status == HL_E_PEER && n > 0 && n < HL_PEER_TEXT)
        (void)snprintf(out + n, HL_PEER_TEXT - (size_t)n, " %s%s%s",
                       p.state == HL_PEER_FAILED ? "gave up"
                       : p.state == HL_PEER_LEFT ? "has left the run"
                                                 : "is gone",
                       *p.why || p.state == HL_PEER_FAILED ? ": " : "", p.why);
    return p.state;
}
