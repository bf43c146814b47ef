"""One-line faults in the C and C++ sources: where one can be and what it changes, found by tokens.

The sources are formatted by clang-format, so an operator of two operands has a space on both sides, which a
pointer, a reference or the bracket of a template does not. Comments, strings and lines of the preprocessor
stay as they are. What does not compile, or makes the same machine code, is found when it is compiled.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

SWAPPED = {
    **{
        "<": ("<=", ">="),
        "<=": ("<", ">"),
        ">": (">=", "<="),
        ">=": (">", "<"),
        "==": ("!=",),
        "!=": ("==",),
    },
    **{"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("/",), "<<": (">>",), ">>": ("<<",)},
    **{"&": ("|",), "|": ("&",), "^": ("|",), "&&": ("||",), "||": ("&&",), "min": ("max",), "max": ("min",)},
    **{
        "+=": ("-=",),
        "-=": ("+=",),
        "*=": ("/=",),
        "/=": ("*=",),
        "|=": ("&=",),
        "&=": ("|=",),
        "^=": ("|=",),
    },
    **{"true": ("false",), "false": ("true",)},
}
HIDDEN = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' | ^\ *\#(?:[^\n]*\\\n)*[^\n]*"""
    r" | \bstatic_assert\(.*?\);",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
OPERATORS = (
    ("comparison", re.compile(r"(?<= )(?:<=|>=|==|!=|<|>)(?= )")),
    ("arithmetic", re.compile(r"(?<=[\w)\]] )(?:<<|>>|[-+*/%&|^])(?= [\w(~!*-])")),
    ("arithmetic", re.compile(r"(?<= )[-+*/&|^]=(?= )")),
    ("and/or", re.compile(r"(?<= )(?:&&|\|\|)(?= )")),
    ("min/max", re.compile(r"\b(?:min|max)(?=[(<])")),
    ("constant", re.compile(r"\b(?:true|false)\b")),
)
NUMBER = re.compile(r"(?<![\w.])(0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:e-?\d+)?)([uUlLfF]*)(?![\w.])")
SIGN = re.compile(r"(?<=[(=,?:\[] )-(?=[\w(])|(?<=[(\[])-(?=[\w(])|(?<=return )-(?=[\w(])|!(?=[\w(])")
BRANCH = re.compile(r"\b(?:if|while) \(")
CALL = re.compile(r"\b(?!(?:if|for|while|switch|return|sizeof|defined)\b)\w+\(")
PLACE = r"\*?[A-Za-z_]\w*(?:(?:\.|->)\w+|\[[^\]]*\])*"
STORED = re.compile(
    rf"(?!return\b){PLACE} [-+*/&|^]?=(?!=).*;|(?:\+\+|--){PLACE};|{PLACE}(?:\+\+|--);|continue;|break;"
)
CALLED = re.compile(r"(?!return\b)[A-Za-z_][\w:.]*(?:->\w+)*(?:<[^>]*>)?\(.*\);")
DECLARED = re.compile(r"(?:const )?\w+ [*&]?\w+")  # an argument of a definition


class Edit(NamedTuple):
    """A change of some characters of a file."""

    begin: int
    end: int
    text: str
    operator: str


def masked(source: str) -> str:
    """Return the source with spaces in place of what has no faults."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


def closing(text: str, begin: int) -> int:
    """Return where the bracket at `begin` is closed; -1 where it is not, on its line."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 or text[at] == "\n":
            return at if depth == 0 else -1
    return -1


def arguments(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where the arguments between two brackets begin and end."""
    found, depth, first = [], 0, begin
    for at in range(begin, end + 1):
        if at == end or (text[at] == "," and depth == 0):
            space = len(text[first:at]) - len(text[first:at].lstrip())
            found.append((first + space, at))
            first = at + 1
        else:
            depth += (text[at] in "([{") - (text[at] in ")]}")
    return found


def condition_before(text: str, at: int) -> int:
    """Return where the condition before a question mark begins; -1 where it is not on the line."""
    depth = 0
    for here in range(at - 1, -1, -1):
        depth += (text[here] in ")]}") - (text[here] in "([{")
        begins = text.endswith((" = ", ", ", "; ", "? ", " : ", "return "), 0, here + 2)
        if text[here] == "\n":
            return -1
        if depth < 0 or (depth == 0 and begins):
            return here + 1 + len(text[here + 1 : at]) - len(text[here + 1 : at].lstrip())
    return -1


def edits(source: str) -> Iterator[Edit]:
    """Yield every change of a file."""
    text = masked(source)
    for name, pattern in OPERATORS:
        for found in pattern.finditer(text):
            for other in SWAPPED[found[0]]:
                yield Edit(found.start(), found.end(), other, name)
    for found in NUMBER.finditer(text):
        yield from _numbers(found)
    for found in SIGN.finditer(text):
        yield Edit(found.start(), found.end(), "", "not or sign")
    yield from _branches(text, source)
    yield from _orders(text, source)
    yield from _deletions(text)


def _numbers(found: re.Match[str]) -> Iterator[Edit]:
    """Yield the neighbours of a number."""
    digits, suffix = found.groups()
    if "." in digits or "e" in digits and not digits.startswith("0x"):
        yield Edit(found.start(), found.end(), f"({digits}{suffix} + 1)", "constant")
        return
    value = int(digits, 0) if digits == "0" or not digits.startswith("0") or "x" in digits else int(digits, 8)
    for other in {value + 1, abs(value - 1)}:
        yield Edit(
            found.start(), found.end(), f"{hex(other) if 'x' in digits else other}{suffix}", "constant"
        )


def _branches(text: str, source: str) -> Iterator[Edit]:
    """Yield conditions turned round, unless they are comparisons."""
    for found in BRANCH.finditer(text):
        end = closing(text, found.end() - 1)
        inside = source[found.end() : end]
        if (
            end > 0
            and not inside.startswith("!")
            and not re.fullmatch(r"[^&|]* (?:[<>]=?|[!=]=) [^&|]*", inside)
        ):
            yield Edit(found.end(), end, f"!({inside})", "other branch")
    for found in re.finditer(r" \? ", text):
        begin = condition_before(text, found.start())
        if begin >= 0:
            yield Edit(begin, found.start(), f"!({source[begin : found.start()]})", "other branch")


def _orders(text: str, source: str) -> Iterator[Edit]:
    """Yield calls with their first two arguments swapped."""
    for found in CALL.finditer(text):
        end = closing(text, found.end() - 1)
        parts = arguments(text, found.end(), end) if end > 0 else []
        if len(parts) < 2:
            continue
        (begin, middle), (second, last) = parts[:2]
        one, two = source[begin:middle], source[second:last]
        if one != two and not DECLARED.fullmatch(one) and not DECLARED.fullmatch(two):
            yield Edit(begin, last, f"{two}, {one}", "arguments swapped")


def _deletions(text: str) -> Iterator[Edit]:
    """Yield statements of one line that are left out."""
    at, before = 0, ";"
    for line in text.splitlines(keepends=True):
        words = line.strip()
        if before.endswith((";", "{", "}", ":")) and (STORED.fullmatch(words) or CALLED.fullmatch(words)):
            begin = at + line.index(words)
            yield Edit(begin, begin + len(words), ";", "statement deleted")
        at, before = at + len(line), words or before
