"""The JAX engine computes what the reference does, compiled, over rows; and JAX's own derivative agrees.

Arguments and the number of the step are traced, so nothing can have branched on a value. The training loop on
it has a file of its own: test_training.py.
"""

import dataclasses
import functools

import numpy as np
import pytest
from marks import seldom
from planted import plant

from minibert.core.gradcheck.cases import SIZES, Size, config_of, in_general_position, random_batch
from minibert.core.gradcheck.complex_step import distance, engine_gradients, upstream, worst
from minibert.core.ops import dropout_bits
from minibert.core.params import nest
from minibert.gradcheck.drawn import random_parameters, random_task_batch
from minibert.gradcheck.sheet import cases, check
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.ops import Ops
from minibert.model.params import Head
from minibert.pretraining.evaluation import score

jax = pytest.importorskip("jax")
jnp = jax.numpy

from minibert.engines.jax import attention as jax_attention, ops as jax_ops, rows as jax_rows  # noqa: E402
from minibert.engines.jax.ops import CHUNK, JaxGeluSaved, JaxOps  # noqa: E402
from minibert.finetuning.frozen.feature_tagger import batch_scores  # noqa: E402
from minibert.tasks.batches import batch_outputs  # noqa: E402

# Over flat tokens every length in an attention and every step of an LSTM is compiled by itself: they are few.
SHORT = Size((1, 2, 5, 5), H=24, A=3, F=37, V=99, M=4)
LEFT_OUT = ("bilstm_block", "attention_block", "attention causal")  # what is there with dropout as well
PARTS = {
    case.label: case
    for case in cases(SHORT)
    if not case.operation.endswith("_loss") and case.label not in LEFT_OUT
}
# Losses lay their batch out as rows. A compilation takes seconds, so of each kind there are only some.
LOSSES = [
    "pretraining_loss dropout",
    "pretraining_loss M=0 dropout",
    "head_loss classify causal dropout",
    "head_loss regress",
    "head_loss multilabel",
    "head_loss choice causal dropout",
    "head_loss span sum dropout",
    "head_loss tag causal LSTM dropout",
    "head_loss tag no rows dropout",
    "head_loss classify mean windows dropout",
    "head_loss regress attention windows",
    "head_loss cosine dropout",
    "head_loss contrastive dropout",
]
CASES = PARTS | {case.label: case for case in cases(SIZES["ugly"]) if case.label in LOSSES}
# The others wait for `make test-all`.
SELDOM = {
    *LOSSES[1:],
    *("attention_block some rows dropout", "attention_block causal dropout", "attention causal dropout"),
    *("bilstm_block dropout", "lstm reverse", "masked_lm_head M=1", "layers", "feed_forward_block"),
    "attention",
}
OFTEN = [label for label in CASES if label not in SELDOM]
FLOAT32 = ["pretraining_loss dropout", "head_loss span sum dropout", "head_loss tag causal LSTM dropout"]
QUICK = {"xla_backend_optimization_level": 0}  # compiles in half the time

EXACT, DERIVED = 1e-12, 1e-10  # distance of float64 from NumPy, and of JAX's own derivative


@pytest.fixture(autouse=True)
def double_precision():
    """64 bits, which JAX wants to be asked for."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


# Operations, blocks and losses.


@pytest.mark.representatives(label=["layer_norm", "head_loss classify"])
@pytest.mark.parametrize("label", seldom(CASES, *OFTEN))
def test_forward_and_backward_in_one_jit_equal_numpy_and_jax_s_own_derivative(label):
    by_hand, derived = errors(JaxOps("float64"), CASES[label])
    assert by_hand <= EXACT
    assert derived <= DERIVED


# Over flat tokens the reference keeps, over rows the engine does.
@pytest.mark.slow
@pytest.mark.parametrize("label", ["attention dropout", "lstm reverse", "head_loss span sum dropout"])
def test_a_field_too_many_in_what_the_reference_keeps_misleads_no_backward(label, monkeypatch):
    plant(monkeypatch)
    by_hand, _ = errors(JaxOps("float64"), CASES[label], derive=False)
    assert by_hand <= EXACT


@pytest.mark.thorough
def test_the_factor_of_dropout_is_not_rounded_to_8_bits():
    jax.config.update("jax_enable_x64", False)
    ops, ones = JaxOps("bfloat16"), jnp.ones((64, 48), jnp.bfloat16)
    drop = dropout_bits.Dropout(
        0.1, 0.0, jnp.asarray(dropout_bits.row_keys(np, 0, 0, np.arange(64), np.arange(64)))
    )
    y, saved = ops._dropout(ones, drop, 2)
    factor = float(saved.mask.max())
    assert factor == pytest.approx(dropout_bits.kept_scale(0.1), rel=1e-6) and y.dtype == jnp.bfloat16
    assert ops._dropout_backward(ones, saved).dtype == jnp.bfloat16
    kept = dropout_bits.keep(
        np, dropout_bits.fold(np, np.asarray(drop.rows), *dropout_bits.words(np, 2)), 48, 0.1
    )
    np.testing.assert_array_equal(np.asarray(y, np.float32) > 0, kept)


@pytest.mark.slow
def test_entries_behind_the_vocabulary_which_a_gpu_wants_change_nothing(monkeypatch):
    monkeypatch.setitem(jax_ops.MULTIPLES, "cpu", 128)
    assert SIZES["ugly"].V % 128
    by_hand, derived = errors(JaxOps("float64"), CASES["pretraining_loss dropout"])
    assert by_hand <= EXACT and derived <= DERIVED


def errors(ops, case, derive=True):
    """Distance from NumPy of the result and the gradients by hand, and of JAX's own derivative if wanted."""
    u = upstream(case, np.random.default_rng(0))

    def whole(arguments, u):
        derivative = {}
        if derive:
            derivative = jax.grad(lambda moved: (u * forward(ops, case, moved)[0]).sum())(arguments)
        y, saved = forward(ops, case, arguments)
        params = nest({name: arguments[name] for name in case.params})
        fresh, totals = case.backward(ops, u, saved, params, jax.tree.map(jnp.zeros_like, params))
        fresh = fresh if isinstance(fresh, tuple) else (fresh,)
        return y, dict(zip(case.inputs, fresh, strict=True)) | dict(leaves(totals)), derivative

    y, gradients, derivative = jax.jit(whole, compiler_options=QUICK)(case.arguments, u)
    expected = engine_gradients(Ops(), case, case.arguments, u)
    assert gradients.keys() == expected.keys()
    assert {name: one.shape for name, one in gradients.items()} == {
        n: one.shape for n, one in expected.items()
    }

    def away(found):
        return [distance(found[n], one, float(n in case.unseen)) for n, one in expected.items()]

    value = distance(y, forward(Ops(), case, case.arguments)[0])
    return worst([value, *away(gradients)]), worst(away(derivative)) if derive else None


def forward(ops, case, arguments):
    """The case's result and what it saved."""
    inputs = {name: arguments[name] for name in case.inputs}
    return case.forward(ops, inputs, nest({name: arguments[name] for name in case.params}))


def leaves(tree, path=""):
    """Arrays of a nested tree with their dotted names."""
    if isinstance(tree, dict | list):
        children = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, child in children:
            yield from leaves(child, f"{path}.{name}" if path else str(name))
    else:
        yield path, tree


@pytest.mark.slow
@pytest.mark.parametrize("label", FLOAT32)
def test_float32_errs_no_more_than_its_rounding(label):
    jax.config.update("jax_enable_x64", False)  # as in training
    [row] = check([JaxOps("float32")], in_one_jit(CASES[label]), "float32")
    assert row.verdict == "ok", row
    assert row.error >= 1e-9  # it was float32 indeed


@pytest.mark.slow
@pytest.mark.parametrize("label", [FLOAT32[0], FLOAT32[2]])
def test_bfloat16_computes_narrow_rows_and_gives_losses_and_gradients_of_float32(label):
    jax.config.update("jax_enable_x64", False)
    case = CASES[label]
    low = {name: one.astype(np.float32) for name, one in case.arguments.items()}
    narrow = in_one_jit(case)
    y, saved = forward(JaxOps("bfloat16"), narrow, low)
    zeros = nest({name: np.zeros_like(one) for name, one in low.items()})
    _, totals = narrow.backward(JaxOps("bfloat16"), np.float32(1), saved, nest(low), zeros)
    found, expected = dict(leaves(totals)), engine_gradients(Ops(), case, case.arguments, np.ones(()))
    assert {one.dtype for one in (y, *found.values())} == {np.dtype("float32")}
    away = distance(*(np.concatenate([np.ravel(one[name]) for name in low]) for one in (found, expected)))
    assert 1e-3 < away < 0.1  # 8 bits, a dozen times forward and back
    assert float(y) == pytest.approx(float(forward(Ops(), case, case.arguments)[0]), rel=2.0**-7)


def test_products_in_float32_are_asked_for_at_full_precision():
    jax.config.update("jax_enable_x64", False)  # as in training

    def both(x, weight, bias):
        y, saved = JaxOps("float32").linear(x, weight, bias)
        return JaxOps("float32").linear_backward(y, saved)

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((3, 4), (4, 5), (5,))]
    text = jax.jit(both).lower(*shapes).as_text()
    # A GPU would otherwise round the operands to ten bits.
    assert text.count("dot_general") == text.count("precision = [HIGHEST, HIGHEST]") == 3


def test_no_sum_of_the_norm_is_longer_than_a_chunk():
    # XLA cuts long sums itself on a CPU: only what it is asked for can be looked at here.
    asked = jax.make_jaxpr(JaxOps().global_norm)(jnp.ones(3 * CHUNK + 5, "float32")).eqns
    sums = [one for one in asked if one.primitive.name == "reduce_sum"]
    assert max(one.invars[0].aval.size // one.outvars[0].aval.size for one in sums) == CHUNK


def barriers(function, *arrays):
    """How often XLA is kept from seeing that something is computed again."""
    return str(jax.make_jaxpr(function)(*arrays)).count("optimization_barrier")


def test_what_is_computed_again_is_not_kept_after_all():
    ops, x = JaxOps(recompute=True), jnp.ones(3)
    assert barriers(lambda x: ops.gelu_backward(x, JaxGeluSaved(x), "erf"), x) == 1

    def there_and_back(x):
        layers = [{"weight": x}, {"weight": 2 * x}]
        y, saved = ops.layers(lambda x, one, number: (x * one["weight"], x), layers, x)
        return ops.layers_backward(
            lambda dy, x, one, grads: (dy * one["weight"], grads), y, saved, layers, layers
        )

    assert barriers(there_and_back, x) == 2


def eight_bits(x):
    """The nearest bfloat16 numbers, as they are."""
    return np.asarray(x).astype(jnp.bfloat16).astype(np.asarray(x).dtype)


class Rounded(Ops):
    """NumPy that rounds the operands of products, and what is narrow between sublayers, to bfloat16."""

    def linear(self, x, weight, bias):
        y, saved = super().linear(x, eight_bits(weight), bias)
        return eight_bits(y), saved

    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        return eight_bits(dx), dweight, dbias

    def gelu(self, x, form):
        y, saved = super().gelu(x, form)
        return eight_bits(y), saved

    def gelu_backward(self, dy, saved, form):
        return eight_bits(super().gelu_backward(dy, saved, form))

    def layer_norm(self, x, gamma, beta, eps):
        y, saved = super().layer_norm(x, gamma, beta, eps)
        return eight_bits(y), saved

    def layer_norm_backward(self, dy, saved):
        dx, dgamma, dbeta = super().layer_norm_backward(dy, saved)
        return eight_bits(dx), dgamma, dbeta

    def attention(self, q, k, v, borders):
        y, saved = super().attention(q, k, v, borders)
        return eight_bits(y), saved

    def attention_backward(self, dy, saved):
        return tuple(map(eight_bits, super().attention_backward(dy, saved)))


class RowsOfOne(JaxOps):
    """Attention over rows, on tokens that are one sequence."""

    def attention(self, q, k, v, borders):
        plan = jax_attention.Plan(False, 0.0, "plain")
        y, saved = jax_attention.forward(plan, q[None], k[None], v[None], jnp.diff(borders), None)
        return y[0], (plan, saved)

    def attention_backward(self, dy, saved):
        plan, kept = saved
        return tuple(one[0] for one in jax_attention.backward(plan, dy[None], kept))


# What goes in: narrow arrays, then wide ones. A mean of 4 and scores of about 8 need wide statistics.
NARROW = {
    "linear": lambda draw: ([draw(64, 24), draw(64, 37)], [draw(24, 37), draw(37)]),
    "layer_norm": lambda draw: ([4 + draw(64, 24), draw(64, 24)], [draw(24), draw(24), 1e-12]),
    "gelu": lambda draw: ([3 * draw(64, 24), draw(64, 24)], ["erf"]),
    "attention": lambda draw: ([3 * draw(32, 3, 8), 3 * draw(32, 3, 8), draw(32, 3, 8), draw(32, 3, 8)], []),
}


@pytest.mark.representatives(operation="layer_norm")
@pytest.mark.parametrize("operation", NARROW)
def test_an_operation_in_bfloat16_errs_at_most_twice_as_much_as_numpy_that_rounds(operation):
    jax.config.update("jax_enable_x64", False)
    rng = np.random.default_rng(0)
    narrow, wide = NARROW[operation](lambda *shape: rng.standard_normal(shape, np.float32))
    narrow = [eight_bits(one) for one in narrow]

    def results(ops, dtype, exact):
        *inputs, dy = (one.astype(dtype) for one in narrow)
        rest = [one.astype(exact) if isinstance(one, np.ndarray) else one for one in wide]
        rest += [np.array([0, len(dy)])] if operation == "attention" else []
        y, saved = getattr(ops, operation)(*inputs, *rest)
        form = rest if operation == "gelu" else []
        gradients = getattr(ops, f"{operation}_backward")(dy, saved, *form)
        return [y, *(gradients if isinstance(gradients, tuple) else (gradients,))]

    found = results(RowsOfOne("bfloat16"), jnp.bfloat16, np.float32)
    least = results(Rounded(), np.float32, np.float32)
    for one, rounded, true in zip(found, least, results(Ops(), np.float64, np.float64), strict=True):
        error, allowed = (np.linalg.norm(np.float64(other) - true) for other in (one, rounded))
        assert error <= 2 * allowed + 1e-6 * np.linalg.norm(true)


def in_one_jit(case):
    """A loss whose forward and backward the JAX engine compiles together."""

    @functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def whole(ops, params, u):
        y, saved = case.forward(ops, {}, params)
        return y, case.backward(ops, u, saved, params, jax.tree.map(jnp.zeros_like, params))

    def forward(ops, inputs, params):
        if not isinstance(ops, JaxOps):
            return case.forward(ops, inputs, params)
        return whole(ops, params, np.float32(1))[0], ()

    def backward(ops, u, saved, params, grads):
        if not isinstance(ops, JaxOps):
            return case.backward(ops, u, saved, params, grads)
        fresh, totals = whole(ops, params, u)[1]
        return fresh, jax.tree.map(np.add, grads, totals)

    return case._replace(forward=forward, backward=backward)


def test_branch_on_a_value_does_not_compile():
    class Branching(JaxOps):
        def tanh(self, x):
            return super().tanh(x if x.sum() > 0 else -x)

    with pytest.raises(jax.errors.TracerBoolConversionError):
        errors(Branching("float64"), CASES["tanh"])


class OverwritesRows(JaxOps):
    def scatter_add(self, total, ids, rows):
        return total.at[ids].set(rows)


class LooksAtPads(JaxOps):
    def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
        full = cu_seqlens._replace(lengths=jnp.full_like(cu_seqlens.lengths, len(cu_seqlens.columns)))
        return super().attention(q, k, v, full, causal, drop, site)


class ReadsPadsFirst(JaxOps):
    def lstm(self, x, w_in, w_state, bias, cu_seqlens, reverse=False):
        full = cu_seqlens._replace(lengths=jnp.full_like(cu_seqlens.lengths, len(cu_seqlens.columns)))
        return super().lstm(x, w_in, w_state, bias, full, reverse)


class ForgetsTheSegment(JaxOps):
    def segment_softmax_cross_entropy(self, scores, cu_seqlens, labels):
        full = cu_seqlens._replace(lengths=jnp.full_like(cu_seqlens.lengths, len(cu_seqlens.columns)))
        return super().segment_softmax_cross_entropy(scores, full, labels)


class DrawsByTheRow(JaxOps):
    def dropout(self, batch, rate, attention_rate, seed, step):
        numbers = jnp.arange(len(batch.lengths), dtype=jnp.uint32)[::-1]
        renumbered = dataclasses.replace(batch, sequence_index=numbers)
        return super().dropout(renumbered, rate, attention_rate, seed, step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "label"),
    [
        (OverwritesRows, "take_rows"),
        (LooksAtPads, "head_loss regress"),
        (ReadsPadsFirst, "head_loss tag causal LSTM dropout"),
        (ForgetsTheSegment, "head_loss span sum dropout"),
        (DrawsByTheRow, "head_loss choice causal dropout"),
    ],
)
def test_planted_fault_is_found(engine, label):
    by_hand, _ = errors(engine("float64"), CASES[label], derive=False)
    assert by_hand > 1e-4


class HalvesAGradient(JaxOps):
    def tanh_backward(self, dy, saved):
        return super().tanh_backward(dy, saved) / 2


class GivesNoNumber(JaxOps):
    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        return dx, dweight, jnp.nan * dbias


def test_a_gradient_that_is_not_a_number_is_at_no_distance():
    by_hand, derived = errors(GivesNoNumber("float64"), CASES["linear"])
    assert np.isnan(by_hand)
    assert derived <= DERIVED


def test_wrong_backward_disagrees_with_numpy_and_with_a_right_derivative():
    by_hand, derived = errors(HalvesAGradient("float64"), CASES["pooler"])
    assert by_hand > 0.1
    assert derived <= DERIVED


# LSTMs over rows, with anything at the pads.


@pytest.mark.representatives(reverse=True)
@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_over_rows_is_the_reference_s_and_pads_neither_give_nor_take(reverse):
    rng, inputs, width, columns = np.random.default_rng(0), 5, 4, 8
    lengths = np.array([3, 1, 0, 8, 5])
    weights = (
        rng.standard_normal((inputs, 4 * width)),
        rng.standard_normal((width, 4 * width)),
        rng.random(16),
    )
    x = rng.standard_normal((len(lengths), columns, inputs))
    dy = rng.standard_normal((len(lengths), columns, width))
    real = np.arange(columns) < lengths[:, None]

    @jax.jit
    def over_rows(x, weights, lengths, dy):
        borders = jax_rows.Borders(lengths, jnp.arange(columns, dtype=jnp.int32))
        ops = JaxOps("float64")
        y, saved = ops.lstm(x, *weights, borders, reverse)
        return y, *ops.lstm_backward(dy, saved)

    flat = (one.reshape(len(lengths) * columns, -1) for one in (x, dy))
    y, dx, *found = over_rows(next(flat), weights, lengths, next(flat))
    cu_seqlens = np.cumsum([0, *lengths[lengths > 0]])
    expected_y, saved = Ops().lstm(x[real], *weights, cu_seqlens, reverse)
    expected_dx, *expected = Ops().lstm_backward(dy[real], saved)
    for one, right in ((y, expected_y), (dx, expected_dx)):
        one = np.asarray(one).reshape(*real.shape, -1)
        assert distance(one[real], right) <= EXACT
        assert (one[~real] == 0).all()
    for one, right in zip(found, expected, strict=True):
        assert distance(one, right) <= EXACT


@pytest.mark.slow
def test_tagger_over_rows_is_the_reference_s():
    rng = np.random.default_rng(0)
    config = bilstm.BilstmConfig(inputs=5, outputs=4, width=3, mixed=3)
    parameters = in_general_position(bilstm.BilstmParameters(config, dtype=np.float64), rng)
    lengths = (1, 7, 3, 9)
    batch = VectorBatch.pack_vectors(
        [rng.standard_normal((3, n, 5)) for n in lengths],
        [rng.integers(4, size=n) for n in lengths],
    )

    def loss_and_gradients(ops, params, batch):
        loss, saved = bilstm.loss(ops, config, params, batch, ops.dropout(batch, 0.3, 0.0, 1, 2))
        zeros = jax.tree.map(ops.xp.zeros_like, params)
        return loss.loss, bilstm.loss_backward(ops, config, saved, params, zeros)[1]

    ops = JaxOps("float64")
    found = ops.runtime.call(ops, loss_and_gradients, (), parameters.tree, ops.runtime.prepare(batch))
    expected = loss_and_gradients(Ops(), parameters.tree, batch)
    for one, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert distance(one, right) <= EXACT
    scores = batch_scores(ops, config, parameters.tree, batch)
    for one, right in zip(scores, batch_scores(Ops(), config, parameters.tree, batch), strict=True):
        assert distance(one, right) <= EXACT


# Rows.

UGLY = SIZES["ugly"]
LENGTHS = (UGLY.lengths, (1, 9))


def batches(head=None, masked=4):
    """One of each size, for pre-training or a head."""
    rng = np.random.default_rng(1)
    sizes = [UGLY._replace(lengths=lengths, M=min(masked, sum(lengths))) for lengths in LENGTHS]
    if head is None:
        return [random_batch(size, size.M, rng) for size in sizes]
    return [random_task_batch(size, head, rng) for size in sizes]


@pytest.mark.thorough
@pytest.mark.parametrize("masked", [0, 1, 4])
def test_what_rows_hold_comes_back_in_the_order_of_the_batch(masked):
    ops = JaxOps()
    for batch in batches(masked=masked):
        rows = ops.runtime.prepare(batch)
        for name in ("input_ids", "token_type_ids", "positions", "token_sequences"):
            assert np.array_equal(
                ops.runtime.in_order(getattr(rows, name), batch, "tokens"), getattr(batch, name)
            )
        for name in ("sequence_index", "next_sentence_labels", "next_sentence_weights", "lengths"):
            found = ops.runtime.in_order(getattr(rows, name), batch, "sequences")
            assert np.array_equal(found, getattr(batch, name).astype(found.dtype))
        for name in ("masked_labels", "masked_weights"):
            assert np.array_equal(
                ops.runtime.in_order(getattr(rows, name), batch, "masked"), getattr(batch, name)
            )
        ids = ops.runtime.in_order(rows.input_ids[rows.masked_rows], batch, "masked")
        assert np.array_equal(ids, batch.input_ids[batch.masked_rows])
        for name in ("first_rows", "last_rows"):
            ids = ops.runtime.in_order(rows.input_ids[getattr(rows, name)], batch, "sequences")
            assert np.array_equal(ids, batch.input_ids[getattr(batch, name)])
        assert rows.columns % jax_rows.COLUMNS == 0
        assert float(rows.masked_weights.sum()) == pytest.approx(batch.masked_weights.sum())
    tagged = random_task_batch(UGLY, Head("tag", 5), np.random.default_rng(0))
    rows = ops.runtime.prepare(tagged)
    for name in ("labels", "label_weights"):
        assert np.array_equal(
            ops.runtime.in_order(getattr(rows, name), tagged, "labels"), getattr(tagged, name)
        )
    ids = ops.runtime.in_order(rows.input_ids[rows.label_rows], tagged, "labels")
    assert np.array_equal(ids, tagged.input_ids[tagged.label_rows])


@pytest.mark.representatives(head=Head("choice", 1))
@pytest.mark.parametrize(
    ("head", "fields"),
    seldom(
        [
            (Head("classify", 3), {"is_decoder": True}),
            (Head("multilabel", 4), {}),
            (Head("regress", 1), {}),
            (Head("choice", 1), {}),
            (Head("span", 2), {}),
            (Head("tag", 5, lstm=True), {}),
            (Head("classify", 3, pool="max"), {}),
        ],
        (Head("choice", 1), {}),
    ),
)
def test_outputs_of_every_head_are_numpy_s_whatever_the_size_of_the_batch(head, fields):
    config = config_of(UGLY, num_hidden_layers=1, **fields)
    params = random_parameters(config, np.random.default_rng(0), head).tree
    ops = JaxOps("float64")
    for batch in batches(head):
        found, expected = (batch_outputs(one, config, head, params, batch) for one in (ops, Ops()))
        assert [one.shape for one in found] == [one.shape for one in expected]
        assert worst(map(distance, found, expected)) <= EXACT


@pytest.mark.thorough
def test_held_out_figures_are_numpy_s():
    config = config_of(UGLY, num_hidden_layers=1)
    params = random_parameters(config, np.random.default_rng(0)).tree
    held_out = batches()
    scores = [score(ops, config, params, held_out, None) for ops in (JaxOps("float64"), Ops())]
    found, expected = ({n: x for n, x in one.to_dict().items() if x is not None} for one in scores)
    assert {"loss", "unigram", "next_loss"} <= expected.keys()
    assert found == pytest.approx(expected, rel=1e-12)


def test_sizes_are_few_and_at_most_a_quarter_larger():
    counts = range(1, 5000)
    sizes = [jax_rows.rounded(count) for count in counts]
    assert all(count <= size <= 1.25 * count for count, size in zip(counts, sizes, strict=True))
    assert sizes == sorted(sizes)
    assert [jax_rows.rounded(size) for size in sizes] == sizes
    assert len(set(sizes)) <= 4 * 13


def test_batches_of_one_size_are_compiled_for_once():
    compiled = []

    def tokens(ops, batch):
        compiled.append(batch.input_ids.shape)
        return batch.lengths.sum()

    ops, rng = JaxOps(), np.random.default_rng(0)
    for lengths in [(9, 33), (40, 1), (37, 36), (34, 12)]:
        batch = random_batch(UGLY._replace(lengths=lengths), 3, rng)
        assert int(ops.runtime.call(ops, tokens, (), ops.runtime.prepare(batch))) == sum(lengths)
    assert len(compiled) == 1
    ops.runtime.call(
        ops, tokens, (), ops.runtime.prepare(random_batch(UGLY._replace(lengths=(9, 41)), 3, rng))
    )
    assert len(compiled) == 2


def test_a_batch_without_tags_and_one_of_a_single_token_have_rows():
    head, ops = Head("tag", 5), JaxOps()
    batch = random_task_batch(UGLY._replace(lengths=(1,)), head, np.random.default_rng(0), tagged=0)
    rows = ops.runtime.prepare(batch)
    assert rows.input_ids.shape == (8,) and rows.label_rows.shape == rows.labels.shape == (0,)
    assert ops.runtime.in_order(rows.labels, batch, "labels").shape == (0,)
