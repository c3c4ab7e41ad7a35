/* config.json from any bytes: refused or read; what a model of it writes reads back equal. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "halley/checkpoint.h"

static void round_trip(const struct hl_model *model) {
    struct hl_buf text = {.mem = hl_mem_default()};
    struct hl_model_config back;
    struct hl_diag diag;
    hl_model_config_to_json(&model->config, &text);
    if (hl_model_config_from_json(hl_mem_default(), text.data, "again", &back, &diag)) abort();
    if (back.family != model->config.family || back.head_dim != model->config.head_dim ||
        back.rope_theta != model->config.rope_theta ||
        back.rope_scaling.factor != model->config.rope_scaling.factor ||
        back.tie_word_embeddings != model->config.tie_word_embeddings)
        abort();
    hl_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct hl_model_config config;
    struct hl_model *model;
    struct hl_diag diag;
    char *text = hl_strndup(hl_mem_default(), (const char *)data, n);
    if (!hl_model_config_from_json(hl_mem_default(), text, "fuzz", &config, &diag) &&
        config.num_hidden_layers < 100 && !hl_model_new(hl_mem_default(), &config, &model, &diag)) {
        round_trip(model);
        hl_model_free(model);
    }
    hl_free(hl_mem_default(), text);
    return 0;
}
