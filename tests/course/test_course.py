"""The course as its readers meet it: run with open exercises, passed with solutions, and not fooled."""

import os
import random
import warnings
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from course import (
    Walk,
    equations,
    execute,
    execute_definitions,
    mutants,
    notebooks,
    sample,
    without_a_term,
    wrongly_shaped,
)

import minibert.course.lesson as lessons
import minibert.course.running as running
from minibert.course.comparing import BOUND, compare
from minibert.course.exercises import cells, exercises

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.md")
SHARE = float(os.environ.get("COURSE_SHARE", "0.05"))  # of the mutants; `make test-course` takes all
FULL = os.environ.get("COURSE_SCALE") == "full"  # as its readers run it; claims have to hold then
REJECTED = 0.97
SEED = 20181011
IN_CI = ("02", "04", "06")  # of the two dearest tests; `make test-course` takes every chapter


def some_in_ci(paths):
    """Chapters as parameters; those that are not in `IN_CI` are exhaustive."""
    exhaustive = pytest.mark.exhaustive
    return [
        pytest.param(path, id=path.stem, marks=[] if path.stem.startswith(IN_CI) else exhaustive)
        for path in paths
    ]


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Sizes of a test, in a folder of its own, with the same questions each time."""
    matplotlib.use("Agg")
    monkeypatch.setattr(lessons, "QUICK", not FULL)
    monkeypatch.setattr(lessons, "secrets", SimpleNamespace(randbelow=random.Random(SEED).randrange))
    monkeypatch.setattr(running, "SECONDS", 3.0)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_there_are_106_exercises_with_five_mistakes_each():
    every = [one for path in notebooks() for one in exercises(path)]
    assert len(every) >= 106
    assert len({one.number for one in every}) == len(every)
    for one in every:
        assert len(one.mistakes) >= 5, one.number
        assert all(mistake.instead_of in one.solution for mistake in one.mistakes), one.number


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_everything_runs_with_the_exercises_left_open(path):
    lesson = Walk(path, solved=False).run()
    asked = {name for one in exercises(path) for name in one.functions}
    assert {verdict.function for verdict in lesson.verdicts} == asked
    assert {verdict.state for verdict in lesson.verdicts} <= {"open"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_passes_with_the_solutions(capsys):
    """One notebook after another: each reads what those before it have kept."""
    for path in notebooks():
        walk = Walk(path, solved=True)
        lesson = walk.run()
        assert [one for one in lesson.verdicts if one.state != "passed"] == [], path.stem
        assert all(lesson.passed(one.number) for one in exercises(path))
        assert not FULL or all(claim.holds for claim in lesson.claims), path.stem
        printed = capsys.readouterr().out
        if path.stem.startswith("10_"):
            assert "20 losses of your sealed engine and of the reference" in printed
            assert "refuses" not in printed and "stand in" not in printed
            assert "stands in" not in printed and "learnt with your count of pairs" in printed
    assert [row for row in lesson.sheet() if row.state != "passed"] == []


class ManyDraws:
    """In the place of a lesson: compares an answer with its second route on many draws."""

    def check(self, function, draw, same_as, **_):
        for seed in range(100):
            arguments = draw(np.random.default_rng(seed))
            compare(function(*arguments), same_as(*arguments), BOUND, f"{function.__name__}, seed {seed}")


@pytest.mark.representatives(number="11.2")
@pytest.mark.parametrize("number", ["11.2", "11.5", "11.7"])
def test_right_answer_passes_on_every_draw(number):
    """Scores in the thousands can make a loss and its gradients vanish, and rounding is all that is left."""
    path = next(path for path in notebooks() if path.stem.startswith("11"))
    exercise = next(one for one in exercises(path) if one.number == number)
    namespace = {"__name__": "__main__"}
    execute_definitions(path, namespace)
    execute(exercise.solution, namespace)
    execute(exercise.check, namespace | {"lesson": ManyDraws()})


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", some_in_ci(path for path in notebooks() if exercises(path)))
def test_wrong_answers_are_rejected(path):
    """The stub, a wrong shape, every usual mistake, and mutants of the solution."""
    walk, accepted, tried = Walk(path, solved=True), [], 0
    known = EQUIVALENT.read_text("utf-8")
    for exercise in walk:
        if exercise is None:
            continue
        assert walk.accepts(exercise, exercise.solution), exercise.number
        assert not walk.accepts(exercise, exercise.stub), exercise.number
        assert not walk.accepts(exercise, wrongly_shaped(exercise)), exercise.number
        for mistake in exercise.mistakes:
            wrong = walk.verdicts(exercise, exercise.mistaken(mistake))
            assert any(one.state == "failed" for one in wrong), (exercise.number, mistake.written)
        for mutant in sample(mutants(exercise.solution), SHARE, SEED):
            entry = f"{exercise.number}: {mutant.entry}:"
            if entry in known:
                continue
            tried += 1
            if walk.accepts(exercise, mutant.code):
                accepted.append(entry)
    print(f"{path.stem}: {tried - len(accepted)} of {tried} mutants rejected", *accepted, sep="\n  ")
    assert len(accepted) <= (1 - REJECTED) * tried, accepted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", some_in_ci(notebooks()))
def test_every_equation_turns_red_without_a_term(path):
    """Each cell with an "=" is run again with a term less of what its sides are computed from."""
    every = [text for is_code, text in cells(path) if is_code and equations(text)]
    walk, green, tried, known = Walk(path, solved=True), [], 0, EQUIVALENT.read_text("utf-8")
    for text, namespace in walk.before(set(every)):
        for changed in without_a_term(text):
            tried += 1
            try:
                execute(changed.code, dict(namespace), "without a term")
            except Exception:  # an AssertionError of course.equal, or shapes that don't fit any more
                continue
            if f"{path.stem[:2]}: {changed.entry}:" not in known:
                green.append(changed.entry)
    print(f"{path.stem}: {len(every)} cells with equations, {tried} terms left out", *green, sep="\n  ")
    assert not green
