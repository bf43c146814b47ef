"""Attention over rows, for the JAX engine: two kernels with the reference's results (Vaswani et al. 2017).

A row contains one sequence from column 0 on, and padding after it. "plain" is jax.numpy, for any device.
"pallas" is a fused kernel for GPUs that draws the same dropout bits itself (flash.py).
"""

import math
from collections import namedtuple
from typing import Any

import jax.numpy as jnp

from minibert.core.arrays import Array, Saved
from minibert.core.ops import dropout_bits
from minibert.engines.jax import flash
from minibert.engines.jax.flash import HIDDEN, Plan

# What the plain kernel saves; keys is None without dropout.
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
        "pallas" on a GPU in float32 and bfloat16, if JAX has Pallas for Triton; otherwise "plain".
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
        The kernel, the rate of dropout, and whether attention is causal.
    q, k, v : (R,n,A,D) arrays
        Queries, keys and values; finite at padding, too.
    lengths : (R,) int32
        The number of tokens in each row; 0 for a row of padding.
    keys : (R,n,2) uint32 or None
        Keys of dropout, one for each query; not read at a rate of 0.

    Returns
    -------
    tuple of (R,n,A,D) array and PlainSaved or PallasSaved
        The result, 0 at padding; what the kernel saves.
    """
    kernel, _ = KERNELS[plan.kernel]
    return kernel(plan, q, k, v, lengths, keys if plan.rate else None)


# dy (R,n,A,D) -> dq dk dv (R,n,A,D)
def backward(plan: Plan, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """Return the gradients of `forward`, 0 at padding.

    Parameters
    ----------
    plan : Plan
        The plan that `forward` was called with.
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


# The probabilities are saved, as in the reference: recomputing them from their log-sum-exp would take one
# product in six, and another exponential. For heads as in BERT-BASE and 16 rows of 128, backward took 0.046
# seconds of one core with them and 0.087 without. They have n/D times as many elements as the queries, at
# most 8 times; everything else in a layer has about 18 times as many.
def _plain(plan: Plan, q: Array, k: Array, v: Array, lengths: Array, keys: Array) -> tuple[Array, Saved]:
    """Return attention. Padding and hidden keys have the probability 0; the result of empty rows is 0."""
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


# Follows the formulas of core/ops/attention.py. Where a score is hidden, p is zero, and hence ds, too.
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
    """Apply dropout to probabilities, or to their gradient, if there are keys."""
    if keys is None:
        return p
    heads = jnp.arange(p.shape[1], dtype=jnp.uint32)[:, None]
    head_keys = dropout_bits.fold(jnp, keys[:, None], heads)
    kept = dropout_bits.keep(jnp, head_keys, p.shape[-1], plan.rate)
    return jnp.where(kept, p * dropout_bits.kept_scale(plan.rate), 0)


KERNELS = {"plain": (_plain, _plain_backward), "pallas": (flash.forward, flash.backward)}
