"""A notebook of the course: it judges exercises, keeps the reader's engine, and compares what was learnt."""

import ast
import importlib.util
import itertools
import secrets
from collections.abc import Mapping
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import atomic_text
from minibert.course import judging, mine
from minibert.course.diagnosis import diagnose
from minibert.course.exercises import Exercise, exercises, notebook_source
from minibert.course.judging import OnSheet, Route, engine_of, is_on_sheet, is_operation
from minibert.course.routes import ROUTES
from minibert.course.running import Plain, Rejected, is_open, limits, refusing
from minibert.course.showing import Claim, Guess, Sheet, Verdict, claim
from minibert.model.ops import Ops

T = TypeVar("T")

# The operations that a step of pre-training calls, by the notebook that asks for them.
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
# What stays minibert's: conversions, sums into accumulators, the loop over layers, and the bits of dropout.
PLUMBING = (
    "cast upcast accumulate add_gradients scatter_add layers layers_backward dropout dropout_mask zero"
).split()
# What pre-training of the course never calls: other heads and optimizers, pictures, inference.
NOT_CALLED = (
    "attention_probabilities bilstm_block bilstm_block_backward lamb layer_mix layer_mix_backward lstm "
    "lstm_backward muon pool_windows pool_windows_backward prepack segment_softmax_cross_entropy "
    "segment_softmax_cross_entropy_backward sigmoid_cross_entropy sigmoid_cross_entropy_backward "
    "squared_error squared_error_backward"
).split()
SAME = 1e-11  # of the answers of two functions that make the same mistake, relative
NEARLY = 1e-6  # a smaller error is not that of a formula
QUICK = False  # True where the course itself is tested: `Lesson.scale` then gives the small sizes


class Lesson:
    """A notebook while it is worked through.

    It begins with the operations that earlier notebooks have kept in mine.py, as far as they are still right.

    Parameters
    ----------
    number : str
        Such as "05"; InputError where the course has none of this number.
    """

    def __init__(self, number: str) -> None:
        self.number = number
        self.exercises = exercises(notebook_source(number))
        self.verdicts: list[Verdict] = []  # all so far, as of claims
        self.claims: list[Claim] = []
        self.mine: dict[str, FunctionType] = {}  # the reader's operations that have passed, by name
        self.tools: dict[str, FunctionType] = {}  # of `mine.TOOLS` those that have passed
        self._set_aside = False  # whether mine.py holds what `keep` would lose
        try:
            for name, function in mine.read().items():
                kept = self.mine if is_operation(name) else self.tools
                kept[name] = function
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

    def check(self, function: FunctionType, *, seed: int | None = None, **route: Any) -> None:
        """Judge an exercise on fresh shapes, and print the verdict.

        Parameters
        ----------
        function : function
            The reader's; with the name of an operation of `Ops` it joins `Mine` when it passes, and `mine.py`
            is written at once, as with a name of `mine.TOOLS`. What it may be made of is said in
            `minibert.course.honesty`.
        seed : int, default None
            Repeats an earlier check, whose line names it; None: a fresh one.
        **route
            How it is judged, the fields of `Route`; nothing where the gradient check knows the operation, or
            `minibert.course.routes` the function.

        Raises
        ------
        InputError
            When neither knows the function, and no route is given.
        """
        name = function.__name__
        exercise = next((one for one in self.exercises if name in one.functions), None)
        judge: Any
        if route:
            judge = Route(**route)
        elif is_on_sheet(name):
            judge = OnSheet()
        elif name in ROUTES:
            judge = ROUTES[name]
        else:
            raise InputError(f"{name} has no gradient check; give draw= and same_as=, law= or gradient_of=.")
        if seed is None:
            seed = secrets.randbelow(10**6)
        state, text = "open", "still to be written"
        kept = self.mine if is_operation(name) else self.tools
        is_kept = is_operation(name) or name in mine.TOOLS
        if not is_open(function):
            kept.pop(name, None)
            try:
                with limits():
                    error, about = judge.judge(function, self.mine, seed)
                how_near = f"error {error:.0e}" if error else "exact"
                state, text = "passed", f"{how_near}, {about} (seed={seed})"
                if is_kept:
                    kept[name] = function
            except Rejected as wrong:
                likely = ""
                if not isinstance(wrong, Plain):
                    likely = self._explained(function, exercise, judge, seed)
                    if not likely and wrong.error < NEARLY:
                        likely = " An approximation, or digits that cancel: the formula is exact."
                state, text = "failed", f"{wrong}{likely} (seed={seed})"
        number = exercise.number if exercise else self.number
        verdict = Verdict(number, name, state, text)
        self.verdicts.append(verdict)
        print(verdict)
        if state == "passed" and is_kept:
            self._save()

    def passed(self, number: str) -> bool:
        """Tell whether every function of an exercise has passed.

        Parameters
        ----------
        number : str
            Of the exercise, such as "05.2".

        Returns
        -------
        bool
            By the last check of each.

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
            The reader's; three dots for none yet.
        choices : sequence, default None
            What may be guessed; None: anything.

        Returns
        -------
        Guess
            Whose `answer` compares it later.
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
        """Print whether something was learnt: better than a trivial baseline, with an interval.

        Parameters
        ----------
        text : str
            What is claimed.
        ours : (n,) float
            A value for each example.
        baseline : (n,) float
            The same of the strongest trivial one.
        controls : dict of (n,) float, default None
            The same of what can't have learnt it (untrained weights, shuffled labels), by name. The claim
            holds only if none of these beats the baseline.
        better : str, default "lower"
            Or "higher".
        unit : str
            Of the values; "" for none.

        Returns
        -------
        Claim
        """
        self.claims.append(claim(text, ours, baseline, controls or {}, better, unit))
        print(self.claims[-1])
        return self.claims[-1]

    def scale(self, full: T, quick: T) -> T:
        """Return one of two sizes of an experiment.

        Parameters
        ----------
        full : Any
            For readers.
        quick : Any
            For tests of the course itself, where QUICK is set.

        Returns
        -------
        Any
            One of the two.
        """
        return quick if QUICK else full

    def tool(self, name: str) -> FunctionType | None:
        """Return what the reader wrote in some chapter for the last run, and say whether it is there.

        Parameters
        ----------
        name : str
            One of `mine.TOOLS`.

        Returns
        -------
        function
            None where it has not passed: minibert's own has to stand in.
        """
        exercise = mine.TOOLS[name]
        if name in self.tools:
            print(f"{name}: yours, from exercise {exercise}.")
        else:
            print(f"{name}: minibert's own stands in, for exercise {exercise} is not in {mine.FILE}.")
        return self.tools.get(name)

    def engine(self) -> Ops:
        """Make the reader's engine, and say which operations of pre-training minibert stands in for."""
        methods = self._complete()
        missing = [name for name in OPERATIONS if name not in methods]
        which = ", ".join(missing)
        if len(missing) >= 6:
            which = "the others, which lesson.sheet() lists"
        stands_in = f"; minibert's stand in for {which}" if missing else ""
        print(f"Mine: {len(OPERATIONS) - len(missing)} of {len(OPERATIONS)} operations are yours{stands_in}.")
        return engine_of(methods)

    def sealed(self) -> Ops:
        """Make the reader's engine without a net: what is neither theirs nor plumbing raises."""
        methods: dict[str, Any] = dict(self._complete())
        print(f"Plumbing that stays minibert's: {', '.join(PLUMBING)}.")
        for name in filter(is_operation, dir(Ops)):
            if name not in methods and name not in PLUMBING:
                text = f"{name} is neither an operation of yours nor plumbing."
                methods[name] = refusing(NotImplementedError, text)
        return engine_of(methods)

    def sheet(self) -> Sheet:
        """Judge all operations anew: the proof sheet of the reader's engine."""
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
        """Write what has passed, and tell whether it could be written."""
        try:
            text = mine.text_of(self.mine | self.tools)
        except InputError as error:
            print(f"{mine.FILE} is not written: {error}")
            return False
        if self._set_aside:
            names = (mine.FILE.with_name(f"mine-unreadable-{n}.py") for n in itertools.count(1))
            aside = mine.FILE.rename(next(name for name in names if not name.exists()))
            print(f"The {mine.FILE} that was there is {aside} now.")
            self._set_aside = False
        atomic_text(mine.FILE, text)
        return True

    def _state(self, name: str) -> tuple[str, str]:
        """Judge one of the reader's operations; one without a gradient check is taken as it is."""
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
        self, function: FunctionType, exercise: Exercise | None, judge: Route | OnSheet, seed: int
    ) -> str:
        """Return what mistake was made, or where the answer is off; "" if it can't be told."""
        try:
            with limits():
                named = self._mistake(function, exercise, judge, seed)
        except Exception:  # it raises, or returns what can't be compared
            named = ""
        if named:
            return f" Likely: {named}"
        try:
            with limits():
                solution = self._solution(function, exercise)
                asked = judge.asked(function, self.mine, seed, solution)
                probes = judge.probes(function, self.mine, seed, solution)
                label = "the gradient of {}" if isinstance(judge, OnSheet) else "{}"
                text = diagnose(asked, probes, label)
        except Exception:
            return ""
        return f" {text}" if text else ""

    def _mistake(
        self, function: FunctionType, exercise: Exercise | None, judge: Route | OnSheet, seed: int
    ) -> str:
        """Return the sentence of the one mistake that gives the same wrong answers, if there is one."""
        name = function.__name__
        if not exercise:
            return ""
        seeds = (seed, seed + 1, seed + 2)
        ours = [judge.outputs(function, self.mine, one) for one in seeds]
        if not _tell_something(ours):
            return ""
        sentences = []
        for mistake in exercise.mistakes:
            text = exercise.mistaken(mistake)
            if not _changes_only(name, exercise, text):
                continue
            try:
                wrong = defined(text, function)[name]
                for one, answers in zip(seeds, ours, strict=True):
                    judging.compare(answers, judge.outputs(wrong, self.mine, one), SAME)
                if not _fails(judge, wrong, self.mine, seed):
                    continue
            except Exception:
                continue
            sentences.append(mistake.sentence)
        return sentences[0] if len(set(sentences)) == 1 else ""

    def _solution(self, function: FunctionType, exercise: Exercise | None) -> FunctionType | None:
        """Return the solution of an exercise, with the names that the reader's notebook has."""
        if not exercise or not exercise.solution:
            return None
        found: FunctionType = defined(exercise.solution, function)[function.__name__]
        found.__doc__ = found.__doc__ or _docstrings(exercise.stub).get(function.__name__)
        return found

    def _complete(self) -> dict[str, FunctionType]:
        """Return the reader's operations, but for forwards that save what minibert's backward can't use."""

        def serves(name: str, method: FunctionType) -> bool:
            backward = f"{name}{judging.BACKWARD}"
            if backward in self.mine or not hasattr(Ops, backward):
                return True
            return judging.keeps_reference_residual(method)

        return {name: method for name, method in self.mine.items() if serves(name, method)}


def defined(text: str, function: FunctionType) -> dict[str, Any]:
    """Run code beside a function: with all names that the function's notebook has.

    Parameters
    ----------
    text : str
        Python.
    function : function

    Returns
    -------
    dict
        The names that there are then.
    """
    namespace = dict(function.__globals__)
    exec(text, namespace)
    return namespace


def _docstrings(code: str) -> dict[str, str]:
    """Return what the functions of some code say of themselves."""
    functions = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions}


def _changes_only(name: str, exercise: Exercise, mistaken: str) -> bool:
    """Tell whether a mistake is in this function and in no other that the exercise asks for."""
    right = ast.parse(exercise.solution).body
    wrong = ast.parse(mistaken).body
    changed = set()
    for before, after in zip(right, wrong, strict=False):
        if ast.dump(before) != ast.dump(after):
            changed.add(getattr(before, "name", ""))
    others = set(exercise.functions) - {name}
    return name in changed and changed.isdisjoint(others)


def _fails(judge: Route | OnSheet, function: FunctionType, methods: dict[str, Any], seed: int) -> bool:
    """Tell whether a function is rejected."""
    try:
        judge.judge(function, methods, seed)
    except Rejected:
        return True
    return False


def _tell_something(answers: Any) -> bool:
    """Tell whether answers have something in them: mistakes can't be told apart by zeros."""
    arrays = [np.asarray(leaf) for leaf in judging.leaves(answers)]
    numbers = [one for one in arrays if one.dtype.kind in "fc"]
    return len(numbers) < len(arrays) or any(np.any(one) and np.isfinite(one).all() for one in numbers)


def begin(number: str) -> Lesson:
    """Begin a notebook.

    Parameters
    ----------
    number : str
        Such as "05".

    Returns
    -------
    Lesson

    Raises
    ------
    InputError
        When a library of the notebooks is missing, or the course has none of this number.
    """
    missing = [name for name in ("IPython", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        advice = "run pip install '.[notebooks]' in a checkout of minibert."
        raise InputError(f"{' and '.join(missing)} missing; {advice}")
    return Lesson(number)
