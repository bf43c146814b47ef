"""The reference is pure: the very same code, over jax.numpy and inside one jit, gives NumPy's numbers.

Parameters, upstream gradients and the number of the step are traced, so nothing can have branched on a value;
where sequences begin is known when compiling. And JAX's own derivative of a forward is the backward by hand.
"""

import numpy as np
import pytest

from minibert import bert
from minibert.gradcases import SIZES, Size, cases, config_of, random_batch, random_parameters
from minibert.gradcheck import distance, engine_gradients, upstream
from minibert.ops import Ops
from minibert.params import Parameters, nest

jax = pytest.importorskip("jax")

# Short sequences: every time step of an LSTM and every length in an attention is compiled by itself.
SHORT = Size((1, 2, 5, 5), H=24, A=3, F=37, V=99, M=4)
BELOW = ("pretraining_loss", "pretraining_loss dropout")  # tests of their own, at the ugly size
# A head without dropout is the head with dropout and something left out; compiling takes seconds.
LEFT_OUT = tuple(f"head_loss {kind}" for kind in ("classify", "regress", "choice", "span", "tag"))
CASES = {case.label: case for case in cases(SHORT) if case.label not in BELOW + LEFT_OUT}


class JaxNumpy(Ops):
    """The reference over jax.numpy, whose arrays can't be written to: rows are added to in another way."""

    name = "jax.numpy"

    def __init__(self):
        super().__init__(jax.numpy)

    def scatter_add(self, total, ids, rows):
        return total.at[ids].add(rows)


@pytest.fixture(autouse=True)
def double_precision():
    """64 bits, which JAX wants to be asked for."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("label", CASES)
def test_forward_and_backward_in_one_jit_equal_numpy_and_jax_s_own_derivative(label):
    case = CASES[label]
    u = upstream(case, np.random.default_rng(0))

    @jax.jit
    def compiled(arguments, u):
        derivative = jax.grad(lambda moved: (u * forward(JaxNumpy(), case, moved)[0]).sum())(arguments)
        return forward(JaxNumpy(), case, arguments)[0], by_hand(JaxNumpy(), case, arguments, u), derivative

    y, gradients, derivative = compiled(case.arguments, u)
    assert distance(y, forward(Ops(), case, case.arguments)[0]) <= 1e-12
    expected = engine_gradients(Ops(), case, case.arguments, u)
    for name, gradient in expected.items():
        least = float(name in case.unseen)
        assert distance(gradients[name], gradient, least) <= 1e-12, name
        assert distance(derivative[name], gradient, least) <= 1e-10, name


@pytest.fixture(scope="module")
def model():
    """An ugly batch with dropout, and parameters in general position."""
    rng = np.random.default_rng(0)
    size = SIZES["ugly"]
    config = config_of(size)
    return config, random_batch(size, size.M, rng), random_parameters(config, rng)


def test_whole_step_compiles_once_for_all_steps_and_equals_numpy(model):
    config, batch, parameters = model
    compilations = []

    def loss_and_gradient(ops, flat, step):
        params, zeros = (Parameters(config, one).tree for one in (flat, ops.xp.zeros_like(flat)))
        drop = ops.dropout(batch, 0.1, 0.2, seed=7, step=step)
        result, saved = bert.pretraining_loss(ops, config, params, batch, drop)
        return result, bert.pretraining_loss_backward(ops, config, saved, params, zeros)

    @jax.jit
    def compiled(flat, step):
        compilations.append(step)
        return loss_and_gradient(JaxNumpy(), flat, step)

    losses = set()
    for step in (0, 1, 123_456):
        found, gradients = compiled(parameters.flat, step)
        expected, expected_gradients = loss_and_gradient(Ops(), parameters.flat, step)
        for name, one in expected._asdict().items():
            assert distance(getattr(found, name), one) <= 1e-12, name
        gradients = dict(leaves(gradients))
        for name, one in leaves(expected_gradients):
            assert distance(gradients[name], one) <= 1e-12, name
        losses.add(float(found.loss))
    assert len(compilations) == 1
    assert len(losses) == 3


def test_derivative_of_the_whole_loss_is_the_backward_by_hand(model):
    config, batch, parameters = model

    def loss(ops, flat):
        params = Parameters(config, flat).tree
        drop = ops.dropout(batch, 0.1, 0.2, seed=7, step=5)
        return bert.pretraining_loss(ops, config, params, batch, drop)

    gradient = parameters.zeros_like()
    _, saved = loss(Ops(), parameters.flat)
    bert.pretraining_loss_backward(Ops(), config, saved, parameters.tree, gradient.tree)
    derivative = jax.jit(jax.grad(lambda flat: loss(JaxNumpy(), flat)[0].loss))(parameters.flat)
    assert distance(derivative, gradient.flat) <= 1e-10


def test_branch_on_a_value_does_not_compile():
    class Branching(JaxNumpy):
        def tanh(self, x):
            return super().tanh(x if x.sum() > 0 else -x)

    case = CASES["tanh"]
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda arguments: forward(Branching(), case, arguments)[0])(case.arguments)


def forward(ops, case, arguments):
    """The case's result and what it saved."""
    inputs = {name: arguments[name] for name in case.inputs}
    return case.forward(ops, inputs, nest({name: arguments[name] for name in case.params}))


def by_hand(ops, case, arguments, u):
    """The case's gradients, by name of the argument."""
    _, saved = forward(ops, case, arguments)
    params = nest({name: arguments[name] for name in case.params})
    zeros = jax.tree_util.tree_map(ops.xp.zeros_like, params)
    fresh, totals = case.backward(ops, u, saved, params, zeros)
    fresh = fresh if isinstance(fresh, tuple) else (fresh,)
    return dict(zip(case.inputs, fresh, strict=True)) | dict(leaves(totals))


def leaves(tree, path=""):
    """Arrays of a nested tree with their dotted names."""
    if isinstance(tree, dict | list):
        children = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, child in children:
            yield from leaves(child, f"{path}.{name}" if path else str(name))
    else:
        yield path, tree
