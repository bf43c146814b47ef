"""The mathematics of BERT, forward and backward by hand: the reference for everything else.

An engine is a subclass of `Ops` that overrides operations by name; it adds none and keeps every signature.
"""

from functools import partial
from typing import Any, Self

from minibert.ops.random import Dropout
from minibert.ops.recurrent import Recurrent
from minibert.ops.updates import AdamRule, Updates

__all__ = ["AdamRule", "Dropout", "Ops"]


class Ops(Recurrent, Updates):
    """Every operation, over NumPy or any array library with its functions."""

    name = "numpy"
    has_int8: bool  # whether `keep` can quantize
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made._made_with, made.has_int8 = (args, kwargs), False
        return made

    def keep(self, weight: Any, int8: bool = False) -> None:
        """Prepare for many products with a read-only matrix on the right, or quantize it to `int8`."""

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self  # copies of a model share their engine

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads, compiled code and memory stay in this process: another one makes an engine of its own.
        args, kwargs = self._made_with
        return partial(type(self), **kwargs), args
