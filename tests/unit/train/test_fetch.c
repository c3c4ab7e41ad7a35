/* A checkpoint that only rank 0's machine has: sent once to each other folder, whole or not at all.
 */
#include "support/trainer_fixture.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/out_file.h"
#include "support/train_ranks.h"
#include "train/fetch.h"

enum { RANKS = 4 };

/* A machine: what it sees of the disk, and how it fails. */
struct machine {
    struct hl_fs fs; /* first */
    const char *hidden;
    bool full;
    int n_writes;
};
struct scene {
    char folder[RANKS][64]; /* output_dir of each rank */
    char from[128];         /* rank 0's checkpoint */
    bool everywhere;        /* all see rank 0's disk */
    int full;               /* the rank whose disk is; -1: none */
    int n_sent, n_writes[RANKS];
    enum hl_status status[RANKS];
    char path[RANKS][HL_PATH_CAPACITY], said[RANKS][300];
};

static bool hides(struct hl_fs *fs, const char *path) {
    const struct machine *m = (struct machine *)(void *)fs;
    bool hidden = m->hidden && !strncmp(path, m->hidden, strlen(m->hidden));
    if (hidden) errno = ENOENT;
    return hidden;
}
static int open_seen(struct hl_fs *fs, const char *path, enum hl_fs_mode mode) {
    return hides(fs, path) ? -1 : hl_fs_os()->open(hl_fs_os(), path, mode);
}
static int64_t size_seen(struct hl_fs *fs, const char *path) {
    return hides(fs, path) ? -1 : hl_fs_os()->size(hl_fs_os(), path);
}
static int64_t write_some(struct hl_fs *fs, int file, const void *data, size_t n) {
    struct machine *m = (struct machine *)(void *)fs;
    if (m->full && m->n_writes++ > 1) return errno = ENOSPC, -1;
    m->n_writes += !m->full;
    return hl_fs_os()->write(hl_fs_os(), file, data, n);
}

static void fetch(struct rank_context *r) {
    struct scene *s = r->shared;
    struct machine m = {.fs = *hl_fs_os(), .full = s->full == r->rank};
    m.fs.open = open_seen;
    m.fs.size = size_seen;
    m.fs.write = write_some;
    if (r->rank > 0 && !s->everywhere) m.hidden = s->folder[0];
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    int n_sent = -1;
    ranks_check(r,
                hl_group_new(hl_mem_default(), r->wire, NULL, 20000000000, &group, &diag) == HL_OK);
    (void)snprintf(s->path[r->rank], HL_PATH_CAPACITY, "%s", s->from);
    enum hl_status status = hl_fetch_checkpoint(hl_mem_default(), &m.fs, group, s->folder[r->rank],
                                                s->path[r->rank], &n_sent, &diag);
    if (status != HL_OK) hl_group_give_up(group, diag.text);
    s->status[r->rank] = status;
    s->n_writes[r->rank] = m.n_writes;
    (void)snprintf(s->said[r->rank], sizeof s->said[0], "%s", diag.text);
    if (r->rank == 0) s->n_sent = n_sent;
    hl_group_free(group);
}

/* Ranks 1 and 2 share a machine, 3 has another; rank 0's has a checkpoint. */
static void set_scene(struct world *w, struct scene *s) {
    struct hl_diag diag = {0};
    struct hl_step_report report;
    *s = (struct scene){.full = -1};
    for (int r = 0; r < RANKS; r++) {
        if (r == 2) {
            memcpy(s->folder[2], s->folder[1], sizeof s->folder[2]);
            continue;
        }
        (void)snprintf(s->folder[r], sizeof s->folder[r], "/tmp/halley-fetch-XXXXXX");
        assert_non_null(mkdtemp(s->folder[r]));
    }
    struct hl_trainer *t = new_trainer(w);
    assert_int_equal(hl_trainer_step(t, &report, &diag), HL_OK);
    assert_int_equal(hl_trainer_save(t, s->folder[0], NULL, NULL, &diag), HL_OK);
    hl_trainer_free(t);
    (void)snprintf(s->from, sizeof s->from, "%s/checkpoint-1", s->folder[0]);
}

static void end_scene(const struct scene *s) {
    for (int r = 0; r < RANKS; r++) {
        char command[100];
        (void)snprintf(command, sizeof command, "rm -rf %s", s->folder[r]);
        assert_int_equal(system(command), 0);
    }
}

static void expect_copy(const struct scene *s, int rank) {
    struct world other;
    struct hl_diag diag = {0};
    char want[HL_PATH_CAPACITY];
    assert_true(hl_path_join(want, s->folder[rank], "checkpoint-1"));
    assert_string_equal(s->path[rank], want);
    static const char *const files[] = {"model.safetensors", "state.safetensors", "manifest.json"};
    for (int i = 0; i < 3; i++) {
        char a[HL_PATH_CAPACITY], b[HL_PATH_CAPACITY];
        uint64_t x, y;
        assert_true(hl_path_join(a, s->from, files[i]) && hl_path_join(b, want, files[i]));
        assert_int_equal(hl_file_xxh3(hl_mem_default(), hl_fs_os(), a, &x, &diag), HL_OK);
        assert_int_equal(hl_file_xxh3(hl_mem_default(), hl_fs_os(), b, &y, &diag), HL_OK);
        assert_true(x == y);
    }
    open_world(&other, "adamw");
    struct hl_trainer *t = new_trainer(&other);
    assert_int_equal(hl_trainer_resume(t, want, &diag), HL_OK);
    hl_trainer_free(t);
    close_world(&other);
}

static void expect_nothing(const struct scene *s, int rank) {
    char path[HL_PATH_CAPACITY];
    static const char *const names[] = {"checkpoint-1", ".checkpoint-1.partial"};
    for (int i = 0; i < 2; i++) {
        assert_true(hl_path_join(path, s->folder[rank], names[i]));
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void test_sent_where_it_lacks(void **state) {
    static struct scene s;
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    set_scene(&w, &s);
    for (int again = 0; again < 2; again++) {
        ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
        for (int r = 0; r < RANKS; r++) assert_int_equal(s.status[r], HL_OK);
        assert_string_equal(s.path[0], s.from);
        for (int r = 1; r < RANKS; r++) expect_copy(&s, r);
        assert_int_equal(s.n_sent, again ? 0 : 2);
        assert_true(s.n_writes[2] == 0 && (s.n_writes[1] == 0) == again); /* one writes */
    }
    /* a broken one of that name gives way */
    char path[HL_PATH_CAPACITY];
    assert_true(hl_path_join(path, s.path[3], "manifest.json"));
    assert_int_equal(truncate(path, 5), 0);
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    assert_int_equal(s.n_sent, 1);
    expect_copy(&s, 3);
    /* a whole one stays */
    struct hl_trainer *t = new_trainer(&w);
    struct hl_diag diag = {0};
    assert_int_equal(hl_trainer_save(t, s.folder[3], NULL, NULL, &diag), HL_OK);
    hl_trainer_free(t);
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf %s && mv %s/checkpoint-0 %s", s.path[3],
                   s.folder[3], s.path[3]);
    assert_int_equal(system(command), 0);
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    assert_int_equal(s.n_sent, 0);
    assert_int_equal(s.status[3], HL_OK);
    end_scene(&s);
    close_world(&w);
}

static void test_a_shared_folder_is_read_where_it_is(void **state) {
    static struct scene s;
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    set_scene(&w, &s);
    s.everywhere = true;
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    assert_int_equal(s.n_sent, 0);
    for (int r = 0; r < RANKS; r++) assert_string_equal(s.path[r], s.from);
    for (int r = 1; r < RANKS; r++) expect_nothing(&s, r);
    /* nor is a folder without a manifest anybody's business here */
    char path[HL_PATH_CAPACITY];
    assert_true(hl_path_join(path, s.from, "manifest.json"));
    assert_int_equal(unlink(path), 0);
    s.everywhere = false;
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    for (int r = 0; r < RANKS; r++) assert_int_equal(s.status[r], HL_OK);
    assert_int_equal(s.n_sent, 0);
    end_scene(&s);
    close_world(&w);
}

static void test_a_full_disk(void **state) {
    static struct scene s;
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    set_scene(&w, &s);
    s.full = 3;
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    assert_int_equal(s.status[3], HL_E_IO);
    assert_non_null(strstr(s.said[3], "checkpoint-1"));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(s.status[r], HL_E_PEER);
        assert_non_null(strstr(s.said[r], "rank 3"));
    }
    expect_nothing(&s, 3);
    end_scene(&s);
    close_world(&w);
}

static void test_a_damaged_file(void **state) {
    static struct scene s;
    struct world w;
    char path[HL_PATH_CAPACITY];
    (void)state;
    open_world(&w, "adamw");
    set_scene(&w, &s);
    assert_true(hl_path_join(path, s.from, "state.safetensors"));
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -3, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -3, SEEK_END), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
    ranks_run(RANKS, RANKS_LANES, RANKS_PART, fetch, &s);
    for (int r = 1; r < RANKS; r += 2) {
        bool own = s.status[r] == HL_E_FORMAT && strstr(s.said[r], "state.safetensors is damaged");
        assert_true(own || s.status[r] == HL_E_PEER);
        expect_nothing(&s, r);
    }
    end_scene(&s);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sent_where_it_lacks),
        cmocka_unit_test(test_a_shared_folder_is_read_where_it_is),
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_a_damaged_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
