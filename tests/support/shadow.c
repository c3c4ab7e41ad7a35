/* See shadow.h. Offsets are those of the shadow's memory. */
#include "shadow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MOST_QUEUED = 48 };

struct cached {
    size_t at; /* offset of the line */
    bool valid, dirty;
    char data[LINE];
};
enum act { STREAM, FLUSH };
struct queued {
    enum act act;
    size_t at;
    char data[LINE];
};
enum doing { NOTHING, PUBLISHING, RINGING, LOOKING, FETCHING };

struct shadow_cpu {
    struct hl_pool_cpu cpu; /* first */
    struct shadow *s;
    struct cached *cache;
    struct queued queue[MOST_QUEUED];
    int n_queued;
    char *image;      /* [n_bytes] what the program itself loads */
    enum doing doing; /* which operation of the ring's memory this access belongs to */
    bool quiet;       /* no noise inside noise */
    struct hl_pool_memory memory;
    struct hl_ring_memory_ops ops;
    struct hl_ring_layout layout;
};

const char *shadow_rule_name(enum shadow_rule rule) {
    static const char *const names[SHADOW_RULES] = {
        "all rules kept",
        "2: parts are stored and not flushed",
        "2: no fence between part and bell",
        "2: bells stay in the cache",
        "3: lines are looked at in the cache",
        "4: parts are not dropped before they are read",
        "4: parts are read before the drop is done",
        "4: parts are dropped before the bell is looked at",
        "5: acknowledgements are not waited for",
        "6: readers store into parts",
        "14: a line's number is stored first",
    };
    return names[rule];
}

/* splitmix64: Steele, Lea, Flood 2014 */
uint32_t shadow_next(struct shadow_random *random, uint32_t below) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

static struct shadow_cpu *of(struct hl_pool_cpu *cpu) { return (struct shadow_cpu *)(void *)cpu; }
static size_t offset_of(const struct shadow_cpu *c, const void *at) {
    return (size_t)((const char *)at - c->s->memory);
}

/* ---- the cache ---- */

static struct cached *slot_of(struct shadow_cpu *c, size_t at) {
    return &c->cache[at / LINE & (c->s->noise.lines - 1)];
}

static void write_back(struct shadow_cpu *c, struct cached *line) {
    if (line->valid && line->dirty) memcpy(c->s->memory + line->at, line->data, LINE);
    line->valid = line->dirty = false;
}

static struct cached *bring(struct shadow_cpu *c, size_t at) {
    struct cached *line = slot_of(c, at);
    if (line->valid && line->at == at) return line;
    write_back(c, line);
    *line = (struct cached){.at = at, .valid = true};
    memcpy(line->data, c->s->memory + at, LINE);
    return line;
}

static void drop(struct shadow_cpu *c, size_t at) {
    struct cached *line = slot_of(c, at);
    if (line->valid && line->at == at) write_back(c, line);
}

/* ---- the queue ---- */

/* Any order, but what concerns one line keeps its own. */
static void drain_line(struct shadow_cpu *c, size_t at) {
    for (int i = 0; i < c->n_queued; i++) {
        struct queued q = c->queue[i];
        if (q.at != at) continue;
        memmove(&c->queue[i], &c->queue[i + 1], sizeof q * (size_t)(c->n_queued - i - 1));
        c->n_queued--;
        if (q.act == STREAM) memcpy(c->s->memory + at, q.data, LINE);
        else drop(c, at);
        return;
    }
}

static void drain_one(struct shadow_cpu *c) {
    if (c->n_queued) drain_line(c, c->queue[shadow_next(&c->s->random, (uint32_t)c->n_queued)].at);
}

static void put(struct shadow_cpu *c, enum act act, size_t at, const void *data) {
    if (c->n_queued == MOST_QUEUED) drain_one(c);
    struct queued *q = &c->queue[c->n_queued++];
    q->act = act;
    q->at = at;
    if (data) memcpy(q->data, data, LINE);
}

static bool is_streaming(const struct shadow_cpu *c, size_t at) {
    for (int i = 0; i < c->n_queued; i++)
        if (c->queue[i].at == at && c->queue[i].act == STREAM) return true;
    return false;
}

/* ---- noise ---- */

static void run_others(struct shadow_cpu *c) {
    if (c->s->others) c->s->others(c->s->context);
}

static void prefetch(struct shadow_cpu *c, size_t at) {
    if (at < c->s->n_bytes && !is_streaming(c, at)) (void)bring(c, at);
}

static void make_noise(struct shadow_cpu *c, size_t at) {
    struct shadow *s = c->s;
    if (!s->noise.every || c->quiet || shadow_next(&s->random, (uint32_t)s->noise.every)) return;
    c->quiet = true;
    uint32_t n_lines = (uint32_t)(s->n_bytes / LINE);
    switch (shadow_next(&s->random, s->noise.evicts ? 8 : 4)) {
    case 0:
    case 1:
    case 2: run_others(c); break;
    case 3: drain_one(c); break;
    case 4: prefetch(c, at + LINE * (1 + shadow_next(&s->random, 4))); break;
    case 5: prefetch(c, (size_t)shadow_next(&s->random, n_lines) * LINE); break;
    case 6: write_back(c, slot_of(c, at)); break; /* between two stores to it */
    default: write_back(c, &c->cache[shadow_next(&s->random, s->noise.lines)]); break;
    }
    c->quiet = false;
}

/* ---- what the modes call ---- */

static void store(struct shadow_cpu *c, size_t at, size_t begin, const void *data, size_t n) {
    make_noise(c, at);
    while (is_streaming(c, at)) drain_line(c, at);
    struct cached *line = bring(c, at);
    memcpy(line->data + begin, data, n);
    line->dirty = true;
}

static void store_line(struct hl_pool_cpu *cpu, void *to, const struct hl_line *line) {
    struct shadow_cpu *c = of(cpu);
    size_t at = offset_of(c, to), first = sizeof line->value;
    bool early = c->s->off == SHADOW_14_VALUE_FIRST;
    if (early) store(c, at, 0, line, first);
    store(c, at, first, &line->bytes, LINE - first);
    store(c, at, 0, line, first);
}

static const char *load(struct shadow_cpu *c, size_t at) {
    make_noise(c, at);
    while (is_streaming(c, at)) drain_line(c, at);
    return bring(c, at)->data;
}

static void load_line(struct hl_pool_cpu *cpu, const void *from, struct hl_line *out) {
    struct shadow_cpu *c = of(cpu);
    size_t at = offset_of(c, from);
    struct hl_line first;
    memcpy(&first, load(c, at), LINE);
    memcpy(out, load(c, at), LINE);
    out->value = first.value;
}

static void stream(struct hl_pool_cpu *cpu, void *to, const void *from, size_t n) {
    struct shadow_cpu *c = of(cpu);
    size_t at = offset_of(c, to);
    assert(at % LINE == 0 && n % LINE == 0);
    for (size_t i = 0; i < n; i += LINE) {
        const char *data = (const char *)from + i;
        if (c->s->off == SHADOW_2_NO_STREAM) {
            store(c, at + i, 0, data, LINE);
            continue;
        }
        make_noise(c, at + i);
        drop(c, at + i);
        put(c, STREAM, at + i, data);
    }
}

static void flush_lines(struct hl_pool_cpu *cpu, const void *from, size_t n) {
    struct shadow_cpu *c = of(cpu);
    size_t first = offset_of(c, from) / LINE * LINE, end = offset_of(c, from) + n;
    bool left_out =
        c->doing == FETCHING && (c->s->off == SHADOW_4_NO_FLUSH || c->s->off == SHADOW_4_TOO_EARLY);
    for (size_t at = first; at < end && !left_out; at += LINE) {
        make_noise(c, at);
        put(c, FLUSH, at, NULL);
    }
}

/* In order with stores; a load may still pass it. */
static void flush_line(struct hl_pool_cpu *cpu, const void *from) {
    struct shadow_cpu *c = of(cpu);
    if (c->doing == RINGING && c->s->off == SHADOW_2_BELL_STAYS) return;
    if (c->doing == LOOKING && c->s->off == SHADOW_3_NO_FLUSH) return;
    make_noise(c, offset_of(c, from));
    put(c, FLUSH, offset_of(c, from), NULL);
}

static void fence(struct shadow_cpu *c) {
    while (c->n_queued) {
        make_noise(c, c->queue[0].at);
        drain_one(c);
    }
}
static void fence_stores(struct hl_pool_cpu *cpu) {
    struct shadow_cpu *c = of(cpu);
    if (c->doing == PUBLISHING && c->s->off == SHADOW_2_NO_FENCE) return;
    fence(c);
}
static void fence_all(struct hl_pool_cpu *cpu) {
    struct shadow_cpu *c = of(cpu);
    if (c->doing == FETCHING && c->s->off == SHADOW_4_NO_FENCE) return;
    fence(c);
}
static void fence_loads(struct hl_pool_cpu *cpu) { (void)cpu; }

static void *place(struct hl_pool_cpu *cpu, void *at, size_t n) {
    (void)n;
    return of(cpu)->image + offset_of(of(cpu), at);
}
static void stored(struct hl_pool_cpu *cpu, void *to, size_t n) {
    struct shadow_cpu *c = of(cpu);
    size_t at = offset_of(c, to);
    for (size_t i = 0; i < n; i += LINE)
        store(c, at + i, 0, c->image + at + i, n - i < LINE ? n - i : LINE);
}

static const void *reach(struct hl_pool_cpu *cpu, const void *from, size_t n) {
    struct shadow_cpu *c = of(cpu);
    size_t at = offset_of(c, from);
    for (size_t i = 0; i < n; i += LINE)
        memcpy(c->image + at + i, load(c, at + i), n - i < LINE ? n - i : LINE);
    if (c->s->off == SHADOW_6_READER_STORES && n) bring(c, at)->dirty = true;
    return c->image + at;
}

static const struct hl_pool_cpu_ops cpu_ops = {.store_line = store_line,
                                               .load_line = load_line,
                                               .stream = stream,
                                               .flush_line = flush_line,
                                               .flush_lines = flush_lines,
                                               .fence_stores = fence_stores,
                                               .fence_loads = fence_loads,
                                               .fence_all = fence_all,
                                               .place = place,
                                               .stored = stored,
                                               .reach = reach};

/* ---- the ring's memory, with a note of what is being done ---- */

static struct shadow_cpu *cpu_of(struct hl_ring_memory *m) {
    return of(((struct hl_pool_memory *)(void *)m)->cpu);
}
static const struct hl_ring_memory_ops *wb(void) { return &hl_pool_mode_ops[HL_POOL_WRITE_BACK]; }

static void publish(struct hl_ring_memory *m, size_t number, size_t offset, size_t bytes) {
    cpu_of(m)->doing = PUBLISHING;
    wb()->publish(m, number, offset, bytes);
}
static void ring(struct hl_ring_memory *m, size_t offset, const struct hl_line *line) {
    cpu_of(m)->doing = RINGING;
    wb()->ring(m, offset, line);
}
/* Before the bell is looked at: a prefetch may bring a line back, and then others go on. */
static void drop_parts(struct shadow_cpu *c) {
    const struct hl_pool_head *h = c->memory.head;
    for (unsigned i = 0; i < c->s->noise.lines; i++) {
        size_t at = c->cache[i].at % h->device_bytes;
        bool part = at >= h->bulk.offset && at < h->bulk.offset + h->bulk.bytes;
        if (!c->cache[i].valid || !part) continue;
        at = c->cache[i].at;
        write_back(c, &c->cache[i]);
        if (!shadow_next(&c->s->random, 2)) (void)bring(c, at);
    }
    if (!shadow_next(&c->s->random, 2)) run_others(c);
}
static void look(struct hl_ring_memory *m, size_t offset, struct hl_line *out) {
    struct shadow_cpu *c = cpu_of(m);
    c->doing = LOOKING;
    if (c->s->off == SHADOW_4_TOO_EARLY) drop_parts(c);
    wb()->look(m, offset, out);
    if (c->s->off == SHADOW_5_NO_ACK && offset >= c->layout.acks && offset < c->layout.lines_end)
        out->value = UINT64_MAX / 2;
}
static const void *fetch(struct hl_ring_memory *m, size_t offset, size_t bytes) {
    cpu_of(m)->doing = FETCHING;
    return wb()->fetch(m, offset, bytes);
}

/* ---- all together ---- */

void shadow_new(struct shadow *s, size_t n_bytes, int n_cpus, const struct shadow_noise *noise,
                uint64_t seed) {
    *s = (struct shadow){.n_bytes = n_bytes, .noise = *noise, .random = {seed}, .n_cpus = n_cpus};
    s->memory = aligned_alloc(4096, (n_bytes + 4095) / 4096 * 4096);
    s->cpus = calloc((size_t)n_cpus, sizeof *s->cpus);
    assert(s->memory && s->cpus);
    memset(s->memory, 0, n_bytes);
    for (int i = 0; i < n_cpus; i++) {
        struct shadow_cpu *c = &s->cpus[i];
        c->cpu.ops = &cpu_ops;
        c->s = s;
        c->cache = calloc(noise->lines, sizeof *c->cache);
        c->image = aligned_alloc(4096, (n_bytes + 4095) / 4096 * 4096);
        assert(c->cache && c->image);
    }
}

void shadow_free(struct shadow *s) {
    for (int i = 0; i < s->n_cpus; i++) {
        free(s->cpus[i].cache);
        free(s->cpus[i].image);
        free(s->cpus[i].memory.rooms);
    }
    free(s->cpus);
    free(s->memory);
}

struct hl_ring_memory *shadow_memory(struct shadow *s, int i, const struct hl_pool_head *head,
                                     const struct hl_ring_shape *shape, bool read_back) {
    struct shadow_cpu *c = &s->cpus[i];
    size_t n_rooms = (size_t)shape->n_lanes * (size_t)shape->n_ranks;
    hl_ring_lay_out(shape, &c->layout);
    c->ops = *wb();
    c->ops.publish = publish;
    c->ops.ring = ring;
    c->ops.look = look;
    c->ops.fetch = fetch;
    c->memory = (struct hl_pool_memory){.ring = {.ops = &c->ops},
                                        .cpu = &c->cpu,
                                        .head = head,
                                        .slots = c->layout.slots,
                                        .rooms = aligned_alloc(64, n_rooms * shape->part_bytes),
                                        .part_bytes = shape->part_bytes,
                                        .read_back = read_back};
    for (uint32_t d = 0; d < head->n_devices; d++)
        c->memory.write[d] = s->memory + d * head->device_bytes;
    for (uint32_t d = 0; d < head->n_devices; d++) c->memory.read[d] = c->memory.write[d];
    return &c->memory.ring;
}
