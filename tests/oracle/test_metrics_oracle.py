"""Figures against scikit-learn and SciPy, chunks against seqeval."""

import warnings
from functools import partial

import numpy as np
import pytest

from minibert.tasks import metrics
from minibert.tasks.metrics import entities

sklearn_metrics = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

TOLERANCE = 1e-12
SEEDS = range(20)


def alike(value, expected):
    return value == pytest.approx(expected, rel=0, abs=TOLERANCE, nan_ok=True)


def drawn(seed, classes):
    """Gold and predicted labels, right more often than not; how many and how mixed depends on the seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    gold = rng.choice(classes, n, p=rng.dirichlet(np.ones(classes)))
    return gold, np.where(rng.random(n) < rng.random(), gold, rng.integers(classes, size=n))


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", SEEDS)
def test_labels_agree_with_scikit_learn(seed, classes):
    gold, predicted = drawn(seed, classes)
    assert alike(metrics.accuracy(gold, predicted), sklearn_metrics.accuracy_score(gold, predicted))
    names = np.arange(classes)[::-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one class only
        matthews = sklearn_metrics.matthews_corrcoef(gold, predicted)
        table = sklearn_metrics.confusion_matrix(gold, predicted, labels=names)
        macro_f1 = sklearn_metrics.f1_score(gold, predicted, average="macro", zero_division=0)
    assert alike(metrics.matthews(gold, predicted), matthews)
    assert alike(metrics.macro_f1(gold, predicted), macro_f1)
    assert metrics.confusion(gold, predicted, names).tolist() == table.tolist()
    for label in range(classes):
        expected = sklearn_metrics.f1_score(gold == label, predicted == label, zero_division=0)
        assert alike(metrics.f1(gold, predicted, label), expected)


@pytest.mark.parametrize("classes", [1, 2, 9])
@pytest.mark.parametrize("seed", SEEDS)
def test_several_labels_agree_with_scikit_learn(seed, classes):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    gold = rng.random((n, classes)) < rng.random(classes) ** 2
    found = gold ^ (rng.random((n, classes)) < rng.random() / 2)
    if classes > 2:
        gold[:, 0] = found[:, 0] = False  # a class that there is on neither side
    each = metrics.label_f1(gold, found)
    score = partial(sklearn_metrics.f1_score, gold, found, zero_division=0)
    if classes == 1:  # which scikit-learn takes for the two classes of a single label
        assert alike(each[0], score())
        return
    for label, value in enumerate(score(average=None)):
        assert alike(each[label], value)
    assert alike(each.mean(), score(average="macro"))
    assert alike(metrics.f1(gold.ravel(), found.ravel()), score(average="micro"))


@pytest.mark.parametrize("decimals", [0, 1, 15], ids=lambda n: f"rounded to {n}")
@pytest.mark.parametrize("seed", SEEDS)
def test_correlations_agree_with_scipy(seed, decimals):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 1500))
    x = np.round(rng.normal(3, 2, n), decimals)
    y = np.round(rng.normal() * x + rng.normal(0, 2, n), decimals)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        assert alike(metrics.pearson(x, y), stats.pearsonr(x, y).statistic)
        assert alike(metrics.spearman(x, y), stats.spearmanr(x, y).statistic)


@pytest.mark.parametrize("x", [[1, 1, 1], [0.1] * 7, [1, np.nan, 3]])
def test_undefined_correlations_agree_with_scipy(x):
    y = np.arange(len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan([stats.pearsonr(x, y).statistic, stats.spearmanr(x, y).statistic]).all()
    assert np.isnan([metrics.pearson(x, y), metrics.spearman(x, y)]).all()


def test_percentile_interval_agrees_with_scipy():
    values = np.random.default_rng(0).gamma(2, size=400)
    found = metrics.bootstrap(lambda rows: values[rows].mean(), 400, draws=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    spread = values.std() / 20
    assert found == pytest.approx((theirs.low, theirs.high), abs=0.05 * spread)  # of other draws


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_numbers_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 200))
    gold = rng.normal(1e5 * rng.random(), 10 ** rng.uniform(-3, 3), n)
    predicted = gold + rng.normal(0, 10 ** rng.uniform(-3, 3), n)
    for name, theirs in (
        ("mae", "mean_absolute_error"),
        ("rmse", "root_mean_squared_error"),
        ("r2", "r2_score"),
    ):
        expected = getattr(sklearn_metrics, theirs)(gold, predicted)
        assert getattr(metrics, name)(gold, predicted) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_intervals_of_shares_agree_with_scipy(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 300))
    right = int(rng.integers(n + 1))
    for level in (0.9, 0.95):
        theirs = stats.binomtest(right, n).proportion_ci(level, method="wilson")
        assert metrics.wilson(right, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def tag_sentences(seed, alphabet):
    """Gold and predicted tags of 40 sentences, drawn without regard to any scheme's rules."""
    rng = np.random.default_rng(seed)

    def tag():
        prefix = rng.choice(list(alphabet))
        return prefix if prefix == "O" else f"{prefix}-{rng.choice(['PER', 'LOC', 'B-x'])}"

    gold = [[tag() for _ in range(rng.integers(1, 15))] for _ in range(40)]
    predicted = [[one if rng.random() < 0.7 else tag() for one in tags] for tags in gold]
    return gold, predicted


def rates_agree(figures, gold, predicted, **options):
    """Whether precision, recall and F1 are those of seqeval."""
    seqeval = pytest.importorskip("seqeval.metrics")
    names = {"precision": "precision_score", "recall": "recall_score", "f1": "f1_score"}
    theirs = {name: getattr(seqeval, one)(gold, predicted, **options) for name, one in names.items()}
    return all(alike(figures[name] / 100, value) for name, value in theirs.items())


@pytest.mark.parametrize("alphabet", ["BIO", "IO", "IOE"])
@pytest.mark.parametrize("seed", range(20))
def test_chunks_agree_with_seqeval(seed, alphabet):
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    gold, predicted = tag_sentences(seed, alphabet)
    for tags in (*gold, *predicted):
        theirs = [(kind, start, end + 1) for kind, start, end in labeling.get_entities(tags)]
        assert [tuple(chunk) for chunk in entities.chunks(tags)] == theirs
    assert rates_agree(entities.conlleval(gold, predicted), gold, predicted)


@pytest.mark.parametrize(("alphabet", "scheme"), [("BIOES", "IOBES"), ("BILOU", "BILOU")])
@pytest.mark.parametrize("seed", range(20))
def test_whole_entities_agree_with_strict_seqeval(seed, alphabet, scheme):
    theirs = getattr(pytest.importorskip("seqeval.scheme"), scheme)
    gold, predicted = tag_sentences(seed, alphabet)
    strict = {"mode": "strict", "scheme": theirs, "zero_division": 0}
    assert rates_agree(entities.conlleval(gold, predicted), gold, predicted, **strict)
    assert rates_agree(entities.conlleval(gold, predicted, alphabet), gold, predicted, **strict)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOE2", "IOBES", "BILOU"])
@pytest.mark.parametrize("seed", range(5))
def test_entities_of_every_scheme_agree_with_strict_seqeval(seed, scheme):
    theirs = getattr(pytest.importorskip("seqeval.scheme"), scheme)
    letters = {"IOB1": "III", "IOB2": "BIB", "IOE2": "IEE", "IOBES": "BES", "BILOU": "BLU"}[scheme]
    rng = np.random.default_rng(seed)

    def sentence():
        """Well-formed tags: two words of one type are never neighbours, where IOB1 would have a B."""
        tags = []
        for _ in range(rng.integers(1, 5)):
            kind, length = rng.choice(["PER", "LOC"]), rng.integers(1, 4)
            first, last, single = letters
            inner = [first] + ["I"] * (length - 2) + [last] if length > 1 else [single]
            tags += [f"{letter}-{kind}" for letter in inner] + ["O"]
        return tags

    gold = [sentence() for _ in range(30)]
    predicted = [tags if rng.random() < 0.6 else ["O"] * len(tags) for tags in gold]
    figures = entities.conlleval(gold, predicted)
    assert rates_agree(figures, gold, predicted, mode="strict", scheme=theirs)
    assert rates_agree(
        entities.conlleval(gold, predicted, scheme), gold, predicted, mode="strict", scheme=theirs
    )
