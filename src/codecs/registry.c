/* Which codecs exist. */
#include <string.h>

#include "halley/codec.h"
#include "halley/option.h"

#define HL_CODEC(name) extern const struct hl_codec hl_codec_##name;
#include "codecs.def"
#undef HL_CODEC

static const struct hl_codec *const codecs[] = {
#define HL_CODEC(name) &hl_codec_##name,
#include "codecs.def"
#undef HL_CODEC
    NULL};

const struct hl_codec *const *hl_codecs(void) { return codecs; }

enum hl_status hl_codec_find(const char *name, const struct hl_codec **out, struct hl_diag *diag) {
    const char *names[sizeof codecs / sizeof *codecs];
    size_t n = 0;
    for (; codecs[n]; n++) {
        names[n] = codecs[n]->name;
        if (!strcmp(names[n], name)) return *out = codecs[n], HL_OK;
    }
    const char *near = hl_nearest_word(name, names, n);
    return hl_fail(diag, HL_E_USER, "unknown codec '%s'; %s%s; 'halley help codecs' lists them",
                   name, near ? "did you mean " : "", near ? near : "no name is near");
}
