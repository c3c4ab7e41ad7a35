/* From the tensors of a file to the flat parameter vector and back to arrays of state, in pieces of
 * a few MiB.
 *
 * Every tensor of the file must find its place and every place its tensor, otherwise the names are
 * listed: a bias that nobody reads is a wrong model. Known buffers (attention masks, rotary
 * frequencies) hold no weights and are passed over. */
#include <stdio.h>
#include <string.h>

#include "checkpoint/reader.h"

enum { PIECE_FLOATS = 1 << 20, TILE = 16, NAMES_SHOWN = 6 };

struct filler {
    struct hl_checkpoint_reader *reader;
    const struct hl_model *model;
    const struct hl_checkpoint_sink *sink;
    float *piece;  /* [piece_floats] */
    void *scratch; /* as many bytes as the piece */
    int64_t piece_floats;
    struct hl_diag *diag;
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool is_buffer(const char *name) {
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}

/* Files of the bare model (as GPT-2's on the hub) lack the first part of the name. */
static const char *bare(const char *name) {
    if (!strncmp(name, "transformer.", 12)) return name + 12;
    if (!strncmp(name, "model.", 6)) return name + 6;
    return name;
}

struct found {
    const struct hl_st_file *file;
    struct hl_st_tensor *tensor;
    bool twice;
};

static struct found find(const struct hl_checkpoint_reader *r, const char *name) {
    struct found found = {0};
    for (int i = 0; i < r->n_files; i++)
        for (int t = 0; t < r->files[i].table.n_tensors; t++) {
            struct hl_st_tensor *tensor = &r->files[i].table.tensors[t];
            if (strcmp(tensor->name, name) != 0 && strcmp(tensor->name, bare(name)) != 0) continue;
            found.twice = found.tensor != NULL;
            found.file = &r->files[i];
            found.tensor = tensor;
        }
    return found;
}

/* ---- one tensor ---- */

static enum hl_status check_shape(const struct filler *f, const struct hl_tensor *t,
                                  const struct found *found) {
    const struct hl_st_tensor *x = found->tensor;
    int64_t first = t->n_dims == 1 || t->file_transposed ? t->cols : t->rows,
            second = t->file_transposed ? t->rows : t->cols;
    bool fits =
        x->n_dims == t->n_dims && x->shape[0] == first && (t->n_dims == 1 || x->shape[1] == second);
    if (fits) return HL_OK;
    char has[128] = "";
    for (int i = 0, n = 0; i < x->n_dims && n < (int)sizeof has - 24; i++)
        n += snprintf(has + n, sizeof has - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)x->shape[i]);
    char second_text[24] = "";
    if (t->n_dims == 2)
        (void)snprintf(second_text, sizeof second_text, ", %lld", (long long)second);
    return hl_fail_at(f->diag, HL_E_FORMAT, found->file->path, 0, 0,
                      "tensor '%.80s' is [%s]; by config.json it must be [%lld%s]", x->name, has,
                      (long long)first, second_text);
}

/* n rows of the file's [R, S] matrix, from row `first` on, into memory [S, R]. */
static void scatter(const float *in_nS, int64_t R, int64_t S, int64_t first, int64_t n,
                    float *out_SR) {
    for (int64_t s0 = 0; s0 < S; s0 += TILE)
        for (int64_t r0 = 0; r0 < n; r0 += TILE) {
            int64_t s_end = s0 + TILE < S ? s0 + TILE : S, r_end = r0 + TILE < n ? r0 + TILE : n;
            for (int64_t s = s0; s < s_end; s++)
                for (int64_t r = r0; r < r_end; r++) out_SR[s * R + first + r] = in_nS[r * S + s];
        }
}

static enum hl_status fill_transposed(const struct filler *f, const struct hl_tensor *t,
                                      const struct found *found, float *out) {
    int64_t R = t->cols, S = t->rows, step = f->piece_floats / S;
    for (int64_t first = 0; first < R; first += step) {
        int64_t n = R - first < step ? R - first : step;
        enum hl_status status =
            hl_st_read(found->file, found->tensor, first * S, n * S, f->piece, f->scratch, f->diag);
        if (status) return status;
        scatter(f->piece, R, S, first, n, out);
    }
    return HL_OK;
}

static enum hl_status fill_straight(const struct filler *f, const struct hl_tensor *t,
                                    const struct found *found, float *out) {
    int64_t n = t->rows * t->cols;
    for (int64_t first = 0; first < n; first += f->piece_floats) {
        int64_t take = n - first < f->piece_floats ? n - first : f->piece_floats;
        enum hl_status status =
            hl_st_read(found->file, found->tensor, first, take, out + first, f->scratch, f->diag);
        if (status) return status;
    }
    return HL_OK;
}

static enum hl_status fill(const struct filler *f, const struct hl_tensor *t, struct found *found) {
    enum hl_status status = check_shape(f, t, found);
    if (status) return status;
    float *out = f->sink->place(f->sink->context, t);
    if (!out) return hl_fail_memory(f->diag, (size_t)t->n * sizeof *out, "reading weights");
    status = (t->file_transposed ? fill_transposed : fill_straight)(f, t, found, out);
    if (status) return status;
    memset(out + t->rows * t->cols, 0, (size_t)(t->n - t->rows * t->cols) * sizeof *out);
    found->tensor->used = true;
    if (f->sink->placed) f->sink->placed(f->sink->context, t, out);
    return HL_OK;
}

/* ---- all of them ---- */

struct names {
    char text[512];
    int n;
};

static void add_name(struct names *names, const char *name) {
    size_t used = strlen(names->text);
    if (names->n < NAMES_SHOWN)
        (void)snprintf(names->text + used, sizeof names->text - used, "%s%.70s",
                       names->n ? ", " : "", name);
    names->n++;
}

static const char *and_more(const struct names *names, char out[40]) {
    out[0] = 0;
    if (names->n > NAMES_SHOWN) (void)snprintf(out, 40, " and %d more", names->n - NAMES_SHOWN);
    return out;
}

/* Do two tensors of the same shape hold the same numbers? */
static enum hl_status same_numbers(const struct filler *f, const struct found *a,
                                   const struct found *b, int64_t n, bool *same_out) {
    float *other = hl_alloc(f->reader->mem, (size_t)f->piece_floats, sizeof *other);
    enum hl_status status = HL_OK;
    if (!other)
        return hl_fail_memory(f->diag, (size_t)f->piece_floats * sizeof *other, "reading weights");
    *same_out = true;
    for (int64_t first = 0; first < n && !status && *same_out; first += f->piece_floats) {
        int64_t take = n - first < f->piece_floats ? n - first : f->piece_floats;
        status = hl_st_read(a->file, a->tensor, first, take, f->piece, f->scratch, f->diag);
        if (!status)
            status = hl_st_read(b->file, b->tensor, first, take, other, f->scratch, f->diag);
        *same_out = !status && !memcmp(f->piece, other, (size_t)take * sizeof *other);
    }
    hl_free(f->reader->mem, other);
    return status;
}

/* A tied model's file may repeat the embedding as lm_head. It must be the same, or nobody can tell
 * which one is meant. */
static enum hl_status check_tied_head(const struct filler *f) {
    struct found head = find(f->reader, "lm_head.weight");
    if (!head.tensor || !f->model->config.tie_word_embeddings) return HL_OK;
    const struct hl_tensor *tensor = &f->model->layout.tensors[0];
    struct found embedding = find(f->reader, tensor->name);
    bool same = false;
    enum hl_status status = check_shape(f, tensor, &head);
    if (!status) status = same_numbers(f, &head, &embedding, tensor->rows * tensor->cols, &same);
    if (!status && !same)
        status = hl_fail_at(f->diag, HL_E_FORMAT, head.file->path, 0, 0,
                            "tie_word_embeddings is true, but lm_head.weight differs from the "
                            "embedding; set it to false in "
                            "config.json to keep both, or remove lm_head.weight");
    head.tensor->used = true;
    return status;
}

static enum hl_status fill_all(const struct filler *f) {
    const struct hl_layout *layout = &f->model->layout;
    struct names missing = {0};
    char more[40];
    for (int i = 0; i < layout->n_tensors; i++) {
        struct found found = find(f->reader, layout->tensors[i].name);
        if (found.twice)
            return hl_fail_at(f->diag, HL_E_FORMAT, f->reader->folder, 0, 0,
                              "tensor '%s' is there twice", layout->tensors[i].name);
        if (!found.tensor) {
            add_name(&missing, layout->tensors[i].name);
            continue;
        }
        enum hl_status status = fill(f, &layout->tensors[i], &found);
        if (status) return status;
    }
    if (missing.n == 1 && !strcmp(missing.text, "lm_head.weight"))
        return hl_fail_at(f->diag, HL_E_FORMAT, f->reader->folder, 0, 0,
                          "lm_head.weight is missing while tie_word_embeddings is false; set it to "
                          "true in config.json if the "
                          "head is the embedding");
    if (missing.n)
        return hl_fail_at(f->diag, HL_E_FORMAT, f->reader->folder, 0, 0, "missing tensors: %s%s",
                          missing.text, and_more(&missing, more));
    return check_tied_head(f);
}

static enum hl_status check_unread(const struct filler *f) {
    struct names unread = {0}, buffers = {0};
    char more[40];
    for (int i = 0; i < f->reader->n_files; i++)
        for (int t = 0; t < f->reader->files[i].table.n_tensors; t++) {
            const struct hl_st_tensor *tensor = &f->reader->files[i].table.tensors[t];
            if (!tensor->used) add_name(is_buffer(tensor->name) ? &buffers : &unread, tensor->name);
        }
    if (buffers.n)
        hl_log(f->reader->log, HL_LOG_INFO, "%s: buffers without weights passed over: %s%s",
               f->reader->folder, buffers.text, and_more(&buffers, more));
    if (!unread.n) return HL_OK;
    return hl_fail_at(f->diag, HL_E_FORMAT, f->reader->folder, 0, 0,
                      "tensors that this model does not have: %s%s", unread.text,
                      and_more(&unread, more));
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* At least one row of the file; never more than the whole tensor. */
static int64_t piece_for(const struct hl_tensor *t) {
    int64_t n = t->rows * t->cols;
    return n < PIECE_FLOATS ? n : larger(PIECE_FLOATS, t->rows);
}

enum hl_status hl_checkpoint_read_tensors(struct hl_checkpoint_reader *reader,
                                          const struct hl_model *model,
                                          const struct hl_checkpoint_sink *sink,
                                          struct hl_diag *diag) {
    struct filler f = {.reader = reader, .model = model, .sink = sink, .diag = diag};
    for (int i = 0; i < model->layout.n_tensors; i++)
        f.piece_floats = larger(f.piece_floats, piece_for(&model->layout.tensors[i]));
    f.piece = hl_alloc(reader->mem, (size_t)f.piece_floats, sizeof *f.piece);
    f.scratch = hl_alloc(reader->mem, (size_t)f.piece_floats, sizeof(uint16_t));
    enum hl_status status;
    if (!f.piece || !f.scratch)
        status = hl_fail_memory(diag, (size_t)f.piece_floats * sizeof *f.piece, "reading weights");
    else status = fill_all(&f);
    if (!status) status = check_unread(&f);
    hl_free(reader->mem, f.piece);
    hl_free(reader->mem, f.scratch);
    return status;
}

static float *place_whole(void *params, const struct hl_tensor *tensor) {
    return (float *)params + tensor->offset;
}

enum hl_status hl_checkpoint_read_params(struct hl_checkpoint_reader *reader,
                                         const struct hl_model *model, float *params,
                                         struct hl_diag *diag) {
    const struct hl_checkpoint_sink whole = {.place = place_whole, .context = params};
    return hl_checkpoint_read_tensors(reader, model, &whole, diag);
}

enum hl_status hl_checkpoint_read_part(struct hl_checkpoint_reader *reader, const char *name,
                                       int64_t whole, int64_t first, int64_t n, float *out,
                                       struct hl_diag *diag) {
    for (int t = 0; t < reader->state.table.n_tensors; t++) {
        const struct hl_st_tensor *tensor = &reader->state.table.tensors[t];
        if (strcmp(tensor->name, name) != 0) continue;
        if (tensor->dtype != HL_ST_F32 || tensor->n != whole)
            return hl_fail_at(diag, HL_E_FORMAT, reader->state.path, 0, 0,
                              "state '%.80s' has %lld numbers of type %s, this run needs %lld of "
                              "F32; was the model or optimizer "
                              "changed?",
                              name, (long long)tensor->n, tensor->dtype_name, (long long)whole);
        return hl_st_read(&reader->state, tensor, first, n, out, out, diag);
    }
    return hl_fail_at(
        diag, HL_E_FORMAT, reader->folder, 0, 0,
        "holds no state '%.80s'; was another optimizer or strategy used when it was saved?", name);
}

enum hl_status hl_checkpoint_read_array(struct hl_checkpoint_reader *reader,
                                        const struct hl_saved_array *array, struct hl_diag *diag) {
    return hl_checkpoint_read_part(reader, array->name, array->n, 0, array->n, array->data, diag);
}
