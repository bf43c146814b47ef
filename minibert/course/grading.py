"""Mark what students have handed in: every exercise of every chapter, with questions drawn from a seed."""

import ast
import hashlib
import io
import linecache
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.course import judging
from minibert.course.answers import Answer, Given, Pages, answer_to, given_by, read_mine, read_notebook
from minibert.course.confined import SECONDS, Budget, Confined
from minibert.course.exercises import Exercise, definitions, exercises, notebook_folder, notebook_source
from minibert.course.honesty import honest
from minibert.course.judging import BACKWARD, OnSheet, Route, is_operation
from minibert.course.lesson import Lesson
from minibert.course.running import Rejected
from minibert.engines import limited_threads
from minibert.model.ops import Ops

# Of several functions of one exercise, the first of these that one of them has.
MARKS = ("refused", "crashed", "timed out", "wrong", "missing", "right")
EXPLAINING = 10.0  # seconds of processor time for finding out what went wrong
LONGEST = 400  # characters of a message
# Judged by arrays that count their reads and writes, which a process of an answer can't send back.
UNGRADED = ("16",)
# Of NumPy, what it loads when it is first used: a process without files could not.
_LATE = "import numpy.char, numpy.fft, numpy.ma, numpy.polynomial, numpy.rec"


class Mark(NamedTuple):
    """What a student gets for an exercise."""

    folder: str
    chapter: str  # such as 05
    exercise: str  # such as 05.2
    mark: str  # one of `MARKS`
    message: str
    seconds: float  # of the processor, that the student's functions took


class Chapter(NamedTuple):
    """What judging the exercises of a chapter takes."""

    number: str
    exercises: tuple[Exercise, ...]  # without their solutions, which no process of an answer is to hold
    names: dict[str, Any]  # what the course's own notebook imports and defines
    given: Given


def chapters() -> list[str]:
    """List the chapters whose exercises are graded.

    Returns
    -------
    list of str
        Their numbers.
    """
    every = sorted(notebook_folder().glob("[0-9][0-9]_*.py"))
    return [path.name[:2] for path in every if exercises(path) and path.name[:2] not in UNGRADED]


def count_exercises() -> int:
    """Return how many exercises are graded."""
    return sum(len(exercises(notebook_source(number))) for number in chapters())


@cache
def _chapter(number: str) -> Chapter:
    """Read a chapter from the course's own notebook."""
    path = notebook_source(number)
    names: dict[str, Any] = {"__name__": "__main__"}
    for node in ast.parse(definitions(path)).body:
        try:
            _run(ast.unparse(node), names, path.stem)
        except (NameError, ImportError):  # it needs what the notebook computes, or a library of pictures
            continue
    bare = tuple(one._replace(solution="", mistakes=()) for one in exercises(path))
    return Chapter(number, bare, names, given_by(number))


def _run(text: str, names: dict[str, Any], about: str) -> None:
    """Run Python of the course itself, so that its source can be found."""
    file = f"<{about} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)


def grade(folder: Path, seed: int, done: Callable[[int], None] = lambda _: None) -> list[Mark]:
    """Mark a student's folder.

    Nothing of it is run here: answers are read as text, and run as `minibert.course.confined` says.

    Parameters
    ----------
    folder : Path
        As `minibert course DIR` laid it out.
    seed : int
        Of all questions; the same one gives the same marks.
    done : function, optional
        Called with the number of exercises that were marked since the last call.

    Returns
    -------
    list of Mark
        One for each exercise of the course, in its order.

    Raises
    ------
    InputError
        On a system without `fork`.
    """
    if not hasattr(os, "fork"):
        raise InputError("Answers are graded in forked processes, which Windows lacks; use Linux or macOS.")
    kept = read_mine(folder)
    passed: dict[str, FunctionType] = {}
    marks = []
    with limited_threads(1):  # a forked process, which may start none, multiplies matrices by itself
        for number in chapters():
            chapter = _chapter(number)
            pages = read_notebook(folder, number)
            for exercise in chapter.exercises:
                marks.append(_marked(folder, chapter, exercise, (pages, kept), passed, seed))
                done(1)
    return marks


def _marked(
    folder: Path,
    chapter: Chapter,
    exercise: Exercise,
    pages: tuple[Pages, Pages],
    passed: dict[str, FunctionType],
    seed: int,
) -> Mark:
    """Mark one exercise; operations that are right join those that have passed."""
    answers = {}
    for name in exercise.functions:
        answers[name] = answer_to(name, *pages, chapter.given)
    budget = Budget(SECONDS)
    lesson = _Grading(chapter.number, exercise, seed, passed)
    names = dict(chapter.names)
    names["lesson"] = lesson
    results: dict[str, tuple[str, str]] = {}  # by function: its mark, and why
    _run(exercise.stub, names, exercise.number)
    for name, answer in answers.items():
        if answer.is_open:
            why = pages[0].problem or "nothing is written"
            results[name] = ("missing", why)
        elif answer.problem:
            results[name] = ("wrong", answer.problem)
        elif answer.refused:
            results[name] = ("refused", answer.refused)
        else:
            confined = Confined(answer, budget)
            problem = _prepared(answer) or _dishonest(confined, exercise, chapter)
            if problem:
                results[name] = problem
            else:
                names[name] = confined.stand_in(names)
                lesson.confined[name] = confined
    _check(exercise, names, lesson)
    for name in set(answers) - set(results):
        results[name] = lesson.result(name)
    mark = min((mark for mark, _ in results.values()), key=MARKS.index)
    messages = []
    for name in exercise.functions:
        one, why = results[name]
        if one != "right":
            messages.append(f"{name}: {why.rstrip('.')}" if len(results) > 1 else why)
    message = _shortened("; ".join(messages))
    return Mark(str(folder), chapter.number, exercise.number, mark, message, round(budget.spent, 2))


def _prepared(answer: Answer) -> tuple[str, str] | None:
    """Import what an answer imports, which was found to be allowed, before it is shut in without files."""
    for statement in (_LATE, *answer.imports):
        try:
            exec(statement, {})
        except ImportError as error:
            return "wrong", f"{statement}: {error}."
    return None


def _dishonest(confined: Confined, exercise: Exercise, chapter: Chapter) -> tuple[str, str] | None:
    """Return the mark and the reason of an answer that is not its author's own work."""
    try:
        reasons = confined.ask(lambda function: honest(function, exercise.check))
    except Rejected as wrong:
        return getattr(wrong, "mark", "wrong"), str(wrong)
    return ("refused", " ".join(reasons)) if reasons else None


def _check(exercise: Exercise, names: dict[str, Any], lesson: "_Grading") -> None:
    """Run the check of an exercise, which asks the questions; what it prints is not shown."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that are not finite, which an answer may have
        try:
            _run(exercise.check, names, exercise.number)
        except Exception as error:  # of a check that an answer has led astray
            lesson.astray = f"it can't be judged: {type(error).__name__}: {error}."


def _shortened(text: str) -> str:
    """Return a message on one line, of a length that a table can hold."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class _Grading(Lesson):
    """A lesson in which answers of another are judged, with questions drawn from a seed."""

    def __init__(self, number: str, exercise: Exercise, seed: int, passed: dict[str, FunctionType]) -> None:
        self.number = number
        self.exercises = [exercise]
        self.verdicts = []
        self.claims = []
        self.mine = {}
        self.tools = {}
        self.confined: dict[str, Confined] = {}
        self.astray = ""
        self._set_aside = False
        self._seed = seed
        self._passed = passed

    def check(self, function: FunctionType, *, seed: int | None = None, **route: Any) -> None:
        """Judge a function with the questions of the seed; as of `Lesson`."""
        name = function.__name__
        confined = self.confined.get(name)
        if confined and confined.budget.ended:  # by another function of the exercise
            confined.budget = Budget(SECONDS)
        number = self.exercises[0].number
        digest = hashlib.sha256(f"{self._seed} {number} {name}".encode()).digest()
        drawn_seed = int.from_bytes(digest[:4], "little") % 10**6
        earlier = dict(self.mine)
        earlier.pop(name, None)
        self.mine = {**self._others(), **earlier}
        super().check(function, seed=drawn_seed, **route)
        state = self.verdicts[-1].state
        if state == "passed" and is_operation(name):
            self._passed[name] = function
        elif state == "failed":
            self._passed.pop(name, None)

    def result(self, name: str) -> tuple[str, str]:
        """Return the mark of a function, and why it has that."""
        budget = self.confined[name].budget
        if budget.ended:
            return budget.ended.mark, str(budget.ended)
        verdicts = [one for one in self.verdicts if one.function == name]
        failed = [one.text for one in verdicts if one.state != "passed"]
        if failed:
            return "wrong", failed[0]
        if self.astray or not verdicts:
            return "crashed", self.astray or "the check does not come to it."
        return "right", ""

    def _save(self) -> bool:
        """Write nothing: this is not the reader's folder."""
        return True

    def _others(self) -> dict[str, FunctionType]:
        """Return the student's operations that this exercise can be judged with."""
        own = {name.removesuffix(BACKWARD) for name in self.exercises[0].functions}
        serving = {}
        for name, function in self._passed.items():
            backward = f"{name}{BACKWARD}"
            alone = backward not in self._passed and hasattr(Ops, backward)
            if not alone or name in own or _keeps(function):
                serving[name] = function
        return serving

    def _explained(
        self, function: FunctionType, exercise: Exercise | None, judge: Route | OnSheet, seed: int
    ) -> str:
        """Return what `Lesson` says went wrong; only now are solutions and mistakes in memory."""
        confined = self.confined[function.__name__]
        budget = confined.budget
        confined.budget = Budget(EXPLAINING)
        known = {one.number: one for one in exercises(notebook_source(self.number))}
        try:
            return super()._explained(function, known[self.exercises[0].number], judge, seed)
        finally:
            budget.spent += confined.budget.spent
            confined.budget = budget


@cache
def _keeps(function: FunctionType) -> bool:
    """Tell whether a forward saves what minibert's backward can use."""
    try:
        return judging.is_on_sheet(function.__name__) and judging.keeps_reference_residual(function)
    except Exception:  # its process has ended, or it returns no pair
        return False


def any_seed() -> int:
    """Draw a seed that nobody knows beforehand."""
    return secrets.randbelow(10**6)


def tally(marks: list[Mark]) -> Iterator[tuple[str, int]]:
    """Count the marks of a folder.

    Parameters
    ----------
    marks : list of Mark

    Yields
    ------
    str, int
        A mark and how often it was given, of those that were; right ones first.
    """
    for name in reversed(MARKS):
        count = sum(one.mark == name for one in marks)
        if count:
            yield name, count
