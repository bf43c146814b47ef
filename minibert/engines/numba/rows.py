"""The loops of the Numba engine that go row by row, each over rows `begin` to `end`.

What the compiler needs in order to vectorise them, learnt from the machine code that it produced:
- loops count from zero over slices: with `x[begin + i]` it has to allow for negative indices, and gives up;
- functions called in a loop are inlined by force, or the loop stays scalar;
- the maximum of floats is computed on integers, whose order has no rule about NaN that prevents vectors;
- constants are float32 where that is exact: `0.5 * x` would be float64 whatever x is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from minibert.core.ops.dropout_bits import DRAWS, FIRST, GOLDEN, SECOND
from minibert.core.ops.erf import TERMS, TERMS_SINGLE, series_coefficients
from minibert.engines.numba.jit import Ids, Keys, Real, Row, Rows, Sums, Word, inline, kernel, njit, sums

ZERO = np.float32(0)
HALF = np.float32(0.5)
ONE = np.float32(1)
TWO = np.float32(2)


class Precision(NamedTuple):
    """The constants of one floating-point type."""

    real: type  # the NumPy type
    integer: type  # the integer type of the same width
    bits: int  # how many the fraction has
    ln2: tuple[float, float]  # ln 2 in two parts: a short number, whose multiples are exact, and the rest
    lowest: float  # least argument of the exponential: a little below it, 2^n is not a normal number
    highest: float  # greatest argument: here the exponential is infinite
    powers: int  # highest power of its Taylor series: for |x| <= ln(2)/2 the error is 5e-9, and 4e-18
    erfc_terms: int  # how many terms of Weideman's series


SINGLE = Precision(np.float32, np.int32, 23, (0.693359375, -2.12194440e-4), -88.03, 89.0, 7, TERMS_SINGLE)
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
DOUBLE = Precision(np.float64, np.int64, 52, _LN2, -709.09, 710.0, 13, TERMS["float64"])


@inline
def horner(x: Any, coefficients: Any) -> Any:
    """Evaluate a polynomial, highest power first.

    Parameters
    ----------
    x : float
        The argument.
    coefficients : tuple of floats
        From that of the highest power to the constant.

    Returns
    -------
    float
        The value.
    """
    p = coefficients[0]
    for k in range(1, len(coefficients)):
        p = p * x + coefficients[k]
    return p


def by_precision(make: Callable[[Precision], Any]) -> Any:
    """Build a function in both precisions; the compiler chooses one by the argument. A decorator.

    Parameters
    ----------
    make : callable
        Takes a `Precision` and returns the function for it.

    Returns
    -------
    callable
        What compiled code calls. A float32, or an array of them, goes to the function in single precision,
        anything else to that in double precision.
    """
    single = make(SINGLE)
    double = make(DOUBLE)

    def function(x: Any) -> Any:
        """Do nothing: compiled code calls one of the two precisions instead."""

    def choose(x: Any) -> Any:
        is_single = getattr(x, "dtype", x) == types.float32
        chosen = single if is_single else double
        return lambda x: chosen(x)

    overload(function, jit_options={"forceinline": True}, strict=False)(choose)
    return function


@by_precision
def exp(precision: Precision) -> Any:
    """Make the function x -> e^x = 2^n e^r, with n whole and |r| <= ln(2)/2; error at most 1.5 ulp.

    It is infinite above the range of x, zero below, and NaN for NaN. Adding 1.5 x 2^bits and subtracting it
    again rounds to a whole number. The lowest bits of the sum hold that number; shifted up into the exponent,
    they give 2^n.

    Parameters
    ----------
    precision : Precision
        The precision to build the function for.
    """
    real = precision.real
    integer = precision.integer
    log2e = real(1 / math.log(2))
    rounder = real(1.5 * 2**precision.bits)
    long, short = map(real, precision.ln2)
    lowest = real(precision.lowest)
    highest = real(precision.highest)
    exponent_bits = 8 * real().itemsize - precision.bits - 1
    shift = integer(precision.bits)
    bias = integer(2 ** (exponent_bits - 1) - 1)
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
    """Make the function x -> (P(X <= x), density at x) of the standard normal distribution.

    It is Weideman's series, as in core/ops/erf.py.

    Parameters
    ----------
    precision : Precision
        The precision to build the function for.
    """
    real = precision.real
    shift, coefficients = series_coefficients(precision.erfc_terms)
    scale = real(shift)
    series = tuple(map(real, coefficients))
    root_half = real(math.sqrt(0.5))
    per_root_pi = real(1 / math.sqrt(math.pi))
    density = real(1 / math.sqrt(2 * math.pi))

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
    """Make the function x -> (c, dc/dx), c = 1/(1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).

    This is GELU's tanh form, as c = (1 + tanh u)/2. The tests of the gradient check cover the derivative.

    Parameters
    ----------
    precision : Precision
        The precision to build the function for.
    """
    real = precision.real
    twice = real(2 * math.sqrt(2 / math.pi))
    cubic = real(0.044715)
    three_cubic = real(3 * 0.044715)

    @inline
    def normal_by_tanh(x: Any) -> Any:
        exp_minus_2u = exp(-twice * (x + cubic * x * x * x))
        cdf = ONE / (ONE + exp_minus_2u)
        du = ONE + three_cubic * x * x  # du/dx without its factor sqrt(2/pi), which `twice` contains
        slope = cdf * (ONE - cdf) * twice * du
        return cdf, slope

    return normal_by_tanh


@by_precision
def highest(precision: Precision) -> Any:
    """Make the function that returns the largest element of a row x (N,).

    It compares the bits as integers, which have the order of the floats once the lower bits of negative
    numbers are flipped.

    Parameters
    ----------
    precision : Precision
        The precision to build the function for.
    """
    real = precision.real
    integer = precision.integer
    limits = np.iinfo(integer)
    sign = integer(limits.bits - 1)
    fraction = integer(limits.max)
    lowest = integer(limits.min)

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
    """Sum a row.

    Parameters
    ----------
    x : (N,) array
        The row.

    Returns
    -------
    float
        Its sum, in the precision of x, added up in any order.
    """
    result = x.dtype.type(0)
    for i in range(x.size):
        result += x[i]
    return result


@sums
def dot(x: Any, y: Any) -> Any:
    """Sum the products of two rows.

    Parameters
    ----------
    x, y : (N,) arrays
        The rows, of one precision.

    Returns
    -------
    float
        The sum, in the precision of x, added up in any order.
    """
    result = x.dtype.type(0)
    for i in range(x.size):
        result += x[i] * y[i]
    return result


@sums
def total_of_exponentials(x: Any, shift: Any) -> Any:
    """Sum e^(x - shift) over a row.

    Parameters
    ----------
    x : (N,) array
        The row.
    shift : float
        Subtracted first; if it is the largest of the row, nothing overflows.

    Returns
    -------
    float
        The sum, in the precision of x, added up in any order.
    """
    result = ZERO * shift
    for i in range(x.size):
        result += exp(x[i] - shift)
    return result


@sums
def total_of_squares(x: Any) -> Any:
    """Sum the squares of a row, in float64.

    Parameters
    ----------
    x : (N,) array
        The row.

    Returns
    -------
    float
        The sum, added up in any order.
    """
    result = 0.0
    for i in range(x.size):
        result += np.float64(x[i]) * np.float64(x[i])
    return result


# y (T,N)  bias (N,), added in place
@kernel
def add_bias(y: Rows, bias: Row, begin: int, end: int) -> None:
    """Add a bias to rows, in place.

    Parameters
    ----------
    y : (T,N) array
        The rows, written to.
    bias : (N,) array
        What is added to each of them.
    begin, end : int
        The range of rows of this call.
    """
    for t in range(begin, end):
        row = y[t]
        for j in range(row.size):
            row[j] += bias[j]


# The range is one of columns, as in everything that adds up rows: one thread adds up a column, in order.
# x (T,N) -> sums (N,)
@kernel
def column_sums(x: Rows, sums: Row, begin: int, end: int) -> None:
    """Add up rows, from the first to the last.

    Parameters
    ----------
    x : (T,N) array
        The rows.
    sums : (N,) array
        Where the sums are written.
    begin, end : int
        The range of columns of this call.
    """
    part = sums[begin:end]
    part[:] = ZERO
    for t in range(x.shape[0]):
        row = x[t][begin:end]
        for j in range(part.size):
            part[j] += row[j]


# total extra (N,)
@kernel
def add(total: Row, extra: Row, begin: int, end: int) -> None:
    """Add one array to another, in place.

    Parameters
    ----------
    total : (N,) array
        Where to add, written to.
    extra : (N,) array
        What to add.
    begin, end : int
        The range of elements of this call.
    """
    total = total[begin:end]
    extra = extra[begin:end]
    for i in range(total.size):
        total[i] += extra[i]


# x y (N,) -> product (N,)
@kernel
def multiply(x: Row, y: Row, product: Row, begin: int, end: int) -> None:
    """Multiply two arrays element by element.

    Parameters
    ----------
    x, y : (N,) arrays
        The factors.
    product : (N,) array
        Where the products are written.
    begin, end : int
        The range of elements of this call.
    """
    x = x[begin:end]
    y = y[begin:end]
    product = product[begin:end]
    for i in range(x.size):
        product[i] = x[i] * y[i]


# GELU: y = x c(x) with the distribution function c, and its slope c + x c', all that backward needs.
# x (N,) -> y slope (N,)
@kernel
def gelu(x: Row, by_tanh: bool, y: Row, slope: Row, begin: int, end: int) -> None:
    """Compute GELU and its slope.

    Parameters
    ----------
    x : (N,) array
        The arguments.
    by_tanh : bool
        Whether c is the approximation with tanh; otherwise it is exact.
    y : (N,) array
        Where x c(x) is written.
    slope : (N,) array
        Where the derivative c + x c' is written.
    begin, end : int
        The range of elements of this call.
    """
    x = x[begin:end]
    y = y[begin:end]
    slope = slope[begin:end]
    for i in range(x.size):
        x_i = x[i]
        if by_tanh:
            cdf, density = normal_by_tanh(x_i)
        else:
            cdf, density = normal(x_i)
        y[i] = x_i * cdf
        slope[i] = cdf + x_i * density


# LayerNorm. Saved are x itself and two numbers a row, from which backward computes the normalised row again.
# x (T,H)  gamma beta (H,) -> y (T,H)  mean rstd (T,)
@kernel
def layer_norm(
    x: Rows, gamma: Row, beta: Row, eps: Real, y: Rows, mean: Row, rstd: Row, begin: int, end: int
) -> None:
    """Normalise rows, scale and shift them.

    Parameters
    ----------
    x : (T,H) array
        The rows.
    gamma, beta : (H,) arrays
        Scale and shift of every row.
    eps : float
        Added to the variance.
    y : (T,H) array
        Where the result is written.
    mean, rstd : (T,) arrays
        Where mean and 1 / sqrt(variance + eps) of each row are written.
    begin, end : int
        The range of rows of this call.
    """
    count = np.float32(x.shape[1])
    for t in range(begin, end):
        row = x[t]
        out = y[t]
        centre = total(row) / count
        for j in range(row.size):
            out[j] = row[j] - centre
        scale = ONE / math.sqrt(dot(out, out) / count + eps)
        for j in range(row.size):
            out[j] = out[j] * scale * gamma[j] + beta[j]
        mean[t] = centre
        rstd[t] = scale


# dx = rstd (g - mean(g) - x_hat mean(g x_hat)) with g = dy gamma, x_hat the normalised row.
# dy x (T,H)  mean rstd (T,)  gamma (H,) -> dx (T,H)  dgamma dbeta (parts,H)
@kernel
def layer_norm_backward(
    dy: Rows, x: Rows, mean: Row, rstd: Row, gamma: Row, step: int,
    dx: Rows, dgamma: Rows, dbeta: Rows, begin: int, end: int,
) -> None:  # fmt: skip
    """Compute the gradients of `layer_norm`; those of gamma and beta in parts, one for each range.

    Parameters
    ----------
    dy : (T,H) array
        Gradient of the result.
    x : (T,H) array
        The rows that were normalised.
    mean, rstd : (T,) arrays
        Mean and 1 / deviation of each row.
    gamma : (H,) array
        The scale.
    step : int
        Rows in every range except the last: `begin // step` is the index of this range.
    dx : (T,H) array
        Where the gradient of x is written.
    dgamma, dbeta : (parts,H) arrays
        Where the sums over this range are written, in the row with its index.
    begin, end : int
        The range of rows of this call.
    """
    count = np.float32(x.shape[1])
    part = begin // step
    dgamma_sum = dgamma[part]
    dbeta_sum = dbeta[part]
    dgamma_sum[:] = ZERO
    dbeta_sum[:] = ZERO
    x_hat = np.empty_like(gamma)
    for t in range(begin, end):
        row = x[t]
        d = dy[t]
        out = dx[t]
        for j in range(row.size):
            x_hat[j] = (row[j] - mean[t]) * rstd[t]
            dgamma_sum[j] += d[j] * x_hat[j]
            dbeta_sum[j] += d[j]
            out[j] = d[j] * gamma[j]
        mean_g = total(out) / count
        mean_g_x_hat = dot(out, x_hat) / count
        for j in range(row.size):
            out[j] = rstd[t] * (out[j] - mean_g - x_hat[j] * mean_g_x_hat)


# Softmax and cross-entropy. Saved are the logits themselves and two numbers a row.
# logits (N,K)  labels (N,) -> nll largest inverse (N,)
@kernel
def softmax_cross_entropy(
    logits: Rows, labels: Ids, nll: Row, largest: Row, inverse: Row, begin: int, end: int
) -> None:
    """Compute -log softmax(logits)[label] of rows, in nats.

    Parameters
    ----------
    logits : (N,K) array
        Scores.
    labels : (N,) int64
        The right column of each row.
    nll : (N,) array
        Where the losses are written.
    largest, inverse : (N,) arrays
        Where the largest score of each row, and one over the sum of its exponentials, are written.
    begin, end : int
        The range of rows of this call.
    """
    for t in range(begin, end):
        row = logits[t]
        top = highest(row)
        exponentials = total_of_exponentials(row, top)
        nll[t] = math.log(exponentials) - (row[labels[t]] - top)
        largest[t] = top
        inverse[t] = ONE / exponentials


# dnll largest inverse (N,)  logits (N,K)  labels (N,) -> dlogits (N,K)
@kernel
def softmax_cross_entropy_backward(
    dnll: Row, logits: Rows, labels: Ids, largest: Row, inverse: Row, dlogits: Rows, begin: int, end: int
) -> None:
    """Compute the gradient of `softmax_cross_entropy`: softmax - one-hot(label), times dnll.

    Parameters
    ----------
    dnll : (N,) array
        Gradient of the losses.
    logits : (N,K) array
        Scores.
    labels : (N,) int64
        The right column of each row.
    largest, inverse : (N,) arrays
        What the forward pass saved for each row.
    dlogits : (N,K) array
        Where the gradient is written.
    begin, end : int
        The range of rows of this call.
    """
    for t in range(begin, end):
        row = logits[t]
        out = dlogits[t]
        label = labels[t]
        d = dnll[t]
        top = largest[t]
        scale = inverse[t]
        for j in range(row.size):
            out[j] = exp(row[j] - top) * scale * d
        out[label] = (exp(row[label] - top) * scale - ONE) * d


# table (V,H)  ids (T,) -> rows (T,H)
@kernel
def gather(table: Rows, ids: Ids, rows: Rows, begin: int, end: int) -> None:
    """Copy rows of a table.

    Parameters
    ----------
    table : (V,H) array
        The table.
    ids : (T,) int64
        Indices of its rows.
    rows : (T,H) array
        Where the copies are written.
    begin, end : int
        The range of ids of this call.
    """
    for t in range(begin, end):
        row = table[ids[t]]
        out = rows[t]
        for j in range(out.size):
            out[j] = row[j]


# The range is one of columns: every thread goes through all ids, so that equal ids add up in their order.
# table (V,H)  ids (T,)  rows (T,H), added in place
@kernel
def scatter_add(table: Rows, ids: Ids, rows: Rows, begin: int, end: int) -> None:
    """Add rows to those of a table, table[ids[t]] += rows[t], in the order of t, in place.

    Parameters
    ----------
    table : (V,H) array
        The table, written to.
    ids : (T,) int64
        Indices of rows; an index may occur several times.
    rows : (T,H) array
        What to add.
    begin, end : int
        The range of columns of this call.
    """
    for t in range(ids.size):
        row = rows[t][begin:end]
        target = table[ids[t]][begin:end]
        for j in range(row.size):
            target[j] += row[j]


# Dropout draws the same bits as minibert/core/ops/dropout_bits.py.
SPREAD = np.uint32(GOLDEN)
ROUND_1 = np.uint32(FIRST)
ROUND_2 = np.uint32(SECOND)
DRAW = np.uint32(DRAWS - 1)
S15 = np.uint32(15)
S16 = np.uint32(16)


@inline
def draws(key: Any, other: Any, pair: Any) -> Any:
    """Draw 16 bits each for columns 2 pair and 2 pair + 1 of the row with this key.

    Parameters
    ----------
    key, other : uint32
        The two words of the row's key.
    pair : int
        The index of the pair of columns.

    Returns
    -------
    tuple of two uint32
        The draws for the even column and the odd one, each below 65,536.
    """
    x = np.uint32(key + np.uint32(pair) * SPREAD)
    x = np.uint32((x ^ (x >> S16)) * ROUND_1)
    x = np.uint32(x ^ other)
    x = np.uint32((x ^ (x >> S15)) * ROUND_2)
    x = np.uint32(x ^ (x >> S16))
    even = np.uint32(x & DRAW)
    odd = np.uint32(x >> S16)
    return even, odd


@njit
def drop(x: Any, y: Any, key: Any, other: Any, threshold: Any, scale: Any) -> None:
    """Apply dropout to a row: y is `scale` times x, or zero where the draw is below the threshold.

    Parameters
    ----------
    x : (N,) array
        The row.
    y : (N,) array
        Where the result is written; may be x itself.
    key, other : uint32
        The two words of the row's key.
    threshold : uint32
        The draw below which to drop.
    scale : float
        The factor of what is kept, in the precision of x.
    """
    pairs = x.size // 2
    for pair in range(pairs):
        i = 2 * pair
        even, odd = draws(key, other, pair)
        even_scale = scale if even >= threshold else ZERO
        odd_scale = scale if odd >= threshold else ZERO
        y[i] = x[i] * even_scale
        y[i + 1] = x[i + 1] * odd_scale
    if x.size % 2:
        last = x.size - 1
        even, _ = draws(key, other, pairs)
        last_scale = scale if even >= threshold else ZERO
        y[last] = x[last] * last_scale


# x (T,N)  keys (T,2) -> y (T,N)
@kernel
def dropout(x: Rows, keys: Keys, threshold: Word, scale: Real, y: Rows, begin: int, end: int) -> None:
    """Apply dropout to rows.

    Parameters
    ----------
    x : (T,N) array
        The rows.
    keys : (T,2) uint32
        Their keys at this dropout site.
    threshold : uint32
        The draw below which to drop.
    scale : float
        The factor of what is kept.
    y : (T,N) array
        Where the result is written.
    begin, end : int
        The range of rows of this call.
    """
    for t in range(begin, end):
        drop(x[t], y[t], keys[t, 0], keys[t, 1], threshold, scale)


# x (N,) -> squares (parts,)
@kernel
def sums_of_squares(x: Row, step: int, squares: Sums, begin: int, end: int) -> None:
    """Sum squares in float64, one sum for each range.

    Parameters
    ----------
    x : (N,) array
        The numbers.
    step : int
        Elements in every range except the last: `begin // step` is the index of this range.
    squares : (parts,) float64
        Where the sum of this range is written.
    begin, end : int
        The range of elements of this call.
    """
    squares[begin // step] = total_of_squares(x[begin:end])


# params m v grads (N,), the first three in place
@kernel
def adamw(
    params: Row, m: Row, v: Row, grads: Row, clip: Real,
    beta1: Real, one_less_beta1: Real, beta2: Real, one_less_beta2: Real,
    m_scale: Real, v_scale: Real, eps: Real, decay: Real, lr: Real, begin: int, end: int,
) -> None:  # fmt: skip
    """Take one step of AdamW, in one pass over four buffers (Loshchilov & Hutter 2019).

    Parameters
    ----------
    params : (N,) array
        Parameters, changed in place.
    m, v : (N,) arrays
        First and second moment, changed in place.
    grads : (N,) array
        Gradients.
    clip : float
        The factor of the gradients, applied first.
    beta1, one_less_beta1, beta2, one_less_beta2 : float
        For each moment, the share of it that is kept, and the share of the gradient, or its square, added.
    m_scale, v_scale : float
        Factors that correct the moments for their start at zero.
    eps : float
        Added outside the square root.
    decay : float
        Weight decay in this range.
    lr : float
        The learning rate.
    begin, end : int
        The range of elements of this call.
    """
    params = params[begin:end]
    m = m[begin:end]
    v = v[begin:end]
    grads = grads[begin:end]
    for i in range(params.size):
        g = grads[i] * clip
        m[i] = beta1 * m[i] + one_less_beta1 * g
        v[i] = beta2 * v[i] + one_less_beta2 * (g * g)
        direction = m_scale * m[i] / (math.sqrt(v_scale * v[i]) + eps)
        params[i] -= lr * (direction + decay * params[i])
