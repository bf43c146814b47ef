"""What an answer is judged by: the complex step, a second route to the same value, or a law."""

import inspect
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from minibert.base.terminal import counted
from minibert.core.gradcheck.cases import Case, Size, config_of, random_batch, random_parameters
from minibert.core.gradcheck.complex_step import (
    STEP,
    complex_step,
    engine_gradients,
    gradient_errors,
    split,
    upstream,
)
from minibert.core.gradcheck.operations import heads, primitives, sublayers
from minibert.course.running import Plain, Rejected, barred, call, require_parameters
from minibert.model.ops import Ops

BOUND = 1e-12  # of float64's rounding: a wrong term shows as 1e-3 or more
EXACT = 1e-14  # of an element of a gradient: right formulas err by 3e-15, 4-point differences by 3e-13
CONSUMED = ("grads", "dtable", "total")  # accumulators, which an operation may change
BACKWARD = "_backward"
Methods = dict[str, Any]


class Route(NamedTuple):
    """How a function is judged that the gradient check does not know."""

    draw: Callable[[np.random.Generator], tuple[Any, ...]]  # makes the arguments
    same_as: Callable[..., Any] | None = None  # arguments -> the right answer, by another route
    law: Callable[..., str | None] | None = None  # answer, arguments -> None, or what does not hold
    gradient_of: Callable[..., Any] | None = None  # arguments -> a scalar, whose gradients are the answer
    wrt: tuple[int, ...] = (0,)  # the arguments that these are with respect to
    times: int = 5  # how many arguments are drawn
    tolerance: float = BOUND  # of the largest error, relative to the largest value

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge the answers to all the questions of a seed; return the largest error, and what was asked."""
        worst = 0.0
        for arguments, answer in self._answers(function, mine, seed):
            if self.same_as:
                worst = max(worst, compare(answer, self.same_as(*deepcopy(arguments)), self.tolerance))
            if self.law:
                try:
                    broken = self.law(answer, *arguments)
                except Exception as error:
                    raise Rejected(f"the answer, {_short(answer)}, can't be judged: {error}") from None
                if isinstance(broken, str):
                    raise Rejected(broken)
            if self.gradient_of:
                worst = max(worst, self._gradient_error(answer, arguments, seed))
        how = "by the complex step" if self.gradient_of else "by a law" if self.law else "by another route"
        return worst, f"{counted(self.times, 'fresh question')}, {how}"

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> list[Any]:
        """Return the answers to all the questions of a seed."""
        return [answer for _, answer in self._answers(function, mine, seed)]

    def _answers(self, function: FunctionType, mine: Methods, seed: int) -> Iterator[tuple[Any, Any]]:
        """Ask the questions of a seed; an operation of `Ops` is called as a method of an engine."""
        name, reference = function.__name__, getattr(self.same_as, "__name__", "")
        target = reference if is_operation(reference) else name
        if is_operation(name):
            require_parameters(function, getattr(Ops, name))

        def answer(*args: Any) -> Any:
            with barred(_classes(), target):
                return call(function, *args)

        asked = getattr(engine_of(mine | {name: answer}), name) if is_operation(name) else answer
        rng = np.random.default_rng(seed)
        for _ in range(self.times):
            arguments = self.draw(rng)
            before = deepcopy(arguments)
            result = asked(*arguments)
            if not is_operation(name):  # which may consume what it updates
                require_unchanged(arguments, before)
            yield before, result

    def _gradient_error(self, answer: Any, arguments: tuple[Any, ...], seed: int) -> float:
        """Compare gradients with the complex step, each along a random direction of its own."""
        gradients = answer if isinstance(answer, tuple | list) else (answer,)
        rng, worst = np.random.default_rng(seed), 0.0
        require_alike(tuple(gradients), tuple(np.asarray(arguments[n], np.float64) for n in self.wrt))
        for place, gradient in zip(self.wrt, gradients, strict=True):
            at = np.asarray(arguments[place], np.float64)
            v = rng.standard_normal(at.shape)

            def along(x: Any, place: int = place) -> Any:
                return self.gradient_of(*arguments[:place], x, *arguments[place + 1 :])  # type: ignore[misc]

            exact = float(complex_step(along, at, v))
            scale = max(float(np.linalg.norm(gradient) * np.linalg.norm(v)), abs(exact), 1e-300)
            worst = max(worst, _within(abs(float((gradient * v).sum()) - exact) / scale, self.tolerance))
        return worst


class OnSheet:
    """How an operation is judged that is on the proof sheet of `minibert gradcheck`; as `Route` otherwise."""

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge a method of `Ops`; `mine` are others of the same author, its forward perhaps among them."""
        name, worst, rng = function.__name__, 0.0, np.random.default_rng(seed)
        require_parameters(function, getattr(Ops, name))
        backward, asked = name.endswith(BACKWARD), [*_cases(name, rng), *_cases(name, rng)]
        error_of = _backward_error if backward else _forward_error
        engine = engine_of(mine | {name: _watched(function)})
        for case in asked:
            try:
                worst = max(worst, error_of(engine, case, name, seed))
                _require_kinds(engine, case, backward, seed)
            except Rejected:
                raise
            except Exception as error:  # of what was returned, somewhere further on
                raise Rejected(f"its result is of no use to its caller: {error} ({case.label}).") from None
        how = "by the complex step" if backward else "against the reference"
        return worst, f"{len(asked)} cases of fresh shapes, {how}"

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> list[Any]:
        """Return what it computes on the cases of a seed."""
        name, engine = function.__name__, engine_of(mine | {function.__name__: function})

        def output(case: Case) -> Any:
            if not name.endswith(BACKWARD):
                return case.forward(engine, *split(case, case.arguments))[0]
            return engine_gradients(engine, case, case.arguments, upstream(case, np.random.default_rng(seed)))

        return [output(case) for case in _cases(name, np.random.default_rng(seed))]


def is_operation(name: str) -> bool:
    """Tell whether `Ops` has a public method of this name."""
    return not name.startswith("_") and callable(getattr(Ops, name, None))


def is_on_sheet(name: str) -> bool:
    """Tell whether the gradient check knows the operation."""
    return is_operation(name) and bool(_cases(name, np.random.default_rng(0)))


def engine_of(methods: Methods) -> Ops:
    """Make an engine that has these methods, and minibert's own beside them."""
    return type("Mine", (Ops,), {"name": "mine", **methods})()


def keeps_reference_residual(function: FunctionType) -> bool:
    """Tell whether a forward saves what minibert's own backward can use."""
    case = _cases(function.__name__, np.random.default_rng(0))[0]
    engines = (Ops(), engine_of({function.__name__: function}))
    ours, theirs = (case.forward(one, *split(case, case.arguments))[1] for one in engines)
    return type(ours) is type(theirs)


def compare(found: Any, expected: Any, tolerance: float, what: str = "the answer") -> float:
    """Return the largest relative error of nested answers.

    Raise Rejected when kinds, lengths, keys or shapes differ, or an error is larger than `tolerance`.
    """
    require_alike(found, expected, what)
    worst = 0.0
    for ours, theirs in zip(_leaves(found), _leaves(expected), strict=True):
        right = np.asarray(theirs)
        if right.dtype.kind not in "fciu":
            if not np.array_equal(ours, theirs):
                raise Rejected(f"{what} has {_short(ours)} where {_short(theirs)} is expected.")
        elif not np.array_equal(ours, right, equal_nan=True):  # two answers may overflow alike
            error = float(np.abs(np.asarray(ours) - right).max()) / max(float(np.abs(right).max()), 1e-300)
            worst = max(worst, _within(error, tolerance, what))
    return worst


def require_alike(found: Any, expected: Any, what: str = "the answer") -> None:
    """Raise Rejected where kinds, lengths, keys or shapes differ."""
    if (ours := _described(found)) != (theirs := _described(expected)):
        raise Rejected(f"{what} is {_short(ours, 200)}; expected {_short(theirs, 200)}.")


def require_unchanged(now: Any, before: Any) -> None:
    """Raise Rejected where an array is not what it was."""
    for one, old in zip(_leaves(now), _leaves(before), strict=True):
        if isinstance(old, np.ndarray) and not np.array_equal(one, old, equal_nan=old.dtype.kind in "fc"):
            raise Rejected("it changes an array that it was given; make a new one.")


def _described(value: Any) -> str:
    """Describe the kinds and shapes of a nested value."""
    if isinstance(value, dict):
        inner = (f"{name!r}: {_described(value[name])}" for name in sorted(value, key=repr))
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"a {'list' if isinstance(value, list) else 'tuple'} of ({', '.join(map(_described, value))})"
    array = np.asarray(value)
    if array.dtype.kind in "fciub":
        kind = "a truth value" if array.dtype.kind == "b" else "a number"
        return f"an array of shape {array.shape}" if array.ndim else kind
    return type(value).__name__


def _leaves(value: Any) -> list[Any]:
    """List what nested lists, tuples and dictionaries hold, in order."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value, key=repr) for leaf in _leaves(value[name])]
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]


def _short(value: Any, most: int = 60) -> str:
    text = value if isinstance(value, str) and most > 60 else repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _cases(name: str, rng: np.random.Generator) -> list[Case]:
    """Draw every case of an operation, at a shape in which no two letters agree."""
    A, D = int(rng.integers(2, 4)), int(rng.integers(4, 7))
    lengths = tuple(int(n) for n in rng.permutation([1, 2, 2, *rng.integers(3, 8, size=2)]))
    size = Size(lengths, H=A * D, A=A, F=A * D + 5, V=A * D + 14, M=int(rng.integers(4, 7)))
    batch, parameters = random_batch(size, size.M, rng), random_parameters(config_of(size), rng)
    every = [*primitives(size, batch, rng), *sublayers(size, batch, parameters, rng)]
    every += heads(size, batch, parameters, rng)
    return [case for case in every if case.operation == name.removesuffix(BACKWARD)]


def _require_kinds(engine: Ops, case: Case, backward: bool, seed: int) -> None:
    """Raise Rejected where single precision is not kept, or a forward loses a derivative on the way."""
    rng = np.random.default_rng(seed)
    single = {name: one.astype(np.float32) for name, one in case.arguments.items()}
    tilted = {name: one + 1j * STEP * rng.standard_normal(one.shape) for name, one in case.arguments.items()}
    u = upstream(case, rng).astype(np.float32)
    if backward:
        found = [engine_gradients(one, case, single, u) for one in (engine, Ops())]
    else:
        found = [{"result": case.forward(one, *split(case, single))[0]} for one in (engine, Ops())]
        ours, theirs = (np.imag(case.forward(one, *split(case, tilted))[0]) / STEP for one in (engine, Ops()))
        what = "its derivative, which complex numbers carry through it as chapter 05 explains,"
        compare(ours, theirs, 1e-9, what)
    for name, one in found[0].items():
        if np.asarray(one).dtype != np.asarray(found[1][name]).dtype:
            raise Plain(f"{name} is {one.dtype} for float32: np.sqrt of a number, or zeros without a dtype?")


def _forward_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    expected, reference = case.forward(Ops(), *split(case, case.arguments))
    found, saved = case.forward(engine, *split(case, case.arguments))
    error = compare(found, expected, BOUND, f"the result ({case.label})")
    if type(saved) is type(reference) and hasattr(Ops, f"{name}{BACKWARD}"):
        try:
            _backward_error(engine, case, name, seed)
        except Rejected as wrong:
            raise Rejected(f"the result is right, but what is saved serves no backward: {wrong}") from None
    return error


def _backward_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    u = upstream(case, np.random.default_rng(seed))
    found, proven = (engine_gradients(one, case, case.arguments, u) for one in (engine, Ops()))
    for argument, gradient in found.items():
        require_alike(gradient, case.arguments[argument], f"the gradient of {argument} ({case.label})")
        # Along one direction the errors of finite differences average out; element by element they don't.
        compare(gradient, proven[argument], EXACT, f"the gradient of {argument} ({case.label})")
    errors = gradient_errors(engine, case, seed)
    return max(_within(one, BOUND, f"the gradient of {name} ({case.label})") for name, one in errors.items())


def _watched(function: FunctionType) -> Callable[..., Any]:
    """Wrap a method: minibert's own is barred while it runs, and inputs and result are looked at."""
    name, signature = function.__name__, inspect.signature(function)
    saves = hasattr(Ops, f"{name}{BACKWARD}")

    def method(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        watched = [one for key, one in given.items() if key not in ("self", *CONSUMED)]
        before = deepcopy(watched)
        with barred(_classes(), name, name.removesuffix(BACKWARD)):
            result = call(function, *args, **kwargs)
        require_unchanged(watched, before)
        if saves and not (isinstance(result, tuple) and len(result) == 2):
            raise Rejected("it has to return a pair: the result, and what its backward needs.")
        return result

    return method


def _classes() -> list[type]:
    """List the classes that `Ops` is made of and those made of it, but for engines of the course."""
    found, below = list(Ops.__mro__[:-1]), list(Ops.__subclasses__())
    while below:
        found.append(one := below.pop())
        below += one.__subclasses__()
    return [one for one in found if one.__name__ != "Mine"]


def _within(error: float, bound: float, what: str = "the answer") -> float:
    """Return an error within its bound; not a number is outside."""
    if error <= bound:
        return error
    raise Rejected(f"{what} is off by {error:.0e}, relative; allowed are {bound:.0e}.")
