/* Which strategies exist. */
#include <string.h>

#include "halley/strategy.h"

#define HL_STRATEGY(name, maturity, summary) extern const struct hl_strategy hl_strategy_##name;
#include "strategies.def"
#undef HL_STRATEGY

static const struct hl_strategy *const strategies[] = {
#define HL_STRATEGY(name, maturity, summary) &hl_strategy_##name,
#include "strategies.def"
#undef HL_STRATEGY
    NULL};

const struct hl_strategy *const *hl_strategies(void) { return strategies; }

enum hl_status hl_strategy_find(const char *name, const struct hl_strategy **out,
                                struct hl_diag *diag) {
    const char *names[sizeof strategies / sizeof *strategies];
    size_t n = 0;
    for (; strategies[n]; n++) {
        names[n] = strategies[n]->name;
        if (!strcmp(names[n], name)) return *out = strategies[n], HL_OK;
    }
    const char *near = hl_nearest_word(name, names, n);
    return hl_fail(diag, HL_E_USER,
                   "strategy: unknown '%s'; %s%s; 'halley help strategies' lists them", name,
                   near ? "did you mean " : "", near ? near : "no name is near");
}
