"""One notebook of the course: it judges exercises, keeps the reader's engine, and compares what was learnt."""

import importlib.util
import itertools
import secrets
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from minibert.course import judging, mine
from minibert.course.exercises import Exercise, exercises, notebook_source
from minibert.course.judging import BACKWARD, Finding, Route, engine_of
from minibert.course.running import (
    Rejected,
    TooLong,
    is_open,
    leaves,
    output_limit,
    same_parameters,
    time_limit,
)
from minibert.course.showing import Claim, Guess, Sheet, SheetRow, claim
from minibert.errors import InputError
from minibert.ops import Ops

T = TypeVar("T")

# The operations that a step of pre-training calls, by the notebook that asks for them.
CURRICULUM = {
    "02": ("embedding", "embedding_block"),
    "03": ("softmax_cross_entropy",),
    "04": ("attention",),
    "05": ("linear", "linear_backward", "softmax_cross_entropy_backward", "gelu", "gelu_backward", "tanh", "tanh_backward"),
    "06": (
        "layer_norm", "layer_norm_backward", "attention_backward", "take_rows", "take_rows_backward",
        "embedding_backward", "embedding_block_backward",
    ),
    "07": (
        "attention_block", "attention_block_backward", "feed_forward_block", "feed_forward_block_backward",
        "pooler", "pooler_backward", "masked_lm_logits", "masked_lm_head", "masked_lm_head_backward",
    ),
    "09": ("global_norm", "clip_factor", "adamw"),
}  # fmt: skip
# What stays minibert's: conversions, sums into accumulators, the loop over layers, and the bits of dropout.
PLUMBING = (
    "cast", "upcast", "accumulate", "scatter_add", "layers", "layers_backward", "dropout", "dropout_mask", "zero",
)  # fmt: skip
NEEDED = ("IPython", "matplotlib")
QUICK = False  # True where the course itself is tested: `Lesson.scale` then gives the small sizes


class Verdict(NamedTuple):
    """What was said of one function."""

    exercise: str
    function: str
    state: str  # "passed", "failed" or "open"
    text: str


class Lesson:
    """A notebook while it is worked through.

    Parameters
    ----------
    number : of the notebook, such as "05".

    Attributes
    ----------
    mine : the reader's operations that have passed, by name.
    verdicts, claims : all that was judged and claimed so far.
    """

    def __init__(self, number: str) -> None:
        self.number = number
        self.exercises = exercises(notebook_source(number))
        self.mine: dict[str, FunctionType] = {}
        self.verdicts: list[Verdict] = []
        self.claims: list[Claim] = []
        self._unreadable = False
        self._load()

    def check(
        self,
        function: FunctionType,
        *,
        draw: Callable[..., tuple[Any, ...]] | None = None,
        same_as: Callable[..., Any] | None = None,
        law: Callable[..., str | None] | None = None,
        gradient_of: Callable[..., Any] | None = None,
        wrt: tuple[int, ...] = (0,),
        times: int = 5,
        tolerance: float = judging.BOUND,
        seed: int | None = None,
    ) -> None:
        """Judge an exercise on fresh shapes and a fresh seed, and print the verdict.

        Parameters
        ----------
        function : the answer. With the name of an operation of `Ops` and nothing else given, it is judged by
            the gradient check, and becomes part of `Mine` when it passes.
        draw, same_as, law, gradient_of, wrt, times, tolerance : for everything else, see `Route`.
        seed : repeats an earlier check; its line names it.
        """
        name = function.__name__
        exercise = next((one for one in self.exercises if name in one.functions), None)
        number = exercise.number if exercise else self.number
        if is_open(function):
            return self._say(Verdict(number, name, "open", "still to be written"))
        seed = secrets.randbelow(10**6) if seed is None else seed
        route = None
        if draw is not None:
            route = Route(draw, same_as, law, gradient_of, wrt, times, tolerance)
        elif not judging.has_cases(name):
            raise InputError(
                f"{name} is no operation with a gradient check; give draw= and one of same_as=, law=, gradient_of=."
            )
        try:
            with time_limit(), output_limit():
                finding = self._judge(function, route, seed)
        except Rejected as wrong:
            asked = exercise if exercise and not isinstance(wrong, TooLong) else None
            likely = self._likely_mistake(function, asked.mistakes, route, seed) if asked else ""
            text = f"{wrong}{f' Likely: {likely}' if likely else ''} (seed={seed})"
            self.mine.pop(name, None)
            return self._say(Verdict(number, name, "failed", text))
        if judging.is_operation(name):
            self.mine[name] = function
        error = f"error {finding.error:.0e}" if finding.error else "exact"
        return self._say(Verdict(number, name, "passed", f"{error}, {finding.about} (seed={seed})"))

    def passed(self, number: str) -> bool:
        """Tell whether every function of an exercise has passed."""
        functions = next((one.functions for one in self.exercises if one.number == number), None)
        if functions is None:
            raise InputError(f"number={number!r} is no exercise of notebook {self.number}.")
        last = {verdict.function: verdict.state for verdict in self.verdicts}
        return all(last.get(name) == "passed" for name in functions)

    def predict(self, question: str, guess: Any = ..., choices: Any = None) -> Guess:
        """Ask for a guess; `answer` of what is returned compares it later."""
        return Guess(question, guess, choices)

    def claim(
        self,
        text: str,
        ours: Any,
        baseline: Any,
        controls: Mapping[str, Any] | None = None,
        better: str = "lower",
        unit: str = "",
    ) -> Claim:
        """Print whether something was learnt: better than a trivial baseline, with an interval.

        Parameters
        ----------
        text : what was learnt.
        ours, baseline : one value an example, of the same examples; the baseline is the strongest trivial one.
        controls : the same of what can't have learnt it (untrained weights, shuffled labels), by name. The
            claim holds only where none of them is better than the baseline.
        better : "lower" or "higher".
        unit : of the values.
        """
        self.claims.append(claim(text, ours, baseline, controls, better, unit))
        print(self.claims[-1])
        return self.claims[-1]

    def scale(self, full: T, quick: T) -> T:
        """Return `full`, or `quick` where the course itself is tested."""
        return quick if QUICK else full

    def engine(self) -> Ops:
        """Make the reader's engine, and say which operations of pre-training minibert stands in for."""
        own = self._complete()
        missing = [one for one in _operations() if one not in own]
        there = f"Mine: {len(_operations()) - len(missing)} of {len(_operations())} operations are yours"
        print(f"{there}; minibert's stand in for {', '.join(missing)}." if missing else f"{there}.")
        return engine_of(own)

    def sealed(self) -> Ops:
        """Make the reader's engine without a net: what is neither theirs nor plumbing raises."""
        own = self._complete()
        print(f"Plumbing that stays minibert's: {', '.join(PLUMBING)}.")

        def refusing(name: str) -> Callable[..., Any]:
            def refuse(*_: Any, **__: Any) -> Any:
                raise NotImplementedError(f"{name} is open: no operation of yours, and no plumbing.")

            return refuse

        public = [one for one in dir(Ops) if judging.is_operation(one)]
        closed = {one: refusing(one) for one in public if one not in (*own, *PLUMBING)}
        return engine_of(closed | own)

    def sheet(self) -> Sheet:
        """Judge all operations anew: the proof sheet of the reader's engine."""
        rows = Sheet()
        for notebook, names in CURRICULUM.items():
            for name in names:
                state, about = "open", f"notebook {notebook} asks for it"
                if name in self.mine:
                    state, about = self._state(name)
                rows.append(SheetRow(name, notebook, state, about))
        return rows

    def keep(self) -> None:
        """Write the operations that have passed to mine.py, which the next notebook reads."""
        if self._unreadable:
            aside = next(
                path
                for n in itertools.count(1)
                if not (path := mine.FILE.with_name(f"mine-unreadable-{n}.py")).exists()
            )
            mine.FILE.rename(aside)
            print(f"{mine.FILE} could not be read, and is {aside} now.")
            self._unreadable = False
        try:
            mine.write(self.mine)
        except InputError as error:
            print(f"{mine.FILE} is not written: {error}")
            return
        print(
            f"{mine.FILE} has {len(self.mine)} operations of yours."
            if self.mine
            else f"{mine.FILE} has nothing of yours yet."
        )

    def _load(self) -> None:
        """Read mine.py, and leave out what does not pass."""
        try:
            kept = mine.read()
        except InputError as error:
            self._unreadable = True
            print(f"{error} The file stays as it is, and this notebook goes on without it.")
            return
        wrong = {}
        self.mine = kept
        for name in kept:
            state, about = self._state(name)
            if state == "wrong":
                wrong[name] = about
        self.mine = {name: one for name, one in kept.items() if name not in wrong}
        for name, about in wrong.items():
            print(f"{mine.FILE}: {name} is left out: {about}")
        if self.mine:
            print(f"{mine.FILE}: {len(self.mine)} operations of yours.")

    def _state(self, name: str) -> tuple[str, str]:
        """Judge one of the reader's operations; one without a gradient check is taken as it is."""
        if not judging.has_cases(name):
            return "yours", "judged in its notebook"
        try:
            with time_limit(), output_limit():
                finding = judging.operation(self.mine[name], self.mine, secrets.randbelow(10**6))
        except Rejected as error:
            return "wrong", str(error)
        return "yours", f"error {finding.error:.0e}, {finding.about}"

    def _judge(self, function: FunctionType, route: Route | None, seed: int) -> Finding:
        """Judge a function; one with the name of an operation is called as a method of an engine."""
        name, others = function.__name__, {one: f for one, f in self.mine.items() if one != function.__name__}
        if route is None:
            return judging.operation(function, others, seed)
        if judging.is_operation(name):
            same_parameters(function, getattr(Ops, name))
        return route.judge(self._callable(function, route), seed)

    def _callable(self, function: FunctionType, route: Route) -> Callable[..., Any]:
        """Return what a route calls; minibert's own method that it compares with is barred meanwhile."""
        name = function.__name__
        reference = getattr(route.same_as, "__name__", "")
        target = reference if judging.is_operation(reference) else name if judging.is_operation(name) else ""
        answer = judging.bar_reference(function, target)
        return getattr(engine_of(self.mine | {name: answer}), name) if judging.is_operation(name) else answer

    def _likely_mistake(
        self, function: FunctionType, exercise: Exercise | None, route: Route | None, seed: int
    ) -> str:
        """Return the sentence of the mistake that gives the same wrong answers, if there is one."""
        name, others = function.__name__, {one: f for one, f in self.mine.items() if one != function.__name__}

        def answers(one: FunctionType) -> list[Any]:
            if route is None:
                return leaves(judging.outputs_of_operation(one, others, seed))
            return leaves(route.outputs(self._callable(one, route), seed))

        for mistake in exercise.mistakes if exercise else ():
            try:
                with time_limit(), output_limit():
                    namespace = dict(function.__globals__)
                    exec(exercise.mistaken(mistake), namespace)  # type: ignore[union-attr]
                    judging.compare(answers(function), answers(namespace[name]), 1e-9)
            except Exception:
                continue
            return mistake.sentence
        return ""

    def _complete(self) -> dict[str, FunctionType]:
        """Return the reader's operations, but for forwards whose backward is minibert's and can't use what they save."""
        return {
            name: one
            for name, one in self.mine.items()
            if name.endswith(BACKWARD)
            or f"{name}{BACKWARD}" in self.mine
            or not hasattr(Ops, f"{name}{BACKWARD}")
            or judging.keeps_reference_residual(one)
        }

    def _say(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        mark = {"passed": "✓", "failed": "✗", "open": "·"}[verdict.state]
        print(f"{mark} {verdict.exercise} {verdict.function}: {verdict.text}")


def begin(number: str) -> Lesson:
    """Begin a notebook: see that all it needs is installed, and read the reader's engine.

    Parameters
    ----------
    number : of the notebook, such as "05".

    Raises
    ------
    InputError
        When a library is missing or there is no such notebook.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"{' and '.join(missing)} missing: from a checkout of minibert run  pip install '.[notebooks]'"
        )
    return Lesson(number)


def _operations() -> list[str]:
    return [name for names in CURRICULUM.values() for name in names]
