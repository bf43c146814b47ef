"""The engine numba beyond what every engine is tested for: its arithmetic, its threads, its compiler."""

import math
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engines import holds_in_a_fork
from hypothesis import given, settings, strategies as st

from minibert import cli, engines
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.gradcheck.cases import SIZES, config_of, dropout_of, random_batch
from minibert.core.ops import AdamRule, Dropout
from minibert.core.optim import AdamW, warmup_linear
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops
from minibert.model.params import initialise

pytest.importorskip("numba", reason="numba is not installed")

from objectives import update_once

from minibert.engines.numba import (
    jit as numba_jit,
    ops as numba_ops,
    products as numba_products,
    rows as numba_rows,
)

NUMPY, NUMBA = Ops(), engines.create("numba", threads=2)
SIZE = SIZES["ugly"]
# Each is compiled for by itself, which takes most of the time.
every_dtype = pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=pytest.mark.thorough)]
)
every_form = pytest.mark.parametrize("form", ["erf", "tanh"])


def draw(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rows_of(T, rate=0.1, attention_rate=0.2):
    """Dropout of T rows."""
    return Dropout(
        rate, attention_rate, np.random.default_rng(9).integers(1 << 32, size=(T, 2), dtype=np.uint32)
    )


def relative(found, expected):
    """Distance in units of the largest value."""
    return np.abs(np.asarray(found) - expected).max(initial=0) / np.abs(expected).max(initial=1e-300)


@pytest.fixture
def many_ranges(monkeypatch):
    """Ranges so short that small arrays are shared out too."""
    monkeypatch.setattr(numba_jit, "GRAIN", 100)
    monkeypatch.setattr(numba_ops, "COLUMNS", 4)


# Arithmetic


@pytest.mark.representatives(dtype="float32")
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 4e-6), ("float64", 4e-13)])
def test_gelu_keeps_its_relative_precision_far_into_the_left_tail(dtype, bound):
    x = np.linspace(-6, 6, 2003).astype(dtype)
    y, (slope,) = NUMBA.gelu(x, "erf")
    normal = statistics.NormalDist()
    for one, found, d in zip(x.astype(float), y.astype(float), slope.astype(float), strict=True):
        cdf = 0.5 * math.erfc(-one * math.sqrt(0.5))
        assert abs(found - one * cdf) <= bound * abs(one * cdf)
        assert abs(d - cdf - one * normal.pdf(one)) <= bound * (cdf + abs(one) * normal.pdf(one))


@every_form
@every_dtype
def test_gelu_has_its_limits_and_keeps_nan(form, dtype):
    x = np.array([-1e4, -50, 0, 50, 1e4, np.nan], dtype)
    y, saved = NUMBA.gelu(x, form)
    assert y[:-1].tolist() == [0, 0, 0, 50, 1e4]
    assert np.isnan(y[-1])
    assert NUMBA.gelu_backward(np.ones_like(x), saved, form)[:-1].tolist() == [0, 0, 0.5, 1, 1]


@every_dtype
def test_layer_norm_of_equal_numbers_is_beta_and_has_a_finite_gradient(dtype):
    beta = draw(8, dtype=dtype)
    y, saved = NUMBA.layer_norm(np.full((2, 8), 3, dtype), np.ones(8, dtype), beta, 1e-12)
    assert np.array_equal(y, [beta, beta])
    assert all(np.isfinite(one).all() for one in NUMBA.layer_norm_backward(draw(2, 8, dtype=dtype), saved))


@every_dtype
def test_cross_entropy_of_extreme_logits_is_exact(dtype):
    logits = np.array([[3e4, -3e4, 0], [-3e4, -3e4, -3e4], [3e4, 3e4, -3e4]], dtype)
    nll, saved = NUMBA.softmax_cross_entropy(logits, np.array([1, 0, 1]))
    assert relative(nll, np.array([6e4, math.log(3), math.log(2)])) < 1e-6
    dlogits = NUMBA.softmax_cross_entropy_backward(np.ones(3, dtype), saved)
    assert relative(dlogits, np.array([[1, -1, 0], [-2 / 3, 1 / 3, 1 / 3], [0.5, -0.5, 0]])) < 1e-6


@every_dtype
def test_loss_of_a_logit_that_is_not_a_number_is_not_a_number(dtype):
    logits = draw(2, 5, dtype=dtype)
    logits[1, 3] = np.nan
    nll, _ = NUMBA.softmax_cross_entropy(logits, np.array([1, 1]))
    assert np.isnan(nll).tolist() == [False, True]


@every_dtype
@pytest.mark.parametrize("columns", [1, 2, 37, 128])
def test_dropout_multiplies_with_the_mask_of_the_reference_to_the_bit(columns, dtype):
    x, drop = draw(61, columns, dtype=dtype), rows_of(61)
    expected = x * NUMPY.dropout_mask(drop, 2, columns, dtype)
    y, saved = NUMBA._dropout(x, drop, 2)
    assert np.array_equal(y, expected)
    assert np.array_equal(NUMBA._dropout_backward(x, saved), expected)


@every_dtype
def test_updates_are_those_of_the_reference(dtype):
    decayed = np.array([[3, 70], [70, 71], [90, 200]])
    buffers = [draw(250, seed=seed, dtype=dtype) for seed in range(3)] + [draw(250, seed=3, dtype=dtype) ** 2]
    bound = 8 * np.finfo(dtype).eps
    assert NUMBA.global_norm(buffers[0]) == pytest.approx(
        float(np.linalg.norm(buffers[0].astype(float))), rel=1e-14
    )
    for correction in (True, False):
        rule = AdamRule(lr=0.01, step=3, clip=0.3, weight_decay=0.02, bias_correction=correction)
        expected = NUMPY.adamw(*(one.copy() for one in buffers), decayed, rule)
        mine = [one.copy() for one in buffers]
        found = NUMBA.adamw(*mine, decayed, rule)
        assert all(relative(one, other) < bound for one, other in zip(found, expected, strict=True))
        assert all(one is other for one, other in zip(found, (mine[0], *mine[2:]), strict=True))


# Attention


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("drop", [None, rows_of(417)], ids=["", "dropout"])
def test_attention_over_several_blocks_of_queries_is_the_reference_s(causal, drop):
    lengths = (1, 2, 3, 64, 65, 130, 152)  # a block has 64 queries
    borders = np.cumsum([0, *lengths])
    q, k, v = draw(417, 3, 2, 5).swapaxes(0, 1)  # parts of one array, of an odd width
    dy = draw(417, 2, 5, seed=1)
    results = []
    for ops in (NUMPY, NUMBA):
        y, saved = ops.attention(q, k, v, borders, causal, drop, 3)
        results.append((y, *ops.attention_backward(dy, saved)))
    assert isinstance(saved, numba_ops.NumbaAttentionSaved)  # not by falling through
    for found, expected in zip(*results[::-1], strict=True):
        assert relative(found, expected) < 1e-13


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.booleans())
def test_attention_of_a_packed_batch_is_that_of_each_sequence_alone(lengths, causal):
    borders = np.cumsum([0, *lengths])
    q, k, v = draw(3, sum(lengths), 2, 4, dtype="float32")
    y, _ = NUMBA.attention(q, k, v, borders, causal)
    for begin, end in zip(borders, borders[1:], strict=False):
        part = slice(begin, end)
        alone, _ = NUMBA.attention(q[part], k[part], v[part], np.array([0, end - begin]), causal)
        assert np.array_equal(y[part], alone)


@every_dtype
def test_attention_with_extreme_scores_picks_one_key(dtype):
    q, k, v = draw(3, 6, 2, 4, dtype=dtype)
    y, saved = NUMBA.attention(1e4 * q, k, v, np.array([0, 6]))
    best = np.einsum("iad,jad->iaj", q, k).argmax(-1)
    assert relative(y, np.array([[v[best[i, a], a] for a in range(2)] for i in range(6)], float)) < 1e-6
    assert all(np.isfinite(one).all() for one in NUMBA.attention_backward(y, saved))


@pytest.mark.thorough  # in float64
def test_what_is_hidden_may_be_anything():
    q, k, v = draw(3, 12, 2, 4)
    expected, _ = NUMBA.attention(q, k, v, np.array([0, 12]), True)
    k[8:] *= 1e4
    found, _ = NUMBA.attention(q, k, v, np.array([0, 12]), True)
    assert np.array_equal(found[:8], expected[:8])


# Matmul


@every_dtype
@pytest.mark.parametrize(
    ("M", "N", "K"), [(1, 1, 1), (61, 99, 37), (3, 200, 24), (8, 4, 64), (5, 7, 0), (128, 300, 600)]
)
def test_matmul_multiplies_rows_with_rows(M, N, K, dtype):
    a, b, c = draw(M, K, dtype=dtype), draw(N, K, seed=1, dtype=dtype), np.full((M, N), np.nan, dtype)
    for begin, end in ((0, N // 2), (N // 2, N)):
        numba_products.matmul(a, b, c, begin, end)
    assert relative(c, a.astype(float) @ b.T.astype(float)) < 20 * np.finfo(dtype).eps


@every_dtype
def test_a_product_begins_at_zero_whatever_its_rows_begin_with(dtype):
    nothing = np.full((8, 1), np.nan, dtype)[:, :0]  # where there is memory that is not its own
    endless, ones = np.ones((8, 3), dtype), np.ones((8, 3), dtype)
    endless[:, 0] = np.inf
    for rows in (3, 8):  # by sums of two rows, and by tiles
        for a, b, sums in ((nothing, nothing, 0), (endless, ones, np.inf)):
            c = np.full((rows, rows), np.nan, dtype)
            numba_products.matmul(a[:rows], b[:rows], c, 0, rows)
            assert (c == sums).all()


@every_dtype
def test_few_rows_with_long_sums_and_many_rows_are_multiplied_alike(dtype):
    weight, bias = draw(300, 290, seed=1, dtype=dtype), draw(290, seed=2, dtype=dtype)
    for layout in (weight, np.asfortranarray(weight)):
        for T in (1, 7, 128, 129):
            x, dy = draw(T, 300, dtype=dtype), draw(T, 290, seed=3, dtype=dtype)
            (y, saved), (expected, kept) = (ops.linear(x, layout, bias) for ops in (NUMBA, NUMPY))
            found, gradients = NUMBA.linear_backward(dy, saved), NUMPY.linear_backward(dy, kept)
            bound = 20 * np.finfo(dtype).eps
            assert relative(y, expected) < bound
            assert all(relative(*pair) < bound for pair in zip(found, gradients, strict=True))


# Training


def trained(ops, dtype, steps):
    """Losses and parameters of a small model over these steps, dropout on."""
    config = config_of(SIZE)
    params = initialise(config, 1).astype(dtype)
    grads, optimizer, losses = params.zeros_like(), AdamW(params.flat, params.decayed, clip_norm=1.0), []
    batches = [random_batch(SIZE, SIZE.M, np.random.default_rng(seed)) for seed in range(8)]
    for step in range(steps):
        batch = batches[step % len(batches)]
        grads.flat.fill(0)
        drop = ops.dropout(batch, 0.1, 0.1, 3, step)
        loss, saved = bert.pretraining_loss(ops, config, params.tree, batch, drop)
        bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
        update_once(optimizer, ops, params.flat, grads.flat, warmup_linear(step, steps, 20, 2e-3))
        losses.append(float(loss.loss))
    return np.array(losses), params.flat.astype(float)


@pytest.mark.slow
def test_200_steps_with_dropout_stay_within_the_rounding_of_float32():
    # Float32 is 1.3e-6 nats and 5e-7 of the parameters away from float64 by then; another order of summation
    # may be as far away in another direction.
    exact, numpy, numba = (trained(*one, 200) for one in ((NUMPY, "f8"), (NUMPY, "f4"), (NUMBA, "f4")))
    for truth, other, mine in zip(exact, numpy, numba, strict=True):
        noise = np.linalg.norm(other - truth)
        assert 0 < np.linalg.norm(mine - other) < 2 * noise
        assert np.linalg.norm(mine - truth) < 2 * noise
    assert exact[0][-1] < exact[0][0] / 2  # it did learn
    for truth, mine in zip(exact, trained(NUMBA, "f8", 200), strict=True):
        assert relative(mine, truth) < 1e-12


@every_dtype
def test_the_number_of_threads_changes_no_bit(dtype, many_ranges):
    one, *others = (trained(engines.create("numba", threads=count), dtype, 3) for count in (1, 2, 3, 7))
    for other in others:
        assert all(map(np.array_equal, one, other))


@every_dtype
def test_the_number_of_threads_changes_no_bit_of_matmuls_that_the_library_shares_out(dtype):
    draws = np.random.default_rng(0)
    shapes = ((700, 300), (300, 500), (500,), (700, 500), (500, 300))
    x, weight, bias, dy, table = (draws.standard_normal(shape).astype(dtype) for shape in shapes)

    def results(count):
        ops = engines.create("numba", threads=count)
        with engines.limited_threads(count, ops):
            y, saved = ops.linear(x, weight, bias)
            tied, saved_tied = ops.linear(x, table.T, bias)
            return y, tied, *ops.linear_backward(dy, saved), *ops.linear_backward(dy, saved_tied)

    one, *others = map(results, (1, 2, 3))
    exact = x.astype("f8") @ weight.astype("f8") + bias
    assert relative(one[0].astype("f8"), exact) < 20 * np.finfo(dtype).eps
    for other in others:
        assert all(map(np.array_equal, one, other))


def test_ranges_cover_every_row_once(many_ranges):
    for count in (0, 1, 37, 100, 250):
        for width in (1, 3, 1000):
            ranges = numba_jit.cut(count, width)
            assert [row for begin, end in ranges for row in range(begin, end)] == list(range(count))
    work = np.array([1, 300, 2, 2, 99, 5, 1])
    assert [task for begin, end in numba_jit.cut_tasks(work) for task in range(begin, end)] == list(range(7))
    assert numba_jit.cut_tasks(np.full(10, 40)) == [
        (0, 3),
        (3, 5),
        (5, 8),
        (8, 10),
    ]  # borders at 100, 200, 300


@pytest.mark.thorough
def test_an_engine_is_used_by_two_python_threads_at_once(many_ranges):
    batch, config = random_batch(SIZE, SIZE.M, np.random.default_rng(0)), config_of(SIZE)
    params = random_parameters(config, np.random.default_rng(1)).tree

    def loss(_):
        return bert.pretraining_loss(NUMBA, config, params, batch, dropout_of(NUMBA, batch))[0].loss

    with ThreadPoolExecutor(2) as pool:
        assert len(set(map(float, pool.map(loss, range(20))))) == 1


@pytest.mark.thorough
def test_an_engine_that_was_used_works_in_a_fork(many_ranges):
    x = draw(64, 64)
    expected, _ = NUMBA.gelu(x, "erf")
    assert holds_in_a_fork(lambda: np.array_equal(NUMBA.gelu(x, "erf")[0], expected))


# What the loops don't take


def test_what_the_loops_do_not_take_goes_to_the_reference():
    x, gamma = draw(6, 8), draw(8)
    turned, frozen = np.asfortranarray(x), x.copy()
    frozen.flags.writeable = False
    for one in (x + 0j, turned, frozen, x[:, ::2], x.astype(np.float16)):
        for form in ("erf", "tanh"):
            y, saved = NUMBA.gelu(one, form)
            expected, kept = NUMPY.gelu(one, form)
            assert relative(y, expected) < (1e-3 if one.dtype == np.float16 else 1e-14)
            assert type(saved) is type(kept)
            dx = NUMBA.gelu_backward(one, saved, form)
            assert dx.dtype == one.dtype and dx.shape == one.shape
    y, _ = NUMBA.layer_norm(x, gamma.astype("float32"), gamma, 1e-12)
    assert np.array_equal(y, NUMPY.layer_norm(x, gamma.astype("float32"), gamma, 1e-12)[0])
    assert NUMBA.accumulate(x.copy(), x.astype("float32")).dtype == np.float64


def test_rows_beyond_the_end_are_refused_negative_ones_count_back():
    table = draw(9, 4)
    for ids in ([0, 9], [-10]):
        with pytest.raises(IndexError):
            NUMBA.embedding(np.array(ids), table)
        with pytest.raises(IndexError):
            NUMBA.scatter_add(table.copy(), np.array(ids), draw(len(ids), 4))
    with pytest.raises(IndexError):
        NUMBA.softmax_cross_entropy(draw(2, 5), np.array([0, 5]))
    assert np.array_equal(NUMBA.embedding(np.array([-1]), table)[0], table[-1:])


def test_arrays_of_unequal_shapes_are_refused_as_by_numpy():
    x, short, borders = draw(6, 8), draw(5), np.array([0, 6])
    q = draw(6, 2, 4)
    _, linear = NUMBA.linear(x, draw(8, 9), draw(9))
    _, softmax = NUMBA.softmax_cross_entropy(x, np.arange(6))
    _, norm = NUMBA.layer_norm(x, draw(8), draw(8), 1e-12)
    _, attention = NUMBA.attention(q, q, q, borders)
    wrong = [
        lambda: NUMBA.linear(x, draw(8, 9), short),
        lambda: NUMBA.linear(draw(4, 300), draw(290, 4), short),
        lambda: NUMBA.linear_backward(draw(5, 9), linear),
        lambda: NUMBA.layer_norm(x, short, draw(8), 1e-12),
        lambda: NUMBA.layer_norm_backward(draw(5, 8), norm),
        lambda: NUMBA.gelu_backward(short, NUMBA.gelu(x, "erf")[1], "erf"),
        lambda: NUMBA.attention(q, draw(5, 2, 4), q, borders),
        lambda: NUMBA.attention(q, q, q, np.array([0, 7])),
        lambda: NUMBA.attention(q, q, q, borders, False, rows_of(5), 1),
        lambda: NUMBA.attention_backward(draw(5, 2, 4), attention),
        lambda: NUMBA.softmax_cross_entropy(x, np.arange(5)),
        lambda: NUMBA.softmax_cross_entropy_backward(short, softmax),
        lambda: NUMBA.scatter_add(x, np.arange(6), draw(5, 8)),
        lambda: NUMBA._dropout(x, rows_of(5), 1),
        lambda: NUMBA.accumulate(x.copy(), short),
        lambda: NUMBA.adamw(short, short, short, draw(4), np.array([[0, 5]]), AdamRule(0.1, 1)),
    ]
    for call in wrong:
        with pytest.raises((ValueError, IndexError)):
            call()


def test_types_that_were_not_foreseen_are_an_error_and_nothing_is_compiled_for_them():
    numba_products.matmul(draw(4, 4), draw(4, 4), draw(4, 4), 0, 4)
    with pytest.raises(TypeError, match="No matching definition"):
        numba_products.matmul(draw(4, 4), draw(4, 4, dtype="float32"), draw(4, 4), 0, 4)
    assert all(len(one._compiled.signatures) <= len(numba_jit.PRECISIONS) for one in numba_jit.KERNELS)


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (
            SystemError("CPUDispatcher: " + numba_jit.NO_REASON),
            MemoryError,
            "multiply got none from the system",
        ),
        (SystemError("unknown error when calling native function"), SystemError, "unknown error"),
    ],
)
def test_memory_that_the_system_refused_is_a_memory_error(raised, expected, text, monkeypatch):
    def refused(*args):
        raise raised

    multiply = numba_jit.Kernel(numba_rows.multiply._compiled.py_func)
    monkeypatch.setattr(multiply, "_ready", {np.dtype(np.float32)})
    monkeypatch.setattr(multiply, "_compiled", refused)
    with pytest.raises(expected, match=text):
        multiply(draw(4, dtype="float32"), draw(4, dtype="float32"), np.empty(4, np.float32), 0, 4)


# Compiling


def test_importing_minibert_does_not_import_numba():
    source = (
        "import sys, minibert.cli, minibert.engines, minibert.ask.inference; sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source]).returncode == 0


def test_without_numba_the_engine_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("minibert.engines.numba.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(InputError, match=r"engine='numba' is not installed \(.*numba.*\): pip install numba"):
        engines.create("numba")


def test_machine_code_is_kept_in_numba_s_cache_folder_or_beside_the_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(numba_jit.numba.config, "CACHE_DIR", str(tmp_path))
    compiled = numba_jit._cached(numba_jit.cut)
    assert compiled.stats.cache_path.startswith(str(tmp_path))
    assert numba_jit.numba.config.CACHE_DIR == str(tmp_path)
    monkeypatch.setattr(numba_jit.numba.config, "CACHE_DIR", "")
    assert "__pycache__" in numba_jit._cached(numba_jit.cut).stats.cache_path


def test_where_nothing_can_be_kept_a_sentence_says_so_and_the_loops_work():
    scope = {}
    exec("def twice(x):\n    return 2 * x", scope)  # of no file, so that there is no folder either
    numba_jit._warn_that_nothing_is_cached.cache_clear()
    with pytest.warns(UserWarning, match="compiles again in every process.*NUMBA_CACHE_DIR"):
        assert numba_jit._cached(scope["twice"])(21) == 42


def test_warmup_says_what_it_compiles(capsys):
    assert cli.main(["info", "--warm-up", "float32"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [one.name for one in numba_jit.KERNELS]
    assert all(line.split()[2] == "float32" for line in lines)
    assert "compiled, " in last and "kept" in last
