/* output_dir/checkpoint-<step>/ : model.safetensors, config.json, generation_config.json and
 * tokenizer.json in Hugging Face's layout and names; state.safetensors (our optimizer slots and
 * anything else a plug-in saves) and loop.json (where the run is) beside them; manifest.json with
 * sizes and checksums as the commit mark. Written into a folder of another name, fsync'ed, renamed.
 * `output_dir/latest` (a text file with the folder's name) is replaced by rename after the commit.
 * model.safetensors is a pure function of the weights. */
#ifndef HALLEY_CHECKPOINT_H
#define HALLEY_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/log.h"
#include "halley/mem.h"
#include "halley/model.h"
#include "halley/status.h"

struct hl_fs; /* file layer: os/fs.h; hl_fs_os() is the real one, tests pass one that crashes */

struct hl_saved_array {
    const char *name;
    float *data;
    int64_t n;
}; /* f32; borrowed */

/* Numbers that do not lie whole in this process's memory. fetch: elements first .. of an array (its
 * index in `arrays`; -1: the weights), at most n and at least one, valid until the next call; asked
 * for in ascending order of (array, first), each element once. All of a tensor of the weights, when
 * it is asked for from its start. */
struct hl_checkpoint_source {
    enum hl_status (*fetch)(void *context, int array, int64_t first, int64_t n,
                            const float **data_out, int64_t *n_out, struct hl_diag *diag);
    void *context;
};

struct hl_checkpoint {
    int64_t step;
    const struct hl_model *model;
    const float *params;                 /* f32 [n_parameters] master weights, borrowed */
    const struct hl_saved_array *arrays; /* whole-vector state, stored by name (padding included) */
    int n_arrays;
    const struct hl_checkpoint_source *source; /* NULL: params and arrays[].data hold everything */
    const char *loop_json;                     /* the loop's state: JSON object text */
    const char *tokenizer_json;                /* NULL: none */
    const char *run_yaml;                      /* the resolved configuration */
    const char *
        made_with_json; /* ISA, library versions, threads, halley version: goes into the manifest */
};

/* errors HL_E_IO: nothing committed before is touched, the partial folder is removed as far as
 * possible, and the diagnostic says what happened and what to do (free N MiB, make writable ...).
 * Then keeps the newest save_total_limit checkpoints (0 = all), removing old ones only after this
 * one is committed. */
enum hl_status hl_checkpoint_save(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                  const struct hl_checkpoint *checkpoint, int64_t save_total_limit,
                                  struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;

/* The newest complete checkpoint under output_dir (manifest present, sizes right): its path into
 * path_out (capacity bytes). Newest is the one saved last, even when a run that was resumed from an
 * older step now saves lower step numbers. Broken ones are named in the log. HL_END: none.
 * Leftovers of interrupted saves are named. */
enum hl_status hl_checkpoint_latest(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                    char *path_out, size_t capacity, struct hl_log *log,
                                    struct hl_diag *diag) HL_MUST_CHECK;

/* An opened checkpoint folder, ours or any Hugging Face folder (then there is no state and no
 * manifest). Verifies the manifest's checksums. */
struct hl_checkpoint_reader;
enum hl_status hl_checkpoint_open(struct hl_mem *mem, struct hl_fs *fs, const char *folder,
                                  struct hl_checkpoint_reader **out, struct hl_log *log,
                                  struct hl_diag *diag) HL_MUST_CHECK;
void hl_checkpoint_close(struct hl_checkpoint_reader *reader);
const struct hl_model_config *hl_checkpoint_config(const struct hl_checkpoint_reader *reader);
bool hl_checkpoint_has_state(const struct hl_checkpoint_reader *reader);
const char *hl_checkpoint_loop_json(const struct hl_checkpoint_reader *reader); /* NULL: none */
const char *hl_checkpoint_made_with_json(const struct hl_checkpoint_reader *reader);
const char *hl_checkpoint_run_yaml(const struct hl_checkpoint_reader *reader); /* NULL: none */
/* Fill params f32 [n_parameters] of a model built from the same config. Every tensor of the file
 * must be used and every tensor of the model found: otherwise the names are listed. Accepts f32,
 * bf16, f16; one file or an index of several. */
enum hl_status hl_checkpoint_read_params(struct hl_checkpoint_reader *reader,
                                         const struct hl_model *model, float *params,
                                         struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_checkpoint_read_array(struct hl_checkpoint_reader *reader,
                                        const struct hl_saved_array *array,
                                        struct hl_diag *diag) HL_MUST_CHECK;

/* The same for what is kept in pieces. place: where tensor t goes ([t->n], padding included; NULL:
 * memory is short); placed: it is there now. The next tensor may use the same place. */
struct hl_checkpoint_sink {
    float *(*place)(void *context, const struct hl_tensor *tensor);
    void (*placed)(void *context, const struct hl_tensor *tensor, const float *data);
    void *context;
};
enum hl_status hl_checkpoint_read_tensors(struct hl_checkpoint_reader *reader,
                                          const struct hl_model *model,
                                          const struct hl_checkpoint_sink *sink,
                                          struct hl_diag *diag) HL_MUST_CHECK;
/* Elements first .. first + n - 1 of a saved array of `whole` elements. */
enum hl_status hl_checkpoint_read_part(struct hl_checkpoint_reader *reader, const char *name,
                                       int64_t whole, int64_t first, int64_t n, float *out,
                                       struct hl_diag *diag) HL_MUST_CHECK;

/* config.json text <-> config. Unknown keys that change the maths are refused by name (dropout > 0,
 * sliding_window in use, unknown rope types, other activations); keys that do not are ignored. Both
 * rope spellings are read and written. */
enum hl_status hl_model_config_from_json(struct hl_mem *mem, const char *text, const char *file,
                                         struct hl_model_config *out,
                                         struct hl_diag *diag) HL_MUST_CHECK;
void hl_model_config_to_json(const struct hl_model_config *config, struct hl_buf *out);

#endif
