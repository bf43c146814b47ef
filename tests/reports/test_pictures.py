"""Pictures of curves: what is drawn where, and labels that can be read."""

import math
from itertools import pairwise

import numpy as np
import pytest

from minibert.reports import pictures
from minibert.reports.pictures import Curve, picture

SLOPE = np.stack([np.arange(1.0, 101), np.linspace(6, 3, 100)], 1)
FORMAT = "{:.2f}".format


def curves(found, kind):
    return [np.array(path.points) for path in found["paths"] if path.kind == kind]


def test_smoothing_begins_anew_at_each_break():
    points = SLOPE.copy()
    points[50:, 1] += 10
    found = picture("loss", [Curve("loss", points, breaks=(50,))], FORMAT)
    first, second = curves(found, "loss")
    assert len(first) == len(second) == 50 and len(curves(found, "loss raw")) == 1
    raw = curves(found, "loss raw")[0]
    # Nothing of the jump is in either: a straight line stays one but for its ends.
    np.testing.assert_allclose(first[5:45], raw[5:45], atol=1e-6 + 0.5 * abs(raw[1, 1] - raw[0, 1]))
    np.testing.assert_allclose(second[5:45], raw[55:95], atol=1e-6 + 0.5 * abs(raw[1, 1] - raw[0, 1]))


def test_of_several_curves_each_ends_where_its_run_does():
    short = SLOPE[:40]
    found = picture("loss", [Curve("a", SLOPE, "A", "smoothed"), Curve("b", short, "B", "smoothed")], FORMAT)
    assert [path.kind for path in found["paths"]] == ["a", "b"]
    width = pictures.WIDTH - pictures.LEFT - pictures.RIGHT
    assert curves(found, "a")[0][-1, 0] == pytest.approx(pictures.LEFT + width)
    assert curves(found, "b")[0][-1, 0] == pytest.approx(pictures.LEFT + 0.4 * width)
    assert found["label"] == f"loss over steps, A from 6.00 to 3.00; B from 6.00 to {short[-1, 1]:.2f}"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1e308, 1e200])
def test_what_can_not_be_drawn_is_left_out(odd):
    points = np.vstack([SLOPE, (101, odd), (odd, 4.0)])
    with np.errstate(all="raise"):
        found = picture("loss", [Curve("loss", points)], FORMAT, lines=[(odd, "odd"), (5.0, "five")])
        sound = picture("loss", [Curve("loss", SLOPE)], FORMAT, lines=[(5.0, "five")])
    assert found == sound
    assert picture("loss", [Curve("loss", points[-1:])], FORMAT) is None
    assert picture("loss", [Curve("loss", np.zeros((0, 2)))], FORMAT) is None


def test_a_pointer_and_the_table_tell_what_is_drawn():
    found = picture("loss", [Curve("loss", SLOPE, breaks=(50,))], FORMAT)
    raw, *smooth = (path for path in found["paths"] if path.name)
    assert [path.name for path in (raw, *smooth)] == ["loss"] + 2 * ["loss, smoothed"]
    assert raw.positions.split() == [str(step) for step in range(1, 101)]
    assert raw.values.split() == [f"{value:.2f}" for value in SLOPE[:, 1]]
    assert smooth[1].positions.split() == [str(step) for step in range(51, 101)]
    inside = smooth[1].values.split()[5:45]
    # Of five values in a straight line the middle one is the mean.
    assert inside == [f"{value:.2f}" for value in SLOPE[55:95, 1]]
    assert found["summary"] == [
        ["loss", "6.00 (step 1)", "3.00 (step 100)", "6.00 (step 1)", "3.00 (step 100)"]
    ]
    rough = np.stack([np.arange(10.0), np.arange(10.0) % 3], 1)
    [faint, line] = picture("a", [Curve("a", rough, "A")], FORMAT)["paths"]
    assert (faint.name, line.name) == ("", "A")  # which are one line


def test_points_that_are_means_are_called_so():
    points = np.stack([np.arange(2.0 * pictures.MOST_POINTS), np.ones(2 * pictures.MOST_POINTS)], 1)
    found = picture("loss", [Curve("loss", points)], FORMAT)
    assert [path.name for path in found["paths"]] == ["loss, means of neighbours", "loss, smoothed"]
    assert found["paths"][0].positions.startswith("0.5 2.5 4.5 ")
    assert found["summary"][0][:2] == ["loss, means of neighbours", "1.00 (step 0.5)"]


def test_names_of_lines_and_marks_that_are_close_stand_apart():
    marks = [(0, "10"), (2, "16"), (4, "32"), (60, "64")]
    lines = [(5.0, "five"), (5.02, "a bit more"), (3.5, "less")]
    texts = picture("loss", [Curve("loss", SLOPE)], FORMAT, lines=lines, marks=marks)["texts"]
    heights = sorted(y for _, y, anchor, _ in texts if anchor == "end")
    assert len(heights) == 3 and all(b - a > 12 for a, b in pairwise(heights))
    begun = [(x, y, name) for x, y, anchor, name in texts if anchor == "start"]
    assert [name for *_, name in begun] == ["10", "16", "32", "64"]
    rows = [y for _, y, _ in begun]
    assert rows[0] < rows[1] < rows[2] and rows[3] == rows[0]
    assert rows[0] >= 12 + 24 / 2  # below the upper end of the plot by half a line or more


def test_the_name_of_a_mark_gives_way_to_that_of_a_line():
    marks = [(0, "10"), (80, "32")]
    heights = {}
    for value in (3.5, 5.9):
        lines = [(value, "held out, its context shuffled")]
        texts = picture("loss", [Curve("loss", SLOPE)], FORMAT, lines=lines, marks=marks)["texts"]
        heights[value] = [y for _, y, anchor, _ in texts if anchor == "start"]
    first, second = heights[3.5]
    assert first == second
    assert heights[5.9][0] == first and heights[5.9][1] > first + 12


def test_minutes_have_ticks_between_whole_ones_and_millions_are_short():
    minutes = picture("loss", [Curve("loss", SLOPE * (0.005, 1))], FORMAT, axis="minutes")
    assert [name for name, _ in minutes["places"]] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]
    tokens = picture("loss", [Curve("loss", SLOPE * (25_000, 1))], FORMAT, axis="tokens")
    assert [name for name, _ in tokens["places"]] == ["0", "500,000", "1M", "1.5M", "2M", "2.5M"]


@pytest.mark.parametrize(
    ("axis", "below"),
    [("step", "training step"), ("tokens", "tokens read in training"), ("minutes", "minutes of training")],
)
def test_axes_are_named_with_their_units(axis, below):
    found = picture("loss", [Curve("loss", SLOPE)], FORMAT, axis=axis, unit="nats")
    assert (found["x_label"], found["y_label"], found["title"]) == (below, "loss, nats", "loss")
    assert picture("R2", [Curve("loss", SLOPE)], FORMAT)["y_label"] == "R2"
    heights = [y for _, y in found["heights"]]
    assert 18 + 4 < min(heights) and max(heights) == pictures.HEIGHT - pictures.BOTTOM  # clear of the names


def test_a_curve_of_one_point_is_a_dot():
    found = picture("loss", [Curve("loss", SLOPE[:1])], FORMAT)
    [(kind, x, y, words)] = found["dots"]
    assert [kind, words] == ["loss", "step 1: 6.00"]
    assert [x, y] == [pictures.WIDTH - pictures.RIGHT, curves(found, "loss")[0][0, 1]]
    assert picture("loss", [Curve("loss", SLOPE[:2])], FORMAT)["dots"] == []
