/* Learning a byte-level BPE from text. */
#ifndef HALLEY_TEXT_BPE_TRAIN_H
#define HALLEY_TEXT_BPE_TRAIN_H

#include "halley/data.h"

/* Where the text comes from, piece by piece; embed it in your own struct. A piece is a document or
 * a large part of one: words do not go across its ends. */
struct hl_text_source {
    /* HL_OK with the next piece, borrowed until the next call; HL_END after the last one; anything
     * else stops the training with that status. Pieces must be valid UTF-8. */
    enum hl_status (*next)(struct hl_text_source *source, const char **text, size_t *n,
                           struct hl_diag *diag);
};

/* Train with GPT-2's pre-tokenizer. Ids: the 256 bytes, then merged tokens in the order they were
 * learned, then
 * <|endoftext|>.
 *
 * Each step merges the pair that is most frequent in the text; of equally frequent pairs the one
 * with the smaller left id, then the smaller right id. Overlapping places count ("aaa" holds the
 * pair a,a twice). So the result depends only on the counts of words, not on the order of the text.
 * Training ends early, with a warning, when no pair occurs twice.
 *
 * vocab_size  bytes and <|endoftext|> included: at least 257
 * out         may have fewer tokens than asked for (see above)
 * returns     HL_E_USER vocab_size out of range, or no text at all; HL_E_FORMAT invalid UTF-8, with
 * its place cost        n log n in the bytes of different words; memory about 40 bytes for each of
 * these source      Sennrich et al. 2016 (arXiv:1508.07909), on the byte alphabet of Radford et al.
 * 2019 */
enum hl_status hl_bpe_train(struct hl_mem *mem, struct hl_text_source *source, int64_t vocab_size,
                            struct hl_tokenizer **out, struct hl_log *log,
                            struct hl_diag *diag) HL_MUST_CHECK;

#endif
