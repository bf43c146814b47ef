// A program that ends well where this machine can run what its instruction set is; for builds.
#include "processor.h"

int main() { return mb::runs(mb::MB_ISA::kNeeds) ? 0 : 1; }
