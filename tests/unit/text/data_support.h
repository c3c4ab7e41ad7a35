/* Small things the tests of data share: a scratch folder, files in it, a log that remembers. */
#ifndef TESTS_DATA_SUPPORT_H
#define TESTS_DATA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* needs what stands above */

#include "halley/data.h"

struct notes {
    struct hl_log log;
    int n_warn, n_info;
    char text[16384]; /* every line, one after another */
};

static void note_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    struct notes *notes = log->context;
    notes->n_warn += level >= HL_LOG_WARN;
    notes->n_info += level == HL_LOG_INFO;
    size_t used = strlen(notes->text);
    (void)snprintf(notes->text + used, sizeof notes->text - used, "%s\n", text);
}

static inline void notes_init(struct notes *notes) {
    *notes = (struct notes){.log = {note_line, HL_LOG_DEBUG, notes}};
}

struct scratch {
    char folder[64];
};

static inline void scratch_make(struct scratch *scratch) {
    (void)snprintf(scratch->folder, sizeof scratch->folder, "/tmp/halley-test-XXXXXX");
    assert_non_null(mkdtemp(scratch->folder));
}

static inline void scratch_remove(struct scratch *scratch) {
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", scratch->folder);
    assert_int_equal(system(command), 0);
}

static inline char *scratch_path(const struct scratch *scratch, const char *name, char out[256]) {
    (void)snprintf(out, 256, "%s/%s", scratch->folder, name);
    return out;
}

static inline char *scratch_write(const struct scratch *scratch, const char *name,
                                  const void *bytes, size_t n, char out[256]) {
    FILE *file = fopen(scratch_path(scratch, name, out), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return out;
}

struct fixture {
    struct scratch scratch;
    struct hl_mem_probe probe;
    struct hl_tokenizer *tokenizer;
    struct notes notes;
    struct hl_diag diag;
};

static inline void fixture_make(struct fixture *fixture) {
    scratch_make(&fixture->scratch);
    hl_mem_probe_init(&fixture->probe, 0);
    notes_init(&fixture->notes);
    assert_int_equal(hl_tokenizer_byte(&fixture->probe.mem, &fixture->tokenizer, &fixture->diag),
                     HL_OK);
}

static inline void fixture_remove(struct fixture *fixture) {
    hl_tokenizer_free(fixture->tokenizer);
    assert_int_equal(fixture->probe.n_live, 0);
    scratch_remove(&fixture->scratch);
}

static inline struct hl_data_options options_for(char **paths, size_t n, int64_t block_size) {
    return (struct hl_data_options){.data = {paths, n},
                                    .validation_split = 0.1,
                                    .text_key = (char *)(uintptr_t) "text",
                                    .block_size = block_size,
                                    .document_mask = true,
                                    .seed = 7,
                                    .cache_dir = (char *)(uintptr_t) ""};
}

static inline struct hl_dataset *open_data(struct fixture *fixture,
                                           const struct hl_data_options *options) {
    struct hl_dataset *dataset = NULL;
    enum hl_status status = hl_dataset_open(&fixture->probe.mem, options, fixture->tokenizer, 1,
                                            &fixture->notes.log, &dataset, &fixture->diag);
    if (status) fail_msg("%s", fixture->diag.text);
    return dataset;
}

static inline void check_shape(const struct hl_batch *batch) {
    int64_t supervised = 0;
    assert_true(batch->n_sequences >= 1);
    assert_int_equal(batch->offsets[0], 0);
    assert_int_equal(batch->offsets[batch->n_sequences], batch->n_tokens);
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        assert_true(batch->offsets[s] < batch->offsets[s + 1]);
        for (int64_t i = batch->offsets[s]; i < batch->offsets[s + 1]; i++) {
            assert_int_equal(batch->position_N[i], i - batch->offsets[s]);
            supervised += batch->target_N[i] >= 0;
        }
    }
    assert_int_equal(supervised, batch->n_supervised);
}

#endif
