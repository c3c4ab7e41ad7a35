/* Lists of wrappers as text. See wrappers.h. */
#include "wires/wrappers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "halley/option.h"
#include "halley/text_number.h"

enum { MOST_WRAPPERS = 8, WORD = 256 };

enum kind { COUNT, THROTTLE, DELAY, FAULT, TRACE };
static const char *const kinds[] = {"count", "throttle", "delay", "fault", "trace"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
static const char *const faults[] = {"drop", "cut", "freeze", "half-open", "kill"};
enum { N_FAULTS = sizeof faults / sizeof *faults };

/* One wrapper of a list. */
struct spec {
    enum kind kind;
    double bytes_per_s, burst_bytes;
    int64_t latency_ns, jitter_ns;
    enum hl_fault fault;
    int64_t fault_rank, nth;
    char path[WORD];
};

/* ---- numbers with units ---- */

struct unit {
    const char *name;
    double factor;
};
static const struct unit rates[] = {/* as tc writes them: bits per second, powers of ten */
                                    {"gbit", 1e9 / 8},
                                    {"mbit", 1e6 / 8},
                                    {"kbit", 1e3 / 8}};
static const struct unit sizes[] = {{"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10}, {"b", 1}};
static const struct unit times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

/* "2.5ms": the number times the factor of its unit, the first one that fits. */
static bool quantity(const char *text, const struct unit *units, size_t n_units, double *out) {
    size_t n = strlen(text);
    char number[64];
    for (size_t u = 0; u < n_units; u++) {
        size_t k = strlen(units[u].name);
        if (n <= k || n - k >= sizeof number || strcasecmp(text + n - k, units[u].name) != 0)
            continue;
        memcpy(number, text, n - k);
        number[n - k] = 0;
        if (!hl_parse_f64(number, out) || !(*out >= 0) || *out > 1e12) return false;
        *out *= units[u].factor;
        return true;
    }
    return false;
}
#define QUANTITY(text, units, out) quantity(text, units, sizeof units / sizeof *units, out)

/* Cut text at the first `mark`: what follows it, or NULL. */
static char *cut(char *text, char mark) {
    char *at = strchr(text, mark);
    if (at) *at++ = 0;
    return at;
}

static int index_of(const char *word, const char *const *words, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i])) return i;
    return -1;
}

/* ---- one wrapper ---- */

static bool parse_throttle(char *value, struct spec *s) {
    char *burst = cut(value, '/');
    if (!QUANTITY(value, rates, &s->bytes_per_s) || s->bytes_per_s < 1) return false;
    return !burst || (QUANTITY(burst, sizes, &s->burst_bytes) && s->burst_bytes >= 1);
}

static bool parse_delay(char *value, struct spec *s) {
    double latency = 0, jitter = 0;
    char *after = cut(value, '/');
    if (!QUANTITY(value, times, &latency) || (after && !QUANTITY(after, times, &jitter)))
        return false;
    s->latency_ns = (int64_t)latency;
    s->jitter_ns = (int64_t)jitter;
    return latency + jitter < 3600e9;
}

static bool parse_fault(char *value, struct spec *s) {
    char *rank = cut(value, ':'), *nth = rank ? cut(rank, ':') : NULL;
    int fault = index_of(value, faults, N_FAULTS);
    s->fault = (enum hl_fault)fault;
    return fault >= 0 && nth && hl_parse_i64(rank, &s->fault_rank) && s->fault_rank >= 0 &&
           hl_parse_i64(nth, &s->nth) && s->nth > 0;
}

static bool parse_value(char *value, struct spec *s) {
    if (s->kind == COUNT) return value == NULL;
    if (!value || !*value) return false;
    if (s->kind == THROTTLE) return parse_throttle(value, s);
    if (s->kind == DELAY) return parse_delay(value, s);
    if (s->kind == FAULT) return parse_fault(value, s);
    return snprintf(s->path, sizeof s->path, "%s", value) < (int)sizeof s->path;
}

static enum hl_status parse_word(char *word, struct spec *out, struct hl_diag *diag) {
    static const char *const forms[] = {
        "count", "throttle=100mbit or throttle=100mbit/64kib (rate/burst)",
        "delay=2ms or delay=2ms/500us (latency/jitter)",
        "fault=kill:2:100 (drop, cut, freeze, half-open or kill; rank; from which operation)",
        "trace=FILE (each rank writes FILE-rankR.json)"};
    char whole[WORD];
    (void)snprintf(whole, sizeof whole, "%s", word);
    char *value = cut(word, '=');
    int kind = index_of(word, kinds, N_KINDS);
    if (kind < 0) {
        const char *near = hl_nearest_word(word, kinds, N_KINDS);
        return hl_fail(diag, HL_E_USER,
                       "wire_wrappers: unknown '%s'; %s%s; there are count, throttle, delay, "
                       "fault and trace",
                       word, near ? "did you mean " : "", near ? near : "no name is near");
    }
    *out = (struct spec){.kind = (enum kind)kind};
    if (parse_value(value, out)) return HL_OK;
    return hl_fail(diag, HL_E_USER, "wire_wrappers: '%s' is not understood; write %s", whole,
                   forms[kind]);
}

static enum hl_status parse(const char *list, struct spec specs[MOST_WRAPPERS], int *n_out,
                            struct hl_diag *diag) {
    *n_out = 0;
    while (list && *list) {
        char word[WORD];
        size_t n = strcspn(list, ",");
        if (*n_out == MOST_WRAPPERS || n >= sizeof word)
            return hl_fail(diag, HL_E_USER,
                           "wire_wrappers: at most %d wrappers of at most %d letters",
                           MOST_WRAPPERS, WORD - 1);
        memcpy(word, list, n);
        word[n] = 0;
        enum hl_status status = parse_word(word, &specs[*n_out], diag);
        if (status != HL_OK) return status;
        ++*n_out;
        list += n + (list[n] == ',');
    }
    return HL_OK;
}

enum hl_status hl_wire_wrap_check(const char *list, struct hl_diag *diag) {
    struct spec specs[MOST_WRAPPERS];
    int n;
    return parse(list, specs, &n, diag);
}

static enum hl_status apply(struct hl_mem *mem, const struct spec *s,
                            const struct hl_wrap_world *world, struct hl_wire **wire,
                            struct hl_diag *diag) {
    struct hl_wire *inner = *wire;
    switch (s->kind) {
    case COUNT: return hl_wire_count(mem, inner, wire, diag);
    case THROTTLE:
        return hl_wire_throttle(mem, inner, s->bytes_per_s, s->burst_bytes, world, wire, diag);
    case DELAY: return hl_wire_delay(mem, inner, s->latency_ns, s->jitter_ns, world, wire, diag);
    case FAULT:
        if (s->fault_rank != inner->rank) return HL_OK;
        return hl_wire_fault(mem, inner, s->fault, s->nth, world, wire, diag);
    case TRACE: return hl_wire_trace(mem, inner, s->path, world, wire, diag);
    }
    return HL_OK;
}

enum hl_status hl_wire_wrap(struct hl_mem *mem, const char *list, const struct hl_wrap_world *world,
                            struct hl_wire **wire, struct hl_diag *diag) {
    struct spec specs[MOST_WRAPPERS];
    int n;
    enum hl_status status = parse(list, specs, &n, diag);
    while (status == HL_OK && n > 0) status = apply(mem, &specs[--n], world, wire, diag);
    return status;
}
