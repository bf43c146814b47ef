"""What an answer is judged by: the complex step, a second route to the same value, or a law."""

import inspect
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakSet

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
from minibert.core.gradcheck.operations import TREE, case_of, heads, primitives, sublayers
from minibert.core.params import Parameters
from minibert.course.diagnosis import Asked, Probe, names_in, parts_of, probes_of
from minibert.course.running import Plain, Rejected, barred, call, require_parameters
from minibert.model.ops import Ops

BOUND = 1e-12  # of float64's rounding: a wrong term shows as 1e-3 or more
EXACT = 1e-14  # of an element of a gradient: right formulas err by 3e-15, 4-point differences by 3e-13
CONSUMED = ("grads", "dtable", "total")  # accumulators, which an operation may change
BACKWARD = "_backward"
ENOUGH = 12  # questions to a plain function that a law has to hold for
_ENGINES: WeakSet[type] = WeakSet()  # classes of readers' engines; a class that is only called Mine is none
Methods = dict[str, Any]
Change = Callable[[dict[str, Any]], dict[str, Any]]  # of the arguments of a question


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
        """Judge the answers to all the questions of a seed.

        Parameters
        ----------
        function : function
            The reader's; with the name of an operation it is called as a method of an engine.
        mine : dict of function
            Other operations of the same author, which that engine has.
        seed : int
            Of the arguments.

        Returns
        -------
        error : float
            The largest, relative.
        about : str
            What was asked, and how it was judged.

        Raises
        ------
        Rejected
            When an answer is wrong or can't be judged, or the function raises or changes its arguments.
        """
        worst = 0.0
        for arguments, answer in self._answers(function, mine, seed):
            if self.same_as:
                expected = self.same_as(*deepcopy(arguments))
                worst = max(worst, compare(answer, expected, self.tolerance))
            if self.law:
                try:
                    broken = self.law(answer, *arguments)
                except Exception as error:
                    raise Rejected(f"the answer, {_short(answer)}, can't be judged: {error}") from None
                if isinstance(broken, str):
                    raise Rejected(broken)
            if self.gradient_of:
                worst = max(worst, self._gradient_error(answer, arguments, seed))
        how = "by another route"
        if self.law:
            how = "by a law"
        if self.gradient_of:
            how = "by the complex step"
        return worst, f"{counted(self.times, 'fresh question')}, {how}"

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> list[Any]:
        """Return the answers to all the questions of a seed.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As of `judge`.

        Returns
        -------
        list
            As many as `times`.
        """
        return [answer for _, answer in self._answers(function, mine, seed)]

    def asked(
        self,
        function: FunctionType,
        mine: Methods,
        seed: int,
        solution: FunctionType | None,
        change: Change | None = None,
    ) -> list[Asked]:
        """Ask enough questions to tell where the answers are off.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As of `judge`.
        solution : function
            Of the exercise; its answers are right where there is no second route. None: there is none.
        change : function
            Of the arguments of all questions; None: they are as they were drawn.

        Returns
        -------
        list of Asked
            Empty where nothing says what is right.
        """
        right = self.same_as or solution
        if not right:
            return []
        name = function.__name__
        signature = inspect.signature(function)
        names = [parameter for parameter in signature.parameters if parameter != "self"]
        parts = names_in(function.__doc__) or names_in(solution.__doc__ if solution else "")

        def methods(one: Any) -> Any:
            if one is self.same_as or not is_operation(name):
                return one
            return getattr(engine_of(mine | {name: one}), name)

        asked: list[Asked] = []
        while len(asked) < ENOUGH:
            rng = np.random.default_rng(seed + len(asked))
            for _ in range(min(self.times, ENOUGH)):
                arguments = dict(zip(names, self.draw(rng), strict=False))
                if change:
                    arguments = change(arguments)
                with np.errstate(all="ignore"):
                    found = methods(function)(*deepcopy(list(arguments.values())))
                    expected = methods(right)(*deepcopy(list(arguments.values())))
                both = [parts_of(found, parts), parts_of(expected, parts)]
                if is_operation(name) and hasattr(Ops, f"{name}{BACKWARD}"):
                    both = [_forward_parts(*found), _forward_parts(*expected)]
                asked.append(Asked(both[0], both[1], arguments))
        return asked

    def probes(
        self, function: FunctionType, mine: Methods, seed: int, solution: FunctionType | None
    ) -> list[Probe]:
        """List what may be changed in the questions that would make a wrong answer right.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
        solution : function
            As of `asked`.

        Returns
        -------
        list of Probe
        """
        arguments = self.asked(function, mine, seed, solution)[0].arguments
        return list(
            probes_of(function, arguments, lambda change: self.asked(function, mine, seed, solution, change))
        )

    def _answers(self, function: FunctionType, mine: Methods, seed: int) -> Iterator[tuple[Any, Any]]:
        """Ask the questions of a seed; an operation of `Ops` is called as a method of an engine."""
        name = function.__name__
        reference = getattr(self.same_as, "__name__", "")
        target = reference if is_operation(reference) else name
        if is_operation(name):
            require_parameters(function, getattr(Ops, name))

        def answer(*args: Any) -> Any:
            with barred(_classes(), target):
                return call(function, *args)

        asked = answer
        if is_operation(name):
            asked = getattr(engine_of(mine | {name: answer}), name)
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
        points = [np.asarray(arguments[place], np.float64) for place in self.wrt]
        require_alike(tuple(gradients), tuple(points))
        rng = np.random.default_rng(seed)
        worst = 0.0
        for place, at, gradient in zip(self.wrt, points, gradients, strict=True):
            v = rng.standard_normal(at.shape)

            def along(x: Any, place: int = place) -> Any:
                return self.gradient_of(*arguments[:place], x, *arguments[place + 1 :])  # type: ignore[misc]

            exact = float(complex_step(along, at, v))
            directional = float((gradient * v).sum())
            lengths = float(np.linalg.norm(gradient) * np.linalg.norm(v))
            scale = max(lengths, abs(exact), 1e-300)
            error = _within(abs(directional - exact) / scale, self.tolerance)
            worst = max(worst, error)
        return worst


class OnSheet:
    """How an operation is judged that is on the proof sheet of `minibert gradcheck`; as `Route` otherwise."""

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge a method of `Ops` on every case of the sheet, at two sets of fresh shapes.

        Parameters
        ----------
        function : function
            The reader's, with the name of the operation.
        mine : dict of function
            Others of the same author, its forward perhaps among them.
        seed : int
            Of the shapes and the arguments.

        Returns
        -------
        error : float
            The largest, relative.
        about : str
            How many cases there were, and how they were judged.

        Raises
        ------
        Rejected
            When a result is wrong, of another precision, or of no use to its caller.
        """
        name = function.__name__
        require_parameters(function, getattr(Ops, name))
        is_backward = name.endswith(BACKWARD)
        error_of = _backward_error if is_backward else _forward_error
        engine = engine_of(mine | {name: _watched(function)})
        rng = np.random.default_rng(seed)
        cases = [*_cases(name, rng), *_cases(name, rng)]
        worst = 0.0
        for case in cases:
            try:
                worst = max(worst, error_of(engine, case, name, seed))
                _require_kinds(engine, case, is_backward, seed)
            except Rejected:
                raise
            except Exception as error:  # of what was returned, somewhere further on
                raise Rejected(f"its result is of no use to its caller: {error} ({case.label}).") from None
        how = "by the complex step" if is_backward else "against the reference"
        return worst, f"{len(cases)} cases of fresh shapes, {how}"

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> list[Any]:
        """Return what it computes on the cases of a seed.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As of `judge`.

        Returns
        -------
        list
            For each case the result of a forward, or the gradients by name.
        """
        name = function.__name__
        engine = engine_of(mine | {name: function})

        def output(case: Case) -> Any:
            if not name.endswith(BACKWARD):
                result, _ = _run_forward(engine, case)
                return result
            u = upstream(case, np.random.default_rng(seed))
            return engine_gradients(engine, case, case.arguments, u)

        cases = _cases(name, np.random.default_rng(seed))
        return [output(case) for case in cases]

    def asked(
        self,
        function: FunctionType,
        mine: Methods,
        seed: int,
        solution: FunctionType | None = None,
        change: Change | None = None,
        lengths: tuple[int, ...] | None = None,
    ) -> list[Asked]:
        """Ask all cases at two sets of shapes.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As of `judge`.
        solution : function
            Not needed: the reference is right.
        change : function
            Of the arguments, the gradient from above among them; None: they are as they were drawn.
        lengths : tuple of int
            Of the sequences; None: they are drawn.

        Returns
        -------
        list of Asked
        """
        name = function.__name__
        is_backward = name.endswith(BACKWARD)
        upstream_name = list(inspect.signature(getattr(Ops, name)).parameters)[1]
        asked = []
        for offset in range(2):
            rng = np.random.default_rng(seed + offset)
            for case in _cases(name, rng, lengths):
                arguments = dict(case.arguments)
                if is_backward:
                    arguments[upstream_name] = upstream(case, rng)
                if change:
                    arguments = change(arguments)
                values = [arguments[key] for key in case.arguments]
                given = dict(zip(case.arguments, values, strict=True))
                both = []
                for engine in (engine_of(mine | {name: function}), Ops()):
                    with np.errstate(all="ignore"):
                        if is_backward:
                            one = engine_gradients(engine, case, given, arguments[upstream_name])
                        else:
                            one = _forward_parts(*_run_forward(engine, case, given))
                    both.append(one)
                if set(both[0]) != set(both[1]):  # it saves something else
                    both = [{"the result": one["the result"]} for one in both]
                totals = tuple(case.params) if is_backward else ()
                asked.append(Asked(both[0], both[1], arguments, case.variant, totals))
        return asked

    def probes(
        self, function: FunctionType, mine: Methods, seed: int, solution: FunctionType | None = None
    ) -> list[Probe]:
        """List what may be changed in the cases that would make a wrong answer right.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
        solution : function
            As of `asked`.

        Returns
        -------
        list of Probe
        """

        def ask(change: Change) -> list[Asked]:
            return self.asked(function, mine, seed, change=change)

        def shaped(*lengths: int) -> Callable[[], list[Asked]]:
            return lambda: self.asked(function, mine, seed, lengths=lengths)

        shapes = [Probe("for a single sequence", shaped(6)), Probe("for a single token", shaped(1))]
        if not _depends_on_borders(function.__name__):
            shapes = [Probe("for a single row", shaped(1))]
        arguments = self.asked(function, mine, seed)[0].arguments
        return [*shapes, *probes_of(function, arguments, ask)]


def _forward_parts(result: Any, saved: Any) -> dict[str, Any]:
    """Name the result of a forward, and the arrays that it saves."""
    parts = {"the result": result}
    for name in getattr(saved, "_fields", ()):
        value = getattr(saved, name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            parts[f"the saved {name}"] = value
    return parts


def _depends_on_borders(name: str) -> bool:
    """Tell whether an operation reads where sequences begin."""
    return any(word in name for word in ("attention", "embedding_block", "pooler", "masked_lm"))


def is_operation(name: str) -> bool:
    """Tell whether `Ops` has a public method of this name.

    Parameters
    ----------
    name : str

    Returns
    -------
    bool
    """
    return not name.startswith("_") and callable(getattr(Ops, name, None))


def is_on_sheet(name: str) -> bool:
    """Tell whether the gradient check knows the operation.

    Parameters
    ----------
    name : str
        Of a forward or a backward.

    Returns
    -------
    bool
    """
    return is_operation(name) and bool(_cases(name, np.random.default_rng(0)))


def engine_of(methods: Methods) -> Ops:
    """Make an engine that has these methods, and minibert's own beside them.

    Parameters
    ----------
    methods : dict of function
        By the names of the operations.

    Returns
    -------
    Ops
        Of a class "Mine", whose name is "mine".
    """
    engine = type("Mine", (Ops,), {"name": "mine", **methods})
    _ENGINES.add(engine)
    return engine()


def keeps_reference_residual(function: FunctionType) -> bool:
    """Tell whether a forward saves what minibert's own backward can use.

    Parameters
    ----------
    function : function
        With the name of an operation on the sheet.

    Returns
    -------
    bool
        By the type of what is saved, in the operation's first case.
    """
    name = function.__name__
    case = _cases(name, np.random.default_rng(0))[0]
    _, ours = _run_forward(Ops(), case)
    _, theirs = _run_forward(engine_of({name: function}), case)
    return type(ours) is type(theirs)


def _run_forward(engine: Ops, case: Case, arguments: Any = None) -> tuple[Any, Any]:
    """Return the result of a case and what its backward needs, with other arguments where these are given."""
    inputs, params = split(case, case.arguments if arguments is None else arguments)
    return case.forward(engine, inputs, params)


def compare(found: Any, expected: Any, tolerance: float, what: str = "the answer") -> float:
    """Return the largest relative error of nested answers.

    Parameters
    ----------
    found, expected : Any
        Numbers and arrays, in lists, tuples and dictionaries perhaps.
    tolerance : float
        Of the error of each array, relative to its largest value.
    what : str
        Begins the sentence that says what is wrong.

    Returns
    -------
    float
        0.0 where all are the same.

    Raises
    ------
    Rejected
        When kinds, lengths, keys or shapes differ, or an error is larger than `tolerance`.
    """
    require_alike(found, expected, what)
    worst = 0.0
    for ours, theirs in zip(leaves(found), leaves(expected), strict=True):
        right = np.asarray(theirs)
        if right.dtype.kind not in "fciu":
            if not np.array_equal(ours, theirs):
                raise Rejected(f"{what} has {_short(ours)} where {_short(theirs)} is expected.")
        elif not np.array_equal(ours, right, equal_nan=True):  # two answers may overflow alike
            largest = float(np.abs(np.asarray(ours) - right).max())
            error = largest / max(float(np.abs(right).max()), 1e-300)
            worst = max(worst, _within(error, tolerance, what))
    return worst


def require_alike(found: Any, expected: Any, what: str = "the answer") -> None:
    """Refuse an answer that is not of the right form.

    Parameters
    ----------
    found, expected : Any
        As of `compare`.
    what : str
        Begins the sentence that says what is wrong.

    Raises
    ------
    Rejected
        When kinds, lengths, keys or shapes differ.
    """
    ours = _described(found)
    theirs = _described(expected)
    if ours != theirs:
        raise Rejected(f"{what} is {_short(ours, 200)}; expected {_short(theirs, 200)}.")


def require_unchanged(now: Any, before: Any) -> None:
    """Refuse a function that has changed what it was given.

    Parameters
    ----------
    now : Any
        Arrays, in lists, tuples and dictionaries perhaps.
    before : Any
        A deep copy of them, made before the call.

    Raises
    ------
    Rejected
        When an array is not what it was.
    """
    for new, old in zip(leaves(now), leaves(before), strict=True):
        if not isinstance(old, np.ndarray):
            continue
        has_nan = old.dtype.kind in "fc"
        if not np.array_equal(new, old, equal_nan=has_nan):
            raise Rejected("it changes an array that it was given; make a new one.")


def _described(value: Any) -> str:
    """Describe the kinds and shapes of a nested value."""
    if isinstance(value, dict):
        inner = [f"{name!r}: {_described(value[name])}" for name in sorted(value, key=repr)]
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"a {kind} of ({', '.join(map(_described, value))})"
    array = np.asarray(value)
    if array.dtype.kind not in "fciub":
        return type(value).__name__
    if array.ndim:
        return f"an array of shape {array.shape}"
    return "a truth value" if array.dtype.kind == "b" else "a number"


def leaves(value: Any) -> list[Any]:
    """List what nested lists, tuples and dictionaries hold, in order.

    Parameters
    ----------
    value : Any

    Returns
    -------
    list
    """
    if isinstance(value, dict):
        parts = [value[name] for name in sorted(value, key=repr)]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        return [value]
    return [leaf for part in parts for leaf in leaves(part)]


def _short(value: Any, most: int = 60) -> str:
    """Write a value in so many characters; a text of more than 60 stands for itself, without quotes."""
    text = value if isinstance(value, str) and most > 60 else repr(value)
    if len(text) <= most:
        return text
    return f"{text[:most]}…"


def _cases(name: str, rng: np.random.Generator, lengths: Any = None) -> list[Case]:
    """Draw every case of an operation, at a shape in which no two letters agree but for given lengths."""
    A = int(rng.integers(2, 4))
    D = int(rng.integers(4, 7))
    longer = rng.integers(3, 8, size=2)
    drawn = rng.permutation([1, 2, 2, *longer])
    if lengths is None:
        lengths = drawn
    M = int(rng.integers(4, 7))
    H = A * D
    size = Size(tuple(map(int, lengths)), H=H, A=A, F=H + 5, V=H + 14, M=M)
    batch = random_batch(size, M, rng)
    parameters = random_parameters(config_of(size), rng)
    every = [
        *primitives(size, batch, rng),
        *sublayers(size, batch, parameters, rng),
        *heads(size, batch, parameters, rng),
        *_further(size, batch, parameters, rng),
    ]
    operation = name.removesuffix(BACKWARD)
    return [case for case in every if case.operation == operation]


def _further(size: Size, batch: Any, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """Add cases that the gradient check does without: another eps in every block, and certain answers."""

    def below(path: str) -> dict[str, Any]:
        within = f"{path}."
        tensors = {}
        for name, tensor in parameters.items():
            if name.startswith(within):
                tensors[name.removeprefix(within)] = tensor
        return tensors

    eps = float(rng.uniform(0.2, 0.6))
    config = config_of(size, layer_norm_eps=eps)
    x = {"x": rng.standard_normal((batch.T, size.H))}
    is_odd = np.arange(batch.T) % 2
    scale = np.where(is_odd, 1.0, 2000.0)[:, None]  # exp underflows to 0 in every other row
    far = {"logits": scale * rng.standard_normal((batch.T, size.V))}
    labels = rng.integers(size.V, size=batch.T)
    attention = below("layers.1.attention")
    feed_forward = below("layers.1.feed_forward")
    options = batch.cu_seqlens, config, None, 1, None
    return [
        case_of("softmax_cross_entropy", "far apart", batch, far, {}, labels),
        case_of("embedding_block", "large eps", batch, {}, below("embeddings"), batch, TREE, config, None),
        case_of("attention_block", "large eps", batch, x, attention, TREE, *options),
        case_of(
            "feed_forward_block", "large eps", batch, x, feed_forward, TREE, config, None, 1, form=(config,)
        ),
    ]


def _require_kinds(engine: Ops, case: Case, backward: bool, seed: int) -> None:
    """Raise Rejected where single precision is not kept, or a forward loses a derivative on the way."""
    rng = np.random.default_rng(seed)
    single = {}
    tilted = {}  # along one direction of the complex numbers, whose derivative the imaginary part then is
    for name, argument in case.arguments.items():
        single[name] = argument.astype(np.float32)
        tilted[name] = argument + 1j * STEP * rng.standard_normal(argument.shape)
    u = upstream(case, rng).astype(np.float32)
    if backward:
        ours = engine_gradients(engine, case, single, u)
        theirs = engine_gradients(Ops(), case, single, u)
    else:
        ours = {"result": _run_forward(engine, case, single)[0]}
        theirs = {"result": _run_forward(Ops(), case, single)[0]}
        derivative, _ = _run_forward(engine, case, tilted)
        expected, _ = _run_forward(Ops(), case, tilted)
        what = "its derivative, which complex numbers carry through it as chapter 05 explains,"
        compare(np.imag(derivative) / STEP, np.imag(expected) / STEP, 1e-9, what)
    for name, array in ours.items():
        if np.asarray(array).dtype != np.asarray(theirs[name]).dtype:
            likely = "np.sqrt of a number, or zeros without a dtype?"
            raise Plain(f"{name} is {array.dtype} for float32: {likely}")


def _forward_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    """Return the error of a forward; Rejected where it or what it saves is wrong."""
    expected, reference = _run_forward(Ops(), case)
    result, saved = _run_forward(engine, case)
    error = compare(result, expected, BOUND, f"the result ({case.label})")
    if type(saved) is type(reference) and hasattr(Ops, f"{name}{BACKWARD}"):
        try:
            _backward_error(engine, case, name, seed)
        except Rejected as wrong:
            raise Rejected(f"the result is right, but what is saved serves no backward: {wrong}") from None
    return error


def _backward_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    """Return the largest error of a backward's gradients; Rejected where one is wrong."""
    u = upstream(case, np.random.default_rng(seed))
    gradients = engine_gradients(engine, case, case.arguments, u)
    proven = engine_gradients(Ops(), case, case.arguments, u)
    for argument, gradient in gradients.items():
        what = f"the gradient of {argument} ({case.label})"
        require_alike(gradient, case.arguments[argument], what)
        # Along one direction the errors of finite differences average out; element by element they don't.
        compare(gradient, proven[argument], EXACT, what)
    errors = []
    for argument, error in gradient_errors(engine, case, seed).items():
        errors.append(_within(error, BOUND, f"the gradient of {argument} ({case.label})"))
    return max(errors)


def _watched(function: FunctionType) -> Callable[..., Any]:
    """Wrap a method: minibert's own is barred while it runs, and inputs and result are looked at."""
    name, signature = function.__name__, inspect.signature(function)
    saves = hasattr(Ops, f"{name}{BACKWARD}")

    def method(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        watched = [value for key, value in given.items() if key not in ("self", *CONSUMED)]
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
    classes = list(Ops.__mro__[:-1])
    below = list(Ops.__subclasses__())
    while below:
        subclass = below.pop()
        classes.append(subclass)
        below += subclass.__subclasses__()
    return [engine for engine in classes if engine not in _ENGINES]


def _within(error: float, bound: float, what: str = "the answer") -> float:
    """Return an error within its bound; not a number is outside."""
    if error <= bound:
        return error
    rejected = Rejected(f"{what} is off by {error:.0e}, relative; allowed are {bound:.0e}.")
    rejected.error = error
    raise rejected
