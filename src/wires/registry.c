/* Which wires exist. */
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
