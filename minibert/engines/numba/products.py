"""Sums of products in the Numba engine: a tile held in registers, the matmul built on it, and attention.

Every product here multiplies rows with rows: c[i, j] = sum over k of a[i, k] b[j, k]. Sixteen sums run side
by side, for four rows of a and four of b. As LLVM may add in any order, each sum is a vector in a register.
Eight loads thus feed sixteen multiply-adds, and only the processor's multipliers limit the speed.
"""

from typing import Any

import numpy as np

from minibert.engines.numba.jit import HeadKeys, Heads, Ids, Real, Row, Rows, Word, inline, kernel, njit, sums
from minibert.engines.numba.rows import ONE, ZERO, dot, drop, exp, highest, total

TILE = 4  # rows of a, and of b, in a tile
LANES = 16  # attention pads sums over k with zeros to a multiple of this
CACHED = 1 << 17  # elements of b that a matmul keeps in the second-level cache
QUERIES = 64  # queries handled together, so few that their scores stay in the cache


@inline
def put(row: Any, j: int, add: bool, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    """Write four numbers into a row, or add them to it.

    Parameters
    ----------
    row : (N,) array
        The row, written to.
    j : int
        The column of x0.
    add : bool
        Whether to add to the present values, or replace them.
    x0, x1, x2, x3 : float
        The numbers.
    """
    if add:
        row[j] += x0
        row[j + 1] += x1
        row[j + 2] += x2
        row[j + 3] += x3
    else:
        row[j] = x0
        row[j + 1] = x1
        row[j + 2] = x2
        row[j + 3] = x3


# a (4,K)  b (4,K)  c (4,4), at rows i of a and c, rows j of b and columns j of c
@sums
def tile(a: Any, b: Any, c: Any, i: int, j: int, count: int, add: bool) -> None:
    """Multiply four rows of a with four rows of b over their first `count` columns; write or add to c.

    Sixteen sums run side by side, each of which the compiler holds in a register.

    Parameters
    ----------
    a, b : (M,K) and (N,K) arrays
        The operands.
    c : (M,N) array
        Where the sixteen products are written.
    i : int
        The first of the four rows of a and of c.
    j : int
        The first of the four rows of b and columns of c.
    count : int
        The number of terms in a sum.
    add : bool
        Whether to add to the present values of c, or replace them.
    """
    a0 = a[i]
    a1 = a[i + 1]
    a2 = a[i + 2]
    a3 = a[i + 3]
    b0 = b[j]
    b1 = b[j + 1]
    b2 = b[j + 2]
    b3 = b[j + 3]
    c00 = c01 = c02 = c03 = a.dtype.type(0)
    c10 = c11 = c12 = c13 = a.dtype.type(0)
    c20 = c21 = c22 = c23 = a.dtype.type(0)
    c30 = c31 = c32 = c33 = a.dtype.type(0)
    for k in range(count):
        y0 = b0[k]
        y1 = b1[k]
        y2 = b2[k]
        y3 = b3[k]

        x0 = a0[k]
        c00 += x0 * y0
        c01 += x0 * y1
        c02 += x0 * y2
        c03 += x0 * y3

        x1 = a1[k]
        c10 += x1 * y0
        c11 += x1 * y1
        c12 += x1 * y2
        c13 += x1 * y3

        x2 = a2[k]
        c20 += x2 * y0
        c21 += x2 * y1
        c22 += x2 * y2
        c23 += x2 * y3

        x3 = a3[k]
        c30 += x3 * y0
        c31 += x3 * y1
        c32 += x3 * y2
        c33 += x3 * y3

    put(c[i], j, add, c00, c01, c02, c03)
    put(c[i + 1], j, add, c10, c11, c12, c13)
    put(c[i + 2], j, add, c20, c21, c22, c23)
    put(c[i + 3], j, add, c30, c31, c32, c33)


# a (M,K)  b (N,K)  c (M,N), with memory for M and N rounded up to a multiple of four
@njit
def products(a: Any, b: Any, c: Any, M: int, N: int, count: int, add: bool) -> None:
    """Multiply tile by tile: c = a b^T, or c += a b^T.

    Parameters
    ----------
    a, b : (M,K) and (N,K) arrays
        The operands. They have memory for a multiple of four rows, and c for such rows and columns.
    c : (M,N) array
        Where the products are written.
    M, N : int
        How many rows of a and of b to multiply, rounded up here to a multiple of four.
    count : int
        The number of terms in a sum.
    add : bool
        Whether to add to the present values of c, or replace them.
    """
    for i in range(0, M, TILE):
        for j in range(0, N, TILE):
            tile(a, b, c, i, j, count, add)


# Matmul goes through b in blocks that stay in the second-level cache, and through each block in tiles. Rows
# and columns that do not fill a tile come last, one dot product at a time. A range is one of columns of c,
# because a may have few rows.
#
# Speed in float32 on one core with a peak of 118 GFLOP/s. M,N,K: GFLOP/s of this loop, of OpenBLAS 0.3.31
#   16,768,768: 104, 41    64,768,768: 102, 78    256,768,768: 101, 98    4096,256,1024: 93, 96
#   16,128,128:  58, 36    64,128,128:  69, 71    256,128,128:  72, 93    2048,768,3072: 80, 104
# Long sums reach nearly the peak. Short ones pay for adding up sixteen vectors at the end, and large matrices
# for operands that are not packed. So the engine uses this loop for few rows and long sums.
# a (M,K)  b (N,K) -> c (M,N) = a b^T
@kernel
def matmul(a: Rows, b: Rows, c: Rows, begin: int, end: int) -> None:
    """Multiply c = a b^T, in blocks of b that stay in the cache.

    Parameters
    ----------
    a : (M,K) array
        The left operand.
    b : (N,K) array
        The right operand, transposed.
    c : (M,N) array
        Where the product is written.
    begin, end : int
        The range of columns of c, which are rows of b, of this call.
    """
    M, K = a.shape
    block = max(TILE, CACHED // max(1, K) // TILE * TILE)
    rows_in_tiles = M // TILE * TILE
    columns_in_tiles = begin + (end - begin) // TILE * TILE
    for low in range(begin, columns_in_tiles, block):
        high = min(low + block, columns_in_tiles)
        for i in range(0, rows_in_tiles, TILE):
            for j in range(low, high, TILE):
                tile(a, b, c, i, j, K, False)
    for i in range(M):
        first = columns_in_tiles if i < rows_in_tiles else begin
        for j in range(first, end):
            c[i, j] = dot(a[i], b[j])


# Attention: one task for each head of each sequence. Operands are copied into contiguous rows padded with
# zeros, because a product reads both of its operands along the sum.
@inline
def up(n: int, multiple: int) -> int:
    """Round n up.

    Parameters
    ----------
    n : int
        The number, not negative.
    multiple : int
        The number that divides the result.

    Returns
    -------
    int
        The smallest multiple that is not below n.
    """
    return (n + multiple - 1) // multiple * multiple


@inline
def longest(borders: Any, A: int, begin: int, end: int) -> int:
    """Return the length of the longest sequence among these tasks.

    Parameters
    ----------
    borders : (S+1,) int64
        Where sequences begin.
    A : int
        The number of heads: task t is head t % A of sequence t // A.
    begin, end : int
        The range of tasks.

    Returns
    -------
    int
        Its number of tokens.
    """
    length = 0
    for s in range(begin // A, (end - 1) // A + 1):
        length = max(length, borders[s + 1] - borders[s])
    return length


# x (n,D), in memory whose rows are `pitch` elements apart -> rows (up(n, 4), up(D, 16))
@inline
def lay_out(x: Any, pitch: int, n: int, D: int, scale: Any, rows: Any) -> None:
    """Copy one head of a sequence, a row for each token, padded with zeros.

    Parameters
    ----------
    x : memory, (n,D) in rows `pitch` apart
        The head, from its first element on.
    pitch : int
        Elements from one token to the next.
    n, D : int
        Tokens of the sequence, and size of a head.
    scale : float
        The factor of all elements.
    rows : (up(n,4), up(D,16)) array or larger
        Where the copy is written.
    """
    for t in range(n):
        source = x[t * pitch :][:D]
        row = rows[t]
        for d in range(D):
            row[d] = source[d] * scale
        row[D:] = ZERO
    rows[n : up(n, TILE)] = ZERO


# x (n,D), in memory whose rows are `pitch` elements apart -> rows (up(D, 4), up(n, 16))
@inline
def lay_out_transposed(x: Any, pitch: int, n: int, D: int, scale: Any, rows: Any) -> None:
    """Copy one head of a sequence, a row for each dimension, with zeros after its tokens.

    Parameters
    ----------
    x : memory, (n,D) in rows `pitch` apart
        The head, from its first element on.
    pitch : int
        Elements from one token to the next.
    n, D : int
        Tokens of the sequence, and size of a head.
    scale : float
        The factor of all elements.
    rows : (up(D,4), up(n,16)) array or larger
        Where the copy is written.
    """
    for d in range(D):
        row = rows[d]
        for t in range(n):
            row[t] = x[t * pitch + d] * scale
        row[n : up(n, LANES)] = ZERO


# rows (n,D) -> x (T,A,D), in one head from row `first` on
@inline
def lay_back(rows: Any, n: int, D: int, scale: Any, x: Any, first: int, head: int) -> None:
    """Copy the result of one head of a sequence to where it belongs in the batch.

    Parameters
    ----------
    rows : (n,D) array or larger
        The result.
    n, D : int
        Tokens, and size of a head.
    scale : float
        The factor of all elements.
    x : (T,A,D) array
        The array of the batch, written to.
    first : int
        The row of x for the first token.
    head : int
        The index of the head.
    """
    for t in range(n):
        row = rows[t]
        out = x[first + t, head]
        for d in range(D):
            out[d] = row[d] * scale


# Saved for backward: for each softmax its largest score and one over its sum.
# q k v (T,A,D) in memory whose rows are `pitch` elements apart, since they are usually parts of one array.
# borders (S+1,)  keys (T,A,2) or none -> y (T,A,D)  largest inverse (T,A)
@kernel
def attention(
    q: Row, k: Row, v: Row, pitch: int, borders: Ids, causal: bool,
    keys: HeadKeys, threshold: Word, kept_scale: Real, scale: Real,
    y: Heads, largest: Rows, inverse: Rows, begin: int, end: int,
) -> None:  # fmt: skip
    """Compute softmax(q k^T / sqrt(D)) v, head by head, 64 queries at a time.

    Parameters
    ----------
    q, k, v : memory, (T,A,D) in rows `pitch` apart
        Queries, keys and values, from their first element on.
    pitch : int
        Elements from one token to the next.
    borders : (S+1,) int64
        Where sequences begin.
    causal : bool
        Whether a token attends only to itself and the tokens before it.
    keys : (T,A,2) uint32
        The keys of dropout; an empty array for no dropout.
    threshold : uint32
        The draw below which a probability is dropped.
    kept_scale : float
        The factor of the probabilities that are kept.
    scale : float
        1 / sqrt(D), by which queries are multiplied.
    y : (T,A,D) array
        Where the result is written.
    largest, inverse : (T,A) arrays
        Where the largest score of each softmax, and one over its sum, are written.
    begin, end : int
        The range of tasks of this call: task t is head t % A of sequence t // A.
    """
    A, D = y.shape[1:]
    width = up(longest(borders, A, begin, end), LANES)
    depth = up(D, LANES)
    unit = scale / scale  # 1 in the precision of the arrays
    queries = np.empty((width, depth), q.dtype)
    sources = np.empty((width, depth), q.dtype)
    values = np.zeros((depth, width + LANES), q.dtype)
    scores = np.empty((QUERIES, width + LANES), q.dtype)
    mixed = np.empty((QUERIES, depth), q.dtype)
    for task in range(begin, end):
        sequence = task // A
        head = task % A
        first = borders[sequence]
        n = borders[sequence + 1] - first
        columns = up(n, LANES)
        at = first * pitch + head * D
        lay_out(q[at:], pitch, n, D, scale, queries)
        lay_out(k[at:], pitch, n, D, unit, sources)
        lay_out_transposed(v[at:], pitch, n, D, unit, values)
        for low in range(0, n, QUERIES):
            count = min(QUERIES, n - low)
            products(queries[low:], sources, scores, count, n, depth, False)
            for i in range(count):
                t = first + low + i
                seen = low + i + 1 if causal else n
                p = scores[i][:seen]
                top = highest(p)
                for j in range(seen):
                    p[j] = exp(p[j] - top)
                share = ONE / total(p)
                for j in range(seen):
                    p[j] *= share
                largest[t, head] = top
                inverse[t, head] = share
                if keys.size:
                    drop(p, p, keys[t, head, 0], keys[t, head, 1], threshold, kept_scale)
                scores[i][seen:columns] = ZERO
            products(scores, values, mixed, count, D, columns, False)
            lay_back(mixed, count, D, unit, y, first + low, head)


# x dm (N,)  keys (T,A,2) or none -> x becomes m, dm becomes ds
@inline
def row_backward(
    x: Any, dm: Any, top: Any, share: Any, keys: Any, t: int, head: int, threshold: Any, kept_scale: Any
) -> None:
    """Recompute one row of probabilities, and compute the gradient of its scores, in place.

    The probabilities are p = exp(x - top) share, m is p after dropout, and ds = p (dp - sum(dp p)).

    Parameters
    ----------
    x : (N,) array
        The scores, overwritten with m.
    dm : (N,) array
        Gradient of m, overwritten with that of the scores.
    top, share : float
        The largest score, and 1 / the sum of exp(x - top).
    keys : (T,A,2) uint32
        The keys of dropout; an empty array for no dropout.
    t, head : int
        The indices of the key in `keys`.
    threshold : uint32
        The draw below which a probability is dropped.
    kept_scale : float
        The factor of the probabilities that are kept.
    """
    for j in range(x.size):
        x[j] = exp(x[j] - top) * share
    if keys.size:
        drop(dm, dm, keys[t, head, 0], keys[t, head, 1], threshold, kept_scale)
    mean_dp = dot(dm, x)
    for j in range(x.size):
        dm[j] = x[j] * (dm[j] - mean_dp)
    if keys.size:
        drop(x, x, keys[t, head, 0], keys[t, head, 1], threshold, kept_scale)


# scores d_scores (64,n) -> m and ds in their places, and transposed (n,64)
@inline
def block_backward(
    scores: Any, d_scores: Any, count: int, low: int, n: int, first: int, head: int, causal: bool,
    largest: Any, inverse: Any, keys: Any, threshold: Any, kept_scale: Any,
    transposed_p: Any, transposed_ds: Any,
) -> None:  # fmt: skip
    """Compute the gradients of the scores of up to 64 queries, row by row, and transpose them.

    Parameters
    ----------
    scores, d_scores : (64,n) arrays
        The scores, overwritten with the probabilities after dropout; the gradients of these, overwritten with
        those of the scores. Zeros follow in both, up to a multiple of `LANES` columns.
    count : int
        The number of queries.
    low : int
        The index of the first query in the sequence.
    n : int
        Tokens of the sequence.
    first : int
        The row of the batch where the sequence begins.
    head : int
        The index of the head.
    causal : bool
        Whether a token attends only to itself and the tokens before it.
    largest, inverse : (T,A) arrays
        What the forward pass saved for each softmax.
    keys, threshold, kept_scale : (T,A,2) uint32, uint32, float
        As for `row_backward`.
    transposed_p, transposed_ds : (n,64) arrays
        Where both are also written, transposed.
    """
    columns = up(n, LANES)
    for i in range(count):
        t = first + low + i
        seen = low + i + 1 if causal else n
        p = scores[i]
        ds = d_scores[i]
        top = largest[t, head]
        share = inverse[t, head]
        row_backward(p[:seen], ds[:seen], top, share, keys, t, head, threshold, kept_scale)
        p[seen:columns] = ZERO
        ds[seen:columns] = ZERO
        for j in range(n):
            transposed_p[j, i] = p[j]
            transposed_ds[j, i] = ds[j]


# Follows the formulas of core/ops/attention.py. The probabilities p are computed again from the scores, and
# the dropout mask m is drawn again from its keys. Sums over queries need p and ds transposed.
# dy (T,A,D)  q k v (T,A,D) in memory  borders (S+1,)  keys (T,A,2) or none  largest inverse (T,A)
# -> dq dk dv (T,A,D)
@kernel
def attention_backward(
    dy: Heads, q: Row, k: Row, v: Row, pitch: int, borders: Ids, causal: bool,
    keys: HeadKeys, threshold: Word, kept_scale: Real, scale: Real, largest: Rows, inverse: Rows,
    dq: Heads, dk: Heads, dv: Heads, begin: int, end: int,
) -> None:  # fmt: skip
    """Compute the gradients of `attention`, head by head, 64 queries at a time.

    Parameters
    ----------
    dy : (T,A,D) array
        Gradient of the result.
    q, k, v : memory, (T,A,D) in rows `pitch` apart
        Queries, keys and values, from their first element on.
    pitch : int
        Elements from one token to the next.
    borders : (S+1,) int64
        Where sequences begin.
    causal : bool
        Whether a token attends only to itself and the tokens before it.
    keys : (T,A,2) uint32
        The keys of dropout; an empty array for no dropout.
    threshold : uint32
        The draw below which a probability is dropped.
    kept_scale : float
        The factor of the probabilities that are kept.
    scale : float
        1 / sqrt(D).
    largest, inverse : (T,A) arrays
        What the forward pass saved for each softmax.
    dq, dk, dv : (T,A,D) arrays
        Where the gradients are written.
    begin, end : int
        The range of tasks of this call: task t is head t % A of sequence t // A.
    """
    A, D = dy.shape[1:]
    dy_rows = dy.reshape(-1)
    width = up(longest(borders, A, begin, end), LANES)
    depth = up(D, LANES)
    unit = scale / scale  # 1 in the precision of the arrays
    queries = np.empty((width, depth), q.dtype)
    sources = np.empty((width, depth), q.dtype)
    values = np.empty((width, depth), q.dtype)
    d_out = np.empty((width, depth), q.dtype)
    d_sources = np.empty((width, depth), q.dtype)
    d_values = np.empty((width, depth), q.dtype)
    transposed_sources = np.zeros((depth, width + LANES), q.dtype)
    transposed_queries = np.zeros((depth, QUERIES + LANES), q.dtype)
    transposed_d_out = np.zeros((depth, QUERIES + LANES), q.dtype)
    scores = np.empty((QUERIES, width + LANES), q.dtype)
    d_scores = np.empty((QUERIES, width + LANES), q.dtype)
    transposed_p = np.zeros((width, QUERIES + LANES), q.dtype)
    transposed_ds = np.zeros((width, QUERIES + LANES), q.dtype)
    mixed = np.empty((QUERIES, depth), q.dtype)
    for task in range(begin, end):
        sequence = task // A
        head = task % A
        first = borders[sequence]
        n = borders[sequence + 1] - first
        rows = up(n, TILE)
        columns = up(n, LANES)
        at = first * pitch + head * D
        at_dy = (first * A + head) * D
        lay_out(q[at:], pitch, n, D, scale, queries)
        lay_out(k[at:], pitch, n, D, unit, sources)
        lay_out(v[at:], pitch, n, D, unit, values)
        lay_out(dy_rows[at_dy:], A * D, n, D, unit, d_out)
        lay_out_transposed(k[at:], pitch, n, D, unit, transposed_sources)
        d_sources[:rows] = ZERO
        d_values[:rows] = ZERO
        for low in range(0, n, QUERIES):
            count = min(QUERIES, n - low)
            padded = up(count, LANES)
            lay_out_transposed(q[at + low * pitch :], pitch, count, D, scale, transposed_queries)
            lay_out_transposed(dy_rows[at_dy + low * A * D :], A * D, count, D, unit, transposed_d_out)
            transposed_p[:rows, count:padded] = ZERO
            transposed_ds[:rows, count:padded] = ZERO
            products(queries[low:], sources, scores, count, n, depth, False)
            products(d_out[low:], values, d_scores, count, n, depth, False)
            block_backward(
                scores, d_scores, count, low, n, first, head, causal, largest, inverse,
                keys, threshold, kept_scale, transposed_p, transposed_ds,
            )  # fmt: skip
            products(d_scores, transposed_sources, mixed, count, D, columns, False)
            products(transposed_ds, transposed_queries, d_sources, n, D, padded, True)
            products(transposed_p, transposed_d_out, d_values, n, D, padded, True)
            lay_back(mixed, count, D, scale, dq, first + low, head)
        lay_back(d_sources, n, D, unit, dk, first, head)
        lay_back(d_values, n, D, unit, dv, first, head)
