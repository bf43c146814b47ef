"""The rules that every engine keeps, on every engine there is and on planted breaches."""

import inspect
import types

import numpy as np
import pytest
from engines import ENGINES, EVERY
from planted import plant

from minibert import engines
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.gradcheck.cases import SIZES, config_of, dropout_of, random_batch
from minibert.core.gradcheck.complex_step import upstream
from minibert.core.params import nest
from minibert.engines.runtime import runtime_of
from minibert.gradcheck.drawn import random_parameters
from minibert.gradcheck.sheet import cases
from minibert.model.ops import Ops

CASES = {case.label: case for case in cases(SIZES["ugly"])}
every_engine = pytest.mark.parametrize("ops", ENGINES, indirect=True)
every_case = pytest.mark.parametrize("label", CASES)


@pytest.fixture(scope="module")
def ops(request):
    return engines.create(request.param, threads=2)


def run(ops, case, dtype="float64"):
    """Result, what was saved, gradients of inputs, accumulators, and the arguments they belong to."""
    arguments = {name: one.astype(dtype) for name, one in case.arguments.items()}
    inputs = {name: arguments[name] for name in case.inputs}
    params = nest({name: arguments[name] for name in case.params})
    zeros = nest({name: np.zeros_like(arguments[name]) for name in case.params})
    u = upstream(case, np.random.default_rng(0)).astype(dtype)
    y, saved = case.forward(ops, inputs, params)
    fresh, totals = case.backward(ops, u, saved, params, zeros)
    return types.SimpleNamespace(
        y=y,
        u=u,
        saved=saved,
        fresh=fresh if isinstance(fresh, tuple) else (fresh,),
        totals=list(leaves(totals)),
        zeros=list(leaves(zeros)),
        arguments=list(arguments.values()),
    )


def outcome(done):
    """The result and all gradients."""
    return [done.y, *done.fresh, *done.totals]


def leaves(tree):
    """What a nested tree of dictionaries, lists and tuples holds, in order; None is nothing."""
    if isinstance(tree, dict | list | tuple):
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(child)
    elif tree is not None:
        yield tree


def public(engine):
    """Names an engine offers, without the layout of the object."""
    return {name for name in dir(engine) if not name.startswith("_")}


def breaches(engine):
    """What of an engine's class is against the contract, as sentences."""
    found = [f"{name} is a name of its own" for name in sorted(public(engine) - public(Ops))]
    for name in sorted(public(Ops) & public(engine)):
        reference, own = getattr(Ops, name), getattr(engine, name)
        if not callable(reference):
            continue
        expected, given = (inspect.signature(one).parameters.values() for one in (reference, own))
        if [(p.name, p.kind, p.default) for p in expected] != [(p.name, p.kind, p.default) for p in given]:
            found.append(f"{name}{inspect.signature(own)} should be {name}{inspect.signature(reference)}")
    return found


# Rule 7: one class, overridden by name.


@pytest.mark.parametrize("ops", EVERY, indirect=True)
def test_engine_adds_no_public_name_and_keeps_every_signature(ops):
    assert isinstance(ops, Ops)
    assert breaches(type(ops)) == []
    assert {name for name in vars(ops) if not name.startswith("_")} <= {*vars(Ops()), "has_int8", "runtime"}


@pytest.mark.parametrize(
    ("member", "breach"),
    [
        ({"flash_attention": lambda self, q, k, v: None}, "flash_attention is a name of its own"),
        ({"linear": lambda self, x, weight: None}, "linear(self, x, weight) should be"),
        ({"tanh": lambda self, y: None}, "tanh(self, y) should be"),
        ({"take_rows": lambda self, x, rows=8: None}, "take_rows(self, x, rows=8) should be"),
        ({"cast": lambda self, x, *, dtype: None}, "cast(self, x, *, dtype) should be"),
    ],
)
def test_engine_that_drifts_is_found(member, breach):
    [found] = breaches(type("Drifting", (Ops,), member))
    assert found.startswith(breach)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("layernorm", "; did you mean layer_norm? "),
        ("LayerNorm", "; did you mean layer_norm? "),
        ("layer_norm_backwards", "; did you mean layer_norm_backward? "),
        ("softmax_crossentropy", "; did you mean softmax_cross_entropy? "),
        ("attn", "; did you mean attention? "),
        ("xyzzy", ". "),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, staticmethod, classmethod])
def test_a_function_that_is_no_operation_is_warned_of(name, meant, wrap):
    with pytest.warns(UserWarning) as told:
        engine = type("Mine", (Ops,), {name: wrap(lambda *given: None)})
        engine()  # which says it no second time
    [warning] = told
    what = f"Mine.{name} is not an operation, and no model calls it"
    assert str(warning.message) == f"{what}{meant}Let the name of a helper begin with _."
    assert warning.filename == __file__


def test_operations_and_private_helpers_are_not_warned_of(recwarn):
    mixin = type("Helpers", (), {"_attend": lambda self: None, "block": 8})
    type("Mine", (mixin, Ops), {"layer_norm": lambda self, x: None, "name": "mine", "_pool": None})()
    assert [str(one.message) for one in recwarn] == []


def test_a_misspelt_operation_of_a_mixin_is_warned_of():
    mixin = type("Helpers", (), {"gelu_backwards": lambda self: None})
    with pytest.warns(UserWarning, match="did you mean gelu_backward"):
        type("Mine", (mixin, Ops), {})


def test_private_helpers_are_an_engine_s_own_matter():
    assert breaches(type("Careful", (Ops,), {"_pool": None, "tanh": lambda self, x: None})) == []


def test_every_backward_has_its_forward_and_takes_the_gradient_and_what_was_saved():
    for name in public(Ops):
        if name.endswith("_backward") and name != "layers_backward":  # whose first argument is a function
            assert callable(getattr(Ops, name.removesuffix("_backward")))
            _, upstream_gradient, saved, *_ = inspect.signature(getattr(Ops, name)).parameters
            assert upstream_gradient.startswith("d")
            assert saved == "saved"


@every_engine
def test_a_backward_may_be_called_again_with_what_was_saved(ops):
    logits, labels = np.arange(6, dtype=np.float32).reshape(3, 2) % 4, np.array([0, 1, 0], np.int32)
    _, saved = ops.softmax_cross_entropy(logits, labels)
    dnll = np.array([0.5, 1.0, 0.25], np.float32)
    first = np.array(ops.softmax_cross_entropy_backward(dnll, saved))
    assert np.array_equal(np.asarray(ops.softmax_cross_entropy_backward(dnll, saved)), first)


@every_engine
def test_the_norm_of_gradients_neither_overflows_nor_vanishes_in_single_precision(ops):
    for size in (1e20, 1e-23):
        grads = np.full(4, size, np.float32)
        assert float(ops.global_norm(ops.xp.asarray(grads))) == pytest.approx(2 * size, rel=1e-6)


def test_every_public_operation_says_what_it_does():
    operations = [getattr(Ops, name) for name in public(Ops)]
    assert [one.__name__ for one in operations if callable(one) and not one.__doc__] == []


@pytest.mark.parametrize("name", EVERY)
def test_engines_have_the_name_they_are_asked_for_by(name):
    assert engines.create(name).name == name


def test_unknown_engine_is_an_input_error_that_lists_the_known_ones():
    with pytest.raises(InputError, match=r"engine='abacus' is not an engine; use auto or one of .*numpy"):
        engines.create("abacus")


# Rule 1: what is saved, and who owns what is returned.


@pytest.mark.representatives(ops=["numpy", "cpp"])
@every_engine
@every_case
def test_saved_holds_arrays_only(ops, label):
    kept = list(leaves(run(ops, CASES[label]).saved))
    assert all(hasattr(one, "dtype") and hasattr(one, "shape") for one in kept), [type(one) for one in kept]
    assert not any(one.dtype == object for one in kept)


def test_something_else_than_an_array_in_saved_is_found():
    class Closing(Ops):
        def tanh(self, x):
            y, saved = super().tanh(x)
            return y, saved._replace(y=(saved.y, lambda dy: dy))

        def tanh_backward(self, dy, saved):
            return super().tanh_backward(dy, saved._replace(y=saved.y[0]))

    with pytest.raises(AssertionError, match="function"):
        test_saved_holds_arrays_only(Closing(), "pooler")


# In float32 an engine computes by itself; long doubles are nobody's but the reference's.
@pytest.mark.thorough
@every_engine
@pytest.mark.parametrize("dtype", ["float32", "float64", "longdouble"])
def test_a_field_too_many_in_what_the_reference_keeps_misleads_no_backward(ops, dtype, monkeypatch):
    before = [run(ops, case, dtype) for case in CASES.values()]
    plant(monkeypatch)
    assert hasattr(Ops().tanh(np.ones(2))[1], "planted")
    for one, case in zip(before, CASES.values(), strict=True):
        again = run(ops, case, dtype)
        for mine, other in zip(outcome(one), outcome(again), strict=True):
            assert np.array_equal(mine, other), case.label


@pytest.mark.representatives(ops=["numpy", "cpp"])
@every_engine
@every_case
def test_results_and_fresh_gradients_share_no_memory_with_what_came_in(ops, label):
    done = run(ops, CASES[label])
    for one in (done.y, *done.fresh):
        assert not any(np.shares_memory(one, other) for other in (*done.arguments, done.u) if other.size)


@pytest.mark.representatives(ops=["numpy", "cpp"])
@every_engine
@every_case
def test_fresh_gradients_have_the_shape_of_what_they_are_gradients_of(ops, label):
    done = run(ops, CASES[label])
    assert [one.shape for one in (*done.fresh, *done.totals)] == [one.shape for one in done.arguments]


@pytest.mark.representatives(ops=["numpy", "cpp"])
@every_engine
@every_case
def test_nothing_that_comes_in_is_written_to(ops, label):
    case = CASES[label]
    before = {name: one.copy() for name, one in case.arguments.items()}
    run(ops, case)
    assert all(np.array_equal(case.arguments[name], one) for name, one in before.items())


# Rule 2: accumulators are consumed and returned.


@pytest.mark.representatives(ops=["numpy", "cpp"])
@every_engine
@every_case
def test_accumulators_are_added_to_where_they_are(ops, label):
    done = run(ops, CASES[label])
    assert all(map(np.shares_memory, done.totals, done.zeros))


# Rule 3 has a file of its own: tests/core/test_dropout_bits.py.
# Rule 4: losses are sums of rows with weights, which is what their backward takes.


@every_engine
def test_loss_is_the_weighted_sum_of_its_rows(ops):
    size, rng = SIZES["ugly"], np.random.default_rng(0)
    config, batch = config_of(size), random_batch(size, size.M, rng)
    params = random_parameters(config, rng).tree
    loss, _ = bert.pretraining_loss(ops, config, params, batch, dropout_of(ops, batch))
    assert loss.mlm_nll.shape == (batch.M,)
    assert loss.nsp_nll.shape == (batch.S,)
    assert loss.mlm_loss == pytest.approx(batch.masked_weights @ loss.mlm_nll, rel=1e-14)
    assert loss.nsp_loss == pytest.approx(batch.next_sentence_weights @ loss.nsp_nll, rel=1e-14)
    assert loss.loss == pytest.approx(loss.mlm_loss + loss.nsp_loss, rel=1e-15)


@every_engine
@pytest.mark.parametrize(
    "name",
    [
        "softmax_cross_entropy",
        "segment_softmax_cross_entropy",
        "squared_error",
        "sigmoid_cross_entropy",
    ],
)
def test_gradient_of_a_loss_is_linear_in_the_weights_of_its_rows(ops, name):
    case = CASES[name]

    def gradient(weights):
        _, saved = case.forward(ops, case.inputs, {})
        return case.backward(ops, weights, saved, {}, {})[0]

    u, v = (upstream(case, np.random.default_rng(seed)) for seed in (1, 2))
    assert np.allclose(gradient(2 * u - v), 2 * gradient(u) - gradient(v), rtol=0, atol=1e-14)
    assert not gradient(0 * u).any()


# Rule 5: precision changes nowhere but in `cast`.


@every_engine
@every_case
def test_float32_stays_float32(ops, label):
    done = run(ops, CASES[label], "float32")
    floating = [one for one in leaves(done.saved) if one.dtype.kind == "f"]
    assert {str(one.dtype) for one in (done.y, *done.fresh, *done.totals, *floating)} <= {"float32"}


# Rule 6: no Python branch on the value of an array.


class Blind(np.ndarray):
    """An array whose values Python can't look at; what is computed from it is as blind."""

    def _refuse(self, *_):
        raise AssertionError("Python looked at the value of an array")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = item = tolist = _refuse

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array.view(Blind)  # sums and maxima over everything stay arrays


class BlindNumpy:
    """NumPy whose functions give blind arrays."""

    def __getattr__(self, name):
        member = getattr(np, name)
        if isinstance(member, type) or not callable(member):
            return member

        def blind(*args, **kwargs):
            result = member(*args, **kwargs)
            return result.view(Blind) if isinstance(result, np.ndarray) else result

        if isinstance(member, np.ufunc):
            blind.reduceat = lambda *args, **kwargs: member.reduceat(*args, **kwargs).view(Blind)
        return blind


@every_case
def test_nothing_branches_on_a_value(label):
    case = CASES[label]
    ops = Ops(BlindNumpy())
    inputs = {name: one.view(Blind) for name, one in case.inputs.items()}
    params = nest({name: one.view(Blind) for name, one in case.params.items()})
    zeros = nest({name: np.zeros_like(one).view(Blind) for name, one in case.params.items()})
    y, saved = case.forward(ops, inputs, params)
    case.backward(ops, upstream(case, np.random.default_rng(0)).view(Blind), saved, params, zeros)
    assert isinstance(y, Blind)


@pytest.mark.parametrize(
    "look", [lambda x: 1 if x.max() > 0 else 2, lambda x: float(x.sum()), lambda x: x.mean(0).tolist()]
)
def test_a_branch_on_a_value_is_found(look):
    class Looking(Ops):
        def tanh(self, x):
            look(x)
            return super().tanh(x)

    x = CASES["tanh"].inputs["x"].view(Blind)
    with pytest.raises(AssertionError, match="looked at the value"):
        Looking(BlindNumpy()).tanh(x)


# The runtime.


def test_reference_takes_a_batch_as_it_is():
    batch = random_batch(SIZES["ugly"], 3, np.random.default_rng(0))
    assert runtime_of(Ops()).prepare(batch) is batch
