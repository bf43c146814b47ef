"""The mathematics of BERT, forward and backward by hand: the reference for everything else.

An engine is a subclass of `Ops` that overrides operations by name; it adds none and keeps every signature.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from minibert.ops.random import Dropout
from minibert.ops.recurrent import Recurrent
from minibert.ops.updates import Updates

__all__ = ["Dropout", "Ops"]


class Ops(Recurrent, Updates):
    """Every operation, over NumPy or any array library with its functions."""

    name = "numpy"

    def prepare(self, batch: Any) -> Any:
        """Lay a batch out as this engine likes it; as it is, here."""
        return batch

    def step(self) -> AbstractContextManager:
        """One training step. Engines with an arena give it back at the end: results are valid until then."""
        return nullcontext()
