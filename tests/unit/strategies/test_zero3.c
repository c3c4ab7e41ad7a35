#include "support/sliced_strategy.h"

int main(void) { return sliced_strategy_main("zero3", HL_SLICED_WEIGHTS); }
