"""Fifty updates of the layers of a small BERT by Muon, beside PyTorch's."""

import numpy as np
import pytest

from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import AdamRule
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

torch = pytest.importorskip("torch")

STEPS, DECAY, MOMENTUM = 50, 0.03, 0.95
RATES = np.linspace(1e-3, 3e-2, STEPS).tolist()


def cut(parameters, flat):
    """The matrices of the layers, one by one; those of queries, keys and values apart."""
    found = []
    for begin, end, _, rows, matrices in parameters.matrices.tolist():
        found += np.split(flat[begin:end].reshape(rows, -1), matrices, 1) if rows else []
    return found


@pytest.mark.parametrize("whole", [True, False], ids=["double precision", "as PyTorch has it, bfloat16"])
def test_fifty_updates_of_the_layers_of_a_bert_are_those_of_pytorch(whole, monkeypatch):
    rng = np.random.default_rng(0)
    parameters = random_parameters(config_of(SIZES["ugly"]), rng)
    gradients = rng.standard_normal((STEPS, parameters.count()))
    if whole:  # PyTorch rounds the matrix that it makes orthogonal
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    theirs = [torch.nn.Parameter(torch.tensor(one)) for one in cut(parameters, parameters.flat)]
    # Its steps are a fifth as long, and weight decay is as long in proportion.
    given = {"momentum": MOMENTUM, "weight_decay": DECAY / 5, "adjust_lr_fn": "match_rms_adamw"}
    optimizer = torch.optim.Muon(theirs, lr=1.0, **given)
    params = parameters.flat.copy()
    m, v = np.zeros_like(params), np.zeros_like(params)
    for step, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
        for one, its in zip(theirs, cut(parameters, gradient), strict=True):
            one.grad = torch.tensor(its)
        optimizer.param_groups[0]["lr"] = 5 * rate
        optimizer.step()
        rule = AdamRule(rate, step, beta1=MOMENTUM, weight_decay=DECAY)
        Ops().muon(params, gradient, m, v, parameters.matrices, rule)
        pairs = zip(cut(parameters, params), theirs, strict=True)
        error = max(np.abs(mine - its.detach().numpy()).max() for mine, its in pairs)
        assert error <= (1e-12 if whole else 0.15 * sum(RATES[:step])), step
    assert len(theirs) == 6 * parameters.config.L
    assert all(
        np.abs(a - b).max() > 0.1
        for a, b in zip(cut(parameters, params), cut(parameters, parameters.flat), strict=True)
    )
