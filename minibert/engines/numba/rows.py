"""The loops of the Numba engine that go row by row, each over rows `begin` to `end`.

What the compiler needs to use the whole width of the processor, learnt by looking at what it made:
- loops count from zero over slices: with `x[begin + i]` it has to allow for negative indices, and gives up;
- functions that are called in a loop are inlined by force, or the loop stays scalar;
- a maximum of floats is taken of integers, because no rule about not-a-number stands in the way there;
- constants are float32 where that is exact: `0.5 * x` would be float64 whatever x is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from minibert.core.ops.erf import TERMS, TERMS_SINGLE, series_coefficients
from minibert.core.ops.random import DRAWS, FIRST, GOLDEN, SECOND
from minibert.engines.numba.jit import Ids, Keys, Real, Row, Rows, Sums, Word, inline, kernel, njit, sums

ZERO, HALF, ONE, TWO = (np.float32(one) for one in (0, 0.5, 1, 2))


class Precision(NamedTuple):
    """What the arithmetic of one floating-point type is made of."""

    real: type
    integer: type  # of the same width
    bits: int  # of the fraction
    ln2: tuple[float, float]  # ln 2 as a short number, whose multiples are exact, and the rest
    lowest: float  # of the exponential: a little below, 2^n is no longer a normal number
    highest: float  # and here infinite
    powers: int  # of its Taylor series: |x| <= ln(2)/2 leaves 5e-9 and 4e-18
    erfc_terms: int


SINGLE = Precision(np.float32, np.int32, 23, (0.693359375, -2.12194440e-4), -88.03, 89.0, 7, TERMS_SINGLE)
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
DOUBLE = Precision(np.float64, np.int64, 52, _LN2, -709.09, 710.0, 13, TERMS["float64"])


@inline
def horner(x: Any, coefficients: Any) -> Any:
    """Evaluate a polynomial, highest power first."""
    p = coefficients[0]
    for k in range(1, len(coefficients)):
        p = p * x + coefficients[k]
    return p


def by_precision(make: Callable[[Precision], Any]) -> Any:
    """Make a function of either precision, for the compiler to choose by its argument; a decorator."""
    single, double = make(SINGLE), make(DOUBLE)

    def function(x: Any) -> Any:
        """Stand for both where Python calls it, which nothing does."""

    def choose(x: Any) -> Any:
        made = single if getattr(x, "dtype", x) == types.float32 else double
        return lambda x: made(x)

    overload(function, jit_options={"forceinline": True}, strict=False)(choose)
    return function


@by_precision
def exp(precision: Precision) -> Any:
    """Return e^x = 2^n e^r with n whole and r at most ln(2)/2 long; to one and a half units of last place.

    Infinite above the range of x, zero below. Adding and taking off 1.5 x 2^bits rounds to a whole number,
    which then stands in the lowest bits of the sum; shifted up into the exponent these are 2^n. Not a number
    stays so.
    """
    real, integer = precision.real, precision.integer
    log2e, rounder = real(1 / math.log(2)), real(1.5 * 2**precision.bits)
    long, short = map(real, precision.ln2)
    lowest, highest = real(precision.lowest), real(precision.highest)
    shift, bias = integer(precision.bits), integer(2 ** (8 * real().itemsize - precision.bits - 2) - 1)
    series = tuple(real(1 / math.factorial(k)) for k in range(precision.powers, -1, -1))

    @inline
    def exp(x: Any) -> Any:
        x = highest if x > highest else x
        x = lowest if x < lowest else x
        moved = real(x * log2e + rounder)
        n = moved - rounder
        power = integer((moved.view(integer) + bias) << shift)
        return horner(x - n * long - n * short, series) * power.view(real)

    return exp


@by_precision
def normal(precision: Precision) -> Any:
    """Return (P(X <= x), density at x) of the standard normal: Weideman's series, as in core/ops/erf.py."""
    real = precision.real
    shift, coefficients = series_coefficients(precision.erfc_terms)
    scale, series, root_half = real(shift), tuple(map(real, coefficients)), real(math.sqrt(0.5))
    per_root_pi, density = real(1 / math.sqrt(math.pi)), real(1 / math.sqrt(2 * math.pi))

    @inline
    def normal(x: Any) -> Any:
        y = abs(x * root_half)
        inverse = ONE / (scale + y)
        exponential = exp(-y * y)
        p = horner((scale - y) * inverse, series)
        tail = HALF * exponential * inverse * (TWO * p * inverse + per_root_pi)
        return (tail if x < ZERO else ONE - tail), density * exponential

    return normal


@by_precision
def normal_by_tanh(precision: Precision) -> Any:
    """Return 1 / (1 + exp(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3), and its derivative."""
    real = precision.real
    twice, cubic, three_cubic = real(2 * math.sqrt(2 / math.pi)), real(0.044715), real(3 * 0.044715)

    @inline
    def normal_by_tanh(x: Any) -> Any:
        below = exp(-twice * (x + cubic * x * x * x))
        cdf = ONE / (ONE + below)
        return cdf, cdf * (ONE - cdf) * twice * (ONE + three_cubic * x * x)

    return normal_by_tanh


@by_precision
def highest(precision: Precision) -> Any:
    """Return the largest of a row. With the fraction of negatives flipped, floats are ordered as integers."""
    real, integer, limits = precision.real, precision.integer, np.iinfo(precision.integer)
    sign, fraction, lowest = integer(limits.bits - 1), integer(limits.max), integer(limits.min)

    @inline
    def highest(x: Any) -> Any:
        top = lowest
        for i in range(x.size):
            number = real(x[i]).view(integer)
            top = max(top, integer(number ^ ((number >> sign) & fraction)))
        return integer(top ^ ((top >> sign) & fraction)).view(real)

    return highest


@sums
def total(x: Any) -> Any:
    """Sum a row."""
    result = x.dtype.type(0)
    for i in range(x.size):
        result += x[i]
    return result


@sums
def dot(x: Any, y: Any) -> Any:
    """Sum products."""
    result = x.dtype.type(0)
    for i in range(x.size):
        result += x[i] * y[i]
    return result


@sums
def total_of_exponentials(x: Any, shift: Any) -> Any:
    """Sum e^(x - shift)."""
    result = ZERO * shift
    for i in range(x.size):
        result += exp(x[i] - shift)
    return result


@sums
def total_of_squares(x: Any) -> Any:
    """Sum squares, in float64."""
    result = 0.0
    for i in range(x.size):
        result += np.float64(x[i]) * np.float64(x[i])
    return result


# y (T,N)  bias (N,), added in place
@kernel
def add_bias(y: Rows, bias: Row, begin: int, end: int) -> None:
    for t in range(begin, end):
        row = y[t]
        for j in range(row.size):
            row[j] += bias[j]


# Over columns, like everything that adds up rows: each column has one thread and one order.
# x (T,N) -> sums (N,)
@kernel
def column_sums(x: Rows, sums: Row, begin: int, end: int) -> None:
    part = sums[begin:end]
    part[:] = ZERO
    for t in range(x.shape[0]):
        row = x[t][begin:end]
        for j in range(part.size):
            part[j] += row[j]


# total extra (N,)
@kernel
def add(total: Row, extra: Row, begin: int, end: int) -> None:
    total, extra = total[begin:end], extra[begin:end]
    for i in range(total.size):
        total[i] += extra[i]


# x y (N,) -> product (N,)
@kernel
def multiply(x: Row, y: Row, product: Row, begin: int, end: int) -> None:
    x, y, product = x[begin:end], y[begin:end], product[begin:end]
    for i in range(x.size):
        product[i] = x[i] * y[i]


# GELU: y = x c(x), c the distribution function, and beside it the slope c + x c', all that backward needs.
# x (N,) -> y slope (N,)
@kernel
def gelu(x: Row, by_tanh: bool, y: Row, slope: Row, begin: int, end: int) -> None:
    x, y, slope = x[begin:end], y[begin:end], slope[begin:end]
    for i in range(x.size):
        cdf, density = normal_by_tanh(x[i]) if by_tanh else normal(x[i])
        y[i] = x[i] * cdf
        slope[i] = cdf + x[i] * density


# LayerNorm. Kept: x itself, and two numbers a row; the normalised row is made anew.
# x (T,H)  gamma beta (H,) -> y (T,H)  mean rstd (T,)
@kernel
def layer_norm(
    x: Rows, gamma: Row, beta: Row, eps: Real, y: Rows, mean: Row, rstd: Row, begin: int, end: int
) -> None:
    count = np.float32(x.shape[1])
    for t in range(begin, end):
        row, out = x[t], y[t]
        centre = total(row) / count
        for j in range(row.size):
            out[j] = row[j] - centre
        scale = ONE / math.sqrt(dot(out, out) / count + eps)
        for j in range(row.size):
            out[j] = out[j] * scale * gamma[j] + beta[j]
        mean[t], rstd[t] = centre, scale


# dx = rstd (g - mean(g) - x_hat mean(g x_hat)) with g = dy gamma, x_hat the normalised row.
# dy x (T,H)  mean rstd (T,)  gamma (H,) -> dx (T,H)  dgamma dbeta (parts,H)
@kernel
def layer_norm_backward(
    dy: Rows, x: Rows, mean: Row, rstd: Row, gamma: Row, step: int,
    dx: Rows, dgamma: Rows, dbeta: Rows, begin: int, end: int,
) -> None:  # fmt: skip
    count = np.float32(x.shape[1])
    along, across = dgamma[begin // step], dbeta[begin // step]
    along[:], across[:] = ZERO, ZERO
    x_hat = np.empty_like(gamma)
    for t in range(begin, end):
        row, d, out = x[t], dy[t], dx[t]
        for j in range(row.size):
            x_hat[j] = (row[j] - mean[t]) * rstd[t]
            along[j] += d[j] * x_hat[j]
            across[j] += d[j]
            out[j] = d[j] * gamma[j]
        level, tilt = total(out) / count, dot(out, x_hat) / count
        for j in range(row.size):
            out[j] = rstd[t] * (out[j] - level - x_hat[j] * tilt)


# Softmax and cross-entropy. Kept: the logits themselves, and two numbers a row.
# logits (N,K)  labels (N,) -> nll largest inverse (N,)
@kernel
def softmax_cross_entropy(
    logits: Rows, labels: Ids, nll: Row, largest: Row, inverse: Row, begin: int, end: int
) -> None:
    for t in range(begin, end):
        row = logits[t]
        top = highest(row)
        exponentials = total_of_exponentials(row, top)
        nll[t] = math.log(exponentials) - (row[labels[t]] - top)
        largest[t], inverse[t] = top, ONE / exponentials


# dnll largest inverse (N,)  logits (N,K)  labels (N,) -> dlogits (N,K)
@kernel
def softmax_cross_entropy_backward(
    dnll: Row, logits: Rows, labels: Ids, largest: Row, inverse: Row, dlogits: Rows, begin: int, end: int
) -> None:
    for t in range(begin, end):
        row, out, label = logits[t], dlogits[t], labels[t]
        d, top, scale = dnll[t], largest[t], inverse[t]
        for j in range(row.size):
            out[j] = exp(row[j] - top) * scale * d
        out[label] = (exp(row[label] - top) * scale - ONE) * d


# table (V,H)  ids (T,) -> rows (T,H)
@kernel
def gather(table: Rows, ids: Ids, rows: Rows, begin: int, end: int) -> None:
    for t in range(begin, end):
        row, out = table[ids[t]], rows[t]
        for j in range(out.size):
            out[j] = row[j]


# Over columns: every thread goes through all ids in their order, so equal ids always add up in that order.
# table (V,H)  ids (T,)  rows (T,H), added in place
@kernel
def scatter_add(table: Rows, ids: Ids, rows: Rows, begin: int, end: int) -> None:
    for t in range(ids.size):
        row, to = rows[t][begin:end], table[ids[t]][begin:end]
        for j in range(row.size):
            to[j] += row[j]


# Dropout: the bits of minibert/core/ops/random.py.
SPREAD, ROUND_1, ROUND_2, DRAW = (np.uint32(one) for one in (GOLDEN, FIRST, SECOND, DRAWS - 1))
S15, S16 = np.uint32(15), np.uint32(16)


@inline
def draws(key: Any, other: Any, pair: Any) -> Any:
    """Draw twice 16 bits, for columns 2 pair and 2 pair + 1 of the row with this key."""
    x = np.uint32(key + np.uint32(pair) * SPREAD)
    x = np.uint32(np.uint32((x ^ (x >> S16)) * ROUND_1) ^ other)
    x = np.uint32((x ^ (x >> S15)) * ROUND_2)
    x = np.uint32(x ^ (x >> S16))
    return np.uint32(x & DRAW), np.uint32(x >> S16)


@njit
def drop(x: Any, y: Any, key: Any, other: Any, threshold: Any, scale: Any) -> None:
    """Write into y x times the multipliers of one row: zero where the draw is below the threshold."""
    for pair in range(x.size // 2):
        even, odd = draws(key, other, pair)
        y[2 * pair] = x[2 * pair] * (scale if even >= threshold else ZERO)
        y[2 * pair + 1] = x[2 * pair + 1] * (scale if odd >= threshold else ZERO)
    if x.size % 2:
        even, odd = draws(key, other, x.size // 2)
        y[x.size - 1] = x[x.size - 1] * (scale if even >= threshold else ZERO)


# x (T,N)  keys (T,2) -> y (T,N)
@kernel
def dropout(x: Rows, keys: Keys, threshold: Word, scale: Real, y: Rows, begin: int, end: int) -> None:
    for t in range(begin, end):
        drop(x[t], y[t], keys[t, 0], keys[t, 1], threshold, scale)


# x (N,) -> squares (parts,)
@kernel
def sums_of_squares(x: Row, step: int, squares: Sums, begin: int, end: int) -> None:
    squares[begin // step] = total_of_squares(x[begin:end])


# params m v grads (N,), the first three in place
@kernel
def adamw(
    params: Row, m: Row, v: Row, grads: Row, clip: Real,
    beta1: Real, one_less_beta1: Real, beta2: Real, one_less_beta2: Real,
    m_scale: Real, v_scale: Real, eps: Real, decay: Real, lr: Real, begin: int, end: int,
) -> None:  # fmt: skip
    params, m, v, grads = params[begin:end], m[begin:end], v[begin:end], grads[begin:end]
    for i in range(params.size):
        g = grads[i] * clip
        m[i] = beta1 * m[i] + one_less_beta1 * g
        v[i] = beta2 * v[i] + one_less_beta2 * (g * g)
        direction = m_scale * m[i] / (math.sqrt(v_scale * v[i]) + eps)
        params[i] -= lr * (direction + decay * params[i])
