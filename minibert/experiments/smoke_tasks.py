"""Make four small tasks from the books in the package, to replace real ones whose files are missing.

    pair       does the second sentence follow the first in the book, or is it from elsewhere in the chapter
    sentence   which of four authors wrote a sentence that contains no name
    spans      which name of the preceding sentences fills the gap in the next one (as in Hill et al. 2016)
    names      tag names in lower-cased sentences. Names are words that are capitalised within sentences: PER
               if the book has them next to a title or "said", LOC if often after "in" and the like, else MISC

A fifth of each book's chapters is dev. A model that was pre-trained on these books has read dev as well.
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

# The books in the order of the corpus: the author, and the number of chapters.
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
VERSE = ("Blake", "Milton", "Shakespeare", "Whitman")  # their capitals don't mark names
CLASSES = ("Austen", "Chesterton", "Edgeworth", "Melville")
TRAIN, DEV = 800, 300  # examples of each task, or fewer if the books run out
FEWEST, MOST = 6, 30  # words in a sentence
BEFORE = 5  # how many sentences before the one with a gap are its context
WORD = re.compile(r"(?:Mrs?|Dr|St)\.|\w+|'s\b|[^\w\s]")
CAPITAL = re.compile(r"\b((?:Mrs?|Dr|St)\.|\w+) (?=([A-Z][a-z]+)\b(?: (\w+))?)")
TITLES = set("Mr Mr. Mrs Mrs. Dr Dr. St. Miss Sir Lady Captain Colonel Lord King Queen Father Aunt".split())
SPEECH = set("said saith cried asked answered replied spake".split())
AT_PLACES = set("in at near into towards through from".split())
Chapter = tuple[str, dict[str, str], list[str]]  # author, type of each name in the book, lines


def make(folder: Path, seed: int = 0, train: int = TRAIN, dev: int = DEV) -> None:
    """Write the four tasks, each to a folder of its name.

    "pair" and "sentence" are tables for the task "classify", the former with the column "second"; "spans" has
    files for "squad1", and "names" for "ner" and "ner-sentences". The same arguments give the same bytes.

    Parameters
    ----------
    folder : Path
        Folder in which to create the four folders.
    seed : int, default 0
        Seed of the random choice of examples.
    train, dev : int
        How many examples of each task to make, as far as the books suffice.
    """
    chapters = _chapters()
    names_of_files = {"train": "eng.train", "dev": "eng.testa"}  # as in CoNLL-2003
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
    """Return the chapters of the books by split and author; of every five, the third is in dev.

    The names of a book's characters are found in all of its chapters, those in dev as well.
    """
    chapters: dict[str, dict[str, list[Chapter]]] = {"train": {}, "dev": {}}
    stream = SentenceStream(embedded_corpus(), "sentences")
    parts = groupby(stream, bool)  # None ends a document, which here is a chapter
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
    """Return an example of "spans" in the format of SQuAD 1.1."""
    answer = {"text": text, "answer_start": start}
    question_and_answer = {"id": str(number), "question": question, "answers": [answer]}
    return {"title": "", "paragraphs": [{"context": context, "qas": [question_and_answer]}]}


def _tagged_document(rows: Sequence[tuple[str, str]]) -> str:
    """Return an example of "names" in the format of CoNLL-2003: a document with one sentence."""
    lines = [f"{word} -X- O {tag}\n" for word, tag in rows]
    sentence = "".join(lines)
    return f"-DOCSTART- -X- O O\n\n{sentence}\n"


def _names(text: str) -> dict[str, str]:
    """Find words that are capitalised within sentences and never occur in lower case; return their types."""
    total = Counter[str]()
    people = Counter[str]()
    in_places = Counter[str]()
    for before, word, after in CAPITAL.findall(text):
        total[word] += word not in TITLES
        is_speaking = before in SPEECH or after in SPEECH
        people[word] += before in TITLES or is_speaking
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
    """Draw lines of chapters, from each pool in turn, until every task has enough examples."""
    # Dictionaries serve as ordered sets, because the same line may be drawn more than once.
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
    return {task: [*distinct][:count] for task, distinct in examples.items()}


def _examples(rng: random.Random, author: str, names: dict[str, str], lines: list[str]) -> Iterator[Any]:
    """Draw a line of a chapter, and yield the examples made from it, each with the name of its task."""
    at = rng.randrange(len(lines))
    other = rng.randrange(len(lines))
    line = lines[at]
    if not _fits(line):
        return
    two_pairs = [*lines[at : at + 2], *lines[other : other + 2]]
    # Both second sentences follow a line that fits, so that neither gives its label away by itself.
    if abs(at - other) > 2 and len(two_pairs) == 4 and all(map(_fits, two_pairs)):
        yield "pair", (("text", line), ("second", two_pairs[1]), ("label", "next"))
        yield "pair", (("text", line), ("second", two_pairs[3]), ("label", "elsewhere"))
    rows = _tagged(line, names)
    if any(tag != "O" for _, tag in rows):
        yield "names", tuple(rows)
    elif author in CLASSES:
        yield "sentence", (("text", line), ("label", author))
    context = " ".join(lines[max(0, at - BEFORE) : at])
    last_start = {}  # a name -> where it last begins in the context
    for match in WORD.finditer(context):
        if match[0] in names:
            last_start[match[0]] = match.start()
    gaps = []
    for match in WORD.finditer(line):
        if match[0] in last_start and line.count(match[0]) == 1:
            gaps.append(match)
    if len(last_start) > 1 and gaps and len(context.split()) <= MOST * BEFORE:
        gap = rng.choice(gaps)
        question = f"{line[: gap.start()]}_{line[gap.end() :]}"
        yield "spans", (context, question, gap[0], last_start[gap[0]])


def _fits(sentence: str) -> bool:
    """Return whether a sentence has a suitable length and doesn't contain the mark of a gap."""
    words = sentence.split()
    return FEWEST <= len(words) <= MOST and "_" not in sentence


def _tagged(line: str, names: dict[str, str]) -> list[tuple[str, str]]:
    """Tag the words of a line; adjacent names form one entity, whose type is that of its last word."""
    rows = []
    for is_named, run in groupby(WORD.findall(line), names.__contains__):
        words = list(run)
        tag = f"I-{names[words[-1]]}" if is_named else "O"
        rows += [(word.lower(), tag) for word in words]
    return rows
