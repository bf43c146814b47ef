"""Run a notebook of the course: judge exercises, keep the reader's engine, and test claims of learning."""

import importlib.util
import itertools
import secrets
from collections.abc import Mapping
from types import FunctionType
from typing import Any, TypeVar

from minibert.base.errors import InputError
from minibert.base.files import atomic_text
from minibert.course import mine
from minibert.course.diagnosis import diagnose
from minibert.course.exercises import Exercise, exercises, notebook_source
from minibert.course.judging import (
    Judge,
    OnSheet,
    Route,
    engine_of,
    is_on_sheet,
    is_operation,
    usable,
)
from minibert.course.mistakes import known_mistake, solution_of
from minibert.course.routes import ROUTES
from minibert.course.running import Plain, Rejected, is_open, limits, refusing
from minibert.course.showing import Claim, Guess, Sheet, Verdict, claim
from minibert.model.ops import Ops

T = TypeVar("T")

# The operations that a step of pre-training calls, by the number of the notebook that asks for them.
CURRICULUM = {
    "02": "embedding embedding_block",
    "03": "softmax_cross_entropy",
    "04": "attention",
    "05": "linear linear_backward softmax_cross_entropy_backward gelu gelu_backward tanh tanh_backward",
    "06": "layer_norm layer_norm_backward attention_backward take_rows take_rows_backward embedding_backward "
    "embedding_block_backward",
    "07": "attention_block attention_block_backward feed_forward_block feed_forward_block_backward "
    "pooler pooler_backward masked_lm_logits masked_lm_head masked_lm_head_backward",
    "09": "global_norm clip_factor adamw",
}
OPERATIONS = {name: notebook for notebook, names in CURRICULUM.items() for name in names.split()}
# Operations that stay minibert's: conversions, sums into accumulators, the loop over layers, dropout's bits.
PLUMBING = (
    "cast upcast accumulate add_gradients scatter_add layers layers_backward dropout dropout_mask zero"
).split()
NEARLY = 1e-6  # a smaller relative error is not that of a wrong formula
SHOWN = 5  # names of missing operations that are printed; more are in the proof sheet
OPEN = "still to be written"  # the text of the verdict on an open exercise
QUICK = False  # True where the course itself is tested: `Lesson.scale` then returns the small sizes


class Lesson:
    """A notebook while a reader works through it.

    `begin` makes one in the first cell. It reads the operations that earlier notebooks have written to
    mine.py, and leaves out those that are no longer right. Each `check` judges a function. One that passes
    joins the reader's engine, and is written to mine.py, where the next notebook finds it.

    Parameters
    ----------
    number : str
        Number of the notebook, such as "05"; InputError if the course does not have it.
    """

    def __init__(self, number: str) -> None:
        self._set_up(number, exercises(notebook_source(number)))
        try:
            for name, function in mine.read().items():
                self._kept(name)[name] = function
        except InputError as error:
            self._set_aside = True
            print(f"{error} It stays as it is, and this notebook goes on without it.")
        for verdict in self.sheet():
            if verdict.state == "failed":
                print(f"{mine.FILE}: {verdict.function} is left out: {verdict.text}")
                del self.mine[verdict.function]
                self._set_aside = True
        if self.mine:
            print(f"{mine.FILE}: operations of yours: {len(self.mine)}.")

    def _set_up(self, number: str, exercises: list[Exercise]) -> None:
        """Begin with nothing that has passed."""
        self.number = number
        self.exercises = exercises
        self.verdicts: list[Verdict] = []  # in the order in which they were given
        self.claims: list[Claim] = []  # in the order in which they were made
        self.mine: dict[str, FunctionType] = {}  # the reader's operations that have passed, by name
        self.tools: dict[str, FunctionType] = {}  # the functions of `mine.TOOLS` that have passed, by name
        self._set_aside = False  # whether to rename mine.py before the first write, which would lose code

    def _kept(self, name: str) -> dict[str, FunctionType]:
        """Return where a function of this name is kept when it has passed."""
        return self.mine if is_operation(name) else self.tools

    def check(self, function: FunctionType, *, seed: int | None = None, **route: Any) -> None:
        """Judge an exercise on fresh shapes, and print the verdict.

        Parameters
        ----------
        function : function
            The reader's. If it has the name of an operation of `Ops`, or one of `mine.TOOLS`, and passes, it
            is kept, and `mine.py` is written at once. `minibert.course.honesty` says what it may be made of.
        seed : int, default None
            Seed of the questions, to repeat an earlier check: its verdict names it. None: a random one.
        **route
            Fields of `Route`, for a function that neither the gradient check nor `minibert.course.routes`
            covers.

        Raises
        ------
        InputError
            When neither covers the function, and no route is given.
        """
        name = function.__name__
        exercise = next((each for each in self.exercises if name in each.functions), None)
        judge = _judge_of(name, route)
        if seed is None:
            seed = secrets.randbelow(10**6)
        state, text = "open", OPEN
        if not is_open(function):
            self._kept(name).pop(name, None)  # an earlier version no longer counts, even if this one fails
            state, text = self._judged(function, exercise, judge, seed)
        verdict = Verdict(exercise.number if exercise else self.number, name, state, text)
        self.verdicts.append(verdict)
        print(verdict)
        if state == "passed" and (is_operation(name) or name in mine.TOOLS):
            self._kept(name)[name] = function
            self._save()

    def _judged(
        self, function: FunctionType, exercise: Exercise | None, judge: Judge, seed: int
    ) -> tuple[str, str]:
        """Judge a function; return the state and the text of the verdict."""
        try:
            with limits():
                error, about = judge.judge(function, self.mine, seed)
        except Rejected as wrong:
            explanation = ""
            if not isinstance(wrong, Plain):
                explanation = self._explained(function, exercise, judge, seed, str(wrong))
                if not explanation and wrong.error < NEARLY:
                    explanation = " An approximation, or digits that cancel: the formula is exact."
            return "failed", f"{wrong}{explanation} (seed={seed})"
        how_near = f"error {error:.0e}" if error else "exact"
        return "passed", f"{how_near}, {about} (seed={seed})"

    def passed(self, number: str) -> bool:
        """Tell whether every function of an exercise has passed.

        Parameters
        ----------
        number : str
            Number of the exercise, such as "05.2".

        Returns
        -------
        bool
            The last check of a function counts.

        Raises
        ------
        InputError
            When the notebook has no such exercise.
        """
        last = {verdict.function: verdict.state for verdict in self.verdicts}
        for exercise in self.exercises:
            if exercise.number == number:
                return all(last.get(name) == "passed" for name in exercise.functions)
        raise InputError(f"{number=} is not an exercise of notebook {self.number}.", number=number)

    def predict(self, question: str, guess: Any = ..., choices: Any = None) -> Guess:
        """Ask for a guess.

        Parameters
        ----------
        question : str
        guess : Any
            The reader's guess; three dots if there is none yet.
        choices : sequence, default None
            Guesses to choose from; None: any guess.

        Returns
        -------
        Guess
            Its `answer` compares the guess with the answer later.
        """
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
        """Print whether something was learnt: whether it beats a trivial baseline, with confidence intervals.

        Parameters
        ----------
        text : str
            The claim.
        ours : (n,) float
            The model's value for each example, such as its loss.
        baseline : (n,) float
            Values of the strongest trivial baseline for the same examples.
        controls : dict of (n,) float, default None
            Values of negative controls by name: models that can't have learnt it, because their weights are
            untrained or their labels shuffled. The claim holds only if none of these beats the baseline.
        better : str, default "lower"
            Which values are better, "lower" or "higher".
        unit : str
            Unit of the values; "" for none.

        Returns
        -------
        Claim
        """
        self.claims.append(claim(text, ours, baseline, controls or {}, better, unit))
        print(self.claims[-1])
        return self.claims[-1]

    def scale(self, full: T, quick: T) -> T:
        """Choose between two sizes of an experiment.

        Parameters
        ----------
        full : Any
            The size for readers.
        quick : Any
            The size for tests of the course itself, which set QUICK.

        Returns
        -------
        Any
            One of the two.
        """
        return quick if QUICK else full

    def tool(self, name: str) -> FunctionType | None:
        """Return a function that the reader wrote for the last run, and print whose function is used.

        Parameters
        ----------
        name : str
            Key of `mine.TOOLS`.

        Returns
        -------
        function
            None if it has not passed: minibert's own has to stand in.
        """
        exercise = mine.TOOLS[name]
        if name in self.tools:
            print(f"{name}: yours, from exercise {exercise}.")
        else:
            print(f"{name}: minibert's own stands in, for exercise {exercise} is not in {mine.FILE}.")
        return self.tools.get(name)

    def engine(self) -> Ops:
        """Make the reader's engine, and print for which operations of pre-training minibert's stand in."""
        methods = usable(self.mine)
        missing = [name for name in OPERATIONS if name not in methods]
        which = ", ".join(missing)
        if len(missing) > SHOWN:
            which = "the others, which lesson.sheet() lists"
        stands_in = f"; minibert's stand in for {which}" if missing else ""
        print(f"Mine: {len(OPERATIONS) - len(missing)} of {len(OPERATIONS)} operations are yours{stands_in}.")
        return engine_of(methods)

    def sealed(self) -> Ops:
        """Make the reader's engine without stand-ins: all but the reader's operations and plumbing raise."""
        methods: dict[str, Any] = dict(usable(self.mine))
        print(f"Plumbing that stays minibert's: {', '.join(PLUMBING)}.")
        for name in filter(is_operation, dir(Ops)):
            if name not in methods and name not in PLUMBING:
                text = f"{name} is neither an operation of yours nor plumbing."
                methods[name] = refusing(NotImplementedError, text)
        return engine_of(methods)

    def sheet(self) -> Sheet:
        """Judge all operations again: the proof sheet of the reader's engine."""
        verdicts = Sheet()
        for name, notebook in OPERATIONS.items():
            state, text = self._state(name)
            verdicts.append(Verdict(notebook, name, state, text))
        return verdicts

    def keep(self) -> None:
        """Write the operations that have passed to mine.py, which the next notebook reads."""
        if self._save():
            print(f"{mine.FILE}: operations of yours: {len(self.mine)}.")

    def _save(self) -> bool:
        """Write to mine.py what has passed; return whether it could be written."""
        try:
            text = mine.text_of(self.mine | self.tools)
        except InputError as error:
            print(f"{mine.FILE} is not written: {error}")
            return False
        if self._set_aside:
            paths = (mine.FILE.with_name(f"mine-unreadable-{n}.py") for n in itertools.count(1))
            aside = mine.FILE.rename(next(path for path in paths if not path.exists()))
            print(f"The {mine.FILE} that was there is {aside} now.")
            self._set_aside = False
        atomic_text(mine.FILE, text)
        return True

    def _state(self, name: str) -> tuple[str, str]:
        """Judge one of the reader's operations; accept one that the gradient check does not cover."""
        if name not in self.mine:
            return "open", f"notebook {OPERATIONS[name]} asks for it"
        if not is_on_sheet(name):
            return "passed", "judged in its notebook"
        seed = secrets.randbelow(10**6)
        try:
            with limits():
                error, about = OnSheet().judge(self.mine[name], self.mine, seed)
        except Rejected as wrong:
            return "failed", str(wrong)
        return "passed", f"error {error:.0e}, {about}"

    def _explained(
        self, function: FunctionType, exercise: Exercise | None, judge: Judge, seed: int, rejection: str
    ) -> str:
        """Return a sentence that names the mistake, or tells where the answer is off; "" if none can."""
        try:
            with limits():
                mistake = known_mistake(function, exercise, judge, self.mine, seed, rejection)
        except Exception:  # it raises for some questions, or its answers can't be compared
            mistake = ""
        if mistake:
            return f" Likely: {mistake}"
        try:
            with limits():
                solution = solution_of(exercise, function)
                questions = judge.questions(function, self.mine, seed, solution)
                probes = judge.probes(function, self.mine, seed, solution)
                label = "the gradient of {}" if isinstance(judge, OnSheet) else "{}"
                text = diagnose(questions, probes, label)
        except Exception:
            return ""
        return f" {text}" if text else ""


def _judge_of(name: str, route: dict[str, Any]) -> Judge:
    """Return the judge of a function: with the fields of a route if there are any, or else by its name."""
    if route:
        return Route(**route)
    if is_on_sheet(name):
        return OnSheet()
    if name in ROUTES:
        return ROUTES[name]
    raise InputError(f"{name} has no gradient check; give draw= and same_as=, law= or gradient_of=.")


def begin(number: str) -> Lesson:
    """Begin a notebook.

    Parameters
    ----------
    number : str
        Number of the notebook, such as "05".

    Returns
    -------
    Lesson

    Raises
    ------
    InputError
        When a library that notebooks need is missing, or the course has no notebook of this number.
    """
    missing = [name for name in ("IPython", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        advice = "run pip install '.[notebooks]' in a checkout of minibert."
        raise InputError(f"{' and '.join(missing)} missing; {advice}")
    return Lesson(number)
