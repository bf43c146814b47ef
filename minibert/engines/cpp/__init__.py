"""The engine cpp: hand-written kernels for each instruction set.

Read `primitives` first: the operations one at a time, each a call of a kernel in csrc/kernels. `ops` replaces
whole sublayers.
"""
