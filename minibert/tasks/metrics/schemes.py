"""Schemes of tagging: which letters stand before the type of an entity, and how entities are read from them.

    IOB     IOB1 and IOB2 (BIO)       B begins, I continues
    IOE     IOE1 and IOE2             I continues, E ends
    BIOES   also IOBES                B begins, I continues, E ends, S is an entity of one word
    BILOU   also BILUO, spaCy's       B begins, I continues, L ends, U is an entity of one word
    BMEWO   LingPipe's                B begins, M continues, E ends, W is an entity of one word
    BMES                              B begins, M continues, E ends, S is an entity of one word

IOB and IOE are read as the script of the CoNLL shared tasks reads them, conlleval (Tjong Kim Sang and
Veenstra, 1999), tags that contradict each other included. The others say where each entity ends: there an
entity counts only if it is whole, as in seqeval's strict mode (Nakayama 2018, "seqeval"). But a letter makes
no scheme: where tags do not keep to it, as one S-PER among B and I, conlleval's rules hold; see `as_kept`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import some_of

OUTSIDE = "O"
BARE = frozenset("BIESULMW")  # letters that are tags of entities without a type, too
_TYPED = re.compile(r"(?s)([A-Z])-.+")  # a tag that looks like one of an entity
_ODD = re.compile(r"(?si)[a-z][-_:/].+|.+[-_:/][biesulmw]")  # one that may have been meant as such
_ENDS = frozenset("EL")  # letters that end an entity in any scheme
_SINGLES = frozenset("SUW")  # and those that are one of a word
KEPT = 0.9  # share of the tags that lies in whole entities where a scheme is kept to
_COMMON = 0.1  # share of the tags from which on they are not strays
_STRAYS = 10  # as many may be, in few tags


class Scheme(NamedTuple):
    """The letters of a scheme, "" where it has none for what they stand for, and whether it is kept to."""

    name: str
    begin: str
    inside: str
    end: str
    single: str
    is_strict: bool = False  # whether an entity counts only if it is whole

    @property
    def letters(self) -> frozenset[str]:
        """The letters of the scheme, without O."""
        return frozenset(self.by_role) - {""}

    @property
    def by_role(self) -> tuple[str, str, str, str]:
        """The letters that begin, continue and end an entity, and that of an entity of one word."""
        return self.begin, self.inside, self.end, self.single

    def tag_of_word(self, kind: str) -> str:
        """Return the tag of an entity that is one word.

        Parameters
        ----------
        kind : str
            Its type.

        Returns
        -------
        str
            Such as S-PER in BIOES, B-PER in IOB and E-PER in IOE.
        """
        return f"{self.single or self.begin or self.end}-{kind}"


IOB = Scheme("IOB", "B", "I", "", "")
SCHEMES = (  # the first one that has all letters of some tags is theirs
    IOB,
    Scheme("IOE", "", "I", "E", ""),
    Scheme("BIOES", "B", "I", "E", "S", True),
    Scheme("BILOU", "B", "I", "L", "U", True),
    Scheme("BMEWO", "B", "M", "E", "W", True),
    Scheme("BMES", "B", "M", "E", "S", True),
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
    """Return the scheme of a name.

    Parameters
    ----------
    name : str
        One of `NAMES`, in upper or lower case.

    Returns
    -------
    Scheme
        One of `SCHEMES`.

    Raises
    ------
    InputError
        For a name that is not known.

    Examples
    --------
    >>> scheme_named("bilou").letters == scheme_named("BILUO").letters == {"B", "I", "L", "U"}
    True
    """
    scheme = NAMES.get(name.upper())
    if scheme is None:
        raise InputError(f"scheme={name!r} is not known; choose from {', '.join(NAMES)}.", scheme=name)
    return scheme


def letter_of(tag: str) -> str:
    """Return the letter that a tag has in a scheme.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    str
        What stands before the first hyphen; "" for a tag that is outside all entities.
    """
    letter, hyphen, kind = tag.partition("-")
    if letter == OUTSIDE or not (kind or letter in BARE):
        return ""
    return letter


def kind_of(tag: str) -> str:
    """Return the type of an entity in its tag.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    str
        What stands after the first hyphen, "" without one.
    """
    return tag.partition("-")[2]


def scheme_of(sentences: Iterable[Sequence[str]], other: Scheme | None = None) -> Scheme:
    """Return the scheme that has all letters of some tags, whether or not they keep to it (`as_kept`).

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags; the scheme is recognised by the letters of all of them together.
    other : Scheme, optional
        One that counts where it has all their letters: that of the gold tags for predicted ones.

    Returns
    -------
    Scheme
        `other`, or the first of `SCHEMES` that has all their letters.

    Raises
    ------
    InputError
        When no scheme has all their letters.
    """
    tags = {tag for sentence in sentences for tag in sentence}
    letters = {letter_of(tag) for tag in tags} - {""}
    candidates = SCHEMES if other is None else (other, *SCHEMES)
    for scheme in candidates:
        if letters <= scheme.letters:
            return scheme
    known = frozenset().union(*(scheme.letters for scheme in SCHEMES))
    examples = sorted(tag for tag in tags if letter_of(tag) and letter_of(tag) not in known)
    if not examples:  # each letter is of a scheme, but no scheme has all of them
        by_letter = {letter_of(tag): tag for tag in sorted(tags) if letter_of(tag)}
        examples = sorted(by_letter.values())
    raise InputError(f"{unknown_scheme(examples)}; give tags of one scheme.")


def unknown_scheme(tags: Sequence[str]) -> str:
    """Say of tags that they are of no scheme, as the beginning of a sentence.

    Parameters
    ----------
    tags : sequence of str
        Those to name.

    Returns
    -------
    str
        With all schemes that are known and their letters.
    """
    known = []
    for scheme in SCHEMES:
        letters = [letter for letter in (OUTSIDE, *scheme.by_role) if letter]
        known.append(f"{scheme.name} ({' '.join(letters)})")
    return f"The tags {some_of(list(tags))} follow no scheme that is known: {', '.join(known)}"


def is_typed(tag: str) -> bool:
    """Return whether a tag looks like one of an entity.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    bool
        True for O, and for a capital letter, a hyphen and a type.
    """
    return tag == OUTSIDE or _TYPED.fullmatch(tag) is not None


def entity_scheme(tags: Iterable[str]) -> Scheme | None:
    """Return the scheme of tags that are all of entities.

    Parameters
    ----------
    tags : iterable of str
        Of any number of words, or the labels of a model.

    Returns
    -------
    Scheme or None
        None where a tag is not of an entity, they are of no scheme, or there is none. Entities need not be
        whole where a type can only begin or only end, as PER does beside a stray E-MAIL.
    """
    if not (tags := set(tags)) or not all(map(is_typed, tags)):
        return None
    try:
        scheme = scheme_of([list(tags)])
    except InputError:
        return None
    kinds: dict[str, set[str]] = {letter: set() for letter in scheme.letters}  # by the letter
    for tag in tags - {OUTSIDE}:
        kinds[letter_of(tag)].add(kind_of(tag))
    if scheme.is_strict and not (kinds[scheme.single] and kinds[scheme.begin] == kinds[scheme.end]):
        return scheme._replace(is_strict=False)
    return scheme


def tags_without_scheme(tags: Iterable[str]) -> list[str]:
    """Return the tags that may be meant as those of entities, but are of no scheme.

    Tags such as `B_PER`, `b-PER`, `PER-B` and `X-PER` are, where O is a tag as well: without it, they may be
    parts of speech.

    Parameters
    ----------
    tags : iterable of str
        Of any number of words, or the labels of a model.

    Returns
    -------
    list of str
        All tags but O, sorted; [] where all is well, or where one of them can't have been meant so.
    """
    tags = set(tags)
    if OUTSIDE not in tags or entity_scheme(tags) is not None:
        return []
    others = sorted(tags - {OUTSIDE})
    if not all(_ODD.fullmatch(tag) for tag in others):
        return []
    return others


def most_common_scheme(sentences: Iterable[Sequence[str]], other: Scheme | None = None) -> Scheme:
    """Return the scheme that has most tags of some sentences, whether or not they keep to it (`as_kept`).

    Where tags of entities stand beside other ones, what is of no scheme changes nothing for the rest.

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags.
    other : Scheme, optional
        One that counts where no scheme has more of them: that of the gold tags for predicted ones.

    Returns
    -------
    Scheme
        Of equal ones `other`, or the first of `SCHEMES`: IOB where none has any.
    """
    letters: Counter[str] = Counter()
    for tag, count in Counter(chain.from_iterable(sentences)).items():
        if tag != OUTSIDE and is_typed(tag):
            letters[letter_of(tag)] += count

    def n_tags(scheme: Scheme) -> int:
        return sum(letters[letter] for letter in scheme.letters)

    return max(SCHEMES if other is None else (other, *SCHEMES), key=n_tags)


class Kept(NamedTuple):
    """How well tags keep to a scheme."""

    total: int  # tags of it
    broken: Counter[str]  # those that are in no whole entity, by their letters
    single: int  # entities of one word


def kept(sentences: Iterable[Sequence[str]], scheme: Scheme) -> Kept:
    """Count the tags of a scheme, and those that belong to no complete entity.

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags; those that have none of its letters are not counted.
    scheme : Scheme
        One that says how each entity begins and ends.

    Returns
    -------
    Kept
    """
    all_letters: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for tags in sentences:
        letters = [letter_of(tag) for tag in tags]
        all_letters.update(letters)
        for _, start, end in _whole_chunks(tags, scheme):
            letters[start:end] = [""] * (end - start)
        broken.update(letters)
    for counts in (all_letters, broken):
        for letter in counts.keys() - scheme.letters:
            del counts[letter]
    return Kept(all_letters.total(), broken, all_letters[scheme.single])


def as_kept(scheme: Scheme, sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return a scheme as it is, or to be read as conlleval does where tags do not keep to it.

    They keep to it where there are entities of one word and `KEPT` of the tags lie in whole entities. They
    are also taken at their letters where they fit no other reading: there are many entities of one word,
    beginnings without an end and ends without a beginning, none of which can be strays.

    Parameters
    ----------
    scheme : Scheme
        One that has the letters of the tags.
    sentences : iterable of sequences of str
        Tags.

    Returns
    -------
    Scheme
        With `is_strict` where entities have to be whole.
    """
    if not scheme.is_strict:
        return scheme
    total, broken, single = kept(sentences, scheme)
    many = max(_COMMON * total, _STRAYS)
    is_kept = broken.total() <= (1 - KEPT) * total
    fits_nothing = min(single, broken[scheme.begin], broken[scheme.end]) >= many
    return scheme._replace(is_strict=single > 0 and (is_kept or fits_nothing))


def read_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Return the entities of a sentence whose tags are of a scheme.

    Parameters
    ----------
    tags : sequence of str
        Tags of the words.
    scheme : Scheme
        Entities have to be whole where it `is_strict`, else conlleval's rules hold.

    Returns
    -------
    list of Chunk
        In order.
    """
    return _whole_chunks(tags, scheme) if scheme.is_strict else _conll_chunks(tags)


def _whole_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Read entities that are complete: a single word, or from a beginning to an end, all of one type."""
    chunks: list[Chunk] = []
    start: int | None = None  # of the entity that has begun and not ended
    for place, tag in enumerate(tags):
        letter, kind = letter_of(tag), kind_of(tag)
        goes_on = start is not None and kind == kind_of(tags[start])
        if letter == scheme.single:
            chunks.append(Chunk(kind, place, place + 1))
            start = None
        elif letter == scheme.begin:
            start = place
        elif letter == scheme.end and goes_on and start is not None:
            chunks.append(Chunk(kind, start, place + 1))
            start = None
        elif letter != scheme.inside or not goes_on:
            start = None
    return chunks


def _conll_chunks(tags: Sequence[str]) -> list[Chunk]:
    """Read as conlleval does: an entity ends before what is outside, of another type, or begins one.

    The letters of other schemes that end an entity, or are one of a word, do so here.
    """
    chunks: list[Chunk] = []
    start = 0
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not letter_of(before):
            start = place
        elif _is_border(before, tag) or kind_of(before) != kind_of(tag):
            chunks.append(Chunk(kind_of(before), start, place))
            start = place
    return chunks


def _is_border(before: str, tag: str) -> bool:
    """Return whether the letters of two tags part them."""
    return letter_of(tag) in {"", "B"} | _SINGLES or letter_of(before) in _ENDS | _SINGLES
