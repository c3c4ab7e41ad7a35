/* From what the user said about the model to a configuration: a family, a preset or a folder, with
 * numbers on top. A number that changes a size lets the sizes that follow from it be derived again.
 */
#include <stdio.h>
#include <string.h>

#include "halley/train.h"
#include "os/fs.h"
#include "serve/loaded.h"
#include "train/folder.h"

enum source { FAMILY, PRESET, FOLDER };

static enum source source_of(const char *name) {
    struct hl_model_config preset;
    if (!strcmp(name, "gpt2") || !strcmp(name, "llama")) return FAMILY;
    if (hl_model_preset(name, &preset, NULL) == HL_OK) return PRESET;
    return strchr(name, '/') || hl_is_folder(hl_fs_os(), name) ? FOLDER : PRESET;
}

enum hl_status hl_model_folder(struct hl_mem *mem, const struct hl_model_options *options,
                               char *out, size_t capacity, struct hl_diag *diag) {
    if (source_of(options->model) != FOLDER) return HL_END;
    return hl_loaded_find(mem, options->model, out, capacity, NULL, diag);
}

static enum hl_status from_folder(struct hl_mem *mem, const char *name, struct hl_model_config *out,
                                  struct hl_diag *diag) {
    struct hl_checkpoint_reader *reader;
    char folder[HL_PATH_CAPACITY];
    enum hl_status status = hl_loaded_find(mem, name, folder, sizeof folder, NULL, diag);
    if (status == HL_OK) status = hl_checkpoint_open(mem, hl_fs_os(), folder, &reader, NULL, diag);
    if (status != HL_OK) return status;
    *out = *hl_checkpoint_config(reader);
    hl_checkpoint_close(reader);
    return HL_OK;
}

static enum hl_status from_name(struct hl_mem *mem, const char *name, enum source source,
                                struct hl_model_config *out, struct hl_diag *diag) {
    if (source == FOLDER) return from_folder(mem, name, out, diag);
    if (source == PRESET) return hl_model_preset(name, out, diag);
    return hl_model_preset(!strcmp(name, "gpt2") ? "gpt2-124m" : "llama-tiny", out, diag);
}

/* SwiGLU has three matrices where GELU has two: 8/3 of the width keeps the count
 * (arXiv:2002.05202). */
static int64_t feed_forward(const struct hl_model_config *c) {
    if (c->family == HL_FAMILY_GPT2) return 4 * c->hidden_size;
    return (c->hidden_size * 8 / 3 + 63) / 64 * 64;
}

static void set_sizes(const struct hl_model_options *o, struct hl_model_config *c) {
    bool width = o->hidden_size > 0, heads = o->num_attention_heads > 0;
    bool grouped = c->num_key_value_heads != c->num_attention_heads;
    if (o->num_hidden_layers) c->num_hidden_layers = o->num_hidden_layers;
    if (width) c->hidden_size = o->hidden_size;
    if (heads) c->num_attention_heads = o->num_attention_heads;
    if (heads && (!grouped || c->num_attention_heads % c->num_key_value_heads))
        c->num_key_value_heads = c->num_attention_heads;
    if (c->family == HL_FAMILY_GPT2) c->num_key_value_heads = c->num_attention_heads;
    if (o->num_key_value_heads) c->num_key_value_heads = o->num_key_value_heads;
    if (width || heads) c->head_dim = 0; /* derived again where the model is made */
    if (o->head_dim) c->head_dim = o->head_dim;
    if (width) c->intermediate_size = feed_forward(c);
    if (o->intermediate_size) c->intermediate_size = o->intermediate_size;
}

/* Weights have the sizes they have: saying them again is fine, other ones are a mistake. */
static enum hl_status same_sizes(const struct hl_model_options *o, const struct hl_model_config *c,
                                 struct hl_diag *diag) {
    const struct {
        const char *name;
        int64_t given, has;
    } sizes[] = {
        {"num_hidden_layers", o->num_hidden_layers, c->num_hidden_layers},
        {"hidden_size", o->hidden_size, c->hidden_size},
        {"num_attention_heads", o->num_attention_heads, c->num_attention_heads},
        {"num_key_value_heads", o->num_key_value_heads, c->num_key_value_heads},
        {"head_dim", o->head_dim, c->head_dim},
        {"intermediate_size", o->intermediate_size, c->intermediate_size},
        {"vocab_size", o->vocab_size, c->vocab_size},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given && sizes[i].given != sizes[i].has)
            return hl_fail(diag, HL_E_USER,
                           "%s: the weights in %s are for %lld, not %lld; leave %s out",
                           sizes[i].name, o->model, (long long)sizes[i].has,
                           (long long)sizes[i].given, sizes[i].name);
    return HL_OK;
}

static void set_flag(int given, bool *flag) {
    if (given != HL_AUTO) *flag = given == HL_TRUE;
}

enum hl_status hl_model_resolve(struct hl_mem *mem, const struct hl_model_options *o,
                                int64_t vocab_size, int64_t block_size, struct hl_model_config *out,
                                struct hl_diag *diag) {
    if (o->dropout != 0)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "dropout: Halley has no dropout; leave it out or set it to 0 (one pass over "
                       "the data needs none)");
    struct hl_model_config c;
    enum source source = source_of(o->model);
    enum hl_status status = from_name(mem, o->model, source, &c, diag);
    if (status != HL_OK) return status;
    if (source == FOLDER) status = same_sizes(o, &c, diag);
    else set_sizes(o, &c);
    if (status != HL_OK) return status;
    if (source == FAMILY) c.max_position_embeddings = block_size;
    if (o->max_position_embeddings) c.max_position_embeddings = o->max_position_embeddings;
    if (block_size > c.max_position_embeddings)
        return hl_fail(diag, HL_E_USER,
                       "block_size %lld is longer than the model's max_position_embeddings %lld; "
                       "use a smaller block_size, "
                       "or set max_position_embeddings for a new model",
                       (long long)block_size, (long long)c.max_position_embeddings);
    if (o->rope_theta > 0) c.rope_theta = o->rope_theta;
    if (o->norm_epsilon > 0) c.norm_epsilon = o->norm_epsilon;
    if (o->initializer_range > 0) c.initializer_range = o->initializer_range;
    set_flag(o->tie_word_embeddings, &c.tie_word_embeddings);
    set_flag(o->qkv_bias, &c.qkv_bias);
    set_flag(o->qk_norm, &c.qk_norm);
    if (source != FOLDER) c.vocab_size = o->vocab_size ? o->vocab_size : vocab_size;
    *out = c;
    return HL_OK;
}
