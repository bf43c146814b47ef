"""The engine `numpy`: the operations of the core, and those that only the product needs.

The feature-based approach and the ablations put LSTMs on a BERT, and long texts are read in windows that are
pooled. Every other engine is a subclass of this one. Defining a subclass warns of its functions that are not
operations: a misspelt operation would never be called.
"""

from functools import partial
from typing import Any, Self

from minibert.base.errors import did_you_mean, warn
from minibert.core import ops
from minibert.model.recurrent import Recurrent
from minibert.model.windows import Windows


class Ops(Recurrent, Windows, ops.Ops):
    """Every operation that an engine has, over NumPy or any array library with its functions."""

    has_int8 = False  # whether `prepack` can quantise
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        engine = super().__new__(cls)
        engine._made_with = args, kwargs
        return engine

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Warn of functions that look like operations but are not, since nothing would call them."""
        super().__init_subclass__(**kwargs)
        known = {name for name in dir(Ops) if not name.startswith("_")}
        for name in sorted(set(dir(cls)) - set(dir(Ops))):
            if name.startswith("_") or not callable(getattr(cls, name)):
                continue
            bare = {operation.replace("_", ""): operation for operation in known}  # so LayerNorm is near, too
            bare["keep"] = "prepack"  # its name in 0.1
            nearest = did_you_mean(name.lower().replace("_", ""), bare)
            meant = f"; {nearest}" if nearest else "."
            helper = "Let the name of a helper begin with _."
            warn(f"{cls.__name__}.{name} is not an operation, and no model calls it{meant} {helper}")

    def prepack(self, weight: Any, int8: bool = False) -> None:
        """Prepare for many products with a read-only matrix on the right, or quantise it.

        Here nothing has to be prepared; an engine may override it.

        Parameters
        ----------
        weight : (K,N)
            The matrix.
        int8 : bool, default False
            Multiply in 8 bits from now on, if the engine can.
        """

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self  # copies of a model share their engine

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads, compiled code and memory can't leave this process, so another one makes a new engine.
        args, kwargs = self._made_with
        return partial(type(self), **kwargs), args
