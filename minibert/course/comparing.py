"""Compare an answer with the right one: first its form, then its numbers.

Answers are numbers and arrays, possibly in lists, tuples and dictionaries. An error is relative to the
largest value of its array. Whatever is wrong is said in a sentence, the argument of `Rejected`.
"""

from typing import Any

import numpy as np

from minibert.base.terminal import counted
from minibert.course.running import Plain, Rejected

BOUND = 1e-12  # relative error that float64's rounding may cause; a wrong term causes 1e-3 or more
TINY = 1e-300  # in place of a scale that is zero
# What `_changed` compares as Python writes it. Other objects may be written with their addresses.
_VALUES = (str, bytes, int, float, complex, np.generic)


def compare(found: Any, expected: Any, tolerance: float, what: str = "the answer") -> float:
    """Return the largest relative error among nested answers.

    Parameters
    ----------
    found, expected : Any
        Numbers and arrays, possibly in lists, tuples and dictionaries.
    tolerance : float
        Largest error of each array that is allowed, relative to the array's largest value.
    what : str
        Subject of the sentence that says what is wrong.

    Returns
    -------
    float
        0.0 where all are the same.

    Raises
    ------
    Rejected
        When kinds, lengths, keys or shapes differ, or an error is larger than `tolerance`.
    """
    require_alike(found, expected, what)
    errors = [0.0]
    for leaf, right_leaf in zip(leaves(found), leaves(expected), strict=True):
        right = np.asarray(right_leaf)
        if right.dtype.kind in "fciu":
            errors.append(_error(np.asarray(leaf), right, tolerance, what))
        elif not np.array_equal(leaf, right_leaf):
            raise Rejected(f"{what} has {_first_difference(leaf, right_leaf)} is expected.")
    return max(errors)


def _error(found: Any, right: Any, tolerance: float, what: str) -> float:
    """Return the relative error of an array; raise Rejected if it is too large."""
    if np.array_equal(found, right, equal_nan=True):  # also infinite: an expected answer may overflow
        return 0.0
    largest = float(np.abs(found - right).max())
    scale = float(np.abs(right).max())
    if not scale and largest > tolerance * TINY:
        raise Rejected(f"{what} is off by {largest:.0e} where 0 is expected.")
    return require_within(largest / max(scale, TINY), tolerance, what)


def _first_difference(found: Any, right: Any) -> str:
    """Write the first value that is wrong, and which one belongs there; neither is a number."""
    if not np.ndim(right):
        return f"{short(found)} where {short(right)}"
    index = tuple(map(int, np.argwhere(found != right)[0]))
    return f"{short(found[index].item())} at {list(index)}, where {short(right[index].item())}"


def require_within(error: float, bound: float, what: str = "the answer") -> float:
    """Refuse an error that is not within its bound; NaN is not.

    Parameters
    ----------
    error, bound : float
        Relative.
    what : str
        Subject of the sentence that says what is wrong.

    Returns
    -------
    float
        The error.

    Raises
    ------
    Rejected
        With the error, when it is too large.
    """
    if error <= bound:
        return error
    rejected = Rejected(f"{what} is off by {error:.0e}, relative; at most {bound:.0e} is allowed.")
    rejected.error = error
    raise rejected


def is_like(found: Any, expected: Any, tolerance: float = BOUND) -> bool:
    """Tell whether `compare` accepts an answer.

    Parameters
    ----------
    found, expected, tolerance
        As for `compare`.

    Returns
    -------
    bool
    """
    try:
        compare(found, expected, tolerance)
    except Rejected:
        return False
    return True


def require_alike(found: Any, expected: Any, what: str = "the answer") -> None:
    """Refuse an answer whose kinds or shapes are wrong.

    Parameters
    ----------
    found, expected : Any
        As for `compare`.
    what : str
        Subject of the sentence that says what is wrong.

    Raises
    ------
    Rejected
        When kinds, lengths, keys or shapes differ.
    """
    form = _described(found)
    expected_form = _described(expected)
    if form != expected_form:
        raise Rejected(f"{what} is {_shortened(form, 200)}; expected {_shortened(expected_form, 200)}.")


def _described(value: Any) -> str:
    """Describe the kinds and shapes in a nested value."""
    if isinstance(value, dict):
        entries = [f"{name!r}: {_described(value[name])}" for name in sorted(value, key=repr)]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return _described_sequence(value)
    array = np.asarray(value)
    if array.dtype.kind not in "fciub":
        return type(value).__name__
    if array.ndim:
        return f"an array of shape {array.shape}"
    return "a truth value" if array.dtype.kind == "b" else "a number"


def _described_sequence(value: Any) -> str:
    """Describe a list or a tuple; the shorter the more alike its members are."""
    kind = "list" if isinstance(value, list) else "tuple"
    members = list(map(_described, value))
    if set(members) <= {"a number"}:
        return f"a {kind} of {counted(len(members), 'number')}"
    if all(text.startswith("a list of ") and text.endswith((" number", " numbers")) for text in members):
        lengths = ", ".join(str(len(member)) for member in value)
        return f"a {kind} of {counted(len(members), 'list')} of numbers, of the lengths {lengths}"
    return f"a {kind} of ({', '.join(members)})"


def leaves(value: Any) -> list[Any]:
    """List what nested lists, tuples and dictionaries hold, in order.

    Parameters
    ----------
    value : Any

    Returns
    -------
    list
    """
    if isinstance(value, dict):
        parts = [value[name] for name in sorted(value, key=repr)]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        return [value]
    return [leaf for part in parts for leaf in leaves(part)]


def as_tuple_if_expected(found: Any, expected: Any) -> Any:
    """Make a tuple of a list or a row of numbers, if a tuple with as many members is expected.

    Parameters
    ----------
    found, expected : Any

    Returns
    -------
    Any
        The answer that was found, or the tuple.
    """
    is_row = isinstance(found, list) or (isinstance(found, np.ndarray) and found.ndim == 1)
    if is_row and isinstance(expected, tuple) and len(found) == len(expected):
        return tuple(found)
    return found


def require_unchanged(now: Any, before: Any) -> None:
    """Refuse a function that has changed its arguments.

    Parameters
    ----------
    now : Any
        Arguments after the call: arrays, possibly in lists, tuples and dictionaries.
    before : Any
        A deep copy of them, made before the call.

    Raises
    ------
    Plain
        When an array, a list, a dictionary or a set has changed.
    """
    if kind := kind_changed(now, before):
        raise Plain(f"it changes {kind} that it was given; make a new one.")


def kind_changed(now: Any, before: Any) -> str:
    """Name the kind of the first array or container that has changed.

    Parameters
    ----------
    now, before : Any
        As for `require_unchanged`.

    Returns
    -------
    str
        Such as "an array"; "" if nothing has changed.
    """
    if isinstance(before, np.ndarray):
        has_nan = before.dtype.kind in "fc"
        is_same = now.dtype == before.dtype and np.array_equal(now, before, equal_nan=has_nan)
        return "" if is_same else "an array"
    if isinstance(before, set):
        return "" if now == before else "a set"
    if isinstance(before, dict):
        kind = "a dictionary"
        if set(now) != set(before):
            return kind
        pairs = [(now[key], before[key]) for key in before]
    elif isinstance(before, list | tuple):
        kind = "a list"
        if len(now) != len(before):
            return kind
        pairs = list(zip(now, before, strict=True))
    else:
        return ""
    for new, old in pairs:
        if type(new) is not type(old):
            return kind
        if inner := kind_changed(new, old):
            return inner
        if isinstance(old, _VALUES) and repr(new) != repr(old):  # NaN is like itself
            return kind
    return ""


def short(value: Any) -> str:
    """Write a value as Python does, cut to 60 characters.

    Parameters
    ----------
    value : Any

    Returns
    -------
    str
    """
    return _shortened(repr(value), 60)


def _shortened(text: str, most: int) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= most else f"{text[:most]}…"
