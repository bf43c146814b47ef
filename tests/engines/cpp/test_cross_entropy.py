"""The class that the C++ cross-entropy finds most likely, against NumPy's argmax: the first of equals.

A row of logits is read strip by strip, and each strip leaves its largest behind. So the largest stands in
each column of several strips in turn, with the label at it, beside it or far from it.
"""

import numpy as np
import pytest

from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

cpp_ops = pytest.importorskip("minibert.engines.cpp.ops", reason="the kernels in C++ are not built")
from minibert.engines.cpp import _kernels  # noqa: E402

every_isa = pytest.mark.parametrize("isa", _kernels.available())
V = 787  # from 6 strips of 128 columns to 24 of 32, and some columns more
AT = np.arange(V)


def beside(distance):
    """The column so far to the right of each, or the last."""
    return np.minimum(AT + distance, V - 1)


def winners(kind):
    """Logits (V,V), exact in bfloat16, of which row i has its first largest in column i."""
    low = np.random.default_rng(0).integers(-9, 8, (V, V)).astype(np.float32)
    if kind == "alone":
        low[AT, AT] = 9
    elif kind == "by a bit":  # the next larger bfloat16
        low[:] = 1
        low[AT, AT] = 1 + 2**-7
    elif kind == "huge":
        low = np.ldexp(low, 120)
        low[AT, AT] = np.ldexp(9, 120)
    elif kind == "all below":
        low -= 100
        low[AT, AT] = -91
    elif kind == "all that follow":
        low[AT[:, None] <= AT] = 9
    else:  # equal ones, so far apart
        low[AT, AT] = low[AT, beside(kind)] = 9
    return low


KINDS = ["alone", "by a bit", "huge", "all below", "all that follow"]
APART = [1, 2, 4, 7, 8, 16, 31, 32, 33, 64, 96, 127, 128, 129, 256, 500]


def labels_for(seed):
    """Labels that win, ones right beside the winner, ones in the next strips, and any."""
    anywhere = np.random.default_rng(seed).integers(V, size=V)
    return [AT, beside(1), AT - (AT > 0), beside(32), beside(128), anywhere]


def found_by_rows(run, logits, labels):
    nll, best = np.empty(len(logits), np.float32), np.full(len(logits), -1, np.int32)
    run.softmax_cross_entropy(logits.copy(), labels.astype(np.int32), nll, best)
    return best


def found_behind_the_product(run, logits, labels, dtype, bias=None):
    """The same of logits that come out of a product with the identity, which leaves them as they are."""
    n, columns = logits.shape
    gradient = np.empty((n, -(-columns // 16) * 16), dtype)[:, :columns]
    nll, best = np.empty(n, np.float32), np.full(n, -1, np.int32)
    bias = np.zeros(columns, np.float32) if bias is None else bias
    identity, labels = np.eye(n, dtype=np.float32), labels.astype(np.int32)
    run.linear_softmax_cross_entropy(identity, logits, bias, labels, gradient, nll, best)
    return best


@every_isa
@pytest.mark.parametrize("kind", [*KINDS, *APART])
def test_the_largest_of_each_row_is_where_numpy_finds_it(isa, kind):
    logits, run = winners(kind), _kernels.Engine(isa, 2)
    expected = logits.argmax(1)
    assert (expected == AT).all()
    for labels in labels_for(1):
        assert (found_by_rows(run, logits, labels) == expected).all()


@pytest.mark.thorough
@every_isa
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
@pytest.mark.parametrize("narrow", [False, True], ids=["float32 product", "bfloat16 product"])
def test_the_largest_behind_a_product_is_where_numpy_finds_it(isa, narrow, dtype):
    run = _kernels.Engine(isa, 2, narrow)
    for kind, labels in zip([*KINDS, *APART[1::4]], labels_for(2) * 2, strict=False):
        logits = winners(kind)
        assert (found_behind_the_product(run, logits, labels, dtype) == logits.argmax(1)).all(), kind


@every_isa
def test_what_is_infinitely_unlikely_never_scores_highest(isa):
    """Whole strips of minus infinity too, before the largest and after it, and labels among them."""
    run, bias = _kernels.Engine(isa, 2), np.full(V, -np.inf, np.float32)
    logits = np.full((V, V), -np.inf, np.float32)
    logits[AT, AT] = -5
    for labels in labels_for(3):
        assert (found_by_rows(run, logits, labels) == AT).all()
    bias[[300, 301, 700]] = 0
    logits = winners(1)
    for labels in labels_for(4):
        best = found_behind_the_product(run, logits, labels, "float32", bias)
        assert (best == (logits + bias).argmax(1)).all()
    assert (found_by_rows(run, np.full((3, V), -np.inf, np.float32), AT[:3]) == 0).all()


@every_isa
@pytest.mark.parametrize("columns", [1, 2, 3, 31, 32, 33, 64, 127, 128, 129, 255, 256, 257])
def test_rows_of_any_length_have_their_first_largest(isa, columns):
    rng, run = np.random.default_rng(columns), _kernels.Engine(isa, 2)
    for spread in (1, 3, 1000):  # all equal, many equal, few
        logits = rng.integers(spread, size=(99, columns)).astype(np.float32)
        labels = rng.integers(columns, size=99)
        assert (found_by_rows(run, logits, labels) == logits.argmax(1)).all()
        found = found_behind_the_product(run, logits, labels, "float32")
        assert (found == logits.argmax(1)).all()


@every_isa
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_head_predicts_what_its_scores_say(isa, dtype):
    """Where a label scores highest in half of the rows, so that an accuracy would show it."""
    rng, config = np.random.default_rng(0), config_of(SIZES["ugly"], vocab_size=V)
    params = random_parameters(config, rng).astype(np.float32).tree
    x, rows = rng.standard_normal((200, config.H), np.float32), np.arange(0, 200, 2)
    head, table = params["mlm"], params["embeddings"]["word"]
    logits, _ = Ops().masked_lm_logits(x, rows, head, table, config)
    labels = np.where(rows % 4 == 0, logits.argmax(1), rng.integers(V, size=len(rows))).astype(np.int32)
    ops = cpp_ops.CppOps(threads=2, isa=isa, dtype=dtype)
    (_, predicted), _ = ops.masked_lm_head(x, rows, labels, head, table, config)
    top = np.take_along_axis(logits, predicted[:, None].astype(np.int64), 1)[:, 0]
    assert (logits.max(1) - top < (1e-5 if dtype == "float32" else 0.1)).all()
    assert 0.45 < (predicted == labels).mean() < 0.6
