"""Every operation of an engine against the reference, as a proof sheet.

In float64 gradients are proven by the complex step (`core/gradcheck/complex_step.py`). A lower precision is
compared with float64 instead: an engine may err twice as much as plain NumPy does.
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

# What an error may be, and why. The first row counts that the operation's name ends with.
COMPLEX_STEP_BOUNDS = (
    ("pretraining_loss", 1e-10, "the rounding of some sixty operations, one after another"),
    ("", 1e-12, "the rounding of sums of at most a hundred terms; a wrong term shows as 1e-3 or more"),
)
# In units of eps x sqrt(longest sum): rounded additions of terms of either sign err like a random walk.
ROUNDING_BOUNDS = (
    ("_loss", 10, "a LayerNorm over a row of little spread magnifies all errors before it"),
    ("_block", 2, "half a dozen operations forward and as many back"),
    ("layers", 4, "two blocks in a row"),
    ("layer_mix", 5, "the gradient of a weight is a sum over tokens and columns, sqrt(H) longer"),
    ("", 1, "one operation: its sums, its exponentials, and the rounding of what it saved"),
)
ENGINE_FACTOR = 2  # another order of summation or another exponential errs as much, in another direction
# In eps, on top of it.
ENGINE_FLOORS = (
    ("_loss", 8, "with a few rows alone, NumPy's own error may be half of the usual in every draw"),
    ("", 4, "where NumPy only copies, its own error is zero"),
)
# How many roundings an error is the root mean square over: of the arguments as they are, and of nearby ones.
DRAWS = (
    ("_loss", 8, "few numbers carry the result, so one rounding is luck: NumPy's varies fourfold among BLAS"),
    ("_lm_head", 8, "the same where one row is masked"),
    ("", 1, "hundreds of elements, each rounded on its own, are draws enough"),
)
NEARBY = 2.0**-10  # how far they are moved, relative to their size


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
    """Build every operation and every loss at one size, with inputs drawn from `seed`."""
    rng = np.random.default_rng(seed)
    batch = random_batch(size, size.M, rng)
    parameters = random_parameters(config_of(size), rng)
    return [
        *core_operations.primitives(size, batch, rng),
        *operations.primitives(size, batch, rng),
        *core_operations.sublayers(size, batch, parameters, rng),
        *operations.sublayers(size, batch, rng),
        *core_operations.heads(size, batch, parameters, rng),
        *core_losses.pretraining_losses(size, parameters, rng, _prepare),
        *core_losses.task_losses(size, rng, _prepare),
        *losses.task_losses(size, rng, _prepare),
    ]


def _prepare(ops: Ops, batch: Any) -> Any:
    return runtime_of(ops).prepare(batch)


def proof_sheet(
    engines: Iterable[Ops], sizes: Mapping[str, Size] = SIZES, dtypes: Iterable[str] = ("float64", "float32"),
    operations: Iterable[str] | None = None, seed: int = 0,
) -> list[Row]:  # fmt: skip
    """Check every operation of every engine at every size: float64 by the complex step, the rest against it.

    Only those of `operations`, where they are given; InputError when one of them is not on the sheet. Inputs
    and directions come from `seed`.
    """
    every = [(size, case) for size, shape in sizes.items() for case in cases(shape, seed)]
    known = {case.operation for _, case in every}
    wanted = known if operations is None else set(operations)
    if unknown := wanted - known:
        message = f"$operation is not on the sheet; choose from {', '.join(sorted(known))}."
        raise InputError(message, operation=", ".join(sorted(unknown)))
    engines, dtypes = list(engines), list(dtypes)
    chosen = [(size, case, dtype) for size, case in every if case.operation in wanted for dtype in dtypes]
    lines = [check(engines, case, dtype, size, seed) for size, case, dtype in chosen]
    return [row for rows_of_engine in zip(*lines, strict=True) for row in rows_of_engine]


def check(
    engines: Sequence[Ops], case: Case, dtype: str = "float64", size: str = "", seed: int = 0
) -> list[Row]:
    """Check one operation in one precision: a line for each engine."""
    if dtype == "float64":
        exact = result_of(Ops(), case, case.arguments)
        errors = []
        for engine in engines:
            error = distance(result_of(engine, case, case.arguments), exact)
            errors.append(worst([error, *gradient_errors(engine, case, seed).values()]))
        bounds = [_first_match(COMPLEX_STEP_BOUNDS, case.operation)] * len(engines)
    else:
        plain, *errors = rounding_errors([Ops(), *engines], case, dtype, seed)
        bounds = [rounding_bound(engine, plain, case, dtype) for engine in engines]
    return [
        # Not a number fails.
        Row(case.label, engine.name, dtype, size, error, bound, "ok" if error <= bound else "FAIL")
        for engine, error, bound in zip(engines, errors, bounds, strict=True)
    ]


def format_sheet(rows: list[Row]) -> str:
    """Write the proof sheet as text, a line for each check and a last one for all."""
    lines: list[tuple[str, ...]] = [Row._fields]
    lines += [(*row[:4], f"{row.error:.1e}", f"{row.bound:.1e}", row.verdict) for row in rows]
    lines.insert(1, tuple("-" * max(map(len, column)) for column in zip(*lines, strict=True)))
    failed = sum(row.verdict != "ok" for row in rows)
    passed = "checks, every one within its bound"
    last = f"{failed} of {len(rows)} checks FAIL" if failed else f"{len(rows)} {passed}"
    return "\n".join([*aligned(lines), "", last])


def rounding_errors(engines: Sequence[Ops], case: Case, dtype: str, seed: int = 0) -> list[float]:
    """Measure for each engine how far a lower precision is from the float64 reference."""
    rng = np.random.default_rng(seed)
    u = upstream(case, rng).astype(dtype)

    def near(arrays: Arrays) -> Arrays:
        return {name: one * (1 + NEARBY * rng.standard_normal(one.shape)) for name, one in arrays.items()}

    draws = _first_match(DRAWS, case.operation)
    moved = [case._replace(inputs=near(case.inputs), params=near(case.params)) for _ in range(1, draws)]
    errors = [_rounding_errors(engines, draw, dtype, u) for draw in [case, *moved]]
    return np.sqrt(np.mean(np.square(errors), axis=0)).tolist()


def _rounding_errors(engines: Sequence[Ops], case: Case, dtype: str, u: np.ndarray) -> list[float]:
    """Return the same of one draw: the largest error among result and gradients.

    For each gradient relative to its norm, or to its fair share of the whole gradient's norm where that is
    more: when large terms happen to cancel, nothing but their rounding is left.
    """
    low = {name: one.astype(dtype) for name, one in case.arguments.items()}
    high = {name: one.astype(np.float64) for name, one in low.items()}
    exact = result_of(Ops(), case, high)
    expected = engine_gradients(Ops(), case, high, u.astype(np.float64))
    share = norm_of(expected.values()) / max(1, sum(one.size for one in expected.values())) ** 0.5

    def error(engine: Ops) -> float:
        found = engine_gradients(engine, case, low, u)
        errors = [distance(result_of(engine, case, low), exact)]
        errors += [distance(found[name], one, least=share * one.size**0.5) for name, one in expected.items()]
        return worst(errors)

    return [error(engine) for engine in engines]


def rounding_bound(engine: Ops, plain: float, case: Case, dtype: str) -> float:
    """Bound an engine's error: by a multiple of plain NumPy's, or for NumPy itself of a random walk's."""
    eps = float(np.finfo(dtype).eps)
    if type(engine) is not Ops:
        return ENGINE_FACTOR * plain + _first_match(ENGINE_FLOORS, case.operation) * eps
    longest = max(max(one.shape) for one in case.arguments.values())
    return _first_match(ROUNDING_BOUNDS, case.operation) * eps * longest**0.5


def _first_match(bounds: tuple[tuple[str, Any, str], ...], operation: str) -> Any:
    return next(value for ending, value, _ in bounds if operation.endswith(ending))
