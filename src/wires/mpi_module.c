/* The table of mpi_module.h over an MPI library: the only file that includes mpi.h, and no part of
 * the library. HALLEY_MPI_LIBRARY names the MPI it is compiled for. */
#include "wires/mpi_module.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

struct state {
    MPI_Comm world; /* ours: its tags meet nobody else's */
    bool began;
    int n;
    MPI_Status *statuses;  /* [n] */
    MPI_Request *requests; /* [n] */
    int *indices;          /* [n] */
};

static size_t state_bytes(int n) {
    return sizeof(struct state) +
           (size_t)n * (sizeof(MPI_Request) + sizeof(MPI_Status) + sizeof(int));
}

static enum hl_mpi_start begin(struct state *s, struct hl_mpi_world *out) {
    int over = 0, begun = 0, threads = MPI_THREAD_SINGLE;
    MPI_Finalized(&over);
    MPI_Initialized(&begun);
    if (over) return HL_MPI_OVER;
    /* With more ranks than cores Open MPI gives the core away in each test that finds nothing; we
     * sleep by ourselves. */
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    if (begun) MPI_Query_thread(&threads);
    else MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads);
    s->began = !begun;
    out->any_thread = threads >= MPI_THREAD_SERIALIZED;
    return threads < MPI_THREAD_FUNNELED ? HL_MPI_NO_THREADS : HL_MPI_STARTED;
}

static enum hl_mpi_start start(void *state, int n, struct hl_mpi_world *out) {
    struct state *s = state;
    enum hl_mpi_start status = begin(s, out);
    if (status != HL_MPI_STARTED) return status;
    s->n = n;
    s->statuses = (MPI_Status *)(void *)(s + 1); /* by falling alignment */
    s->requests = (MPI_Request *)(void *)(s->statuses + n);
    s->indices = (int *)(void *)(s->requests + n);
    for (int i = 0; i < n; i++) s->requests[i] = MPI_REQUEST_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->n_ranks);
    MPI_Comm_idup(MPI_COMM_WORLD, &s->world, &s->requests[0]);
    return HL_MPI_STARTED;
}

static int send(void *state, int request, int to, int tag, const void *data, size_t bytes) {
    struct state *s = state;
    return MPI_Issend(data, (int)bytes, MPI_BYTE, to, tag, s->world, &s->requests[request]);
}

static int receive(void *state, int request, int from, int tag, void *data, size_t capacity) {
    struct state *s = state;
    return MPI_Irecv(data, (int)capacity, MPI_BYTE, from, tag, s->world, &s->requests[request]);
}

static void describe(int request, int error, MPI_Status *status, struct hl_mpi_done *out) {
    int bytes = 0;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    *out = (struct hl_mpi_done){request, error, bytes > 0 ? (size_t)bytes : 0};
}

static bool test(void *state, int request, struct hl_mpi_done *out) {
    struct state *s = state;
    MPI_Status status;
    int done = 0;
    int error = MPI_Test(&s->requests[request], &done, &status);
    if (!done && !error) return false;
    if (request == 0) MPI_Comm_set_errhandler(s->world, MPI_ERRORS_RETURN);
    describe(request, error, &status, out);
    return true;
}

static int test_all(void *state, struct hl_mpi_done *done) {
    struct state *s = state;
    int n = 0;
    int error = MPI_Testsome(s->n, s->requests, &n, s->indices, s->statuses);
    if (n == MPI_UNDEFINED) return 0; /* nothing is under way */
    for (int i = 0; i < n; i++) {
        int own = error == MPI_ERR_IN_STATUS ? s->statuses[i].MPI_ERROR : error;
        describe(s->indices[i], own, &s->statuses[i], &done[i]);
    }
    return n;
}

static void cancel(void *state, int request) {
    struct state *s = state;
    if (s->requests[request] != MPI_REQUEST_NULL) MPI_Cancel(&s->requests[request]);
}

static void end(void *state) {
    struct state *s = state;
    MPI_Comm_free(&s->world);
    if (s->began) MPI_Finalize();
}

static void explain(int error, char *out, size_t capacity) {
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(error, text, &n)) n = 0;
    (void)snprintf(out, capacity, "%.*s", n, text);
}

const struct hl_mpi_table hl_mpi_table = {.version = HL_MPI_TABLE_VERSION,
                                          .halley = HALLEY_VERSION,
                                          .library = HALLEY_MPI_LIBRARY,
                                          .state_bytes = state_bytes,
                                          .start = start,
                                          .send = send,
                                          .receive = receive,
                                          .test = test,
                                          .test_all = test_all,
                                          .cancel = cancel,
                                          .end = end,
                                          .explain = explain};
