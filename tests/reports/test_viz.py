"""Pictures: smoothed curves, maps of attention, pieces."""

from itertools import combinations

import numpy as np
import pytest

from minibert.reports import viz
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer


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
    assert [int(text.get_text()) for text in ids] == tokenizer.encode(
        "unaffable " + "whale " * 12, add_special_tokens=False
    )
    boxes = [box.get_bbox() for box in axes.patches]
    for box, piece, number in zip(boxes, pieces, ids, strict=True):
        assert box.contains(*piece.get_position()) and box.contains(*number.get_position())
    places = [(-box.y0, box.x0) for box in boxes]
    assert places == sorted(places) and places[-1][0] > 0  # in reading order, on more than one row
    assert not any(one.shrunk(0.99, 0.99).overlaps(other) for one, other in combinations(boxes, 2))
    colours = [box.get_facecolor() for box in axes.patches]
    assert colours[0] == colours[1] == colours[2] != colours[3] != colours[4]


def test_pieces_of_one_word_have_one_colour_and_the_first_word_the_first():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##able", "to", "go"])
    to_hex = pytest.importorskip("matplotlib.colors").to_hex
    boxes = viz.draw_pieces(tokenizer, "unable to go").axes[0].patches
    colours = [to_hex(box.get_facecolor()) for box in boxes]
    assert colours == [to_hex(viz.PIECE_COLOURS[word]) for word in (0, 0, 1, 2)]
