/* tokenizer.json from a stranger: it is refused, or it gives a tokenizer that writes itself back
 * and round-trips text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "text/tokenizer_internal.h"

static void require(int holds) {
    if (!holds) abort();
}

static void check_writing(const struct hl_tokenizer *t) {
    struct hl_buf json = {.mem = hl_mem_default()};
    struct hl_tokenizer *again = NULL;
    require(hl_tokenizer_to_json(t, &json, NULL) == HL_OK);
    require(hl_tokenizer_from_json(hl_mem_default(), json.data, json.n, "", &again, NULL) == HL_OK);
    require(hl_tokenizer_hash(t) == hl_tokenizer_hash(again));
    hl_tokenizer_free(again);
    hl_buf_free(&json);
}

static void check_text(const struct hl_tokenizer *t, const char *text, size_t n) {
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    struct hl_buf back = {.mem = hl_mem_default()};
    if (hl_tokenizer_encode(t, text, n, false, &tokens, NULL) == HL_OK) {
        require(hl_tokenizer_decode(t, tokens.ids, tokens.n, true, &back, NULL) == HL_OK);
        for (size_t i = 0; i < tokens.n; i++) require(tokens.ids[i] < hl_tokenizer_vocab_size(t));
    }
    tokens.n = 0;
    (void)!hl_tokenizer_encode(t, text, n, true, &tokens, NULL);
    hl_tokens_free(&tokens);
    hl_buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char text[] = "abc ab a  bc\r\n'll 12 \xE6\x97\xA5<|endoftext|><x>";
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag;
    enum hl_status status =
        hl_tokenizer_from_json(hl_mem_default(), (const char *)data, n, "fuzz", &t, &diag);
    if (status != HL_OK) {
        require(status == HL_E_FORMAT || status == HL_E_UNSUPPORTED);
        require(t == NULL && diag.status == status && strncmp(diag.text, "fuzz", 4) == 0);
        return 0;
    }
    check_writing(t);
    check_text(t, text, sizeof text - 1);
    check_text(t, (const char *)data, n);
    hl_tokenizer_free(t);
    return 0;
}
