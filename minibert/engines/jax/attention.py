"""Attention over rows, for the JAX engine: two kernels with the reference's numbers (Vaswani et al. 2017).

A row holds one sequence from column 0 on, and pads behind it. "plain" is jax.numpy, for any device. "pallas"
is a fused kernel for a GPU that draws our dropout bits itself (flash.py).
"""

import math
from collections import namedtuple
from typing import Any

import jax.numpy as jnp

from minibert.core.arrays import Array, Saved
from minibert.core.ops import random
from minibert.engines.jax import flash
from minibert.engines.jax.flash import HIDDEN, Plan

# What the plain kernel keeps; keys: None where nothing is dropped.
PlainSaved = namedtuple("PlainSaved", "q k v p keys")


def choose(platform: str, dtype: Any) -> str:
    """Choose the kernel for a device, which is "cpu", "gpu" (or "cuda") or "tpu", and queries of a dtype."""
    fits = platform in ("gpu", "cuda") and jnp.dtype(dtype) != jnp.float64
    return "pallas" if fits and flash.THERE else "plain"


# q k v (R,n,A,D)  lengths (R,)  keys (R,n,2) or None -> y (R,n,A,D)
def forward(plan: Plan, q: Array, k: Array, v: Array, lengths: Array, keys: Array) -> tuple[Array, Saved]:
    """Return softmax(q k^T / sqrt(D)) v in each row and head; dropout on the probabilities, by `keys`.

    `lengths` are tokens of each row, 0 for a row of pads. Pads are finite; the result is 0 there.
    """
    return KERNELS[plan.kernel][0](plan, q, k, v, lengths, keys if plan.rate else None)


# dy (R,n,A,D) -> dq dk dv (R,n,A,D)
def backward(plan: Plan, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return the gradients of `forward`, 0 at pads."""
    return KERNELS[plan.kernel][1](plan, dy, saved)


# Kept are the probabilities, as in the reference: made anew from their log-sum-exp they cost one product in
# six and another exponential. For heads as in BERT-BASE and 16 rows of 128, in seconds of one core, backward
# took 0.046 with them and 0.087 without. They hold n/D times as many numbers as the queries, 8 times at most;
# all else in a layer holds some 18 times as many.
def _plain(plan: Plan, q: Array, k: Array, v: Array, lengths: Array, keys: Array) -> tuple[Array, Saved]:
    """Put pads and hidden keys aside by selecting: their probability is 0, an empty row's result too."""
    at, real = jnp.arange(q.shape[1]), jnp.promote_types(q.dtype, jnp.float32)
    within = at < lengths[:, None]
    seen = within[:, None, :, None] & within[:, None, None, :]  # (R,1,n,n)
    if plan.causal:
        seen = seen & (at <= at[:, None])
    scores = jnp.einsum("riad,rjad->raij", q, k, preferred_element_type=real) * (1 / math.sqrt(q.shape[-1]))
    scores = jnp.where(seen, scores, HIDDEN)
    p = jnp.where(seen, jnp.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = p.sum(-1, keepdims=True)
    p = p / jnp.where(total == 0, 1, total)
    dropped = _dropped(p, plan, keys).astype(v.dtype)
    y = jnp.einsum("raij,rjad->riad", dropped, v, preferred_element_type=p.dtype)
    return y.astype(q.dtype), PlainSaved(q, k, v, p, keys)


# By the formulas of core/ops/attention.py. Where a score is hidden its p is zero, hence its ds as well.
def _plain_backward(plan: Plan, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    q, k, v, p, keys, real = saved.q, saved.k, saved.v, saved.p, saved.keys, saved.p.dtype
    dropped = _dropped(p, plan, keys).astype(v.dtype)
    dp = _dropped(jnp.einsum("riad,rjad->raij", dy, v, preferred_element_type=real), plan, keys)
    ds = (p * (dp - (dp * p).sum(-1, keepdims=True)) * (1 / math.sqrt(q.shape[-1]))).astype(q.dtype)
    dq = jnp.einsum("raij,rjad->riad", ds, k, preferred_element_type=real)
    dk = jnp.einsum("raij,riad->rjad", ds, q, preferred_element_type=real)
    dv = jnp.einsum("raij,riad->rjad", dropped, dy, preferred_element_type=real)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


# p (R,A,n,n)  keys (R,n,2) or None -> (R,A,n,n)
def _dropped(p: Array, plan: Plan, keys: Array) -> Array:
    if keys is None:
        return p
    heads = jnp.arange(p.shape[1], dtype=jnp.uint32)[:, None]
    kept = random.keep(jnp, random.fold(jnp, keys[:, None], heads), p.shape[-1], plan.rate)
    return jnp.where(kept, p * random.kept_scale(plan.rate), 0)


KERNELS = {"plain": (_plain, _plain_backward), "pallas": (flash.forward, flash.backward)}
