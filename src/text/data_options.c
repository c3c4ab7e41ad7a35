/* Options of the data room; see halley/data.h. */
#include "halley/data.h"

#define AT(field) .offset = offsetof(struct hl_data_options, field), .section = "data"

const struct hl_option hl_data_rows[] = {
    {.name = "data", .kind = HL_OPT_LIST, AT(data), .aliases = "train_file train_files dataset datasets data_path input_bin",
     .help = "text (.txt, .jsonl), shards (.hls, llm.c's .bin) or globs; 'weight:path' for each one mixes them"},
    {.name = "validation_data", .kind = HL_OPT_LIST, AT(validation_data), .aliases = "validation_file eval_file eval_data valid_data_path val_bin",
     .help = "files to validate on; without them a part of the data is held out"},
    {.name = "validation_split", .kind = HL_OPT_F64, AT(validation_split), .initial = "0.1", .least = 0, .most = 0.9,
     .aliases = "val_size val_set_size",
     .help = "share that is held out: whole documents, or with fewer than 20 the end of the text; 0 = none"},
    {.name = "text_key", .kind = HL_OPT_STRING, AT(text_key), .initial = "text", .aliases = "text_column text_field json_key",
     .help = "key of the text in each JSONL row"},
    {.name = "text_format", .kind = HL_OPT_CHOICE, AT(text_format), .initial = "auto", .choices = "auto document lines jsonl",
     .help = "document: a file is one document; lines: each line is one; auto: by the file's name"},
    {.name = "block_size", .kind = HL_OPT_I64, AT(block_size), .initial = "256", .least = 1, .most = 16777216, .unit = "tokens",
     .aliases = "seq_length max_length sequence_length sequence_len seq_len cutoff_len max_seq_length max_context_length",
     .help = "tokens in a row: the length of context that is trained"},
    {.name = "document_mask", .kind = HL_OPT_BOOL, AT(document_mask), .initial = "true",
     .aliases = "reset_attention_mask packing_mask", .help = "documents that share a row do not see each other"},
    {.name = "strict", .kind = HL_OPT_BOOL, AT(strict), .initial = "false",
     .help = "a line that cannot be read stops the run instead of being skipped and counted"},
    {.name = "cache_dir", .kind = HL_OPT_STRING, AT(cache_dir), .aliases = "data_cache_dir data_cache_path",
     .help = "folder that keeps the tokens of large text inputs for the next run; empty = memory only"},
};
const size_t hl_data_n_rows = sizeof hl_data_rows / sizeof *hl_data_rows;
