"""The mathematics of BERT, forward and backward by hand: the reference for everything else.

Read `primitives`, `attention`, `losses`, then `blocks`, which puts them together; `random` has the bits of
dropout and `updates` the optimizers. An engine is a subclass of `Ops` that overrides operations by name; it
adds none and keeps every signature.
"""

from minibert.core.ops.blocks import Blocks
from minibert.core.ops.random import Dropout
from minibert.core.ops.updates import AdamRule, Updates

__all__ = ["AdamRule", "Dropout", "Ops"]


class Ops(Blocks, Updates):
    """Every operation of a BERT, over NumPy or any array library with its functions."""

    name = "numpy"
