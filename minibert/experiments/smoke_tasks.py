"""Make four small tasks from the books in the package, in place of real ones.

    pair       does the second sentence come next in the book, or elsewhere in the chapter
    sentence   which of four authors wrote it; no name stands in it
    spans      which name of the sentences before stands in the gap of the next (as Hill et al. 2016 ask)
    names      words capitalised within sentences, in lower case: PER if found beside a title or "said" in the
               book, LOC if often after "in" and the like, else MISC

A fifth of each book's chapters is dev. A model pre-trained on these books has read those too.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from minibert.base.files import atomic_json, atomic_text
from minibert.data.corpus import SentenceStream, embedded_corpus

# The authors of the books in their order, and how many chapters each book has.
CHAPTERS = (
    ("Austen", 55),
    ("Austen", 24),
    ("Austen", 50),
    ("Bible", 878),
    ("Blake", 11),
    ("Carroll", 12),
    ("Chesterton", 20),
    ("Chesterton", 12),
    ("Chesterton", 16),
    ("Edgeworth", 32),
    ("Melville", 122),
    ("Milton", 12),
    ("Shakespeare", 5),
    ("Shakespeare", 6),
    ("Shakespeare", 17),
    ("Whitman", 109),
)
VERSE = ("Blake", "Milton", "Shakespeare", "Whitman")  # whose capitals tell no names
CLASSES = ("Austen", "Chesterton", "Edgeworth", "Melville")
TRAIN, DEV = 800, 300  # examples, or fewer where the books run out
FEWEST, MOST = 6, 30  # words of a sentence
BEFORE = 5  # sentences before the one with a gap
WORD = re.compile(r"(?:Mrs?|Dr|St)\.|\w+|'s\b|[^\w\s]")
CAPITAL = re.compile(r"\b((?:Mrs?|Dr|St)\.|\w+) (?=([A-Z][a-z]+)\b(?: (\w+))?)")
TITLES = set("Mr Mr. Mrs Mrs. Dr Dr. St. Miss Sir Lady Captain Colonel Lord King Queen Father Aunt".split())
SPEECH = set("said saith cried asked answered replied spake".split())
AT_PLACES = set("in at near into towards through from".split())
Chapter = tuple[str, dict[str, str], list[str]]  # author, names in the book with their types, lines


def make(folder: Path, seed: int = 0, train: int = TRAIN, dev: int = DEV) -> None:
    """Write so many examples of each task, or fewer, into a folder of its name.

    "pair" and "sentence" are tables for the task "classify", the former with the column "second"; "spans" are
    files for "squad1", "names" for "ner" and "ner-sentences". The same arguments give the same bytes.

    Parameters
    ----------
    folder : Path
        In which the four folders are made.
    seed : int, default 0
        Of what is drawn.
    train, dev : int
        How many examples of each task there are to be.
    """
    chapters = _chapters()
    names_of_files = {"train": "eng.train", "dev": "eng.testa"}  # as CoNLL-2003 has them
    for split, count in (("train", train), ("dev", dev)):
        rng = random.Random(f"{seed} {split}")
        examples = _drawn([*chapters[split].values()], count, rng)
        for name in ("pair", "sentence"):
            lines = [json.dumps(dict(row)) + "\n" for row in examples[name]]
            atomic_text(folder / name / f"{split}.jsonl", "".join(lines))
        articles = []
        for number, example in enumerate(examples["spans"]):
            articles.append(_article(number, *example))
        squad = {"version": "1.1", "data": articles}
        atomic_json(folder / "spans" / f"{split}-v1.1.json", squad)
        documents = [_tagged_document(rows) for rows in examples["names"]]
        atomic_text(folder / "names" / names_of_files[split], "".join(documents))


def _chapters() -> dict[str, dict[str, list[Chapter]]]:
    """Read the chapters of the books, by split and author: every fifth one of a book is dev."""
    chapters: dict[str, dict[str, list[Chapter]]] = {"train": {}, "dev": {}}
    stream = SentenceStream(embedded_corpus(), "sentences")
    parts = groupby(stream, bool)  # an empty line ends a chapter
    documents = (list(lines) for is_text, lines in parts if is_text)
    for author, count in CHAPTERS:
        book: list[Any] = list(islice(documents, count))
        names = {}
        if author not in VERSE:
            names = _names("\n".join(line for lines in book for line in lines))
        for number, lines in enumerate(book):
            split = "dev" if number % 5 == 2 else "train"
            chapters[split].setdefault(author, []).append((author, names, lines))
    return chapters


def _article(number: int, context: str, question: str, text: str, start: int) -> dict[str, Any]:
    """Return an example of "spans" as a file of SQuAD 1.1 has it."""
    answer = {"text": text, "answer_start": start}
    asked = {"id": str(number), "question": question, "answers": [answer]}
    return {"title": "", "paragraphs": [{"context": context, "qas": [asked]}]}


def _tagged_document(rows: Sequence[tuple[str, str]]) -> str:
    """Return an example of "names" as a file of CoNLL-2003 has it: a document of one sentence."""
    lines = [f"{word} -X- O {tag}\n" for word, tag in rows]
    sentence = "".join(lines)
    return f"-DOCSTART- -X- O O\n\n{sentence}\n"


def _names(text: str) -> dict[str, str]:
    """Find the words of a book that are capitalised within sentences and never in lower case, with types."""
    total = Counter[str]()
    people = Counter[str]()
    in_places = Counter[str]()
    for before, word, after in CAPITAL.findall(text):
        total[word] += word not in TITLES
        is_beside_speech = before in SPEECH or after in SPEECH
        people[word] += before in TITLES or is_beside_speech
        in_places[word] += before in AT_PLACES
    words = set(text.split())
    names = {}
    for word, count in total.items():
        if count <= 2 or word.lower() in words:
            continue
        if in_places[word] > max(count / 4, people[word]):
            names[word] = "LOC"
        elif people[word]:
            names[word] = "PER"
        else:
            names[word] = "MISC"
    return names


def _drawn(pools: list[list[Chapter]], count: int, rng: random.Random) -> dict[str, list[Any]]:
    """Read lines of chapters, from each pool in turn, until each task has enough examples."""
    # Dictionaries as ordered sets: the same line may be drawn again.
    examples: dict[str, dict[Any, None]] = {
        "pair": {},
        "sentence": {},
        "spans": {},
        "names": {},
    }
    for pool in islice(cycle(pools), 100 * count):
        author, names, lines = rng.choice(pool)
        for task, example in _examples(rng, author, names, lines):
            examples[task][example] = None
        fewest = min(map(len, examples.values()))
        if fewest >= count:
            break
    return {task: [*different][:count] for task, different in examples.items()}


def _examples(rng: random.Random, author: str, names: dict[str, str], lines: list[str]) -> Iterator[Any]:
    """Yield the examples that a line of a chapter gives, each with the name of its task."""
    at = rng.randrange(len(lines))
    other = rng.randrange(len(lines))
    line = lines[at]
    if not _fits(line):
        return
    around = [*lines[at : at + 2], *lines[other : other + 2]]
    # Both second sentences stand after a line that fits: none tells by itself.
    if abs(at - other) > 2 and len(around) == 4 and all(map(_fits, around)):
        yield "pair", (("text", line), ("second", around[1]), ("label", "next"))
        yield "pair", (("text", line), ("second", around[3]), ("label", "elsewhere"))
    rows = _tagged(line, names)
    if any(tag != "O" for _, tag in rows):
        yield "names", tuple(rows)
    elif author in CLASSES:
        yield "sentence", (("text", line), ("label", author))
    context = " ".join(lines[max(0, at - BEFORE) : at])
    places = {}  # the last of each name
    for match in WORD.finditer(context):
        if match[0] in names:
            places[match[0]] = match.start()
    gaps = []
    for match in WORD.finditer(line):
        if match[0] in places and line.count(match[0]) == 1:
            gaps.append(match)
    if len(places) > 1 and gaps and len(context.split()) <= MOST * BEFORE:
        gap = rng.choice(gaps)
        question = f"{line[: gap.start()]}_{line[gap.end() :]}"
        yield "spans", (context, question, gap[0], places[gap[0]])


def _fits(sentence: str) -> bool:
    """Return whether a sentence has the right length, and no mark of a gap in it."""
    words = sentence.split()
    return FEWEST <= len(words) <= MOST and "_" not in sentence


def _tagged(line: str, names: dict[str, str]) -> list[tuple[str, str]]:
    """Tag the words of a line: names in a row are one, of the type of its last word."""
    rows = []
    for is_named, run in groupby(WORD.findall(line), names.__contains__):
        words = list(run)
        tag = f"I-{names[words[-1]]}" if is_named else "O"
        rows += [(word.lower(), tag) for word in words]
    return rows
