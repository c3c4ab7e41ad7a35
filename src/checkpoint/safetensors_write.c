/* Writing safetensors as a stream: tensors go from where they lie to the file, transposed ones
 * through a small buffer. See safetensors.h. Little-endian machines only, as the rest of Halley. */
#include <assert.h>
#include <string.h>

#include "checkpoint/safetensors.h"

enum { BUFFER_FLOATS = 1 << 20, TILE = 16 };

/* Offsets are relative to the data part; the header is padded with spaces so that the data starts
 * at a multiple of 8. */
static void build_header(struct hl_buf *json, const struct hl_st_plan_row *rows, int n_rows) {
    hl_buf_puts(json, "{\"__metadata__\":{\"format\":\"pt\"}");
    int64_t at = 0;
    for (int i = 0; i < n_rows; i++) {
        const struct hl_st_plan_row *row = &rows[i];
        int64_t n = row->n_dims == 1 ? row->shape[0] : row->shape[0] * row->shape[1];
        hl_buf_puts(json, ",");
        hl_buf_json_string(json, row->name);
        hl_buf_printf(json, ":{\"dtype\":\"F32\",\"shape\":[%lld", (long long)row->shape[0]);
        if (row->n_dims == 2) hl_buf_printf(json, ",%lld", (long long)row->shape[1]);
        hl_buf_printf(json, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                      (long long)(at + 4 * n));
        at += 4 * n;
    }
    hl_buf_puts(json, "}");
    while (json->n % 8 && !json->failed) hl_buf_puts(json, " ");
}

/* Rows first .. first + n - 1 of the file's [R, S] matrix, from memory [S, R]. */
static void gather(const float *data_SR, int64_t R, int64_t S, int64_t first, int64_t n,
                   float *out_nS) {
    for (int64_t s0 = 0; s0 < S; s0 += TILE)
        for (int64_t r0 = 0; r0 < n; r0 += TILE) {
            int64_t s_end = s0 + TILE < S ? s0 + TILE : S, r_end = r0 + TILE < n ? r0 + TILE : n;
            for (int64_t r = r0; r < r_end; r++)
                for (int64_t s = s0; s < s_end; s++) out_nS[r * S + s] = data_SR[s * R + first + r];
        }
}

static enum hl_status write_transposed(struct hl_out_file *out, const struct hl_st_plan_row *row,
                                       const float *data, float *buffer, int64_t room,
                                       struct hl_diag *diag) {
    int64_t R = row->shape[0], S = row->shape[1], step = room / S;
    for (int64_t first = 0; first < R; first += step) {
        int64_t n = R - first < step ? R - first : step;
        gather(data, R, S, first, n, buffer);
        enum hl_status status = hl_out_write(out, buffer, (size_t)(n * S) * sizeof *buffer, diag);
        if (status) return status;
    }
    return HL_OK;
}

static enum hl_status write_turned(struct hl_mem *mem, struct hl_out_file *out,
                                   const struct hl_st_plan_row *row, const float *data, int64_t n,
                                   struct hl_diag *diag) {
    int64_t room = row->shape[1] > BUFFER_FLOATS ? row->shape[1] : BUFFER_FLOATS;
    if (room > n) room = n;
    float *buffer = hl_alloc(mem, (size_t)room, sizeof *buffer);
    if (!buffer)
        return hl_fail_memory(diag, (size_t)room * sizeof *buffer, "writing a transposed matrix");
    enum hl_status status = write_transposed(out, row, data, buffer, room, diag);
    hl_free(mem, buffer);
    return status;
}

/* All of a row, or as much as the source has in one piece. */
static enum hl_status take(const struct hl_st_plan_row *row, int64_t done, int64_t left,
                           const float **data, int64_t *n, struct hl_diag *diag) {
    *n = left;
    *data = row->data + done;
    if (row->data) return HL_OK;
    return row->source->fetch(row->source->context, row->array, row->first + done, left, data, n,
                              diag);
}

static enum hl_status write_row(struct hl_mem *mem, struct hl_out_file *out,
                                const struct hl_st_plan_row *row, struct hl_diag *diag) {
    int64_t n = row->n_dims == 1 ? row->shape[0] : row->shape[0] * row->shape[1];
    for (int64_t done = 0; done < n;) {
        const float *data;
        int64_t piece;
        enum hl_status status = take(row, done, n - done, &data, &piece, diag);
        if (status == HL_OK && row->transposed) {
            assert(piece == n);
            status = write_turned(mem, out, row, data, n, diag);
        } else if (status == HL_OK)
            status = hl_out_write(out, data, (size_t)piece * sizeof *data, diag);
        if (status != HL_OK) return status;
        done += piece;
    }
    return HL_OK;
}

enum hl_status hl_st_write(struct hl_mem *mem, struct hl_out_file *out,
                           const struct hl_st_plan_row *rows, int n_rows, struct hl_diag *diag) {
    struct hl_buf json = {.mem = mem};
    build_header(&json, rows, n_rows);
    if (json.failed) {
        hl_buf_free(&json);
        return hl_fail_memory(diag, json.capacity, "a safetensors header");
    }
    unsigned char length[HL_ST_PREFIX];
    for (int i = 0; i < HL_ST_PREFIX; i++) length[i] = (unsigned char)((uint64_t)json.n >> (8 * i));
    enum hl_status status = hl_out_write(out, length, sizeof length, diag);
    if (!status) status = hl_out_write(out, json.data, json.n, diag);
    hl_buf_free(&json);
    for (int i = 0; i < n_rows && !status; i++) status = write_row(mem, out, &rows[i], diag);
    return status;
}
