"""Mark what students have handed in: every exercise of every chapter, with questions drawn from a seed.

Answers are read as text (`answers`), called in child processes only (`confined`), and judged as in a notebook
(`lesson`, `judging`).
"""

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
from minibert.course.answers import Answer, Given, Pages, answer_to, given_by, read_mine, read_notebook
from minibert.course.confined import SECONDS, Budget, Confined
from minibert.course.exercises import Exercise, definitions, exercises, notebook_source, notebook_sources
from minibert.course.honesty import honest
from minibert.course.judging import (
    BACKWARD,
    Judge,
    is_on_sheet,
    is_operation,
    keeps_reference_residual,
    usable,
)
from minibert.course.lesson import Lesson
from minibert.course.running import Rejected
from minibert.engines import limited_threads

# An exercise with several functions gets the first of these marks that one of its functions has.
MARKS = ("refused", "crashed", "timed out", "wrong", "missing", "right")
EXPLAINING = 10.0  # seconds of processor time for finding out what is wrong with an answer
LONGEST = 400  # characters of a message
# Parts of NumPy that are imported on first use, which a child without files could not do.
_LATE = "import numpy.char, numpy.fft, numpy.ma, numpy.polynomial, numpy.rec"


class Mark(NamedTuple):
    """What a student gets for an exercise; a row of the table of marks."""

    folder: str
    chapter: str  # such as 05
    exercise: str  # such as 05.2
    mark: str  # one of `MARKS`
    message: str  # why the exercise is not right; "" if it is
    seconds: float  # processor time of the student's functions


class Result(NamedTuple):
    """The mark of one function of an exercise, and the reason for it."""

    mark: str  # one of `MARKS`
    why: str  # "" for a right function


class Chapter(NamedTuple):
    """What the course's own notebook of a chapter provides for judging."""

    number: str
    exercises: tuple[Exercise, ...]  # without solutions, which a child that runs an answer must not hold
    names: dict[str, Any]  # global names that the notebook imports and defines
    given: Given


def chapters() -> list[str]:
    """List the chapters whose exercises are graded.

    Returns
    -------
    list of str
        Their numbers.
    """
    return [number for number, path in notebook_sources().items() if exercises(path)]


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
        except (NameError, ImportError):  # it needs what the notebook computes, or a plotting library
            continue
    unsolved = tuple(exercise._replace(solution="", mistakes=()) for exercise in exercises(path))
    return Chapter(number, unsolved, names, given_by(number))


def _run(text: str, names: dict[str, Any], about: str) -> None:
    """Run Python of the course itself, in a way that `inspect` finds its source."""
    file = f"<{about} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)


def grade(folder: Path, seed: int, done: Callable[[int], None] = lambda _: None) -> list[Mark]:
    """Mark a student's folder.

    Nothing in it runs in this process: answers are read as text, and called in child processes with limits.
    `minibert.course.confined` describes these.

    Parameters
    ----------
    folder : Path
        A folder that `minibert course DIR` has laid out.
    seed : int
        Seed of all questions. The same seed leads to the same marks.
    done : function, optional
        Called with the number of exercises that have been marked since the last call.

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
    engine = read_mine(folder)
    passed: dict[str, FunctionType] = {}
    marks = []
    with limited_threads(1):  # a child may not start threads, which a multithreaded matrix product would need
        for number in chapters():
            chapter = _chapter(number)
            pages = read_notebook(folder, number)
            for exercise in chapter.exercises:
                marks.append(_marked(folder, chapter, exercise, (pages, engine), passed, seed))
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
    """Mark one exercise; operations that are right are added to `passed`."""
    budget = Budget(SECONDS)
    lesson = _Grading(chapter.number, exercise, seed, passed)
    names = chapter.names | {"lesson": lesson}
    results: dict[str, Result] = {}
    _run(exercise.stub, names, exercise.number)
    for name in exercise.functions:
        answer = answer_to(name, *pages, chapter.given)
        confined = Confined(answer, budget)
        result = _result_unasked(answer, pages[0]) or _prepared(answer) or _dishonest(confined, exercise)
        if result:
            results[name] = result
        else:
            names[name] = confined.stand_in(names)
            lesson.confined[name] = confined
    _check(exercise, names, lesson)
    for name in exercise.functions:
        if name not in results:
            results[name] = lesson.result(name)
    mark = min((result.mark for result in results.values()), key=MARKS.index)
    reasons = {name: results[name].why for name in exercise.functions if results[name].mark != "right"}
    message = "; ".join(reasons.values())
    if len(results) > 1:
        message = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in reasons.items())
    seconds = round(budget.spent, 2)
    return Mark(str(folder), chapter.number, exercise.number, mark, _shortened(message), seconds)


def _result_unasked(answer: Answer, notebook: Pages) -> Result | None:
    """Return the result of an answer that need not be run: there is none, or its text decides."""
    if answer.is_open:
        return Result("missing", notebook.problem or "nothing is written")
    if answer.problem:
        return Result("wrong", answer.problem)
    if answer.refused:
        return Result("refused", answer.refused)
    return None


def _prepared(answer: Answer) -> Result | None:
    """Import here what an answer imports, which has been found to be allowed: a child has no files to import.

    Returns the result of an answer whose imports fail.
    """
    for statement in (_LATE, *answer.imports):
        try:
            exec(statement, {})
        except ImportError as error:
            return Result("wrong", f"{statement}: {error}.")
    return None


def _dishonest(confined: Confined, exercise: Exercise) -> Result | None:
    """Return the result of an answer that is not its author's own work."""
    try:
        reasons = confined.ask(lambda function: honest(function, exercise.check))
    except Rejected as wrong:
        return Result(getattr(wrong, "mark", "wrong"), str(wrong))
    return Result("refused", " ".join(reasons)) if reasons else None


def _check(exercise: Exercise, names: dict[str, Any], lesson: "_Grading") -> None:
    """Run the check of an exercise, which asks the questions, without showing what it prints."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of infinite numbers and NaN, which an answer may have
        try:
            _run(exercise.check, names, exercise.number)
        except Exception as error:  # the check itself fails on what the answer returned
            lesson.failure_of_check = f"it can't be judged: {type(error).__name__}: {error}."


def _shortened(text: str) -> str:
    """Return a message on one line, cut to a length that a table can hold."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class _Grading(Lesson):
    """A lesson that judges a student's answers to one exercise.

    `_marked` makes one for the check of the exercise, which finds it under the name `lesson` and calls its
    `check` for each function. `_marked` then reads the results with `result`.

    Parameters
    ----------
    number : str
        Number of the chapter.
    exercise : Exercise
    seed : int
        Seed of all questions.
    passed : dict of function
        The student's operations that have passed in earlier exercises, to which this one adds.
    """

    def __init__(self, number: str, exercise: Exercise, seed: int, passed: dict[str, FunctionType]) -> None:
        self._set_up(number, [exercise])
        self.confined: dict[str, Confined] = {}  # answers that are judged, by the names of their functions
        self.failure_of_check = ""  # why the check itself has failed; "" if it has not
        self._seed = seed
        self._passed = passed

    def check(self, function: FunctionType, *, seed: int | None = None, **route: Any) -> None:
        """Judge a function with questions drawn from the seed of the grading; see `Lesson.check`."""
        name = function.__name__
        confined = self.confined.get(name)
        if confined and confined.budget.ended:  # another function of the exercise ended badly, not this one
            confined.budget = Budget(SECONDS)
        self.mine.pop(name, None)
        self.mine = self._others() | self.mine
        about = f"{self._seed} {self.exercises[0].number} {name}"
        digest = hashlib.sha256(about.encode()).digest()
        super().check(function, seed=int.from_bytes(digest[:4], "little") % 10**6, **route)
        if self.verdicts[-1].state == "passed" and is_operation(name):
            self._passed[name] = function
        elif self.verdicts[-1].state == "failed":
            self._passed.pop(name, None)

    def result(self, name: str) -> Result:
        """Return the mark of a function, and the reason for it."""
        ended = self.confined[name].budget.ended
        if ended:
            return Result(ended.mark, str(ended))
        verdicts = [verdict for verdict in self.verdicts if verdict.function == name]
        failed = [verdict.text for verdict in verdicts if verdict.state != "passed"]
        if failed:
            return Result("wrong", failed[0])
        if self.failure_of_check or not verdicts:
            return Result("crashed", self.failure_of_check or "the check does not reach it.")
        return Result("right", "")

    def _save(self) -> bool:
        """Write nothing: in a grading there is no mine.py of the reader's."""
        return True

    def _others(self) -> dict[str, FunctionType]:
        """Return the student's operations that the engine of this exercise can have.

        A forward may save anything if its backward is what the exercise asks for.
        """
        asked_for = {name.removesuffix(BACKWARD) for name in self.exercises[0].functions}

        def is_readable(function: FunctionType) -> bool:
            return function.__name__ in asked_for or _keeps_our_residual(function)

        return usable(self._passed, is_readable)

    def _explained(
        self, function: FunctionType, exercise: Exercise | None, judge: Judge, seed: int, rejection: str
    ) -> str:
        """Return what `Lesson` says went wrong, with a budget of its own.

        The verdict is given, so that a child may now hold the solutions and mistakes, which are read here.
        """
        confined = self.confined[function.__name__]
        budget = confined.budget
        confined.budget = Budget(EXPLAINING)
        with_solutions = {each.number: each for each in exercises(notebook_source(self.number))}
        try:
            with_solution = with_solutions[self.exercises[0].number]
            return super()._explained(function, with_solution, judge, seed, rejection)
        finally:
            budget.spent += confined.budget.spent
            confined.budget = budget


@cache
def _keeps_our_residual(function: FunctionType) -> bool:
    """Tell whether minibert's backward can use what a forward saves."""
    try:
        return is_on_sheet(function.__name__) and keeps_reference_residual(function)
    except Exception:  # a call of it ended badly, or it does not return a pair
        return False


def any_seed() -> int:
    """Draw a seed that nobody can know beforehand."""
    return secrets.randbelow(10**6)


def tally(marks: list[Mark]) -> Iterator[tuple[str, int]]:
    """Count the marks of a folder.

    Parameters
    ----------
    marks : list of Mark

    Yields
    ------
    str, int
        Each mark that was given, and how often; "right" comes first.
    """
    for name in reversed(MARKS):
        count = sum(mark.mark == name for mark in marks)
        if count:
            yield name, count
