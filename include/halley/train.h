/* A training run, as the program and an embedding see it. */
#ifndef HALLEY_TRAIN_H
#define HALLEY_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/data.h"
#include "halley/log.h"
#include "halley/mem.h"
#include "halley/optimizer.h"
#include "halley/report.h"
#include "halley/status.h"

struct hl_train_options;
extern const struct hl_option hl_train_rows[];
extern const size_t hl_train_n_rows;

#endif
