/* Which strategies exist. */
#include <assert.h>
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

int hl_strategy_option_sets(struct hl_strategy_options *values,
                            struct hl_option_set sets[HL_MAX_STRATEGIES]) {
    _Static_assert(sizeof strategies / sizeof *strategies <= HL_MAX_STRATEGIES + 1, "room for all");
    int n = 0;
    for (int i = 0; strategies[i]; i++) {
        const struct hl_strategy *s = strategies[i];
        assert(s->options_bytes <= sizeof values->of[0]);
        if (s->n_rows)
            sets[n++] = (struct hl_option_set){s->name, s->rows, s->n_rows, values->of[i]};
    }
    return n;
}

const void *hl_strategy_options_of(const struct hl_strategy_options *values,
                                   const struct hl_strategy *strategy) {
    for (int i = 0; strategies[i]; i++)
        if (strategies[i] == strategy && strategy->n_rows) return values->of[i];
    return NULL;
}
