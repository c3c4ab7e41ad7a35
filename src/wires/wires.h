/* The registry of wires, for those who list them. */
#ifndef HALLEY_WIRES_WIRES_H
#define HALLEY_WIRES_WIRES_H

#include "halley/wire.h"

#define HL_WIRE(name, maturity, summary) extern const struct hl_wire_plugin hl_wire_##name;
#include "wires/wires.def"
#undef HL_WIRE

#endif
