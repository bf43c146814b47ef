"""The engine cpp: hand-written kernels for each instruction set."""
