"""Check every operation of an engine against the reference: the proof sheet.

In float64, gradients are proven by the complex step (`core/gradcheck/complex_step.py`). A lower precision is
compared with float64 instead: an engine's error may be twice as large as plain NumPy's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.terminal import aligned
from minibert.core.gradcheck import losses as core_losses, operations as core_operations
from minibert.core.gradcheck.cases import (
    SIZES,
    Arrays,
    Case,
    Size,
    config_of,
    random_batch,
    random_parameters,
)
from minibert.core.gradcheck.complex_step import (
    distance,
    engine_gradients,
    gradient_errors,
    norm_of,
    result_of,
    upstream,
    worst,
)
from minibert.engines.runtime import runtime_of
from minibert.gradcheck import losses, operations
from minibert.model.ops import Ops

# A row of these tables has the ending of some operations' names, a value, and the reason for the value.
# The first row that fits an operation counts.

# Largest error of a gradient by the complex step.
COMPLEX_STEP_BOUNDS = (
    ("pretraining_loss", 1e-10, "the rounding of some sixty operations, one after another"),
    ("", 1e-12, "the rounding of sums of at most a hundred terms; a wrong term shows as 1e-3 or more"),
)
# Largest error of plain NumPy in a lower precision, in units of eps x sqrt(terms of the longest sum): errors
# of either sign add up like a random walk.
ROUNDING_BOUNDS = (
    ("_loss", 10, "a LayerNorm over a row of little spread magnifies all errors before it"),
    ("_block", 2, "half a dozen operations forward and as many back"),
    ("layers", 4, "two blocks in a row"),
    ("layer_mix", 5, "the gradient of a weight is a sum over tokens and columns, sqrt(H) longer"),
    ("", 1, "one operation: its sums, its exponentials, and the rounding of what it saved"),
)
# Largest error of an engine, as a multiple of plain NumPy's: with another order of summation or another
# exponential, errors are as large, but differ.
ENGINE_FACTOR = 2
# What an engine's error may be in addition, in units of eps.
ENGINE_FLOORS = (
    ("_loss", 8, "with few rows, NumPy's own error may be half as large as usual in every draw"),
    ("", 4, "where NumPy only copies, its own error is zero"),
)
# Number of draws over which an error is the root mean square: the arguments themselves, and others near them.
DRAWS = (
    ("_loss", 8, "few numbers carry the result, so one draw is luck: NumPy's varies fourfold among BLAS"),
    ("_lm_head", 8, "the same where one row is masked"),
    ("", 1, "hundreds of elements, each rounded on its own, are draws enough"),
)
NEARBY = 2.0**-10  # distance of the nearby arguments, relative to their size


class Row(NamedTuple):
    """One line of the proof sheet."""

    operation: str
    engine: str
    dtype: str
    size: str
    error: float
    bound: float
    verdict: str  # "ok" or "FAIL"


def cases(size: Size, seed: int = 0) -> list[Case]:
    """Build cases of every operation and every loss at one size.

    Parameters
    ----------
    size : Size
        The shape to check at.
    seed : int, default 0
        Seed of all inputs.

    Returns
    -------
    list of Case
        The core's cases and those outside the core.
    """
    rng = np.random.default_rng(seed)
    batch = random_batch(size, size.M, rng)
    parameters = random_parameters(config_of(size), rng)
    every = [
        *core_operations.primitives(size, batch, rng),
        *operations.primitives(size, batch, rng),
        *core_operations.sublayers(size, batch, parameters, rng),
        *operations.sublayers(size, batch, rng),
        *core_operations.heads(size, batch, parameters, rng),
        *core_losses.pretraining_losses(size, parameters, rng, _prepare),
        *core_losses.task_losses(size, rng, _prepare),
        *losses.task_losses(size, rng, _prepare),
    ]
    reference = Ops()
    return [case._replace(reference=reference) for case in every]


def _prepare(ops: Ops, batch: Any) -> Any:
    """Prepare a batch for an engine."""
    return runtime_of(ops).prepare(batch)


def proof_sheet(
    engines: Iterable[Ops],
    sizes: Mapping[str, Size] = SIZES,
    dtypes: Iterable[str] = ("float64", "float32"),
    operations: Iterable[str] | None = None,
    seed: int = 0,
) -> list[Row]:
    """Check every operation of every engine at every size.

    Float64 is checked by the complex step, a lower precision against float64.

    Parameters
    ----------
    engines : iterable of Ops
    sizes : dict of Size
        Sizes by name; the core's SIZES by default.
    dtypes : iterable of str, default "float64" and "float32"
        Precisions.
    operations : iterable of str, default None
        The operations to check; None: all.
    seed : int, default 0
        Seed of inputs and directions.

    Returns
    -------
    list of Row
        All rows of the first engine, then all of the next.

    Raises
    ------
    InputError
        When one of `operations` is not on the sheet.
    """
    every = []
    for size, shape in sizes.items():
        every += [(size, case) for case in cases(shape, seed)]
    known = {case.operation for _, case in every}
    wanted = known if operations is None else set(operations)
    unknown = wanted - known
    if unknown:
        operation = ", ".join(sorted(unknown))
        advice = f"choose from {', '.join(sorted(known))}."
        raise InputError(f"{operation=} is not an operation that is checked; {advice}", operation=operation)
    engines = list(engines)
    dtypes = list(dtypes)
    checks = []  # for each check, the rows of all engines
    for size, case in every:
        if case.operation in wanted:
            checks += [check(engines, case, dtype, size, seed) for dtype in dtypes]
    by_engine = zip(*checks, strict=True)
    return [row for rows in by_engine for row in rows]


def check(
    engines: Sequence[Ops],
    case: Case,
    dtype: str = "float64",
    size: str = "",
    seed: int = 0,
) -> list[Row]:
    """Check one operation in one precision.

    Parameters
    ----------
    engines : sequence of Ops
    case : Case
    dtype : str, default "float64"
        The precision: float64 is checked by the complex step, a lower precision against float64.
    size : str
        Name of the shape, for the sheet.
    seed : int, default 0
        Seed of the directions.

    Returns
    -------
    list of Row
        One row for each engine; an error that is NaN fails.
    """
    if dtype == "float64":
        exact = result_of(Ops(), case, case.arguments)
        errors = []
        for engine in engines:
            error = distance(result_of(engine, case, case.arguments), exact)
            errors_of_gradients = gradient_errors(engine, case, seed)
            errors.append(worst([error, *errors_of_gradients.values()]))
        bounds = [_first_match(COMPLEX_STEP_BOUNDS, case.operation)] * len(engines)
    else:
        plain, *errors = rounding_errors([Ops(), *engines], case, dtype, seed)
        bounds = [rounding_bound(engine, plain, case, dtype) for engine in engines]
    rows = []
    for engine, error, bound in zip(engines, errors, bounds, strict=True):
        verdict = "ok" if error <= bound else "FAIL"
        rows.append(Row(case.label, engine.name, dtype, size, error, bound, verdict))
    return rows


def format_sheet(rows: list[Row]) -> str:
    """Write the proof sheet as text.

    Parameters
    ----------
    rows : list of Row

    Returns
    -------
    str
        A heading, a line for each check, and a last line about all of them.
    """
    lines: list[tuple[str, ...]] = [Row._fields]
    for row in rows:
        numbers = f"{row.error:.1e}", f"{row.bound:.1e}"
        lines.append((row.operation, row.engine, row.dtype, row.size, *numbers, row.verdict))
    columns = zip(*lines, strict=True)
    rule = tuple("-" * max(map(len, column)) for column in columns)
    lines.insert(1, rule)
    last = f"{len(rows)} checks, every one within its bound"
    failed = sum(row.verdict != "ok" for row in rows)
    if failed:
        last = f"{failed} of {len(rows)} checks FAIL"
    return "\n".join([*aligned(lines), "", last])


def rounding_errors(engines: Sequence[Ops], case: Case, dtype: str, seed: int = 0) -> list[float]:
    """Measure the error of a lower precision against the float64 reference.

    Parameters
    ----------
    engines : sequence of Ops
    case : Case
    dtype : str
        The lower precision.
    seed : int, default 0
        Seed of the direction, and of the nearby arguments.

    Returns
    -------
    list of float
        For each engine the root mean square over as many draws as DRAWS says.
    """
    rng = np.random.default_rng(seed)
    u = upstream(case, rng).astype(dtype)

    def near(arrays: Arrays) -> Arrays:
        moved = {}
        for name, array in arrays.items():
            moved[name] = array * (1 + NEARBY * rng.standard_normal(array.shape))
        return moved

    draws = [case]
    for _ in range(1, _first_match(DRAWS, case.operation)):
        inputs = near(case.inputs)
        params = near(case.params)
        draws.append(case._replace(inputs=inputs, params=params))
    errors = [_rounding_errors(engines, draw, dtype, u) for draw in draws]
    squares = np.square(errors)
    return np.sqrt(np.mean(squares, axis=0)).tolist()


def _rounding_errors(engines: Sequence[Ops], case: Case, dtype: str, u: np.ndarray) -> list[float]:
    """Measure the errors of one draw: for each engine the largest one among the result and the gradients.

    A gradient's error is relative to the gradient's norm, or to its fair share of the whole gradient's norm
    if that is larger: when large terms happen to cancel, only their rounding is left.
    """
    low = {name: argument.astype(dtype) for name, argument in case.arguments.items()}
    high = {name: argument.astype(np.float64) for name, argument in low.items()}
    exact = result_of(Ops(), case, high)
    expected = engine_gradients(Ops(), case, high, u.astype(np.float64))
    elements = sum(gradient.size for gradient in expected.values())
    norm = norm_of(expected.values())
    share = norm / max(1, elements) ** 0.5  # an element's share of the norm

    def error(engine: Ops) -> float:
        gradients = engine_gradients(engine, case, low, u)
        result = result_of(engine, case, low)
        errors = [distance(result, exact)]
        for name, gradient in expected.items():
            least = share * gradient.size**0.5
            errors.append(distance(gradients[name], gradient, least=least))
        return worst(errors)

    return [error(engine) for engine in engines]


def rounding_bound(engine: Ops, plain: float, case: Case, dtype: str) -> float:
    """Bound an engine's error: by a multiple of plain NumPy's error, or for NumPy itself of a random walk's.

    Parameters
    ----------
    engine : Ops
    plain : float
        Error of plain NumPy, from `rounding_errors`.
    case : Case
    dtype : str
        The precision.

    Returns
    -------
    float
    """
    eps = float(np.finfo(dtype).eps)
    if type(engine) is not Ops:
        floor = _first_match(ENGINE_FLOORS, case.operation)
        return ENGINE_FACTOR * plain + floor * eps
    longest = max(max(argument.shape) for argument in case.arguments.values())
    factor = _first_match(ROUNDING_BOUNDS, case.operation)
    return factor * eps * longest**0.5


def _first_match(bounds: tuple[tuple[str, Any, str], ...], operation: str) -> Any:
    """Return the value of the first row of a table whose ending fits the name of an operation."""
    return next(value for ending, value, _ in bounds if operation.endswith(ending))
