/* Are the tags of an HTML or SVG text balanced and its attributes quoted? Enough XML for what the
 * report writes. */
#ifndef HALLEY_TEST_WELL_FORMED_H
#define HALLEY_TEST_WELL_FORMED_H

#include <stdbool.h>
#include <string.h>

static inline size_t name_length(const char *at) { return strcspn(at, " \t\n/>"); }

/* NULL when all is well, else where it is not. */
static inline const char *first_flaw(const char *text) {
    struct {
        const char *name;
        size_t n;
    } open[64];
    int depth = 0;
    for (const char *at = text; (at = strchr(at, '<'));) {
        const char *tag = at + 1, *end = tag;
        if (!strncmp(tag, "!DOCTYPE", 8) || !strncmp(tag, "meta", 4)) {
            at = strchr(tag, '>');
            continue;
        }
        bool closing = *tag == '/', quoted = false;
        tag += closing;
        for (; *end && (quoted || *end != '>'); end++) {
            if (*end == '"') quoted = !quoted;
            if (*end == '<' && !quoted) return end;
        }
        if (!*end) return at;
        if (closing) {
            if (!depth--) return at;
            if (open[depth].n != name_length(tag) || strncmp(open[depth].name, tag, open[depth].n))
                return at;
        } else if (end[-1] != '/') {
            if (depth == 64) return at;
            open[depth].name = tag;
            open[depth++].n = name_length(tag);
        }
        at = end;
    }
    return depth ? open[depth - 1].name : NULL;
}

#endif
