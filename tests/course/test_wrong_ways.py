"""Wrong ways to a right-looking answer, each of which only some values tell from the right one."""

import ast

import pytest
from course import execute, execute_definitions, notebooks

from minibert import course
from minibert.course.exercises import exercises

RICHARDSON = """
def complex_derivative(f, x, v):
    def central(h):
        return (f(x + h * v) - f(x - h * v)) / (2 * h)
    rows = [[central(0.4 / 2**n)] for n in range(7)]
    for n in range(1, 7):
        for k in range(1, n + 1):
            rows[n].append(rows[n][k - 1] + (rows[n][k - 1] - rows[n - 1][k - 1]) / (4**k - 1))
    return float(rows[-1][-1])
"""
DIFFERENCES = """
def wrong_gradients(f, arguments, gradients, rng):
    wrong = []
    for place, (x, gradient) in enumerate(zip(arguments, gradients)):
        if gradient.shape != x.shape:
            wrong.append(place)
            continue
        v, h = rng.standard_normal(x.shape), STEP
        def at(t):
            return f(*arguments[:place], x + t * v, *arguments[place + 1 :])
        measured = DIFFERENCE
        if not abs((gradient * v).sum() - measured) <= TOLERANCE * np.linalg.norm(gradient):
            wrong.append(place)
    return wrong
"""
OVER_P = """
def softmax_cross_entropy_backward(self, dnll, saved):
    p = saved.probabilities
    here = np.arange(p.shape[1]) == saved.labels[:, None]
    with np.errstate(all="ignore"):
        dp = np.where(here, -1 / p, 0.0).astype(p.dtype) * dnll[:, None]
        return p * (dp - (p * dp).sum(1, keepdims=True))
"""


def verdicts(number, code, seeds=range(2)):
    """What the check of an exercise says of other code."""
    path = next(one for one in notebooks() if one.name.startswith(number[:2]))
    exercise = next(one for one in exercises(path) if one.number == number)
    lesson = course.begin(number[:2])
    namespace = {"__name__": "__main__", "lesson": lesson}
    execute_definitions(path, namespace)
    execute(exercise.solution, namespace)
    execute(code, namespace)
    for seed in seeds:
        for node in ast.parse(exercise.check).body:
            text = ast.unparse(node)
            if text.startswith("lesson.check("):
                text = f"{text[:-1]}, seed={seed})"
            execute(text, namespace)
    return lesson.verdicts


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder."""
    monkeypatch.chdir(tmp_path)


def solution(number):
    path = next(one for one in notebooks() if one.name.startswith(number[:2]))
    return next(one.solution for one in exercises(path) if one.number == number)


def test_richardsons_differences_are_rejected_where_the_complex_step_passes():
    assert {one.state for one in verdicts("05.1", solution("05.1"), range(6))} == {"passed"}
    assert {one.state for one in verdicts("05.1", RICHARDSON, range(6))} == {"failed"}


@pytest.mark.thorough
@pytest.mark.parametrize("difference", ["(at(h) - at(0)) / h", "(at(h) - at(-h)) / (2 * h)",
    "(8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)"])  # fmt: skip
@pytest.mark.parametrize("tolerance", ["1e-7", "1e-5"])
def test_a_judge_by_differences_fails_however_often_it_is_pressed(difference, tolerance):
    code = (
        DIFFERENCES.replace("DIFFERENCE", difference).replace("TOLERANCE", tolerance).replace("STEP", "1e-3")
    )
    assert {one.state for one in verdicts("05.11", code)} == {"failed"}


@pytest.mark.thorough
def test_a_judge_by_the_complex_step_passes_every_time():
    assert {one.state for one in verdicts("05.11", solution("05.11"), range(6))} == {"passed"}


def test_the_way_back_through_one_over_p_meets_a_p_that_underflows():
    assert {one.state for one in verdicts("05.7", OVER_P)} == {"failed"}
    assert {one.state for one in verdicts("05.7", solution("05.7"))} == {"passed"}


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["02.3", "07.2", "07.3"])
def test_blocks_read_eps_from_the_configuration(number):
    code = solution(number)
    assert "config.layer_norm_eps" in code
    assert {one.state for one in verdicts(number, code)} == {"passed"}
    wrong = verdicts(number, code.replace("config.layer_norm_eps", "1e-12"))
    assert "failed" in {one.state for one in wrong}
    assert any("large eps" in one.text for one in wrong)


BY_COLUMNS = """
def column_sums(x, out):
    for j in range(x.shape[1]):
        out[j] = 0
        for i in range(x.shape[0]):
            out[j] += x[i, j]
    return out
"""


@pytest.mark.thorough
def test_right_sums_in_the_wrong_order_fetch_too_many_lines():
    wrong = verdicts("16.2", BY_COLUMNS)
    assert {one.state for one in wrong} == {"failed"}
    assert all("cache lines are fetched" in one.text for one in wrong)
    assert {one.state for one in verdicts("16.2", solution("16.2"))} == {"passed"}
