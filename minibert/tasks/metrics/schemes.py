"""Schemes of tagging: which letters stand before the type of an entity, and how entities are read from them.

    IOB     IOB1 and IOB2 (BIO)       B begins, I goes on
    IOE     IOE1 and IOE2             I goes on, E ends
    BIOES   also IOBES                B begins, I goes on, E ends, S is an entity of one word
    BILOU   also BILUO, spaCy's       B begins, I goes on, L ends, U is an entity of one word
    BMEWO   LingPipe's                B begins, M goes on, E ends, W is an entity of one word
    BMES                              B begins, M goes on, E ends, S is an entity of one word

IOB and IOE are read as the script of the CoNLL shared tasks reads them, conlleval (Tjong Kim Sang and
Veenstra, 1999), tags that contradict each other included. The others say where each entity ends: there an
entity counts only if it is whole, as in seqeval's strict mode (Nakayama 2018, "seqeval").
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import some_of

OUTSIDE = "O"
BARE = frozenset("BIESUL")  # letters that are tags of entities without a type, too
_TYPED = re.compile(r"(?s)([A-Z])-.+")  # a tag that looks like one of an entity
_ODD = re.compile(r"(?si)[a-z][-_:/].+|.+[-_:/][biesulmw]")  # one that may have been meant as such


class Scheme(NamedTuple):
    """The letters of a scheme, "" where it has none for what they stand for."""

    name: str
    begin: str
    inside: str
    end: str
    single: str

    @property
    def letters(self) -> frozenset[str]:
        """All letters of the scheme, without O."""
        return frozenset(self[1:]) - {""}

    @property
    def is_strict(self) -> bool:
        """Whether entities have to be whole: the scheme says where each begins and where it ends."""
        return bool(self.single)

    def tag_of_word(self, kind: str) -> str:
        """Return the tag of an entity that is one word."""
        return f"{self.single or self.begin or self.end}-{kind}"


IOB = Scheme("IOB", "B", "I", "", "")
SCHEMES = (  # the first one that has all letters of some tags is theirs
    IOB,
    Scheme("IOE", "", "I", "E", ""),
    Scheme("BIOES", "B", "I", "E", "S"),
    Scheme("BILOU", "B", "I", "L", "U"),
    Scheme("BMEWO", "B", "M", "E", "W"),
    Scheme("BMES", "B", "M", "E", "S"),
)
NAMES = {scheme.name: scheme for scheme in SCHEMES} | {
    **dict.fromkeys(("IOB1", "IOB2", "BIO", "BIO1", "BIO2"), SCHEMES[0]),
    **dict.fromkeys(("IOE1", "IOE2"), SCHEMES[1]),
    **dict.fromkeys(("IOBES", "BIESO", "IOBSE"), SCHEMES[2]),
    **dict.fromkeys(("BILUO", "IOBLU"), SCHEMES[3]),
    **dict.fromkeys(("BMESO", "BMOES"), SCHEMES[5]),
}


class Chunk(NamedTuple):
    """The words from `start` up to `end`, without it, and what they are: LOC, NP, or "" where no tag says."""

    kind: str
    start: int
    end: int


def scheme_named(name: str) -> Scheme:
    """Return the scheme of a name; raise InputError for one that is not known.

    Examples
    --------
    >>> scheme_named("bilou").letters == scheme_named("BILUO").letters == {"B", "I", "L", "U"}
    True
    """
    if (found := NAMES.get(name.upper())) is None:
        raise InputError(f"scheme={name!r} is not known; choose from {', '.join(NAMES)}.")
    return found


def letter_of(tag: str) -> str:
    """Return the letter that a tag has in a scheme; "" for one that is outside all entities."""
    letter, hyphen, kind = tag.partition("-")
    if letter == OUTSIDE or not (kind or letter in BARE):
        return ""
    return letter


def kind_of(tag: str) -> str:
    """Return the type of an entity in its tag: what stands behind the first hyphen."""
    return tag.partition("-")[2]


def scheme_of(sentences: Iterable[Sequence[str]], other: Scheme | None = None) -> Scheme:
    """Return the scheme of the tags of some sentences.

    Parameters
    ----------
    sentences : sequences of tags; a scheme is told by the letters of all of them together.
    other : a scheme that counts where it has all their letters: that of the gold tags for predicted ones.

    Raises
    ------
    InputError
        When no scheme has all their letters.
    """
    tags = {tag for sentence in sentences for tag in sentence}
    letters = {letter_of(tag) for tag in tags} - {""}
    for scheme in (*filter(None, [other]), *SCHEMES):
        if letters <= scheme.letters:
            return scheme
    known = frozenset().union(*(scheme.letters for scheme in SCHEMES))
    odd = sorted(tag for tag in tags if letter_of(tag) and letter_of(tag) not in known)
    examples = odd or sorted({letter_of(tag): tag for tag in sorted(tags) if letter_of(tag)}.values())
    raise InputError(f"{unknown_scheme(examples)}; give tags of one scheme.")


def unknown_scheme(tags: Sequence[str]) -> str:
    """Say of tags that they are of no scheme, as the beginning of a sentence."""
    known = [f"{scheme.name} ({' '.join(filter(None, (OUTSIDE, *scheme[1:])))})" for scheme in SCHEMES]
    return f"The tags {some_of(list(tags))} follow no scheme that is known: {', '.join(known)}"


def is_typed(tag: str) -> bool:
    """Tell whether a tag looks like one of an entity: O, or a capital letter, a hyphen and a type."""
    return tag == OUTSIDE or _TYPED.fullmatch(tag) is not None


def entity_scheme(tags: Iterable[str]) -> Scheme | None:
    """Return the scheme of tags that are all of entities; None where one is not, or they are of no scheme."""
    if not (tags := set(tags)) or not all(map(is_typed, tags)):
        return None
    try:
        return scheme_of([list(tags)])
    except InputError:
        return None


def looks_odd(tags: Iterable[str]) -> list[str]:
    """Return the tags that may be meant as those of entities, but are of no scheme; none where all is well.

    Tags such as `B_PER`, `b-PER`, `PER-B` and `X-PER` are, where O is a tag as well: without it, they may be
    parts of speech.
    """
    if OUTSIDE not in (tags := set(tags)) or entity_scheme(tags) is not None:
        return []
    others = sorted(tags - {OUTSIDE})
    if not all(_ODD.fullmatch(tag) for tag in others):
        return []
    return others


def most_common_scheme(tags: Counter[str]) -> Scheme:
    """Return the scheme that has most of some tags, which are counted; IOB where none has any.

    Where tags of entities stand beside other ones, what is of no scheme changes nothing for the rest.
    """
    letters: Counter[str] = Counter()
    for tag, count in tags.items():
        if tag != OUTSIDE and is_typed(tag):
            letters[letter_of(tag)] += count
    return max(SCHEMES, key=lambda scheme: sum(letters[letter] for letter in scheme.letters))


def read_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Return the entities of a sentence whose tags are of that scheme."""
    return _whole_chunks(tags, scheme) if scheme.is_strict else _conll_chunks(tags)


def _whole_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Read a single word, or from a beginning over what goes on to an end, all of one type."""
    found: list[Chunk] = []
    start: int | None = None  # of the entity that has begun and not ended
    for place, tag in enumerate(tags):
        letter, kind = letter_of(tag), kind_of(tag)
        goes_on = start is not None and kind == kind_of(tags[start])
        if letter == scheme.single:
            found.append(Chunk(kind, place, place + 1))
            start = None
        elif letter == scheme.begin:
            start = place
        elif letter == scheme.end and goes_on and start is not None:
            found.append(Chunk(kind, start, place + 1))
            start = None
        elif letter != scheme.inside or not goes_on:
            start = None
    return found


def _conll_chunks(tags: Sequence[str]) -> list[Chunk]:
    """Read as conlleval does: an entity ends before what is outside, of another type, or begins one."""
    found: list[Chunk] = []
    start = 0
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not letter_of(before):
            start = place
        elif _is_border(before, tag) or kind_of(before) != kind_of(tag):
            found.append(Chunk(kind_of(before), start, place))
            start = place
    return found


def _is_border(before: str, tag: str) -> bool:
    """Tell whether the letters of two tags part them."""
    return letter_of(tag) in ("", "B") or letter_of(before) == "E"
