/* Which generators of operation lists exist. */
#include <string.h>

#include "halley/option.h"
#include "halley/schedule.h"

#define HL_SCHEDULE(name) extern const struct hl_schedule hl_schedule_##name;
#include "schedules.def"
#undef HL_SCHEDULE

static const struct hl_schedule *const schedules[] = {
#define HL_SCHEDULE(name) &hl_schedule_##name,
#include "schedules.def"
#undef HL_SCHEDULE
};
static const char *const names[] = {
#define HL_SCHEDULE(name) #name,
#include "schedules.def"
#undef HL_SCHEDULE
};
enum { N = sizeof schedules / sizeof *schedules };

enum hl_status hl_schedule_find(const char *name, const struct hl_schedule **out,
                                struct hl_diag *diag) {
    for (int i = 0; i < N; i++)
        if (!strcmp(names[i], name)) return *out = schedules[i], HL_OK;
    const char *near = hl_nearest_word(name, names, N);
    return hl_fail(diag, HL_E_USER, "schedule: unknown '%s'; %s%s", name,
                   near ? "did you mean " : "known: micro_major", near ? near : "");
}
