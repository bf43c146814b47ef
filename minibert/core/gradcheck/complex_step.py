"""Prove a gradient by the complex step, exact to rounding, and in random directions.

For f holomorphic, v a real direction and h as tiny as we like,  f(x + ihv) = f(x) + ih f'(x) v + O(h^2).  So
Im f(x + ihv) / h is the derivative along v, with no difference of nearby numbers in it (Squire & Trapp 1998).
With a random upstream gradient u, the error of an engine's gradient g is

    |<g, v> - <u, Im f(x + ihv) / h>| / (|g| |v|),     f always the NumPy reference.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minibert.core.gradcheck.cases import Arrays, Case
from minibert.core.ops import Ops
from minibert.core.params import leaf_of, nest

REFERENCE = Ops()
STEP = 2.0**-100  # 8e-31; a power of two: to multiply and to divide by it rounds nothing


def complex_step(f: Callable[[Any], Any], x: Any, v: Any) -> Any:
    """Differentiate f at x along v, exact to rounding.

    Parameters
    ----------
    f : holomorphic function of a number or an array.
    x, v : the point and the direction, real.
    """
    return np.asarray(f(x + 1j * STEP * v)).imag / STEP


def gradient_errors(engine: Ops, case: Case, seed: int = 0) -> dict[str, float]:
    """Measure the error of each argument's gradient, and of all of them together (under "all").

    Each along one random direction, which misses a wrong gradient with probability zero. An argument that the
    result does not depend on has only rounding in its gradient, and counts only together with the others.
    """
    rng = np.random.default_rng(seed)
    u = upstream(case, rng)
    gradients = engine_gradients(engine, case, case.arguments, u)
    directions = {name: rng.standard_normal(g.shape) for name, g in gradients.items()}

    def error(names: Iterable[str]) -> float:
        v = {name: directions[name] for name in names}
        along = sum(float((gradients[name] * v[name]).sum()) for name in v)
        size = norm_of(gradients[name] for name in v) * norm_of(v.values())
        return ratio_of(abs(along - directional_derivative(case, u, v)), size)

    return {name: error([name]) for name in gradients if name not in case.unseen} | {"all": error(gradients)}


def upstream(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Draw a random gradient with respect to the result; 1 when the result is the loss itself."""
    shape = result_of(REFERENCE, case, case.arguments).shape
    return rng.standard_normal(shape) if shape else np.ones(())


def directional_derivative(case: Case, u: np.ndarray, directions: Arrays) -> float:
    """Differentiate the reference's <u, result> along a direction; arguments without one stay."""

    def along(t: complex) -> Any:
        moved = {name: one + t * directions.get(name, 0) for name, one in case.arguments.items()}
        return (u * result_of(REFERENCE, case, moved)).sum()

    return float(complex_step(along, 0.0, 1.0))


def engine_gradients(engine: Ops, case: Case, arguments: Arrays, u: np.ndarray) -> Arrays:
    """Compute the gradient of <u, result> for every argument, by the engine's forward and backward.

    Both run twice, into the same accumulators, and half of the sum is returned: no rounding is added, and an
    accumulator that was overwritten shows.
    """
    inputs, params = split(case, arguments)
    totals = nest({name: np.zeros_like(arguments[name]) for name in case.params})
    for _ in range(2):
        _, saved = case.forward(engine, inputs, params)
        fresh, totals = case.backward(engine, u, saved, params, totals)
    fresh = fresh if isinstance(fresh, tuple) else (fresh,)
    gradients = {name: np.asarray(one) for name, one in zip(inputs, fresh, strict=True)}
    return gradients | {name: np.asarray(leaf_of(totals, name)) / 2 for name in case.params}


def distance(found: Any, expected: Any, least: float = 0.0) -> float:
    """Return |found - expected| / max(|expected|, least) over all elements; what should be zero has to be."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return ratio_of(norm_of([found - expected]), max(norm_of([expected]), least))


def worst(errors: Iterable[float]) -> float:
    """Return the largest; not a number counts as larger than any."""
    return float(np.max(list(errors)))


def result_of(ops: Ops, case: Case, arguments: Arrays) -> np.ndarray:
    y, _ = case.forward(ops, *split(case, arguments))
    return np.asarray(y)


def split(case: Case, arguments: Arrays) -> tuple[Arrays, Any]:
    """Return inputs by name, and the tree of parameters."""
    return {n: arguments[n] for n in case.inputs}, nest({n: arguments[n] for n in case.params})


def norm_of(arrays: Iterable[np.ndarray]) -> float:
    return float(np.sqrt(sum(float((one * one).sum()) for one in arrays)))


def ratio_of(error: float, size: float) -> float:
    """Divide; no error at all is zero and an error in what should be nothing is infinite."""
    return float(error / size) if size else (0.0 if error == 0 else float("inf"))
