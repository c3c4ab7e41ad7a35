/* trace: what a rank does with its wire, as Trace Event JSON. One row ("thread") for a lane's
 * writes and one for each stream it reads, because parts of several streams are held at once; one
 * for the rank's own work, to see what goes on beside it. See wrappers.h; format: Trace Event
 * Format, "complete" events. */
#include <stdio.h>
#include <string.h>

#include "wires/wrap.h"

enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 256, ROWS_PER_LANE = 2 * HL_MAX_RANKS + 1 };
enum { WRITES = 0, SLEEPS = HL_MAX_LANES * ROWS_PER_LANE, WORK, N_ROWS };

struct trace {
    struct hl_wrap wrap; /* first */
    struct hl_wrap_world world;
    struct hl_fs *fs;
    int file;       /* -1: the disk refused */
    int64_t *since; /* [streams]: room or view since then; 0: none */
    bool told;      /* what the rank does, of which step, since when: */
    enum hl_phase phase;
    int64_t step, phase_since;
    bool named[N_ROWS];
    size_t used;
    char block[BLOCK_BYTES];
};

static struct trace *trace_of(struct hl_wire *wire) { return (struct trace *)(void *)wire; }

static void flush(struct trace *t) {
    if (t->file >= 0 && hl_fs_write_all(t->fs, t->file, t->block, t->used)) {
        (void)t->fs->close(t->fs, t->file);
        t->file = -1;
    }
    t->used = 0;
}

static void put(struct trace *t, const char *line, int n) {
    if (t->used + (size_t)n > BLOCK_BYTES) flush(t);
    memcpy(t->block + t->used, line, (size_t)n);
    t->used += (size_t)n;
}

static int row_of(const struct hl_wire *wire, struct hl_stream s) {
    int in_lane = s.from == wire->rank ? WRITES : 1 + 2 * s.from + (s.to == HL_EVERYONE);
    return s.lane * ROWS_PER_LANE + in_lane;
}

/* A row's title, before its first event. */
static void name_row(struct trace *t, int row, const char *title) {
    char line[LINE_BYTES];
    if (t->named[row]) return;
    t->named[row] = true;
    put(t, line,
        snprintf(line, sizeof line,
                 ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                 "\"args\":{\"name\":\"%s\"}}",
                 t->wrap.wire.rank, row, title));
}

static void event(struct trace *t, int row, const char *name, int64_t from_ns, int64_t bytes) {
    char line[LINE_BYTES];
    int64_t ns = hl_wrap_now(&t->world) - from_ns;
    put(t, line,
        snprintf(line, sizeof line,
                 ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d,"
                 "\"dur\":%lld.%03d,\"args\":{\"bytes\":%lld}}",
                 name, t->wrap.wire.rank, row, (long long)(from_ns / 1000), (int)(from_ns % 1000),
                 (long long)(ns / 1000), (int)(ns % 1000), (long long)bytes));
}

static void begin(struct hl_wire *wire, struct hl_stream s, enum hl_status status) {
    struct trace *t = trace_of(wire);
    int64_t *since = &t->since[hl_wrap_stream(wire, s)];
    if (status == HL_OK && !*since) *since = hl_wrap_now(&t->world);
}

static void end(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct trace *t = trace_of(wire);
    char title[64];
    int row = row_of(wire, s);
    int64_t *since = &t->since[hl_wrap_stream(wire, s)];
    bool writes = s.from == wire->rank;
    if (writes) (void)snprintf(title, sizeof title, "lane %d: sends", s.lane);
    else
        (void)snprintf(title, sizeof title, "lane %d: from %d%s", s.lane, s.from,
                       s.to == HL_EVERYONE ? " to all" : "");
    name_row(t, row, title);
    if (!writes) (void)snprintf(title, sizeof title, "read");
    else if (s.to == HL_EVERYONE) (void)snprintf(title, sizeof title, "send to all");
    else (void)snprintf(title, sizeof title, "send to %d", s.to);
    event(t, row, title, *since, (int64_t)bytes);
    *since = 0;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream s, void **room_out) {
    enum hl_status status = hl_wrap_reserve(wire, s, room_out);
    begin(wire, s, status);
    return status;
}
static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    enum hl_status status = hl_wrap_commit(wire, s, bytes);
    if (status == HL_OK) end(wire, s, bytes);
    return status;
}
static enum hl_status view(struct hl_wire *wire, struct hl_stream s, const void **data_out,
                           size_t *bytes_out) {
    enum hl_status status = hl_wrap_view(wire, s, data_out, bytes_out);
    begin(wire, s, status);
    return status;
}
static enum hl_status release(struct hl_wire *wire, struct hl_stream s) {
    const void *data;
    size_t bytes = 0;
    (void)hl_wrap_view(wire, s, &data, &bytes); /* its size once more */
    enum hl_status status = hl_wrap_release(wire, s);
    if (status == HL_OK) end(wire, s, bytes);
    return status;
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct trace *t = trace_of(wire);
    int64_t from = hl_wrap_now(&t->world);
    enum hl_status status = hl_wrap_wait(wire, timeout_ns);
    name_row(t, SLEEPS, "sleeps");
    event(t, SLEEPS, "sleep", from, 0);
    return status;
}

/* The rank's own work: a phase lasts until the next one begins. */
static void end_phase(struct trace *t) {
    char title[64];
    if (!t->told) return;
    (void)snprintf(title, sizeof title, "%s, step %lld", hl_phase_name(t->phase),
                   (long long)t->step);
    name_row(t, WORK, "works on");
    event(t, WORK, title, t->phase_since, 0);
}

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct trace *t = trace_of(wire);
    hl_wrap_tell(wire, phase, step);
    if (t->told && phase == t->phase && step == t->step) return;
    end_phase(t);
    t->told = true;
    t->phase = phase;
    t->step = step;
    t->phase_since = hl_wrap_now(&t->world);
}

static void close_trace(struct hl_wire *wire) {
    struct trace *t = trace_of(wire);
    static const char last[] = "\n]\n";
    end_phase(t);
    put(t, last, (int)sizeof last - 1);
    flush(t);
    if (t->file >= 0) (void)t->fs->close(t->fs, t->file);
    hl_free(t->wrap.mem, t->since);
    hl_wrap_close(wire);
}

const struct hl_wire_ops hl_trace_ops = {.reserve = reserve,
                                         .commit = commit,
                                         .view = view,
                                         .release = release,
                                         .wait = wait,
                                         .tell = tell,
                                         .peer = hl_wrap_peer,
                                         .give_up = hl_wrap_give_up,
                                         .close = close_trace};

static enum hl_status open_file(struct trace *t, const char *path, struct hl_diag *diag) {
    char name[HL_PATH_CAPACITY];
    if (snprintf(name, sizeof name, "%s-rank%d.json", path, t->wrap.wire.rank) >= (int)sizeof name)
        return hl_fail(diag, HL_E_USER, "trace: the file's name is too long");
    t->file = t->fs->open(t->fs, name, HL_FS_CREATE);
    if (t->file < 0) return hl_fail(diag, HL_E_IO, "trace: %s cannot be written: %m", name);
    put(t, name,
        snprintf(name, sizeof name,
                 "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,"
                 "\"args\":{\"name\":\"rank %d\"}}",
                 t->wrap.wire.rank, t->wrap.wire.rank));
    return HL_OK;
}

enum hl_status hl_wire_trace(struct hl_mem *mem, struct hl_wire *inner, const char *path,
                             const struct hl_wrap_world *world, struct hl_wire **out,
                             struct hl_diag *diag) {
    size_t n = hl_wrap_n_streams(inner);
    struct trace *t = hl_alloc(mem, 1, sizeof *t);
    int64_t *since = hl_alloc(mem, n, sizeof *since);
    enum hl_status status = HL_OK;
    if (!t || !since) status = hl_fail_memory(diag, sizeof *t + n * sizeof *since, "a trace");
    if (status == HL_OK) {
        t->world = *world;
        t->fs = world->fs ? world->fs : hl_fs_os();
        t->since = since;
        hl_wrap_init(&t->wrap, &hl_trace_ops, "trace", mem, inner);
        status = open_file(t, path, diag);
    }
    if (status != HL_OK) {
        hl_free(mem, t);
        hl_free(mem, since);
        return status;
    }
    *out = &t->wrap.wire;
    return HL_OK;
}
