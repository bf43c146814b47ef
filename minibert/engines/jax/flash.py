"""Flash attention for GPUs in Pallas (Dao 2023): forward and backward by hand, dropout drawn along the way.

A program of the grid handles one block of one head of one row. Scores exist only in registers. Of each
softmax the log-sum-exp is saved, to base 2, because the hardware computes powers of 2. Blocks after a row's
last token, and those that causal attention hides, are skipped.

Two neighbouring keys share one hash. So a block of keys is split into two halves, the keys at even positions
and those at odd ones. The scores of each half have the same layout in registers as the hashes: no draw has to
move.
"""

import functools
import math
from collections import namedtuple
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from minibert.core.arrays import Array
from minibert.core.ops import dropout_bits

try:
    from jax.experimental.pallas import triton
except ImportError:  # JAX plans to remove this module
    triton = None
THERE = triton is not None  # whether this file can be used; otherwise attention is "plain"

PallasSaved = namedtuple("PallasSaved", "q k v lengths y logarithms keys")

HIDDEN = -1e30  # the score of a hidden key: finite, and 2 to its power is zero
LEAST = 16  # the fewest rows, columns and terms of a matrix product in hardware
HALVES = (0, 1)
LOG2_E = math.log2(math.e)


class Blocks(NamedTuple):
    """The block sizes of a kernel."""

    queries: int
    keys: int
    warps: int
    stages: int  # blocks that are being loaded from memory at a time


# (most bytes of a number, largest head) -> blocks of forward, of backward. Those for bfloat16 and heads of 64
# are the best of 24 and 28 that were timed on an H200 ("GPU" in the log). The others were chosen by Triton's
# machine code: few instructions for a score, and almost no spilling, except for float32 with heads of 128.
CUTS = {
    (2, 64): (Blocks(128, 64, 4, 3), Blocks(32, 128, 4, 2)),
    (2, 128): (Blocks(64, 64, 4, 2), Blocks(32, 64, 8, 2)),
    (8, 128): (Blocks(32, 32, 4, 1), Blocks(16, 32, 4, 1)),
}


def cuts(dtype: Any, D: int) -> tuple[Blocks, Blocks]:
    """Choose the block sizes of forward and backward.

    Parameters
    ----------
    dtype : Any
        The type of queries, keys and values.
    D : int
        The size of a head.

    Returns
    -------
    tuple of two Blocks
        The blocks of the forward kernel, and of the backward kernel.
    """
    size = jnp.dtype(dtype).itemsize
    for (most, depth), blocks in CUTS.items():
        if size <= most and D <= depth:
            return blocks
    return CUTS[8, 128]


class Plan(NamedTuple):
    """The settings of an attention kernel: everything that is known at compile time; hashable."""

    causal: bool
    rate: float  # rate of dropout on the probabilities
    kernel: str  # "plain", or "pallas" for the kernel of this file
    interpret: bool = False  # whether "pallas" runs as plain JAX, on any device
    forward_blocks: Blocks | None = None  # blocks of "pallas"; None for those of `cuts`
    backward_blocks: Blocks | None = None


class _Site(NamedTuple):
    """The constants of a kernel at compile time."""

    causal: bool
    rate: float
    scale: float  # 1 / sqrt(D)
    queries: int  # queries in a block
    pairs: int  # pairs of neighbouring keys in a block


# q k v (R,n,A,D)  lengths (R,)  keys (R,n,2) or None -> y (R,n,A,D)
def forward(
    plan: Plan,
    q: Array,
    k: Array,
    v: Array,
    lengths: Array,
    keys: Array | None,
) -> tuple[Array, PallasSaved]:
    """Return softmax(q k^T / sqrt(D)) v in each row and head (Dao 2023, section 3.1).

    The work is split by the plan's blocks, or those of `cuts` if it has none; n is padded to whole blocks, D
    to a power of two.

    Parameters
    ----------
    plan : Plan
        The rate of dropout, whether attention is causal, and the blocks.
    q, k, v : (R,n,A,D) arrays, float32 or bfloat16
        Queries, keys and values; finite at padding, too.
    lengths : (R,) int32
        The number of tokens in each row; 0 for a row of padding.
    keys : (R,n,2) uint32 or None
        Keys of dropout, one for each query; needed at a rate above 0.

    Returns
    -------
    tuple of (R,n,A,D) array and PallasSaved
        The result, 0 at padding; the result again, the arguments, and every query's log-sum-exp to base 2.
    """
    given = q, k, v, lengths
    n, _, D = q.shape[1:]
    blocks = plan.forward_blocks
    if blocks is None:
        blocks, _ = cuts(q.dtype, D)
    site, options, (q, k, v), head_keys = _prepared(plan, blocks, keys, q, k, v)
    R, columns, A, depth = q.shape
    queries = pl.BlockSpec(
        (None, site.queries, None, depth),
        lambda i, a, r: (r, i, a, 0),
    )
    row_of_keys = pl.BlockSpec(
        (None, columns // 2, 2, None, depth),
        lambda i, a, r: (r, 0, 0, a, 0),
    )
    each_query = pl.BlockSpec(
        (None, None, site.queries),
        lambda i, a, r: (r, a, i),
    )
    of_head_keys = [each_query] * len(head_keys)
    kernel = pl.pallas_call(
        functools.partial(_forward_kernel, site=site),
        grid=(columns // site.queries, A, R),
        in_specs=[_LENGTH, queries, row_of_keys, row_of_keys, *of_head_keys],
        out_specs=[queries, each_query],
        out_shape=[
            _result(q.shape, q.dtype, q),
            _result((R, A, columns), _real(q), q),
        ],
        name="attention",
        **options,
    )
    y, logarithms = kernel(lengths, q, _paired(k), _paired(v), *head_keys)
    y = y[:, :n, :, :D]
    return y, PallasSaved(*given, y, logarithms[:, :, :n], keys)


# One pass over the keys tracks the highest score h so far, l = sum of 2^(s - h), o = sum of 2^(s - h) m v.
# A block that raises h multiplies l and o by 2^(h before - h after). In the end y = o / l, and h + log2 l is
# saved; where there is no token, a value so high that every probability computed from it is zero.
# length ()  q (queries,D)  k v (n/2,2,D)  keys (queries,) twice or never
# -> y (queries,D)  logarithms (queries,)
def _forward_kernel(length: Any, q: Any, k: Any, v: Any, *rest: Any, site: _Site) -> None:
    *keys, y, logarithms = rest
    real = logarithms.dtype
    unit = site.scale * LOG2_E
    first = pl.program_id(0) * site.queries
    length = length[...]
    q = q[...]
    keys = [word[...][:, None] for word in keys]
    i = (first + _range(site.queries))[:, None]

    def block(number: Any, carry: Any) -> Any:
        highest, total, mixed = carry
        pairs = (number * site.pairs + _range(site.pairs))[None, :]
        rows = pl.ds(number * site.pairs, site.pairs)
        scores = []
        for half in HALVES:
            product = _product(q, k[rows, half, :], b_transposed=True)
            seen = _seen(site, i, pairs * 2 + half, length)
            scores.append(jnp.where(seen, product, HIDDEN))
        even, odd = scores
        in_block = jnp.maximum(even.max(1), odd.max(1)) * unit
        higher = jnp.maximum(highest, in_block)
        shrink = jnp.exp2(highest - higher)
        p = [jnp.exp2(half * unit - higher[:, None]) for half in scores]
        total = total * shrink + p[0].sum(1) + p[1].sum(1)
        mixed = mixed * shrink[:, None]
        both_kept = _kept(site, keys, pairs)
        for half in HALVES:
            dropped = _drop(p[half], both_kept[half]).astype(v.dtype)
            mixed = mixed + _product(dropped, v[rows, half, :])
        return higher, total, mixed

    unseen = (
        jnp.full(site.queries, HIDDEN, real),
        jnp.zeros(site.queries, real),
        jnp.zeros(q.shape, real),
    )
    reach = jnp.minimum(length, first + site.queries) if site.causal else length
    visited = jnp.where(first < length, pl.cdiv(reach, jnp.int32(2 * site.pairs)), 0)
    highest, total, mixed = lax.fori_loop(jnp.int32(0), visited, block, unseen)
    within = first + _range(site.queries) < length
    total = jnp.where(within, total, 1)
    share = jnp.where(within, dropout_bits.kept_scale(site.rate) / total, 0)
    y[...] = (mixed * share[:, None]).astype(y.dtype)
    logarithms[...] = jnp.where(within, highest + jnp.log2(total), -HIDDEN)


# dy (R,n,A,D) -> dq dk dv (R,n,A,D)
def backward(plan: Plan, dy: Array, saved: PallasSaved) -> tuple[Array, Array, Array]:
    """Return the gradients of `forward`.

    Each pair of a query and a key is visited once, so every hash and exponential is computed once. A program
    has a block of keys and returns its share of the queries' gradient; shares are added up afterwards, in
    order, so that two runs give the same bits. If one block has all keys, there is nothing to add.

    Parameters
    ----------
    plan : Plan
        The plan that `forward` was called with.
    dy : (R,n,A,D) array
        Gradient of the result.
    saved : PallasSaved
        What `forward` kept.

    Returns
    -------
    tuple of three (R,n,A,D) arrays
        Gradients of q, k and v, in the type of q.
    """
    q, k, v, lengths, y, logarithms, keys = saved
    n, _, D = q.shape[1:]
    real = _real(q)
    # For a query, sum_j dp_j p_j = sum_j m_j p_j (v_j dy) = y dy. The kernel applies the factor in m last.
    levels = (dy.astype(real) * y.astype(real)).sum(-1)
    levels = levels.swapaxes(1, 2) / dropout_bits.kept_scale(plan.rate)
    blocks = plan.backward_blocks
    if blocks is None:
        _, blocks = cuts(q.dtype, D)
    site, options, (dy, q, k, v), head_keys = _prepared(plan, blocks, keys, dy, q, k, v)
    R, columns, A, depth = q.shape
    padding = ((0, 0), (0, 0), (0, columns - n))
    levels = jnp.pad(levels, padding)
    logarithms = jnp.pad(logarithms, padding, constant_values=-HIDDEN)
    shares = columns // (2 * site.pairs)
    row = pl.BlockSpec(
        (None, columns, None, depth),
        lambda i, a, r: (r, 0, a, 0),
    )
    some_keys = pl.BlockSpec(
        (None, site.pairs, 2, None, depth),
        lambda i, a, r: (r, i, 0, a, 0),
    )
    each_query = pl.BlockSpec(
        (None, None, columns),
        lambda i, a, r: (r, a, 0),
    )
    share = pl.BlockSpec(
        (None, None, columns, None, depth),
        lambda i, a, r: (i, r, 0, a, 0),
    )
    of_queries = [each_query] * (2 + len(head_keys))
    dq_result = _result((shares, *q.shape), q.dtype if shares == 1 else real, q)
    dk_result = _result((R, columns // 2, 2, A, depth), q.dtype, q)
    kernel = pl.pallas_call(
        functools.partial(_backward_kernel, site=site),
        grid=(shares, A, R),
        in_specs=[_LENGTH, row, row, some_keys, some_keys, *of_queries],
        out_specs=[share, some_keys, some_keys],
        out_shape=[dq_result, dk_result, dk_result],
        name="attention_backward",
        **options,
    )
    dq, dk, dv = kernel(lengths, dy, q, _paired(k), _paired(v), logarithms, levels, *head_keys)
    dq = dq[0] if shares == 1 else dq.sum(0).astype(q.dtype)
    return tuple(gradient.reshape(q.shape)[:, :n, :, :D] for gradient in (dq, dk, dv))


# With p = 2^(s - logarithm), m the dropout multipliers and c = y dy of each query:
#   dv = (p m)^T dy,  dp = (dy v^T) m,  ds = p (dp - c),  dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
# Scores are computed transposed here, with a row for each key: p and ds then have the layout in registers
# that dv and dk need. Factors of a whole gradient are applied at the end.
# length ()  dy q (n,D)  k v (pairs,2,D)  logarithms levels (n,)  keys (n,) twice or never
# -> dq (n,D)  dk dv (pairs,2,D)
def _backward_kernel(
    length: Any, dy: Any, q: Any, k: Any, v: Any, logarithms: Any, levels: Any, *rest: Any, site: _Site
) -> None:
    *keys, dq, dk, dv = rest
    real = logarithms.dtype
    unit = site.scale * LOG2_E
    kept_scale = dropout_bits.kept_scale(site.rate)
    number = pl.program_id(0)
    length = length[...]
    k = [k[:, half, :] for half in HALVES]
    v = [v[:, half, :] for half in HALVES]
    pairs = (number * site.pairs + _range(site.pairs))[:, None]

    def block(at: Any, sums: Any) -> Any:
        i = (at * site.queries + _range(site.queries))[None, :]
        rows = pl.ds(at * site.queries, site.queries)
        d_out = dy[rows, :]
        queries = q[rows, :]
        logarithm = logarithms[rows][None, :]
        level = levels[rows][None, :]
        both_kept = _kept(site, [word[rows][None, :] for word in keys], pairs)
        count, depth = queries.shape
        d_queries = jnp.zeros((depth, count), real)
        new_sums = []
        for half in HALVES:
            d_keys, d_values = sums[half]
            kept = both_kept[half]
            scores = _product(k[half], queries, b_transposed=True)
            p = jnp.exp2(scores * unit - logarithm)
            seen = _seen(site, i, pairs * 2 + half, length)
            p = jnp.where(seen, p, 0)
            dropped = _drop(p, kept).astype(d_out.dtype)
            d_values = d_values + _product(dropped, d_out)
            dp = _product(v[half], d_out, b_transposed=True)
            dp = _drop(dp, kept)
            ds = (p * (dp - level)).astype(queries.dtype)
            d_keys = d_keys + _product(ds, queries)
            d_queries = d_queries + _product(k[half], ds, a_transposed=True)
            new_sums.append((d_keys, d_values))
        dq[rows, :] = (d_queries * (kept_scale * site.scale)).astype(dq.dtype).T
        return tuple(new_sums)

    def unvisited(at: Any, carry: Any) -> Any:
        nothing = jnp.zeros((site.queries, dq.shape[1]), dq.dtype)
        dq[pl.ds(at * site.queries, site.queries), :] = nothing
        return carry

    some = jnp.int32(site.queries)
    begins = number * (2 * site.pairs)
    end = jnp.where(begins < length, pl.cdiv(length, some), 0)
    begin = jnp.minimum(lax.div(begins, some), end) if site.causal else jnp.int32(0)
    zero = jnp.zeros(k[0].shape, real)
    sums = lax.fori_loop(begin, end, block, ((zero, zero), (zero, zero)))
    lax.fori_loop(jnp.int32(0), begin, unvisited, 0)
    lax.fori_loop(end, jnp.int32(dq.shape[0] // site.queries), unvisited, 0)
    for half, (d_keys, d_values) in zip(HALVES, sums, strict=True):
        dk[:, half, :] = (d_keys * (kept_scale * site.scale)).astype(dk.dtype)
        dv[:, half, :] = (d_values * kept_scale).astype(dv.dtype)


def _seen(site: _Site, i: Any, j: Any, length: Array) -> Array:
    """Return whether the queries at i attend to the keys at j."""
    if site.causal:
        return (j < length) & (j <= i)
    return j < length


# The hash of `dropout_bits.keep`, one for two neighbours. Its upper half is compared without a shift.
def _kept(site: _Site, keys: list[Any], pairs: Any) -> list[Any]:
    """Decide which probabilities survive dropout, those of even and those of odd positions."""
    if not keys:
        return [None, None]
    x = keys[0] + pairs.astype(jnp.uint32) * jnp.uint32(dropout_bits.GOLDEN)
    x = (x ^ (x >> 16)) * jnp.uint32(dropout_bits.FIRST) ^ keys[1]
    x = (x ^ (x >> 15)) * jnp.uint32(dropout_bits.SECOND)
    x = x ^ (x >> 16)
    least = dropout_bits.threshold(site.rate)
    even = (x & jnp.uint32(dropout_bits.DRAWS - 1)) >= least
    odd = x >= jnp.uint32(least * dropout_bits.DRAWS)
    return [even, odd]


def _drop(x: Array, kept: Any) -> Array:
    """Return x where dropout keeps it, 0 elsewhere; all of x without dropout."""
    return x if kept is None else jnp.where(kept, x, 0)


def _product(a: Array, b: Array, a_transposed: bool = False, b_transposed: bool = False) -> Array:
    """Return a @ b, either of them transposed, accumulated in float32; operands are not rounded."""
    return triton.dot(a, b, a_transposed, b_transposed, precision=lax.Precision.HIGHEST)


def _range(count: int) -> Array:
    """Return 0 to count - 1, as int32, whatever the default of JAX."""
    return jnp.arange(count, dtype=jnp.int32)


_LENGTH = pl.BlockSpec((None,), lambda i, a, r: (r,))


def _real(x: Array) -> Array:
    """Return the type in which sums over x are accumulated: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)


# keys (R,n,2)  arrays (R,n,A,D) -> padded (R,columns,A,depth)  head_keys (R,A,columns), twice or never
def _prepared(plan: Plan, blocks: Blocks, keys: Any, *arrays: Array) -> tuple[Any, ...]:
    """Limit blocks to the length of rows, pad to whole blocks, and make keys for each query and head."""
    n, A, D = arrays[0].shape[1:]
    whole = pl.next_power_of_2(n)
    depth = max(LEAST, pl.next_power_of_2(D))
    queries = min(blocks.queries, max(LEAST, whole))
    sources = min(blocks.keys, max(2 * LEAST, whole))
    nothing = (0, 0)
    padding = (0, -n % max(queries, sources))
    padded = [jnp.pad(x, (nothing, padding, nothing, (0, depth - D))) for x in arrays]
    site = _Site(plan.causal, plan.rate, 1 / math.sqrt(D), queries, sources // 2)
    options = {
        "compiler_params": triton.CompilerParams(num_warps=blocks.warps, num_stages=blocks.stages),
        "interpret": plan.interpret,
    }
    if not plan.rate:
        return site, options, padded, []
    keys = keys[:, None]
    heads = jnp.arange(A, dtype=jnp.uint32)[:, None]
    keys = dropout_bits.fold(jnp, keys, heads)
    keys = jnp.pad(keys, (nothing, nothing, padding, nothing))
    return site, options, padded, [keys[..., word] for word in (0, 1)]


def _result(shape: tuple[int, ...], dtype: Any, x: Array) -> Array:
    """Describe the output of a kernel, which varies over the devices of a mesh if x does, for shard_map."""
    return jax.eval_shape(lambda x: jnp.full(shape, x.ravel()[0].astype(dtype)), x)


# x (R,columns,A,depth) -> (R,columns/2,2,A,depth)
def _paired(x: Array) -> Array:
    """Give even and odd positions of a row an axis of their own."""
    R, columns, *rest = x.shape
    return x.reshape(R, columns // 2, 2, *rest)
