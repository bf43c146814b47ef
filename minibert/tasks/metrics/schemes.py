"""Schemes of tagging: which letters precede the type of an entity, and how entities are read from tags.

    IOB     IOB1 and IOB2 (BIO)       B begins, I continues
    IOE     IOE1 and IOE2             I continues, E ends
    BIOES   also IOBES                B begins, I continues, E ends, S is an entity of one word
    BILOU   also BILUO, spaCy's       B begins, I continues, L ends, U is an entity of one word
    BMEWO   LingPipe's                B begins, M continues, E ends, W is an entity of one word
    BMES                              B begins, M continues, E ends, S is an entity of one word

IOB and IOE are read as by the script of the CoNLL shared tasks, conlleval (Tjong Kim Sang and Veenstra,
1999), even where tags contradict each other. The other schemes say where each entity ends: an entity counts
only if it is complete, as in seqeval's strict mode (Nakayama 2018, "seqeval"). But a letter alone does not
make a scheme: if tags do not follow it, such as a single S-PER among B and I, conlleval's rules apply; see
`as_kept`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import some_of

OUTSIDE = "O"
BARE = frozenset("BIESULMW")  # letters that are also tags by themselves, of entities without a type
_TYPED = re.compile(r"(?s)([A-Z])-.+")  # a tag that looks like that of an entity
_ODD = re.compile(r"(?si)[a-z][-_:/].+|.+[-_:/][biesulmw]")  # a tag that may be meant as that of an entity
_ENDS = frozenset("EL")  # letters that end an entity in any scheme
_SINGLES = frozenset("SUW")  # letters that mark an entity of one word in any scheme
KEPT = 0.9  # least share of the tags in complete entities, for tags that follow a scheme
_COMMON = 0.1  # share of the tags from which on they are too many to be strays
_STRAYS = 10  # number of tags up to which they may be strays in any case


class Scheme(NamedTuple):
    """The letters of a scheme, "" for a role without one, and whether its entities have to be complete."""

    name: str
    begin: str
    inside: str
    end: str
    single: str
    is_strict: bool = False  # whether an entity counts only if it is complete

    @property
    def letters(self) -> frozenset[str]:
        """The letters of the scheme, without O."""
        return frozenset(self.by_role) - {""}

    @property
    def by_role(self) -> tuple[str, str, str, str]:
        """The letters that begin, continue and end an entity, and the letter for an entity of one word."""
        return self.begin, self.inside, self.end, self.single

    def tag_of_word(self, kind: str) -> str:
        """Return the tag for an entity of one word.

        Parameters
        ----------
        kind : str
            Type of the entity.

        Returns
        -------
        str
            For example S-PER in BIOES, B-PER in IOB and E-PER in IOE.
        """
        return f"{self.single or self.begin or self.end}-{kind}"


IOB = Scheme("IOB", "B", "I", "", "")
SCHEMES = (  # the scheme of tags is the first that has all their letters
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
    """The words start:end and their type, such as LOC or NP; "" if the tags have no type."""

    kind: str
    start: int
    end: int


def scheme_named(name: str) -> Scheme:
    """Return the scheme with a name.

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
        When the name is not known.

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
    """Return the letter of a tag.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    str
        What precedes the first hyphen; "" for a tag outside all entities.
    """
    letter, hyphen, kind = tag.partition("-")
    if letter == OUTSIDE or not (kind or letter in BARE):
        return ""
    return letter


def kind_of(tag: str) -> str:
    """Return the type of entity in a tag.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    str
        What follows the first hyphen; "" if there is none.
    """
    return tag.partition("-")[2]


def scheme_of(sentences: Iterable[Sequence[str]], other: Scheme | None = None) -> Scheme:
    """Return the scheme that has all letters of some tags, whether or not the tags follow it (see `as_kept`).

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags. The scheme is recognised by the letters of all of them.
    other : Scheme, optional
        A scheme to prefer if it has all the letters: that of the gold tags, for predicted ones.

    Returns
    -------
    Scheme
        `other`, or the first of `SCHEMES` with all the letters.

    Raises
    ------
    InputError
        When no scheme has all the letters.
    """
    tags = {tag for sentence in sentences for tag in sentence}
    letters = {letter_of(tag) for tag in tags} - {""}
    candidates = SCHEMES if other is None else (other, *SCHEMES)
    for scheme in candidates:
        if letters <= scheme.letters:
            return scheme
    known = frozenset().union(*(scheme.letters for scheme in SCHEMES))
    examples = sorted(tag for tag in tags if letter_of(tag) and letter_of(tag) not in known)
    if not examples:  # each letter belongs to a scheme, but no scheme has all of them
        by_letter = {letter_of(tag): tag for tag in sorted(tags) if letter_of(tag)}
        examples = sorted(by_letter.values())
    raise InputError(f"{unknown_scheme(examples)}; give tags of one scheme.")


def unknown_scheme(tags: Sequence[str]) -> str:
    """Say that tags follow no known scheme, as the beginning of a sentence.

    Parameters
    ----------
    tags : sequence of str
        The tags to name.

    Returns
    -------
    str
        With all known schemes and their letters.
    """
    known = []
    for scheme in SCHEMES:
        letters = [letter for letter in (OUTSIDE, *scheme.by_role) if letter]
        known.append(f"{scheme.name} ({' '.join(letters)})")
    return f"The tags {some_of(list(tags))} follow no scheme that is known: {', '.join(known)}"


def is_typed(tag: str) -> bool:
    """Return whether a tag looks like that of an entity.

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
    """Return the scheme of tags, if all of them are tags of entities.

    Entities need not be complete if some type can only begin or only end, such as PER in the presence of a
    stray E-MAIL.

    Parameters
    ----------
    tags : iterable of str
        Tags of any number of words, or the labels of a model.

    Returns
    -------
    Scheme or None
        None if there is no tag, a tag is not that of an entity, or they follow no scheme.
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
    """Return the tags that may be meant as those of entities, but follow no scheme.

    Such tags are `B_PER`, `b-PER`, `PER-B` and `X-PER`, if O is a tag as well. Without O, they may be parts
    of speech.

    Parameters
    ----------
    tags : iterable of str
        Tags of any number of words, or the labels of a model.

    Returns
    -------
    list of str
        All tags except O, sorted; [] if they follow a scheme, or if one of them can't be meant so.
    """
    tags = set(tags)
    if OUTSIDE not in tags or entity_scheme(tags) is not None:
        return []
    others = sorted(tags - {OUTSIDE})
    if not all(_ODD.fullmatch(tag) for tag in others):
        return []
    return others


def most_common_scheme(sentences: Iterable[Sequence[str]], other: Scheme | None = None) -> Scheme:
    """Return the scheme with the most tags in some sentences, whether or not they follow it (see `as_kept`).

    If there are other tags as well as those of entities, they do not matter.

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags.
    other : Scheme, optional
        A scheme to prefer if no other has more of the tags: that of the gold tags, for predicted ones.

    Returns
    -------
    Scheme
        Among equal schemes `other`, or the first of `SCHEMES`: IOB if there is no tag of an entity.
    """
    letters: Counter[str] = Counter()
    for tag, count in Counter(chain.from_iterable(sentences)).items():
        if tag != OUTSIDE and is_typed(tag):
            letters[letter_of(tag)] += count

    def n_tags(scheme: Scheme) -> int:
        """Count the tags with a letter of a scheme."""
        return sum(letters[letter] for letter in scheme.letters)

    return max(SCHEMES if other is None else (other, *SCHEMES), key=n_tags)


class Kept(NamedTuple):
    """How well tags follow a scheme."""

    total: int  # number of its tags
    broken: Counter[str]  # number of its tags that are not in a complete entity, by letter
    single: int  # number of entities of one word


def kept(sentences: Iterable[Sequence[str]], scheme: Scheme) -> Kept:
    """Count the tags of a scheme, and those that are not in a complete entity.

    Parameters
    ----------
    sentences : iterable of sequences of str
        Tags; those without a letter of the scheme are not counted.
    scheme : Scheme
        A scheme that says how each entity begins and ends.

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
    """Return a scheme in which entities have to be complete only if the tags follow it.

    They follow it if there are entities of one word, and at least a share of `KEPT` of the tags is in
    complete entities. It is also applied if the tags fit no other reading: there are many entities of one
    word, many beginnings without an end and many ends without a beginning, too many to be strays.

    Parameters
    ----------
    scheme : Scheme
        A scheme that has the letters of the tags.
    sentences : iterable of sequences of str
        Tags.

    Returns
    -------
    Scheme
        The scheme, with `is_strict` if entities have to be complete.
    """
    if not scheme.is_strict:
        return scheme
    total, broken, single = kept(sentences, scheme)
    many = max(_COMMON * total, _STRAYS)
    is_kept = broken.total() <= (1 - KEPT) * total
    fits_nothing = min(single, broken[scheme.begin], broken[scheme.end]) >= many
    return scheme._replace(is_strict=single > 0 and (is_kept or fits_nothing))


def read_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Return the entities of a sentence.

    Parameters
    ----------
    tags : sequence of str
        Tags of the words.
    scheme : Scheme
        Scheme of the tags. If it `is_strict`, entities have to be complete; otherwise conlleval's rules
        apply.

    Returns
    -------
    list of Chunk
        In order.
    """
    return _whole_chunks(tags, scheme) if scheme.is_strict else _conll_chunks(tags)


def _whole_chunks(tags: Sequence[str], scheme: Scheme) -> list[Chunk]:
    """Read complete entities: a single word, or from a beginning to an end, with the same type throughout."""
    chunks: list[Chunk] = []
    start: int | None = None  # start of the entity that has begun and not ended
    for position, tag in enumerate(tags):
        letter, kind = letter_of(tag), kind_of(tag)
        goes_on = start is not None and kind == kind_of(tags[start])
        if letter == scheme.single:
            chunks.append(Chunk(kind, position, position + 1))
            start = None
        elif letter == scheme.begin:
            start = position
        elif letter == scheme.end and goes_on and start is not None:
            chunks.append(Chunk(kind, start, position + 1))
            start = None
        elif letter != scheme.inside or not goes_on:
            start = None
    return chunks


def _conll_chunks(tags: Sequence[str]) -> list[Chunk]:
    """Read entities as conlleval does: one ends before an outside tag, another type or a new beginning.

    The letters of other schemes that end an entity, or mark an entity of one word, do so here as well.
    """
    chunks: list[Chunk] = []
    start = 0
    for position, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not letter_of(before):
            start = position
        elif _is_border(before, tag) or kind_of(before) != kind_of(tag):
            chunks.append(Chunk(kind_of(before), start, position))
            start = position
    return chunks


def _is_border(before: str, tag: str) -> bool:
    """Return whether an entity ends between two tags, judging by their letters."""
    return letter_of(tag) in {"", "B"} | _SINGLES or letter_of(before) in _ENDS | _SINGLES
