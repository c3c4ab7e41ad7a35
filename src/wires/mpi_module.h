/* What the mpi wire asks of an MPI library, in a table without MPI's types: MPI libraries differ in
 * their binary interface, so src/wires/mpi_module.c is compiled once for each and loaded when a run
 * needs it. The protocol is above this table, in mpi_streams.c.
 *
 * Messages are non-blocking and known by the caller's numbers, [0, n_requests); a number is free
 * again when its message is done. Calls return 0 or MPI's error code. One thread at a time; it
 * starts and ends where it was started. */
#ifndef HALLEY_WIRES_MPI_MODULE_H
#define HALLEY_WIRES_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>

enum { HL_MPI_TABLE_VERSION = 1 };
#define HL_MPI_TABLE_SYMBOL "hl_mpi_table"

struct hl_mpi_done {
    int request, error;
    size_t bytes; /* received */
};
enum hl_mpi_start { HL_MPI_STARTED, HL_MPI_OVER /* was ended already */, HL_MPI_NO_THREADS };
struct hl_mpi_world {
    int rank, n_ranks;
    bool any_thread; /* calls may come from any thread, one at a time */
};

struct hl_mpi_table {
    int version;
    const char *halley, *library; /* "0.1.0", "openmpi" */
    size_t (*state_bytes)(int n_requests);
    /* MPI_Init, unless somebody has; then request 0 begins to make a communicator of our own.
     * state [state_bytes], zeroed */
    enum hl_mpi_start (*start)(void *state, int n_requests, struct hl_mpi_world *out);
    /* Done when the receiver has a matching receive: nothing piles up there. */
    int (*send)(void *state, int request, int to, int tag, const void *data, size_t bytes);
    int (*receive)(void *state, int request, int from, int tag, void *data, size_t capacity);
    bool (*test)(void *state, int request, struct hl_mpi_done *out);
    /* done [n_requests]: those that are done now; returns how many */
    int (*test_all)(void *state, struct hl_mpi_done *done);
    void (*cancel)(void *state, int request); /* a receive; it is done soon after */
    void (*end)(void *state); /* in good order, by all ranks: MPI_Finalize, if we began it */
    void (*explain)(int error, char *out, size_t capacity);
};
extern const struct hl_mpi_table hl_mpi_table; /* of a module, not of the library */

#endif
