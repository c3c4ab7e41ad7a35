#include "support/sliced_strategy.h"

int main(void) { return sliced_strategy_main("zero2", HL_SLICED_GRADIENTS); }
