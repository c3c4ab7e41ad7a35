/* See board.h. */
#include "cluster/board.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its first part is written by its rank alone, the view by the launcher. `place` is one word, so
 * that a reader never sees half of a change. */
struct line {
    uint64_t place;  /* (step << 8) + phase + 1; 0: nothing yet */
    uint64_t status; /* written last; 0: it did not give up */
    char why[240];
    uint64_t awaits;
    _Alignas(64) int64_t view_rank;
    int64_t view_n_ranks;
    uint64_t view_generation; /* written last */
    uint64_t broken;
};

static struct line *line_of(const struct hl_board *b, int entry) {
    return (struct line *)b->memory.data + entry;
}

enum hl_status hl_board_new(int n, struct hl_board *out, struct hl_diag *diag) {
    struct hl_board board = {.n = n};
    enum hl_status status = hl_inherited_new((size_t)n * sizeof(struct line), &board.memory, diag);
    if (status == HL_OK) *out = board;
    return status;
}

/* The launcher's descriptor, here. -1: it cannot be had */
static int descriptor(long pid, int fd) {
    char path[64];
    if (pid == (long)getppid()) return fd;
    (void)snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

enum hl_status hl_board_from_environment(int rank, struct hl_board *out, int *entry_out,
                                         struct hl_diag *diag) {
    const char *text = getenv("HALLEY_BOARD");
    struct hl_board board = {.n = 0};
    int fd, entry;
    long pid;
    if (!text || !*text) return HL_END;
    if (sscanf(text, "%ld:%d:%d:%d", &pid, &fd, &board.n, &entry) != 4 || fd < 0 || board.n < 1 ||
        board.n > 4096 || entry < -1 || entry >= board.n)
        return hl_fail(diag, HL_E_USER, "HALLEY_BOARD=%s is not what a launcher sets; unset it",
                       text);
    if (entry < 0) entry = rank;
    fd = descriptor(pid, fd);
    if (fd < 0 || entry >= board.n) return HL_END;
    enum hl_status status =
        hl_inherited_open(fd, (size_t)board.n * sizeof(struct line), &board.memory, diag);
    if (status != HL_OK) return HL_END;
    *out = board;
    *entry_out = entry;
    return HL_OK;
}

void hl_board_variable(const struct hl_board *board, int entry, char *out, size_t capacity) {
    (void)snprintf(out, capacity, "HALLEY_BOARD=%ld:%d:%d:%d", (long)getpid(), board->memory.fd,
                   board->n, entry);
}

void hl_board_close(struct hl_board *board) { hl_inherited_close(&board->memory); }

void hl_board_tell(struct hl_board *board, int entry, int phase, int64_t step) {
    uint64_t place = ((uint64_t)step << 8) + (uint64_t)phase + 1;
    __atomic_store_n(&line_of(board, entry)->place, place, __ATOMIC_RELAXED);
}

void hl_board_give_up(struct hl_board *board, int entry, int status, const char *why) {
    struct line *line = line_of(board, entry);
    (void)snprintf(line->why, sizeof line->why, "%s", why);
    __atomic_store_n(&line->status, (uint64_t)status, __ATOMIC_RELEASE);
}

void hl_board_await(struct hl_board *board, int entry, uint64_t generation) {
    __atomic_store_n(&line_of(board, entry)->awaits, generation, __ATOMIC_RELEASE);
}

void hl_board_read(const struct hl_board *board, int entry, struct hl_board_entry *out) {
    const struct line *line = line_of(board, entry);
    uint64_t place = __atomic_load_n(&line->place, __ATOMIC_RELAXED);
    *out = (struct hl_board_entry){.phase = (int)(place & 255) - 1, .step = (int64_t)(place >> 8)};
    out->awaits = __atomic_load_n(&line->awaits, __ATOMIC_ACQUIRE);
    out->status = (int)__atomic_load_n(&line->status, __ATOMIC_ACQUIRE);
    if (out->status)
        (void)snprintf(out->why, sizeof out->why, "%.*s", (int)sizeof line->why - 1, line->why);
}

void hl_board_publish(struct hl_board *board, int entry, const struct hl_board_view *view) {
    struct line *line = line_of(board, entry);
    line->view_rank = view->rank;
    line->view_n_ranks = view->n_ranks;
    __atomic_store_n(&line->view_generation, view->generation, __ATOMIC_RELEASE);
}

void hl_board_break(struct hl_board *board, uint64_t generation) {
    for (int i = 0; i < board->n; i++)
        __atomic_store_n(&line_of(board, i)->broken, generation, __ATOMIC_RELEASE);
}

void hl_board_forget(struct hl_board *board, int entry) {
    *line_of(board, entry) = (struct line){.place = 0};
}

void hl_board_look(const struct hl_board *board, int entry, struct hl_board_view *out) {
    const struct line *line = line_of(board, entry);
    out->generation = __atomic_load_n(&line->view_generation, __ATOMIC_ACQUIRE);
    out->rank = (int)line->view_rank;
    out->n_ranks = (int)line->view_n_ranks;
    out->broken = __atomic_load_n(&line->broken, __ATOMIC_ACQUIRE);
}
