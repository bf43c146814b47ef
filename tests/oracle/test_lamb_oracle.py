"""Fifty updates of a small BERT by LAMB, with clipping and a schedule, beside optax's."""

import numpy as np
import pytest

from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import AdamRule
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

STEPS, CLIP, DECAY = 50, 3.0, 0.01
RATES = np.linspace(1e-3, 3e-2, STEPS)


@pytest.fixture(autouse=True)
def double_precision():
    """64 bits, which JAX wants to be asked for."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def theirs(parameters, gradients, kept):
    """Parameters by name after each update, of optax's LAMB over the named tensors.

    Parameters
    ----------
    kept : whether a name is one of weight decay and of the scaling by lengths; None where all of them are,
        which is `optax.lamb` itself.
    """
    params, found = dict(parameters.items()), []
    if kept is None:
        lamb = optax.lamb(lambda count: jax.numpy.asarray(RATES)[count], weight_decay=DECAY)
    else:
        scaled = optax.chain(optax.add_decayed_weights(DECAY), optax.scale_by_trust_ratio())
        lamb = optax.chain(
            optax.scale_by_adam(eps=1e-6),
            optax.masked(scaled, {name: kept(name) for name in params}),
            optax.scale_by_learning_rate(lambda count: jax.numpy.asarray(RATES)[count]),
        )
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), lamb)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in gradients:
        named = dict(parameters.like(gradient).items())
        updates, state = update(named, state, params)
        params = optax.apply_updates(params, updates)
        found.append(np.concatenate([params[name].ravel() for name in parameters]))
    return found


@pytest.mark.parametrize("every", [True, False], ids=["every tensor", "as the authors' code"])
def test_fifty_updates_of_a_bert_are_those_of_optax(every):
    rng, size = np.random.default_rng(0), SIZES["ugly"]
    parameters = random_parameters(config_of(size), rng)
    lengths = np.linspace(0.1, 2, STEPS) * CLIP / np.sqrt(parameters.count())
    gradients = rng.standard_normal((STEPS, parameters.count())) * lengths[:, None]
    decays = {entry.name: every or entry.decays for entry in parameters.table}
    ends = np.cumsum([entry.size for entry in parameters.table])
    tensors = np.array(
        [(end - e.size, end, decays[e.name]) for e, end in zip(parameters.table, ends, strict=True)]
    )

    expected = theirs(parameters, gradients, None if every else decays.get)
    params, clipped = parameters.flat.copy(), 0
    m, v = np.zeros_like(params), np.zeros_like(params)
    for step, gradient in enumerate(gradients, 1):
        norm = Ops().global_norm(gradient)
        clip = min(1.0, CLIP / norm)
        clipped += clip < 1
        rule = AdamRule(RATES[step - 1], step, weight_decay=DECAY, clip=clip)
        Ops().lamb(params, gradient, m, v, tensors, rule)
        error = np.abs(params - expected[step - 1]).max() / np.abs(params).max()
        assert error <= 1e-12, step
    assert 10 < clipped < 40
    assert np.abs(params - parameters.flat).max() > 0.1
