"""The mathematics of BERT, forward and backward by hand: the reference for everything else.

An engine is a subclass of `Ops` that overrides operations by name; it adds none and keeps every signature.
"""

from minibert.ops.hooks import Hooks
from minibert.ops.random import Dropout
from minibert.ops.recurrent import Recurrent
from minibert.ops.updates import AdamRule, Updates

__all__ = ["AdamRule", "Dropout", "Ops"]


class Ops(Recurrent, Updates, Hooks):
    """Every operation, over NumPy or any array library with its functions."""

    name = "numpy"
