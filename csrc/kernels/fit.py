"""Fits the polynomials of elementary.h and prints their coefficients, highest power first.

    python csrc/kernels/fit.py

Lawson's iteration (1961): weighted least squares whose weights grow where the error is large, until the
largest relative error is as small as it can be.
"""

import math

import numpy as np

POINTS = np.cos(np.pi * (np.arange(2001) + 0.5) / 2001)  # of Chebyshev, in (-1, 1)
ROUNDS = 400
CENTRE, FARTHEST = 3.0, 14.2  # of normal_cdf: where its variable is 0, and the largest |x| that counts


def fit(values: np.ndarray, x: np.ndarray, degree: int, scale: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest of |p(x) - values| scale, and the coefficients of the polynomial p that makes it least."""
    powers = np.vander(x, degree + 1)
    weights = np.full(len(x), 1 / len(x))
    best = (math.inf, np.zeros(degree + 1))
    for _ in range(ROUNDS):
        root = np.sqrt(weights) * scale
        coefficients = np.linalg.lstsq(powers * root[:, None], values * root, rcond=None)[0]
        errors = np.abs(powers @ coefficients - values) * scale
        best = min(best, (float(errors.max()), coefficients), key=lambda one: one[0])
        weights = weights * errors / (weights * errors).sum()
    return best


def exp_rest() -> tuple[float, np.ndarray]:
    """(e^r - 1 - r) / r^2 for |r| <= ln(2) / 2; the error is that of e^r."""
    r = POINTS * (math.log(2) / 2 * 1.0005)
    terms = [1 / math.factorial(k) for k in range(2, 16)]
    return fit(np.polyval(terms[::-1], r), r, 4, r * r / np.exp(r))


def exp2_rest() -> tuple[float, np.ndarray]:
    """(2^r - 1) / r for 0 <= r <= 1; the error is that of 2^r."""
    r = (1 + POINTS) / 2
    return fit(np.expm1(r * math.log(2)) / r, r, 3, r * np.exp2(-r))


def normal_tail(degree: int = 8) -> tuple[float, np.ndarray]:
    """(t + c) e^(t^2 / 2) Phi(-t) for 0 <= t, in z = 2 c / (t + c) - 1."""
    lowest = (CENTRE - FARTHEST) / (CENTRE + FARTHEST)
    z = (1 + lowest) / 2 + (1 - lowest) / 2 * POINTS
    t = CENTRE * (1 - z) / (1 + z)
    phi = np.array([math.erfc(one / math.sqrt(2)) / 2 for one in t])
    values = phi * np.exp(t * t / 2) * (t + CENTRE)
    return fit(values, z, degree, 1 / values)


def coarse_normal_tail() -> tuple[float, np.ndarray]:
    """The same, for what is rounded to bfloat16."""
    return normal_tail(5)


for polynomial in (exp_rest, exp2_rest, normal_tail, coarse_normal_tail):
    error, coefficients = polynomial()
    print(f"{polynomial.__name__}: relative error {error:.1e}")
    print(*(f"    {np.float32(one):.9g}f" for one in coefficients), sep="\n")
