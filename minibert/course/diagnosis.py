"""Say where a wrong answer is off, and by which law.

What is said holds for every question that was asked.

Each law is a function of what one part of the answer was, what it should have been, and what was asked. It
returns a phrase if it holds for all questions in which the part is wrong, and "" otherwise. They are tried in
order, from what says most to what says least.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

CLOSE = 1e-9  # relative: of numbers that are the same but for rounding
BOUND = 1e-12  # relative: of an answer that is right, as the judge has it
SMALL = 1e-5  # relative: an error of an approximation, not of a formula
FEW = 0.05  # of the entries: so many have to be right, or wrong, to tell where
SHORT = 100  # characters of a question that is printed whole
Arrays = dict[str, Any]


class Asked(NamedTuple):
    """A question with the answer that was given and the right one, part by part."""

    found: dict[str, Any]
    expected: dict[str, Any]
    arguments: dict[str, Any]
    variant: str = ""  # what is particular about the question, such as "causal dropout"
    totals: tuple[str, ...] = ()  # parts that are added to an accumulator


class Part(NamedTuple):
    """One part of a question's answer, as arrays."""

    found: Any
    expected: Any
    arguments: Arrays  # numbers and arrays by name, and the other parts' right values as "the right …"
    is_total: bool

    @property
    def difference(self) -> Any:
        """Return what there is too much."""
        return self.found - self.expected


class Probe(NamedTuple):
    """A change of the questions that may make a wrong answer right."""

    phrase: str
    ask: Callable[..., list[Asked]]
    tells_much: bool = True  # False: it sets a whole table, so that little is left to go wrong


Law = Callable[[list[Part]], str]
Sentence = str


def close(found: Any, expected: Any, tolerance: float = CLOSE) -> bool:
    """Tell whether two arrays are the same but for rounding.

    Parameters
    ----------
    found, expected : array
    tolerance : float
        Relative to the largest value of `expected`.

    Returns
    -------
    bool
        False for other shapes, and for what is not a number.
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
    """Name what is not a number.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is not finite (nan or inf) everywhere"; "" where all numbers are finite.
    """
    shares = [float(np.mean(~np.isfinite(part.found))) for part in parts]
    if not max(shares):
        return ""
    where = "everywhere" if min(shares) == 1 else "in some places"
    return f"is not finite (nan or inf) {where}"


def zero(parts: list[Part]) -> str:
    """Name what is zero everywhere.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        "is zero everywhere", or "".
    """
    return "is zero everywhere" if _all(parts, lambda part: not np.any(part.found)) else ""


def sign(parts: list[Part]) -> str:
    """Name what has the other sign.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        "has the wrong sign", or "".
    """
    return "has the wrong sign" if _all(parts, lambda part: close(-part.found, part.expected)) else ""


def transposed(parts: list[Part]) -> str:
    """Name what is the transpose.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        "is transposed", or "".
    """
    if _all(parts, lambda part: part.expected.ndim == 2 and close(part.found.T, part.expected)):
        return "is transposed"
    return ""


def absolute(parts: list[Part]) -> str:
    """Name what has lost its signs.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        "has lost its signs", or "".
    """
    return "has lost its signs" if _all(parts, lambda part: close(part.found, abs(part.expected))) else ""


def factor(parts: list[Part]) -> str:
    """Name a constant factor, the same in every question or one of its sizes or numbers.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is 2 times what it should be"; "" where no factor fits.
    """
    factors = _factors((part.found, part.expected) for part in parts)
    if not factors:
        return ""
    if np.ptp(factors) <= CLOSE * abs(factors[0]):
        value = factors[0]
        text = f"is {_number(value)} times what it should be"
        if parts[0].is_total and abs(value - 0.5) < CLOSE:
            text += " (after two calls: an accumulator that is replaced, not added to, looks so)"
        return text
    for name, values in _scalars(parts):
        for power, words in _POWERS.items():
            with np.errstate(all="ignore"):
                if close(factors, np.asarray(values) ** power):
                    return f"is {words.format(name)} times what it should be"
    return "is off by one factor for the whole array, another in each question"


def itself(parts: list[Part]) -> str:
    """Name an argument that is returned as it came.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is x itself", or "".
    """
    for name in _common(parts):
        if _all(parts, lambda part, name=name: close(part.found, part.arguments[name])):
            return f"is {name} itself"
    return ""


def term(parts: list[Part]) -> str:
    """Name an argument, or another part, that is missing as a term or too many.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "lacks the term x", or "".
    """
    for name in _common(parts):
        terms = [_broadcast(part.arguments[name], part.expected) for part in parts]
        if any(one is None for one in terms):
            continue
        factors = _factors((part.difference, one) for part, one in zip(parts, terms, strict=True))
        if not factors or np.ptp(factors) > CLOSE * abs(factors[0]):
            continue
        if abs(factors[0] + 1) < CLOSE:
            return f"lacks the term {name}"
        if abs(factors[0] - 1) < CLOSE:
            return f"has a term {name} too many"
        return f"is off by {_number(factors[0])} times {name}"
    return ""


def factor_of_argument(parts: list[Part]) -> str:
    """Name an argument that is missing as a factor or too many.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "lacks the factor dy", or "".
    """
    for name in _common(parts):
        for axis in (None, -1):

            def shaped(part: Part, name: str = name, axis: int | None = axis) -> Any:
                value = part.arguments[name]
                if axis is not None:
                    value = value[..., None]
                return _broadcast(value, part.expected)

            if any(shaped(part) is None for part in parts):
                continue
            if _all(parts, lambda part, a=shaped: close(part.found, part.expected * a(part))):
                return f"has the factor {name} once too often"
            if _all(parts, lambda part, a=shaped: close(part.found * a(part), part.expected)):
                return f"lacks the factor {name}"
    return ""


def added(parts: list[Part]) -> str:
    """Name an added constant.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is off by an added constant, 1", or "".
    """
    values = []
    for part in parts:
        difference = part.difference
        if difference.size < 2 or not close(difference, np.full_like(difference, difference.mean())):
            return ""
        values.append(float(difference.mean()))
    if np.ptp(values) <= CLOSE * abs(values[0]):
        return f"is off by an added constant, {_number(values[0])}"
    return "is off by an added constant, another in each question"


def order(parts: list[Part]) -> str:
    """Name the right numbers in another order.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is shifted by a row", or "".
    """
    if not _all(parts, lambda part: part.found.shape == part.expected.shape and part.found.ndim):
        return ""
    if _all(parts, lambda part: close(part.found[::-1], part.expected)):
        return "has its rows in the opposite order"
    for shift in (1, -1):
        if _all(parts, lambda part, n=shift: close(np.roll(part.found, n, 0), part.expected)):
            return "is shifted by a row"
    if _all(parts, lambda part: close(np.sort(part.found, None), np.sort(part.expected, None))):
        return "has the right numbers in another order"
    return ""


def function_of_right(parts: list[Part]) -> str:
    """Name a simple function that was applied to the right answer, or not undone.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is the square of what it should be", or "".
    """
    functions: dict[str, Callable[[Any], Any]] = {
        "is the square of what it should be": np.square,
        "is the square root of what it should be": np.sqrt,
        "is one divided by what it should be": np.reciprocal,
        "is one minus what it should be": lambda right: 1 - right,
        "is the logarithm of what it should be": np.log,
        "is minus the logarithm of what it should be": lambda right: -np.log(right),
        "is the exponential of what it should be": np.exp,
    }
    for phrase, function in functions.items():
        with np.errstate(all="ignore"):
            if _all(parts, lambda part, f=function: close(part.found, f(part.expected * 1.0))):
                return phrase
    return ""


def rounded(parts: list[Part]) -> str:
    """Name the error of an approximation.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        A phrase with the relative error; "" where it is above `SMALL`.
    """
    errors = []
    for part in parts:
        if part.found.shape != part.expected.shape:
            return ""
        errors.append(float(abs(part.difference).max() / max(abs(part.expected).max(), 1e-300)))
    if max(errors) > SMALL:
        return ""
    return (
        f"is nearly right, to {max(errors):.0e}: an approximation, single precision or a constant cut short"
    )


# Laws of where a part is off ---------------------------------------------------------------------------


def by_rows(parts: list[Part]) -> str:
    """Name rows that are wrong, where others are right.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is right in the first row only", or "".
    """
    masks = _wrong_rows([part for part in parts if part.expected.ndim and len(part.expected) > 2])
    if not masks or all(mask.all() for mask in masks):
        return ""
    patterns: dict[str, Callable[[Any], Any]] = {
        "is right in the first row only": lambda mask: mask[1:].all() and not mask[0],
        "is right in the last row only": lambda mask: mask[:-1].all() and not mask[-1],
        "is wrong in the first row only": lambda mask: mask[0] and not mask[1:].any(),
        "is wrong in the last row only": lambda mask: mask[-1] and not mask[:-1].any(),
    }
    for phrase, expected in patterns.items():
        if all(len(mask) > 2 and expected(mask) for mask in masks):
            return phrase
    return ""


def large(parts: list[Part]) -> str:
    """Name entries that are wrong because a number is large, small, positive or negative.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Such as "is off only where x is negative", or "".
    """
    if any(part.found.shape != part.expected.shape or part.found.size < 8 for part in parts):
        return ""
    wrong = [_wrong(part) for part in parts]
    if all(one.all() for one in wrong) or sum(int(one.sum()) for one in wrong) < 3:
        return ""
    mask = np.concatenate([one.ravel() for one in wrong])
    for name in [*_common(parts), ""]:
        values = []
        for part in parts:
            value = part.expected if not name else part.arguments[name]
            if np.shape(value) != part.expected.shape:
                break
            values.append(np.ravel(value))
        if len(values) < len(parts):
            continue
        numbers = np.concatenate(values)
        what = name or "the right number"
        if not name and not np.any(numbers[mask]) and np.any(numbers[~mask]):
            return "is not zero where it should be"
        for phrase, inside in {
            f"is off only where {what} is positive": numbers > 0,
            f"is off only where {what} is negative": numbers < 0,
        }.items():
            if np.array_equal(mask, inside) and not inside.all():
                return phrase
        if min(mask.sum(), (~mask).sum()) < max(3, FEW * len(mask)):
            continue
        if numbers[mask].max() < numbers[~mask].min():
            return f"is off only where {what} is small (at most {numbers[mask].max():.2g})"
        if numbers[mask].min() > numbers[~mask].max():
            return f"is off only where {what} is large (at least {numbers[mask].min():.2g})"
        if abs(numbers[mask]).min() > abs(numbers[~mask]).max():
            return f"is off only where {what} is far from zero (beyond {abs(numbers[mask]).min():.2g})"
        if abs(numbers[mask]).max() < abs(numbers[~mask]).min():
            return f"is off only where {what} is near zero (within {abs(numbers[mask]).max():.2g})"
    return ""


def one_in_a_row(parts: list[Part]) -> str:
    """Name an error of one entry in each row, or of none but the diagonal.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Which entries they are, or "".
    """
    if any(part.expected.ndim != 2 or part.found.shape != part.expected.shape for part in parts):
        return ""
    wrong = [_wrong(part) for part in parts if min(part.expected.shape) > 2]
    if not wrong:
        return ""
    if all((one.sum(1) == 1).all() for one in wrong):
        return "is wrong at one entry of each row, and right elsewhere"
    if all(((~one).sum(1) == 1).all() for one in wrong):
        return "is right at one entry of each row only"
    return ""


def multiple_of_rows(parts: list[Part]) -> str:
    """Name a factor or an added constant of each row, or of each column.

    Parameters
    ----------
    parts : list of Part
        The same part in every question in which it is wrong, at least one.

    Returns
    -------
    str
        Which of both it is, and whether by rows or columns, or "".
    """
    if any(part.expected.ndim < 2 or part.found.shape != part.expected.shape for part in parts):
        return ""
    parts = [part for part in parts if min(part.expected.shape) > 2]
    if not parts:
        return ""
    for axis, what in ((-1, "row"), (0, "column")):

        def spread(values: Any, axis: int = axis) -> Any:
            return np.broadcast_to(values.mean(axis, keepdims=True), values.shape)

        if _all(parts, lambda part, s=spread: close(part.difference, s(part.difference), 1e-8)):
            return f"is off by an added constant of its own in each {what}: a mean or a sum along the {what}"
        with np.errstate(all="ignore"):
            ratios = [part.found / part.expected for part in parts]
        if all(np.isfinite(one).all() and close(one, spread(one), 1e-6) for one in ratios):
            return f"is off by a factor of its own in each {what}"
    for name in _common(parts):
        if not _all(parts, lambda part, n=name: np.shape(part.arguments[n]) == part.expected.shape):
            continue
        if _all(parts, lambda part, n=name: _is_multiple(part.difference, part.arguments[n])):
            return f"is off by a multiple of {name} in each row, plus a constant of the row"
    return ""


WHOLE: tuple[Law, ...] = (
    not_finite,
    zero,
    sign,
    transposed,
    factor,
    itself,
    term,
    absolute,
    factor_of_argument,
    added,
    order,
    function_of_right,
    rounded,
)
WHERE: tuple[Law, ...] = (by_rows, one_in_a_row, large, multiple_of_rows)
_NOT_NAMES = {"a", "all", "an", "each", "it", "its", "of", "one", "sees", "the", "what"}  # of a docstring
_POWERS = {1: "{}", -1: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2: "{}²", -2: "1/{}²"}


# What is said --------------------------------------------------------------------------------------------


def diagnose(asked: list[Asked], probes: list[Probe], label: str = "{}") -> Sentence:
    """Say where answers are off, and by which law.

    Parameters
    ----------
    asked : list of Asked
        Enough questions that no law holds by chance.
    probes : list of Probe
        Tried in order where no law of a whole part holds.
    label : str
        Names a part, such as "the gradient of {}".

    Returns
    -------
    str
        One to three sentences; "" if no question is answered wrongly.
    """
    asked = [one for one in asked if any(map(_is_something, one.expected.values()))]
    if not asked:
        return ""
    names = list(asked[0].expected)
    wrong = [name for name in names if any(not _same(one, name) for one in asked)]
    if not wrong:
        return ""
    if any(set(one.found) != set(names) for one in asked):
        return ""
    told: dict[str, list[str]] = {}
    unexplained = []
    exchanged = _exchanged(asked, wrong)
    for name in wrong:
        phrase = exchanged.get(name) or _first(WHOLE, _parts(asked, name))
        if not phrase or phrase.startswith("is not finite"):
            unexplained.append(name)
        if phrase:
            told.setdefault(phrase, []).append(name)
    sentences = _by_variant(asked, wrong)
    if unexplained and not sentences:
        sentences = _by_probe([probe for probe in probes if probe.tells_much], wrong)
    for name in unexplained:
        phrase = _first(WHERE, _parts(asked, name)) or _items(asked, name)
        if phrase:
            told.setdefault(phrase, []).append(name)
    if unexplained and not (sentences or told):
        sentences = _by_probe([probe for probe in probes if not probe.tells_much], wrong)
    said = []
    for phrase, about in told.items():
        said.append(f"{_upper(_listed(about, label))} {_plural(phrase, len(about))}.")
    silent = [name for name in unexplained if not any(name in about for about in told.values())]
    if silent and (len(names) > 1 or not (said or sentences)):
        share = _share(asked, silent)
        said.append(f"{_upper(_listed(silent, label))} {_plural('is', len(silent))} wrong{share}.")
    right = [name for name in names if name not in wrong]
    if right:
        said.append(f"{_upper(_listed(right, label))} {_plural('is', len(right))} right.")
    return " ".join([*said, *sentences, *_smallest(asked, names)])


def parts_of(answer: Any, names: list[str]) -> dict[str, Any]:
    """Name the parts of an answer.

    Parameters
    ----------
    answer : Any
        A tuple has as many parts as members, a dictionary those of its keys, anything else is one.
    names : list of str
        Of the members of a tuple, if there are as many.

    Returns
    -------
    dict
        The parts by name.
    """
    if isinstance(answer, dict) and all(isinstance(name, str) for name in answer):
        return dict(answer)
    if isinstance(answer, tuple) and len(answer) > 1:
        if len(names) != len(answer):
            names = [f"part {number}" for number in range(1, len(answer) + 1)]
        return dict(zip(names, answer, strict=True))
    return {"the answer": answer}


def names_in(docstring: str | None) -> list[str]:
    """Read the names of what a function returns from the sentence that describes it.

    Parameters
    ----------
    docstring : str
        Such as "Return dq, dk and dv, each (n,D)."; None: nothing is said.

    Returns
    -------
    list of str
    """
    without_shapes = re.sub(r"\([^()]*\)", "", docstring or "")
    tokens = re.findall(r"\w+|[^\w\s]", without_shapes)
    for place, token in enumerate(tokens[:-1]):
        if token != "and" or not tokens[place + 1].isidentifier():
            continue
        names = _listed_before(tokens[:place])
        if names:
            names.append(tokens[place + 1])
            return [] if set(names) & _NOT_NAMES else names
    return []


def _listed_before(tokens: list[str]) -> list[str]:
    """Return the words at the end of some tokens that have commas between them."""
    end = len(tokens)
    if tokens[-1:] == [","]:  # "dq, dk, and dv"
        end -= 1
    names: list[str] = []
    while end and tokens[end - 1].isidentifier():
        names.append(tokens[end - 1])
        end -= 1
        if not end or tokens[end - 1] != ",":
            break
        end -= 1
    return names[::-1]


def probes_of(
    function: Any, arguments: dict[str, Any], ask: Callable[[Callable[[Arrays], Arrays]], list[Asked]]
) -> Iterator[Probe]:
    """List what may be set to 0, 1, False or None in all questions.

    Parameters
    ----------
    function : function
        Its parameters with a default of None may be left out.
    arguments : dict
        Of one question, by name.
    ask : function
        A change of the arguments -> the answers to all questions that are changed so.

    Yields
    ------
    Probe
    """
    optional = {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is None
    }
    kinds = ["bool", "number", "array", "table"]
    for place, kind in sorted(_settable(arguments), key=lambda one: kinds.index(one[1])):
        values: tuple[Any, ...] = (1.0, 0.0)
        if kind == "bool":
            values = (False, True)
        for value in values:
            words = f"is {value}"
            if kind != "bool":
                words = f"is {value:g}" + (" everywhere" if kind != "number" else "")
            change = _setting(place, value)
            phrase = f"where {'.'.join(place)} {words}"
            yield Probe(phrase, lambda change=change: ask(change), kind != "table")
    for name in optional & set(arguments):
        yield Probe(f"where {name} is None", lambda name=name: ask(_setting((name,), None)))


def _settable(arguments: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """List the numbers, truth values and arrays of numbers among arguments and their fields."""
    for name, value in arguments.items():
        inner: dict[tuple[str, ...], Any] = {(name,): value}
        if fields := _fields_of(value):
            inner = {(name, field): getattr(value, field) for field in fields}
        elif isinstance(value, dict):
            inner = {(name, key): entry for key, entry in value.items() if isinstance(key, str)}
        for place, one in inner.items():
            if isinstance(one, bool):
                yield place, "bool"
            elif isinstance(one, float):
                yield place, "number"
            elif isinstance(one, np.ndarray) and one.dtype.kind == "f":
                yield place, "array" if one.ndim < 2 else "table"


def _fields_of(value: Any) -> list[str]:
    """Return the names of the fields of a named tuple or a dataclass; [] for anything else."""
    return list(getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None) or ())


def _setting(place: tuple[str, ...], value: Any) -> Callable[[Arrays], Arrays]:
    """Make a change of arguments that sets one of them, or a field of one."""

    def change(arguments: Arrays) -> Arrays:
        whole = arguments[place[0]]
        old = whole
        if len(place) > 1:
            old = whole[place[1]] if isinstance(whole, dict) else getattr(whole, place[1])
        new = np.full_like(old, value) if isinstance(old, np.ndarray) and value is not None else value
        if len(place) > 1:
            if isinstance(whole, dict):
                new = whole | {place[1]: new}
            elif hasattr(whole, "_replace"):
                new = whole._replace(**{place[1]: new})
            else:
                new = dataclasses.replace(whole, **{place[1]: new})
        return arguments | {place[0]: new}

    return change


def _by_probe(probes: list[Probe], wrong: list[str]) -> list[str]:
    """Return a sentence for the first probe that makes everything right that was wrong."""
    for probe in probes:
        try:
            asked = probe.ask()
        except Exception:  # such arguments can't be asked for
            continue
        if not asked or any(set(one.found) != set(one.expected) for one in asked):
            continue
        if all(_same(one, name) for one in asked for name in wrong) and _tells(asked, wrong):
            return [f"It is right {probe.phrase}."]
    return []


def _tells(asked: list[Asked], wrong: list[str]) -> bool:
    """Tell whether right answers are not all alike: nothing is learnt from one that has to be zero."""
    for name in wrong:
        if all(_follows(one, name) for one in asked):
            return False
        values = [np.asarray(one.expected[name]) for one in asked if np.size(one.expected[name])]
        if all(one.dtype.kind in "fciub" for one in values):
            flat = np.concatenate([one.ravel() for one in values]) if values else np.zeros(1)
            if not np.isfinite(flat).all() or np.ptp(flat) == 0:
                return False
    return True


def _follows(one: Asked, name: str) -> bool:
    """Tell whether a right answer is only a multiple of an argument, such as what no step has changed."""
    right = one.expected[name]
    if not isinstance(right, np.ndarray):
        return False
    for value in _numbers(one.arguments).values():
        like = _broadcast(value, right)
        if like is not None and (_factor(right, like) or not np.any(right)):
            return True
    return False


def _by_variant(asked: list[Asked], wrong: list[str]) -> list[str]:
    """Return a sentence if exactly the questions with some particular are answered wrongly."""
    failed = [not all(_same(one, name) for name in wrong) for one in asked]
    words = sorted({word for one in asked for word in _words(one.variant)})
    for word in words:
        has = [word in _words(one.variant) for one in asked]
        if failed == has and not all(has):
            return [f"It is right without “{word}”, and wrong with it."]
        if failed == [not one for one in has] and any(has):
            return [f"It is right with “{word}” only."]
    if words and not all(failed):
        passed = sorted({one.variant or "plain" for one, bad in zip(asked, failed, strict=True) if not bad})
        others = {one.variant or "plain" for one, bad in zip(asked, failed, strict=True) if bad}
        passed = [name for name in passed if name not in others]
        if passed:
            return [f"It is right in these cases only: {', '.join(passed)}."]
    return []


def _words(variant: str) -> set[str]:
    """Return the particulars of a case."""
    found = set()
    for phrase in ("some rows", "large eps", "far apart", "one row", "no rows"):
        if phrase in variant:
            found.add(phrase)
            variant = variant.replace(phrase, "")
    return found | set(variant.split())


def _exchanged(asked: list[Asked], wrong: list[str]) -> dict[str, str]:
    """Return a phrase for each part that has the right numbers of another."""
    found = {}
    for name in wrong:
        for other in asked[0].expected:
            if other == name:
                continue
            if all(_alike(one.found[name], one.expected[other]) for one in asked):
                found[name] = f"is what {other} should be"
    return found


def _items(asked: list[Asked], name: str) -> str:
    """Say what is missing from a list, or too many."""
    failed = [one for one in asked if not _same(one, name)]
    pairs = [(one.found[name], one.expected[name]) for one in failed]
    if not all(isinstance(a, list | tuple | str) and isinstance(b, list | tuple | str) for a, b in pairs):
        return ""
    counts = [(sorted(map(repr, a)), sorted(map(repr, b))) for a, b in pairs]
    if all(a == b for a, b in counts):
        return "has the right entries in another order"
    if all(_within(a, b) for a, b in counts):
        return "lacks entries, and has none that is wrong"
    if all(_within(b, a) for a, b in counts):
        return "has entries too many, and lacks none"
    return ""


def _is_something(value: Any) -> bool:
    """Tell whether a right answer has anything in it: no rows are right in any case."""
    return not isinstance(value, np.ndarray) or bool(value.size)


def _within(few: list[str], many: list[str]) -> bool:
    """Tell whether every entry is among others, as often."""
    return all(few.count(one) <= many.count(one) for one in set(few))


def _smallest(asked: list[Asked], names: list[str]) -> list[str]:
    """Return the shortest question that is answered wrongly, if it can be printed whole."""
    lines = []
    for one in asked:
        if all(_same(one, name) for name in names):
            continue
        inputs = ", ".join(f"{name}={value!r}" for name, value in one.arguments.items())
        values = [one.found, one.expected]
        shown = [repr(next(iter(v.values())) if len(v) == 1 else tuple(v.values())) for v in values]
        if all(isinstance(value, np.ndarray) and value.ndim for value in one.arguments.values()):
            continue
        if len(inputs) <= SHORT and max(map(len, shown)) <= SHORT and "\n" not in inputs:
            lines.append(f"Asked with {inputs}, it says {shown[0]}; expected {shown[1]}.")
    return sorted(lines, key=len)[:1]


def _share(asked: list[Asked], names: list[str]) -> str:
    """Say in how many entries parts are wrong, if not in all."""
    wrong = total = 0
    for part in [part for name in names for part in _parts(asked, name)]:
        if part.found.shape != part.expected.shape:
            return ""
        wrong += int(_wrong(part).sum())
        total += part.expected.size
    if not total or wrong == total:
        return " in every entry"
    return f" in {wrong} of {total} entries"


def _parts(asked: list[Asked], name: str) -> list[Part]:
    """Return one part of all questions in which it is wrong; nothing if it can't be compared as numbers."""
    parts = []
    for one in asked:
        if _same(one, name):
            continue
        try:
            found, expected = np.asarray(one.found[name]), np.asarray(one.expected[name])
        except ValueError:  # lists of different lengths
            return []
        if found.dtype.kind not in "fciu" or expected.dtype.kind not in "fciu":
            return []
        others = {f"the right {key}": value for key, value in one.expected.items() if key != name}
        arguments = _numbers(one.arguments) | _numbers(others)
        total = name in one.totals
        parts.append(Part(found.astype(np.result_type(found, 0.0)), expected * 1.0, arguments, total))
    return parts


def _numbers(values: dict[str, Any]) -> Arrays:
    """Return numbers and arrays among values and their fields, by name."""
    found = {}
    for name, value in values.items():
        inner = {name: value}
        if fields := _fields_of(value):
            inner = {f"{name}.{field}": getattr(value, field) for field in fields}
        for key, one in inner.items():
            if isinstance(one, bool) or one is None or isinstance(one, str):
                continue
            try:
                array = np.asarray(one)
            except ValueError:
                continue
            if array.dtype.kind in "fiu" and array.size:
                found[key] = array * 1.0
    return found


def _first(laws: tuple[Law, ...], parts: list[Part]) -> str:
    """Return the phrase of the first law that holds."""
    if not parts or not any(part.expected.size for part in parts):
        return ""
    parts = [part for part in parts if part.expected.size]
    for law in laws:
        with np.errstate(all="ignore"):
            phrase = law(parts)
        if phrase:
            return phrase
    return ""


def _same(one: Asked, name: str) -> bool:
    """Tell whether a part is right."""
    return name in one.found and _alike(one.found[name], one.expected[name])


def _alike(found: Any, expected: Any) -> bool:
    """Tell whether two nested values are the same but for rounding."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and set(found) == set(expected)
            and all(_alike(found[name], expected[name]) for name in expected)
        )
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return False
        return all(_alike(a, b) for a, b in zip(found, expected, strict=True))
    right = np.asarray(expected)
    if right.dtype.kind in "fc":
        try:
            return close(np.asarray(found, right.dtype), right, BOUND)
        except (TypeError, ValueError):
            return False
    return bool(np.array_equal(found, expected))


def _all(parts: list[Part], holds: Callable[..., Any]) -> bool:
    """Tell whether something holds in all questions."""
    return all(bool(holds(part)) for part in parts)


def _factor(found: Any, expected: Any) -> float | None:
    """Return the factor of one array to another, if there is one."""
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
    """Return the factor of the first array of each pair to the second; nothing if a pair has none."""
    factors = [_factor(found, expected) for found, expected in pairs]
    known = [value for value in factors if value is not None]
    return known if len(known) == len(factors) else []


def _scalars(parts: list[Part]) -> Iterator[tuple[str, list[float]]]:
    """List the sizes of the arguments, and those that are numbers: name and value in each question."""
    for name in _common(parts):
        arrays = [part.arguments[name] for part in parts]
        if all(array.ndim == 0 for array in arrays):
            yield name, [float(array) for array in arrays]
        for axis in range(min(array.ndim for array in arrays)):
            sizes = [array.shape[axis] for array in arrays]
            yield f"{name}.shape[{axis}]", [float(size) for size in sizes]
            if min(sizes) > 1:
                yield f"({name}.shape[{axis}] - 1)", [size - 1.0 for size in sizes]
                ratios = [(size - 1) / size for size in sizes]
                yield f"((n - 1)/n with n = {name}.shape[{axis}])", ratios


def _common(parts: list[Part]) -> list[str]:
    """List the arguments that all questions have."""
    return [name for name in parts[0].arguments if all(name in part.arguments for part in parts)]


def _broadcast(value: Any, like: Any) -> Any:
    """Return an array in the shape of another, or None where it doesn't fit; None for a number, too."""
    if np.ndim(value) == 0:
        return None
    try:
        return np.broadcast_to(value, np.shape(like))
    except ValueError:
        return None


def _wrong(part: Part) -> Any:
    """Return which entries are wrong."""
    return ~(abs(part.difference) <= CLOSE * max(float(abs(part.expected).max()), 1e-300))


def _wrong_rows(parts: list[Part]) -> list[Any] | None:
    """Return which rows are wrong."""
    if any(part.expected.ndim < 1 or part.found.shape != part.expected.shape for part in parts):
        return None
    return [_wrong(part).reshape(len(part.expected), -1).any(1) for part in parts]


def _is_multiple(difference: Any, value: Any) -> bool:
    """Tell whether each row of a difference is a multiple of the row of a value, plus a constant."""
    if difference.shape[-1] < 4:
        return False
    rows, others = difference.reshape(-1, difference.shape[-1]), value.reshape(-1, value.shape[-1])
    for row, other in zip(rows, others, strict=True):
        table = np.stack([np.ones_like(other), other], 1)
        fit = table @ np.linalg.lstsq(table, row, rcond=None)[0]
        if abs(row - fit).max() > 1e-8 * max(abs(row).max(), 1e-300):
            return False
    return True


def _number(value: float) -> str:
    """Write a number, as a fraction where it is a simple one."""
    for below in range(1, 13):
        above = value * below
        if abs(above - round(above)) < CLOSE and abs(above) < 100:
            return f"{round(above)}/{below}" if below > 1 else str(round(above))
    return f"{value:.4g}"


def _listed(names: list[str], label: str) -> str:
    """Join names with commas and "and"."""
    labelled = [name if name.startswith(("the ", "part ")) else label.format(name) for name in names]
    if len(labelled) == 1:
        return labelled[0]
    return f"{', '.join(labelled[:-1])} and {labelled[-1]}"


def _upper(text: str) -> str:
    """Begin a sentence; what begins with a name of Python stays as it is."""
    return f"T{text[1:]}" if text.startswith("the ") else text


def _plural(phrase: str, count: int) -> str:
    """Put a phrase about one part in the plural."""
    if count == 1:
        return phrase
    first, _, rest = phrase.partition(" ")
    many = {"is": "are", "has": "have", "lacks": "lack"}.get(first, first)
    return f"{many} {rest}" if rest else many
