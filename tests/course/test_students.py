"""What the check says of a student's answers, wrong ones and right ones, whose author had not seen it."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from course import execute, execute_definitions, notebooks

from minibert import course
from minibert.course.exercises import exercises

SEED = 3
# Each answer begins with a header: the exercise, what the verdict has to contain ("right": it is accepted,
# although written in another way than the solution), and what was done. What begins with "Likely" names a
# mistake of the exercise's table; in all others no mistake may be named.
_TEXT = Path(__file__).with_name("student_answers.txt").read_text("utf-8")
CHAPTERS = [f"{number:02}" for number in range(1, 17)]


class Answer(NamedTuple):
    """An answer to an exercise, and what has to be said of it."""

    exercise: str
    told: str  # what the verdict contains; "right" if the answer is accepted
    what: str  # what was done
    code: str


def _read(block):
    header, code = block.split("\n", 1)
    return Answer(*header.split(" | ", 2), code)


ANSWERS = [_read(block) for block in re.split(r"^### ", _TEXT, flags=re.M)[1:]]
# Once accepted, or told something false, or an exception that no check should raise.
ONCE_MISJUDGED = (
    "appends to the list a that it was given",
    "the gradients of the caller are scaled in place",
    "the probabilities after dropout are saved",
    "the mask None is not looked at; the mask is ignored",
    "whole division",
    "the warm-up is forgotten",
    "the scale is applied after the softmax",
    "clip_norm 0 makes everything zero",  # its draws take turns: they have to be used up
    "returns a complex number, not its imaginary part",
    "real parts only",
    "PyTorch's weight, transposed when square",
    "guess is the highest score, not its place",
    "labels returned as guesses",
    "guess is the least likely",
    "floats",
    "share of the training set",
    "x read twice",  # its numbers are those of another mistake, and right
    "two passes",
    "just adds up",  # its bits are not those of another mistake
    "np.sum of the parts",
    "divides by i",
    "smallest subtracted",
    "no largest at all",
    "all at once by lstsq",  # two numbers in an array
)


def verdict(answer):
    """Return the text of what is said of an answer, "right" if it is accepted."""
    path = next(one for one in notebooks() if one.name.startswith(answer.exercise[:2]))
    lesson = course.begin(answer.exercise[:2])
    namespace = {"__name__": "__main__", "lesson": lesson}
    execute_definitions(path, namespace)
    for exercise in exercises(path):
        execute(exercise.solution, namespace)
        if exercise.number == answer.exercise:
            break
    execute(answer.code, namespace)
    names = [node.name for node in ast.parse(answer.code).body if isinstance(node, ast.FunctionDef)]
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            namespace[node.name].__doc__ = ast.get_docstring(node)
    for node in ast.parse(exercise.check).body:
        text = ast.unparse(node)
        checked = re.match(r"lesson\.check\((\w+)", text)
        if checked:
            text = f"{text[:-1]}, seed={SEED})"
        if not checked or checked[1] in names:
            execute(text, namespace)
    assert lesson.verdicts
    return " ".join(one.text for one in lesson.verdicts if one.state != "passed") or "right"


def misjudged(answers):
    """List the answers of which something else is said than should be."""
    found = []
    for answer in answers:
        text = verdict(answer)
        is_named = "Likely:" in text
        if answer.told not in text or is_named != answer.told.startswith("Likely:"):
            found.append((answer.exercise, answer.what, answer.told, text))
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder."""
    monkeypatch.chdir(tmp_path)


def test_a_student_writes_wrong_and_right_answers_to_every_chapter():
    right = [answer for answer in ANSWERS if answer.told == "right"]
    assert {answer.exercise[:2] for answer in ANSWERS} == set(CHAPTERS)
    assert len(ANSWERS) - len(right) >= 1000 and len(right) >= 145
    assert len({(answer.exercise, answer.what) for answer in ANSWERS}) == len(ANSWERS)


def test_answers_that_were_once_misjudged_are_no_longer():
    answers = [answer for answer in ANSWERS if answer.what in ONCE_MISJUDGED]
    assert len(answers) >= len(ONCE_MISJUDGED)
    assert misjudged(answers) == []


@pytest.mark.slow
def test_every_fourth_answer_is_judged_as_it_should_be():
    assert misjudged(ANSWERS[::4]) == []


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_answer_is_judged_as_it_should_be(chapter):
    assert misjudged([answer for answer in ANSWERS if answer.exercise.startswith(chapter)]) == []
