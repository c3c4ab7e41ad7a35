/* halley pool: memory that ranks of one or several machines share. */
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/option.h"
#include "halley/text_number.h"
#include "memory/pool.h"
#include "os/memory.h"
#include "pool_check.h"

struct words {
    char *size;
    int64_t devices, rank;
    int mode;
    bool read_back, force, stale;
};

#define AT(field) .offset = offsetof(struct words, field)
static const struct hl_option rows[] = {
    {.name = "devices",
     .kind = HL_OPT_I64,
     AT(devices),
     .initial = "1",
     .least = 1,
     .most = HL_POOL_DEVICES,
     .section = "create",
     .help = "files in a new folder, one for each device that the pool shall have"},
    {.name = "size",
     .kind = HL_OPT_STRING,
     AT(size),
     .section = "create",
     .help = "of each device: 256M, 4GiB; files: 256M when not given, devices: all they have"},
    {.name = "mode",
     .kind = HL_OPT_CHOICE,
     AT(mode),
     .initial = "hc",
     .choices = "hc nc-wb nc-uc",
     .section = "create",
     .help = "hc: coherent; nc-wb: cached and not coherent; nc-uc: mapped uncached"},
    {.name = "read_back",
     .kind = HL_OPT_BOOL,
     AT(read_back),
     .initial = "false",
     .section = "create",
     .help = "nc-wb: read the end of a part back before its bell, where 'check' found old words"},
    {.name = "rank",
     .kind = HL_OPT_I64,
     AT(rank),
     .initial = "-1",
     .least = -1,
     .most = 1,
     .section = "check",
     .help = "0 here and 1 on another machine: both exchange parts; -1: both here"},
    {.name = "stale",
     .kind = HL_OPT_BOOL,
     AT(stale),
     .initial = "false",
     .section = "free",
     .help = "all pools in /dev/shm whose launcher is gone"},
    {.name = "force",
     .kind = HL_OPT_BOOL,
     AT(force),
     .initial = "false",
     .section = "all",
     .help = "create: over what is there; check, free: although users of another machine cannot be "
             "seen"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };
static const uint64_t DEFAULT_BYTES = 256 << 20, CHECK_BYTES = 256 << 20;
static const int64_t PATIENCE_NS = 30000000000;

static const char usage[] =
    "halley pool makes and looks after memory that ranks share.\n\n"
    "  halley pool create NAME --size 1GiB         files in /dev/shm/halley-NAME\n"
    "  halley pool create /dev/dax0.0,/dev/dax1.0  a CXL pool: these devices, in this order\n"
    "  halley pool info [POOL]                     who uses it; without a name: all pools here\n"
    "  halley pool check POOL                      rates, latency, and whether all words arrive\n"
    "  halley pool free POOL                       remove it (devices: their first page)\n\n"
    "'halley launch' makes a pool of its own and removes it; --pool POOL uses one of these.\n\n";

/* ---- words ---- */

static enum hl_status parse_size(const char *text, uint64_t *out, struct hl_diag *diag) {
    static const char units[] = "KMGT";
    char number[32];
    int64_t value = 0;
    size_t n = strspn(text, "0123456789");
    const char *unit = text[n] ? strchr(units, text[n] & ~0x20) : NULL;
    const char *rest = unit ? text + n + 1 : text + n;
    bool ends = !*rest || !strcmp(rest, "iB") || !strcmp(rest, "B");
    (void)snprintf(number, sizeof number, "%.*s", (int)(n < 20 ? n : 20), text);
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (!ends || !hl_parse_i64(number, &value) || value <= 0 || value > INT64_MAX >> shift)
        return hl_fail(diag, HL_E_USER, "--size: '%s' is no size; write 256M, 4GiB", text);
    *out = (uint64_t)value << shift;
    return HL_OK;
}

static const char *bytes_text(char out[40], uint64_t bytes) {
    hl_print_bytes(out, 40, bytes);
    return out;
}

/* ---- create ---- */

static enum hl_status create(const char *address, const struct words *w, struct hl_diag *diag) {
    struct hl_pool *pool;
    char full[HL_PATH_CAPACITY], size[40];
    uint64_t bytes = 0;
    if (*w->size) {
        enum hl_status status = parse_size(w->size, &bytes, diag);
        if (status != HL_OK) return status;
        bytes = (bytes + HL_POOL_STRIPE_BYTES - 1) / HL_POOL_STRIPE_BYTES * HL_POOL_STRIPE_BYTES;
    }
    if (w->read_back && w->mode != HL_POOL_WRITE_BACK)
        return hl_fail(diag, HL_E_USER, "--read_back belongs to --mode nc-wb");
    bool listed =
        address && hl_pool_full_address(address, full) && hl_pool_place_of(full) == HL_POOL_LIST;
    const struct hl_pool_spec spec = {.address = address,
                                      .n_devices = (uint32_t)w->devices,
                                      .device_bytes = bytes || listed ? bytes : DEFAULT_BYTES,
                                      .mode = (enum hl_pool_mode)w->mode,
                                      .read_back = w->read_back,
                                      .kept = true,
                                      .force = w->force};
    enum hl_status status = hl_pool_make(hl_mem_os(), &spec, &pool, diag);
    if (status != HL_OK) return status;
    printf("%s\n", pool->address);
    fprintf(stderr, "halley pool: %u device%s of %s, %s; halley launch --wire pool --pool %s\n",
            pool->head.n_devices, pool->head.n_devices == 1 ? "" : "s",
            bytes_text(size, pool->head.device_bytes), hl_pool_mode_name(spec.mode), pool->address);
    hl_pool_close(pool);
    return HL_OK;
}

/* ---- info ---- */

static void print_uuid(const unsigned char uuid[16]) {
    printf("uuid        ");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf("\n");
}

static void print_job(const struct hl_pool *pool) {
    const struct hl_pool_job *job = &pool->head.job;
    char part[40];
    if (!job->n_ranks) {
        printf("job         none; %llu so far\n", (unsigned long long)pool->head.generation / 2);
        return;
    }
    printf("job         %u ranks, %u lanes, parts of %s; begun by pid %lld on %.64s%s\n",
           job->n_ranks, job->n_lanes, bytes_text(part, job->part_bytes), (long long)job->owner.pid,
           job->host,
           hl_pool_owner_lives(pool) ? "" : ", which is gone: 'halley pool free --stale'");
}

static int print_users(const struct hl_pool *pool) {
    static const char *const lives[] = {"is gone", "lives", "is out of sight"};
    int n = 0;
    for (int r = 0; r < HL_POOL_RECORDS; r++) {
        struct hl_pool_user user;
        hl_pool_look(pool, r, &user);
        if (!user.attached) continue;
        printf("rank %-7d pid %lld on %s, which %s; %llu beats\n", r,
               (long long)user.record.who.pid, user.host, lives[user.life],
               (unsigned long long)user.beat);
        n++;
    }
    return n;
}

static void print_pool(const struct hl_pool *pool) {
    char size[40];
    const struct hl_pool_head *h = &pool->head;
    printf("pool        %s\n", pool->address);
    print_uuid(h->uuid);
    printf("devices     %u of %s, stripes of 2 MiB\n", h->n_devices,
           bytes_text(size, h->device_bytes));
    printf("mode        %s%s\n", hl_pool_mode_name(hl_pool_head_mode(h)),
           h->flags & HL_POOL_READ_BACK ? ", parts are read back" : "");
    printf("kept        %s\n",
           h->flags & HL_POOL_KEPT ? "until it is freed" : "as long as its launcher lives");
    print_job(pool);
    (void)print_users(pool);
}

static void print_line(void *context, const char *address) {
    struct hl_pool *pool;
    struct hl_diag diag;
    char size[40];
    int *n = context;
    if (strstr(address, HL_POOL_UNFINISHED)) return;
    if (hl_pool_attach(hl_mem_os(), address, false, 0, &pool, &diag) != HL_OK) {
        printf("%s  %s\n", address, diag.text);
    } else {
        printf("%s  %u x %s, %s, %s\n", address, pool->head.n_devices,
               bytes_text(size, pool->head.device_bytes),
               hl_pool_mode_name(hl_pool_head_mode(&pool->head)),
               !pool->head.job.n_ranks     ? "no job"
               : hl_pool_owner_lives(pool) ? "in use"
                                           : "stale");
        hl_pool_close(pool);
    }
    ++*n;
}

static enum hl_status info(const char *address, struct hl_diag *diag) {
    struct hl_pool *pool;
    int n = 0;
    if (!address) {
        enum hl_status status = hl_pool_list(NULL, print_line, &n, diag);
        if (status == HL_OK && !n) printf("no pools in %s\n", HL_POOL_PARENT);
        return status;
    }
    enum hl_status status = hl_pool_attach(hl_mem_os(), address, false, 0, &pool, diag);
    if (status != HL_OK) return status;
    print_pool(pool);
    hl_pool_close(pool);
    return HL_OK;
}

/* ---- check ---- */

static enum hl_status check_devices(const struct hl_pool *pool, struct hl_diag *diag) {
    for (uint32_t d = 0; d < pool->head.n_devices; d++) {
        struct pool_rates r;
        char write[40], read[40], line[40], bytes[40];
        pool_measure_device(pool, d, CHECK_BYTES, &r);
        hl_print_fixed(write, sizeof write, r.write * 1e-9, 1);
        hl_print_fixed(read, sizeof read, r.read * 1e-9, 1);
        hl_print_fixed(line, sizeof line, r.line_ns, 0);
        printf("device %-4u %s GB/s written, %s GB/s read; a line there and back %s ns; %s, %llu "
               "words wrong\n",
               d, write, read, line, bytes_text(bytes, r.n_bytes), (unsigned long long)r.n_wrong);
        if (r.n_wrong)
            return hl_fail(diag, HL_E_IO, "pool %s: device %u does not keep what is written to it",
                           pool->address, d);
    }
    return HL_OK;
}

static enum hl_status check_exchange(const char *address, const struct words *w,
                                     enum hl_pool_mode mode, struct hl_diag *diag) {
    struct pool_exchange e = {0};
    char trip[40], rate[40];
    enum hl_status status =
        pool_exchange(hl_mem_os(), address, (int)w->rank, w->force, PATIENCE_NS, &e, diag);
    if (status != HL_OK) return status;
    hl_print_fixed(trip, sizeof trip, e.round_trip_ns * 1e-3, 2);
    hl_print_fixed(rate, sizeof rate, e.rate * 1e-9, 1);
    printf("exchange    %s us for 64 bytes there and back; %s GB/s each way; %llu words, %llu "
           "wrong\n",
           trip, rate, (unsigned long long)e.n_words, (unsigned long long)e.n_wrong);
    if (!e.n_wrong) return HL_OK;
    return hl_fail(diag, HL_E_IO, "pool %s: old words arrived: make it again with %s", address,
                   mode == HL_POOL_WRITE_BACK ? "--mode nc-wb --read_back" : "--mode nc-wb");
}

static enum hl_status check(const char *address, const struct words *w, struct hl_diag *diag) {
    struct hl_pool *pool;
    enum hl_status status = hl_pool_attach(hl_mem_os(), address, false, 0, &pool, diag);
    if (status != HL_OK) return status;
    enum hl_pool_mode mode = hl_pool_head_mode(&pool->head);
    if (w->rank < 1) {
        print_pool(pool);
        bool used = pool->head.job.n_ranks && hl_pool_owner_lives(pool);
        status = used ? hl_fail(diag, HL_E_USER,
                                "pool %s is in use: what can be seen is as it should be; the rest "
                                "when it is idle",
                                address)
                      : hl_pool_check_idle(pool, w->force, diag);
        if (status == HL_OK) status = check_devices(pool, diag);
    }
    hl_pool_close(pool);
    return status == HL_OK ? check_exchange(address, w, mode, diag) : status;
}

/* ---- free ---- */

static enum hl_status sweep(struct hl_diag *diag) {
    int n;
    enum hl_status status = hl_pool_sweep(hl_mem_os(), NULL, &n, diag);
    if (status == HL_OK) fprintf(stderr, "halley pool: %d removed\n", n);
    return status;
}

/* ---- all together ---- */

static enum hl_status run(size_t n_words, const char **words, const struct words *w,
                          struct hl_diag *diag) {
    const char *verb = n_words ? words[0] : "", *address = n_words > 1 ? words[1] : NULL;
    if (n_words > 2)
        return hl_fail(diag, HL_E_USER,
                       "'%s' is one word too many: devices of one pool stand "
                       "behind commas",
                       words[2]);
    if (!strcmp(verb, "create")) return create(address, w, diag);
    if (!strcmp(verb, "info")) return info(address, diag);
    if (!strcmp(verb, "free") && w->stale && !address) return sweep(diag);
    if (!address && (!strcmp(verb, "check") || !strcmp(verb, "free")))
        return hl_fail(diag, HL_E_USER, "%s which pool? 'halley pool info' lists those in %s", verb,
                       HL_POOL_PARENT);
    if (!strcmp(verb, "check")) return check(address, w, diag);
    if (!strcmp(verb, "free")) return hl_pool_remove(hl_mem_os(), address, w->force, diag);
    return hl_fail(diag, HL_E_USER, "%s%s%s: say create, info, check or free", *verb ? "'" : "",
                   *verb ? verb : "what", *verb ? "'" : "");
}

int command_pool(int n_args, char **args) {
    struct words words;
    const struct hl_option_set set = {NULL, rows, N_ROWS, &words};
    struct hl_config *config = NULL;
    struct hl_diag diag = {0};
    size_t n = 0;
    if (command_wants_help(n_args, args)) return command_print_help(usage, &set, 1), 0;
    enum hl_status status = hl_config_new(hl_mem_os(), &set, 1, &config, &diag);
    const char **bare = hl_alloc(hl_mem_os(), (size_t)n_args + 1, sizeof *bare);
    if (status == HL_OK && !bare) status = hl_fail_memory(&diag, sizeof *bare, "the command line");
    if (status == HL_OK) status = hl_config_read_flags(config, n_args, args, bare, &n, &diag);
    if (status == HL_OK) status = run(n, bare, &words, &diag);
    hl_free(hl_mem_os(), bare);
    hl_config_free(config);
    return status == HL_OK ? 0 : command_fail("pool", status, &diag);
}
