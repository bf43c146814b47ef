"""The animations of the course: their data beside what the package computes, their HTML, and a browser."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from html_page import Page

from minibert.base.errors import InputError
from minibert.core import wordpiece
from minibert.core.ops import AdamRule
from minibert.course import animations
from minibert.tokenizer import learn_vocab

TEXT = "The father against the son, and the son against the father; the mother against the daughter."
HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> \"' & \u202e \x00 </script> <img"


def bowl(point):
    """A loss whose curvature differs seventyfold, and its gradient."""
    curvature = np.array([0.1, 7.0])
    return 0.5 * float(curvature @ point**2), curvature * point


def training(frames=6, heads=2, n=5):
    """Maps that a softmax made: the second head looks ever more to the right."""
    rng = np.random.default_rng(0)
    maps = []
    for frame in range(frames):
        scores = rng.standard_normal((3, heads, n, n))
        scores[:, 1] += 2 * frame * np.eye(n, k=1)
        weights = np.exp(scores)
        maps.append((1 + 10 * frame, weights / weights.sum(-1, keepdims=True)))
    return maps, np.linspace(-0.1, 0.4, 1 + 10 * (frames - 1))


@pytest.fixture(scope="module")
def every():
    """One of each."""
    maps, gains = training()
    return {
        "joins": animations.joins(TEXT),
        "descent": animations.descent(bowl, (-9.0, 1.0), ("flat", "steep"), steps=12),
        "neighbour_head": animations.neighbour_head(maps, gains),
    }


def shapes(animation, tag, **attributes):
    """Shapes with these attributes."""
    return [
        one for one in animation.shapes if one.tag == tag and attributes.items() <= one.attributes.items()
    ]


def pieces_drawn(animation, frame):
    """The words of a frame, read from boxes and letters: pieces are divided by |."""
    boxes = [one for one in shapes(animation, "rect") if "rx" in one.attributes]
    letters = [one for one in shapes(animation, "text") if one.attributes.get("font-size") == 12.0]
    places = [(one.attributes["y"], one.attributes["x"]) for one in boxes]
    drawn = ""
    for before, box, letter, place in zip([None, *places], boxes, letters, places, strict=False):
        is_next = before is not None and place[0] == before[0] and place[1] - before[1] == animations.CELL
        if not is_next:
            drawn += " "
        elif box.attributes["width"][frame]:
            drawn += "|"
        drawn += letter.text
    return drawn.split()


def joins_of(learn):
    """The pieces that a learner joins in the text, in order."""
    vocab = learn(Counter(wordpiece.split_words(TEXT)), 10**6)
    return [piece for piece in vocab[5:] if len(piece.removeprefix("##")) > 1]


def test_joins_are_those_of_both_learners(every):
    joined = joins_of(wordpiece.learn)
    assert joined == joins_of(learn_vocab)
    captions = every["joins"].captions
    assert len(joined) > 10 and len(captions) == 1 + len(joined)
    assert [re.search(r"become (\S+)\. They", one)[1] for one in captions[1:]] == joined


def test_each_frame_draws_the_pieces_after_its_joins(every):
    words = Counter(wordpiece.split_words(TEXT))
    cut = {word: [word[0], *("##" + letter for letter in word[1:])] for word in words}
    for frame, piece in enumerate([None, *joins_of(wordpiece.learn)]):
        if piece:
            left, right = re.search(r": (\S+) and (\S+) become", every["joins"].captions[frame]).groups()
            cut = {word: wordpiece.join(pieces, (left, right), piece) for word, pieces in cut.items()}
        expected = ["|".join(one.removeprefix("##") for one in pieces) for pieces in cut.values()]
        assert pieces_drawn(every["joins"], frame) == expected


def test_the_table_has_the_counts_of_the_first_join(every):
    counts, pairs = Counter(), Counter()
    for word, n in Counter(wordpiece.split_words(TEXT)).items():
        pieces = [word[0], *("##" + letter for letter in word[1:])]
        for piece in pieces:
            counts[piece] += n
        for pair in wordpiece.neighbours(pieces):
            pairs[pair] += n
    gains = {pair: wordpiece.gain(pair, n, counts) for pair, n in pairs.items() if n > 1}
    best = sorted(gains.values(), reverse=True)[: animations.ROWS]
    rows = {}
    for one in shapes(every["joins"], "text"):
        if isinstance(one.text, list):
            rows.setdefault(one.attributes["y"], []).append(one.text[1])
    assert len(rows) == animations.ROWS
    for row, gain in zip(rows.values(), best, strict=True):
        pair = tuple(row[0].split(" "))
        assert row[1:] == [str(pairs[pair]), str(counts[pair[0]]), str(counts[pair[1]]), f"{gain:.1f}"]
        assert f"{gains[pair]:.1f}" == row[-1]


def test_a_text_without_a_repeated_pair_is_refused():
    with pytest.raises(InputError, match="no pair of letters that occurs twice; give more text") as raised:
        animations.joins("abc")
    assert raised.value.arguments == {"text": "abc"}


def test_no_more_joins_are_shown_than_asked_for(every):
    assert animations.joins(TEXT, most=3).captions == [
        one.replace(f"of {len(every['joins'].captions) - 1}", "of 3") for one in every["joins"].captions[:4]
    ]


def test_at_least_one_join_is_asked_for():
    with pytest.raises(InputError, match="^most=0 is not possible; give a whole number") as raised:
        animations.joins("aa aa aa", most=0)
    assert raised.value.arguments == {"most": 0}


def test_what_there_is_one_of_is_described_in_the_singular():
    alt = animations.joins("aa aa aa").alt
    assert alt.startswith("The 1 different word of a text in boxes")
    assert "In one frame the pair" in alt and alt.endswith("it becomes aa.")


def test_paths_are_those_of_the_formulas():
    path, losses = animations.follow(bowl, (-9.0, 1.0), animations.gradient_descent(0.05), 7)
    factors = 1 - 0.05 * np.array([0.1, 7.0])
    expected = np.array([-9.0, 1.0]) * factors ** np.arange(8)[:, None]
    assert np.allclose(path, expected, rtol=1e-12)
    assert np.allclose(losses, [bowl(point)[0] for point in expected])
    path, _ = animations.follow(bowl, (-9.0, 1.0), animations.adam(0.5), 7)
    point, m, v = np.array([-9.0, 1.0]), np.zeros(2), np.zeros(2)
    for step in range(1, 8):
        gradient = bowl(point)[1]
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        corrected = m / (1 - 0.9**step), v / (1 - 0.999**step)
        point = point - 0.5 * corrected[0] / (np.sqrt(corrected[1]) + AdamRule(0.5, 1).eps)
        assert np.allclose(path[step], point, rtol=1e-9)
    assert path.shape == (8, 2)


def test_each_way_is_shown_at_its_best_rate(every):
    labels = [one.text for one in shapes(every["descent"], "text") if ", rate " in str(one.text)]
    for (name, make), label in zip(
        {"gradient descent": animations.gradient_descent, "Adam": animations.adam}.items(),
        labels,
        strict=True,
    ):
        with np.errstate(all="ignore"):
            means = {
                rate: animations.follow(bowl, (-9.0, 1.0), make(rate), 12)[1].mean()
                for rate in animations.RATES
            }
        assert label == f"{name}, rate {min(means, key=means.get):g}"
        assert len({f"{one:.3g}" for one in means.values()}) == len(means)


def test_the_dots_of_a_descent_are_its_steps(every):
    """Each dot lies where a linear map, the same for every step, puts the parameters."""
    dots = shapes(every["descent"], "circle")[:2]
    rates = [
        float(one.text.split()[-1]) for one in shapes(every["descent"], "text") if "rate" in str(one.text)
    ]
    makes = animations.gradient_descent, animations.adam
    for dot, make, rate in zip(dots, makes, rates, strict=True):
        path, losses = animations.follow(bowl, (-9.0, 1.0), make(rate), 12)
        for axis, name, sign in ((0, "cx", 1), (1, "cy", -1)):
            slope = np.diff(dot.attributes[name]) / np.diff(path[:, axis])
            assert np.allclose(slope, slope[0]) and np.sign(slope[0]) == sign
        ends = f"{losses[-1]:.3f}"
        assert ends in every["descent"].captions[-1] and ends in every["descent"].alt
    assert len(every["descent"].captions) == 13


def test_contours_join_points_of_equal_loss():
    lines = animations._contours(bowl, np.array([-10.0, -1.0]), np.array([2.0, 1.5]))
    assert len(lines) >= 5
    for line in lines:
        heights = np.array([bowl(point)[0] for point in line])
        assert np.ptp(heights) < 0.12 * heights.max() + 0.05


def test_the_head_that_ends_on_a_neighbour_is_shown(every):
    maps, gains = training()
    animation = every["neighbour_head"]
    assert "head 2 " in animation.alt and len(animation.captions) == len(maps)
    cells = [one for one in shapes(animation, "rect") if isinstance(one.attributes["fill-opacity"], list)]
    drawn = np.array([one.attributes["fill-opacity"] for one in cells]).T.reshape(6, 5, 5)
    means = np.array([weights[:, 1].mean(0) for _, weights in maps])
    assert np.allclose(drawn ** (1 / animations.SHADE) * means.max(), means)
    for caption, (step, _), mean in zip(animation.captions, maps, means, strict=True):
        left = np.mean([mean[i, i - 1] for i in range(1, 5)])
        right = np.mean([mean[i, i + 1] for i in range(4)])
        gain = f"{gains[step - 1]:.2f}".replace("-", "−")
        assert caption == (
            f"Step {step}: a gain of {gain} nats. Mean weight of a token: {left:.2f} on its left neighbour, "
            f"{right:.2f} on its right neighbour."
        )


def parts(animation):
    """The HTML, read strictly, and the data in it."""
    page = animation._repr_html_()
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])
    return page, Page(page), data


@pytest.mark.parametrize("name", ["joins", "descent", "neighbour_head"])
def test_the_page_holds_the_last_frame_and_changes_to_all(every, name):
    page, read, data = parts(every[name])
    last = len(every[name].captions) - 1
    assert data["captions"] == every[name].captions
    assert read.of("svg")[0]["aria-label"] == every[name].alt == repr(every[name])
    assert read.said("p") == [every[name].captions[-1]]
    assert read.of("input")[0]["max"] == str(last) and "hidden" in read.of("div")[0]
    moving = [attributes for _, attributes in read.tags if "data-moves" in attributes]
    assert len(moving) == len(data["shapes"]) > 0
    for attributes, changes in zip(moving, data["shapes"], strict=True):
        for attribute, values in changes.items():
            frames = [frame for frame, _ in values]
            assert frames[0] == 0 and frames == sorted(set(frames)) and frames[-1] <= last
            if attribute not in ("text", "count") and not isinstance(values[-1][1], str):
                assert float(attributes[attribute]) == pytest.approx(values[-1][1], abs=0.006)
            if attribute == "count":
                assert len(attributes["points"].split(" ")) == values[-1][1] == last + 1
    assert len(page) < 150_000
    assert not {"src", "href", "id"} & {name for _, attributes in read.tags for name in attributes}
    assert "http" not in page and "url(" not in page


def test_hostile_text_is_inert():
    page, read, data = parts(animations.joins(HOSTILE))
    assert [one["type"] for one in read.of("script", type="application/json")] == ["application/json"]
    assert len(read.of("script")) == 2 and not read.of("img")
    assert not any(key.startswith("on") for _, attributes in read.tags for key in attributes)
    assert "\x00" not in page and "script" in "".join(map(str, data["captions"]))
    page, read, _ = parts(animations.descent(bowl, (1.0, 1.0), (HOSTILE, "<b>"), steps=2))
    assert len(read.of("script")) == 2 and not read.of("img") and not read.of("b")
    assert read.of("svg")[0]["aria-label"].count("<b>") == 1


def test_names_and_numbers_of_axes_stand_outside_of_the_plot():
    panel = animations.Panel(40.0, 30.0, 200.0, 100.0, (0.0, 10.0), (-1.0, 1.0))
    texts = [shape for shape in panel.axes("steps", "loss") if shape.tag == "text"]
    below = [one for one in texts if one.attributes["y"] > 130 + 11]  # a line of letters under the plot
    beside = [one for one in texts if one.attributes["x"] < 40 and one.attributes.get("text-anchor") == "end"]
    above = [one for one in texts if one.attributes["y"] < 30]
    assert {one.text for one in above} == {"loss"}
    assert len(below) + len(beside) + len(above) == len(texts) and len(beside) >= 3
    for text in below[:-1]:
        assert text.attributes["x"] == pytest.approx(panel.x(float(text.text)))
    assert below[-1].text == "steps" and below[-1].attributes["y"] > below[0].attributes["y"] + 11


def test_counts_of_words_end_before_the_next_word_and_the_picture():
    words = {"ab": 3, "abc": 1234567, "a": 12, "abcdefghijkl": 99, "abcdefg": 100_000}
    state = {word: list(word) for word in words}
    shapes, _ = animations._words(words, [state], [""])
    counts = [shape.attributes for shape in shapes if shape.tag == "text" and shape.text.startswith("×")]
    boxes = [shape.attributes for shape in shapes if shape.tag == "rect"]
    ends = [x["x"] + 8 + 6 * len(str(count)) for x, count in zip(counts, words.values(), strict=True)]
    assert max(ends) <= animations.WIDTH and len({box["y"] for box in boxes}) > 1
    for count, end in zip(counts, ends, strict=True):
        row = [box["x"] for box in boxes if 0 < count["y"] - box["y"] < animations.BOX]
        assert all(x < count["x"] or x > end for x in row)
