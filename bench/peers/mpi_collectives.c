/* Peer: collectives of an MPI library between processes of this machine. Answers the questions of
 * bench_collectives on rank 0 ("KIND BYTES"), and "send BYTES": from rank 0 to rank 1. Ranks that
 * wait for a question sleep, so that they do not disturb whoever is measured in between. build:
 * mpicc -O3 -march=native mpi_collectives.c -o mpi_collectives usage: mpirun -n N ./mpi_collectives
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES = 5, MOST_BYTES = 256 << 20, MOST_RANKS = 64 };
enum {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    BARRIER,
    SEND,
    N_KINDS
};
static const char *const names[] = {
    "all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce",
    "gather",     "scatter",        "all-to-all", "barrier",   "send"};
enum { UNIT = 16 }; /* floats of each rank: vectors are cut to a multiple, as Halley's are */

static void wait_asleep(MPI_Request *request) {
    int done = 0;
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) usleep(500);
}

/* Not MPI_Reduce_scatter_block: for that one Open MPI has no ring, and takes four times as long. */
static void reduce_scatter(float *in, float *out, int each, int ranks) {
    int counts[MOST_RANKS];
    for (int r = 0; r < ranks; r++) counts[r] = each;
    MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call(long kind, float *in, float *out, int n, int rank, int ranks) {
    const MPI_Comm all = MPI_COMM_WORLD;
    const int each = n / ranks;
    float *own = in + (size_t)rank * (size_t)each;
    switch (kind) {
    case ALL_REDUCE: MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, all); break;
    case REDUCE_SCATTER: reduce_scatter(in, out, each, ranks); break;
    case ALL_GATHER: MPI_Allgather(own, each, MPI_FLOAT, out, each, MPI_FLOAT, all); break;
    case BROADCAST: MPI_Bcast(in, n, MPI_FLOAT, 0, all); break;
    case REDUCE: MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, all); break;
    case GATHER: MPI_Gather(own, each, MPI_FLOAT, out, each, MPI_FLOAT, 0, all); break;
    case SCATTER: MPI_Scatter(in, each, MPI_FLOAT, out, each, MPI_FLOAT, 0, all); break;
    case ALL_TO_ALL: MPI_Alltoall(in, each, MPI_FLOAT, out, each, MPI_FLOAT, all); break;
    case SEND:
        if (rank == 0) MPI_Ssend(in, n, MPI_FLOAT, 1, 0, all);
        if (rank == 1) MPI_Recv(out, n, MPI_FLOAT, 0, 0, all, MPI_STATUS_IGNORE);
        break;
    default: MPI_Barrier(all);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(long kind, long bytes, float *in, float *out, int rank, int ranks) {
    int n = (int)(bytes / (long)sizeof *in) / (UNIT * ranks) * (UNIT * ranks);
    int times = bytes <= 65536 ? 100 : bytes <= 1 << 20 ? 20 : bytes <= 16 << 20 ? 4 : 1;
    double batches[BATCHES];
    call(kind, in, out, n, rank, ranks);
    for (int b = 0; b < BATCHES; b++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < times; i++) call(kind, in, out, n, rank, ranks);
        double own = (MPI_Wtime() - start) / times;
        MPI_Allreduce(&own, &batches[b], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    qsort(batches, BATCHES, sizeof *batches, ascending);
    return batches[BATCHES / 2];
}

int main(int argc, char **argv) {
    int rank, ranks, length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    float *in = malloc(MOST_BYTES), *out = malloc(MOST_BYTES);
    if (!in || !out || ranks > MOST_RANKS) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(in, 0, MOST_BYTES);
    memset(out, 0, MOST_BYTES);
    if (rank == 0) printf("ready %s\n", version);
    for (;;) {
        long question[2] = {-1, 0};
        char line[64], word[32];
        fflush(stdout);
        if (rank == 0 && fgets(line, sizeof line, stdin) &&
            sscanf(line, "%31s %ld", word, &question[1]) == 2)
            for (int k = 0; k < N_KINDS; k++)
                if (!strcmp(word, names[k])) question[0] = k;
        MPI_Request request;
        MPI_Ibcast(question, 2, MPI_LONG, 0, MPI_COMM_WORLD, &request);
        wait_asleep(&request);
        if (question[0] < 0) break;
        double seconds = measure(question[0], question[1], in, out, rank, ranks);
        if (rank == 0) printf("%.9f\n", seconds);
    }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
