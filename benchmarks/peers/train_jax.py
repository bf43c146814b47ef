"""A pre-training step in plain jax.numpy: the loss as one would write it, jax.grad, one jit."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert import engines
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.params import nest
from minibert.model.params import Parameters
from peers.schedule import BETAS, CLIP_NORM, EPS, RATE, WEIGHT_DECAY, TrainingStep
from peers.work import Rectangle

Tree = Any


class Jax:
    """Loss, gradients, clipping and AdamW compiled as one, parameters and moments donated."""

    def __init__(self, config: BertConfig, batch: Batch, flat: np.ndarray, threads: int) -> None:
        engines.keep_freed_memory()
        parameters = Parameters(config, flat)
        decays = nest({entry.name: WEIGHT_DECAY if entry.decays else 0.0 for entry in parameters.table})
        self._step = jax.jit(partial(training_step, config, decays), donate_argnums=0)
        params = jax.tree.map(jnp.array, parameters.tree)
        m, v = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        self._state = params, m, v, jnp.zeros((), jnp.int32)
        self._batch = {name: jnp.asarray(value) for name, value in Rectangle.of(batch)._asdict().items()}

    def run(self) -> TrainingStep:
        self._state, loss, norm = self._step(self._state, self._batch)
        return TrainingStep(loss, norm)


def training_step(config: BertConfig, decays: Tree, state: tuple, batch: dict) -> tuple:
    params, m, v, step = state
    key = jax.random.fold_in(jax.random.key(0), step)
    loss, grads = jax.value_and_grad(partial(pretraining_loss, config))(params, batch, key)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
    clip = jnp.minimum(1.0, CLIP_NORM / norm)
    step = step + 1
    (beta1, beta2), t = BETAS, step.astype(jnp.float32)
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * clip * g, m, grads)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * (clip * g) ** 2, v, grads)
    rate, v_scale = RATE / (1 - beta1**t), 1 / (1 - beta2**t)
    params = jax.tree.map(
        lambda p, m, v, decay: p - rate * m / (jnp.sqrt(v_scale * v) + EPS) - RATE * decay * p,
        params,
        m,
        v,
        decays,
    )
    return (params, m, v, step), loss, norm


def pretraining_loss(config: BertConfig, params: Tree, batch: dict, key: jax.Array) -> jax.Array:
    """Masked words and next sentences of a padded batch."""
    site = iter(range(1 << 20))

    def dropout(x: jax.Array, rate: float) -> jax.Array:
        if not rate:
            return x
        kept = jax.random.bernoulli(jax.random.fold_in(key, next(site)), 1 - rate, x.shape)
        return jnp.where(kept, x / (1 - rate), 0)

    def layer_norm(x: jax.Array, p: Tree) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return p["gamma"] * centred * jax.lax.rsqrt(variance + config.layer_norm_eps) + p["beta"]

    rate, embeddings = config.hidden_dropout_prob, params["embeddings"]
    S, n = batch["input_ids"].shape
    x = embeddings["word"][batch["input_ids"]] + embeddings["position"][:n]
    x = dropout(layer_norm(x + embeddings["segment"][batch["token_type_ids"]], embeddings), rate)
    for layer in params["layers"]:
        p = layer["attention"]
        qkv = x @ p["qkv_weight"] + p["qkv_bias"]
        q, k, v = jnp.moveaxis(qkv.reshape(S, n, 3, config.A, config.D), 2, 0)
        scores = jnp.einsum("sqad,skad->saqk", q, k) / config.D**0.5
        scores = jnp.where(batch["real"][:, None, None], scores, -jnp.inf)
        probabilities = dropout(jax.nn.softmax(scores), config.attention_probs_dropout_prob)
        out = jnp.einsum("saqk,skad->sqad", probabilities, v).reshape(S, n, config.H)
        x = layer_norm(x + dropout(out @ p["output_weight"] + p["output_bias"], rate), p)
        p = layer["feed_forward"]
        out = jax.nn.gelu(x @ p["in_weight"] + p["in_bias"], approximate=False)
        x = layer_norm(x + dropout(out @ p["out_weight"] + p["out_bias"], rate), p)
    pooled = jnp.tanh(x[:, 0] @ params["pooler"]["weight"] + params["pooler"]["bias"])
    scores = pooled @ params["nsp"]["weight"] + params["nsp"]["bias"]
    nsp = cross_entropy(scores, batch["next_sentence_labels"])
    p, rows = params["mlm"], x.reshape(S * n, config.H)[batch["masked"]]
    rows = layer_norm(jax.nn.gelu(rows @ p["weight"] + p["bias"], approximate=False), p)
    return cross_entropy(rows @ embeddings["word"].T + p["output_bias"], batch["masked_labels"]) + nsp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()
