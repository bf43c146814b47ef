"""Say where a wrong answer is off, and by which law.

Each law is a function that looks at one part of the answer: what it was, what it should have been, and what
was asked. It returns a phrase, such as "has the wrong sign", if the law holds in every question in which the
part is wrong, and "" otherwise. Laws are tried in order, from the most to the least specific.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

CLOSE = 1e-9  # relative difference of numbers that are equal except for rounding
CLOSE_FIT = 1e-8  # the same where one of the numbers has been averaged or fitted
CLOSE_RATIO = 1e-6  # the same of quotients, which lose digits where the divisor is small
BOUND = 1e-12  # relative error of a right answer, as in `judging`
SMALL = 1e-5  # a smaller relative error is that of an approximation, not of a wrong formula
TINY = 1e-300  # in place of a scale that is zero
FEW = 0.05  # share of the entries that have to be right, and wrong, to tell where they are
FEWEST = 3  # entries that have to be wrong to tell where they are
SIZE = 8  # entries that an array needs to tell where it is wrong
SHORT = 100  # characters of a question that is printed whole
NOT_FINITE = "is not finite"  # a phrase that begins so names a symptom, and does not explain it
Arrays = dict[str, Any]


class Asked(NamedTuple):
    """A question, with the answer that was given and the right one, each by the names of its parts."""

    found: dict[str, Any]
    expected: dict[str, Any]
    arguments: dict[str, Any]
    variant: str = ""  # what distinguishes the question from the plain one, such as "causal dropout"
    totals: tuple[str, ...] = ()  # names of the parts that are added to an accumulator


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


class Probe(NamedTuple):
    """A change of all questions that may make a wrong answer right."""

    phrase: str  # completes "It is right …"
    ask: Callable[..., list[Asked]]
    tells_much: bool = True  # False: it sets a whole table, which leaves little to get wrong


Law = Callable[[list[Part]], str]
Sentence = str


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
    shares = [float(np.mean(~np.isfinite(part.found))) for part in parts]
    if not max(shares):
        return ""
    where = "everywhere" if min(shares) == 1 else "in some places"
    return f"{NOT_FINITE} (nan or inf) {where}"


def zero(parts: list[Part]) -> str:
    """Name a part that is zero everywhere."""
    return "is zero everywhere" if _all(parts, lambda part: not np.any(part.found)) else ""


def sign(parts: list[Part]) -> str:
    """Name a part with the opposite sign."""
    return "has the wrong sign" if _all(parts, lambda part: close(-part.found, part.expected)) else ""


def transposed(parts: list[Part]) -> str:
    """Name the transpose of the right answer."""
    if _all(parts, lambda part: part.expected.ndim == 2 and close(part.found.T, part.expected)):
        return "is transposed"
    return ""


def absolute(parts: list[Part]) -> str:
    """Name the absolute value of the right answer."""
    return "has lost its signs" if _all(parts, lambda part: close(part.found, abs(part.expected))) else ""


def factor(parts: list[Part]) -> str:
    """Name a factor: a constant, or a power of a size or a number in the question."""
    factors = _factors((part.found, part.expected) for part in parts)
    if not factors:
        return ""
    if _are_equal(factors):
        phrase = f"is {_number(factors[0])} times what it should be"
        if parts[0].is_total and abs(factors[0] - 0.5) < CLOSE:
            phrase += " (after two calls: an accumulator that is replaced, not added to, looks so)"
        return phrase
    for name, values in _scalars(parts):
        for power, words in _POWERS.items():
            with np.errstate(all="ignore"):
                if close(factors, np.asarray(values) ** power):
                    return f"is {words.format(name)} times what it should be"
    return "is off by one factor for the whole array, another in each question"


def itself(parts: list[Part]) -> str:
    """Name an argument that is returned unchanged."""
    for name in _common(parts):
        if _all(parts, lambda part, name=name: close(part.found, part.arguments[name])):
            return f"is {name} itself"
    return ""


def term(parts: list[Part]) -> str:
    """Name an argument, or another part, that is missing as a term, or is an extra one."""
    for name in _common(parts):
        terms = [_broadcast(part.arguments[name], part.expected) for part in parts]
        if any(array is None for array in terms):
            continue
        factors = _factors((part.difference, array) for part, array in zip(parts, terms, strict=True))
        if not factors or not _are_equal(factors):
            continue
        if abs(factors[0] + 1) < CLOSE:
            return f"lacks the term {name}"
        if abs(factors[0] - 1) < CLOSE:
            return f"has an extra term {name}"
        return f"is off by {_number(factors[0])} times {name}"
    return ""


def factor_of_argument(parts: list[Part]) -> str:
    """Name an argument that is missing as a factor, or is an extra one."""
    for name in _common(parts):
        for is_of_rows in (False, True):  # whether it has one value for each row

            def shaped(part: Part, name: str = name, is_of_rows: bool = is_of_rows) -> Any:
                value = part.arguments[name]
                if is_of_rows:
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
    """Name an added constant."""
    values = []
    for part in parts:
        difference = part.difference
        if difference.size < 2 or not close(difference, np.full_like(difference, difference.mean())):
            return ""
        values.append(float(difference.mean()))
    if _are_equal(values):
        return f"is off by an added constant, {_number(values[0])}"
    return "is off by an added constant, another in each question"


def order(parts: list[Part]) -> str:
    """Name an order in which the right numbers are returned."""
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
    """Name a simple function of the right answer."""
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
    """Name the error of an approximation."""
    errors = []
    for part in parts:
        if part.found.shape != part.expected.shape:
            return ""
        errors.append(float(abs(part.difference).max() / max(abs(part.expected).max(), TINY)))
    if max(errors) > SMALL:
        return ""
    return (
        f"is nearly right, to {max(errors):.0e}: an approximation, single precision or a constant cut short"
    )


# Laws of where a part is off ---------------------------------------------------------------------------


def by_rows(parts: list[Part]) -> str:
    """Name the row, the first or the last, that alone is right or wrong."""
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

    The number is an argument's entry at the same index, or else the right answer's.
    """
    if any(part.found.shape != part.expected.shape or part.found.size < SIZE for part in parts):
        return ""
    by_part = [_wrong(part) for part in parts]
    if all(mask.all() for mask in by_part) or sum(int(mask.sum()) for mask in by_part) < FEWEST:
        return ""
    wrong = _flat(by_part)
    for name in _common(parts):
        arrays = [part.arguments[name] for part in parts]
        if any(np.shape(array) != part.expected.shape for array, part in zip(arrays, parts, strict=True)):
            continue
        values = _flat(arrays)
        phrase = _by_sign(wrong, values, name) or _by_threshold(wrong, values, name)
        if phrase:
            return phrase
    expected = _flat([part.expected for part in parts])
    if not np.any(expected[wrong]) and np.any(expected[~wrong]):
        return "is not zero where it should be"
    what = "the right number"
    return _by_sign(wrong, expected, what) or _by_threshold(wrong, expected, what)


def _flat(arrays: list[Any]) -> Any:
    """Return the entries of all arrays in one row."""
    return np.concatenate([np.ravel(array) for array in arrays])


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
    if any(part.expected.ndim != 2 or part.found.shape != part.expected.shape for part in parts):
        return ""
    masks = [_wrong(part) for part in parts if min(part.expected.shape) > 2]
    if not masks:
        return ""
    if all((mask.sum(1) == 1).all() for mask in masks):
        return "is wrong at one entry of each row, and right elsewhere"
    if all(((~mask).sum(1) == 1).all() for mask in masks):
        return "is right at one entry of each row only"
    return ""


def multiple_of_rows(parts: list[Part]) -> str:
    """Name a factor or an added constant that each row, or each column, has to itself."""
    if any(part.expected.ndim < 2 or part.found.shape != part.expected.shape for part in parts):
        return ""
    parts = [part for part in parts if min(part.expected.shape) > 2]
    if not parts:
        return ""
    for axis, what in ((-1, "row"), (0, "column")):

        def spread(values: Any, axis: int = axis) -> Any:
            return np.broadcast_to(values.mean(axis, keepdims=True), values.shape)

        if _all(parts, lambda part, s=spread: close(part.difference, s(part.difference), CLOSE_FIT)):
            return f"is off by an added constant of its own in each {what}: a mean or a sum along the {what}"
        with np.errstate(all="ignore"):
            ratios = [part.found / part.expected for part in parts]
        if all(np.isfinite(ratio).all() and close(ratio, spread(ratio), CLOSE_RATIO) for ratio in ratios):
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
# Words of a docstring that may stand in a list, such as "the tokens and the labels", and name no result.
_NOT_NAMES = {"a", "all", "an", "each", "it", "its", "of", "one", "sees", "the", "what"}
_POWERS = {1: "{}", -1: "1/{}", 0.5: "√{}", -0.5: "1/√{}", 2: "{}²", -2: "1/{}²"}


# What is said --------------------------------------------------------------------------------------------


def diagnose(asked: list[Asked], probes: list[Probe], label: str = "{}") -> Sentence:
    """Say where answers are off, and by which law.

    Parameters
    ----------
    asked : list of Asked
        Enough questions that no law holds by chance.
    probes : list of Probe
        Changes of the questions, tried in order where no law of a whole part holds.
    label : str
        How to call a part, such as "the gradient of {}".

    Returns
    -------
    str
        One to three sentences, all of which hold for every question; "" if no answer is wrong.
    """
    asked = [question for question in asked if any(map(_is_something, question.expected.values()))]
    names = list(asked[0].expected) if asked else []
    wrong = [name for name in names if any(not _same(question, name) for question in asked)]
    has_other_parts = any(set(question.found) != set(names) for question in asked)
    if not wrong or has_other_parts:
        return ""
    # What says most: a law of a whole part.
    phrases = _whole_phrases(asked, wrong)
    explained = {name for name, phrase in phrases if not phrase.startswith(NOT_FINITE)}
    unexplained = [name for name in wrong if name not in explained]
    # Next: under which condition the answer is wrong, and where in the part.
    conditions = _by_variant(asked, wrong)
    if unexplained and not conditions:
        conditions = _by_probe([probe for probe in probes if probe.tells_much], wrong)
    phrases += _where_phrases(asked, unexplained)
    if unexplained and not (conditions or phrases):
        conditions = _by_probe([probe for probe in probes if not probe.tells_much], wrong)
    # What says least: that a part is wrong, or right.
    described = {name for name, _ in phrases}
    undescribed = [name for name in unexplained if name not in described]
    sentences = _sentences_of(phrases, label)
    if undescribed and (len(names) > 1 or not (sentences or conditions)):
        sentences.append(_sentence(undescribed, f"is wrong{_share(asked, undescribed)}", label))
    right = [name for name in names if name not in wrong]
    if right:
        sentences.append(_sentence(right, "is right", label))
    return " ".join([*sentences, *conditions, *_smallest(asked, names)])


def _whole_phrases(asked: list[Asked], names: list[str]) -> list[tuple[str, str]]:
    """Return the parts that a law of a whole part describes, each with the law's phrase."""
    exchanged = _exchanged(asked, names)
    phrases = [(name, exchanged.get(name) or _first(WHOLE, _parts(asked, name))) for name in names]
    return [(name, phrase) for name, phrase in phrases if phrase]


def _where_phrases(asked: list[Asked], names: list[str]) -> list[tuple[str, str]]:
    """Return the parts of which it is known where they are wrong, each with a phrase that says where."""
    phrases = [(name, _first(WHERE, _parts(asked, name)) or _items(asked, name)) for name in names]
    return [(name, phrase) for name, phrase in phrases if phrase]


def _sentences_of(phrases: list[tuple[str, str]], label: str) -> list[Sentence]:
    """Write a sentence for each phrase, about all parts that it describes."""
    by_phrase: dict[str, list[str]] = {}
    for name, phrase in phrases:
        by_phrase.setdefault(phrase, []).append(name)
    return [_sentence(names, phrase, label) for phrase, names in by_phrase.items()]


def _sentence(names: list[str], phrase: str, label: str) -> Sentence:
    """Write what a phrase says of some parts."""
    return f"{_upper(_listed(names, label))} {_plural(phrase, len(names))}."


def parts_of(answer: Any, names: list[str]) -> dict[str, Any]:
    """Split an answer into parts that have names.

    Parameters
    ----------
    answer : Any
        A tuple's parts are its members, a dictionary's its values; anything else is a single part.
    names : list of str
        Names of a tuple's members; used only if there are as many.

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
    """Read the names of a function's results from its docstring.

    Parameters
    ----------
    docstring : str
        Such as "Return dq, dk and dv, each (n,D)."; None: there is none.

    Returns
    -------
    list of str
        The names before and after the first "and" that joins a list; empty if they are not names.
    """
    without_shapes = re.sub(r"\([^()]*\)", "", docstring or "")
    tokens = re.findall(r"\w+|[^\w\s]", without_shapes)
    for index, token in enumerate(tokens[:-1]):
        if token != "and" or not tokens[index + 1].isidentifier():
            continue
        names = _listed_before(tokens[:index])
        if names:
            names.append(tokens[index + 1])
            return [] if set(names) & _NOT_NAMES else names
    return []


def _listed_before(tokens: list[str]) -> list[str]:
    """Return the words at the end of a list of tokens that are separated by commas."""
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
    """List the arguments that can be set to 0, 1, True, False or None in all questions.

    Parameters
    ----------
    function : function
        The function that is asked. Its parameters with a default of None can be set to None.
    arguments : dict
        Arguments of one question by name.
    ask : function
        Takes a change of arguments, and asks all questions with it.

    Yields
    ------
    Probe
    """
    optional = {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is None
    }
    for path, kind in sorted(_settable(arguments), key=lambda settable: _KINDS.index(settable[1])):
        for value in (False, True) if kind == _BOOL else (1.0, 0.0):
            words = f"is {value}" if kind == _BOOL else f"is {value:g}"
            if kind in (_ARRAY, _TABLE):
                words += " everywhere"
            phrase = f"where {'.'.join(path)} {words}"
            change = _setting(path, value)
            yield Probe(phrase, lambda change=change: ask(change), tells_much=kind != _TABLE)
    for name in optional & set(arguments):
        yield Probe(f"where {name} is None", lambda name=name: ask(_setting((name,), None)))


# Kinds of values that a probe can set, in the order in which they are tried: first what changes least.
_BOOL, _NUMBER, _ARRAY, _TABLE = _KINDS = ("bool", "number", "array", "table")


def _settable(arguments: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """List the values that a probe can set, each by its path and kind.

    A path is the name of an argument, followed by that of a field or a key where the value is inside one.
    """
    for name, argument in arguments.items():
        values: dict[tuple[str, ...], Any] = {(name,): argument}
        if fields := _fields_of(argument):
            values = {(name, field): getattr(argument, field) for field in fields}
        elif isinstance(argument, dict):
            values = {(name, key): entry for key, entry in argument.items() if isinstance(key, str)}
        for path, value in values.items():
            if isinstance(value, bool):
                yield path, _BOOL
            elif isinstance(value, float):
                yield path, _NUMBER
            elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
                yield path, _ARRAY if value.ndim < 2 else _TABLE


def _fields_of(value: Any) -> list[str]:
    """Return the names of the fields of a named tuple or a dataclass; [] for anything else."""
    return list(getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None) or ())


def _setting(path: tuple[str, ...], value: Any) -> Callable[[Arrays], Arrays]:
    """Make a change of arguments that sets one of them, or a field or a key of one."""

    def change(arguments: Arrays) -> Arrays:
        name, *rest = path
        argument = arguments[name]
        if not rest:
            return arguments | {name: _like(argument, value)}
        (field,) = rest
        if isinstance(argument, dict):
            return arguments | {name: argument | {field: _like(argument[field], value)}}
        new = {field: _like(getattr(argument, field), value)}
        if hasattr(argument, "_replace"):
            return arguments | {name: argument._replace(**new)}
        return arguments | {name: dataclasses.replace(argument, **new)}

    return change


def _like(old: Any, value: Any) -> Any:
    """Return a value in the form of the old one: everywhere in an array, where it is one."""
    if isinstance(old, np.ndarray) and value is not None:
        return np.full_like(old, value)
    return value


def _by_probe(probes: list[Probe], wrong: list[str]) -> list[str]:
    """Return a sentence about the first probe that makes all wrong parts right."""
    for probe in probes:
        try:
            asked = probe.ask()
        except Exception:  # the functions do not take such arguments
            continue
        if not asked or any(set(question.found) != set(question.expected) for question in asked):
            continue
        is_right = all(_same(question, name) for question in asked for name in wrong)
        if is_right and _tells(asked, wrong):
            return [f"It is right {probe.phrase}."]
    return []


def _tells(asked: list[Asked], wrong: list[str]) -> bool:
    """Tell whether right answers vary: nothing is learnt from a probe after which all have to be zero."""
    for name in wrong:
        if all(_follows(question, name) for question in asked):
            return False
        values = [np.asarray(question.expected[name]) for question in asked]
        values = [value for value in values if value.size]
        if all(value.dtype.kind in "fciub" for value in values):
            flat = _flat(values) if values else np.zeros(1)
            if not np.isfinite(flat).all() or np.ptp(flat) == 0:
                return False
    return True


def _follows(question: Asked, name: str) -> bool:
    """Tell whether the right answer is only a multiple of an argument, as where an update changes nothing."""
    right = question.expected[name]
    if not isinstance(right, np.ndarray):
        return False
    for value in _numbers(question.arguments).values():
        array = _broadcast(value, right)
        if array is not None and (_factor(right, array) or not np.any(right)):
            return True
    return False


def _by_variant(asked: list[Asked], wrong: list[str]) -> list[str]:
    """Return a sentence if the variant of a question decides whether the answer is wrong."""
    failed = [not all(_same(question, name) for name in wrong) for question in asked]
    words = sorted({word for question in asked for word in _words(question.variant)})
    for word in words:
        has_word = [word in _words(question.variant) for question in asked]
        if failed == has_word and not all(has_word):
            return [f"It is right without “{word}”, and wrong with it."]
        if failed == [not has for has in has_word] and any(has_word):
            return [f"It is right with “{word}” only."]
    if not words or all(failed):
        return []
    variants = [question.variant or "plain" for question in asked]
    failing = {variant for variant, is_wrong in zip(variants, failed, strict=True) if is_wrong}
    passing = sorted(set(variants) - failing)
    return [f"It is right in these cases only: {', '.join(passing)}."] if passing else []


_TOGETHER = ("some rows", "large eps", "far apart", "one row", "no rows")


def _words(variant: str) -> set[str]:
    """Split a variant into its words; some words belong together."""
    together = {phrase for phrase in _TOGETHER if phrase in variant}
    for phrase in together:
        variant = variant.replace(phrase, "")
    return together | set(variant.split())


def _exchanged(asked: list[Asked], wrong: list[str]) -> dict[str, str]:
    """Return a phrase for each part that has the right numbers of another."""
    phrases = {}
    for name in wrong:
        for other in asked[0].expected:
            if other == name:
                continue
            if all(_alike(question.found[name], question.expected[other]) for question in asked):
                phrases[name] = f"is what {other} should be"
    return phrases


def _items(asked: list[Asked], name: str) -> str:
    """Say what is missing from a list or a text, or what it has in addition."""
    failed = [question for question in asked if not _same(question, name)]
    pairs = [(question.found[name], question.expected[name]) for question in failed]
    if not all(isinstance(value, list | tuple | str) for pair in pairs for value in pair):
        return ""
    entries = [(sorted(map(repr, found)), sorted(map(repr, expected))) for found, expected in pairs]
    if all(found == expected for found, expected in entries):
        return "has the right entries in another order"
    if all(_within(found, expected) for found, expected in entries):
        return "lacks entries, and has none that is wrong"
    if all(_within(expected, found) for found, expected in entries):
        return "has extra entries, and lacks none"
    return ""


def _is_something(value: Any) -> bool:
    """Tell whether a right answer has entries: an array without any can't be wrong."""
    return not isinstance(value, np.ndarray) or bool(value.size)


def _within(few: list[str], many: list[str]) -> bool:
    """Tell whether one list has every entry of another at least as often."""
    return all(few.count(entry) <= many.count(entry) for entry in set(few))


def _smallest(asked: list[Asked], names: list[str]) -> list[str]:
    """Return a sentence about the shortest wrong answer, if it can be printed whole.

    Where all arguments are arrays their numbers are random, and tell a reader nothing.
    """
    sentences = []
    for question in asked:
        arguments = question.arguments
        if all(_same(question, name) for name in names):
            continue
        if all(isinstance(value, np.ndarray) and value.ndim for value in arguments.values()):
            continue
        inputs = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        found, expected = _printed(question.found), _printed(question.expected)
        if max(map(len, (inputs, found, expected))) <= SHORT and "\n" not in inputs:
            sentences.append(f"Asked with {inputs}, it says {found}; expected {expected}.")
    return sorted(sentences, key=len)[:1]


def _printed(parts: dict[str, Any]) -> str:
    """Write an answer as Python would, from its parts."""
    values = tuple(parts.values())
    return repr(values[0] if len(values) == 1 else values)


def _share(asked: list[Asked], names: list[str]) -> str:
    """Say in how many entries some parts are wrong; "" if they can't be compared entry by entry."""
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
    """Return a part in each question in which it is wrong; nothing if it can't be compared as numbers."""
    parts = []
    for question in asked:
        if _same(question, name):
            continue
        try:
            found, expected = np.asarray(question.found[name]), np.asarray(question.expected[name])
        except ValueError:  # lists of different lengths
            return []
        if found.dtype.kind not in "fciu" or expected.dtype.kind not in "fciu":
            return []
        others = {f"the right {key}": value for key, value in question.expected.items() if key != name}
        arguments = _numbers(question.arguments) | _numbers(others)
        as_float = found.astype(np.result_type(found, 0.0))
        parts.append(Part(as_float, expected * 1.0, arguments, name in question.totals))
    return parts


def _numbers(values: dict[str, Any]) -> Arrays:
    """Return the numbers and arrays among values and their fields, as arrays by name."""
    arrays = {}
    for name, value in values.items():
        inner_values = {name: value}
        if fields := _fields_of(value):
            inner_values = {f"{name}.{field}": getattr(value, field) for field in fields}
        for key, inner in inner_values.items():
            if inner is None or isinstance(inner, bool | str):
                continue
            try:
                array = np.asarray(inner)
            except ValueError:  # lists of different lengths
                continue
            if array.dtype.kind in "fiu" and array.size:
                arrays[key] = array * 1.0
    return arrays


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


def _same(question: Asked, name: str) -> bool:
    """Tell whether a part of an answer is right."""
    return name in question.found and _alike(question.found[name], question.expected[name])


def _alike(found: Any, expected: Any) -> bool:
    """Tell whether two nested values are equal except for rounding."""
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
    """Tell whether something holds for a part in all questions."""
    return all(bool(holds(part)) for part in parts)


def _factor(found: Any, expected: Any) -> float | None:
    """Return the number by which one array is a multiple of another; None if it is not."""
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
        value = _factor(found, expected)
        if value is None:
            return []
        factors.append(value)
    return factors


def _are_equal(values: list[float]) -> bool:
    """Tell whether all values are equal except for rounding."""
    return bool(np.ptp(values) <= CLOSE * abs(values[0]))


def _scalars(parts: list[Part]) -> Iterator[tuple[str, list[float]]]:
    """List the arguments that are numbers, and the sizes of the others: name, and value in each question."""
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
    """Broadcast an array to the shape of another; None for a number, and where it does not fit."""
    if np.ndim(value) == 0:
        return None
    try:
        return np.broadcast_to(value, np.shape(like))
    except ValueError:
        return None


def _wrong(part: Part) -> Any:
    """Return a mask of the entries that are wrong; NaN is wrong."""
    return ~(abs(part.difference) <= CLOSE * max(float(abs(part.expected).max()), TINY))


def _wrong_rows(parts: list[Part]) -> list[Any] | None:
    """Return for each part a mask of the rows that are wrong; None if a part has no rows to compare."""
    if any(part.expected.ndim < 1 or part.found.shape != part.expected.shape for part in parts):
        return None
    return [_wrong(part).reshape(len(part.expected), -1).any(1) for part in parts]


def _is_multiple(difference: Any, value: Any) -> bool:
    """Tell whether each row of a difference is a multiple of the value's row, plus a constant."""
    if difference.shape[-1] < 4:  # two unknowns fit shorter rows too easily
        return False
    rows, others = difference.reshape(-1, difference.shape[-1]), value.reshape(-1, value.shape[-1])
    for row, other in zip(rows, others, strict=True):
        table = np.stack([np.ones_like(other), other], 1)
        fit = table @ np.linalg.lstsq(table, row, rcond=None)[0]
        if abs(row - fit).max() > CLOSE_FIT * max(abs(row).max(), TINY):
            return False
    return True


def _number(value: float) -> str:
    """Write a number; as a fraction where that is a simple one."""
    for denominator in range(1, 13):
        numerator = value * denominator
        if abs(numerator - round(numerator)) < CLOSE and abs(numerator) < 100:
            return f"{round(numerator)}/{denominator}" if denominator > 1 else str(round(numerator))
    return f"{value:.4g}"


def _listed(names: list[str], label: str) -> str:
    """Join names with commas and "and"."""
    labelled = [name if name.startswith(("the ", "part ")) else label.format(name) for name in names]
    if len(labelled) == 1:
        return labelled[0]
    return f"{', '.join(labelled[:-1])} and {labelled[-1]}"


def _upper(text: str) -> str:
    """Capitalise the beginning of a sentence, unless it begins with a Python name."""
    return f"T{text[1:]}" if text.startswith("the ") else text


def _plural(phrase: str, count: int) -> str:
    """Put a phrase about one part in the plural."""
    if count == 1:
        return phrase
    first, _, rest = phrase.partition(" ")
    many = {"is": "are", "has": "have", "lacks": "lack"}.get(first, first)
    return f"{many} {rest}" if rest else many
