/* What the files of this room share. */
#ifndef HALLEY_CLUSTER_CLUSTER_H
#define HALLEY_CLUSTER_CLUSTER_H

#include "halley/cluster.h"

/* A rank that saves a large checkpoint keeps the others waiting. */
enum { HL_DEFAULT_TIMEOUT_S = 300 };

#endif
