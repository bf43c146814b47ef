"""Judge an answer: by the complex step, by a second route to the same value, or by a law.

There are two judges with the same methods, which `Judge` documents. `OnSheet` judges an operation that the
gradient check covers, with the cases of `minibert gradcheck`. `Route` judges any other function, with
questions and criteria of its own.
"""

import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from copy import deepcopy
from itertools import product
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, Protocol
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
from minibert.course.comparing import (
    BOUND,
    TINY,
    as_tuple_if_expected,
    compare,
    is_like,
    kind_changed,
    require_alike,
    require_unchanged,
    require_within,
    short,
)
from minibert.course.diagnosis import Change, Probe, Question, names_in, parts_of, probes_of
from minibert.course.running import Plain, Rejected, barred, call, require_parameters
from minibert.model.ops import Ops

# Relative error of an element of a gradient: a right formula errs by 3e-15, a four-point difference by 3e-13.
EXACT = 1e-14
TILTED = 1e-9  # relative error of a derivative that a forward carries in its imaginary part
FAR_APART = 2000.0  # scale of logits so far apart that all exponentials but the largest one underflow
CONSUMED = ("grads", "dtable", "total")  # parameters that are accumulators, which an operation may change
BACKWARD = "_backward"
PREDICTION = "the prediction"  # name of the part of a masked-LM head's answer that has no gradient
RESULT = "the result"  # name of the part of a forward's answer that is not saved for its backward
ENOUGH = 12  # questions about a plain function, all of which a law of `diagnosis` has to explain
# Classes of readers' engines. Their name alone does not tell: a cheat may call a class of its own Mine.
_ENGINES: WeakSet[type] = WeakSet()
Methods = dict[str, Any]


class Judge(Protocol):
    """What both judges can do: accept or reject a function, and help to explain why it is wrong."""

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge the answers of a function to all the questions of a seed.

        Parameters
        ----------
        function : function
            The reader's. If it has the name of an operation, it is called as a method of an engine.
        mine : dict of function
            The author's other operations by name, which that engine has as well.
        seed : int
            Seed of the questions.

        Returns
        -------
        error : float
            The largest relative error.
        about : str
            What was asked, and how it was judged.

        Raises
        ------
        Rejected
            When an answer is wrong or can't be judged, or the function raises or changes its arguments.
        """
        ...

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> Generator[Any, None, None]:
        """Yield the answers to the questions of a seed, one after another.

        Two functions that make the same mistake have the same outputs.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As for `judge`.

        Yields
        ------
        Any
        """
        ...

    def questions(
        self,
        function: FunctionType,
        mine: Methods,
        seed: int,
        solution: FunctionType | None,
        change: Change | None = None,
    ) -> list[Question]:
        """Ask enough questions to tell where the answers are off.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
            As for `judge`.
        solution : function
            The exercise's own; what it answers is right where the judge knows no other way to a right answer.
            None: there is no solution.
        change : function
            Changes the arguments of every question; None: they stay as drawn.

        Returns
        -------
        list of Question
            Answers with the right ones; empty where nothing says what is right.
        """
        ...

    def probes(
        self, function: FunctionType, mine: Methods, seed: int, solution: FunctionType | None
    ) -> list[Probe]:
        """List changes of the questions that might make a wrong answer right.

        Parameters
        ----------
        function : function
        mine : dict of function
        seed : int
        solution : function
            As for `questions`.

        Returns
        -------
        list of Probe
        """
        ...


class Route(NamedTuple):
    """Judge a function that the gradient check does not cover; a `Judge`.

    At least one criterion is given: `same_as`, `law` or `gradient_of`. Every answer has to meet all that are.
    """

    draw: Callable[[np.random.Generator], tuple[Any, ...]]  # makes the arguments of a question
    same_as: Callable[..., Any] | None = None  # takes the arguments, returns the right answer another way
    law: Callable[..., str | None] | None = None  # takes answer and arguments; says what is broken, or None
    gradient_of: Callable[..., Any] | None = None  # takes the arguments, returns the scalar to differentiate
    wrt: tuple[int, ...] = (0,)  # indices of the arguments with respect to which the answer is a gradient
    times: int = 5  # questions of a seed
    tolerance: float = BOUND  # largest error that is allowed, relative to the largest value

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge the answers to all the questions of a seed; see `Judge`."""
        with closing(self._answers(function, mine, seed)) as answers:
            worst = self._largest_error(answers, seed)
        how = "by another route"
        if self.law:
            how = "by a law"
        if self.gradient_of:
            how = "by the complex step"
        return worst, f"{counted(self.times, 'fresh question')}, {how}"

    def _largest_error(self, answers: Iterator[tuple[Any, Any]], seed: int) -> float:
        """Return the largest relative error of answers to questions; raise Rejected if one is wrong."""
        worst = 0.0
        for arguments, answer in answers:
            if self.same_as:
                expected = self.same_as(*deepcopy(arguments))
                answer = as_tuple_if_expected(answer, expected)
                require_alike(answer, expected)
            self._require_law(answer, arguments)  # its sentence says more than that numbers differ
            if self.same_as:
                worst = max(worst, compare(answer, expected, self.tolerance))
            if self.gradient_of:
                worst = max(worst, self._gradient_error(answer, arguments, seed))
        return worst

    def _require_law(self, answer: Any, arguments: tuple[Any, ...]) -> None:
        """Refuse an answer that breaks the law, if there is one, or about which the law can't tell."""
        if not self.law:
            return
        try:
            broken = self.law(answer, *arguments)
        except Exception as error:
            raise Rejected(f"the answer, {short(answer)}, can't be judged: {error}") from None
        if isinstance(broken, str):
            raise Rejected(broken)

    def _gradient_error(self, answer: Any, arguments: tuple[Any, ...], seed: int) -> float:
        """Compare each gradient with the complex step, in a random direction; return the largest error."""
        points = [np.asarray(arguments[index], np.float64) for index in self.wrt]
        gradients = answer
        if not isinstance(answer, tuple | list):
            if len(points) == 1:
                require_alike(answer, points[0])
            gradients = (answer,)
        require_alike(tuple(gradients), tuple(points))
        rng = np.random.default_rng(seed)
        worst = 0.0
        for index, point, gradient in zip(self.wrt, points, gradients, strict=True):
            v = rng.standard_normal(point.shape)

            def with_argument(x: Any, index: int = index) -> Any:
                return self.gradient_of(*arguments[:index], x, *arguments[index + 1 :])  # type: ignore[misc]

            exact = float(complex_step(with_argument, point, v))
            directional = float((gradient * v).sum())
            lengths = float(np.linalg.norm(gradient) * np.linalg.norm(v))
            scale = max(lengths, abs(exact), TINY)
            error = require_within(abs(directional - exact) / scale, self.tolerance)
            worst = max(worst, error)
        return worst

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> Generator[Any, None, None]:
        """Yield the answers to the questions of a seed, `times` of them; see `Judge`."""
        with closing(self._answers(function, mine, seed)) as answers:
            for _, answer in answers:
                yield answer

    def questions(
        self,
        function: FunctionType,
        mine: Methods,
        seed: int,
        solution: FunctionType | None,
        change: Change | None = None,
    ) -> list[Question]:
        """Ask at least `ENOUGH` questions; without `same_as`, the solution is right. See `Judge`."""
        name = function.__name__
        ask, ask_right = function, self.same_as or solution
        if not ask_right:
            return []
        if is_operation(name):
            ask = getattr(engine_of(mine | {name: function}), name)
            ask_right = self.same_as or getattr(engine_of(mine | {name: solution}), name)
        parameters = [key for key in inspect.signature(function).parameters if key != "self"]
        part_names = names_in(function.__doc__) or names_in(solution.__doc__ if solution else "")

        def parts(answer: Any) -> dict[str, Any]:
            if is_operation(name) and hasattr(Ops, f"{name}{BACKWARD}"):
                return _forward_parts(*answer)
            return parts_of(answer, part_names)

        questions: list[Question] = []
        while len(questions) < ENOUGH:
            rng = np.random.default_rng(seed + len(questions))
            for _ in range(min(self.times, ENOUGH)):
                arguments = dict(zip(parameters, self.draw(rng), strict=False))
                if change:
                    arguments = change(arguments)
                with np.errstate(all="ignore"):
                    found = ask(*deepcopy(list(arguments.values())))
                    expected = ask_right(*deepcopy(list(arguments.values())))
                found = as_tuple_if_expected(found, expected)
                if self.tolerance > BOUND and is_like(found, expected, self.tolerance):
                    found = expected
                questions.append(Question(parts(found), parts(expected), arguments))
        return questions

    def probes(
        self, function: FunctionType, mine: Methods, seed: int, solution: FunctionType | None
    ) -> list[Probe]:
        """List what `probes_of` finds among the arguments; see `Judge`."""

        def ask(change: Change) -> list[Question]:
            return self.questions(function, mine, seed, solution, change)

        arguments = self.questions(function, mine, seed, solution)[0].arguments
        return list(probes_of(function, arguments, ask))

    def _answers(
        self, function: FunctionType, mine: Methods, seed: int
    ) -> Generator[tuple[Any, Any], None, None]:
        """Ask the questions of a seed, and yield the arguments of each with its answer.

        An operation of `Ops` is called as a method of an engine, and may change its arguments: an update of
        the optimizer does. While the reader's function runs, minibert's own answer to the question is barred.
        """
        name = function.__name__
        reference = getattr(self.same_as, "__name__", "")
        barred_name = reference if is_operation(reference) else name
        if is_operation(name):
            require_parameters(function, getattr(Ops, name))

        def call_barred(*args: Any) -> Any:
            with barred(_classes(), barred_name):
                return call(function, *args)

        answer = call_barred
        if is_operation(name):
            answer = getattr(engine_of(mine | {name: call_barred}), name)
        rng = np.random.default_rng(seed)
        left = self.times
        try:
            while left:
                arguments = self.draw(rng)
                left -= 1
                before = deepcopy(arguments)
                result = answer(*arguments)
                kept = self._kept(before) if is_operation(name) else range(len(before))
                require_unchanged([arguments[index] for index in kept], [before[index] for index in kept])
                yield before, result
        finally:
            for _ in range(left):  # some draws count the questions, and ask those of a kind in turn
                self.draw(rng)

    def _kept(self, arguments: tuple[Any, ...]) -> list[int]:
        """List the arguments, by index, that minibert's own operation leaves as they are.

        Where the right answer comes by another way, that does not say what an operation may change: [].
        """
        if not isinstance(getattr(self.same_as, "__self__", None), Ops):
            return []
        now = deepcopy(arguments)
        self.same_as(*now)  # type: ignore[misc]
        return [index for index, before in enumerate(arguments) if not kind_changed(now[index], before)]


class OnSheet:
    """Judge an operation that is on the proof sheet of `minibert gradcheck`; a `Judge`.

    A forward is compared with the reference. A backward is compared with the complex step of its forward: the
    author's if `mine` has it, or else minibert's.
    """

    def judge(self, function: FunctionType, mine: Methods, seed: int) -> tuple[float, str]:
        """Judge a method of `Ops` on every case of the sheet, at two sets of fresh shapes; see `Judge`.

        It is rejected as well if a result is of another precision, or of no use to its caller.
        """
        name = function.__name__
        require_parameters(function, getattr(Ops, name))
        is_backward = name.endswith(BACKWARD)
        errors_of = (_backward_error,) if is_backward else (_forward_error, _prediction_error, _saved_error)
        engine = engine_of(mine | {name: _watched(function)})
        rng = np.random.default_rng(seed)
        cases = [*_cases(name, rng), *_cases(name, rng)]
        worst = 0.0
        for error_of, case in product([*errors_of, _kinds_error], cases):
            try:
                worst = max(worst, error_of(engine, case, name, seed))
            except Rejected:
                raise
            except Exception as error:  # raised by minibert, which was given a wrong result
                raise Rejected(f"its result is of no use to its caller: {error} ({case.label}).") from None
        how = "by the complex step" if is_backward else "against the reference"
        return worst, f"{len(cases)} cases of fresh shapes, {how}"

    def outputs(self, function: FunctionType, mine: Methods, seed: int) -> Generator[Any, None, None]:
        """Yield for each case the result of a forward, or the gradients of a backward; see `Judge`.

        Where the result of a forward is right, what it saves belongs to its outputs: the mistake is in there.
        """
        name = function.__name__
        engine = engine_of(mine | {name: function})
        for case in _cases(name, np.random.default_rng(seed)):
            if name.endswith(BACKWARD):
                u = upstream(case, np.random.default_rng(seed))
                yield engine_gradients(engine, case, case.arguments, u)
                continue
            result, saved = _run_forward(engine, case)
            expected, _ = _run_forward(Ops(), case)
            output = (result, _predictions(engine, case))
            yield (*output, saved) if is_like(result, expected) else output

    def questions(
        self,
        function: FunctionType,
        mine: Methods,
        seed: int,
        solution: FunctionType | None = None,
        change: Change | None = None,
        lengths: tuple[int, ...] | None = None,
    ) -> list[Question]:
        """Ask every case at two sets of shapes; see `Judge`. The reference, not `solution`, is right.

        Parameters
        ----------
        change : function
            As for `Judge`; the gradient from above is one of the arguments.
        lengths : tuple of int
            Lengths of the sequences; None: they are drawn. `Judge` has no such parameter.
        """
        name = function.__name__
        is_backward = name.endswith(BACKWARD)
        upstream_name = list(inspect.signature(getattr(Ops, name)).parameters)[1]
        engine = engine_of(mine | {name: function})

        def parts(engine: Ops, case: Case, arguments: dict[str, Any]) -> dict[str, Any]:
            of_case = {key: arguments[key] for key in case.arguments}
            with np.errstate(all="ignore"):
                if is_backward:
                    return engine_gradients(engine, case, of_case, arguments[upstream_name])
                result, saved = _run_forward(engine, case, of_case)
                return _forward_parts(result, saved) | _predictions(engine, case, of_case)

        questions = []
        for offset in range(2):
            rng = np.random.default_rng(seed + offset)
            for case in _cases(name, rng, lengths):
                arguments = dict(case.arguments)
                if is_backward:
                    arguments[upstream_name] = upstream(case, rng)
                if change:
                    arguments = change(arguments)
                found = parts(engine, case, arguments)
                expected = parts(Ops(), case, arguments)
                if set(found) != set(expected):  # it saves other arrays than the reference
                    found = {RESULT: found[RESULT]}
                    expected = {RESULT: expected[RESULT]}
                totals = tuple(case.params) if is_backward else ()
                saved = _saved_arrays(case, arguments) if is_backward else {}
                questions.append(Question(found, expected, arguments, case.variant, totals, saved))
        return questions

    def probes(
        self, function: FunctionType, mine: Methods, seed: int, solution: FunctionType | None = None
    ) -> list[Probe]:
        """List special shapes, then what `probes_of` finds among the arguments; see `Judge`."""

        def ask(change: Change) -> list[Question]:
            return self.questions(function, mine, seed, change=change)

        def shaped(*lengths: int) -> Callable[[], list[Question]]:
            return lambda: self.questions(function, mine, seed, lengths=lengths)

        shapes = [Probe("for a single sequence", shaped(6)), Probe("for a single token", shaped(1))]
        if not _depends_on_borders(function.__name__):
            shapes = [Probe("for a single row", shaped(1))]
        arguments = self.questions(function, mine, seed)[0].arguments
        return [*shapes, *probes_of(function, arguments, ask)]


# Engines ------------------------------------------------------------------------------------------


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
    """Tell whether the gradient check covers an operation.

    Parameters
    ----------
    name : str
        Name of a forward or a backward.

    Returns
    -------
    bool
    """
    return is_operation(name) and bool(_cases(name, np.random.default_rng(0)))


def engine_of(methods: Methods) -> Ops:
    """Make an engine that has these methods, and minibert's own for all other operations.

    Parameters
    ----------
    methods : dict of function
        Methods by the names of the operations.

    Returns
    -------
    Ops
        An engine of a new class "Mine", with the name "mine".
    """
    engine = type("Mine", (Ops,), {"name": "mine", **methods})
    _ENGINES.add(engine)
    return engine()


def keeps_reference_residual(function: FunctionType) -> bool:
    """Tell whether minibert's own backward can use what a forward saves.

    Parameters
    ----------
    function : function
        A forward with the name of an operation on the sheet.

    Returns
    -------
    bool
        Whether it saves an object of the same type as minibert's own, in the operation's first case.
    """
    name = function.__name__
    case = _cases(name, np.random.default_rng(0))[0]
    _, reference = _run_forward(Ops(), case)
    _, saved = _run_forward(engine_of({name: function}), case)
    return type(saved) is type(reference)


def usable(
    operations: Methods, is_readable: Callable[[FunctionType], bool] = keeps_reference_residual
) -> dict[str, FunctionType]:
    """Choose the operations that an engine can have.

    A forward without its author's backward needs minibert's, which has to understand what it saves.

    Parameters
    ----------
    operations : dict of function
        An author's operations by name.
    is_readable : callable
        Takes a forward; returns whether minibert's backward can use what it saves.

    Returns
    -------
    dict of function
        The others are left out.
    """

    def needs_ours(name: str) -> bool:
        backward = f"{name}{BACKWARD}"
        return backward not in operations and hasattr(Ops, backward)

    return {
        name: function
        for name, function in operations.items()
        if not needs_ours(name) or is_readable(function)
    }


def _classes() -> list[type]:
    """List `Ops`, its bases and its subclasses, except readers' engines."""
    classes = list(Ops.__mro__[:-1])
    waiting = list(Ops.__subclasses__())
    while waiting:
        subclass = waiting.pop()
        classes.append(subclass)
        waiting += subclass.__subclasses__()
    return [engine for engine in classes if engine not in _ENGINES]


def _watched(function: FunctionType) -> Callable[..., Any]:
    """Wrap a method of the reader's: bar minibert's own while it runs, and check its arguments and result.

    During a backward, minibert's forward is barred as well as its backward: the forward's complex step would
    give gradients that are exact to the last digit, and nothing would have been derived.
    """
    name, signature = function.__name__, inspect.signature(function)
    saves = hasattr(Ops, f"{name}{BACKWARD}")

    def method(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        protected = [value for key, value in bound.items() if key not in ("self", *CONSUMED)]
        before = deepcopy(protected)
        with barred(_classes(), name, name.removesuffix(BACKWARD)):
            result = call(function, *args, **kwargs)
        require_unchanged(protected, before)
        if saves and not (isinstance(result, tuple) and len(result) == 2):
            raise Rejected("it has to return a pair: the result, and what its backward needs.")
        return result

    return method


# Answers to a case of the sheet -------------------------------------------------------------------


def _run_forward(engine: Ops, case: Case, arguments: Any = None) -> tuple[Any, Any]:
    """Return the result of a case, and what its backward needs; None: with the arguments of the case."""
    inputs, params = split(case, case.arguments if arguments is None else arguments)
    return case.forward(engine, inputs, params)


def _forward_parts(result: Any, saved: Any) -> dict[str, Any]:
    """Give names to the result of a forward and to the arrays that it saves."""
    parts = {RESULT: result}
    for name in getattr(saved, "_fields", ()):
        value = getattr(saved, name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            parts[f"the saved {name}"] = value
    return parts


def _saved_arrays(case: Case, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that the reference's forward saves, by name, where the arguments are not the same."""
    parts = _forward_parts(*_run_forward(Ops(), case, {key: arguments[key] for key in case.arguments}))
    arrays = {name.replace("the saved ", "saved."): array for name, array in parts.items() if name != RESULT}
    return {name: array for name, array in arrays.items() if name.partition(".")[2] not in arguments}


def _predictions(engine: Ops, case: Case, arguments: Any = None) -> dict[str, Any]:
    """Return the pieces that a masked-LM head predicts, which its case leaves out; else {}."""
    if case.operation != "masked_lm_head":
        return {}
    predictions = []

    def masked_lm_head(*args: Any) -> Any:
        result, saved = engine.masked_lm_head(*args)
        predictions.append(result[1])
        return result, saved

    _run_forward(SimpleNamespace(masked_lm_head=masked_lm_head), case, arguments)  # type: ignore[arg-type]
    return {PREDICTION: predictions[0]}


def _depends_on_borders(name: str) -> bool:
    """Tell whether the result of an operation depends on where sequences begin."""
    return any(word in name for word in ("attention", "embedding_block", "pooler", "masked_lm"))


# Errors of an answer to a case --------------------------------------------------------------------


def _forward_error(engine: Ops, case: Case, _name: str, _seed: int) -> float:
    """Return the error of a forward's result; raise Rejected if it is wrong."""
    expected, _ = _run_forward(Ops(), case)
    result, _ = _run_forward(engine, case)
    return compare(result, expected, BOUND, f"the result ({case.label})")


def _prediction_error(engine: Ops, case: Case, _name: str, _seed: int) -> float:
    """Return 0.0; raise Rejected if a masked-LM head predicts other pieces than the reference."""
    for what, expected in _predictions(Ops(), case).items():
        compare(_predictions(engine, case)[what], expected, 0.0, f"{what} ({case.label})")
    return 0.0


def _saved_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    """Return 0.0; raise Rejected if a backward can't use what a forward saves in minibert's own type."""
    _, reference = _run_forward(Ops(), case)
    _, saved = _run_forward(engine, case)
    if type(saved) is type(reference) and hasattr(Ops, f"{name}{BACKWARD}"):
        try:
            _backward_error(engine, case, name, seed)
        except Rejected as wrong:
            raise Rejected(f"the result is right, but what it saves is wrong: {wrong}") from None
        except Exception as error:  # raised by a backward, which can't use it
            text = f"the result is right, but no backward can use what it saves: {error} ({case.label})."
            raise Rejected(text) from None
    return 0.0


def _backward_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    """Return the largest error of a backward's gradients; raise Rejected if one is wrong."""
    u = upstream(case, np.random.default_rng(seed))
    gradients = engine_gradients(engine, case, case.arguments, u)
    proven = engine_gradients(Ops(), case, case.arguments, u)
    for argument, gradient in gradients.items():
        what = f"the gradient of {argument} ({case.label})"
        require_alike(gradient, case.arguments[argument], what)
        # In one direction the errors of finite differences average out; element by element they do not.
        compare(gradient, proven[argument], EXACT, what)
    errors = []
    for argument, error in gradient_errors(engine, case, seed).items():
        errors.append(require_within(error, BOUND, f"the gradient of {argument} ({case.label})"))
    return max(errors)


def _kinds_error(engine: Ops, case: Case, name: str, seed: int) -> float:
    """Return 0.0; raise Rejected if single precision is lost, or the complex step's derivative."""
    rng = np.random.default_rng(seed)
    single = {}
    tilted = {}  # a small imaginary step in a random direction, in which a forward carries its derivative
    for part, argument in case.arguments.items():
        single[part] = argument.astype(np.float32)
        tilted[part] = argument + 1j * STEP * rng.standard_normal(argument.shape)
    u = upstream(case, rng).astype(np.float32)
    if name.endswith(BACKWARD):
        found = engine_gradients(engine, case, single, u)
        reference = engine_gradients(Ops(), case, single, u)
    else:
        found = {"result": _run_forward(engine, case, single)[0]}
        reference = {"result": _run_forward(Ops(), case, single)[0]}
        derivative, _ = _run_forward(engine, case, tilted)
        expected, _ = _run_forward(Ops(), case, tilted)
        what = "its derivative, which complex numbers carry through it as chapter 05 explains,"
        compare(np.imag(derivative) / STEP, np.imag(expected) / STEP, TILTED, what)
    for part, array in found.items():
        if np.asarray(array).dtype != np.asarray(reference[part]).dtype:
            likely = "np.sqrt of a number, or zeros without a dtype?"
            raise Plain(f"{part} is {array.dtype} for float32: {likely}")
    return 0.0


# Cases of the sheet -------------------------------------------------------------------------------


def _cases(name: str, rng: np.random.Generator, lengths: Any = None) -> list[Case]:
    """Draw every case of an operation, at a shape in which no two sizes agree.

    Lengths of sequences that are given may agree with another size.
    """
    size = _draw_size(rng)
    if lengths is not None:
        size = size._replace(lengths=tuple(map(int, lengths)))
    batch = random_batch(size, size.M, rng)
    parameters = random_parameters(config_of(size), rng)
    every = [
        *primitives(size, batch, rng),
        *sublayers(size, batch, parameters, rng),
        *heads(size, batch, parameters, rng),
        *_further(size, batch, parameters, rng),
    ]
    operation = name.removesuffix(BACKWARD)
    return [case for case in every if case.operation == operation]


def _draw_size(rng: np.random.Generator) -> Size:
    """Draw sizes until all differ: arrays of the wrong shape must not fit by chance."""
    while True:
        A = int(rng.integers(2, 4))
        D = int(rng.integers(4, 7))
        long_ones = rng.integers(3, 8, size=2)
        lengths = tuple(map(int, rng.permutation([1, 2, 2, *long_ones])))
        M = int(rng.integers(4, 7))
        H = A * D
        size = Size(lengths, H=H, A=A, F=H + 5, V=H + 14, M=M)
        T = sum(lengths)
        sizes = [A, D, M, H, size.F, size.V, len(lengths), T, T + 1]  # take_rows takes T + 1 rows
        if len(set(sizes)) == len(sizes):
            return size


def _further(size: Size, batch: Any, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """Build cases that the gradient check does not have.

    They are square matrices, a large eps in every block, and logits far apart.
    """

    def parameters_of(block: str) -> dict[str, Any]:
        prefix = f"{block}."
        return {
            name.removeprefix(prefix): array for name, array in parameters.items() if name.startswith(prefix)
        }

    config = config_of(size, layer_norm_eps=float(rng.uniform(0.2, 0.6)))
    x = {"x": rng.standard_normal((batch.T, size.H))}
    scale = np.where(np.arange(batch.T) % 2, 1.0, FAR_APART)[:, None]  # in every other row
    far = {"logits": scale * rng.standard_normal((batch.T, size.V))}
    labels = rng.integers(size.V, size=batch.T)
    embeddings = parameters_of("embeddings")
    attention = parameters_of("layers.1.attention")
    feed_forward = parameters_of("layers.1.feed_forward")
    options = batch.cu_seqlens, config, None, 1, None
    square = x | {"weight": rng.standard_normal((size.H, size.H)), "bias": rng.standard_normal(size.H)}
    return [
        case_of("linear", "square", batch, square, {}),
        case_of("softmax_cross_entropy", "far apart", batch, far, {}, labels),
        case_of("embedding_block", "large eps", batch, {}, embeddings, batch, TREE, config, None),
        case_of("attention_block", "large eps", batch, x, attention, TREE, *options),
        case_of(
            "feed_forward_block", "large eps", batch, x, feed_forward, TREE, config, None, 1, form=(config,)
        ),
    ]
