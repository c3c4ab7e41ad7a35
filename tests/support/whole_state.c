/* See whole_state.h. */
#include "support/whole_state.h"

#include <string.h>

#include "train/state.h"

/* Slots of ranks that go their own ways are not one state. */
static int n_slots(const struct hl_trainer *t) {
    return t->strategy->caps & HL_CAP_DIVERGENT ? 0 : t->optimizer->n_slots;
}

int64_t whole_state_size(const struct hl_trainer *t) {
    return t->model->layout.n_parameters * (1 + n_slots(t));
}

static enum hl_status copy(struct hl_state_source *s, float *out, struct hl_diag *diag) {
    const struct hl_trainer *t = s->t;
    int64_t P = t->model->layout.n_parameters;
    for (int a = -1; a < n_slots(t); a++)
        for (int64_t at = 0, got = 0; at < P; at += got) {
            const float *data = NULL;
            enum hl_status status = hl_state_fetch(s, a, at, P - at, &data, &got, diag);
            if (status != HL_OK) return status;
            memcpy(out + (a + 1) * P + at, data, (size_t)got * sizeof *data);
        }
    return HL_OK;
}

enum hl_status whole_state(struct hl_trainer *t, float *out, struct hl_diag *diag) {
    struct hl_state_list list = {0};
    struct hl_state_source s = {0};
    enum hl_status status = hl_trainer_view(t, true, diag);
    if (status == HL_OK) status = hl_state_list(t, &list, diag);
    if (status == HL_OK) status = hl_state_source_open(t, &list, &s, diag);
    if (status == HL_OK && hl_group_rank(t->setup.group) == 0) status = copy(&s, out, diag);
    if (status == HL_OK) status = hl_state_source_finish(&s, diag);
    hl_state_source_close(&s);
    hl_state_list_free(&list);
    return status;
}
