"""The engine in C++: every instruction set, fused and not, on any number of threads; and what it refuses."""

import itertools
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from engines import holds_in_a_fork
from training_cases import LARGE, loss_and_gradients, losses_of_training, model_and_batch

from minibert import engines
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import SIZES, dropout_of
from minibert.core.ops import AdamRule
from minibert.engines.hardware import MOST_THREADS
from minibert.gradcheck.sheet import cases, proof_sheet
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise

cpp_ops = pytest.importorskip("minibert.engines.cpp.ops", reason="the kernels in C++ are not built")
from minibert.engines.cpp import _kernels  # noqa: E402

every_isa = pytest.mark.parametrize("isa", _kernels.available())
fused_or_not = pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])


counts_memory = pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")


def address_space():
    """Bytes that this process has asked the system for."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit_memory(more):
    """Let this process have that many bytes beside those that it has."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (address_space() + more, -1))


def loss_and_gradient(ops, config, parameters, batch):
    """Losses of every masked row, and the flat gradient, with dropout."""
    nll, grads = loss_and_gradients(ops, config, parameters, batch)
    return nll, grads.flat


def test_the_engine_says_which_instruction_set_it_uses_and_which_there_are():
    *_, slowest = sets = engines.instruction_sets()
    ops = cpp_ops.CppOps(isa=slowest)
    assert ops._details == f"instruction set {slowest} (available: {', '.join(sets)}), 1 thread"


# Right on every instruction set


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_every_operation_errs_at_most_twice_as_much_as_numpy_on_every_instruction_set(size):
    kinds = list(itertools.product(_kernels.available(), (True, False)))  # compared with NumPy in one go
    engines = [cpp_ops.CppOps(threads=2, isa=isa, fuse=fuse) for isa, fuse in kinds]
    rows = proof_sheet(engines, {size: SIZES[size]}, ["float32"])
    told = [kind for kind in kinds for _ in cases(SIZES[size])]  # engine by engine
    assert [pair for pair in zip(told, rows, strict=True) if pair[1].verdict != "ok"] == []


@every_isa
@pytest.mark.parametrize(
    "shape",
    [(0, 5, 3), (5, 0, 3), (5, 7, 0), (1, 1, 1), (61, 37, 24), (13, 33, 801), (29, 4200, 17), (400, 3, 9)],
)
def test_matrix_products_of_every_shape_and_layout(isa, shape):
    (M, N, K), rng = shape, np.random.default_rng(0)
    run = _kernels.Engine(isa, 2)
    for a_turned, b_turned, add in itertools.product([False, True], repeat=3):
        a = rng.standard_normal((K, M) if a_turned else (M, K)).astype(np.float32)
        b = rng.standard_normal((N, K) if b_turned else (K, N)).astype(np.float32)
        a, b = (a.T if a_turned else a), (b.T if b_turned else b)
        wide = rng.standard_normal((M, N + 3)).astype(np.float32)  # rows of the result stand apart
        bias = rng.standard_normal(N).astype(np.float32)
        product, beside = a.astype(np.float64) @ b, wide[:, N:].copy()
        expected = product + (wide[:, :N] if add else 0)
        # Higham's bound for a sum of K products and one more term, in any order: K + 1 roundings.
        bound = (K + 1) * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(wide[:, :N]) + np.abs(bias))
        run.gemm(a, b, wide[:, :N], add)
        assert (np.abs(wide[:, :N] - expected) <= bound).all()
        assert np.array_equal(wide[:, N:], beside)
        run.linear(a, b, bias, wide[:, :N])
        assert (np.abs(wide[:, :N] - (product + bias)) <= bound).all()


@every_isa
@fused_or_not
def test_bits_do_not_depend_on_the_number_of_threads(isa, fuse):
    model = model_and_batch(LARGE)
    nll, grads = loss_and_gradient(cpp_ops.CppOps(threads=1, isa=isa, fuse=fuse), *model)
    for threads in (2, 3):  # more than there are cores, perhaps
        others = loss_and_gradient(cpp_ops.CppOps(threads=threads, isa=isa, fuse=fuse), *model)
        assert np.array_equal(others[0], nll)
        assert np.array_equal(others[1], grads)


@pytest.mark.slow
@fused_or_not
def test_training_stays_as_close_to_numpy_as_float32_allows(fuse):
    """200 steps with dropout from one seed.

    Rounding grows from step to step by the dynamics of training, whoever rounds. How far it takes NumPy's own
    float32 from float64 is the measure: the engine may be twice as far from float64, hence three times as far
    from NumPy's float32 (here it is about as far as NumPy).
    """
    exact, single = losses_of_training(Ops(), np.float64), losses_of_training(Ops())
    found = losses_of_training(cpp_ops.CppOps(threads=2, fuse=fuse))
    assert exact[-8:].mean() < exact[:8].mean() - 1  # it does learn
    noise = np.abs(single - exact).max()
    assert 0 < noise < 1e-3
    assert np.abs(found - single).max() <= 3 * noise


# What goes on around it


def test_accumulators_are_zero_in_every_step():
    ops, (_, params, _) = cpp_ops.CppOps(threads=2), model_and_batch(SIZES["ugly"])
    rule, own, others = AdamRule(lr=1e-3, step=1), np.ones_like(params.flat), np.ones_like(params.flat)
    for names, grads, updates in [
        (params, own, True),
        (params, own, False),
        (params, own, True),
        (params, others, True),
        (params, others, False),
    ] * 2:
        ops.zero(grads)
        assert not grads.any()
        grads[:] = 1
        if updates:
            buffers = names.flat.copy(), grads, np.zeros_like(grads), np.ones_like(grads)
            ops.adamw(*buffers, names.decayed, rule)


def test_gradients_that_are_not_the_engine_s_own_are_only_read_by_an_update():
    n, rule = 1000, AdamRule(lr=1e-3, step=1)
    params, m, v = (np.full(n, x, np.float32) for x in (1, 0, 0))
    grads = np.ones(n, np.float32)
    cpp_ops.CppOps().adamw(params, grads, m, v, np.zeros((0, 2), np.int64), rule)
    assert (grads == 1).all() and (params < 1).all()


@every_isa
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_below_the_normal_ones_are_zero_to_kernels_and_to_nobody_else(isa, threads):
    run, n = _kernels.Engine(isa, threads), 1 << 16
    tiny = np.full(n, 1e-40, np.float32)
    params, m, v = np.ones(n, np.float32), tiny.copy(), tiny.copy()
    nothing = np.empty((0, 2), np.int64)
    run.adamw(params, np.zeros(n, np.float32), m, v, nothing, 1e-4, 0.9, 0.999, 1e-6, 0.01, 1.0, 1.0, 1.0)
    assert not m.any() and not v.any() and (params == 1).all()
    assert (tiny * np.float32(1) == tiny).all() and tiny.any()  # this thread's own arithmetic is as before


def test_two_models_in_one_process_keep_apart():
    ops, one, other = cpp_ops.CppOps(threads=2), model_and_batch(LARGE), model_and_batch(SIZES["ugly"], 1)
    expected = [loss_and_gradient(ops, *one)[1], loss_and_gradient(ops, *other)[1]]
    kept = []
    for config, parameters, batch in (one, other):
        _, saved = bert.pretraining_loss(ops, config, parameters.tree, batch, dropout_of(ops, batch))
        kept.append((config, saved, parameters, parameters.zeros_like()))
    for config, saved, parameters, grads in kept:
        bert.pretraining_loss_backward(ops, config, saved, parameters.tree, grads.tree)
    for (*_, grads), alone in zip(kept, expected, strict=True):
        assert np.array_equal(grads.flat, alone)


def test_memory_of_an_array_is_not_handed_out_while_it_is_in_use():
    shapes = [(700, 91), (64, 1024), (3, 70_000)]
    arrays = [_kernels.empty(shape) for shape in shapes * 3]
    for number, array in enumerate(arrays):
        array.fill(number)
    del arrays[1:8:2]
    more = [_kernels.empty(shape) for shape in shapes * 2]
    for array in more:
        array.fill(-1)
    view = arrays[0][1:, ::2]
    del arrays[0]
    _kernels.empty((700, 91)).fill(-2)
    assert (view == 0).all()
    assert [np.unique(array).tolist() for array in arrays] == [[2], [4], [6], [8]]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("shape", [(3 * 2**60,), (3 * 2**61,), (2**63 - 1,), (2**31, 2**32 + 1)])
def test_an_array_larger_than_any_memory_is_an_error(shape, narrow):
    with pytest.raises((ValueError, MemoryError)):
        _kernels.empty(shape, narrow)


def test_a_forked_child_computes_with_threads_of_its_own():
    ops, model = cpp_ops.CppOps(threads=2), model_and_batch(LARGE)
    expected = loss_and_gradient(ops, *model)[1]
    assert holds_in_a_fork(lambda: np.array_equal(loss_and_gradient(ops, *model)[1], expected))
    assert np.array_equal(loss_and_gradient(ops, *model)[1], expected)


@counts_memory
def test_memory_that_was_refused_does_not_count_as_used():
    def bounded():
        with pytest.raises(MemoryError):
            _kernels.empty((2**60,))
        before = address_space()
        for n in range(20, 40):  # one after the other
            _kernels.empty((n << 20,))
        return address_space() - before < 2 * (40 << 22)

    assert holds_in_a_fork(bounded)


def test_where_memory_ends_the_error_has_no_text_but_those_of_its_readers():
    with pytest.raises(MemoryError, match="^$"):
        _kernels.empty((2**60,))


@counts_memory
def test_what_is_kept_of_other_sizes_goes_before_there_is_no_memory():
    def found():
        _kernels.release()
        arrays = [_kernels.empty((n << 20,)) for n in (20, 30, 40, 50)]
        limit_memory(1 << 24)
        arrays.clear()  # 560 MB, of which 200 could be kept beside 400 and stay within a quarter above 560
        return _kernels.empty((100 << 20,)).shape == (100 << 20,)

    assert holds_in_a_fork(found)


@counts_memory
def test_a_system_that_refuses_threads_gets_the_same_from_fewer():
    x = np.linspace(-4, 4, 700 * 300, dtype=np.float32).reshape(700, 300)
    expected, _ = cpp_ops.CppOps(threads=1).gelu(x, "erf")

    def refused():
        limit_memory(1 << 28)  # the stacks of some thirty threads
        return np.array_equal(cpp_ops.CppOps(threads=500).gelu(x, "erf")[0], expected)

    assert holds_in_a_fork(refused)


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
    ops, reference = cpp_ops.CppOps(threads=2), Ops()
    (nll, grads), (_, expected) = (loss_and_gradient(o, config, parameters, batch) for o in (ops, reference))
    assert nll.shape == (0,)
    assert np.allclose(grads, expected, rtol=1e-4, atol=1e-6)


# Bad input


def unaligned(x):
    """A copy whose elements begin between two multiples of their size, as in a file that is read as it is."""
    copy = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def in_records(x):
    """A copy whose elements lie five bytes apart."""
    copy = np.zeros(x.shape, [("number", x.dtype), ("flag", np.uint8)])["number"]
    copy[...] = x
    return copy


def test_other_layouts_and_precisions_give_the_reference_s_results():
    ops, reference, rng = cpp_ops.CppOps(), Ops(), np.random.default_rng(0)
    x = rng.standard_normal((6, 8)).astype(np.float32)
    views = x[::2], x[:, ::2], x.T, x[::-1], np.asfortranarray(x), unaligned(x), in_records(x)
    for one in (*views, x.astype(np.float64), x + 0j):
        n = one.shape[1]
        found, _ = ops.layer_norm(one, np.ones(n, one.dtype), np.zeros(n, one.dtype), 1e-12)
        expected, _ = reference.layer_norm(one, np.ones(n, one.dtype), np.zeros(n, one.dtype), 1e-12)
        assert found.dtype == expected.dtype
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
        weight = rng.standard_normal((n, 3)).astype(one.dtype)
        y, saved = ops.linear(one, weight, np.zeros(3, one.dtype))
        assert np.allclose(y, one @ weight, rtol=1e-5, atol=1e-5)
        dx, *_ = ops.linear_backward(np.ones_like(y), saved)
        assert np.allclose(dx, np.ones_like(y) @ weight.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("moved", [unaligned, in_records])
def test_numbers_that_are_not_aligned_give_the_reference_s_results(moved):
    ops, reference, rng = cpp_ops.CppOps(), Ops(), np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 6, 8)).astype(np.float32)
    ids, labels = moved(np.array([3, 0, 3], np.int32)), moved(np.arange(6, dtype=np.int32))
    for name, given, form in [
        ("gelu", (x,), ["erf"]),
        ("softmax_cross_entropy", (x, labels), []),
        ("attention", (x[:, None],) * 3 + (np.array([0, 2, 6], np.int32),), []),
    ]:
        given = [moved(given[0]), *given[1:]]
        results = []
        for engine in (ops, reference):
            y, saved = getattr(engine, name)(*given, *form)
            upstream = moved(np.resize(dy, y.shape))
            gradients = getattr(engine, f"{name}_backward")(upstream, saved, *form)
            results.append([y, *(gradients if isinstance(gradients, tuple) else [gradients])])
        for found, expected in zip(*results, strict=True):
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-6), name
    table = x.copy()
    assert np.array_equal(ops.embedding(ids, moved(table))[0], table[[3, 0, 3]])
    found, expected = (one.scatter_add(table.copy(), ids, moved(dy[:3])) for one in (ops, reference))
    assert np.allclose(found, expected, rtol=1e-6)
    assert ops.global_norm(moved(x).reshape(-1)) == pytest.approx(np.linalg.norm(x), rel=1e-6)


def test_a_gradient_that_is_not_aligned_is_copied():
    ops, x = cpp_ops.CppOps(), np.linspace(-3, 3, 48, dtype=np.float32).reshape(6, 8)
    _, saved = ops.gelu(x, "erf")
    assert np.array_equal(ops.gelu_backward(unaligned(x), saved, "erf"), ops.gelu_backward(x, saved, "erf"))


@pytest.mark.parametrize(("A", "D"), list(itertools.product((1, 2, 3), repeat=2)))
def test_attention_of_any_layout_is_that_of_a_copy_in_one_piece(A, D):
    ops, rng, borders = cpp_ops.CppOps(), np.random.default_rng(0), np.array([0, 2, 5], np.int32)
    whole = rng.standard_normal((5, 2 * A, 2 * D)).astype(np.float32)
    turned = np.ascontiguousarray(whole.transpose(2, 1, 0)).transpose(2, 1, 0)
    for x in (whole[:, :A, :D], whole[:, ::2, ::2], whole[:, :A, ::2], whole[:, ::2, :D], turned[:, :A, :D]):
        copy = np.ascontiguousarray(x)
        found, saved = ops.attention(x, copy, x, borders)
        expected, same = ops.attention(copy, copy, copy, borders)
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
        gradients = ops.attention_backward(x, saved), ops.attention_backward(copy, same)
        assert all(np.allclose(dx, dy, rtol=1e-4, atol=1e-6) for dx, dy in zip(*gradients, strict=True))


def test_ids_out_of_range_are_an_error_that_names_them():
    ops = cpp_ops.CppOps()
    table = np.zeros((5, 4), np.float32)
    for bad in (-1, 5, 2**31 - 1):
        with pytest.raises(ValueError, match=rf"ids\[1\]={bad} is outside 0\.\.4"):
            ops.embedding(np.array([0, bad], np.int32), table)
        with pytest.raises(ValueError, match=rf"ids\[0\]={bad}"):
            ops.scatter_add(table, np.array([bad], np.int32), table[:1])
        with pytest.raises(ValueError, match=rf"labels\[0\]={bad}"):
            ops.softmax_cross_entropy(table[:1], np.array([bad], np.int32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": np.zeros((2, 3))}, "a is float64; it has to be float32"),
        ({"a": np.zeros((3, 3), np.float32)}, "out has 2 rows; 3 belong here"),
        ({"b": np.zeros(3, np.float32)}, r"b has shape \(3,\); it has to have 2 dimensions"),
        ({"b": np.zeros((4, 4), np.float32)}, "b has 4 rows; 3 belong here"),
        ({"out": np.zeros((4, 2), np.float32).T}, "out has rows that are not in one piece"),
        ({"out": np.zeros((2, 5), np.float32)}, "out has 5 columns; 4 belong here"),
        ({"a": np.frombuffer(bytes(25), np.float32, 6, 1).reshape(2, 3)}, "a is not aligned"),
    ],
)
def test_what_a_kernel_cannot_take_is_an_error_that_names_it(change, message):
    run = _kernels.Engine("", 1)
    arguments = {"a": (2, 3), "b": (3, 4), "out": (2, 4)}
    arguments = {name: np.zeros(shape, np.float32) for name, shape in arguments.items()} | change
    with pytest.raises(ValueError, match=message):
        run.gemm(**arguments, add=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run, x: run.linear(x, x, 3, x.copy()), "bias is 3; it has to be an array"),
        (lambda run, x: run.dropout(x, x.copy(), (x, None)), "drop is .*; it has to be"),
        (lambda run, x: run.dropout(x, x.copy(), ()), "drop is empty"),
    ],
)
def test_what_is_no_array_is_an_error_that_names_it(call, message):
    with pytest.raises(ValueError, match=message):
        call(_kernels.Engine("", 1), np.zeros((2, 2), np.float32))


def test_a_gradient_of_another_shape_is_refused_though_it_has_as_many_elements():
    ops, x = cpp_ops.CppOps(), np.ones((4, 6), np.float32)
    for dy in (np.ones((6, 4), np.float32), np.ones(24, np.float32)):
        for backward in (
            lambda dy: ops.gelu_backward(dy, ops.gelu(x, "erf")[1], "erf"),
            lambda dy: ops.tanh_backward(dy, ops.tanh(x)[1]),
        ):
            with pytest.raises(ValueError, match=r"dy has shape \(.*\); \(4, 6\) belongs here"):
                backward(dy)


@pytest.mark.parametrize("threads", [0, MOST_THREADS + 1, 2**29])
def test_numbers_of_threads_that_make_no_sense_are_refused(threads):
    most = MOST_THREADS
    with pytest.raises(InputError, match=f"threads={threads} is not a number from 1 to {most}"):
        cpp_ops.CppOps(threads=threads)
    assert cpp_ops.CppOps(threads=most)._run.threads == most


def test_read_only_results_are_refused():
    a = np.zeros((2, 2), np.float32)
    out = a.copy()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        _kernels.Engine("", 1).gemm(a, a, out, False)


def test_a_prepacked_matrix_has_to_be_read_only():
    with pytest.raises(ValueError, match="weight is writeable; what is kept may not change"):
        cpp_ops.CppOps().prepack(np.zeros((2, 2), np.float32))


def test_a_prepacked_matrix_is_not_confused_with_its_parts_or_transpose():
    """They begin at the same place in memory."""
    run, x = _kernels.Engine("", 1), np.eye(70, dtype=np.float32)
    weight = np.arange(70 * 70, dtype=np.float32).reshape(70, 70)
    weight.flags.writeable = False
    run.keep(weight)
    for one in (weight, weight[:, :7], weight.T, weight[:70:1], weight.T[:, :9]):
        out = np.empty(one.shape, np.float32)
        run.gemm(x, one, out, False)
        np.testing.assert_array_equal(out, one)


@pytest.mark.parametrize("borders", [[0, 3], [1, 4], [0, 3, 2, 4], []])
def test_borders_of_sequences_that_make_no_sense_are_refused(borders):
    q = np.zeros((4, 1, 2), np.float32)
    with pytest.raises(ValueError, match="cu_seqlens"):
        cpp_ops.CppOps().attention(q, q, q, np.array(borders, np.int32))


@pytest.mark.parametrize(
    ("queries", "causal", "message"),
    [
        ([0, 2, 1, 2], False, "queries falls at sequence 1"),
        ([0, 1, 1, 3], False, "queries does not go from 0 to the 2 tokens there are"),
        ([0, 1, 2], False, "queries has 3 elements; 4 belong here"),
        ([0, 1, 2, 2], False, "queries has some in sequence 1, which has no tokens to look at"),
        ([0, 1, 1, 2], True, "queries goes with attention in both directions only"),
        (None, False, "k has 5 tokens; 2 belong here"),
    ],
)
def test_queries_of_some_tokens_have_borders_that_make_sense(queries, causal, message):
    run, k, q = _kernels.Engine("", 1), np.zeros((5, 1, 2), np.float32), np.zeros((2, 1, 2), np.float32)
    borders, queries = np.array([0, 2, 2, 5], np.int32), queries and np.array(queries, np.int32)
    with pytest.raises(ValueError, match=message):
        run.attention(q, k, k, borders, causal, (), q.copy(), np.zeros((2, 2), np.float32), queries)


# How it is chosen


def test_auto_takes_it_and_says_so():
    ops, text = engines.choose("auto")
    assert ops.name == "cpp"
    assert text.startswith("cpp: kernels in C++ for float32")
    assert _kernels.available()[0] in text


def test_an_engine_can_be_made_for_another_instruction_set(monkeypatch):
    monkeypatch.setenv("MINIBERT_ISA", _kernels.available()[0])
    assert cpp_ops.CppOps(isa="portable")._run.isa == "portable"  # whatever the environment says
    with pytest.raises(InputError, match="isa='mmx' can't be run here; choose from .*portable"):
        cpp_ops.CppOps(isa="mmx")


def test_without_its_extension_auto_says_why_it_takes_another(monkeypatch):
    monkeypatch.setitem(sys.modules, "minibert.engines.cpp._kernels", None)
    for name in ("ops", "primitives"):
        monkeypatch.delitem(sys.modules, f"minibert.engines.cpp.{name}")
    for name in ("_kernels", "ops", "primitives"):
        monkeypatch.delattr(engines.cpp, name)
    with pytest.raises(InputError, match=r"engine='cpp' is not installed.*install a C\+\+ compiler"):
        engines.create("cpp")
    ops, text = engines.choose("auto")
    assert ops.name != "cpp"
    assert "engine='cpp' is not installed" in text
    assert text.endswith(", then reinstall minibert")  # the stop is its user's: "Engine numba: ….", not "….."


def test_parameters_of_a_model_are_where_gradients_are_added():
    """Weight gradients go straight into the flat buffer; the arrays that come back are views of it."""
    config, parameters, batch = model_and_batch(SIZES["ugly"])
    ops, grads = cpp_ops.CppOps(), Parameters(config)
    _, saved = bert.pretraining_loss(ops, config, parameters.tree, batch, dropout_of(ops, batch))
    tree = bert.pretraining_loss_backward(ops, config, saved, parameters.tree, grads.tree)
    assert np.shares_memory(tree["layers"][1]["feed_forward"]["in_weight"], grads.flat)
    assert np.shares_memory(tree["embeddings"]["word"], grads.flat)
