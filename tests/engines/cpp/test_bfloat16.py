"""The engine in C++ with products and activations in bfloat16, against NumPy that rounds operands alone."""

import itertools

import numpy as np
import pytest
from training_cases import LARGE, loss_and_gradients, losses_of_training, model_and_batch

from minibert import engines
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import SIZES
from minibert.model.ops import Ops
from minibert.model.params import initialise

cpp_ops = pytest.importorskip("minibert.engines.cpp.ops", reason="the kernels in C++ are not built")
from minibert.engines.cpp import _kernels  # noqa: E402

every_isa = pytest.mark.parametrize("isa", _kernels.available())
fused_or_not = pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])


def rounded(x):
    """The nearest numbers of eight significant bits, ties to even, by their decimal value alone."""
    digits, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(digits * 256) / 256, exponent).astype(np.asarray(x).dtype)


def carried(x):
    """An array of such numbers as the kernels take it."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class RoundedOps(Ops):
    """The reference in float32, with every operand of a matrix product rounded to bfloat16."""

    def linear(self, x, weight, bias):
        return super().linear(rounded(x), rounded(weight), bias)

    def linear_backward(self, dy, saved):
        dx, dweight, _ = super().linear_backward(rounded(dy), saved)
        return dx, dweight, dy.sum(0)

    def attention(self, q, k, v, *rest):
        return super().attention(rounded(q), rounded(k), rounded(v), *rest)

    def attention_backward(self, dy, saved):
        return super().attention_backward(rounded(dy), saved)


# Right on every instruction set


@every_isa
@fused_or_not
@pytest.mark.parametrize("size", [SIZES["ugly"], LARGE], ids=["ugly", "large"])
def test_it_errs_at_most_twice_as_much_as_rounding_the_operands_does(isa, fuse, size):
    """Parameter by parameter. Fused blocks round activations once more: 1.4 times the error on the whole."""
    config, parameters, batch = model_and_batch(size)
    true_nll, true = loss_and_gradients(Ops(), config, parameters.astype(np.float64), batch)
    least_nll, least = loss_and_gradients(RoundedOps(), config, parameters, batch)
    nll, found = loss_and_gradients(
        cpp_ops.CppOps(threads=2, isa=isa, fuse=fuse, dtype="bfloat16"), config, parameters, batch
    )
    norm = np.linalg.norm
    assert 0 < norm(nll - true_nll) <= 2 * norm(least_nll - true_nll)
    assert 0 < norm(found.flat - true.flat) <= 2 * norm(least.flat - true.flat)
    assert norm(found.flat - true.flat) < 0.03 * norm(true.flat)
    for name in found:
        # One parameter alone may have been lucky; half a unit in the last place of its gradient is the floor.
        error, other, unit = norm(found[name] - true[name]), norm(least[name] - true[name]), 2.0**-9
        assert error <= 3 * other + unit * norm(true[name]) + 1e-5 * norm(true.flat), name


@every_isa
@pytest.mark.parametrize(
    "shape", [(0, 5, 3), (5, 7, 0), (1, 1, 1), (61, 37, 24), (13, 33, 1401), (400, 3, 9)]
)
def test_products_of_every_shape_layout_and_storage(isa, shape):
    (M, N, K), rng = shape, np.random.default_rng(0)
    run = _kernels.Engine(isa, 2, True)
    for a_turned, a_narrow, b_turned, b_narrow in itertools.product([False, True], repeat=4):
        a = rng.standard_normal((K, M) if a_turned else (M, K)).astype(np.float32)
        b = rng.standard_normal((N, K) if b_turned else (K, N)).astype(np.float32)
        exact_a, exact_b = (np.float64(rounded(x.T if t else x)) for x, t in ((a, a_turned), (b, b_turned)))
        a, b = (carried(rounded(a)) if a_narrow else a), (carried(rounded(b)) if b_narrow else b)
        start = rng.standard_normal((M, N)).astype(np.float32)
        out = start.copy()
        run.gemm(a.T if a_turned else a, b.T if b_turned else b, out, True)
        bound = (K + 2) * 2.0**-24 * (np.abs(exact_a) @ np.abs(exact_b) + np.abs(start))
        assert (np.abs(out - (exact_a @ exact_b + start)) <= bound).all()


@every_isa
@pytest.mark.parametrize("narrow", [*itertools.product([False, True], repeat=2)], ids=str)
def test_products_of_matrices_that_lie_anyhow(isa, narrow):
    """Elements apart, backwards, or the same row again and again; K odd and even."""
    rng, run = np.random.default_rng(0), _kernels.Engine(isa, 2, True)
    ways = [
        lambda x: np.repeat(np.repeat(x, 3, axis=0), 2, axis=1)[::3, ::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: x[:, ::-1].copy()[:, ::-1],
        lambda x: np.broadcast_to(x[:1].copy(), x.shape),
    ]
    for K, way_of_a, way_of_b in itertools.product([7, 66], ways, ways):
        exact = [rounded(rng.standard_normal(shape).astype(np.float32)) for shape in ((29, K), (K, 35))]
        a, b = (
            way(carried(x) if is_narrow else x)
            for way, x, is_narrow in zip((way_of_a, way_of_b), exact, narrow, strict=True)
        )
        of_a, of_b = (np.float64(way(x)) for way, x in zip((way_of_a, way_of_b), exact, strict=True))
        out = np.full((29, 35), np.nan, np.float32)
        run.gemm(a, b, out, False)
        assert (np.abs(out - of_a @ of_b) <= (K + 2) * 2.0**-24 * (np.abs(of_a) @ np.abs(of_b))).all()


@every_isa
def test_bits_do_not_depend_on_the_number_of_threads(isa):
    model = model_and_batch(LARGE)
    nll, grads = loss_and_gradients(cpp_ops.CppOps(threads=1, isa=isa, dtype="bfloat16"), *model)
    for threads in (2, 3):
        others = loss_and_gradients(cpp_ops.CppOps(threads=threads, isa=isa, dtype="bfloat16"), *model)
        assert np.array_equal(others[0], nll)
        assert np.array_equal(others[1].flat, grads.flat)


def test_sequences_are_the_same_alone_and_together():
    config, parameters, batch = model_and_batch(LARGE)
    ops = cpp_ops.CppOps(threads=2, dtype="bfloat16")

    def nll(sequences):
        return bert.pretraining_loss(ops, config, parameters.tree, Batch.pack(sequences))[0].mlm_nll

    sequences = unpacked(batch)
    alone = [nll([one]) for one in sequences]
    assert np.array_equal(np.concatenate(alone), nll(sequences))
    assert np.array_equal(np.concatenate(alone[::-1]), nll(sequences[::-1]))


def unpacked(batch):
    """The sequences of a batch."""
    found = []
    for begin, end in zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False):
        here = (begin <= batch.masked_rows) & (batch.masked_rows < end)
        found.append(
            Sequence(
                batch.input_ids[begin:end],
                batch.token_type_ids[begin:end],
                batch.masked_rows[here] - begin,
                batch.masked_labels[here],
                1,
            )
        )
    return found


@pytest.mark.thorough
def test_training_follows_float32():
    """200 steps with dropout from one seed: the mean of the last 40 losses moves by less than 0.02 nats."""
    exact, narrow = (
        losses_of_training(cpp_ops.CppOps(threads=2, dtype=dtype)) for dtype in ("float32", "bfloat16")
    )
    assert exact[-8:].mean() < exact[:8].mean() - 1  # it does learn
    assert not np.array_equal(exact, narrow)
    assert abs(exact[-40:].mean() - narrow[-40:].mean()) < 0.02


# What is kept, and what comes out


def test_activations_take_half_the_memory_and_losses_are_float32():
    config, parameters, batch = model_and_batch(LARGE)
    ops, params = cpp_ops.CppOps(dtype="bfloat16"), parameters.tree
    x, _ = ops.embedding_block(batch, params["embeddings"], config, None)
    assert x.dtype == np.uint16
    layer = params["layers"][0]
    y, saved = ops.feed_forward_block(x, layer["feed_forward"], config, None, 0)
    assert y.dtype == np.uint16
    assert {one.dtype for one in (saved.x, saved.u, saved.norm.total)} == {np.dtype(np.uint16)}
    (nll, _), saved = ops.masked_lm_head(
        y, batch.masked_rows, batch.masked_labels, params["mlm"], params["embeddings"]["word"], config
    )
    assert nll.dtype == np.float32
    assert saved.gradient.dtype == np.uint16  # of the logits


def test_a_model_gives_float32_near_its_float32_results():
    config, parameters, _ = model_and_batch(LARGE)
    inputs = Batch.pack([Sequence(np.arange(1, n + 1), np.zeros(n, int), [], []) for n in (5, 60, 9)])
    exact, narrow = (
        Bert(config, parameters, engines.create("cpp", 2, dtype)).encode(inputs, attentions=True)
        for dtype in ("float32", "bfloat16")
    )
    pairs = [*zip(exact.hidden_states, narrow.hidden_states, strict=True), (exact.pooled, narrow.pooled)]
    pairs += [
        pair
        for maps in zip(exact.attentions, narrow.attentions, strict=True)
        for pair in zip(*maps, strict=True)
    ]
    for one, other in pairs:
        assert other.dtype == np.float32
        assert 0 < np.linalg.norm(one - other) < 0.02 * np.linalg.norm(one)


def test_activations_that_fall_through_to_numpy_are_numbers_there_as_well():
    """Borders of 64 bits, rows that lie apart, an operation by itself: none is for the fused kernels."""
    config, parameters, batch = model_and_batch(LARGE)
    ops, params = cpp_ops.CppOps(dtype="bfloat16"), parameters.tree
    x, _ = ops.embedding_block(batch, params["embeddings"], config, None)
    apart, borders = np.stack([x, x], axis=1)[:, 0], batch.cu_seqlens.astype(np.int64)
    attention, feed_forward = (params["layers"][0][name] for name in ("attention", "feed_forward"))
    weight, bias = attention["qkv_weight"], attention["qkv_bias"]
    pairs = [
        [ops.attention_block(x, attention, ends, config, None, 0) for ends in (batch.cu_seqlens, borders)],
        [ops.feed_forward_block(one, feed_forward, config, None, 0) for one in (x, apart)],
        [ops.linear(one, weight, bias) for one in (ops.upcast(x), x)],
    ]
    for (expected, _), (found, _) in pairs:
        assert found.dtype == np.float32
        assert np.linalg.norm(found - ops.upcast(expected)) < 0.01 * np.linalg.norm(found)
    for one in (x, apart):
        taken, saved = ops.take_rows(one, batch.masked_rows)
        assert np.array_equal(ops.upcast(taken), ops.upcast(x)[batch.masked_rows])
        assert ops.take_rows_backward(ops.upcast(taken), saved).dtype == np.float32


def test_whole_numbers_of_16_bits_stay_what_they_are_where_nothing_is_bfloat16():
    table, rows = np.arange(20, dtype=np.uint16).reshape(5, 4), np.array([3, 0, 3], np.int32)
    ops = cpp_ops.CppOps()
    taken, saved = ops.take_rows(table, rows)
    assert taken.dtype == np.uint16
    assert np.array_equal(taken, table[rows])
    assert np.array_equal(ops.take_rows_backward(taken, saved), Ops().take_rows_backward(taken, saved))


def test_one_token_and_nothing_masked_train_as_any_batch():
    config = BertConfig(
        vocab_size=11,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=5,
        max_position_embeddings=4,
    )
    parameters = initialise(config, seed=0)
    batch = Batch.pack([Sequence(np.array([3]), np.array([0]), np.zeros(0, int), np.zeros(0, int), 1)])
    ops = cpp_ops.CppOps(threads=2, dtype="bfloat16")
    (nll, grads), (_, expected) = (loss_and_gradients(o, config, parameters, batch) for o in (ops, Ops()))
    assert nll.shape == (0,)
    assert np.linalg.norm(grads.flat - expected.flat) < 0.02 * np.linalg.norm(expected.flat)


# How it is chosen, and what it refuses


def test_auto_takes_an_engine_that_can_and_says_so():
    ops, text = engines.choose("auto", dtype="bfloat16")
    assert ops.name == "cpp"
    assert "in bfloat16, " in text


@pytest.mark.parametrize("name", ["numpy", "numba"])
def test_an_engine_that_cannot_is_refused_with_one_that_can(name):
    with pytest.raises(
        InputError, match=rf"engine='{name}' does not compute in dtype='bfloat16'; choose from cpp"
    ):
        engines.create(name, dtype="bfloat16")


def test_an_unknown_precision_is_refused():
    with pytest.raises(InputError, match="dtype='float16' is not .*; use float32, bfloat16 or float64"):
        engines.create("auto", dtype="float16")


def test_other_numbers_of_16_bits_are_no_bfloat16():
    out = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="a is float16; it has to be float32"):
        _kernels.Engine("", 1, True).gemm(np.zeros((2, 2), np.float16), out, out.copy(), False)


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_a_loss_behind_its_product_refuses_what_does_not_fit(dtype):
    x, table, bias = (np.zeros(shape, np.float32) for shape in ((3, 4), (8, 4), 8))
    labels, nll, best, gradient = (
        np.zeros(3, np.int32),
        np.zeros(3, np.float32),
        np.zeros(3, np.int32),
        np.zeros((3, 9), dtype)[:, :8],
    )
    run = _kernels.Engine("", 1, True).linear_softmax_cross_entropy
    run(x, table.T, bias, labels, gradient, nll, best)
    assert np.allclose(nll, np.log(8))
    for change, complaint in (
        ({"labels": labels + 8}, "labels.0.=8 is outside"),
        ({"labels": labels[:2]}, "labels has 2 elements; 3 belong here"),
        ({"gradient": gradient[:, :7]}, "gradient has 7 columns; 8 belong here"),
        ({"gradient": gradient[:2]}, "gradient has 2 rows; 3 belong here"),
        ({"bias": bias[:7]}, "bias has 7 elements; 8 belong here"),
        ({"x": x[:, :3]}, "weight has 4 rows; 3 belong here"),
        ({"nll": nll[:2]}, "nll has 2 elements; 3 belong here"),
        ({"best": best.astype(np.int64)}, "best is int64"),
    ):
        given = dict(x=x, weight=table.T, bias=bias, labels=labels, gradient=gradient, nll=nll, best=best)
        with pytest.raises(ValueError, match=complaint):
            run(**given | change)
