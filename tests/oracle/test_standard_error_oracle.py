"""The standard error of a held-out loss, against simulations and SciPy's bootstrap of documents."""

import numpy as np
import pytest
from scipy import stats

from minibert.pretraining.evaluation import standard_error

PASSES = 20


def simulated(rng, documents, between=0.3, within=1.5, sentences=30, passes=PASSES):
    """Losses of a text that is read several times over: those of a document, of its tokens, of a mask.

    Each document has another number of sentences, whose tokens are met again in every pass.
    """
    values, numbers = [], []
    for document in range(documents):
        size = int(rng.integers(sentences // 2, 2 * sentences))
        tokens = between * rng.normal() + within * rng.normal(size=size)
        for _ in range(passes):
            chosen = rng.random(size) < 0.5
            values.append(tokens[chosen] + 0.2 * rng.normal(size=chosen.sum()))
            numbers.append(np.full(chosen.sum(), document))
    return np.concatenate(values), np.concatenate(numbers)


@pytest.mark.parametrize("documents", [20, 100])
def test_stated_error_is_that_of_repeated_experiments(documents):
    rng = np.random.default_rng(7)
    found = [simulated(rng, documents) for _ in range(400)]
    means = np.array([values.mean() for values, _ in found])
    stated = np.array([standard_error(*one) for one in found])
    true = means.std(ddof=1)  # its own standard error is 3.5%
    assert 0.9 * true < np.sqrt((stated**2).mean()) < 1.1 * true
    naive = np.array([values.std(ddof=1) / np.sqrt(len(values)) for values, _ in found])
    assert naive.mean() < 0.45 * true  # what it would be if all targets were independent


@pytest.mark.parametrize("documents", [20, 100])
def test_95_percent_intervals_hold_the_truth(documents):
    rng = np.random.default_rng(8)
    quantile = stats.t.ppf(0.975, documents - 1)
    held = 0
    for _ in range(500):
        values, numbers = simulated(rng, documents, passes=4)
        held += abs(values.mean()) < quantile * standard_error(values, numbers)
    assert 0.92 < held / 500 < 0.975


def test_error_equals_that_of_a_bootstrap_of_documents():
    values, numbers = simulated(np.random.default_rng(9), 40)
    sums = np.bincount(numbers, values)
    counts = np.bincount(numbers)

    def mean(sums, counts, axis=-1):
        return sums.sum(axis) / counts.sum(axis)

    rng = np.random.default_rng(10)
    options = dict(paired=True, n_resamples=5000, method="percentile", rng=rng, vectorized=True)
    expected = stats.bootstrap((sums, counts), mean, **options).standard_error
    assert standard_error(values, numbers) == pytest.approx(expected, rel=0.06)


def test_passes_over_the_same_values_change_nothing():
    values, numbers = simulated(np.random.default_rng(11), 20, passes=1)
    again = standard_error(np.tile(values, PASSES), np.tile(numbers, PASSES))
    assert again == pytest.approx(standard_error(values, numbers), rel=1e-12)


def test_error_of_independent_values_is_the_usual_one():
    values = np.random.default_rng(12).normal(size=200)
    assert standard_error(values, np.arange(200)) == pytest.approx(stats.sem(values), rel=1e-12)
