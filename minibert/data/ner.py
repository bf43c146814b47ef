"""Read CoNLL-2003 named entities (Tjong Kim Sang and De Meulder 2003): one word per line, its tag last.

The original files are tagged IOB1: an entity begins with I-, and with B- only directly after another of the
same type. What is learnt and scored is BIO: every entity begins with B-.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.data.lines import numbered_lines

DOCUMENT_START = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """A sentence as words, each with a tag."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # None if they are not known
    document: int  # index of its document, from 0: neighbours in the same document are its context


def read(
    path: str | Path, words: int = 1, tags: int | None = -1, entities: bool = True
) -> list[TaggedSentence]:
    """Read the sentences of a file with one word per line and a blank line between sentences.

    Columns stand between tabs, or between spaces in a line without tabs; a file of one column has words only.
    A line that begins with -DOCSTART- begins a document; a file without any is one document.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.
    words : int, default 1
        The column of words, from 1, or from -1 at the end.
    tags : int, default -1
        That of tags; None when there are none.
    entities : bool, default True
        Tags are O, B-TYPE or I-TYPE, in IOB1 or BIO, and become BIO; a line that begins with # before the
        first word of a sentence and does not end in such a tag is a comment. Otherwise any tags, such as
        parts of speech, are taken as they are, and there are no comments.

    Returns
    -------
    list of TaggedSentence
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, lacks a column, has another kind of tags, or holds no sentence.
    """
    path = Path(path)
    sentences: list[TaggedSentence] = []
    sentence: list[tuple[str, Any]] = []  # words and their tags, None if the file has no tags
    document = width = 0
    for line, text in chain(numbered_lines(path), [(0, "")]):
        # Not str.split(): a no-break space is a word in some corpora.
        separator = "\t" if "\t" in text else " "
        columns = [column for column in text.split(separator) if column]
        starts_document = bool(columns) and columns[0] == DOCUMENT_START
        if not columns or starts_document:
            if sentence:
                sentences.append(_tagged(sentence, document, entities))
                sentence = []
            if starts_document and sentences:
                document = sentences[-1].document + 1
            continue
        if entities and not sentence and text.startswith("#") and not is_entity_tag(columns[-1]):
            continue
        if width and len(columns) != width:
            raise InputError(
                f"{counted(len(columns), 'column')} where the lines before have {width}; "
                "each line has one word with its tag, and a blank line ends each sentence.",
                where=f"{path}, line {line}",
            )
        width = len(columns)
        tag = None
        if tags is not None and width > 1:
            tag = _column(columns, tags, path, line)
        if entities and tag is not None and not is_entity_tag(tag):
            raise InputError(
                f"the tag {tag[:60]!r} is neither O nor B-TYPE nor I-TYPE; check which column has the tags.",
                where=f"{path}, line {line}",
            )
        word = _column(columns, words, path, line)
        sentence.append((word, tag))
    if not sentences:
        raise InputError("no sentence was found; each line has one word with its tag.", where=str(path))
    return sentences


def _tagged(sentence: list[tuple[str, Any]], document: int, entities: bool) -> TaggedSentence:
    """Return a sentence of words and their tags, None if the file has no tags; entity tags become BIO."""
    words, tags = zip(*sentence, strict=True)
    if None in tags:
        return TaggedSentence(words, None, document)
    if entities:
        tags = tuple(to_bio(tags))
    return TaggedSentence(words, tags, document)


def _column(columns: list[str], number: int, path: Path, line: int) -> str:
    if not 1 <= abs(number) <= len(columns):
        raise InputError(
            f"there is no column {number}, only {len(columns)}; give another.", where=f"{path}, line {line}"
        )
    place = number - 1 if number > 0 else number
    return columns[place]


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag is O, B-TYPE or I-TYPE.

    Parameters
    ----------
    tag : str
        Tag of a word.

    Returns
    -------
    bool
    """
    return tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2)


def to_bio(tags: Sequence[str]) -> Iterator[str]:
    """Yield the tags of a sentence, in IOB1 or BIO, as BIO: an entity begins with B-, continues with I-.

    Parameters
    ----------
    tags : sequence of str
        Each O, B-TYPE or I-TYPE.

    Yields
    ------
    str
        As many tags.

    Examples
    --------
    >>> list(to_bio(["I-LOC", "I-LOC", "B-LOC", "O", "I-PER", "I-ORG"]))
    ['B-LOC', 'I-LOC', 'B-LOC', 'O', 'B-PER', 'B-ORG']
    """
    for before, tag in pairwise(["O", *tags]):
        goes_on = tag[0] == "I" and before[2:] == tag[2:]
        yield tag if tag == "O" or goes_on else f"B-{tag[2:]}"
