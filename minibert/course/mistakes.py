"""Tell whether a wrong answer makes one of the mistakes in the table of its exercise.

A mistake is a replacement in the exercise's solution. It is the reader's if both answer alike, and are
rejected in the same words.
"""

import ast
import re
from contextlib import closing
from types import FunctionType
from typing import Any

import numpy as np

from minibert.course.comparing import compare, leaves, require_alike
from minibert.course.exercises import Exercise
from minibert.course.judging import Judge, Methods
from minibert.course.running import Rejected

SAME = 1e-11  # largest relative difference between the answers of two functions that make the same mistake
SEEDS = 3  # seeds whose questions are asked


def known_mistake(
    function: FunctionType,
    exercise: Exercise | None,
    judge: Judge,
    mine: Methods,
    seed: int,
    rejection: str,
) -> str:
    """Name the mistakes of the table that a function makes.

    Parameters
    ----------
    function : function
        The reader's, which the judge has rejected.
    exercise : Exercise
        None: it has no table.
    judge : Judge
    mine : dict of function
        As for `Judge`.
    seed : int
        Seed with which it was rejected.
    rejection : str
        The sentence with which it was rejected. A mistake has to be rejected in the same words, too: numbers
        that are right may have been read too often.

    Returns
    -------
    str
        Their sentences; "" if there is none.

    Raises
    ------
    Exception
        When the function raises for some question, or its answers can't be compared.
    """
    if not exercise:
        return ""
    seeds = range(seed, seed + SEEDS)
    answers = [list(judge.outputs(function, mine, each)) for each in seeds]
    if not _tell_something(answers):
        return ""

    def answers_like(other: FunctionType, tolerance: float) -> bool:
        """Tell whether another function gives the same answers."""
        for each, answers_of_seed in zip(seeds, answers, strict=True):
            with closing(judge.outputs(other, mine, each)) as others:
                pairs = zip(answers_of_seed, others, strict=True)
                if not all(_are_same(*pair, tolerance) for pair in pairs):
                    return False
        return True

    # Where an answer is wrong although it is right except for rounding, every bit counts.
    solution = solution_of(exercise, function)
    tolerance = 0.0 if solution and answers_like(solution, SAME) else SAME
    sentences = []
    for mistake in exercise.mistakes:
        text = exercise.mistaken(mistake)
        if not _changes_only(function.__name__, exercise, text):
            continue
        try:
            mistaken = defined(text, function)[function.__name__]
            if not answers_like(mistaken, tolerance):
                continue
            its_rejection = _rejection(judge, mistaken, mine, seed)
        except Exception:  # another mistake: it raises
            continue
        if _wording(its_rejection) == _wording(rejection):
            sentences.append(mistake.sentence)
    return " Or: ".join(dict.fromkeys(sentences))


def solution_of(exercise: Exercise | None, function: FunctionType) -> FunctionType | None:
    """Return the function of an exercise's solution, which uses the names of the reader's notebook.

    Parameters
    ----------
    exercise : Exercise
    function : function
        The reader's.

    Returns
    -------
    function
        With the docstring of the stub, if it has none; None if there is no solution.
    """
    if not exercise or not exercise.solution:
        return None
    solution: FunctionType = defined(exercise.solution, function)[function.__name__]
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            solution.__doc__ = solution.__doc__ or ast.get_docstring(node)
    return solution


def defined(text: str, function: FunctionType) -> dict[str, Any]:
    """Run code that uses the global names of a function's notebook.

    Parameters
    ----------
    text : str
        Python.
    function : function
        A function of the notebook.

    Returns
    -------
    dict
        The global names afterwards. Those of the notebook itself do not change.
    """
    namespace = dict(function.__globals__)
    exec(text, namespace)
    return namespace


def _changes_only(name: str, exercise: Exercise, mistaken: str) -> bool:
    """Tell whether a mistake is in this function, and in no other that the exercise asks for."""
    before = ast.parse(exercise.solution).body
    after = ast.parse(mistaken).body
    changed = set()
    for node, new_node in zip(before, after, strict=False):
        if ast.dump(node) != ast.dump(new_node):
            changed.add(getattr(node, "name", ""))
    return changed & set(exercise.functions) == {name}


def _rejection(judge: Judge, function: FunctionType, methods: Methods, seed: int) -> str:
    """Return the sentence with which a function is rejected, "" if it is not."""
    try:
        judge.judge(function, methods, seed)
    except Rejected as wrong:
        return str(wrong)
    return ""


def _wording(sentence: str) -> str:
    """Return a sentence with every number left out: two that differ only in numbers say the same."""
    return re.sub(r"-?\d[\d.]*(e[+-]?\d+)?", "", sentence)


def _tell_something(answers: list[list[Any]]) -> bool:
    """Tell whether answers can tell mistakes apart.

    They can't if all of their numbers are zero or not finite, or if every question has the same answer.
    """
    first, *others = [answer for answers_of_seed in answers for answer in answers_of_seed]
    if all(_are_same(other, first, SAME) for other in others):
        return False
    arrays = [np.asarray(leaf) for leaf in leaves(answers)]
    numbers = [array for array in arrays if array.dtype.kind in "fc"]
    if len(numbers) < len(arrays):
        return True
    return any(np.any(array) and np.isfinite(array).all() for array in numbers)


def _are_same(found: Any, expected: Any, tolerance: float) -> bool:
    """Tell whether two answers are the same, with infinities and NaNs in the same places."""
    try:
        require_alike(found, expected)
        for leaf, right in zip(leaves(found), leaves(expected), strict=True):
            _require_same(leaf, right, tolerance)
    except Rejected:
        return False
    return True


def _require_same(found: Any, expected: Any, tolerance: float) -> None:
    """Raise Rejected unless two numbers, arrays or texts are the same."""
    right = np.asarray(expected)
    if right.dtype.kind in "fc":
        is_finite = np.isfinite(right)
        compare(np.where(is_finite, 0, found), np.where(is_finite, 0, right), 0.0)
        found = np.where(is_finite, found, 0)
        expected = np.where(is_finite, right, 0)
    compare(found, expected, tolerance)
