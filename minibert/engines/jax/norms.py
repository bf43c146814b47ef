"""Norms of arrays for XLA."""

import jax.numpy as jnp

from minibert.arrays import Array

CHUNK = 4096  # numbers that are added up directly: one long sum in float32 loses digits


# x (...) -> scalar
def length(x: Array) -> Array:
    """Return the Euclidean norm; no square leaves the range of float32."""
    largest = jnp.abs(x).max(initial=0)
    return largest * jnp.sqrt(sum_of_squares(x / jnp.where(largest > 0, largest, 1)))


# x (...) -> scalar
def sum_of_squares(x: Array) -> Array:
    """Sum the squares, as sums of the sums of rows."""
    sums = jnp.square(x)
    if x.ndim > 1:
        sums = sums.sum(-1).reshape(-1)
    whole = len(sums) // CHUNK * CHUNK
    return sums[:whole].reshape(-1, CHUNK).sum(1).sum() + sums[whole:].sum()
