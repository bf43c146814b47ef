"""The report of a fine-tuning: one sound HTML file that says what happened, whatever the data says."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
from html_page import Page, require_own_script, require_self_contained

from minibert.base.terminal import printable
from minibert.data.ner import TaggedSentence
from minibert.reports import page as report, pictures
from minibert.reports.page import Facts, page, save_report
from minibert.reports.results import measured_text
from minibert.tasks.tagging import Tagging
from minibert.tasks.task import Mistake

HOSTILE = "<script>alert('x')</script> & \"quotes\" </td></table><!-- \x00\ud800\x1b[31m"


IN_REPORT = "interval macro_f1 majority bag_of_words untuned baselines train_classes truncated".split()
IN_REPORT += ["training_seconds"]


CORNER = "expected ↓ found →"  # of the confusion matrix


def facts_with(title, task, metric, scores, model="", **more):
    """Facts of a page, those of them in the report that a report has."""
    report = {"title": title, "task": task, "metric": metric, "scores": scores}
    report |= {name: more.pop(name) for name in [*more] if name in IN_REPORT}
    return Facts(report, model, **more)


FACTS = facts_with(
    title="SST-2: sentiment of a sentence",
    task="sst2",
    metric="accuracy",
    scores={"accuracy": 0.75, "f1": 0.8, "total": 11873},
    model="runs/mini",
    interval=(0.70123, 0.79876),
    options={
        "learning_rate": 5e-5, "epochs": 3, "dropout": 0.1, "seeds": (1, 2), "freeze": None, "columns": (),
    },
    labels=("negative", "positive"),
    classes=(["negative"] + 3 * ["positive"], 2 * ["negative"] + 2 * ["positive"]),
    curve=[{"step": step, "loss": 0.7 - step / 400} for step in range(1, 101)]
    + [{"step": 50, "dev_accuracy": 0.6}, {"step": 100, "dev_accuracy": 0.75}],
    mistakes=[Mistake(f"sentence {n}", "positive", "negative", 9.0 - n) for n in range(13)],
    training_seconds=150.0,
    loss_unit="nats",
)  # fmt: skip


def test_report_is_one_file_without_network_and_scripts_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "facts_of", lambda *_: FACTS)
    folder, told = tmp_path / "new" / "folder", {}
    save_report(folder, SimpleNamespace(learning_rate=5e-5, seed=1), None, [], told)
    path = folder / "report.html"
    assert told["page"] == str(path) and {path, folder / "report.json"} == set(folder.iterdir())
    require_self_contained(path.read_text("utf-8"))


def test_report_says_metric_interval_scores_and_options():
    found = Page(page(FACTS))
    assert found.said("h1") == ["SST-2: sentiment of a sentence"] == found.said("title")[:1]
    assert found.said("b") == ["75.00"]
    assert "95% of bootstrap samples: 70.12 to 79.88" in found.said("span")
    assert "task sst2; started from runs/mini; trained for 2.5 minutes" in found.said("p")
    for row in (
        ["accuracy", "75.00"],
        ["total", "11,873"],
        ["learning_rate", "5e-05"],
        ["dropout", "0.1"],
        ["seeds", "1, 2"],
        ["freeze", "–"],
        ["columns", "–"],
    ):
        assert row in found.rows, row


def test_options_stand_in_the_report_as_they_were_given():
    options = {
        "learning_rates": (0.00125, 5e-5), "seed": 12345, "fsdp": True,
        "columns": (("text", "my text"), ("label", "3")),
    }  # fmt: skip
    rows = Page(page(dataclasses.replace(FACTS, options=options))).rows
    for row in (
        ["learning_rates", "0.00125, 5e-05"],
        ["seed", "12345"],
        ["fsdp", "yes"],
        ["columns", "text=my text, label=3"],
    ):
        assert row in rows, row


def test_confusion_matrix_and_figures_of_each_class_are_those_of_a_hand_count():
    found = Page(page(FACTS))
    assert [CORNER, "negative", "positive"] in found.rows
    assert ["negative", "1", "0"] in found.rows and ["positive", "1", "2"] in found.rows
    assert ["negative", "50.00", "100.00", "66.67", "1", "2"] in found.rows
    assert ["positive", "100.00", "66.67", "80.00", "3", "2"] in found.rows
    shares = [cell["style"] for cell in found.of("td") if "style" in cell]
    assert shares == ["--share:1.000", "--share:0.000", "--share:0.577", "--share:0.667"]
    assert [cell["class"] for cell in found.of("td") if "style" in cell] == [
        "right strong",
        "wrong",
        "wrong strong",
        "right strong",
    ]


def test_only_classes_that_come_have_a_row():
    classes = (["a", "a"], ["a", "new"])
    found = Page(page(facts_with("", "", "f1", {}, labels=("a", "b"), classes=classes)))
    assert [row for row in found.rows if len(row) == 3] == [
        [CORNER, "a", "new"],
        ["a", "1", "1"],
        ["new", "0", "0"],
    ]
    figures = [row for row in found.rows if len(row) == 6][1:]
    assert figures == [["a", "100.00", "50.00", "66.67", "2", "1"], ["new", "0.00", "–", "0.00", "0", "1"]]


def test_classes_of_named_entities_are_types_without_the_tags_of_the_outputs():
    task = Tagging()
    gold = [TaggedSentence(("Anna", "in", "Rome"), ("B-PER", "O", "B-LOC"), 0)]
    labels, found = task.labels(gold), [["B-PER", "O", "I-LOC"]]
    rows = Page(page(facts_with("", "", "f1", {}, labels=labels, classes=task.classes(gold, found)))).rows
    assert rows[0] == [CORNER, "O", "LOC", "PER"]
    assert [row[0] for row in rows[1:4]] == ["O", "LOC", "PER"] and len(rows) == 8


def test_page_and_terminal_show_the_same_figures_by_the_same_names():
    scores = {"f1": 0.823529, "f1_LOC": 0.5, "HasAns_exact": 0.25, "total": 11873.0, "best_f1_thresh": -2.125}
    interval = (0.80123, 0.85)
    told = measured_text(
        {"title": "", "metric": "f1", "scores": scores, "interval": interval, "examples": 1}
    ).splitlines()[1:]
    rows = Page(page(facts_with("", "", "f1", scores, interval=interval))).rows
    assert [" ".join(row) for row in rows] == [" ".join(line.split("   95%")[0].split()) for line in told]
    assert rows[:2] == [["f1", "82.35"], ["f1 LOC", "50.00"]] and ["best f1 thresh", "-2.125"] in rows
    assert "80.12 to 85.00" in told[0]
    found = Page(
        page(facts_with("", "", "f1", scores, interval=interval, curve=[{"step": 1, "dev_f1": 0.5}]))
    )
    assert found.said("b") == ["82.35"] and "95% of bootstrap samples: 80.12 to 85.00" in found.said("span")
    assert {"60", "80"} <= set(found.said("text"))


def test_many_classes_share_one_row_and_keep_every_count():
    names = [f"class {n}" for n in range(100)]
    expected = [name for n, name in enumerate(names) for _ in range(1 + n % 50)]
    rows = Page(page(facts_with("", "", "f1", {}, labels=names, classes=(expected, expected[::-1])))).rows
    head = next(row for row in rows if len(row) > 6)
    matrix = [row for row in rows if len(row) == len(head) and row[0] != CORNER]
    assert len(head) == 1 + report.MOST_CLASSES + 1 == len(matrix) + 1 and head[-1] == "60 rarer classes"
    assert [row[0] for row in matrix] == head[1:]
    assert sum(int(cell.replace(",", "")) for row in matrix for cell in row[1:]) == len(expected)
    assert {f"class {n}" for n in (99, 49, 98)} <= set(head) and "class 0" not in head
    assert len([row for row in rows if len(row) == 6]) == 100 + 1  # each class with its own figures


# -> (n,2)
def drawn(document, kind):
    """The points of the curve of that class."""
    [path] = [had["d"] for had in Page(document).of("path") if had["class"] == kind]
    return np.array([point.split() for point in path[1:].split("L")], float)


def test_curves_go_through_what_was_measured():
    points = drawn(page(FACTS), "loss raw")
    assert len(points) == 100
    assert points[-1, 0] == pytest.approx(pictures.WIDTH - pictures.RIGHT, abs=0.1)
    np.testing.assert_allclose(np.diff(points[:, 0]), np.diff(points[:, 0]).mean(), atol=0.11)
    assert (np.diff(points[:, 1]) > 0).all()  # downwards, where a loss ought to go
    looks = drawn(page(FACTS), "metric")
    np.testing.assert_allclose(looks[:, 0], points[[49, 99], 0])  # one axis of steps for both
    assert looks[1, 1] < looks[0, 1]
    dots = Page(page(FACTS)).of("circle")
    np.testing.assert_allclose([(float(dot["cx"]), float(dot["cy"])) for dot in dots], looks)
    assert "step 50: 60.00" in Page(page(FACTS)).said("title")


def test_one_example_more_is_small_beside_the_interval():
    looks = [
        {"step": 10 * n, "dev_accuracy": metric} for n, metric in enumerate((288 / 300, 289 / 300, 288 / 300))
    ]
    facts = facts_with("", "", "accuracy", {"accuracy": 289 / 300}, interval=(0.94, 0.98), curve=looks)
    heights = drawn(page(facts), "metric")[:, 1]
    [band] = Page(page(facts)).of("rect")
    assert np.ptp(heights) < 0.1 * (pictures.HEIGHT - pictures.TOP - pictures.BOTTOM)
    assert float(band["height"]) == pytest.approx(0.04 * 300 * np.ptp(heights), rel=0.02)  # the same axis
    assert float(band["y"]) < heights.min() and heights.max() < float(band["y"]) + float(band["height"])
    alone = page(dataclasses.replace(facts, report=facts.report | {"interval": (np.nan, np.nan)}))
    assert not Page(alone).of("rect") and "nan" not in alone.split("<h2>")[-2]


OF_CLASSES = {
    "metric": "accuracy",
    "title": "",
    "examples": 300,
    "scores": {"accuracy": 0.98, "matthews": 0.5},
    "macro_f1": 0.75,
    "interval": [0.96, 0.995],
    "classes": {"bad": 292, "good": 8, "odd": 0},
    "train_classes": {"bad": 2628, "good": 72, "odd": 1},
    "majority": {
        "label": "bad", "scores": {"accuracy": 292 / 300, "matthews": 0.0}, "macro_f1": 0.4932
    },
}  # fmt: skip


def test_figures_of_classes_stand_beside_those_of_the_majority_and_with_counts():
    names = ("metric", "scores", "interval", "macro_f1", "majority")
    expected = 292 * ["bad"] + 8 * ["good"]
    facts = facts_with(
        "", "", train_classes=OF_CLASSES["train_classes"], classes=(expected, ["bad"] + expected[:-1]),
        labels=("bad", "good", "odd"), curve=[{"step": 1, "dev_accuracy": 0.98}],
        **{name: OF_CLASSES[name] for name in names},
    )  # fmt: skip
    found = Page(page(facts))
    table = [
        ["", "model", "always 'bad'"],
        ["accuracy", "98.00", "97.33"],
        ["matthews", "50.00", "0.00"],
        ["macro f1", "75.00", "49.32"],
    ]
    assert found.rows[:4] == table
    lines = measured_text(OF_CLASSES).splitlines()
    shown = [re.split("  +", line.strip())[: len(row)] for line, row in zip(lines[1:], table, strict=False)]
    assert shown == [[cell for cell in row if cell] for row in table]
    remark = "Not better than always answering 'bad', as far as these examples show."
    assert remark in found.said("p") and lines[5] == f"  {remark}"
    assert lines[6] == "  examples measured (and learnt from): 'bad' 292 (2,628), 'good' 8 (72), 'odd' 0 (1)"
    assert ["good", "100.00", "87.50", "93.33", "72", "8", "7"] in found.rows
    assert ["odd", "–", "–", "–", "1", "0", "0"] in found.rows
    assert "always 'bad': 97.33" in found.said("text")  # a line in the picture
    better = dataclasses.replace(facts, report=facts.report | {"interval": (0.975, 0.995)})
    assert remark not in Page(page(better)).said("p")


@pytest.mark.parametrize(
    ("accuracy", "remark"),
    [
        (0.95, ""),
        (
            0.97,
            "Not better than a bag of words (naive Bayes), as far as these examples show: "
            "is BERT worth it here?",
        ),
        (0.999, "A bag of words (naive Bayes) is better: is BERT worth it here?"),
    ],
)
def test_figures_of_classes_stand_beside_those_of_a_bag_of_words(accuracy, remark):
    words = {"scores": {"accuracy": accuracy, "matthews": 0.25}, "macro_f1": 0.625}
    facts = facts_with(
        "", "", curve=[{"step": 1, "dev_accuracy": 0.98}], bag_of_words=words,
        **{name: OF_CLASSES[name] for name in ("metric", "scores", "interval", "macro_f1", "majority")},
    )  # fmt: skip
    found, text = Page(page(facts)), measured_text(OF_CLASSES | {"bag_of_words": words})
    assert found.rows[0] == ["", "model", "always 'bad'", "bag of words"]
    assert found.rows[3] == ["macro f1", "75.00", "49.32", "62.50"]
    assert f"bag of words: {100 * accuracy:.2f}" in found.said("text")
    assert "model  always 'bad'  bag of words" in text
    assert ("is BERT worth it here?" in text) == bool(remark)
    assert remark in text and (not remark or remark in found.said("p"))


def test_axes_have_round_numbers_at_the_right_heights():
    document = page(FACTS)
    ticks = re.findall(r'<g transform="translate\((\S+) (\S+)\)">.*>(\S+)</text></g>', document)
    places: dict[str, tuple[float, float]] = {}
    for x, y, text in ticks:
        places.setdefault(text, (float(x), float(y)))  # of the first picture, which is the loss
    assert {
        "0.45",
        "0.7",
        "0.65",
        "20",
        "100",
        "training step",
        "training loss, nats",
        "accuracy on dev, %",
    } <= {*Page(document).said("text")}
    of_a_half = drawn(document, "loss raw")[79]  # 0.7 - 80 / 400 at step 80
    assert places["0.5"][1] == pytest.approx(of_a_half[1], abs=0.2)
    assert places["80"][0] == pytest.approx(of_a_half[0], abs=0.2)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.31, 0.93, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 1200, [0.0, 500.0, 1000.0, 1500.0]),
        (-3e-4, 1e-4, [-3e-4, -2e-4, -1e-4, 0.0, 1e-4]),
    ],
)
def test_ticks_are_round_and_hold_both_ends(low, high, ticks):
    assert pictures.ticks(low, high) == ticks


@pytest.mark.parametrize(
    "curve",
    [
        [{"step": 1, "loss": 0.5}],
        [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}],
        [{"step": 0, "dev_f1": 0.0}],
        [{"step": n, "loss": 1e9 * n, "dev_f1": -1e-9 * n} for n in range(5000)],
        [{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")}],
    ],
)
def test_odd_curves_stay_within_the_picture(curve):
    found = Page(page(facts_with("", "", "f1", {}, curve=curve)))
    assert found.of("svg")
    for path in found.of("path"):
        if path["class"] == "rule":
            continue
        points = np.array([point.split() for point in path["d"][1:].split("L")], float)
        assert len(points) <= pictures.MOST_POINTS and np.isfinite(points).all()
        assert (points >= 0).all() and (points <= (pictures.WIDTH, pictures.HEIGHT)).all()


def test_ten_worst_mistakes_are_shown_and_all_are_counted():
    found = Page(page(FACTS))
    shown = [row for row in found.rows if row and row[0].startswith("sentence ")]
    assert shown == [[f"sentence {n}", "positive", "negative"] for n in range(10)]
    assert "The worst 10 of 13." in found.said("p")


def test_mistakes_show_the_probabilities_of_both_answers():
    wrong = Mistake("the film", "good", "bad", 4.6, 0, [0.0101, 0.9899])
    found = Page(page(facts_with("", "", "f1", {}, mistakes=[wrong])))
    assert ["the film", "good 1.0%", "bad 99.0%"] in found.rows
    assert "Beside each answer is the probability that the model gave to it." in found.said("p")
    without = Page(page(facts_with("", "", "f1", {}, mistakes=[wrong._replace(probabilities=None)])))
    assert ["the film", "good", "bad"] in without.rows
    assert "Beside each answer is the probability that the model gave to it." not in without.said("p")


def test_a_long_mistake_unfolds_to_its_whole_text():
    text = "word " * 500
    found = Page(page(facts_with("", "", "f1", {}, mistakes=[Mistake(text, "a", "b", 1.0)])))
    assert found.said("summary") == [text[: report.AT_ONCE] + "…"]
    assert found.said("details") == [text.strip()]


def test_hostile_text_stays_text():
    mean = Mistake(HOSTILE, HOSTILE, HOSTILE * 50, 1.0)
    facts = facts_with(
        HOSTILE, HOSTILE, HOSTILE, {HOSTILE: 0.5}, HOSTILE, options={HOSTILE: {"x": HOSTILE}},
        labels=(HOSTILE, "b"), classes=([HOSTILE, "b"], ["b", HOSTILE]),
        curve=[{"step": 1, f"dev_{HOSTILE}": 0.5}], mistakes=[mean],
    )  # fmt: skip
    document = page(facts)
    found = Page(document)
    require_own_script(found)
    assert "\x00" not in document and "\x1b" not in document
    document.encode("utf-8")
    said = HOSTILE.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("\x1b", "\ufffd")
    assert found.said("h1") == [said]
    assert [printable(HOSTILE), "50.00"] in found.rows  # names of figures, as the terminal has them
    assert any(row[:2] == [said, said] for row in found.rows)
    [picture] = found.of("svg")
    assert picture["aria-label"].startswith(f"{printable(HOSTILE)} on dev")


def test_report_of_next_to_nothing_has_no_empty_tables():
    found = Page(page(facts_with("Regression", "stsb", "pearson", {})))
    assert found.said("b") == ["–"] and found.rows == []
    assert found.said("h2") == ["Mistakes"] and "There are none." in found.said("p")
    assert not found.of("svg") and not found.of("table")
