"""Attention over rows, for the JAX engine: two kernels with the reference's numbers (Vaswani et al. 2017).

A row holds one sequence from column 0 on, and pads after it. "plain" is jax.numpy, for any device. "pallas"
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
    """Choose the kernel for a device.

    Parameters
    ----------
    platform : str
        "cpu", "gpu" (or "cuda") or "tpu".
    dtype : Any
        The type of the queries.

    Returns
    -------
    str
        "pallas" on a GPU in float32 and bfloat16, where JAX has Pallas for Triton; else "plain".
    """
    is_gpu = platform in ("gpu", "cuda")
    fits = is_gpu and jnp.dtype(dtype) != jnp.float64
    return "pallas" if fits and flash.THERE else "plain"


# q k v (R,n,A,D)  lengths (R,)  keys (R,n,2) or None -> y (R,n,A,D)
def forward(plan: Plan, q: Array, k: Array, v: Array, lengths: Array, keys: Array) -> tuple[Array, Saved]:
    """Return softmax(q k^T / sqrt(D)) v in each row and head; dropout on the probabilities, by `keys`.

    Parameters
    ----------
    plan : Plan
        The kernel, the rate of dropout, whether attention is causal.
    q, k, v : (R,n,A,D) arrays
        Queries, keys and values; finite at pads, too.
    lengths : (R,) int32
        Tokens of each row, 0 for a row of pads.
    keys : (R,n,2) uint32 or None
        Keys of dropout, one for each query; not read at a rate of 0.

    Returns
    -------
    tuple of (R,n,A,D) array and PlainSaved or PallasSaved
        The result, 0 at pads; what the kernel keeps.
    """
    kernel, _ = KERNELS[plan.kernel]
    return kernel(plan, q, k, v, lengths, keys if plan.rate else None)


# dy (R,n,A,D) -> dq dk dv (R,n,A,D)
def backward(plan: Plan, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return the gradients of `forward`, 0 at pads.

    Parameters
    ----------
    plan : Plan
        That of the forward.
    dy : (R,n,A,D) array
        Gradient of the result.
    saved : PlainSaved or PallasSaved
        What `forward` kept.

    Returns
    -------
    tuple of three (R,n,A,D) arrays
        Gradients of q, k and v.
    """
    _, kernel = KERNELS[plan.kernel]
    return kernel(plan, dy, saved)


# Kept are the probabilities, as in the reference: made anew from their log-sum-exp they cost one product in
# six and another exponential. For heads as in BERT-BASE and 16 rows of 128, in seconds of one core, backward
# took 0.046 with them and 0.087 without. They hold n/D times as many numbers as the queries, 8 times at most;
# all else in a layer holds some 18 times as many.
def _plain(plan: Plan, q: Array, k: Array, v: Array, lengths: Array, keys: Array) -> tuple[Array, Saved]:
    """Mask pads and hidden keys: their probability is 0, and so is the result of an empty row."""
    at = jnp.arange(q.shape[1])
    real = jnp.promote_types(q.dtype, jnp.float32)
    scale = 1 / math.sqrt(q.shape[-1])
    within = at < lengths[:, None]
    seen = within[:, None, :, None] & within[:, None, None, :]  # (R,1,n,n)
    if plan.causal:
        seen = seen & (at <= at[:, None])
    scores = jnp.einsum("riad,rjad->raij", q, k, preferred_element_type=real) * scale
    scores = jnp.where(seen, scores, HIDDEN)
    largest = scores.max(-1, keepdims=True)
    p = jnp.where(seen, jnp.exp(scores - largest), 0)
    total = p.sum(-1, keepdims=True)
    p = p / jnp.where(total == 0, 1, total)
    dropped = _dropped(p, plan, keys).astype(v.dtype)
    y = jnp.einsum("raij,rjad->riad", dropped, v, preferred_element_type=p.dtype)
    return y.astype(q.dtype), PlainSaved(q, k, v, p, keys)


# By the formulas of core/ops/attention.py. Where a score is hidden its p is zero, hence its ds as well.
def _plain_backward(plan: Plan, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return the gradients of `_plain`."""
    q, k, v, p, keys = saved
    real = p.dtype
    scale = 1 / math.sqrt(q.shape[-1])
    dropped = _dropped(p, plan, keys).astype(v.dtype)
    dp = jnp.einsum("riad,rjad->raij", dy, v, preferred_element_type=real)
    dp = _dropped(dp, plan, keys)
    level = (dp * p).sum(-1, keepdims=True)
    ds = p * (dp - level) * scale
    ds = ds.astype(q.dtype)
    dq = jnp.einsum("raij,rjad->riad", ds, k, preferred_element_type=real)
    dk = jnp.einsum("raij,riad->rjad", ds, q, preferred_element_type=real)
    dv = jnp.einsum("raij,riad->rjad", dropped, dy, preferred_element_type=real)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


# p (R,A,n,n)  keys (R,n,2) or None -> (R,A,n,n)
def _dropped(p: Array, plan: Plan, keys: Array) -> Array:
    """Multiply probabilities with those of dropout, if there is any."""
    if keys is None:
        return p
    heads = jnp.arange(p.shape[1], dtype=jnp.uint32)[:, None]
    head_keys = random.fold(jnp, keys[:, None], heads)
    kept = random.keep(jnp, head_keys, p.shape[-1], plan.rate)
    return jnp.where(kept, p * random.kept_scale(plan.rate), 0)


KERNELS = {"plain": (_plain, _plain_backward), "pallas": (flash.forward, flash.backward)}
