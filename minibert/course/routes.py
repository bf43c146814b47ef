"""Routes that judge the exercises of chapters 05, 06 and 10 that the gradient check does not cover.

A step of a backward pass is compared with the complex step of its forward. Anything else is compared with a
second route, or has to obey a law. Routes are here and not in the notebooks, because most of them give half
of the answer away.

Each section draws arguments (`_draw_…`), computes right answers another way, and ends with a table of routes
by the names of the functions that they judge.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.ops.erf import erfc
from minibert.core.optim import AdamW
from minibert.core.params import Parameters
from minibert.core.step import HostSteps, MaskedAndNext
from minibert.course.comparing import BOUND
from minibert.course.judging import Route
from minibert.model.ops import Ops

STEP = 1e-30  # size of the complex step
TILT = 1e-7  # size of a complex step that a reader can see in print; its square is negligible, 1e-14
NEAR = 0.05  # largest relative error of an approximate derivative
LARGE = 1e3  # how often a derivative of the functions that are drawn can't be as large as their value
CUBIC = 0.044715  # coefficient of the cubic term in GELU's tanh form
LENGTH, VOCABULARY = 8, 17  # most tokens of a sequence, and pieces, in the small problem of a training step
NEVER_TAKEN = 4  # index of a row that no other row is a copy of
Arrays = tuple[Any, ...]


# Derivatives --------------------------------------------------------------------------------------


def jacobian(function: Callable[[Any], Any], x: Any) -> Any:
    """Measure the derivative of every output with respect to every input, by a complex step of each input.

    Parameters
    ----------
    function : function
        Takes an array like x, of complex numbers as well, and returns an array.
    x : array
        The point at which to differentiate.

    Returns
    -------
    (outputs, inputs) float64
    """
    columns = []
    for direction in np.eye(x.size):
        moved = function(x + STEP * 1j * direction.reshape(x.shape))
        columns.append(np.imag(moved).ravel() / STEP)
    return np.array(columns).T


def _gradient(scalar: Callable[[Any], Any], x: Any) -> Any:
    """Measure the gradient of a scalar function at x; an array like x."""
    return jacobian(lambda at: np.asarray(scalar(at)), x).reshape(x.shape)


def _derivative(function: Callable[[Any], Any], x: Any) -> Any:
    """Differentiate a function that acts on each element by itself."""
    return np.imag(function(x + STEP * 1j)) / STEP


# Chapter 05: the complex step ---------------------------------------------------------------------


def _growth(a: Any, constant: float, x: Any) -> Any:
    return np.exp(a * x).sum() + constant


def _draw_growth(rng: np.random.Generator) -> Arrays:
    """Draw a function with a large constant: a difference of two of its values loses digits."""
    shape = tuple(rng.integers(1, 5, size=rng.integers(1, 3)))
    a, v = rng.uniform(0.5, 2, size=(2, *shape))
    return partial(_growth, a, 10 ** rng.uniform(7, 9)), rng.standard_normal(shape), v


def _slope_of_growth(f: Any, x: Any, v: Any) -> float:
    a = f.args[0]
    return float((a * np.exp(a * x) * v).sum())


def _is_approximate(answer: Any, f: Any, x: Any, v: Any) -> str | None:
    """Tell a complex number, a value that is divided by the step, and a difference from a wrong slope."""
    if np.iscomplexobj(answer):
        return "the answer is a complex number; expected a real one."
    value, right = float(f(x)), _slope_of_growth(f, x, v)
    if np.ndim(answer) or not np.isfinite(answer):
        return None
    if abs(answer) > LARGE * abs(value):
        return (
            "the answer is far too large: it is a value of f, not the imaginary part, that the step divides."
        )
    if BOUND * abs(right) < abs(answer - right) < NEAR * abs(right):
        return (
            "the answer is near, but not exact: a difference of two values of f, or a step that is too large."
        )
    return None


def _draw_moved(rng: np.random.Generator) -> Arrays:
    x, v = rng.standard_normal((2, rng.integers(1, 9))) * rng.uniform(0.5, 3)
    x[rng.random(len(x)) < 0.2] += 2.0
    return (x + 1j * TILT * v,)


def _draw_with_zero(rng: np.random.Generator) -> Arrays:
    (moved,) = _draw_moved(rng)
    return (np.concatenate([moved, 1j * TILT * np.ones(1)]),)


def _value_and_slope(value: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]) -> Any:
    """Make a law: the real part is value(x), and the imaginary part carries derivative(x, v)."""

    def law(answer: Any, moved: Any) -> str | None:
        x, v = moved.real, moved.imag / TILT
        if np.shape(answer) != np.shape(value(x)):
            return f"the answer has the shape {np.shape(answer)}; expected {np.shape(value(x))}."
        if not np.allclose(np.real(answer), value(x), rtol=1e-11, atol=1e-12):
            error = float(abs(np.real(answer) - value(x)).max())
            if error <= TILT:
                return f"the real part is off by {error:.0e}: rounded, or moved by the imaginary part."
            return "for real numbers it is not the same function as NumPy's."
        scale = 1 + np.linalg.norm(v) * (1 + np.linalg.norm(x))
        if not np.all(abs(np.imag(answer) / TILT - derivative(x, v)) <= 1e-8 * scale):
            return "the values are right, and the derivative in the imaginary part is lost or wrong."
        return None

    return law


COMPLEX_STEP = {
    "complex_derivative": Route(_draw_growth, same_as=_slope_of_growth, law=_is_approximate),
    "variance": Route(
        _draw_moved, law=_value_and_slope(np.var, lambda x, v: 2 * np.mean((x - x.mean()) * v)), times=8
    ),
    "length": Route(
        _draw_moved, law=_value_and_slope(np.linalg.norm, lambda x, v: x @ v / np.linalg.norm(x)), times=8
    ),
    "hinge": Route(
        _draw_with_zero, law=_value_and_slope(lambda x: np.maximum(x, 0), lambda x, v: (x > 0) * v), times=8
    ),
}


# Chapter 05: the linear layer, entry by entry -----------------------------------------------------


def _sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Draw sizes that all differ."""
    return [int(size) for size in rng.permutation(np.arange(2, 8))[:count]]


def _draw_one_of_x(rng: np.random.Generator) -> Arrays:
    T, K, N = _sizes(rng, 3)
    dy, weight = rng.standard_normal((T, N)), rng.standard_normal((K, N))
    return dy, weight, int(rng.integers(T)), int(rng.integers(K))


def _one_of_x(dy: Any, weight: Any, t: int, k: int) -> float:
    x = np.zeros((len(dy), len(weight)))
    return float(_gradient(lambda x: (dy * (x @ weight)).sum(), x)[t, k])


def _draw_one_of_weight(rng: np.random.Generator) -> Arrays:
    T, K, N = _sizes(rng, 3)
    dy, x = rng.standard_normal((T, N)), rng.standard_normal((T, K))
    return dy, x, int(rng.integers(K)), int(rng.integers(N))


def _one_of_weight(dy: Any, x: Any, k: int, n: int) -> float:
    weight = np.zeros((x.shape[1], dy.shape[1]))
    return float(_gradient(lambda weight: (dy * (x @ weight)).sum(), weight)[k, n])


def _draw_one_of_bias(rng: np.random.Generator) -> Arrays:
    T, N = _sizes(rng, 2)
    return rng.standard_normal((T, N)), int(rng.integers(N))


def _of_bias(dy: Any) -> Any:
    """Differentiate by a vector that is added to each row."""
    return _gradient(lambda bias: (dy * (np.zeros(dy.shape) + bias)).sum(), np.zeros(dy.shape[1]))


def _one_of_bias(dy: Any, n: int) -> float:
    return float(_of_bias(dy)[n])


LINEAR = {
    "one_of_x": Route(_draw_one_of_x, same_as=_one_of_x),
    "one_of_weight": Route(_draw_one_of_weight, same_as=_one_of_weight),
    "one_of_bias": Route(_draw_one_of_bias, same_as=_one_of_bias),
}


# Chapter 05: softmax and cross-entropy, and the curves --------------------------------------------


def _draw_row(rng: np.random.Generator) -> tuple[Any, Any, float]:
    """Draw probabilities, the exponentials that they are the shares of, and the sum of these."""
    e = np.exp(rng.standard_normal(int(rng.integers(3, 9))))
    return e / e.sum(), e, float(e.sum())


def _draw_log(rng: np.random.Generator) -> Arrays:
    p, _, _ = _draw_row(rng)
    return float(rng.uniform(0.2, 3)), p, int(rng.integers(len(p)))


def _draw_total(rng: np.random.Generator) -> Arrays:
    _, e, total = _draw_row(rng)
    return rng.standard_normal(len(e)), e, total


def _draw_quotient(rng: np.random.Generator) -> Arrays:
    _, e, total = _draw_row(rng)
    return rng.standard_normal(len(e)), total, float(rng.standard_normal())


def _through_quotient(dp: Any, total: float, d_total: float) -> Any:
    """Differentiate by e where it is used twice: in the quotient, and in the sum that it is divided by."""
    return _gradient(lambda e: (dp * e / total).sum() + d_total * e.sum(), np.zeros(len(dp)))


def _draw_exp(rng: np.random.Generator) -> Arrays:
    _, e, _ = _draw_row(rng)
    return rng.standard_normal(len(e)), e


def _draw_numbers(rng: np.random.Generator) -> Arrays:
    return (rng.uniform(-3, 3, size=int(rng.integers(3, 9))),)


def _draw_tanh(rng: np.random.Generator) -> Arrays:
    (x,) = _draw_numbers(rng)
    return (np.tanh(x),)


def _normal(x: Any) -> Any:
    return 0.5 * erfc(np, -x * math.sqrt(0.5))


def _inner(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + CUBIC * x * x * x)


def _draw_c(rng: np.random.Generator) -> Arrays:
    (u,) = _draw_numbers(rng)
    return 0.5 + 0.5 * np.tanh(u), rng.uniform(0.3, 2, size=len(u))


def _slope_of_c(c: Any, du: Any) -> Any:
    return _derivative(lambda u: 0.5 + 0.5 * np.tanh(u), np.arctanh(2 * c - 1)) * du


ROWS = {
    "through_log": Route(
        _draw_log, gradient_of=lambda d_loss, p, label: -d_loss * np.log(p[label]), wrt=(1,), times=8
    ),
    "through_total": Route(
        _draw_total, same_as=lambda dp, e, total: float(_derivative(lambda s: (dp * e / s).sum(), total))
    ),
    "through_quotient": Route(_draw_quotient, same_as=_through_quotient),
    "through_exp": Route(
        _draw_exp, same_as=lambda de, e: _gradient(lambda z: (de * np.exp(z)).sum(), np.log(e))
    ),
    "slope_of_tanh": Route(_draw_tanh, same_as=lambda y: _derivative(np.tanh, np.arctanh(y))),
    "slope_of_normal": Route(_draw_numbers, same_as=lambda x: _derivative(_normal, x)),
    "slope_of_u": Route(_draw_numbers, same_as=lambda x: _derivative(_inner, x)),
    "slope_of_c": Route(_draw_c, same_as=_slope_of_c),
}


# Chapter 05: the judge ----------------------------------------------------------------------------


def _layer_loss(u: Any, scale: float, x: Any, weight: Any, bias: Any, unused: Any) -> Any:
    """Compute a loss with a large constant, whose rounding would spoil a finite difference."""
    y = np.tanh(x @ weight + bias)
    return scale * ((u * y * y).sum() + 1e10) + 0 * unused.sum()


def _elementwise(f: Any, arguments: Arrays) -> Iterator[Any]:
    """Measure the gradient with respect to each argument, one entry at a time."""
    for index, x in enumerate(arguments):
        before, after = arguments[:index], arguments[index + 1 :]

        def of_one_argument(x: Any, before: Arrays = before, after: Arrays = after) -> Any:
            return f(*before, x, *after)

        yield _gradient(of_one_argument, x)


def _draw_suspects(rng: np.random.Generator) -> Arrays:
    """Draw a function with its gradients, about half of which are wrong in one of four ways."""
    T, K, N = rng.permutation(np.arange(2, 7))[:3]
    shapes = (T, K), (K, N), (N,), (int(K) + 1,)
    arguments = tuple(map(rng.standard_normal, shapes))
    u = rng.standard_normal((T, N))
    f = partial(_layer_loss, u, 10.0 ** rng.integers(-6, 7))
    gradients = [np.array(gradient) for gradient in _elementwise(f, arguments)]
    for index in np.flatnonzero(rng.random(3) < 0.5):
        gradient = gradients[index]
        kind = rng.integers(4)
        size = abs(gradient).max()
        at = tuple(map(rng.integers, gradient.shape))
        if kind == 0:  # a single wrong entry
            gradient[at] += rng.choice([1e-5 * size, np.nan])
        elif kind == 1:  # the wrong sign
            gradient *= -1
        elif kind == 2 and gradient.ndim == 2:
            gradients[index] = gradient.T
        else:  # an error that sums to zero
            gradient.flat[0] += 1e-3 * size
            gradient.flat[-1] -= 1e-3 * size
    return f, arguments, tuple(gradients), np.random.default_rng(rng.integers(2**32))


def _by_entries(f: Any, arguments: Arrays, gradients: Arrays, rng: Any) -> list[int]:
    """List the indices of the wrong gradients, by comparing every entry."""
    wrong = []
    for index, (exact, gradient) in enumerate(zip(_elementwise(f, arguments), gradients, strict=True)):
        has_shape = exact.shape == gradient.shape
        if not has_shape or not abs(exact - gradient).max() <= 1e-9 * abs(exact).max():
            wrong.append(index)
    return wrong


JUDGE = {"wrong_gradients": Route(_draw_suspects, same_as=_by_entries, times=40)}


# Chapter 06: rows, and LayerNorm step by step -----------------------------------------------------


def _draw_taken(rng: np.random.Generator) -> Arrays:
    M, H = _sizes(rng, 2)
    rows = rng.integers(NEVER_TAKEN, size=M)
    t = NEVER_TAKEN
    if rng.random() < 0.8:
        t = int(rng.choice(rows))
    return rng.standard_normal((M, H)), rows, t


def _gradient_of_row(dy: Any, rows: Any, t: int) -> Any:
    x = np.zeros((NEVER_TAKEN + 1, dy.shape[1]))
    return _gradient(lambda x: (dy * x[rows]).sum(), x)[t]


def _complex(rng: np.random.Generator, *shape: int) -> Any:
    """Draw complex numbers: a function that is right for these has the right derivative as well."""
    return rng.uniform(-1, 2, shape) + 1j * rng.uniform(-0.6, 0.6, shape)


def _draw_complex_row(rng: np.random.Generator) -> Arrays:
    return (_complex(rng, int(rng.integers(3, 9))),)


def _draw_variance(rng: np.random.Generator) -> Arrays:
    return complex(rng.uniform(0.5, 3), rng.uniform(-0.4, 0.4)), float(rng.uniform(0.1, 0.6))


def _draw_scaled(rng: np.random.Generator) -> Arrays:
    H = int(rng.integers(3, 9))
    gamma, beta = rng.uniform(-1, 2, (2, H))
    return _complex(rng, H), complex(rng.uniform(0.3, 2), 0.2), gamma, beta


def _draw_below_scale(rng: np.random.Generator) -> Arrays:
    T, H = _sizes(rng, 2)
    return rng.standard_normal((T, H)), rng.uniform(-1, 2, H)


def _draw_two_alike(rng: np.random.Generator) -> Arrays:
    T, H = _sizes(rng, 2)
    dy, n = rng.standard_normal((2, T, H))
    return dy, n


def _draw_rows(rng: np.random.Generator) -> Arrays:
    T, H = _sizes(rng, 2)
    return (rng.standard_normal((T, H)),)


def _of_gamma(dy: Any, n: Any) -> Any:
    return _gradient(lambda gamma: (dy * (gamma * n)).sum(), np.zeros(dy.shape[1]))


def _draw_rstd(rng: np.random.Generator) -> Arrays:
    dn, c = rng.standard_normal((2, int(rng.integers(3, 9))))
    return dn, c


def _draw_two_numbers(rng: np.random.Generator) -> Arrays:
    return float(rng.standard_normal()), float(rng.uniform(0.3, 2.5))


def _of_variance(d_rstd: float, rstd: float) -> float:
    """Differentiate by the number under the root: the sum of the variance and eps."""
    return float(_derivative(lambda inside: d_rstd * inside**-0.5, rstd**-2.0))


def _draw_centred(rng: np.random.Generator) -> Arrays:
    dn, c = rng.standard_normal((2, int(rng.integers(3, 9))))
    return dn, c, float(rng.uniform(0.3, 2)), float(rng.standard_normal())


def _draw_dc(rng: np.random.Generator) -> Arrays:
    return (rng.standard_normal(int(rng.integers(3, 9))),)


NORMS = {
    "gradient_of_row": Route(_draw_taken, same_as=_gradient_of_row, times=10),
    "centre": Route(_draw_complex_row, same_as=lambda x: x - np.ones(len(x)) @ x / len(x)),
    "variance_of": Route(_draw_complex_row, same_as=lambda c: np.dot(c, c) / len(c)),
    "one_over_spread": Route(_draw_variance, same_as=lambda variance, eps: (variance + eps) ** -0.5),
    "scaled": Route(_draw_scaled, same_as=lambda c, rstd, gamma, beta: np.diag(gamma) @ c * rstd + beta),
    "d_normalised": Route(
        _draw_below_scale, same_as=lambda dy, gamma: np.stack([np.diag(gamma) @ row for row in dy])
    ),
    "d_gamma": Route(_draw_two_alike, same_as=_of_gamma),
    "d_beta": Route(_draw_rows, same_as=_of_bias),
    "d_rstd": Route(
        _draw_rstd, same_as=lambda dn, c: float(_derivative(lambda rstd: (dn * c * rstd).sum(), 1.0))
    ),
    "d_variance": Route(_draw_two_numbers, same_as=_of_variance),
    "d_centred": Route(
        _draw_centred,
        gradient_of=lambda dn, c, rstd, d_variance: (dn * c * rstd).sum() + d_variance * (c * c).mean(),
        wrt=(1,),
    ),
    "d_input": Route(
        _draw_dc, same_as=lambda dc: _gradient(lambda x: (dc * (x - x.mean())).sum(), np.zeros(len(dc)))
    ),
}


# Chapter 06: attention step by step ---------------------------------------------------------------


def _softmax(scores: Any) -> Any:
    e = np.exp(scores - scores.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _multipliers(rng: np.random.Generator, n: int) -> Any:
    return rng.uniform(0.3, 2, (n, n)) * (rng.random((n, n)) > 0.2)


def _draw_values(rng: np.random.Generator) -> Arrays:
    n, D = _sizes(rng, 2)
    return rng.standard_normal((n, D)), _softmax(rng.standard_normal((n, n))), _multipliers(rng, n)


def _draw_probabilities(rng: np.random.Generator) -> Arrays:
    n, D = _sizes(rng, 2)
    dy, v = rng.standard_normal((2, n, D))
    return dy, v, _multipliers(rng, n)


def _draw_scores(rng: np.random.Generator) -> Arrays:
    n = int(rng.integers(3, 8))
    return rng.standard_normal((n, n)), _softmax(rng.standard_normal((n, n)))


def _draw_products(rng: np.random.Generator) -> Arrays:
    n, D = _sizes(rng, 2)
    q, k = rng.standard_normal((2, n, D))
    return rng.standard_normal((n, n)), q, k


def _of_products(ds: Any, q: Any, k: Any) -> Arrays:
    root = math.sqrt(q.shape[1])
    of_q = _gradient(lambda q: (ds * (q @ k.T)).sum() / root, q)
    return of_q, _gradient(lambda k: (ds * (q @ k.T)).sum() / root, k)


def _draw_head(rng: np.random.Generator) -> Arrays:
    n, D = _sizes(rng, 2)
    q, k, v, dy = rng.standard_normal((4, n, D))
    return q, k, v, _multipliers(rng, n), dy


def _head_result(q: Any, k: Any, v: Any, m: Any, dy: Any) -> Any:
    return (dy * ((_softmax(q @ k.T / np.sqrt(q.shape[-1])) * m) @ v)).sum()


HEADS = {
    "d_values": Route(
        _draw_values, same_as=lambda dy, p, m: _gradient(lambda v: (dy * ((p * m) @ v)).sum(), 0 * dy)
    ),
    "d_probabilities": Route(
        _draw_probabilities, same_as=lambda dy, v, m: _gradient(lambda p: (dy * ((p * m) @ v)).sum(), m)
    ),
    "d_scores": Route(
        _draw_scores, same_as=lambda dp, p: _gradient(lambda s: (dp * _softmax(s)).sum(), np.log(p))
    ),
    "d_queries_and_keys": Route(_draw_products, same_as=_of_products),
    "head_gradients": Route(_draw_head, gradient_of=_head_result, wrt=(0, 1, 2)),
}


# Chapter 10: a floor, a step, a sum, a shuffle ----------------------------------------------------


def _draw_pieces(rng: np.random.Generator) -> Arrays:
    V, n = map(int, rng.integers((4, 6), (9, 12)))
    ids = rng.integers(V - 1, size=int(rng.integers(9, 30)))  # the last piece never occurs
    return ids, rng.integers(V, size=n), rng.integers(V, size=n), V, float(rng.uniform(0.5, 9))


def counted_losses(ids: Any, left: Any, target: Any, V: int, strength: float) -> Any:
    """Compute the loss of a model that predicts a piece from its left neighbour, by counting pairs.

    Parameters
    ----------
    ids : (N,) int
        Ids of the text in which pairs are counted.
    left, target : (n,) int
        Pairs of neighbours whose loss is computed.
    V : int
        Number of pieces in the vocabulary.
    strength : float
        Lambda, the weight of the frequencies of single pieces.

    Returns
    -------
    (n,) float64
        -ln p(target | left) for each pair, in nats.
    """
    pieces = ids.tolist()
    single = Counter(pieces)
    before = Counter(pieces[:-1])
    pair = Counter(pairwise(pieces))
    losses = []
    for u, v in zip(left.tolist(), target.tolist(), strict=True):
        p = (single[v] + 1) / (len(ids) + V)
        mixed = (pair[u, v] + strength * p) / (before[u] + strength)
        losses.append(-math.log(mixed))
    return np.array(losses)


def _small_sequence(rng: np.random.Generator) -> Sequence:
    """Draw a sequence with one or two tokens to predict and a next-sentence label."""
    n = int(rng.integers(3, LENGTH + 1))
    order = rng.permutation(n)
    chosen = order[: rng.integers(1, 3)]
    labels = rng.integers(VOCABULARY, size=len(chosen))
    pieces = rng.integers(VOCABULARY, size=n)
    segments = np.arange(n) * 2 // n  # the first half is A, the second B
    is_next = int(rng.integers(2))
    return Sequence(pieces, segments, np.sort(chosen), labels, is_next)


def _draw_step(rng: np.random.Generator) -> Arrays:
    """Draw the state before a step in the middle of a run, of a model with a few hundred parameters."""
    config = BertConfig.from_size(
        "1-6-2",
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    batch = Batch.pack([_small_sequence(rng) for _ in range(5)])
    flat, m, root_of_v = rng.standard_normal((3, Parameters(config).count()))
    flat *= 0.5
    m *= 0.05
    v = (0.05 * root_of_v) ** 2
    rate = float(10 ** rng.uniform(-3, -1))
    number = int(rng.integers(1, 9))
    return Ops(), config, flat, m, v, batch, number, rate


def library_step(
    ops: Ops, config: BertConfig, flat: Any, m: Any, v: Any, batch: Batch, number: int, rate: float
) -> Arrays:
    """Take a training step with minibert's own HostSteps.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
    flat, m, v : (n,) float
        Parameters and both moments, which are not changed.
    batch : Batch
    number : int
        Number of the update; the first is 1.
    rate : float
        The learning rate.

    Returns
    -------
    flat, m, v : (n,) float
        Parameters and moments after the update.
    loss : float
        Loss before the update.
    """
    params = Parameters(config, flat.copy())
    optimizer = AdamW(params.flat, params.decayed)
    optimizer.m = m.copy()
    optimizer.v = v.copy()
    optimizer.updates = number - 1
    steps = HostSteps(ops, params, optimizer, MaskedAndNext(config, seed=0))
    metrics = steps.step((batch,), number - 1, rate)
    return params.flat, optimizer.m, optimizer.v, metrics["loss"]


def _draw_parts(rng: np.random.Generator) -> Arrays:
    k, n = int(rng.integers(2, 6)), int(rng.integers(3, 8))
    counts = rng.integers(0, 7, size=k).tolist() if rng.random() < 0.85 else [0] * k
    return [rng.standard_normal(n) * (count > 0) for count in counts], counts


def _over_all_pieces(gradients: list[Any], counts: list[int]) -> Any:
    """Average gradients of batches over all masked pieces: each counts once for each piece of its batch."""
    by_piece = [gradient for gradient, count in zip(gradients, counts, strict=True) for _ in range(count)]
    return np.mean(by_piece, axis=0) if by_piece else np.zeros_like(gradients[0])


def _draw_context(rng: np.random.Generator) -> Arrays:
    lengths = rng.permutation([0, 1, 7, 12, int(rng.integers(20, 30))])
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    T = int(cu_seqlens[-1])
    ids = np.arange(100, 100 + T)
    movable = rng.random(T) < 0.7
    return ids, cu_seqlens, movable, rng


def _only_shuffled(answer: Any, ids: Any, cu_seqlens: Any, movable: Any, rng: Any) -> str | None:
    """Say what is wrong with a shuffled context; None if nothing is.

    The right answer is random, so only its properties can be checked.
    """
    if not isinstance(answer, np.ndarray) or answer.shape != ids.shape:
        return f"the answer is not an array of shape {ids.shape}."
    if not np.array_equal(answer[~movable], ids[~movable]):
        return "something has moved that should have stayed in its place."
    for begin, stop in zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True):
        if not np.array_equal(np.sort(answer[begin:stop]), np.sort(ids[begin:stop])):
            return "pieces have left their sequence, or have been lost."
    moved = (answer != ids).sum()
    if moved < 0.4 * movable.sum():
        return f"only {moved} of {movable.sum()} movable pieces are in a new place."
    if np.abs(answer - ids).max() < 4:
        return "no piece has moved far."
    rising = (np.diff(answer[movable]) > 0).mean()
    if rising > 0.85 or rising < 0.15:
        return "the new order is not random."
    return None


FINALE = {
    "neighbour_losses": Route(_draw_pieces, same_as=counted_losses),
    "train_step": Route(_draw_step, same_as=library_step),
    "combined": Route(_draw_parts, same_as=_over_all_pieces, times=150),
    "shuffle_context": Route(_draw_context, law=_only_shuffled, times=10),
}
ROUTES: dict[str, Route] = {**COMPLEX_STEP, **LINEAR, **ROWS, **JUDGE, **NORMS, **HEADS, **FINALE}
