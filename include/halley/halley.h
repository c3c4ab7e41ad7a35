/* libhalley: everything public in one include. */
#ifndef HALLEY_HALLEY_H
#define HALLEY_HALLEY_H

#include "halley/checkpoint.h"
#include "halley/cluster.h"
#include "halley/codec.h"
#include "halley/data.h"
#include "halley/kernels.h"
#include "halley/layout.h"
#include "halley/log.h"
#include "halley/mem.h"
#include "halley/model.h"
#include "halley/option.h"
#include "halley/optimizer.h"
#include "halley/report.h"
#include "halley/rng.h"
#include "halley/schedule.h"
#include "halley/status.h"
#include "halley/strategy.h"
#include "halley/text_number.h"
#include "halley/train.h"

#endif
