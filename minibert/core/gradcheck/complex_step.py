"""Check a gradient by the complex step, exact to rounding, in random directions.

For f holomorphic, v a real direction and h as tiny as we like,  f(x + ihv) = f(x) + ih f'(x) v + O(h^2).  So
Im f(x + ihv) / h is the derivative along v, without subtracting nearby numbers (Squire & Trapp 1998).
With a random upstream gradient u, the error of an engine's gradient g is

    |<g, v> - <u, Im f(x + ihv) / h>| / (|g| |v|),     f always the NumPy reference.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minibert.core.gradcheck.cases import Arrays, Case
from minibert.core.ops import Ops
from minibert.core.params import leaf_of, nest

STEP = 2.0**-100  # 8e-31; a power of two, so multiplying and dividing by it is exact


def complex_step(f: Callable[[Any], Any], x: Any, v: Any) -> Any:
    """Differentiate f at x along v by the complex step (Squire & Trapp 1998), exact to rounding.

    Parameters
    ----------
    f : holomorphic function of a number or an array.
    x, v : the point and the direction, real.

    Returns
    -------
    array, f'(x) v.
    """
    return np.asarray(f(x + 1j * STEP * v)).imag / STEP


def gradient_errors(engine: Ops, case: Case, seed: int = 0) -> dict[str, float]:
    """Measure the error of each argument's gradient, and of all of them together (under "all").

    Each is measured along one random direction, which misses a wrong gradient with probability zero. The
    gradient of an argument that does not affect the result is rounding alone, so it is measured only together
    with the others.

    Parameters
    ----------
    engine : the engine whose gradients are checked, against NumPy as the reference.
    case : the operation and its arguments.
    seed : seed of the upstream gradient and the directions.

    Returns
    -------
    dict of relative errors, by argument and "all".
    """
    rng = np.random.default_rng(seed)
    u = upstream(case, rng)
    gradients = engine_gradients(engine, case, case.arguments, u)
    directions = {name: rng.standard_normal(g.shape) for name, g in gradients.items()}

    def error(names: Iterable[str]) -> float:
        v = {name: directions[name] for name in names}
        along = sum(float((gradients[name] * v[name]).sum()) for name in v)
        gradient_norm = norm_of(gradients[name] for name in v)
        size = gradient_norm * norm_of(v.values())
        difference = along - directional_derivative(case, u, v)
        return ratio_of(abs(difference), size)

    errors = {name: error([name]) for name in gradients if name not in case.unseen}
    errors["all"] = error(gradients)
    return errors


def upstream(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Draw a random gradient with respect to the result; 1 when the result is the loss itself.

    Parameters
    ----------
    case : the operation and its arguments.
    rng : source of the draws.
    """
    shape = result_of(case.reference, case, case.arguments).shape
    return rng.standard_normal(shape) if shape else np.ones(())


def directional_derivative(case: Case, u: np.ndarray, directions: Arrays) -> float:
    """Differentiate the reference's <u, result> along a direction.

    Parameters
    ----------
    case : the operation and its arguments.
    u : upstream gradient, in the shape of the result.
    directions : directions by argument; arguments without one are held constant.
    """

    def along(t: complex) -> Any:
        moved = {}
        for name, value in case.arguments.items():
            moved[name] = value + t * directions.get(name, 0)
        result = result_of(case.reference, case, moved)
        return (u * result).sum()

    return float(complex_step(along, 0.0, 1.0))


def engine_gradients(
    engine: Ops,
    case: Case,
    arguments: Arrays,
    u: np.ndarray,
) -> Arrays:
    """Compute the gradient of <u, result> for every argument, by the engine's forward and backward.

    Both run twice, with the same accumulators, and half of the sum is returned: this adds no rounding, and
    reveals a backward that overwrites its accumulator.

    Parameters
    ----------
    engine : the engine whose gradients to compute.
    case : the operation.
    arguments : its inputs and parameters, by name.
    u : upstream gradient, in the shape of the result.

    Returns
    -------
    dict of gradients, by argument.
    """
    inputs, params = split(case, arguments)
    totals = nest({name: np.zeros_like(arguments[name]) for name in case.params})
    for _ in range(2):
        _, saved = case.forward(engine, inputs, params)
        fresh, totals = case.backward(engine, u, saved, params, totals)
    if not isinstance(fresh, tuple):
        fresh = (fresh,)
    gradients = {}
    for name, gradient in zip(inputs, fresh, strict=True):
        gradients[name] = np.asarray(gradient)
    for name in case.params:
        gradients[name] = np.asarray(leaf_of(totals, name)) / 2
    return gradients


def distance(found: Any, expected: Any, least: float = 0.0) -> float:
    """Return |found - expected| / max(|expected|, least), with norms over all elements, and 0 for 0 / 0.

    Parameters
    ----------
    found, expected : numbers or arrays, which are broadcast.
    least : lower bound of the divisor.
    """
    found = np.asarray(found, np.float64)
    expected = np.asarray(expected, np.float64)
    size = max(norm_of([expected]), least)
    return ratio_of(norm_of([found - expected]), size)


def worst(errors: Iterable[float]) -> float:
    """Return the largest error, with NaN larger than any number.

    Parameters
    ----------
    errors : errors, at least one.
    """
    return float(np.max(list(errors)))


def result_of(ops: Ops, case: Case, arguments: Arrays) -> np.ndarray:
    """Compute the result of a case, and discard what is saved for backward.

    Parameters
    ----------
    ops : the engine.
    case : the operation.
    arguments : its inputs and parameters, by name.
    """
    y, _ = case.forward(ops, *split(case, arguments))
    return np.asarray(y)


def split(case: Case, arguments: Arrays) -> tuple[Arrays, Any]:
    """Return the inputs by name, and the tree of parameters.

    Parameters
    ----------
    case : the operation, which names its inputs and parameters.
    arguments : inputs and parameters together, by name.
    """
    inputs = {name: arguments[name] for name in case.inputs}
    params = {name: arguments[name] for name in case.params}
    return inputs, nest(params)


def norm_of(arrays: Iterable[np.ndarray]) -> float:
    """Return the Euclidean norm of several arrays together.

    Parameters
    ----------
    arrays : any number of arrays.
    """
    squares = sum(float((array * array).sum()) for array in arrays)
    return float(np.sqrt(squares))


def ratio_of(error: float, size: float) -> float:
    """Return error / size; for a size of zero, infinity, or zero if the error is zero, too.

    Parameters
    ----------
    error, size : numbers, not negative.
    """
    if size:
        return float(error / size)
    return 0.0 if error == 0 else float("inf")
