// Exits with 0 where this machine runs the instruction set it is compiled for; builds ask it.
#include "processor.h"

int main() { return mb::runs(mb::MB_ISA::kNeeds) ? 0 : 1; }
