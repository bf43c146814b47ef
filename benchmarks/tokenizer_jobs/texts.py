"""The texts and vocabularies of the tokenizer's benchmark, and where they come from."""

import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minibert.data.corpus import embedded_corpus
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))
WIKIPEDIA = DATA / "text" / "enwiki.txt.xz"
MULTILINGUAL = DATA / "text" / "multilingual"
VOCABULARIES = DATA / "vocab"
BOOKS_PIECES = 8000  # learnt from the books where there is no released vocabulary


class Case(NamedTuple):
    """A text to encode, and how."""

    name: str
    title: str
    lower_case: bool


def cases() -> list[Case]:
    """What there is text and a vocabulary for."""
    english = Case("english", "English Wikipedia" if WIKIPEDIA.exists() else "the embedded books", True)
    if not MULTILINGUAL.is_dir() or not VOCABULARIES.is_dir():
        return [english]
    return [
        english,
        Case("mixed", "mixed scripts, cased", False),
        Case("mixed", "mixed scripts, lower-cased", True),
    ]


def what_is_missing() -> list[str]:
    """Sentences on data that is not there."""
    found = []
    if not WIKIPEDIA.exists():
        found.append(
            f"{WIKIPEDIA} is not there: English text is the embedded books, with a vocabulary of theirs."
        )
    if not MULTILINGUAL.is_dir() or not VOCABULARIES.is_dir():
        found.append(f"{MULTILINGUAL} or {VOCABULARIES} is not there: no mixed scripts.")
    return [*found, "Name the folder that has them: MINIBERT_DATA=..."] if found else []


def english() -> str:
    return lzma.open(WIKIPEDIA if WIKIPEDIA.exists() else embedded_corpus(), "rt", encoding="utf-8").read()


def lines_of(name: str, megabytes: float) -> list[str]:
    """Lines with text in them, about as many megabytes as asked for or all there are."""
    if name == "english":
        return list(_first(english().split("\n"), megabytes * 1e6))
    files = sorted(MULTILINGUAL.rglob("*.txt")) + sorted(MULTILINGUAL.rglob("*.xz"))
    read = [lzma.open(file).read() if file.suffix == ".xz" else file.read_bytes() for file in files]
    texts = [data.decode("utf-8", "replace").split("\n") for data in read]
    # A share of every file, so that a smaller sample is mixed, too.
    share = min(1.0, megabytes * 1e6 / sum(map(len, read)))
    return [line for text in texts for line in text[: max(1, round(share * len(text)))] if line.strip()]


def _first(lines: list[str], n_bytes: float) -> Iterator[str]:
    for line in lines:
        if line.strip():
            yield line
            n_bytes -= len(line.encode())
            if n_bytes <= 0:
                return


def vocab_of(case: Case) -> list[str]:
    """The released vocabulary that goes with a text; one of the books' own without it."""
    if case.name == "english" and not VOCABULARIES.is_dir():
        words = count_words(english().split("\n"), BasicTokenizer(case.lower_case))
        return learn_vocab(words, BOOKS_PIECES)
    name = "bert-base-uncased" if case.name == "english" else "bert-base-multilingual-cased"
    return (VOCABULARIES / name / "vocab.txt").read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def write_repeated(path: Path, megabytes: float, new_words: bool = False) -> Path:
    """A file of so many megabytes: the English text over and over.

    Parameters
    ----------
    new_words : write each repetition in another Caesar alphabet, so that its words are new ones.
    """
    text, alphabet = english().encode() + b"\n\n", b"abcdefghijklmnopqrstuvwxyz"
    left, repetition = round(megabytes * 1e6), 0
    with open(path, "wb") as file:
        while left > 0:
            turned = alphabet[repetition % 26 :] + alphabet[: repetition % 26]
            table = bytes.maketrans(alphabet + alphabet.upper(), turned + turned.upper())
            piece = text.translate(table) if new_words else text
            piece = piece if left >= len(piece) else piece[: piece.rfind(b"\n", 0, left) + 1] or piece[:left]
            file.write(piece)
            left = left - len(piece) if len(piece) == len(text) else 0
            repetition += 1
    return path
