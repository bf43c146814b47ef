"""Say where a wrong answer is off, by which law (`laws`), and under which condition it is right.

An answer has parts, such as the gradients of a backward. `diagnose` compares them with the right ones in many
questions, and writes sentences that hold for all of these, unless they say for which ones. It asks three
things: what is wrong with each part, under which condition, and which question shows it best. To find a
condition it asks all questions again with a change (`Probe`), which a judge makes with `probes_of`.
"""

import dataclasses
import inspect
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from minibert.base.terminal import listed
from minibert.course.comparing import BOUND
from minibert.course.laws import (
    FEWEST,
    NOT_FINITE,
    WHERE,
    WHOLE,
    Arrays,
    Law,
    Part,
    broadcast,
    close,
    flat,
    is_clear,
    multiple,
    wrong_entries,
)

FLOOR = 1e-15  # a difference that rounding may cause where numbers near 1 cancel
SHORT = 100  # characters of a question that is printed whole
# A docstring's verb, and the list of names behind it.
_LISTED = re.compile(r"\w+ (\w+(?: ?, \w+)*) ?,? and (\w+)")
_OBJECT = re.compile(r" at 0x[0-9a-f]+>")  # in the text of an object that Python can't write
_COMPARISONS = {"<": operator.lt, ">": operator.gt, "is": operator.eq}  # of two numbers, in words
_TOGETHER = ("some rows", "large eps", "far apart", "one row", "no rows")  # words of a variant
# Kinds of values that a probe can set, in the order in which they are tried: first what changes least.
_BOOL, _NUMBER, _ARRAY, _TABLE = _KINDS = ("bool", "number", "array", "table")
_VALUES = {_BOOL: (False, True), _NUMBER: (1.0, 0.0), _ARRAY: (1.0, 0.0), _TABLE: (1.0, 0.0)}
# What a probe is for. The phrase of a condition completes "It is right …"; a broad condition sets a whole
# table or two numbers, which leaves little to get wrong. The phrase of a mistake completes "It answers as
# if …", for the questions as they were.
CONDITION, BROAD, MISTAKE = ROLES = ("condition", "broad condition", "mistake")
Sentence = str
Change = Callable[[Arrays], Arrays]  # takes the arguments of a question, returns other ones
Write = Callable[[float], str]


class Question(NamedTuple):
    """A question, with the answer that was given and the right one, each by the names of its parts."""

    found: dict[str, Any]
    expected: dict[str, Any]
    arguments: dict[str, Any]
    variant: str = ""  # what distinguishes the question from the plain one, such as "causal dropout"
    totals: tuple[str, ...] = ()  # names of the parts that are added to an accumulator
    saved: Arrays = {}  # what a backward gets from its forward, by name

    def is_right(self, *names: str) -> bool:
        """Tell whether these parts of the answer are right."""
        return all(name in self.found and _alike(self.found[name], self.expected[name]) for name in names)


class Probe(NamedTuple):
    """A change of all questions that may make a wrong answer right."""

    phrase: str
    ask: Callable[..., list[Question]]
    role: str = CONDITION  # one of ROLES


def diagnose(questions: list[Question], probes: list[Probe], label: str = "{}") -> Sentence:
    """Say where answers are off, and by which law.

    Parameters
    ----------
    questions : list of Question
        Enough questions that no law holds by chance.
    probes : list of Probe
        Changes of the questions, tried in order where no law of a whole part holds.
    label : str, default "{}"
        How to call a part, such as "the gradient of {}".

    Returns
    -------
    str
        Sentences, each of which holds for every question unless it says for which ones, or for how many;
        "" if no answer is wrong.
    """
    questions = [question for question in questions if any(map(_has_entries, question.expected.values()))]
    names = list(questions[0].expected) if questions else []
    wrong = [name for name in names if _wrong_questions(questions, name)]
    has_other_parts = any(set(question.found) != set(names) for question in questions)
    if not wrong or has_other_parts:
        return ""
    # What says most: a law of a whole part.
    phrases = _whole_phrases(questions, wrong)
    explained = {name for name, phrase in phrases if not phrase.startswith(NOT_FINITE)}
    unexplained = [name for name in wrong if name not in explained]
    # Next: under which condition the answer is wrong, and where in the part.
    condition = _by_variant(questions, wrong)
    if not condition:
        phrases = [(name, phrase + _how_often(questions, name, phrase)) for name, phrase in phrases]
    conditions, broad, mistakes = ([probe for probe in probes if probe.role == role] for role in ROLES)
    if unexplained and not condition:
        condition = (
            _same_answer(questions, wrong)
            or _as_if(mistakes, questions, wrong)
            or _by_probe(conditions, wrong)
        )
    phrases += _where_phrases(questions, unexplained)
    if unexplained and not (condition or phrases):
        condition = _by_question(questions, wrong) or _by_probe(broad, wrong)
    # What says least: that a part is wrong, or right.
    described = {name for name, _ in phrases}
    undescribed = [name for name in unexplained if name not in described]
    sentences = _sentences_of(phrases, label)
    share = _share(questions, undescribed)
    if undescribed and (len(names) > 1 or (share and not (sentences or condition))):
        sentences.append(_sentence(undescribed, f"is wrong{share}", label))
    right = [name for name in names if name not in wrong]
    if right:
        sentences.append(_sentence(right, "is right", label))
    example = _shortest_example(questions, names) or _first_difference(questions, wrong)
    return " ".join(filter(None, [*sentences, condition, example]))


def _wrong_questions(questions: list[Question], name: str) -> list[Question]:
    """List the questions in which a part is wrong."""
    return [question for question in questions if not question.is_right(name)]


def _failures(questions: list[Question], names: list[str]) -> list[bool]:
    """Tell for each question whether one of some parts is wrong."""
    return [not question.is_right(*names) for question in questions]


def _has_entries(value: Any) -> bool:
    """Tell whether a right answer has entries: an array without any can't be wrong."""
    return not isinstance(value, np.ndarray) or bool(value.size)


def _alike(found: Any, expected: Any, floor: float = 0.0) -> bool:
    """Tell whether two nested values are equal except for rounding, or a difference below `floor`."""
    if isinstance(expected, dict):
        if not isinstance(found, dict) or set(found) != set(expected):
            return False
        return all(_alike(found[name], expected[name], floor) for name in expected)
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return False
        return all(_alike(a, b, floor) for a, b in zip(found, expected, strict=True))
    right = np.asarray(expected)
    if right.dtype.kind not in "fc":
        return bool(np.array_equal(found, expected))
    if right.dtype.kind == "f" and np.iscomplexobj(found):
        return False
    try:
        array = np.asarray(found, right.dtype)
        is_below = array.shape == right.shape and bool(np.all(abs(array - right) <= floor))
    except (TypeError, ValueError):
        return False
    return is_below or close(array, right, BOUND)


# What is wrong with a part ------------------------------------------------------------------------


def _whole_phrases(questions: list[Question], names: list[str]) -> list[tuple[str, str]]:
    """Return the parts that a law of a whole part describes, each with the law's phrase."""
    exchanged = _exchanged(questions, names)
    phrases = []
    for name in names:
        phrase = exchanged.get(name) or _first_phrase(WHOLE, _parts(questions, name))
        phrases.append((name, phrase))
    return [(name, phrase) for name, phrase in phrases if phrase]


def _where_phrases(questions: list[Question], names: list[str]) -> list[tuple[str, str]]:
    """Return the parts of which it is known where they are wrong, each with a phrase that says where."""
    phrases = []
    for name in names:
        by_law = _first_phrase(WHERE, _parts(questions, name))
        phrase = by_law or _wrong_truths(questions, name) or _wrong_items(questions, name)
        phrases.append((name, phrase))
    return [(name, phrase) for name, phrase in phrases if phrase]


def _how_often(questions: list[Question], name: str, phrase: str) -> str:
    """Say in how many questions a part is wrong, if it is right in others where it is not zero anyway."""
    right = [question for question in questions if question.is_right(name)]
    values = [np.asarray(question.expected[name], object) for question in right]
    if phrase.startswith(NOT_FINITE) or not any(np.any(value != 0) for value in values):
        return ""
    return f" in {len(questions) - len(right)} of {len(questions)} questions, and right in the others"


def _exchanged(questions: list[Question], wrong: list[str]) -> dict[str, str]:
    """Return a phrase for each part that has the right numbers of another."""
    phrases = {}
    for name in wrong:
        for other in questions[0].expected:
            if other == name:
                continue
            if all(_alike(question.found[name], question.expected[other]) for question in questions):
                phrases[name] = f"is what {other} should be"
    return phrases


def _first_phrase(laws: tuple[Law, ...], parts: list[Part]) -> str:
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


def _parts(questions: list[Question], name: str) -> list[Part]:
    """Return a part in each question in which it is wrong; nothing if it can't be compared as numbers."""
    parts = []
    for question in _wrong_questions(questions, name):
        pair = question.found[name], question.expected[name]
        if any(isinstance(value, list | tuple) for value in pair):
            return []
        found, expected = map(_as_numbers, pair)
        if found is None or expected is None:
            return []
        others = {}
        for key, value in question.expected.items():
            if key != name:
                others[f"the right {key.removeprefix('the ')}"] = value
        arguments = _arrays_of(question.arguments) | _arrays_of(question.saved) | _arrays_of(others)
        as_float = found.astype(np.result_type(found, 0.0))
        parts.append(Part(as_float, expected * 1.0, arguments, name in question.totals))
    return parts


def _as_numbers(value: Any) -> Any:
    """Return a number, an array or a list as an array of numbers; None if it is something else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "fciu" else None


def _arrays_of(values: dict[str, Any]) -> Arrays:
    """Return the numbers and arrays among values and their fields, as arrays by name."""
    arrays = {}
    for name, value in values.items():
        members = {name: value}
        if fields := _fields_of(value):
            members = {f"{name}.{field}": getattr(value, field) for field in fields}
        for key, member in members.items():
            array = _as_numbers(member)
            if array is not None and array.size:
                arrays[key] = array * 1.0
    return arrays


def _fields_of(value: Any) -> list[str]:
    """Return the names of the fields of a named tuple or a dataclass; [] for anything else."""
    return list(getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None) or ())


def _wrong_truths(questions: list[Question], name: str) -> str:
    """Say which way an array of truth values is wrong."""
    pairs = []
    for question in _wrong_questions(questions, name):
        if isinstance(question.expected[name], np.ndarray):
            pairs.append((np.asarray(question.found[name]), question.expected[name]))
    if not pairs or any(found.dtype != bool or found.shape != right.shape for found, right in pairs):
        return ""
    if any(right.dtype != bool or not right.ndim for _, right in pairs):
        return ""
    if all(np.array_equal(found, ~right) for found, right in pairs):
        return "is the opposite of what it should be"
    if all(right.ndim > 1 and np.array_equal(found.swapaxes(-1, -2), right) for found, right in pairs):
        return "is transposed"
    if all((found | ~right).all() for found, right in pairs):
        return "is True too often, and never False where it should be True"
    if all((right | ~found).all() for found, right in pairs):
        return "is True too seldom, and never where it should be False"
    return ""


def _wrong_items(questions: list[Question], name: str) -> str:
    """Say what is missing from a list, a text or a dictionary of counts, or what it has in addition."""
    pairs = [
        (question.found[name], question.expected[name]) for question in _wrong_questions(questions, name)
    ]
    values = [value for pair in pairs for value in pair]
    if all(map(_are_counts, values)):
        return _missing_counts(pairs)
    if not all(isinstance(value, list | tuple | str) for value in values):
        return ""
    what = "characters" if all(isinstance(value, str) for value in values) else "entries"
    counts = [(Counter(map(repr, found)), Counter(map(repr, right))) for found, right in pairs]
    if all(found == right for found, right in counts):
        return f"has the right {what} in another order"
    if all(found <= right for found, right in counts):
        return f"lacks {what}, and has none that is wrong"
    if all(found >= right for found, right in counts):
        return f"has extra {what}, and lacks none"
    return ""


def _are_counts(value: Any) -> bool:
    """Tell whether a value is a dictionary of numbers."""
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _missing_counts(pairs: list[tuple[dict[Any, Any], dict[Any, Any]]]) -> str:
    """Say whether all counts that are wrong are too small, or all too large."""
    counts = [(found.get(key, 0), right.get(key, 0)) for found, right in pairs for key in found | right]
    if all(found <= right for found, right in counts):
        return "has entries that are missing or too small, and none that is too large"
    if all(found >= right for found, right in counts):
        return "has entries that are extra or too large, and none that is too small"
    return ""


def _is_number(value: Any) -> bool:
    """Tell whether a value is a whole or a real number, and not a truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _share(questions: list[Question], names: list[str]) -> str:
    """Say in how many entries of all questions some parts are wrong; "" if the entries can't be compared."""
    parts = [part for name in names for part in _parts(questions, name)]
    if not parts or any(part.found.shape != part.expected.shape for part in parts):
        return ""
    masks = [wrong_entries(part) | ~is_clear(part) for part in parts]
    wrong = sum(int(mask.sum()) for mask in masks)
    sizes = [np.size(question.expected[name]) for name in names for question in questions]
    if max(sizes) == 1:
        return "" if wrong == len(sizes) else f" in {wrong} of {len(sizes)} questions"
    if wrong == sum(sizes):
        return " in every entry"
    pairs = zip(masks, parts, strict=True)
    are_nonzero = all(np.array_equal(mask, part.expected != 0) for mask, part in pairs)
    if are_nonzero and len(parts) == len(sizes):
        return " in every entry that is not zero"
    return f" in {wrong} of {sum(sizes)} entries"


# Under which condition an answer is wrong ---------------------------------------------------------


def _by_variant(questions: list[Question], wrong: list[str]) -> Sentence:
    """Say whether the variant of a question decides if the answer is wrong."""
    failed = _failures(questions, wrong)
    words = sorted({word for question in questions for word in _words(question.variant)})
    for word in words:
        has_word = [word in _words(question.variant) for question in questions]
        if failed == has_word and not all(has_word):
            return f"It is right without “{word}”, and wrong with it."
        if failed == [not has for has in has_word] and any(has_word):
            return f"It is right with “{word}” only."
    if not words or all(failed):
        return ""
    variants = [question.variant or "plain" for question in questions]
    failing = {variant for variant, is_wrong in zip(variants, failed, strict=True) if is_wrong}
    passing = sorted(set(variants) - failing)
    return f"It is right in these cases only: {', '.join(passing)}." if passing else ""


def _words(variant: str) -> set[str]:
    """Split a variant into its words; some words belong together."""
    together = {phrase for phrase in _TOGETHER if phrase in variant}
    for phrase in together:
        variant = variant.replace(phrase, "")
    return together | set(variant.split())


def _same_answer(questions: list[Question], wrong: list[str]) -> Sentence:
    """Say whether every question has the same answer, although the right ones differ."""
    first, *others = questions
    if len(others) < FEWEST:
        return ""
    for name in wrong:
        is_constant = all(_alike(question.found[name], first.found[name]) for question in others)
        varies = any(not _alike(question.expected[name], first.expected[name]) for question in others)
        if not is_constant or not varies:
            return ""
    text = _printed(first.found)
    return f"It gives the same answer, {text}, to every question." if len(text) <= SHORT else ""


def _as_if(probes: list[Probe], questions: list[Question], wrong: list[str]) -> Sentence:
    """Name the first change of the questions that makes right what was answered."""
    failed = [index for index, has_failed in enumerate(_failures(questions, wrong)) if has_failed]
    if len(failed) < FEWEST:
        return ""
    for probe in probes:
        changed = _questions_of(probe)
        if len(changed) != len(questions):
            continue
        answered = [changed[index]._replace(found=questions[index].found) for index in failed]
        if not _have_same_parts(answered):
            continue
        pairs = [(question.found[name], question.expected[name]) for question in answered for name in wrong]
        if all(_alike(*pair, floor=FLOOR) for pair in pairs) and _tells(answered, wrong):
            return f"It answers as if {probe.phrase}."
    return ""


def _by_probe(probes: list[Probe], wrong: list[str]) -> Sentence:
    """Name the first probe that makes all wrong parts right."""
    for probe in probes:
        questions = _questions_of(probe)
        if not questions or not _have_same_parts(questions):
            continue
        if not any(_failures(questions, wrong)) and _tells(questions, wrong):
            return f"It is right {probe.phrase}."
    return ""


def _questions_of(probe: Probe) -> list[Question]:
    """Ask the questions of a probe; none where the functions do not take such arguments."""
    try:
        return probe.ask()
    except Exception:
        return []


def _have_same_parts(questions: list[Question]) -> bool:
    """Tell whether every answer has the parts that it should have, and no other ones."""
    return all(set(question.found) == set(question.expected) for question in questions)


def _tells(questions: list[Question], wrong: list[str]) -> bool:
    """Tell whether right answers vary: nothing is learnt from a probe after which all have to be zero."""
    for name in wrong:
        if all(_follows(question, name) for question in questions):
            return False
        values = [np.asarray(question.expected[name]) for question in questions]
        values = [value for value in values if value.size]
        if all(value.dtype.kind in "fciub" for value in values):
            numbers = flat(values) if values else np.zeros(1)
            if not np.isfinite(numbers).all() or np.ptp(numbers) == 0:
                return False
    return True


def _follows(question: Question, name: str) -> bool:
    """Tell whether the right answer is only a multiple of an argument, as where an update changes nothing."""
    right = question.expected[name]
    if not isinstance(right, np.ndarray):
        return False
    for value in _arrays_of(question.arguments).values():
        array = broadcast(value, right)
        if array is not None and (multiple(right, array) or not np.any(right)):
            return True
    return False


def _by_question(questions: list[Question], wrong: list[str]) -> Sentence:
    """Say whether two values of a question, or one of its words, decide if it goes wrong."""
    failed = _failures(questions, wrong)
    if min(sum(failed), len(failed) - sum(failed)) < FEWEST:
        return ""
    for words, holds in _conditions(questions):
        if holds == failed:
            return f"It is wrong where {words}, and right elsewhere."
    return ""


def _conditions(questions: list[Question]) -> Iterator[tuple[str, list[bool]]]:
    """List conditions on the arguments of a question, and tell in which questions each holds."""
    arguments = {}
    for name in questions[0].arguments:
        if all(name in question.arguments for question in questions):
            arguments[name] = [question.arguments[name] for question in questions]
    for name, values in arguments.items():
        if all(isinstance(value, str | bool) for value in values):
            for choice in sorted(set(values)):
                holds = [value == choice for value in values]
                yield f"{name} is {choice!r}", holds
        if all(isinstance(value, np.ndarray) and value.ndim == 1 for value in values):
            holds = [len(np.unique(value)) < len(value) for value in values]
            yield f"{name} has equal entries", holds
    numbers = {name: values for name, values in arguments.items() if all(map(_is_number, values))}
    for one, other in combinations(numbers, 2):
        for words, compare in _COMPARISONS.items():
            holds = list(map(compare, numbers[one], numbers[other]))
            yield f"{one} {words} {other}", holds
    for name, values in numbers.items():
        holds = [value == 0 for value in values]
        yield f"{name} is 0", holds


# An example ---------------------------------------------------------------------------------------


def _shortest_example(questions: list[Question], names: list[str]) -> Sentence:
    """Show the shortest wrong answer, if it can be printed whole.

    Where all arguments are arrays their numbers are random, and tell a reader nothing.
    """
    sentences = []
    for question in questions:
        arguments = question.arguments
        are_random = all(isinstance(value, np.ndarray) and value.ndim for value in arguments.values())
        if are_random or question.is_right(*names):
            continue
        inputs = ", ".join(f"{name}={_written(value)}" for name, value in arguments.items())
        found, expected = _written_apart(question)
        is_readable = "\n" not in inputs and not _OBJECT.search(inputs)
        is_short = max(map(len, (inputs, found, expected))) <= SHORT
        if is_readable and is_short and found != expected:
            sentences.append(f"Asked with {inputs}, it says {found}; expected {expected}.")
    return min(sentences, key=len, default="")


def _written_apart(question: Question) -> tuple[str, str]:
    """Write an answer and the right one: with six digits, or with all if six do not tell them apart."""
    found, expected = _printed(question.found), _printed(question.expected)
    if found == expected:
        return _printed(question.found, repr), _printed(question.expected, repr)
    return found, expected


def _first_difference(questions: list[Question], wrong: list[str]) -> Sentence:
    """Show the first wrong entry of a list or a text."""
    for name in wrong:
        for question in questions:
            found, expected = question.found[name], question.expected[name]
            if isinstance(expected, list | tuple | str) and not _alike(found, expected):
                text = _first_wrong(found, expected, name.removeprefix("the "))
                return f"In one question, {text}." if len(text) <= SHORT else ""
    return ""


def _first_wrong(found: Any, expected: Any, place: str) -> str:
    """Say what the first wrong entry of a nested value is, and what it should be."""
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        for index, (entry, right) in enumerate(zip(found, expected, strict=False)):
            if not _alike(entry, right):
                return _first_wrong(entry, right, f"{place}[{index}]")
        if len(found) < len(expected):
            return f"{place}[{len(found)}] is missing; expected {expected[len(found)]!r}"
        return f"{place}[{len(expected)}] is {found[len(expected)]!r}; expected nothing more"
    return f"{place} is {found!r}; expected {expected!r}"


def _six_digits(number: float) -> str:
    """Write a real number with six digits."""
    return f"{number:.6g}"


def _printed(parts: dict[str, Any], number: Write = _six_digits) -> str:
    """Write an answer as Python would, from its parts; `number` writes a real number."""
    values = tuple(parts.values())
    return _written(values[0] if len(values) == 1 else values, number)


def _written(value: Any, number: Write = _six_digits) -> str:
    """Write a value as Python would, but an array as a list; `number` writes a real number."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return number(value)
    if type(value) is list:
        return f"[{', '.join(_written(inner, number) for inner in value)}]"
    if type(value) is tuple:
        comma = "," if len(value) == 1 else ""
        return f"({', '.join(_written(inner, number) for inner in value)}{comma})"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_written(inner, number)}' for key, inner in value.items())}}}"
    return repr(value)


# Sentences ----------------------------------------------------------------------------------------


def _sentences_of(phrases: list[tuple[str, str]], label: str) -> list[Sentence]:
    """Write a sentence for each phrase, about all parts that it describes."""
    by_phrase: dict[str, list[str]] = {}
    for name, phrase in phrases:
        by_phrase.setdefault(phrase, []).append(name)
    sentences = []
    for phrase, names in by_phrase.items():
        sentences.append(_sentence(names, phrase, label))
    return sentences


def _sentence(names: list[str], phrase: str, label: str) -> Sentence:
    """Write what a phrase says of some parts."""
    has_label = ("the ", "answer[")  # such names stand for themselves
    labelled = [name if name.startswith(has_label) else label.format(name) for name in names]
    subject = listed(labelled, "and")
    if subject.startswith("the "):  # and not with a Python name
        subject = f"T{subject[1:]}"
    return f"{subject} {_plural(phrase, len(names))}."


def _plural(phrase: str, count: int) -> str:
    """Put a phrase about one part in the plural."""
    if count == 1:
        return phrase
    first, _, rest = phrase.partition(" ")
    many = {"is": "are", "has": "have", "lacks": "lack"}.get(first, first)
    rest = rest.replace("what it should be", "what they should be")
    return f"{many} {rest}" if rest else many


# Parts and their names ----------------------------------------------------------------------------


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
            names = [f"answer[{index}]" for index in range(len(answer))]
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
        The names that a list behind the first word joins with "and"; empty if no such list is there.
    """
    without_shapes = re.sub(r"\([^()]*\)", "", docstring or "")
    names = _LISTED.match(" ".join(without_shapes.split()))
    return re.findall(r"\w+", names[1]) + [names[2]] if names else []


# Changes of the questions -------------------------------------------------------------------------


def probes_of(
    function: Any, arguments: dict[str, Any], ask: Callable[[Change], list[Question]]
) -> Iterator[Probe]:
    """List changes of the arguments, in all questions, that may explain a wrong answer.

    First an argument, or a field or an entry of one, is set to 0, 1, True, False or None, then a pair of
    numbers to 1 or 0. Then come mistakes: a whole number is off by one, a number has the other sign, an array
    has a row or a column of zeros, or is reversed or transposed, or two arguments are exchanged.

    Parameters
    ----------
    function : function
        The function that answers. Its parameters with a default of None can be set to None.
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
    settable = sorted(_settable(arguments), key=lambda path_and_kind: _KINDS.index(path_and_kind[1]))
    for path, kind in settable:
        name = ".".join(path)
        changed = {value: cache(partial(ask, _setting(path, value))) for value in _VALUES[kind]}
        for value, questions in changed.items():
            role = BROAD if kind == _TABLE else CONDITION
            yield Probe(f"where {name} is {_worded(value, kind)}", questions, role)
        for value in sorted(changed):
            yield Probe(f"{name} were {_worded(value, kind)}", changed[value], MISTAKE)
    for name in optional & set(arguments):
        yield Probe(f"where {name} is None", partial(ask, _setting((name,), None)))
    numbers = [path for path, kind in settable if kind == _NUMBER]
    for one, other in combinations(numbers, 2):
        for value in _VALUES[_NUMBER]:
            changes = _setting(one, value), _setting(other, value)
            words = f"where {'.'.join(one)} and {'.'.join(other)} are {value:g}"
            yield Probe(words, partial(ask, _both(*changes)), BROAD)
    for words, change in _mistaken(arguments):
        yield Probe(words, partial(ask, change), MISTAKE)


def _worded(value: Any, kind: str) -> str:
    """Write a value that a probe sets."""
    if kind == _BOOL:
        return str(value)
    return f"{value:g} everywhere" if kind in (_ARRAY, _TABLE) else f"{value:g}"


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
            elif isinstance(value, list) and value and all(map(_is_number, value)):
                yield path, _ARRAY


def _setting(path: tuple[str, ...], value: Any) -> Change:
    """Make a change of arguments that sets one of them, or a field or a key of one."""

    def change(arguments: Arrays) -> Arrays:
        name, *rest = path
        argument = arguments[name]
        if not rest:
            return arguments | {name: _filled_like(argument, value)}
        (field,) = rest
        if isinstance(argument, dict):
            return arguments | {name: argument | {field: _filled_like(argument[field], value)}}
        new = {field: _filled_like(getattr(argument, field), value)}
        if hasattr(argument, "_replace"):
            return arguments | {name: argument._replace(**new)}
        return arguments | {name: dataclasses.replace(argument, **new)}

    return change


def _filled_like(old: Any, value: Any) -> Any:
    """Return a value in the form of the old one: everywhere in an array, where it is one."""
    if isinstance(old, np.ndarray) and value is not None:
        return np.full_like(old, value)
    if isinstance(old, list):
        return [type(number)(value) for number in old]
    return value


def _both(one: Change, other: Change) -> Change:
    """Make a change of arguments of two changes."""
    return lambda arguments: other(one(arguments))


def _mistaken(arguments: Arrays) -> Iterator[tuple[str, Change]]:
    """List ways to mistake the arguments for others, each with words that complete "as if"."""
    for name, value in arguments.items():
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            yield f"{name} were one less", _changing(name, lambda number: number - 1)
            yield f"{name} were one more", _changing(name, lambda number: number + 1)
        if _is_number(value):
            yield f"{name} had the other sign", _changing(name, lambda number: -number)
        if isinstance(value, np.ndarray) and value.ndim:
            yield from _mistaken_array(name, value)
    for one, other in combinations(arguments, 2):
        if _are_exchangeable(arguments[one], arguments[other]):
            yield f"{one} and {other} were exchanged", _exchanging(one, other)


def _mistaken_array(name: str, value: Any) -> Iterator[tuple[str, Change]]:
    """List ways to mistake an array for another."""
    if value.dtype.kind in "fc":
        for where, index in {"first": 0, "last": -1}.items():
            entry = "entry" if value.ndim == 1 else "row"
            change = partial(_without, axis=0, index=index)
            yield f"the {where} {entry} of {name} were 0", _changing(name, change)
            if value.ndim > 1:
                change = partial(_without, axis=-1, index=index)
                yield f"the {where} column of {name} were 0", _changing(name, change)
    yield f"{name} were in the opposite order", _changing(name, partial(np.flip, axis=0))
    if value.ndim > 1:
        yield f"the columns of {name} were in the opposite order", _changing(name, partial(np.flip, axis=-1))
        if value.shape[-1] == value.shape[-2]:
            yield f"{name} were transposed", _changing(name, partial(np.swapaxes, axis1=-1, axis2=-2))


def _without(array: Any, axis: int, index: int) -> Any:
    """Copy an array, with zeros in place of a row or a column."""
    result = np.array(array)
    np.moveaxis(result, axis, 0)[index] = 0
    return result


def _changing(name: str, change: Callable[[Any], Any]) -> Change:
    """Make a change of arguments of a change of one of them."""
    return lambda arguments: arguments | {name: change(arguments[name])}


def _exchanging(one: str, other: str) -> Change:
    """Make a change of arguments that exchanges two of them."""
    return lambda arguments: arguments | {one: arguments[other], other: arguments[one]}


def _are_exchangeable(one: Any, other: Any) -> bool:
    """Tell whether two arguments might be taken for each other: arrays of one shape, or real numbers."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.dtype == other.dtype
    return isinstance(one, float) and isinstance(other, float)
