/* The progress line: where a run is, how well it learns, how fast it goes, when it ends.
 *
 * On a terminal one line, rewritten in place by one write of "carriage return, text, erase the
 * rest", so that it neither flickers nor mixes with a line printed above it. It never wraps: fields
 * leave in the order of their rank until the line fits the window, and the bar takes what is left.
 * Piped: one plain line per log step, words before numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/report.h"
#include "halley/text_number.h"
#include "os/clock.h"
#include "os/terminal.h"
#include "report/utf8.h"
#include "report/words.h"

enum { MIN_NS_BETWEEN_DRAWS = 66 * 1000000, MAX_FIELDS = 8, BAR_MIN = 8, BAR_MAX = 24 };

struct hl_progress {
    struct hl_mem *mem;
    int fd;
    bool terminal, colour, utf8;
    bool drawn; /* the cursor stands behind a progress line */
    bool stale; /* state is newer than what is drawn */
    int64_t drawn_ns;
    struct hl_progress_state state;
    struct hl_buf text;
};

enum hl_status hl_progress_new(struct hl_mem *mem, int fd, struct hl_progress **out,
                               struct hl_diag *diag) {
    struct hl_progress *progress = hl_alloc(mem, 1, sizeof *progress);
    if (!progress) return hl_fail_memory(diag, sizeof *progress, "the progress line");
    progress->mem = progress->text.mem = mem;
    progress->fd = fd;
    progress->terminal = hl_terminal_is(fd);
    progress->colour = progress->terminal && hl_terminal_colour();
    progress->utf8 = hl_terminal_utf8();
    *out = progress;
    return HL_OK;
}

/* ---- fields ---- */

static void print_norm(char *out, double value) {
    if (fabs(value) < 1000) hl_print_fixed(out, HL_WORDS, value, fabs(value) < 100 ? 2 : 1);
    else hl_words_rate(out, value);
}

static void print_loss(char *out, double value) {
    if (fabs(value) < 1e6) hl_print_fixed(out, HL_WORDS, value, 4);
    else hl_words_rate(out, value);
}

struct field {
    const char *name;
    char value[HL_WORDS];
    int rank;
    bool alarm;
}; /* highest rank leaves first */

static int fill_fields(const struct hl_progress_state *s, struct field *fields) {
    struct field *f = fields;
    *f = (struct field){.name = "loss", .rank = 0, .alarm = !isfinite(s->loss)};
    print_loss(f++->value, s->loss);
    if (!isnan(s->eval_loss)) {
        *f = (struct field){.name = "eval", .rank = 6};
        print_loss(f++->value, s->eval_loss);
    }
    *f = (struct field){.name = "lr", .rank = 5};
    hl_words_rate(f++->value, s->learning_rate);
    *f = (struct field){.name = "norm", .rank = 4, .alarm = !isfinite(s->grad_norm)};
    print_norm(f++->value, s->grad_norm);
    *f = (struct field){.name = "tok/s", .rank = 2};
    hl_words_count(f++->value, s->tokens_per_second);
    *f = (struct field){.name = "peak", .rank = 3};
    hl_words_percent(f++->value, s->peak_share);
    *f = (struct field){.name = "ETA", .rank = 1};
    hl_words_duration(f++->value, s->eta_seconds);
    return (int)(f - fields);
}

static void print_steps(char *out, size_t capacity, const struct hl_progress_state *s,
                        const char *word) {
    if (s->max_steps <= 0) {
        (void)snprintf(out, capacity, "step %lld", (long long)s->step);
        return;
    }
    char max[24];
    int width = snprintf(max, sizeof max, "%lld", (long long)s->max_steps);
    (void)snprintf(out, capacity, "%s%*lld/%s", word, width, (long long)s->step, max);
}

/* ---- drawing ---- */

static void paint(struct hl_progress *progress, const char *code, const char *text) {
    if (progress->colour) hl_buf_printf(&progress->text, "\033[%sm%s\033[0m", code, text);
    else hl_buf_puts(&progress->text, text);
}

static void put_bar(struct hl_progress *progress, int columns) {
    const struct hl_progress_state *s = &progress->state;
    double share = s->max_steps > 0 ? (double)s->step / (double)s->max_steps : 0;
    int full = (int)(fmin(fmax(share, 0), 1) * columns);
    char done[BAR_MAX * 3 + 1] = "", rest[BAR_MAX * 3 + 1] = "";
    for (int i = 0; i < columns; i++) {
        bool is_full = i < full;
        (void)strcat(is_full ? done : rest,
                     progress->utf8 ? (is_full ? "━" : "─") : (is_full ? "=" : "-"));
    }
    hl_buf_puts(&progress->text, " ");
    paint(progress, "36", done);
    paint(progress, "2", rest);
}

static int field_columns(const struct field *f) {
    return 3 + (int)(strlen(f->name) + strlen(f->value));
}

/* Drop fields until the line fits; how many columns it then takes. */
static int fit(struct field *fields, int *n, int steps_columns, int columns) {
    for (;;) {
        int width = steps_columns, worst = 0;
        for (int i = 0; i < *n; i++) {
            width += field_columns(&fields[i]);
            if (fields[i].rank > fields[worst].rank) worst = i;
        }
        if (width <= columns || !*n) return width;
        for (int i = worst; i + 1 < *n; i++) fields[i] = fields[i + 1];
        --*n;
    }
}

static void put_state(struct hl_progress *progress) {
    struct field fields[MAX_FIELDS];
    char steps[64];
    int columns =
        hl_terminal_columns(progress->fd) - 1; /* the last column would make some terminals wrap */
    print_steps(steps, sizeof steps, &progress->state, "");
    if ((int)strlen(steps) > columns) steps[columns > 0 ? columns : 0] = 0;
    int n = fill_fields(&progress->state, fields);
    int free_columns = columns - fit(fields, &n, (int)strlen(steps), columns) - 1;
    paint(progress, "1", steps);
    if (free_columns >= BAR_MIN && progress->state.max_steps > 0)
        put_bar(progress, free_columns < BAR_MAX ? free_columns : BAR_MAX);
    for (int i = 0; i < n; i++) {
        hl_buf_puts(&progress->text, "  ");
        paint(progress, "2", fields[i].name);
        hl_buf_puts(&progress->text, " ");
        paint(progress, fields[i].alarm ? "1;31" : "0", fields[i].value);
    }
}

static void send_text(struct hl_progress *progress) {
    if (!progress->text.failed && progress->text.n)
        hl_terminal_write(progress->fd, progress->text.data, progress->text.n);
    progress->text.n = 0;
    progress->text.failed = false;
}

static void draw(struct hl_progress *progress) {
    hl_buf_puts(&progress->text, "\r");
    put_state(progress);
    hl_buf_puts(&progress->text, "\033[K");
    progress->drawn = true;
    progress->stale = false;
    progress->drawn_ns = hl_clock_ns();
}

static void put_plain(struct hl_progress *progress) {
    struct field fields[MAX_FIELDS];
    char steps[64];
    print_steps(steps, sizeof steps, &progress->state, "step ");
    hl_buf_puts(&progress->text, steps);
    int n = fill_fields(&progress->state, fields);
    for (int i = 0; i < n; i++)
        hl_buf_printf(&progress->text, "  %s %s", fields[i].name, fields[i].value);
    hl_buf_puts(&progress->text, "\n");
}

void hl_progress_show(struct hl_progress *progress, const struct hl_progress_state *state,
                      bool is_log_step) {
    progress->state = *state;
    progress->stale = true;
    if (!progress->terminal) {
        if (is_log_step) put_plain(progress);
    } else if (!progress->drawn || hl_clock_ns() - progress->drawn_ns >= MIN_NS_BETWEEN_DRAWS)
        draw(progress);
    send_text(progress);
}

void hl_progress_line(struct hl_progress *progress, const char *text) {
    enum hl_clean how = progress->utf8 ? HL_CLEAN_TERMINAL : HL_CLEAN_TERMINAL_ASCII;
    bool again = progress->drawn;
    if (again) hl_buf_puts(&progress->text, "\r\033[K");
    hl_utf8_clean(&progress->text, text, strlen(text), how);
    hl_buf_puts(&progress->text, "\n");
    if (again) draw(progress);
    send_text(progress);
}

void hl_progress_free(struct hl_progress *progress) {
    if (!progress) return;
    if (progress->terminal && progress->stale) draw(progress);
    if (progress->drawn) hl_buf_puts(&progress->text, "\n");
    send_text(progress);
    hl_buf_free(&progress->text);
    hl_free(progress->mem, progress);
}
