"""Where a wrong answer is said to be off: each law by values, and all on families of wrong answers."""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from course import execute, notebooks

from minibert import course
from minibert.course.diagnosis import Asked, Probe, diagnose, names_in
from minibert.course.exercises import definitions, exercises

FAMILIES = runpy.run_path(str(Path(__file__).with_name("wrong_answers.py")))["FAMILIES"]
LOCALISED = 0.6  # of a family
SEED = 3
RNG = np.random.default_rng(0)
TABLES = [RNG.standard_normal(shape) for shape in ((5, 4), (3, 6), (7, 5))]


def told(wrong, arguments=None, probes=()):
    """What is said of a function of the right answers."""
    asked = []
    for number, right in enumerate(TABLES):
        given = {} if arguments is None else arguments(number)
        asked.append(Asked({"dx": wrong(right), "db": right[0]}, {"dx": right, "db": right[0]}, given))
    return diagnose(asked, list(probes))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda right: -right, "dx has the wrong sign."),
        (lambda right: right / 3, "dx is 1/3 times what it should be."),
        (lambda right: 0 * right, "dx is zero everywhere."),
        (lambda right: right.T, "dx is transposed."),
        (lambda right: abs(right), "dx has lost its signs."),
        (lambda right: right + 0.25, "dx is off by an added constant, 1/4."),
        (lambda right: right[::-1], "dx has its rows in the opposite order."),
        (lambda right: np.roll(right, 1, 0), "dx is shifted by a row."),
        (lambda right: right**2, "dx is the square of what it should be."),
        (lambda right: right.astype(np.float32), "dx is nearly right, to "),
        (lambda right: right * np.nan, "dx is not finite (nan or inf) everywhere."),
        (
            lambda right: np.where(np.arange(len(right))[:, None] > 0, 7, right),
            "dx is right in the first row only.",
        ),
        (
            lambda right: right + right.mean(1, keepdims=True),
            "dx is off by an added constant of its own in each row",
        ),
        (lambda right: right * (1 + right[1:2] ** 2), "dx is off by a factor of its own in each column."),
        (
            lambda right: np.where(right > 0, 2 * right, right),
            "dx is off only where the right number is positive.",
        ),
    ],
)
def test_each_law_is_named(wrong, sentence):
    text = told(wrong)
    assert sentence in text and "db is right." in text


def test_arguments_and_sizes_are_named():
    def arguments(number):
        return {"b": np.arange(1.0, 1 + TABLES[number].shape[1]), "scale": 2.0 + number}

    assert "dx is x.shape[0] times" in told(lambda y: len(y) * y, lambda n: {"x": np.zeros(len(TABLES[n]))})
    assert "dx is 1/scale times" in told(lambda y: y / (2.0 + _place(y)), arguments)
    assert "dx lacks the term b" in told(lambda y: y - np.arange(1.0, 1 + y.shape[1]), arguments)
    assert "dx lacks the factor b" in told(lambda y: y / np.arange(1.0, 1 + y.shape[1]), arguments)


def _place(right):
    return next(number for number, one in enumerate(TABLES) if one is right)


def test_a_right_answer_is_not_diagnosed_and_exchanged_parts_are_named():
    assert told(lambda right: right) == ""
    asked = [
        Asked({"dq": y, "dk": x}, {"dq": x, "dk": y}, {}) for x, y in zip(TABLES, TABLES[1:], strict=False)
    ]
    assert diagnose(asked, []) == "dq is what dk should be. dk is what dq should be."


def test_a_probe_is_named_only_if_everything_becomes_right():
    noise = RNG.standard_normal((9, 9))

    def ask(wrong):
        return lambda: [Asked({"dx": wrong(y), "db": y[0]}, {"dx": y, "db": y[0]}, {}) for y in TABLES]

    def spoilt(right):
        return right + noise[: len(right), : right.shape[1]]

    mends, does_not = Probe("where a is 0", ask(lambda y: y)), Probe("where b is 0", ask(spoilt))
    assert "It is right where a is 0." in told(spoilt, probes=[does_not, mends])
    assert "It is right" not in told(spoilt, probes=[does_not])


def test_variants_tell_what_an_error_depends_on():
    asked = [
        Asked({"dx": (1 + ("dropout" in variant)) * x}, {"dx": x}, {}, variant)
        for variant in ("", "dropout", "causal", "causal dropout")
        for x in TABLES
    ]
    assert "It is right without “dropout”, and wrong with it." in diagnose(asked, [])


def test_names_of_results_are_read_from_the_docstring():
    assert names_in("Return dq, dk and dv, each (n,D), of sum.") == ["dq", "dk", "dv"]
    assert names_in("Return dx (T,K), dweight (K,N) and dbias (N,); saved has x.") == [
        "dx",
        "dweight",
        "dbias",
    ]
    assert names_in("Return the tokens that the model sees and the right ones.") == []
    assert names_in(None) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_answers_are_localised_and_no_mistake_is_named_wrongly(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    false, localised = [], 0
    for wrong in FAMILIES[family]:
        text = said_of(wrong)
        assert text, wrong  # it is rejected
        found = bool(wrong.told) and re.search(wrong.told, text, re.S) is not None
        localised += found
        if "Likely:" in text and not (found and wrong.told.startswith("Likely")):
            false.append((wrong, text))
    print(f"{family}: {localised} of {len(FAMILIES[family])} named right or localised")
    assert not false
    assert localised >= LOCALISED * len(FAMILIES[family])


def said_of(wrong):
    """The text of the verdicts on a wrong answer that are not passes."""
    path = next(one for one in notebooks() if one.name.startswith(wrong.exercise[:2]))
    exercise = next(one for one in exercises(path) if one.number == wrong.exercise)
    lesson = course.begin(wrong.exercise[:2])
    namespace = {"__name__": "__main__", "lesson": lesson}
    for node in ast.parse(definitions(path)).body:
        try:
            execute(ast.unparse(node), namespace)
        except NameError:  # it needs what the notebook computes
            continue
    parts = [ast.get_source_segment(exercise.solution, one) for one in ast.parse(exercise.solution).body]
    for part in parts:
        if part.startswith(f"def {wrong.function}("):
            assert wrong.instead_of in part
            part = part.replace(wrong.instead_of, wrong.written, 1)
        execute(part, namespace)
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef):
            namespace[node.name].__doc__ = ast.get_docstring(node)
    for node in ast.parse(exercise.check).body:
        text = ast.unparse(node)
        if text.startswith("lesson.check("):
            if not re.match(rf"lesson\.check\({wrong.function}\b", text):
                continue
            text = f"{text[:-1]}, seed={SEED})"
        execute(text, namespace)
    return " ".join(one.text for one in lesson.verdicts if one.state != "passed")
