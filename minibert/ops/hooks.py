"""Where the mathematics meets the machine: what an engine may do in its own way around the mathematics.

Every hook here is what NumPy needs, which is next to nothing. An engine that compiles, that wants other
shapes, or that spreads a batch over many devices overrides them; the model and the training loop call them
and know nothing of it.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

Figures = dict[str, Any]  # numbers by name, of a batch or a part of it; those of parts add up


class Hooks:
    """How batches come in, functions run, and parameters are kept while they are trained."""

    leads = True  # whether this process is the one that writes, where several train together
    part = (0, 1)  # its number, from 0, and how many there are
    _gradients: Any = None  # the accumulators of the training that is going on

    def step(self) -> AbstractContextManager:
        """One pass through the model. Engines with an arena give it back at the end: results are valid
        until then."""
        return nullcontext()

    def prepare(self, batch: Any) -> Any:
        """Lay a batch out as this engine likes it; as it is, here."""
        return batch

    def restored(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """What was computed from a prepared batch, in the order of the batch itself.

        Parameters
        ----------
        values : a row for each of what `per` says.
        batch : as it was before `prepare`.
        per : "tokens", "sequences", "masked" (positions to predict) or "labels" (rows with a tag).
        """
        return np.asarray(values)

    def place(self, tree: Any) -> Any:
        """Parameters, or any tree of arrays, where this engine computes."""
        return tree

    def call(self, function: Callable, static: tuple, *arrays: Any) -> Any:
        """`function(self, *static, *arrays)`.

        An engine that compiles does so once for each `static`, whose parts are hashable, and once for each
        shape of the arrays, which are trees of them and prepared batches.
        """
        return function(self, *static, *arrays)

    def agreed(self, wish: bool) -> bool:
        """Whether any of the processes that train together wishes so."""
        return wish

    def meet(self, where: str, alike: dict[str, Any] | None = None) -> None:
        """Wait for the other processes, which come here as well; complain where they do not say the same."""

    # Training. `names` says what lies where in a flat buffer: a `FlatParameters`, whose values do not matter.

    def parts(self, batch: Any, count: int) -> tuple:
        """A batch as `count` prepared micro-batches, or one for each example if these are fewer."""
        return tuple(self.prepare(part) for part in batch.split(min(count, batch.E)))

    def enter(self, names: Any, buffers: tuple) -> tuple:
        """Parameters and moments, (N,) each, from host memory to where they are kept during training."""
        return buffers

    def leave(self, names: Any, buffers: tuple) -> tuple:
        """What `enter` took in, as NumPy arrays (N,)."""
        return buffers

    def train(self, function: Callable, static: tuple, buffers: tuple, *arrays: Any) -> tuple[tuple, Figures]:
        """`function(self, *static, buffers, *arrays) -> buffers, figures`; the buffers are consumed."""
        return function(self, *static, buffers, *arrays)

    def compiles(self, function: Callable, static: tuple, parts: Any) -> bool:
        """Whether `train` with such parts would have to compile first, which may take a minute."""
        return False

    def tree(self, names: Any, flat: Any) -> dict:
        """The parameters or accumulators in a buffer, as the model takes them."""
        for known in (names, self._gradients):
            if known is not None and flat is known.flat:
                return known.tree
        return names.like(flat).tree

    def accumulators(self, names: Any, flat: Any) -> Any:
        """A buffer of zeros as large as that of the parameters; here, the same memory in every step."""
        kept = self._gradients
        if kept is not None and kept.table is names.table and kept.flat.dtype == flat.dtype:
            self._clear(kept.flat)
        else:  # the same names in another precision need accumulators of their own
            self._gradients = names.like(np.zeros_like(flat))
        return self._gradients.flat

    def _clear(self, flat: Any) -> None:
        """Set a buffer to zero."""
        flat.fill(0)

    def collected(self, names: Any, flat: Any, tree: dict) -> Any:
        """The buffer of accumulators after a backward pass; it was added to in place, here."""
        return flat

    def fold(self, function: Callable, carry: Any, items: Iterable) -> tuple[Any, Figures]:
        """`carry, figures = function(carry, item)` for one item after another, the figures added up."""
        total: Figures = {}
        for item in items:
            carry, figures = function(carry, item)
            total = {name: total.get(name, 0) + value for name, value in figures.items()}
        return carry, total

    def summed(self, grads: Any, figures: Figures) -> tuple[Any, Figures]:
        """The gradients and figures of all devices together; there is one, here."""
        return grads, figures

    def only_if_finite(self, numbers: Iterable, change: Callable, unchanged: Any) -> Any:
        """`change()`, or `unchanged` if one of the numbers is infinite or NaN."""
        return change() if all(math.isfinite(number) for number in numbers) else unchanged

    def spliced(self, whole: Any, begin: int, end: Any) -> Any:
        """A buffer with `end` from `begin` on; it is a view of the buffer and changed already, here."""
        return whole
