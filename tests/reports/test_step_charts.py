"""The gradient norm and the learning rate on the pages of runs: what was recorded, and what to look at."""

import dataclasses

import numpy as np
import pytest
from html_page import Page

from minibert.reports import pictures
from minibert.reports.markup import shown
from minibert.reports.page import Facts, page
from minibert.reports.pictures import step_charts

STEPS = np.arange(1, 101)
NORMS = 1 + 0.5 * np.sin(STEPS)  # above 1 at 50 of 100 steps
RATES = np.minimum((STEPS - 1) / 10, (101 - STEPS) / 90) * 1e-3
LINES = [
    {"step": step, "loss": 0.5, "gradient_norm": norm, "learning_rate": rate}
    for step, norm, rate in zip(STEPS.tolist(), NORMS.tolist(), RATES.tolist(), strict=True)
]


def drawn(chart, kind):
    """Return the recorded numbers of the only path of a kind, and its coordinates."""
    [path] = [path for path in chart.picture["paths"] if path.kind == kind]
    numbers = [np.array(text.replace(",", "").split(), float) for text in (path.positions, path.values)]
    return np.stack(numbers, 1), np.array(path.points)


# points (n,2): positions and values
def on_axes(chart, points):
    """Return the coordinates that points should have, by the numbers at the axes."""
    heights = [(float(number), y) for number, y in chart.picture["heights"]]
    places = [(float(number), x) for number, x in chart.picture["places"]]
    x = np.polyval(np.polyfit(*zip(*places, strict=True), 1), points[:, 0])
    y = np.polyval(np.polyfit(*zip(*heights, strict=True), 1), points[:, 1])
    return np.stack([x, y], 1)


def has_line(chart):
    return any(path.kind == "line" for path in chart.picture["paths"])


def norms_alone(norms):
    return [{"step": step, "gradient_norm": norm} for step, norm in enumerate(norms, start=1)]


def test_points_are_those_of_the_log():
    norms, rates = step_charts(LINES, 100, clip_norm=1.0, warmup=10)
    for chart, kind, values in ((norms, "loss raw", NORMS), (rates, "loss", RATES)):
        numbers, coordinates = drawn(chart, kind)
        recorded = np.stack([STEPS, values], 1)
        np.testing.assert_allclose(numbers, recorded, rtol=5e-3, atol=5e-5)
        np.testing.assert_allclose(coordinates, on_axes(chart, recorded), atol=1e-6)


def test_the_clip_norm_is_a_line_at_its_height():
    norms, rates = step_charts(LINES, 100, clip_norm=1.25)
    [line] = [path for path in norms.picture["paths"] if path.kind == "line"]
    expected = on_axes(norms, np.array([[0, 1.25], [100, 1.25]]))
    np.testing.assert_allclose(line.points, expected, atol=1e-6)
    assert "clip norm: 1.25" in [text for *_, text in norms.picture["texts"]]
    assert "line" not in [path.kind for path in rates.picture["paths"]]


@pytest.mark.parametrize(
    ("clip_norm", "sentence"),
    [
        (1.0, "scaled down to it, here at 50 of 100 steps; a norm that leaps"),
        (1.5, "scaled down to it, here at none of 100 steps; a norm that leaps"),
        (0.0, "No gradient is scaled down, as the run has no clip norm; a norm that leaps"),
        (None, "The norm of the gradient at each step: a norm that leaps"),
    ],
)
def test_a_sentence_says_how_many_gradients_were_cut(clip_norm, sentence):
    norms, _ = step_charts(LINES, 100, clip_norm)
    assert sentence in norms.sentence
    assert has_line(norms) == bool(clip_norm)


@pytest.mark.parametrize(
    ("norms", "where"),
    [
        ([2.0] + 4999 * [0.5], "here at 1 of 5,000 steps;"),
        ([0.5] + 4999 * [2.0], "here at 4,999 of 5,000 steps;"),
        ([2.0], "here at 1 of 1 step;"),
    ],
)
def test_cut_gradients_are_counted_not_rounded(norms, where):
    [chart] = step_charts(norms_alone(norms), len(norms), 1.0)
    assert where in chart.sentence


def test_gradients_are_not_counted_where_only_some_steps_were_read():
    [chart] = step_charts(norms_alone([0.5, 2.0] * 50)[::2], 100, 1.0)
    assert "the gradient is scaled down to it; a norm that leaps" in chart.sentence


def test_a_clip_norm_far_above_all_norms_does_not_flatten_their_plot():
    [chart] = step_charts(norms_alone([0.25, 0.5]), 2, 1e9)
    assert not has_line(chart)
    assert "clip norm of 1e+09 is more than 10 times the largest of these norms" in chart.sentence
    assert max(float(number) for number, _ in chart.picture["heights"]) <= 1
    [chart] = step_charts(norms_alone([0.25, 0.5]), 2, 5.0)
    assert has_line(chart) and "here at none of 2 steps" in chart.sentence


@pytest.mark.parametrize(
    ("warmup", "sentence"),
    [
        (None, "The learning rate of each step."),
        (0, "Without a warm-up, the learning rate is highest at the first step, and falls towards zero."),
        (1, "rises to its peak in the warm-up, the first step, while"),
        (12, "rises to its peak in the warm-up, the first 12 steps, while"),
        (10_000, "rises to its peak in the warm-up, the first 10,000 steps, while"),
    ],
)
def test_a_sentence_says_in_steps_how_long_the_rate_rises(warmup, sentence):
    _, chart = step_charts(LINES, 100, 1.0, warmup)
    assert sentence in chart.sentence


def test_one_rate_shows_no_course():
    [chart] = step_charts([{"step": 1, "learning_rate": 0.0}], 1, warmup=0)
    assert chart.sentence == "The learning rate of each step."


def test_the_rate_of_a_long_run_is_neither_smoothed_nor_averaged():
    count = 10 * pictures.MOST_EXACT + 7
    rates = np.random.default_rng(0).permutation(count) / 1000
    lines = [{"step": step, "learning_rate": rate} for step, rate in enumerate(rates.tolist())]
    [chart] = step_charts(lines, count)
    numbers, _ = drawn(chart, "loss")
    assert len(numbers) <= pictures.MOST_EXACT + 2
    steps = numbers[:, 0].astype(int)
    assert {0, rates.argmin(), rates.argmax(), count - 1} <= {*steps.tolist()}
    assert np.diff(steps).max() <= 11
    np.testing.assert_array_equal(numbers[:, 1], [float(f"{rate:.3g}") for rate in rates[steps]])


def test_a_fine_tuning_has_both_below_its_mistakes():
    report = {"title": "", "task": "", "metric": "f1", "scores": {}}
    facts = Facts(report, curve=LINES, options={"clip_norm": 1.0, "warmup": 0.1})
    found = Page(page(facts))
    titles = found.said("h2")
    assert titles.index("Gradient norm and learning rate") == titles.index("Mistakes") + 1
    values = {path["data-name"]: path["data-values"] for path in found.of("path") if "data-name" in path}
    assert values["gradient norm"].split() == [shown(norm) for norm in NORMS.tolist()]
    assert values["learning rate"].split() == [f"{rate:.3g}" for rate in RATES]
    assert any("here at 50 of 100 steps" in text for text in found.said("p"))
    assert any("in the warm-up, the first 10 steps" in text for text in found.said("p"))
    without = Page(page(dataclasses.replace(facts, curve=[{"step": 1, "loss": 0.5}])))
    assert "Gradient norm and learning rate" not in without.said("h2")
