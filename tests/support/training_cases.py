"""A model, a batch and a training run on which engines are compared."""

import numpy as np
from objectives import update_once

from minibert.core import bert
from minibert.core.gradcheck.cases import Size, config_of, dropout_of, random_batch
from minibert.core.optim import AdamW
from minibert.gradcheck.drawn import random_parameters
from minibert.model.params import initialise

# Large enough for several blocks of rows and columns, and for several parts of every loop.
LARGE = Size((3, 90, 128, 1, 77, 64, 128, 31, 100), H=48, A=4, F=200, V=1999, M=90)


def model_and_batch(size, seed=0):
    """Parameters as training begins with, larger; and a batch."""
    rng = np.random.default_rng(seed)
    config = config_of(size)
    parameters = random_parameters(config, rng).astype(np.float32)
    parameters.flat *= 0.3
    return config, parameters, random_batch(size, size.M, rng)


def loss_and_gradients(ops, config, parameters, batch):
    """Losses of every masked row, and the gradients, with dropout."""
    loss, saved = bert.pretraining_loss(ops, config, parameters.tree, batch, dropout_of(ops, batch))
    grads = parameters.zeros_like()
    bert.pretraining_loss_backward(ops, config, saved, parameters.tree, grads.tree)
    return loss.mlm_nll, grads


def losses_of_training(ops, dtype=np.float32):
    """The losses of 200 steps with dropout from one seed, with parameters in `dtype`."""
    size = Size((12, 5, 16, 9, 16, 7), H=32, A=4, F=64, V=120, M=10)
    config = config_of(size)
    parameters = initialise(config, seed=1, dtype=dtype)
    optimizer, found = AdamW(parameters.flat, parameters.decayed), []
    for step in range(200):
        batch = random_batch(size, size.M, np.random.default_rng(step % 8))
        drop = ops.dropout(batch, 0.1, 0.1, seed=0, step=step)
        loss, saved = bert.pretraining_loss(ops, config, parameters.tree, batch, drop)
        grads = parameters.zeros_like()
        bert.pretraining_loss_backward(ops, config, saved, parameters.tree, grads.tree)
        update_once(optimizer, ops, parameters.flat, grads.flat, 2e-3)
        found.append(float(loss.loss))
    return np.array(found)
