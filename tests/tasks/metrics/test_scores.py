"""Figures of labels and numbers, by hand; intervals; `minibert score glue`."""

import json
import math
import re

import numpy as np
import pytest
from command import ends_badly, notice  # noqa: F401 (a fixture)
from hypothesis import given, strategies as st
from real_data import real_data

from minibert import cli
from minibert.base.errors import InputError
from minibert.data import glue
from minibert.tasks import metrics, registry
from minibert.tasks.metrics import (
    METRICS,
    accuracy,
    bootstrap,
    confusion,
    f1,
    interval,
    mae,
    matthews,
    paired_bootstrap,
    paired_interval,
    pearson,
    r2,
    rmse,
    spearman,
)
from minibert.tasks.metrics.intervals import mean_of
from minibert.tasks.sentences import ERRORS, TextExample

labels = st.integers(0, 3)
several = st.lists(st.tuples(labels, labels), min_size=1, max_size=40)
numbers = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=40)


def exactly(value):
    return pytest.approx(value, rel=1e-14, abs=1e-14)


# Labels


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy([1, 0, 1, 1], [1, 1, 1, 0]) == 0.5
    assert accuracy(["a", "b", "a"], np.array(["a", "b", "b"])) == exactly(2 / 3)


def test_f1_counts_hits_twice_and_both_kinds_of_error_once():
    gold, predicted = [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]  # two hits, one miss, one false alarm
    assert f1(gold, predicted) == exactly(4 / 6)
    assert f1(gold, predicted, positive=0) == exactly(4 / 6)
    assert f1(["yes", "no", "yes"], ["yes", "yes", "yes"], positive="yes") == exactly(4 / 5)


def test_f1_without_any_positive_is_0():
    assert f1([0, 0], [0, 0]) == 0.0
    assert f1([1, 1], [0, 0]) == 0.0


def test_matthews_of_two_classes_is_the_formula_of_the_four_counts():
    gold = [1] * 8 + [0] * 4
    predicted = [1] * 6 + [0] * 2 + [1] + [0] * 3  # TP 6, FN 2, FP 1, TN 3
    assert matthews(gold, predicted) == exactly((6 * 3 - 1 * 2) / math.sqrt(7 * 8 * 4 * 5))


def test_matthews_of_three_classes():
    gold, predicted = list("aabbcc"), list("aabcca")
    # Twelve in the numerator: 6·4 right, less 2·3 + 2·1 + 2·2; each side's own: 36 - 12 and 36 - 14.
    assert matthews(gold, predicted) == exactly(12 / math.sqrt(24 * 22))


@pytest.mark.parametrize(("gold", "predicted"), [([1, 1, 1], [1, 0, 1]), ([1, 0, 1], [0, 0, 0]), ([1], [1])])
def test_matthews_where_one_side_has_one_class_is_0(gold, predicted):
    assert matthews(gold, predicted) == 0.0


def test_matthews_of_many_examples_does_not_overflow():
    gold = np.arange(200_000) % 2
    assert matthews(gold, gold) == 1.0
    assert matthews(gold, 1 - gold) == -1.0


@given(several)
def test_matthews_does_not_care_about_sides_and_names(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    names = np.array(["red", "blue", "any", "no"])
    expected = matthews(gold, predicted)
    assert matthews(predicted, gold) == exactly(expected)
    assert matthews(names[gold], names[predicted]) == exactly(expected)


def test_confusion_has_a_row_for_each_gold_label_in_the_order_given():
    gold, predicted = ["b", "a", "b", "b"], ["b", "b", "a", "b"]
    assert confusion(gold, predicted).tolist() == [[0, 1], [1, 2]]
    assert confusion(gold, predicted, ["b", "c", "a"]).tolist() == [[2, 0, 1], [0, 0, 0], [1, 0, 0]]


@given(several)
def test_confusion_counts_every_pair_once(pairs):
    gold, predicted = map(list, zip(*pairs, strict=True))
    table = confusion(gold, predicted, range(4))
    assert [[pairs.count((row, column)) for column in range(4)] for row in range(4)] == table.tolist()
    assert accuracy(gold, predicted) == exactly(np.trace(table) / len(pairs))


# Numbers


def test_correlations_of_a_permutation_agree():
    assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == exactly(0.8)
    assert spearman([10, 20, 30, 40], [-1, 3, 2, 400]) == exactly(0.8)


def test_pearson_by_hand():
    assert pearson([1, 2, 3], [1, 8, 27]) == exactly(26 / math.sqrt(2 * 362))
    assert pearson([0, 1], [7, 3]) == exactly(-1)


def test_spearman_gives_equal_values_their_mean_rank():
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == exactly(3 / math.sqrt(10))  # ranks 1 2.5 2.5 4
    assert spearman([5, 5, 5, 1], [2, 2, 9, 9]) == exactly(-1 / math.sqrt(3))  # 3 3 3 1 and 1.5 1.5 3.5 3.5


@pytest.mark.parametrize("correlation", [pearson, spearman])
@pytest.mark.parametrize("x", [[0.1] * 3, [1, math.nan, 2]])
def test_correlation_with_a_constant_or_a_hole_is_not_a_number(correlation, x):
    assert math.isnan(correlation(x, [1, 2, 4]))
    assert math.isnan(correlation([1, 2, 4], x))


def test_infinity_has_a_rank_and_no_covariance():
    assert spearman([1, 2, math.inf], [1, 2, 3]) == exactly(1)
    assert math.isnan(pearson([1, 2, math.inf], [1, 2, 3]))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_pearson_of_tiny_and_huge_numbers(scale):
    assert pearson(np.array([1, 2, 3]) * scale, [1, 8, 27]) == exactly(26 / math.sqrt(2 * 362))


@given(numbers)
def test_correlations_follow_what_changes_no_order(pairs):
    x, y = np.array(pairs, float).T
    for correlation, moved in ((pearson, 3 * x - 7), (spearman, np.exp(x))):
        expected = correlation(x, y)
        assert math.isnan(expected) == ((x == x[0]).all() or (y == y[0]).all())
        for found, sign in (
            (correlation(moved, y), 1),
            (correlation(y, x), 1),
            (correlation(-x, y), -1),
        ):
            assert sign * found == pytest.approx(expected, rel=0, abs=1e-13, nan_ok=True)


# What can't be scored


@pytest.mark.parametrize("figure", [accuracy, f1, matthews, confusion, pearson, spearman])
@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([], [], "no example"),
        ([1, 0], [1], "shapes (2,) and (1,)"),
        ([[1], [0]], [[1], [0]], "shapes (2, 1)"),
        (["1", "0"], [1, 0], "are a word and a number"),
    ],
)
def test_what_does_not_fit_together_is_refused(figure, gold, predicted, message):
    with pytest.raises(InputError, match=re.escape(message)):
        figure(gold, predicted)


def test_labels_that_cannot_be_there_are_refused():
    with pytest.raises(InputError, match="positive=1") as caught:
        f1(["1", "0"], ["1", "1"])
    assert caught.value.arguments == {"positive": 1}
    with pytest.raises(InputError, match="'c' is not among the labels a, b"):
        confusion(["a", "c"], ["a", "b"], ["a", "b"])
    with pytest.raises(InputError, match="'one' is not a number"):
        pearson(["one", "two"], ["one", "two"])
    with pytest.raises(InputError, match="two at least"):
        spearman([1], [1])


# Intervals


def test_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).random(10_000)
    low, high = bootstrap(lambda rows: values[rows].mean(), len(values))
    spread = values.std() / 100
    assert low == pytest.approx(values.mean() - 1.96 * spread, abs=0.2 * spread)
    assert high == pytest.approx(values.mean() + 1.96 * spread, abs=0.2 * spread)


@pytest.mark.thorough
def test_ninety_five_percent_intervals_hold_the_truth_about_so_often():
    held = 0
    for trial in range(200):
        sample = np.random.default_rng(trial).random(60)
        low, high = bootstrap(lambda rows, sample=sample: sample[rows].mean(), 60, seed=trial, draws=200)
        held += low <= 0.5 <= high
    assert 180 <= held <= 198  # 190 expected, and a few less as the sample's spread is a little small


def test_statistic_is_given_numbers_of_examples_as_often_as_asked():
    seen = []
    interval = bootstrap(lambda rows: seen.append(rows) or 3.0, 7, draws=40)
    assert interval == (3.0, 3.0)
    assert [rows.shape for rows in seen] == [(7,)] * 40
    assert set(np.concatenate(seen).tolist()) == set(range(7))


def test_seed_decides_the_draws_and_the_level_the_width():
    values = np.arange(50.0)

    def interval(**options):
        return bootstrap(lambda rows: values[rows].mean(), 50, **options)

    assert interval() == interval(seed=0)
    assert interval() != interval(seed=1)
    (low, high), (inner_low, inner_high) = interval(), interval(level=0.5)
    assert low < inner_low < inner_high < high


def test_paired_interval_takes_away_what_both_share():
    rng = np.random.default_rng(2)
    ease, gain = 10 * rng.random(500), rng.random(500)

    def a(rows):
        return (ease + gain)[rows].mean()

    def b(rows):
        return ease[rows].mean()

    low, high = paired_bootstrap(a, b, 500)
    alone = bootstrap(lambda rows: gain[rows].mean(), 500)
    assert (low, high) == pytest.approx(alone, rel=1e-9)
    first, second = bootstrap(a, 500), bootstrap(b, 500)
    assert 5 * (high - low) < min(first[1] - first[0], second[1] - second[0])
    assert paired_bootstrap(b, a, 500) == pytest.approx((-high, -low), rel=1e-9)


def test_draws_without_a_figure_are_left_out():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])
    low, high = bootstrap(lambda rows: pearson(x[rows], y[rows]), 3)  # one draw in nine is constant
    assert (low, high) == (exactly(1), exactly(1))
    assert np.isnan(bootstrap(lambda rows: math.nan, 3)).all()


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {}, "no example"),
        (3, {"draws": 0}, "draws=0"),
        (3, {"level": 1}, "level=1"),
        (3, {"level": 95}, "95"),
    ],
)
def test_interval_refuses_what_makes_none(n, options, message):
    with pytest.raises(InputError, match=message):
        bootstrap(lambda rows: 1.0, n, **options)


# minibert score glue


def table(path, *rows):
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return str(path)


def submission(tmp_path, *predictions, indices=None):
    rows = zip(indices or map(str, range(len(predictions))), predictions, strict=True)
    return table(tmp_path / "submission.tsv", ("index", "prediction"), *rows)


@pytest.fixture
def mrpc(tmp_path):
    """Six pairs; the first four are paraphrases."""
    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    rows = [(str(int(n < 4)), str(10 + n), str(20 + n), "One .", "Two .") for n in range(6)]
    return table(tmp_path / "gold.tsv", header, *rows)


@pytest.fixture
def stsb(tmp_path):
    header = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
    rows = [
        (str(n), "news", "file", "2012", "1", "a", "b", "One .", "Two .", score)
        for n, score in enumerate(("1.0", "2.0", "3.0", "4.0"))
    ]
    return table(tmp_path / "gold.tsv", header, *rows)


def scored(capsys, *words):
    assert cli.main(["score", "glue", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_score_mrpc_gives_f1_accuracy_and_their_mean(mrpc, tmp_path, capsys):
    figures = scored(capsys, "mrpc", mrpc, submission(tmp_path, *"111010"))  # 3 hits, 1 miss, 1 false alarm
    low, high = figures.pop("intervals").pop("f1")
    assert 0 <= low < 75 < high <= 100
    assert figures == {
        "task": "mrpc",
        "total": 6,
        "f1": exactly(75),
        "accuracy": pytest.approx(400 / 6),
        "mean": pytest.approx((75 + 400 / 6) / 2),
    }


def test_score_finds_predictions_by_id_in_any_order(mrpc, tmp_path, capsys):
    ids = [f"1{n}-2{n}" for n in reversed(range(6))]
    figures = scored(capsys, "mrpc", mrpc, submission(tmp_path, *"001111", indices=ids))
    assert figures["accuracy"] == 100
    reverse = [str(n) for n in reversed(range(6))]
    assert scored(capsys, "mrpc", mrpc, submission(tmp_path, *"001111", indices=reverse))["accuracy"] == 100


def test_score_stsb_gives_both_correlations_and_their_mean(stsb, tmp_path, capsys):
    figures = scored(capsys, "stsb", stsb, submission(tmp_path, "0.5", "8", "1.5", "9"))
    correlation = pearson([1, 2, 3, 4], [0.5, 8, 1.5, 9])
    assert figures["spearman"] == pytest.approx(80)
    assert figures["pearson"] == pytest.approx(100 * correlation)
    assert figures["mean"] == pytest.approx(50 * (0.8 + correlation))


def test_score_of_a_constant_prediction_is_undefined(stsb, tmp_path, capsys):
    constant = submission(tmp_path, *["2.5"] * 4)
    figures = scored(capsys, "stsb", stsb, constant)
    assert figures["pearson"] is figures["spearman"] is figures["mean"] is None
    assert figures["intervals"]["pearson"] == [None, None]
    assert cli.main(["score", "glue", "stsb", stsb, constant]) == 0
    assert "pearson       nan  nan to nan" in capsys.readouterr().out


def test_score_cola_prints_matthews(tmp_path, capsys):
    gold = table(tmp_path / "gold.tsv", *[("src", label, "", "A sentence .") for label in "111111110000"])
    assert cli.main(["score", "glue", "cola", gold, submission(tmp_path, *"111111001000")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "CoLA, 12 examples; in percent, with 95% intervals"
    assert lines[1].startswith("  matthews   47.809  ")  # 16 / √1120
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("id", "label"), ("0", "1")], "begins with id, label; the columns index and prediction"),
        ([], "begins with nothing"),
        ([("index", "prediction"), ("0", "1", "1")], "line 2: 3 columns"),
        ([("index", "prediction"), ("0", "1"), ("0", "1")], "line 3: the index '0' has a prediction"),
        (
            [("index", "prediction"), ("0", "yes")],
            "line 2: 'yes' is not a prediction for MRPC; give one of 0, 1",
        ),
        ([("index", "prediction"), ("0", "1")], "has 1 predictions, "),
    ],
)
def test_score_refuses_a_broken_submission(mrpc, tmp_path, capsys, rows, message):
    file = table(tmp_path / "submission.tsv", *rows)
    assert message in ends_badly(capsys, cli.BAD_INPUT, "score", "glue", "mrpc", mrpc, file)


@pytest.mark.parametrize("prediction", ["high", "nan", "inf"])
def test_score_refuses_similarities_that_are_no_numbers(stsb, tmp_path, capsys, prediction):
    file = submission(tmp_path, "1", "2", prediction, "3")
    message = ends_badly(capsys, cli.BAD_INPUT, "score", "glue", "stsb", stsb, file)
    assert f"line 4: '{prediction}' is not a prediction for STS-B; give a number" in message


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("cola", "CoLA"),
        ("sst2", "SST-2"),
        ("stsb", "STS-B"),
        ("qnli", "QNLI"),
        ("rte", "RTE"),
        ("wnli", "WNLI"),
    ],
)
def test_gold_labels_of_the_official_files_score_100(name, folder, tmp_path, capsys):
    file = real_data(f"glue/{folder}") / "dev.tsv"
    labels = [str(example.label) for example in glue.read_file(name, file)]
    figures = scored(capsys, name, str(file), submission(tmp_path, *labels))
    assert all(figures[metric] == exactly(100) for metric in glue.TASKS[name].metrics)
    assert figures["total"] == len(labels)


def test_majority_class_of_mrpc_scores_what_glue_says(tmp_path, capsys):
    file = real_data("glue/MRPC") / "dev.tsv"
    figures = scored(capsys, "mrpc", str(file), submission(tmp_path, *["1"] * 408))
    assert (round(figures["accuracy"], 1), round(figures["f1"], 1)) == (68.4, 81.2)  # 279 of 408


# Intervals of shares, and of metrics that all samples agree in


def test_eight_of_eight_are_not_certain():
    low, high, method = interval(mean_of(np.ones(8, bool)), 8)
    assert (low, high, method) == (pytest.approx(0.6756, abs=1e-4), 1.0, "wilson")
    low, high, _ = interval(mean_of(np.zeros(8)), 8)
    assert (low, high) == (0.0, pytest.approx(0.3244, abs=1e-4))


@pytest.mark.parametrize(("value", "lowest", "ends"), [
    (1.0, 0.0, (0.6756, 1.0)),  # F1 of what is right throughout
    (0.0, 0.0, (0.0, 0.3244)),
    (1.0, -1.0, (0.3512, 1.0)),  # a correlation, whose range is twice as wide
    (0.0, -1.0, (-0.6488, 0.6488)),
])  # fmt: skip
def test_an_interval_is_never_a_point(value, lowest, ends):
    low, high, method = interval(lambda rows: value, 8, lowest)
    assert (low, high) == pytest.approx(ends, abs=1e-4) and method == "alike"
    # The width goes with the number of examples.
    low, high, _ = interval(lambda rows: value, 8000, lowest)
    assert high - low < 0.002


def test_a_varied_metric_keeps_the_interval_of_the_bootstrap():
    values = np.linspace(0, 1, 50)
    assert interval(mean_of(values), 50) == (*bootstrap(mean_of(values), 50), "bootstrap")
    assert np.isnan(interval(lambda rows: math.nan, 3)[:2]).all()


def test_equal_predictions_do_not_make_a_certain_difference():
    values = np.linspace(0, 1, 8)
    low, high, method = paired_interval(mean_of(values), mean_of(values), 8)
    assert (low, high) == pytest.approx((-0.3244, 0.3244), abs=1e-4) and method == "alike"
    one, other = mean_of(values), mean_of(values[::-1].copy())
    assert paired_interval(one, other, 8) == (*paired_bootstrap(one, other, 8), "bootstrap")


def test_errors_of_numbers_by_hand():
    gold, found = [1.0, 3.0], [2.0, 1.0]
    assert mae(gold, found) == 1.5 and rmse(gold, found) == pytest.approx(2.5**0.5)
    assert r2(gold, found) == pytest.approx(1 - 5 / 2)
    assert r2([2.0, 2.0], [2.0, 2.0]) == 1.0 and r2([2.0, 2.0], [2.0, 3.0]) == 0.0
    assert mae([1.0], [3.0]) == rmse([1.0], [3.0]) == 2.0


def test_every_metric_of_a_task_is_in_the_table():
    named = {name for task in glue.TASKS.values() for name in task.metrics} | {*ERRORS}
    assert named <= METRICS.keys()
    assert all(getattr(metrics, name) is row.compute for name, row in METRICS.items())
    assert {name for name, row in METRICS.items() if row.lowest == -1} == {"matthews", "pearson", "spearman"}


def test_a_metric_that_is_not_in_the_table_is_not_passed_over():
    task = registry.create("cola")
    task.scored = ("novelty",)
    with pytest.raises(KeyError, match="novelty"):
        task.score([TextExample("1", "a", None, "0")], [{"label": "0"}])
