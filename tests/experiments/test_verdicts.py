"""Verdicts on ablations: how often they are wrong, how often they see an effect, and what they need."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from minibert.base.errors import InputError
from minibert.experiments import verdicts
from minibert.experiments.runner import reproduce
from minibert.experiments.verdicts import Judge, Outcomes, effect_text, t_quantile
from minibert.tasks.metrics import paired_bootstrap

N = 1000  # examples
# Of 3,000 contrasts without an effect, of 15 seeds of this simulation, 3.8 to 4.4% are a yes or a no.
SEEDS_SD, ROW_SD, FLIP_SD, HARD = 0.12, 0.4, 0.5, 1.5  # of logits


def column(rng, kind, seeds, quality, shared=0.0, n=N):
    """Trainings of rows of which `quality` is the mean logit.

    Examples are hard, or hard for a row; there is noise of seeds, shared by the rows or not, and flips.
    """
    size = (len(quality), seeds, n)
    logits = np.asarray(quality)[:, None, None] + rng.normal(0, HARD, n) + rng.normal(0, ROW_SD, size)[:, :1]
    logits = logits + rng.normal(0, SEEDS_SD, size[:2])[..., None] + rng.normal(0, shared, (seeds, 1))
    values = (logits + rng.normal(0, FLIP_SD, size) > 0).astype(np.float64)
    if kind == "f1":  # an example has 1 to 3 entities, all found alike, and now and then a wrong one
        expected = np.broadcast_to(rng.integers(1, 4, n), size)
        right = (values * expected).astype(np.int64)
        values = np.stack([right, right + rng.binomial(1, 0.3, size) * (right < expected), expected], axis=-1)
    return {f"row {r}": {s: Outcomes(kind, values[r, s]) for s in range(seeds)} for r in range(len(quality))}


def noise(kind):
    """The standard deviation of a training's metric over seeds, and the change of the metric by logit."""
    rng = np.random.default_rng(99)
    spread = [column(rng, kind, 40, [0.8])["row 0"].values() for _ in range(10)]
    sd = np.sqrt(np.mean([np.var([one.score() for one in seeds], ddof=1) for seeds in spread]))
    low, high = (
        np.mean([one.score() for one in column(np.random.default_rng(98), kind, 40, [q])["row 0"].values()])
        for q in (0.8, 1.0)
    )
    return sd, (high - low) / 0.2


def answers(kind, seeds, effect, columns=100, rng_seed=0):
    """Return the verdicts of two contrasts in each column of six rows; the first is better by `effect`."""
    rng = np.random.default_rng(rng_seed)
    quality = 0.8 + effect * np.array([1, 0, 1, 0, 0, 0])
    judges = [Judge(column(rng, kind, seeds, quality)) for _ in range(columns)]
    return [
        judge.compare(*pair).answer for judge in judges for pair in (("row 0", "row 1"), ("row 2", "row 3"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("kind", ["mean", "f1"])
def test_without_an_effect_one_contrast_in_20_is_wrong(kind, seeds):
    found = answers(kind, seeds, 0.0, columns=500)
    assert len(found) == 1000 and 1000 - found.count("undecided") <= 50


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("kind", ["mean", "f1"])
def test_effects_of_three_standard_deviations_of_a_training_are_found_four_times_in_five(kind, seeds):
    sd, slope = noise(kind)
    assert answers(kind, seeds, 3 * sd / slope).count("yes") >= 160


def test_a_reverse_effect_is_a_no_and_swapping_rows_mirrors_the_interval():
    judge = Judge(column(np.random.default_rng(1), "mean", 5, [0.8, 1.8, 0.8]))
    verdict, mirrored = judge.compare("row 0", "row 1"), judge.compare("row 1", "row 0")
    assert (verdict.answer, mirrored.answer) == ("no", "yes")
    assert np.allclose(verdict[1:4], [-mirrored.effect, -mirrored.high, -mirrored.low])


def test_the_same_trainings_give_the_same_bytes_in_any_order():
    rows = column(np.random.default_rng(2), "f1", 3, [0.8, 0.9, 1.0])
    turned = {name: dict(reversed(seeds.items())) for name, seeds in rows.items()}
    assert Judge(rows).compare("row 0", "row 2") == Judge(rows).compare("row 0", "row 2")
    assert np.allclose(Judge(rows).compare("row 0", "row 2")[1:], Judge(turned).compare("row 0", "row 2")[1:])


def test_rows_that_beat_no_trivial_baseline_are_at_the_floor():
    rng = np.random.default_rng(3)
    rows = column(rng, "mean", 3, [-2.0, -2.0, 0.8])
    floor = Outcomes("mean", (rng.random(N) < 0.5).astype(np.float64))
    judge = Judge(rows, floor)
    assert judge.compare("row 0", "row 1").answer == "at the floor"
    assert judge.compare("row 2", "row 0").answer == "yes"
    assert Judge(rows).compare("row 0", "row 1").answer == "undecided"


def test_one_common_seed_never_decides():
    rows = column(np.random.default_rng(4), "mean", 3, [2.0, -2.0, 0.0])
    rows["row 0"] = {0: rows["row 0"][0]}
    verdict = Judge(rows).compare("row 0", "row 1")
    assert verdict.answer == "undecided" and verdict.effect > 0.3 and verdict.smallest == np.inf
    assert "one seed" in effect_text(verdict)
    assert Judge(rows).estimate("row 0").high == np.inf


def test_a_missing_seed_leaves_the_common_ones():
    rows = column(np.random.default_rng(5), "mean", 5, [0.8, 1.6, 0.8, 0.8])
    scores = {name: [one.score() for one in seeds.values()] for name, seeds in rows.items()}
    del rows["row 1"][2], rows["row 0"][4]
    verdict = Judge(rows).compare("row 1", "row 0")
    expected = np.mean([scores["row 1"][s] - scores["row 0"][s] for s in (0, 1, 3)])
    assert verdict.answer == "yes" and verdict.effect == pytest.approx(expected)


def test_single_numbers_are_judged_by_t_on_residuals():
    table = np.array([[3.10, 3.14, 3.09], [3.35, 3.38, 3.36], [3.60, 3.61, 3.63], [3.11, 3.17, 3.12]])
    rows = {f"{r}": {s: Outcomes("mean", table[r, s : s + 1]) for s in range(3)} for r in range(4)}
    verdict = Judge(rows).compare("1", "0")
    left = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    own = np.var(table[1] - table[0], ddof=1)
    pooled = 2 * (left**2).sum() / 6
    half = stats.t.ppf(0.975, 6) * np.sqrt(max(pooled, (pooled + own) / 2) / 3)
    assert verdict[1:4] == pytest.approx([0.25333, 0.25333 - half, 0.25333 + half], abs=1e-4)


def test_pairing_narrows_the_interval():
    """What makes seeds and examples good or bad for both rows cancels."""
    rows = column(np.random.default_rng(6), "mean", 5, [0.8, 0.8, 0.8, 0.8], shared=0.3)
    judge = Judge(rows)
    one, verdict = judge.estimate("row 0"), judge.compare("row 0", "row 1")
    assert verdict.high - verdict.low < 0.8 * (one.high - one.low) * np.sqrt(2)


def test_without_noise_of_seeds_the_interval_is_that_of_the_paired_bootstrap():
    rows = column(np.random.default_rng(7), "f1", 1, [0.8, 1.0])
    one, other = (rows[name][0] for name in rows)
    verdict = Judge({name: dict.fromkeys(range(3), seeds[0]) for name, seeds in rows.items()}).compare(*rows)
    low, high = paired_bootstrap(one.score, other.score, N, draws=4000)
    assert verdict.effect == pytest.approx(one.score() - other.score())
    assert verdict.high - verdict.low == pytest.approx(high - low, rel=0.05)


@pytest.mark.parametrize("kind", ["mean", "f1"])
def test_estimates_cover_the_true_metric_about_19_times_in_20(kind):
    rng = np.random.default_rng(8)
    big = column(rng, kind, 50, [0.8], n=20_000)["row 0"].values()
    truth = np.mean([one.score() for one in big])
    inside = [
        one.low <= truth <= one.high
        for _ in range(300)
        for one in [Judge(column(rng, kind, 3, [0.8] * 4, shared=0.1, n=300)).estimate("row 1")]
    ]
    assert 0.92 <= np.mean(inside) <= 0.99


@pytest.mark.slow
def test_an_effect_of_the_smallest_size_is_seen_about_four_times_in_five():
    rng = np.random.default_rng(9)
    means = rng.normal(size=(1000, 5, 5))
    found = [
        Judge({f"{r}": {s: Outcomes("mean", one[r, s : s + 1]) for s in range(5)} for r in range(5)})
        for one in means
    ]
    smallest = np.mean([judge.compare("0", "1").smallest for judge in found])
    means[:, 0] += smallest
    seen = [
        Judge({f"{r}": {s: Outcomes("mean", one[r, s : s + 1]) for s in range(5)} for r in range(5)})
        for one in means
    ]
    assert 0.75 <= np.mean([judge.compare("0", "1").answer == "yes" for judge in seen]) <= 0.85


@pytest.mark.parametrize(
    ("share", "freedom", "tabulated"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.7764), (0.975, 20, 2.0860), (0.8, 2, 1.0607), (0.8, 1e6, 0.8416)],
)
def test_quantiles_of_t_are_those_of_tables(share, freedom, tabulated):
    assert round(t_quantile(share, freedom), 4) == tabulated


def test_without_scipy_nothing_begins_and_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(verdicts, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"need SciPy, .*; pip install '\.\[experiments\]' brings it"):
        reproduce(None, (), (0,))


@pytest.mark.parametrize(
    "outcomes",
    [
        Outcomes("mean", np.array([0.0, 1.0, 1.0])),
        Outcomes("mean", np.array([3.25])),
        Outcomes("f1", np.array([[1, 2, 3], [0, 0, 0]])),
        Outcomes("f1", np.array([[1, 2, 3], [0, 0, 12]])),
        Outcomes("mean", np.array([0.0, 1.0, 1.0]), (2, 1)),
    ],
)
def test_outcomes_come_back_from_json(outcomes):
    back = Outcomes.from_json(json.loads(json.dumps(outcomes.to_json())))
    assert back.kind == outcomes.kind and back.values.dtype == outcomes.values.dtype
    assert back.groups == outcomes.groups
    assert np.array_equal(back.values, outcomes.values)


@pytest.mark.parametrize("kind", ["mean", "f1"])
def test_examples_that_are_one_again_and_again_count_once(kind):
    rows = column(np.random.default_rng(5), kind, 3, [0.8, 1.1, 0.9], n=200)
    again = {
        name: {s: Outcomes(kind, one.values.repeat(4, axis=0), (4,) * 200) for s, one in seeds.items()}
        for name, seeds in rows.items()
    }
    alone = {name: {s: one._replace(groups=()) for s, one in seeds.items()} for name, seeds in again.items()}
    verdicts = [Judge(one).compare("row 1", "row 0") for one in (rows, again, alone)]
    assert np.allclose(verdicts[1][1:], verdicts[0][1:], rtol=1e-9)
    assert verdicts[2].high - verdicts[2].low < 0.9 * (verdicts[1].high - verdicts[1].low)
    with pytest.raises(InputError, match="differ in their groups; give the same examples"):
        Judge({**again, "row 2": alone["row 2"]})


def test_groups_of_unequal_size_have_the_spread_that_drawing_whole_groups_gives():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, 150)
    values = (np.repeat(rng.normal(0.5, 1, 150), sizes) + rng.normal(0, 1, sizes.sum()) > 0).astype(float)
    parts = Outcomes("mean", values, tuple(sizes.tolist())).parts()
    groups, means = np.split(values, np.cumsum(sizes)[:-1]), []
    for _ in range(4000):
        means.append(np.concatenate([groups[i] for i in rng.integers(150, size=150)]).mean())
    assert parts.mean() == pytest.approx(values.mean(), rel=1e-12)
    assert parts.std(ddof=1) / math.sqrt(150) == pytest.approx(np.std(means), rel=0.08)
    assert values.std() / math.sqrt(len(values)) < 0.5 * np.std(means)  # each for itself would be too little


def test_accuracies_are_a_string_in_json():
    assert Outcomes("mean", np.array([0.0, 1.0, 1.0])).to_json() == {"kind": "mean", "values": "011"}


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        {"kind": "mean"},
        {"kind": "median", "values": "01"},
        {"kind": ["mean"], "values": "01"},
        {"kind": "mean", "values": ""},
        {"kind": "mean", "values": "012"},
        {"kind": "mean", "values": [0.5, None]},
        {"kind": "mean", "values": [[0.5]]},
        {"kind": "mean", "values": [float("nan")]},
        {"kind": "mean", "values": [float("inf")]},
        {"kind": "mean", "values": ["0.5"]},
        {"kind": "f1", "values": "1"},
        {"kind": "mean", "values": "01", "groups": [1]},
        {"kind": "mean", "values": "01", "groups": [2, 0]},
        {"kind": "mean", "values": "01", "groups": 2},
        {"kind": "f1", "values": "321"},  # more right than found
        {"kind": "f1", "values": [-1, 2, 12]},
        {"kind": "f1", "values": [1.5, 2, 12]},
        {"kind": "f1", "values": [1, 2, 10**30]},
    ],
)
def test_damaged_json_is_an_input_error(damaged):
    with pytest.raises(InputError, match="are not outcomes"):
        Outcomes.from_json(damaged)


def test_columns_of_different_examples_or_without_a_training_are_input_errors():
    one, other = Outcomes("mean", np.ones(3)), Outcomes("mean", np.ones(4))
    for rows, floor in (({"a": {0: one}, "b": {0: other}}, None), ({"a": {0: one}}, other)):
        with pytest.raises(InputError, match="same examples"):
            Judge(rows, floor)
    for rows in ({}, {"a": {0: one}, "b": {}}):
        with pytest.raises(InputError, match="no training"):
            Judge(rows)


def test_collapsed_rows_are_undecided():
    rows = {name: dict.fromkeys(range(3), Outcomes("mean", np.array([1.0, 0, 1]))) for name in "abc"}
    assert Judge(rows).compare("a", "b")[:4] == ("undecided", 0, 0, 0)  # and no rounding decides
    assert Judge(rows).estimate("a").value == pytest.approx(2 / 3)


def test_f1_of_repeated_rows_is_micro_f1():
    outcomes = Outcomes("f1", np.array([[1, 2, 2], [0, 0, 1], [0, 0, 0]]))
    assert outcomes.score() == 2 / 5
    assert outcomes.score(np.array([0, 0, 1])) == 4 / 9
    assert outcomes.score(np.array([2])) == 0
    assert outcomes.parts().mean() == pytest.approx(2 / 5)


def test_effects_read_with_their_intervals():
    judge = Judge(column(np.random.default_rng(10), "mean", 3, [0.8, 0.8, 0.8]))
    verdict = judge.compare("row 0", "row 1")
    yes = verdict._replace(answer="yes", effect=0.072, low=0.051, high=0.09, smallest=0.03)
    undecided = yes._replace(answer="undecided", effect=-0.003, low=-0.01, high=0.016, smallest=0.019)
    assert effect_text(yes) == "+7.2 [5.1, 9.0]"
    seen = "-0.3 [-1.0, 1.6]; an effect of about 1.9 would be seen in four of five"
    assert effect_text(undecided) == seen
    assert effect_text(yes, percent=False) == "+0.072 [0.051, 0.090]"


def test_rows_that_have_collapsed_do_not_hide_the_noise_of_the_others():
    rng = np.random.default_rng(5)
    noisy = {name: {s: Outcomes("mean", rng.normal(0, 1, (1,))) for s in range(3)} for name in "ab"}
    collapsed = {name: {s: Outcomes("mean", np.zeros(1)) for s in range(3)} for name in "cdef"}
    assert Judge(noisy | collapsed).compare("a", "b") == Judge(noisy).compare("a", "b")
    widest = Judge(noisy | collapsed).compare("a", "c")
    assert widest.high - widest.low > 1


def test_rows_that_have_collapsed_count_where_the_others_say_nothing_of_noise():
    """A row of one seed and one of two have no degree of freedom left, neither has one row alone."""
    one, other = (Outcomes("mean", np.array(values)) for values in ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0]))
    collapsed = {name: {0: one, 1: one} for name in "cd"}
    judge = Judge({"a": {0: other, 1: one}, "b": {1: other, 2: one}} | collapsed)
    assert np.isfinite(judge.compare("a", "c")[1:]).all() and judge.compare("c", "d").effect == 0
    assert np.isfinite(judge.estimate("c").high)
