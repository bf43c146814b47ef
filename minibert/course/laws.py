"""Laws by which one part of a wrong answer may differ from the right one; `diagnosis` tries them.

A law is a function that looks at a part in every question in which it is wrong: what it was, what it should
have been, and what was asked. It returns a phrase, such as "has the wrong sign", if the law holds in all of
these questions, and "" otherwise. While it runs, NumPy does not warn of infinite numbers and NaN.

To add a law, write it among the others, and put it into `WHOLE` or `WHERE`, before those that say less.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from minibert.course.comparing import BOUND, TINY

CLOSE = 1e-9  # relative difference of numbers that are equal except for rounding
CLOSE_FIT = 1e-8  # the same where one of the numbers has been averaged or fitted
CLOSE_RATIO = 1e-6  # the same of quotients, which lose digits where the divisor is small
SMALL = 1e-5  # a smaller relative error is that of an approximation, not of a wrong formula
FEW = 0.05  # share of the entries that have to be right, and wrong, to tell where they are
MOST_FACTORS = 4  # of a product of numbers, each as often as its power says
FEWEST = 3  # entries that have to be wrong to tell where they are
SIZE = 8  # entries that an array needs to tell where it is wrong
NOT_FINITE = "is not finite"  # a phrase that begins so names a symptom, and does not explain it
# Powers of a size or a number that a factor may be, with their names.
POWERS = {1: "{}", -1: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2: "{}²", -2: "1/{}²"}
# Functions of the right answer that may have been returned instead.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "the square of": np.square,
    "the square root of": np.sqrt,
    "one divided by": np.reciprocal,
    "one minus": lambda right: 1 - right,
    "the logarithm of": np.log,
    "minus the logarithm of": lambda right: -np.log(right),
    "the exponential of": np.exp,
}
Arrays = dict[str, Any]


class Part(NamedTuple):
    """One part of the answer to one question, as arrays."""

    found: Any
    expected: Any
    arguments: Arrays  # numbers and arrays by name; the right values of other parts are called "the right …"
    is_total: bool

    @property
    def difference(self) -> Any:
        """Return what has been added to the right value."""
        return self.found - self.expected


Law = Callable[[list[Part]], str]


def close(found: Any, expected: Any, tolerance: float = CLOSE) -> bool:
    """Tell whether two arrays are equal except for rounding.

    Parameters
    ----------
    found, expected : array
    tolerance : float
        Largest difference, relative to the largest value of `expected`.

    Returns
    -------
    bool
        False if the shapes differ, or values that are not finite.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    if not expected.size or np.array_equal(found, expected):
        return True
    if not np.isfinite(expected).all():
        return False
    with np.errstate(all="ignore"):
        return bool(abs(found - expected).max() <= tolerance * abs(expected).max())


# Laws of a whole part -------------------------------------------------------------------------------


def not_finite(parts: list[Part]) -> str:
    """Name values that are infinite or NaN."""
    masks = [~np.isfinite(part.found) for part in parts]
    are_spoilt = [bool(mask.any()) for mask in masks]
    if not any(are_spoilt):
        return ""
    what = f"{NOT_FINITE} (nan or inf)"
    if all(mask.all() for mask in masks):
        return f"{what} everywhere"
    if all(are_spoilt):
        return f"{what} in some places"
    for name, sizes in _scalars(parts):
        if [size == 1 for size in sizes] == are_spoilt:
            return f"{what} where {name} is 1"
    return f"{what} in some questions"


def zero(parts: list[Part]) -> str:
    """Name a part that is zero everywhere."""
    return "" if any(np.any(part.found) for part in parts) else "is zero everywhere"


def sign(parts: list[Part]) -> str:
    """Name a part with the opposite sign."""
    return "has the wrong sign" if all(close(-part.found, part.expected) for part in parts) else ""


def transposed(parts: list[Part]) -> str:
    """Name the transpose of the right answer."""
    are_tables = all(part.expected.ndim == 2 for part in parts)
    if are_tables and all(close(part.found.T, part.expected) for part in parts):
        return "is transposed"
    return ""


def real_part(parts: list[Part]) -> str:
    """Name the real part of a right answer that is complex."""
    are_real = not any(np.any(part.found.imag) for part in parts)
    should_be_real = not any(np.any(part.expected.imag) for part in parts)
    if not are_real or should_be_real:
        return ""
    if all(close(part.found.real, part.expected.real) for part in parts):
        return "has lost its imaginary part"
    return ""


def absolute(parts: list[Part]) -> str:
    """Name the absolute value of the right answer."""
    has_signs = any(np.any(part.expected.real < 0) for part in parts)
    is_absolute = all(close(part.found, abs(part.expected)) for part in parts)
    return "has lost its signs" if has_signs and is_absolute else ""


def factor(parts: list[Part]) -> str:
    """Name a factor: a constant, or a power of a size or a number in the question."""
    factors = _factors((part.found, part.expected) for part in parts)
    is_one_number = len(parts) == 1 and parts[0].expected.size == 1  # a multiple of any other number
    if not factors or is_one_number:
        return ""
    are_equal = _are_equal(factors)
    if are_equal and _number(factors[0]) != "1":
        phrase = f"is {_number(factors[0])} times what it should be"
        if parts[0].is_total and abs(factors[0] - 0.5) < CLOSE:
            phrase += " (after two calls: an accumulator that is replaced, not added to, looks so)"
        return phrase
    for name, values in _scalars(parts):
        for power, words in POWERS.items():
            if close(factors, np.asarray(values) ** power):
                return f"is {words.format(name)} times what it should be"
    if are_equal or all(part.expected.size == 1 for part in parts):
        return ""
    return "is off by one factor for the whole array, another in each question"


def summed(parts: list[Part]) -> str:
    """Name the axis over which a sum is missing."""
    for axis in range(min(part.found.ndim for part in parts)):
        if all(close(part.found.sum(axis), part.expected) for part in parts):
            return f"would be right if it were summed over axis {axis}"
    return ""


def itself(parts: list[Part]) -> str:
    """Name an argument that is returned unchanged, one of its rows, or a number that fills the whole part."""
    for name in _common(parts):
        if all(close(part.found, part.arguments[name]) for part in parts):
            return f"is {name} itself"
    for name in _common(parts):
        if all(_fills(part.found, part.arguments[name]) for part in parts):
            return f"is {name} everywhere"
        if all(_is_row(part.found, part.arguments[name]) for part in parts):
            return f"is a single row of {name}"
    return ""


def _fills(array: Any, number: Any) -> bool:
    """Tell whether every entry of an array is the same number."""
    return np.ndim(array) > 0 and np.ndim(number) == 0 and bool(np.all(array == number))


def _is_row(array: Any, table: Any) -> bool:
    """Tell whether an array is one of several rows of a table."""
    if np.ndim(array) != 1 or np.ndim(table) != 2 or np.shape(table)[1] != len(array) or len(array) < 2:
        return False
    return any(close(row, array) for row in table)


def term(parts: list[Part]) -> str:
    """Name an argument, or another part, that is missing as a term, or is an extra one."""
    for name in _common(parts):
        terms = [broadcast(part.arguments[name], part.expected) for part in parts]
        if any(array is None for array in terms):
            continue
        number = _common_factor((part.difference, array) for part, array in zip(parts, terms, strict=True))
        if number is not None:
            return _as_term(name, number) or f"is off by {_number(number)} times {name}"
    return ""


def term_of_two(parts: list[Part]) -> str:
    """Name a product of two arrays that is missing as a term, or is an extra one."""
    are_arrays = all(part.expected.ndim for part in parts)
    if not are_arrays or all(part.found.size <= 1 for part in parts):
        return ""
    names = [name for name, _ in _arguments_like(parts)]
    for one, other in combinations_with_replacement(names, 2):
        products = ((part.difference, part.arguments[one] * part.arguments[other]) for part in parts)
        number = _common_factor(products)
        if number is not None and (phrase := _as_term(f"{one} · {other}", number)):
            return phrase
    return ""


def _as_term(name: str, number: float) -> str:
    """Return a phrase if a part is off by exactly minus one or one times something."""
    if abs(number + 1) < CLOSE:
        return f"lacks the term {name}"
    if abs(number - 1) < CLOSE:
        return f"has an extra term {name}"
    return ""


def product_of_numbers(parts: list[Part]) -> str:
    """Name a product of the question's numbers that a single number is short of, or has in addition."""
    names = [name for name in _common(parts) if all(_is_positive(part.arguments[name]) for part in parts)]
    if any(part.expected.size != 1 for part in parts) or len(parts) < len(names) + 3 or not names:
        return ""
    differences = np.array([float(part.difference.real.ravel()[0]) for part in parts])
    if not (np.all(differences > 0) or np.all(differences < 0)):
        return ""
    numbers = np.array([[float(part.arguments[name]) for name in names] for part in parts])
    number, powers = _fitted_product(numbers, abs(differences))
    if number is None:
        return ""
    factors = []
    if abs(number - 1) >= CLOSE_RATIO:
        factors.append(_number(round(number, 6)))
    for name, power in zip(names, powers, strict=True):
        if power:
            factors.append(name if power == 1 else f"{name}^{power}")
    size = "large" if differences[0] > 0 else "small"
    return f"is too {size} by {' · '.join(factors)}"


# numbers: (questions, names), values: (questions,), all above 0
def _fitted_product(numbers: Any, values: Any) -> tuple[float | None, list[int]]:
    """Fit values by a constant times powers of numbers: a straight line, as the logarithms see it.

    The constant is None unless whole powers, `MOST_FACTORS` factors at most, give all of the values.
    """
    logarithms = np.log(numbers)
    table = np.column_stack([np.ones(len(values)), logarithms])
    (constant, *exact), *_ = np.linalg.lstsq(table, np.log(values), rcond=None)
    powers = [round(float(power)) for power in exact]
    is_unique = np.linalg.matrix_rank(table) == table.shape[1]
    if not is_unique or not 0 < sum(map(abs, powers)) <= MOST_FACTORS:
        return None, powers
    number = float(np.exp(constant))
    products = np.exp(logarithms @ powers)
    if not close(values / products, np.full(len(values), number), CLOSE_RATIO):
        return None, powers
    return number, powers


def _is_positive(value: Any) -> bool:
    """Tell whether a value is a single positive number."""
    return bool(np.ndim(value) == 0 and np.isrealobj(value) and value > 0)


def factor_of_argument(parts: list[Part]) -> str:
    """Name an argument that is missing as a factor, or is an extra one."""
    for name in _common(parts):
        arrays = [part.arguments[name] for part in parts]
        for values in (arrays, [array[..., None] for array in arrays]):  # the second: one for each row
            factors = [broadcast(value, part.expected) for value, part in zip(values, parts, strict=True)]
            if any(array is None for array in factors):
                continue
            pairs = list(zip(parts, factors, strict=True))
            if all(close(part.found, part.expected * array) for part, array in pairs):
                return f"has the factor {name} once too often"
            if all(close(part.found * array, part.expected) for part, array in pairs):
                return f"lacks the factor {name}"
    return ""


def added(parts: list[Part]) -> str:
    """Name an added constant."""
    if not all(part.difference.size > 1 and _is_constant(part.difference) for part in parts):
        return ""
    values = [part.difference.mean() for part in parts]
    if np.isrealobj(values) and _are_equal(values):
        return f"is off by an added constant, {_number(values[0])}"
    return "is off by an added constant, another in each question"


def order(parts: list[Part]) -> str:
    """Name an order in which the right numbers are returned."""
    if not all(part.found.shape == part.expected.shape and part.found.ndim for part in parts):
        return ""
    if all(close(part.found[::-1], part.expected) for part in parts):
        return "has its rows in the opposite order"
    for shift in (1, -1):
        if all(close(np.roll(part.found, shift, 0), part.expected) for part in parts):
            return "is shifted by a row"
    if all(close(np.sort(part.found, None), np.sort(part.expected, None)) for part in parts):
        return "has the right numbers in another order"
    return ""


def function_of_right(parts: list[Part]) -> str:
    """Name a simple function of the right answer."""
    for words, function in FUNCTIONS.items():
        if all(close(part.found, function(part.expected)) for part in parts):
            return f"is {words} what it should be"
    if all(part.found.size <= 1 for part in parts):
        return ""
    for words in ("the square of", "the square root of"):
        number = _common_factor((part.found, FUNCTIONS[words](part.expected)) for part in parts)
        if number is not None:
            return f"is {_number(number)} times {words} what it should be"
    return ""


def rounded(parts: list[Part]) -> str:
    """Name the error of an approximation."""
    if not _have_right_shape(parts):
        return ""
    errors = []
    for part in parts:
        scale = max(abs(part.expected).max(), TINY)
        errors.append(float(abs(part.difference).max() / scale))
    if max(errors) > SMALL:
        return ""
    return (
        f"is nearly right, to {max(errors):.0e}: an approximation, single precision or a constant cut short"
    )


# Laws of where a part is off ---------------------------------------------------------------------------


def by_rows(parts: list[Part]) -> str:
    """Name the row, the first or the last, that alone is right or wrong."""
    masks = _wrong_rows([part for part in parts if part.expected.ndim and len(part.expected) > 2])
    what = "entry" if all(part.expected.ndim == 1 for part in parts) else "row"
    for where, index in {"first": 0, "last": -1}.items():
        at_edge = {bool(mask[index]) for mask in masks}
        elsewhere = {bool(is_wrong) for mask in masks for is_wrong in np.delete(mask, index)}
        if at_edge == {False} and elsewhere == {True}:
            return f"is right in the {where} {what} only"
        if at_edge == {True} and elsewhere == {False}:
            return f"is wrong in the {where} {what} only"
    return ""


def large(parts: list[Part]) -> str:
    """Name entries that are wrong because a number is large, small, positive or negative.

    The number is an argument's entry at the same index, or else the right answer's.
    """
    if not _are_large_enough(parts):
        return ""
    clear = flat([is_clear(part) for part in parts])
    wrong = flat([wrong_entries(part) for part in parts])[clear]
    if wrong.all() or wrong.sum() < FEWEST:
        return ""
    for name, arrays in _arguments_like(parts):
        values = flat(arrays)[clear]
        phrase = "" if np.iscomplexobj(values) else _by_value(wrong, values, name)
        if phrase:
            return phrase
    expected = flat([part.expected for part in parts])[clear]
    is_more_than_rounding = abs(expected) > BOUND * abs(expected).max()
    expected = np.where(is_more_than_rounding, expected, 0)
    if not np.any(expected[wrong]) and np.any(expected[~wrong]):
        return "is not zero where it should be"
    if not np.any(expected[~wrong]):  # a zero is right by any factor, and tells nothing
        return ""
    return _by_value(wrong, expected, "the right number")


def kept(parts: list[Part]) -> str:
    """Name an argument whose entries the part has, wherever it is wrong."""
    if not _are_large_enough(parts):
        return ""
    masks = [wrong_entries(part) for part in parts]
    if sum(mask.sum() for mask in masks) < FEWEST:
        return ""
    for name in _common(parts):
        if any(np.shape(part.arguments[name]) not in ((), part.expected.shape) for part in parts):
            continue
        pairs = zip(parts, masks, strict=True)
        if all(np.all((part.found == part.arguments[name])[mask]) for part, mask in pairs):
            return f"is {name} wherever it is wrong"
    return ""


def at_value(parts: list[Part]) -> str:
    """Name one or two values of an argument, such as the ends of an interval, where alone a part is wrong."""
    if not _are_large_enough(parts):
        return ""
    wrong = flat([wrong_entries(part) for part in parts])
    if wrong.sum() < FEWEST or wrong.all():
        return ""
    for name, arrays in _arguments_like(parts):
        values = flat(arrays)
        at = np.unique(values[wrong])
        if len(at) <= 2 and wrong.sum() > len(at) and len(np.unique(values)) > 4 * len(at):
            return f"is off only where {name} is {' or '.join(f'{value:g}' for value in at)}"
    return ""


def flat(arrays: list[Any]) -> Any:
    """Concatenate the entries of arrays.

    Parameters
    ----------
    arrays : list of array

    Returns
    -------
    (entries,) array
    """
    return np.concatenate([np.ravel(array) for array in arrays])


def _by_value(wrong: Any, values: Any, what: str) -> str:
    """Return a phrase if a value decides which entries are wrong: its sign, or whether it is large."""
    return _by_sign(wrong, values, what) or _by_threshold(wrong, values, what)


def _by_sign(wrong: Any, values: Any, what: str) -> str:
    """Return a phrase if exactly the entries with one sign of a value are wrong."""
    for sign_name, has_sign in {"positive": values > 0, "negative": values < 0}.items():
        if np.array_equal(wrong, has_sign) and not has_sign.all():
            return f"is off only where {what} is {sign_name}"
    return ""


def _by_threshold(wrong: Any, values: Any, what: str) -> str:
    """Return a phrase if exactly the entries with a value beyond some threshold are wrong."""
    if min(wrong.sum(), (~wrong).sum()) < max(FEWEST, FEW * len(wrong)):
        return ""
    where_wrong, where_right = values[wrong], values[~wrong]
    if where_wrong.max() < where_right.min():
        return f"is off only where {what} is small (at most {where_wrong.max():.2g})"
    if where_wrong.min() > where_right.max():
        return f"is off only where {what} is large (at least {where_wrong.min():.2g})"
    size_wrong, size_right = abs(where_wrong), abs(where_right)
    if size_wrong.min() > size_right.max():
        return f"is off only where {what} is far from zero (beyond {size_wrong.min():.2g})"
    if size_wrong.max() < size_right.min():
        return f"is off only where {what} is near zero (within {size_wrong.max():.2g})"
    return ""


def one_in_a_row(parts: list[Part]) -> str:
    """Name the one entry of each row that alone is wrong, or right."""
    if not _have_right_shape(parts) or any(part.expected.ndim != 2 for part in parts):
        return ""
    masks = [wrong_entries(part) for part in parts if min(part.expected.shape) > 2]
    if not masks or not all(is_clear(part).all() for part in parts):
        return ""
    if all((mask.sum(1) == 1).all() for mask in masks):
        return "is wrong at one entry of each row, and right elsewhere"
    if all(((~mask).sum(1) == 1).all() for mask in masks):
        return "is right at one entry of each row only"
    return ""


def multiple_of_rows(parts: list[Part]) -> str:
    """Name a factor or an added constant that each row, or each column, has to itself."""
    if not _have_right_shape(parts) or any(part.expected.ndim < 2 for part in parts):
        return ""
    parts = [part for part in parts if min(part.expected.shape) > 2]
    if not parts:
        return ""
    ratios = [part.found / part.expected for part in parts]
    are_finite = all(np.isfinite(ratio).all() for ratio in ratios)
    for axis, what in ((-1, "row"), (0, "column")):
        if all(_is_constant(part.difference, axis, CLOSE_FIT) for part in parts):
            return f"is off by an added constant of its own in each {what}: a mean or a sum along the {what}"
        if are_finite and all(_is_constant(ratio, axis, CLOSE_RATIO) for ratio in ratios):
            return f"is off by a factor of its own in each {what}"
    for name, arrays in _arguments_like(parts):
        if all(_is_multiple(part.difference, array) for part, array in zip(parts, arrays, strict=True)):
            return f"is off by a multiple of {name} in each row, plus a constant of the row"
    return ""


# All laws, from the most to the least specific.
WHOLE: tuple[Law, ...] = (
    not_finite,
    zero,
    sign,
    transposed,
    factor,
    summed,
    itself,
    term,
    term_of_two,
    product_of_numbers,
    real_part,
    absolute,
    factor_of_argument,
    added,
    order,
    function_of_right,
    rounded,
)
WHERE: tuple[Law, ...] = (by_rows, one_in_a_row, at_value, kept, large, multiple_of_rows)


# Helpers -------------------------------------------------------------------------------------------


def multiple(found: Any, expected: Any) -> float | None:
    """Find the number by which one array is a multiple of another.

    Parameters
    ----------
    found, expected : array

    Returns
    -------
    float
        None if the first is not a multiple of the second, or is zero.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or found.size < 1 or not np.isfinite(found).all():
        return None
    size = float((expected * expected).sum().real)
    if not size:
        return None
    value = float((found * expected).sum().real / size)
    if found.size == 1:
        return value if value else None
    return value if value and close(found, value * expected) else None


def _factors(pairs: Iterable[tuple[Any, Any]]) -> list[float]:
    """Return for each pair the number by which its first array is a multiple of its second; all or none."""
    factors = []
    for found, expected in pairs:
        value = multiple(found, expected)
        if value is None:
            return []
        factors.append(value)
    return factors


def _are_equal(values: list[float]) -> bool:
    """Tell whether all values are equal except for rounding."""
    return bool(np.ptp(values) <= CLOSE * abs(values[0]))


def _common_factor(pairs: Iterable[tuple[Any, Any]]) -> float | None:
    """Return the number by which in all pairs the first array is a multiple of the second; or None."""
    factors = _factors(pairs)
    return factors[0] if factors and _are_equal(factors) else None


def _is_constant(values: Any, axis: int | None = None, tolerance: float = CLOSE) -> bool:
    """Tell whether all entries along an axis are equal except for rounding; None: all entries at all."""
    means = values.mean(axis, keepdims=True)
    return close(values, np.broadcast_to(means, values.shape), tolerance)


def _have_right_shape(parts: list[Part]) -> bool:
    """Tell whether all parts have the shape that they should have."""
    return all(part.found.shape == part.expected.shape for part in parts)


def _are_large_enough(parts: list[Part]) -> bool:
    """Tell whether all parts have the right shape, and so many entries that some tell from others."""
    return _have_right_shape(parts) and all(part.found.size >= SIZE for part in parts)


def _scalars(parts: list[Part]) -> Iterator[tuple[str, list[float]]]:
    """List the arguments that are numbers, and the sizes of the others: name, and value in each question."""
    for name in _common(parts):
        arrays = [part.arguments[name] for part in parts]
        if all(array.ndim == 0 and np.isrealobj(array) for array in arrays):
            yield name, [float(array) for array in arrays]
        if all(array.ndim == 1 and np.all(array == np.round(array.real)) for array in arrays):
            yield f"the sum of {name}", [float(array.real.sum()) for array in arrays]
        for axis in range(min(array.ndim for array in arrays)):
            size = f"{name}.shape[{axis}]"
            sizes = [float(array.shape[axis]) for array in arrays]
            yield size, sizes
            if min(sizes) > 1:
                yield f"({size} - 1)", [n - 1 for n in sizes]
                yield f"((n - 1)/n with n = {size})", [(n - 1) / n for n in sizes]


def _common(parts: list[Part]) -> list[str]:
    """List the arguments that all questions have."""
    return [name for name in parts[0].arguments if all(name in part.arguments for part in parts)]


def _arguments_like(parts: list[Part]) -> Iterator[tuple[str, list[Any]]]:
    """List the arguments that have the shape of the right answer: name, and array in each question."""
    for name in _common(parts):
        arrays = [part.arguments[name] for part in parts]
        pairs = zip(parts, arrays, strict=True)
        if all(np.shape(array) == part.expected.shape for part, array in pairs):
            yield name, arrays


def broadcast(value: Any, like: Any) -> Any:
    """Broadcast an array to the shape of another.

    Parameters
    ----------
    value, like : array

    Returns
    -------
    array
        None if the value is a number, or its shape does not fit.
    """
    if np.ndim(value) == 0:
        return None
    try:
        return np.broadcast_to(value, np.shape(like))
    except ValueError:
        return None


def wrong_entries(part: Part) -> Any:
    """Find the entries of a part that are wrong; NaN is.

    Parameters
    ----------
    part : Part

    Returns
    -------
    array of bool
        A mask in the shape of the part.
    """
    return ~(abs(part.difference) <= CLOSE * max(float(abs(part.expected).max()), TINY))


def is_clear(part: Part) -> Any:
    """Find the entries that are wrong or right whatever the tolerance.

    Parameters
    ----------
    part : Part
        With a found array of the expected shape.

    Returns
    -------
    array of bool
        False where an entry counts as right only because it is small.
    """
    is_off = abs(part.difference) > CLOSE_RATIO * abs(part.expected)
    return wrong_entries(part) | ~is_off | (part.expected == 0)


def _wrong_rows(parts: list[Part]) -> list[Any]:
    """Return for each part a mask of the rows that are wrong; none where that can't be told."""
    if not _have_right_shape(parts):
        return []
    masks = []
    for part in parts:
        rows = len(part.expected)
        mask = wrong_entries(part).reshape(rows, -1).any(1)
        clear = is_clear(part).reshape(rows, -1)
        if not clear[~mask].all():
            return []
        masks.append(mask)
    return masks


def _is_multiple(difference: Any, value: Any) -> bool:
    """Tell whether each row of a difference is a multiple of the value's row, plus a constant."""
    columns = difference.shape[-1]
    if columns < 4:  # two unknowns fit shorter rows too easily
        return False
    for row, other in zip(difference.reshape(-1, columns), value.reshape(-1, columns), strict=True):
        table = np.stack([np.ones_like(other), other], 1)
        coefficients, *_ = np.linalg.lstsq(table, row, rcond=None)
        if not close(table @ coefficients, row, CLOSE_FIT):
            return False
    return True


def _number(value: float) -> str:
    """Write a number; as a fraction where that is a simple one."""
    for denominator in range(1, 13):
        numerator = value * denominator
        if abs(numerator - round(numerator)) < CLOSE and abs(numerator) < 100:
            return f"{round(numerator)}/{denominator}" if denominator > 1 else str(round(numerator))
    return f"{value:.4g}"
