"""Make books.txt.xz, the corpus inside the package, from a folder of plain texts of public-domain books.

    python tests/golden/make_books.py FOLDER

What is changed and why stands in minibert/corpora/README.md. Chapters, scenes and poems become documents, in
the layout "sentences": one sentence a line (verse and plays keep their lines), blank lines between documents.
"""

import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minibert.base.files import write_atomically
from minibert.base.terminal import emit
from minibert.data.corpus import split_sentences

BOOKS_FILE = Path(__file__).parents[2] / "minibert" / "corpora" / "books.txt.xz"
FEWEST_WORDS, MOST_WORDS = 500, 12_000  # of a document: short poems are joined, Milton's books are halved


class Book(NamedTuple):
    """A file, what kind of text it is, and the line that opens each of its documents."""

    file: str
    kind: str  # "prose": wrapped lines; "verse": lines are lines, plays too; "bible": numbered verses
    heading: str = r"CHAPTER \w+\.?"


NUMERAL = r"[IVXLC]+\."
BOOKS = (
    Book("austen-emma", "prose"),
    Book("austen-persuasion", "prose", r"Chapter \d+"),
    Book("austen-sense", "prose"),
    Book("bible-kjv", "bible", r"\d+:1 .*"),
    Book("blake-poems", "verse", r" *[A-Z][A-Z ',.-]+"),
    Book("carroll-alice", "prose", r" *CHAPTER [IVX]+.*"),
    Book("chesterton-ball", "prose", rf"{NUMERAL} [A-Z -]+"),
    Book("chesterton-brown", "prose", rf"{NUMERAL} [A-Z].*"),
    Book("chesterton-thursday", "prose"),
    Book("edgeworth-parents", "prose", r"(?:[A-Z][A-Z ,'-]+\.|(?:CHAPTER|SCENE) [IVX]+\.)"),
    Book("melville-moby_dick", "prose", r"(?:CHAPTER \d+|ETYMOLOGY\.|EXTRACTS.*|Epilogue)"),
    Book("milton-paradise", "verse", r"Book [IVX]+"),
    Book("shakespeare-caesar", "verse", r"(?:Actus|Scena|Scoena) .*"),
    Book("shakespeare-hamlet", "verse", r"(?:Actus|Scena|Scoena) .*"),
    Book("shakespeare-macbeth", "verse", r"(?:Actus|Scena|Scoena) .*"),
    Book("whitman-leaves", "verse", r"(?:\}  .*|\[BOOK.*)"),
)


def documents_of(book: Book, text: str) -> list[list[str]]:
    """The documents of a book, each a list of lines."""
    text = text.replace("\r\n", "\n").replace("\x1a", "")
    text = re.sub(r"\A\[[^\]]*\]", "", text)  # the file's own title line
    text = text.partition("\nEnd of Project")[0]  # a distributor's notice after the end of one book
    volumes = re.split(r"\n{5,}", text) if book.kind == "bible" else [text]  # its books: four blank lines
    found = []
    for volume in volumes:
        chapters = [_lines_of(book, part) for part in _at_headings(volume, book.heading)]
        found += _sensible_sizes([lines for lines in chapters if lines])
    return found


def _at_headings(text: str, heading: str) -> list[str]:
    """Cut where a line is a heading between blank lines (a stage direction in capitals is not one)."""
    return re.split(rf"(?m)(?<=\n\n)(?={heading} *$)", "\n\n" + re.sub(r"(?m)(?<![ \t])[ \t]+$", "", text))


def _lines_of(book: Book, text: str) -> list[str]:
    if book.kind == "verse":
        return _verse(text)
    if book.kind == "bible":
        text = re.sub(r"(?m)(?:^|(?<=\s))\d+:\d+\s", "", text)
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n{2,}", text))
    return [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]


def _verse(text: str) -> list[str]:
    """Lines as printed; four spaces or more mark the rest of a line that was too long for the page."""
    lines: list[str] = []
    for line in text.split("\n"):
        tidy = " ".join(line.removeprefix("}").split())
        if line.startswith("    ") and tidy and lines and tidy[0].islower():
            lines[-1] += " " + tidy
        elif tidy:
            lines.append(tidy)
    return lines


def _words(lines: list[str]) -> int:
    return sum(len(line.split()) for line in lines)


def _sensible_sizes(chapters: list[list[str]]) -> list[list[str]]:
    """Join neighbours until each has FEWEST_WORDS; cut what has more than MOST_WORDS into equal parts."""
    joined: list[list[str]] = []
    for lines in chapters:
        if joined and _words(joined[-1]) < FEWEST_WORDS:
            joined[-1] = joined[-1] + lines
        else:
            joined.append(lines)
    if len(joined) > 1 and _words(joined[-1]) < FEWEST_WORDS:
        last = joined.pop()
        joined[-1] = joined[-1] + last
    return [part for lines in joined for part in _equal_parts(lines)]


def _equal_parts(lines: list[str]) -> Iterator[list[str]]:
    parts = -(-_words(lines) // MOST_WORDS)
    borders = [len(lines) * part // parts for part in range(parts + 1)]
    return (lines[begin:end] for begin, end in zip(borders, borders[1:], strict=False))


def main(folder: str) -> None:
    """Write books.txt.xz into the package and print what is in it."""
    everything = []
    for book in BOOKS:
        raw = (Path(folder) / f"{book.file}.txt").read_bytes()
        documents = documents_of(book, raw.decode("latin-1"))  # two of the files have accents, in Latin-1
        sizes = sorted(map(_words, documents))
        emit(f"{book.file:20s}{len(sizes):5d} documents {sum(sizes):8,d} words, {sizes[0]:,}–{sizes[-1]:,}")
        everything += documents
    text = "\n".join("".join(line + "\n" for line in lines) for lines in everything)
    packed = lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)
    write_atomically(BOOKS_FILE, lambda path: path.write_bytes(packed))
    words = sum(map(_words, everything))
    emit(f"{len(everything):,} documents, {words:,} words, {len(text):,} characters, {len(packed):,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/golden/make_books.py FOLDER")
    main(sys.argv[1])
