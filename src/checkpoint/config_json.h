/* config.json of Hugging Face folders, with a log for what is left out. The public calls are in
 * halley/checkpoint.h. */
#ifndef HALLEY_CHECKPOINT_CONFIG_JSON_H
#define HALLEY_CHECKPOINT_CONFIG_JSON_H

#include "halley/checkpoint.h"

/* hl_model_config_from_json that also logs dropout (we train without) and keys that it does not
 * know. log may be NULL. */
enum hl_status hl_config_json_read(const char *text, const char *file, struct hl_model_config *out,
                                   struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;

/* generation_config.json for a model. */
void hl_generation_config_to_json(const struct hl_model_config *config, struct hl_buf *out);

#endif
