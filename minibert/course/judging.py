"""What an answer is judged by: the complex step, a second route to the same value, or a law."""

import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from minibert.course.running import Rejected, barred, call, copy, leaves, same_parameters
from minibert.gradcheck.cases import Case, Size, config_of, random_batch, random_parameters
from minibert.gradcheck.operations import heads, primitives, sublayers
from minibert.gradcheck.sheet import complex_step, engine_gradients, gradient_errors, split, upstream
from minibert.ops import Ops

BOUND = 1e-12  # of float64's rounding: a wrong term shows as 1e-3 or more, a finite difference as 1e-9
CONSUMED = ("grads", "dtable", "total")  # accumulators, which an operation may change
BACKWARD = "_backward"


class Finding(NamedTuple):
    """How far a right answer is from the judge's, and what it was asked."""

    error: float
    about: str


def is_operation(name: str) -> bool:
    """Tell whether `Ops` has a public method of this name."""
    return not name.startswith("_") and callable(getattr(Ops, name, None))


def has_cases(name: str) -> bool:
    """Tell whether the gradient check knows the operation."""
    return is_operation(name) and bool(_cases(name, np.random.default_rng(0)))


def engine_of(methods: dict[str, Any]) -> Ops:
    """Make an engine that has these methods, and minibert's own beside them."""
    return type("Mine", (Ops,), {"name": "mine", **methods})()


def operation(function: FunctionType, mine: dict[str, Any], seed: int) -> Finding:
    """Judge a method of `Ops`; `mine` are others of the same author, its forward perhaps among them."""
    name = function.__name__
    same_parameters(function, getattr(Ops, name))
    rng, worst, count = np.random.default_rng(seed), 0.0, 0
    for case in [*_cases(name, rng), *_cases(name, rng)]:
        engine = engine_of(mine | {name: _watched(function)})
        found = _backward_error if name.endswith(BACKWARD) else _forward_error
        try:
            worst, count = max(worst, found(engine, case, name, seed)), count + 1
        except Rejected:
            raise
        except Exception as error:  # of what was returned, somewhere further on
            raise Rejected(f"what it returns is of no use to its caller: {error} ({case.label}).") from None
    how = "by the complex step" if name.endswith(BACKWARD) else "against the reference"
    return Finding(worst, f"{count} cases of fresh shapes, {how}")


def keeps_reference_residual(function: FunctionType) -> bool:
    """Tell whether a forward saves what minibert's own backward can use."""
    case = _cases(function.__name__, np.random.default_rng(0))[0]
    saved = [case.forward(one, *split(case, case.arguments))[1] for one in (Ops(), _engine_with(function))]
    return type(saved[0]) is type(saved[1])


def outputs_of_operation(function: FunctionType, mine: dict[str, Any], seed: int) -> list[Any]:
    """Return what an operation computes on the cases of a seed."""
    name, rng = function.__name__, np.random.default_rng(seed)
    engine, found = engine_of(mine | {name: function}), []
    for case in _cases(name, rng):
        if name.endswith(BACKWARD):
            u = upstream(case, np.random.default_rng(seed))
            found.append(engine_gradients(engine, case, case.arguments, u))
        else:
            found.append(case.forward(engine, *split(case, case.arguments))[0])
    return found


class Route(NamedTuple):
    """How a plain function is judged: what it is called with, and one of three judges.

    Attributes
    ----------
    draw : random generator -> tuple of arguments.
    same_as : arguments -> the right answer, by another route.
    law : answer, arguments -> None, or a sentence about what does not hold.
    gradient_of : arguments -> a scalar; the answer is its gradients with respect to the arguments `wrt`.
    times : how many arguments are drawn.
    tolerance : of the largest error, relative to the largest value.
    """

    draw: Callable[[np.random.Generator], tuple[Any, ...]]
    same_as: Callable[..., Any] | None = None
    law: Callable[..., str | None] | None = None
    gradient_of: Callable[..., Any] | None = None
    wrt: tuple[int, ...] = (0,)
    times: int = 5
    tolerance: float = BOUND

    def judge(self, function: Callable[..., Any], seed: int) -> Finding:
        """Judge the answers of a function to all the questions of a seed."""
        worst = 0.0
        for arguments in self.questions(seed):
            own, reference = copy(arguments), copy(arguments)
            expected = self.same_as(*reference) if self.same_as else None
            answer = function(*own)
            if answer is None or answer is ...:
                raise Rejected("it returns nothing.")
            _require_unchanged(own, reference, arguments)
            if self.same_as:
                worst = max(worst, compare(answer, expected, self.tolerance))
            if self.law and isinstance(broken := self.law(answer, *arguments), str):
                raise Rejected(broken)
            if self.gradient_of:
                worst = max(worst, self._gradient_error(answer, arguments, seed))
        how = "by the complex step" if self.gradient_of else "by a law" if self.law else "by another route"
        return Finding(worst, f"{self.times} fresh questions, {how}")

    def outputs(self, function: Callable[..., Any], seed: int) -> list[Any]:
        """Return the answers to all the questions of a seed."""
        return [function(*copy(arguments)) for arguments in self.questions(seed)]

    def questions(self, seed: int) -> list[tuple[Any, ...]]:
        """Draw the arguments of a seed."""
        rng = np.random.default_rng(seed)
        return [self.draw(rng) for _ in range(self.times)]

    def _gradient_error(self, answer: Any, arguments: tuple[Any, ...], seed: int) -> float:
        """Compare gradients with the complex step, each along a random direction of its own."""
        gradients = answer if isinstance(answer, tuple | list) else (answer,)
        if len(gradients) != len(self.wrt):
            raise Rejected(f"it returns {len(gradients)} gradients; expected {len(self.wrt)}.")
        rng, worst = np.random.default_rng(seed), 0.0
        for place, gradient in zip(self.wrt, gradients, strict=True):
            at = np.asarray(arguments[place], np.float64)
            gradient = np.asarray(gradient)
            _require_shape(gradient, at, f"gradient {place + 1}" if len(self.wrt) > 1 else "the gradient")
            v = rng.standard_normal(at.shape)

            def along(x: Any, place: int = place) -> Any:
                return self.gradient_of(*arguments[:place], x, *arguments[place + 1 :])

            exact = float(complex_step(along, at, v))
            error = abs(float((gradient * v).sum()) - exact)
            worst = max(
                worst, _within(error / max(_size(gradient) * _size(v), abs(exact), 1e-300), self.tolerance)
            )
        return worst


def compare(found: Any, expected: Any, tolerance: float, what: str = "the answer") -> float:
    """Return the largest relative error of nested answers; raise Rejected where kinds or shapes differ, or it is too large."""
    if isinstance(expected, dict | list | tuple) or isinstance(found, dict | list | tuple):
        kind = dict if isinstance(expected, dict) else list if isinstance(expected, list) else tuple
        if isinstance(expected, dict | list | tuple) and not isinstance(found, kind):
            raise Rejected(f"{what} is {_kind(found)}; expected {_kind(expected)}.")
        if not isinstance(expected, dict | list | tuple):
            raise Rejected(f"{what} is {_kind(found)}; expected {_kind(expected)}.")
        if isinstance(expected, dict):
            if set(found) != set(expected):
                raise Rejected(f"{what} has the keys {_few(found)}; expected {_few(expected)}.")
            pairs = [(found[key], expected[key], f"{what} at {key!r}") for key in expected]
        else:
            if len(found) != len(expected):
                raise Rejected(f"{what} has {len(found)} parts; expected {len(expected)}.")
            pairs = [
                (a, b, f"part {n} of {what}") for n, (a, b) in enumerate(zip(found, expected, strict=True), 1)
            ]
        return max([compare(a, b, tolerance, part) for a, b, part in pairs], default=0.0)
    if isinstance(expected, str | bytes | bool | None) or np.asarray(expected).dtype.kind not in "fciub":
        if type(found) is not type(expected) or found != expected:
            raise Rejected(f"{what} is {found!r}; expected {expected!r}.")
        return 0.0
    if not isinstance(found, int | float | complex | np.ndarray | np.generic):
        raise Rejected(f"{what} is {_kind(found)}; expected {_kind(expected)}.")
    found, expected = np.asarray(found), np.asarray(expected)
    _require_shape(found, expected, what)
    if found.dtype.kind not in "fciub" or (expected.dtype.kind == "b") != (found.dtype.kind == "b"):
        raise Rejected(f"{what} holds {found.dtype}; expected {expected.dtype}.")
    if not found.size:
        return 0.0
    error = np.abs(found - expected if expected.dtype.kind != "b" else found != expected)
    scale = max(float(np.abs(expected.astype(np.complex128)).max()), 1e-300)
    return _within(float(error.max()) / scale, tolerance, what)


def _cases(name: str, rng: np.random.Generator) -> list[Case]:
    """Draw every case of an operation, at a shape in which no two letters agree."""
    A, D = int(rng.integers(2, 4)), int(rng.integers(4, 7))
    lengths = tuple(int(n) for n in rng.permutation([1, 2, 2, *rng.integers(3, 8, size=2)]))
    size = Size(lengths, H=A * D, A=A, F=A * D + 5, V=A * D + 14, M=int(rng.integers(4, 7)))
    batch, parameters = random_batch(size, size.M, rng), random_parameters(config_of(size), rng)
    every = [*primitives(size, batch, rng), *sublayers(size, batch, parameters, rng)]
    every += heads(size, batch, parameters, rng)
    return [case for case in every if case.operation == name.removesuffix(BACKWARD)]


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
    gradients = engine_gradients(engine, case, case.arguments, u)
    for argument, gradient in gradients.items():
        _require_shape(gradient, case.arguments[argument], f"the gradient of {argument} ({case.label})")
    errors = gradient_errors(engine, case, seed)
    for argument, error in errors.items():
        _within(
            error, BOUND, f"the gradient of {argument} ({case.label})" if argument != "all" else "a gradient"
        )
    return max(errors.values())


def _watched(function: FunctionType) -> Callable[..., Any]:
    """Wrap a method so that minibert's own is barred while it runs, and inputs and result are looked at."""
    name = function.__name__
    forward = name.removesuffix(BACKWARD)
    names, signature = (name, forward), inspect.signature(function)
    classes = _classes(Ops)
    pair = not name.endswith(BACKWARD) and hasattr(Ops, f"{name}{BACKWARD}")

    def method(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        watched = {key: one for key, one in given.items() if key not in ("self", *CONSUMED)}
        before = copy(watched)
        with barred(classes, names):
            result = call(function, *args, **kwargs)
        _require_unchanged(watched, before, before)
        if pair and not (isinstance(result, tuple) and len(result) == 2):
            raise Rejected(f"it returns {_kind(result)}; expected a pair, the result and what is saved.")
        if not pair and (result is None or result is ...):
            raise Rejected("it returns nothing.")
        return result

    return method


def bar_reference(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a function so that minibert's method `name` is barred while it runs."""

    def barring(*args: Any, **kwargs: Any) -> Any:
        with barred(_classes(Ops), (name,)):
            return call(function, *args, **kwargs)  # type: ignore[arg-type]

    return barring


def _classes(top: type) -> list[type]:
    """List the classes that `Ops` is made of and those that are made of it, but for engines of the course."""
    found = [one for one in top.__mro__ if one is not object]
    below: list[type] = list(top.__subclasses__())
    while below:
        one = below.pop()
        below += one.__subclasses__()
        if one.__name__ != "Mine":
            found.append(one)
    return found


def _engine_with(function: FunctionType) -> Ops:
    return engine_of({function.__name__: function})


def _require_unchanged(own: Any, expected: Any, before: Any) -> None:
    """Raise Rejected where arguments were changed that should not have been."""
    for mine, theirs, old in zip(*map(leaves, (own, expected, before)), strict=True):
        if isinstance(old, np.ndarray) and not np.array_equal(mine, theirs) and np.array_equal(theirs, old):
            raise Rejected("it changes an array that it was given; make a new one.")


def _require_shape(found: Any, expected: Any, what: str) -> None:
    if np.shape(found) != np.shape(expected):
        raise Rejected(f"{what} has the shape {np.shape(found)}; expected {np.shape(expected)}.")


def _within(error: float, bound: float, what: str = "the answer") -> float:
    """Return an error within its bound; not a number is outside."""
    if error <= bound:
        return error
    raise Rejected(f"{what} is off by {error:.0e}, relative; allowed are {bound:.0e}.")


def _size(x: Any) -> float:
    return float(np.sqrt((np.asarray(x) * np.asarray(x)).sum()))


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list) else f"a {kind}"


def _few(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(repr, names))[:5])
