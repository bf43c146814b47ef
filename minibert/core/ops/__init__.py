"""The mathematics of BERT, with backward passes written by hand: the reference for every other engine.

Read `primitives`, `attention`, `losses`, then `blocks`, which puts them together; `dropout_bits` decides what
dropout drops, and `updates` has the optimizers. An engine is a subclass of `Ops` that overrides operations by
name; it adds none and keeps every signature.
"""

from minibert.core.ops.blocks import Blocks
from minibert.core.ops.dropout_bits import Dropout
from minibert.core.ops.updates import AdamRule, Updates

__all__ = ["AdamRule", "Dropout", "Ops"]


class Ops(Blocks, Updates):
    """Every operation of a BERT, on arrays of NumPy or of any library with the same functions.

    Parameters
    ----------
    xp : module, the array library: `numpy`, or one with the same functions, such as `jax.numpy`.
    """

    name = "numpy"
