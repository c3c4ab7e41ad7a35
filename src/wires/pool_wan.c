/* pool+wan: a memory pool and the network at once, for machines that have both. The address is that
 * of the pool, a '+', and where ranks meet: "POOL+HOST:PORT". See pair.h. */
#include <stdio.h>
#include <string.h>

#include "os/fs.h"
#include "wires/pair.h"
#include "wires/wires.h"

static enum hl_status split_address(const char *address, char pool[HL_PATH_CAPACITY],
                                    const char **meeting_out, struct hl_diag *diag) {
    const char *plus = address ? strrchr(address, '+') : NULL;
    if (!plus || plus == address || !plus[1] || plus - address >= HL_PATH_CAPACITY)
        return hl_fail(diag, HL_E_USER,
                       "the wire pool+wan needs the pool and the place where ranks meet, as "
                       "POOL+HOST:PORT; 'halley launch --wire pool+wan' tells its ranks");
    (void)snprintf(pool, HL_PATH_CAPACITY, "%.*s", (int)(plus - address), address);
    *meeting_out = plus + 1;
    return HL_OK;
}

static enum hl_status open_both(struct hl_mem *mem, const struct hl_wire_place *place,
                                struct hl_wire **out, struct hl_diag *diag) {
    char address[HL_PATH_CAPACITY];
    struct hl_wire_place pool = *place, wan = *place;
    struct hl_wire *first = NULL, *second = NULL;
    enum hl_status status = split_address(place->address, address, &wan.address, diag);
    pool.address = address;
    if (status == HL_OK) status = hl_wire_pool.open(mem, &pool, &first, diag);
    if (status == HL_OK) {
        wan.n_lanes = first->n_lanes; /* as the pool was made */
        wan.part_bytes = first->part_bytes;
        status = hl_wire_wan.open(mem, &wan, &second, diag);
    }
    if (status == HL_OK) status = hl_wire_pair(mem, first, second, out, diag);
    if (status == HL_OK) return HL_OK;
    if (first) first->ops->give_up(first, diag && *diag->text ? diag->text : "no second path");
    if (second) second->ops->close(second);
    if (first) first->ops->close(first);
    return status;
}

static enum hl_status available(struct hl_diag *diag) {
    enum hl_status status = hl_wire_pool.available(diag);
    return status == HL_OK ? hl_wire_wan.available(diag) : status;
}

const struct hl_wire_plugin hl_wire_pool_wan = {
    .name = "pool+wan",
    .summary = "both at once: each exchange by the faster one, or split",
    .processes = true,
    .available = available,
    .open = open_both};
