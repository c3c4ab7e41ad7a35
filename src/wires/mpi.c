/* mpi: ranks are processes that mpirun or srun started. Which MPI did, where its module lies, and
 * loading it; the streams are in mpi_streams.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/library.h"
#include "wires/mpi_streams.h"
#include "wires/wires.h"

enum { PATH = 4096, PLACES = 5 };

/* ---- which MPI ---- */

static const char *const libraries[] = {"openmpi", "mpich"};

enum hl_status hl_mpi_choose(const char *(*variable)(const char *name), const char **out,
                             struct hl_diag *diag) {
    static const struct {
        const char *variable, *library;
    } signs[] = {{"OMPI_COMM_WORLD_RANK", "openmpi"},
                 {"PMI_RANK", "mpich"}, /* Hydra, and srun --mpi=pmi2 */
                 {"MPI_LOCALNRANKS", "mpich"},
                 {"PMIX_RANK", "openmpi"}}; /* srun --mpi=pmix */
    const char *wanted = variable("HALLEY_MPI");
    for (size_t i = 0; wanted && i < sizeof libraries / sizeof *libraries; i++)
        if (!strcmp(wanted, libraries[i])) return *out = libraries[i], HL_OK;
    if (wanted && *wanted)
        return hl_fail(diag, HL_E_USER, "HALLEY_MPI is '%s'; it can be openmpi or mpich", wanted);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (variable(signs[i].variable)) return *out = signs[i].library, HL_OK;
    if (variable("SLURM_PROCID"))
        return hl_fail(diag, HL_E_USER,
                       "wire mpi: srun started this process without MPI; use srun --mpi=pmix for "
                       "Open MPI, or --mpi=pmi2 for MPICH ('srun --mpi=list' tells what it has)");
    return hl_fail(diag, HL_E_USER,
                   "wire mpi: this process was not started by mpirun or srun; "
                   "'halley launch --wire mpi -n N' starts it so");
}

static const char *variable(const char *name) { return getenv(name); }

/* ---- its module ---- */

/* Folders that may hold modules, most telling first: HALLEY_MODULES alone if it is set; the build
 * tree; what was installed, from where this code lies (the tree may be moved) and where it was
 * meant to be. */
static int list_folders(char folders[PLACES][PATH]) {
    const char *wanted = getenv("HALLEY_MODULES");
    char here[PATH - 128];
    int n = 0;
    if (wanted && *wanted) {
        (void)snprintf(folders[0], PATH, "%s", wanted);
        return 1;
    }
    if (hl_library_folder(here, sizeof here)) {
        (void)snprintf(folders[n++], PATH, "%s/modules", here);
        (void)snprintf(folders[n++], PATH, "%s/" HALLEY_MODULES_FROM_PROGRAM, here);
        (void)snprintf(folders[n++], PATH, "%s/halley", here);
    }
    (void)snprintf(folders[n++], PATH, "%s", HALLEY_MODULES_INSTALLED);
    return n;
}

/* path_out [PATH]: the module's */
static enum hl_status find_module(const char *library, char *path_out, struct hl_diag *diag) {
    char folders[PLACES][PATH], looked[800] = "";
    int n = list_folders(folders);
    for (int i = 0; i < n; i++) {
        size_t used = strlen(looked);
        int length = snprintf(path_out, PATH, "%s/mpi-%s.so", folders[i], library);
        if (length < PATH && !access(path_out, R_OK)) return HL_OK;
        (void)snprintf(looked + used, sizeof looked - used, "%s%s", i ? ", " : "", folders[i]);
    }
    return hl_fail(diag, HL_E_UNSUPPORTED,
                   "wire mpi: no module mpi-%s.so: halley was built without this MPI, or "
                   "HALLEY_MODULES should name its folder; looked in %s",
                   library, looked);
}

static enum hl_status load(const char *path, void **library_out,
                           const struct hl_mpi_table **table_out, struct hl_diag *diag) {
    char why[512];
    void *library = hl_library_open(path, why, sizeof why);
    if (!library)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "wire mpi: %s cannot be loaded: %s; is the MPI it was built with installed?",
                       path, why);
    const struct hl_mpi_table *table = hl_library_symbol(library, HL_MPI_TABLE_SYMBOL);
    if (table && table->version == HL_MPI_TABLE_VERSION && !strcmp(table->halley, HALLEY_VERSION)) {
        *library_out = library;
        *table_out = table;
        return HL_OK;
    }
    (void)hl_fail(diag, HL_E_UNSUPPORTED,
                  "wire mpi: %s belongs to halley %s, this is " HALLEY_VERSION
                  "; install both from one build",
                  path, table ? table->halley : "of an unknown version");
    hl_library_close(library);
    return HL_E_UNSUPPORTED;
}

static enum hl_status load_library(const char *name, void **library_out,
                                   const struct hl_mpi_table **table_out, struct hl_diag *diag) {
    char path[PATH];
    enum hl_status status = find_module(name, path, diag);
    return status == HL_OK ? load(path, library_out, table_out, diag) : status;
}

static enum hl_status try_library(const char *name, struct hl_diag *diag) {
    const struct hl_mpi_table *table;
    void *library;
    enum hl_status status = load_library(name, &library, &table, diag);
    if (status == HL_OK) hl_library_close(library);
    return status;
}

/* Outside mpirun any will do. */
static enum hl_status available(struct hl_diag *diag) {
    const char *name = NULL;
    enum hl_status status = hl_mpi_choose(variable, &name, diag);
    if (status == HL_OK) return try_library(name, diag);
    if (getenv("HALLEY_MPI")) return status;
    return try_library(libraries[1], diag) == HL_OK ? HL_OK : try_library(libraries[0], diag);
}

/* The module stays: MPI libraries leave handlers behind that run when the process ends. */
static enum hl_status open_mpi(struct hl_mem *mem, const struct hl_wire_place *place,
                               struct hl_wire **out, struct hl_diag *diag) {
    const struct hl_mpi_table *table = NULL;
    const char *name = NULL;
    void *library;
    enum hl_status status = hl_mpi_choose(variable, &name, diag);
    if (status == HL_OK) status = load_library(name, &library, &table, diag);
    return status == HL_OK ? hl_mpi_streams_open(mem, place, table, out, diag) : status;
}

const struct hl_wire_plugin hl_wire_mpi = {.name = "mpi",
                                           .summary = "processes started by mpirun or srun",
                                           .processes = true,
                                           .available = available,
                                           .open = open_mpi};
