"""The picture of a run: its labels can be read."""

import json
from itertools import combinations

import numpy as np
import pytest

from minibert import viz
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer


def run_folder(path, stages, steps=12_000, **more):
    """A run with these stages, as (first step, sequence length)."""
    report = {
        "held_out": {"loss": 3.7, "unigram": 6.1},
        "steps": steps,
        "tokens": 2_000 * steps,
        "size": "tiny",
        "stages": stages,
        **more,
    }
    lines = [{"step": step, "mlm_loss": 6 - 2 * step / steps} for step in range(0, steps, 100)]
    lines.append({"step": steps, "held_out_loss": 4.0})
    (path / "report.json").write_text(json.dumps(report))
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize(
    "stages",
    [
        [(0, 128)],
        [(0, 10), (720, 16), (1_200, 32), (3_600, 64)],
        [(0, 10), (100, 16), (200, 32), (300, 64), (11_900, 512)],
    ],
)
def test_lengths_of_short_stages_stand_below_each_other(tmp_path, stages):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = viz.draw_run(run_folder(tmp_path, stages), Figure((8, 4.8)))
    figure.canvas.draw()
    labels = [text for text in figure.axes[0].texts if text.get_text().startswith("length")]
    boxes = [text.get_window_extent() for text in labels]
    assert len(boxes) == len(stages)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    tops = {round(box.y1) for box in boxes}
    assert len(tops) == {1: 1, 4: 3, 5: 4}[len(stages)]  # no lower than need be


def test_a_picture_of_a_left_to_right_run_speaks_of_no_masks(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def words(**more):
        (axes,) = viz.draw_run(run_folder(tmp_path, [(0, 128)], **more), Figure((8, 4.8))).axes
        return axes.get_ylabel(), axes.get_legend().get_texts()[1].get_text()

    assert words() == ("masked-LM loss (nats)", "held out, [MASK] only, a small sample")
    assert words(left_to_right=True) == ("next-word loss (nats)", "held out, a small sample")


def test_a_window_of_two_is_narrower_than_one_of_three():
    values = np.array([0.0, 2.0, 6.0, 4.0])
    assert viz.smoothed(values, 1).tolist() == values.tolist()
    assert viz.smoothed(values, 2).tolist() == [0, 1, 4, 5]
    np.testing.assert_allclose(viz.smoothed(values, 3), [1, 8 / 3, 4, 5])
    np.testing.assert_allclose(viz.smoothed(values, 4), [1, 8 / 3, 3, 4])


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_one_value_that_is_no_number_spoils_its_windows_alone(odd):
    found = viz.smoothed(np.array([1.0, 3.0, odd, 5.0, 5.0, 8.0]), 3)
    np.testing.assert_array_equal(found, [2, np.nan, np.nan, np.nan, 6, 6.5])


def test_dollars_in_pieces_and_titles_are_no_formulas():
    pytest.importorskip("matplotlib")
    figure = viz.draw_attention(np.full((1, 2, 2), 0.5), ["$a_$", "b"], "$5 and 6_$")
    figure.canvas.draw()
    assert figure.get_suptitle() == "$5 and 6_$"


def test_each_head_is_drawn_with_its_own_map_and_all_on_one_scale():
    pytest.importorskip("matplotlib")
    maps = np.random.default_rng(0).dirichlet(np.ones(4), (3, 4))  # (A,n,n)
    tokens = ["[CLS]", "call", "me", "[SEP]"]
    heads = viz.draw_attention(maps, tokens).axes
    assert [axes.get_title() for axes in heads] == ["head 1", "head 2", "head 3"]
    for axes, expected in zip(heads, maps, strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), expected)  # row i: what token i attends to
        assert image.get_clim() == (0, maps.max())
        assert image.origin == "upper" and image.get_extent() == [-0.5, 3.5, 3.5, -0.5]
        assert [label.get_text() for label in axes.get_xticklabels()] == tokens
        assert axes.get_xticks().tolist() == axes.get_yticks().tolist() == [0, 1, 2, 3]
    shared = viz.draw_attention(maps, tokens, darkest=1.0).axes
    assert [axes.images[0].get_clim() for axes in shared] == [(0, 1)] * 3
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in heads]
    assert rows == [tokens, [""] * 4, [""] * 4]


def test_pieces_stand_in_order_with_their_ids_and_words_have_one_colour_each():
    pytest.importorskip("matplotlib")
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able", "whale"])
    (axes,) = viz.draw_pieces(tokenizer, "unaffable " + "whale " * 12).axes
    pieces, ids = axes.texts[::2], axes.texts[1::2]
    assert [text.get_text() for text in pieces] == ["un", "##aff", "##able", *["whale"] * 12]
    assert [int(text.get_text()) for text in ids] == tokenizer.encode("unaffable " + "whale " * 12)
    boxes = [box.get_bbox() for box in axes.patches]
    for box, piece, number in zip(boxes, pieces, ids, strict=True):
        assert box.contains(*piece.get_position()) and box.contains(*number.get_position())
    places = [(-box.y0, box.x0) for box in boxes]
    assert places == sorted(places) and places[-1][0] > 0  # in reading order, on more than one row
    assert not any(one.shrunk(0.99, 0.99).overlaps(other) for one, other in combinations(boxes, 2))
    colours = [box.get_facecolor() for box in axes.patches]
    assert colours[0] == colours[1] == colours[2] != colours[3] != colours[4]


def test_the_curve_is_smoothed_within_each_stage(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    folder = run_folder(tmp_path, [(0, 10), (6_000, 64)])
    lines = [{"step": step, "mlm_loss": 3.0 if step <= 6_000 else 5.0} for step in range(1, 12_001)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (axes,) = viz.draw_run(folder, Figure((8, 4.8))).axes
    curves = [line for line in axes.lines if line.get_color() == viz.BLUE]
    assert [set(curve.get_ydata()) for curve in curves] == [{3.0}, {5.0}]
    assert [(curve.get_xdata()[0], curve.get_xdata()[-1]) for curve in curves] == [
        (1, 6_000),
        (6_001, 12_000),
    ]
    assert len([text for text in axes.get_legend().get_texts() if "training" in text.get_text()]) == 1
