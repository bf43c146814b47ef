"""Four small tasks made from the books in the package, for where no real ones are at hand.

    pair       does the second sentence come next in the book, or elsewhere in the chapter
    sentence   which of four authors wrote it; no name stands in it
    spans      which name of the sentences before stands in the gap of the next (as Hill et al. 2016 ask)
    names      words capitalised within sentences, in lower case: PER if found beside a title or "said" in the
               book, LOC if often behind "in" and the like, else MISC

A fifth of each book's chapters is dev. A model pre-trained on these books has read those too.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from minibert.base.files import atomic_json, atomic_text
from minibert.data.corpus import SentenceStream, embedded_corpus

# The authors of the books in their order, and how many chapters each book has.
BOOKS = (
    "Austen 55 Austen 24 Austen 50 Bible 878 Blake 11 Carroll 12 Chesterton 20 Chesterton 12 Chesterton 16 "
)
BOOKS += "Edgeworth 32 Melville 122 Milton 12 Shakespeare 5 Shakespeare 6 Shakespeare 17 Whitman 109"
VERSE = ("Blake", "Milton", "Shakespeare", "Whitman")  # whose capitals tell no names
CLASSES = ("Austen", "Chesterton", "Edgeworth", "Melville")
TRAIN, DEV = 800, 300  # examples, or fewer where the books run out
FEWEST, MOST, BEFORE = 6, 30, 5  # words of a sentence; sentences before the one with a gap
WORD = re.compile(r"(?:Mrs?|Dr|St)\.|\w+|'s\b|[^\w\s]")
CAPITAL = re.compile(r"\b((?:Mrs?|Dr|St)\.|\w+) (?=([A-Z][a-z]+)\b(?: (\w+))?)")
TITLES = set("Mr Mr. Mrs Mrs. Dr Dr. St. Miss Sir Lady Captain Colonel Lord King Queen Father Aunt".split())
SPEECH = set("said saith cried asked answered replied spake".split())
AT_PLACES = set("in at near into towards through from".split())


def make(folder: Path, seed: int = 0, train: int = TRAIN, dev: int = DEV) -> None:
    """Write so many examples of each task, or fewer, into a folder of its name.

    "pair" and "sentence" are tables for the task "classify", the former with the column "second"; "spans" are
    files for "squad1", "names" for "ner" and "ner-sentences". The same arguments give the same bytes.
    """
    chapters: dict[str, dict[str, list[Any]]] = {"train": {}, "dev": {}}  # by author
    parts = groupby(SentenceStream(embedded_corpus(), "sentences"), bool)
    documents = (list(lines) for is_text, lines in parts if is_text)
    for author, count in zip(BOOKS.split()[::2], map(int, BOOKS.split()[1::2]), strict=True):
        book: list[Any] = list(islice(documents, count))
        names = {} if author in VERSE else _names("\n".join(line for lines in book for line in lines))
        for number, lines in enumerate(book):
            of_split = chapters["dev" if number % 5 == 2 else "train"]
            of_split.setdefault(author, []).append((author, names, lines))
    for split, tagged, count in (("train", "eng.train", train), ("dev", "eng.testa", dev)):
        found = _drawn([*chapters[split].values()], count, random.Random(f"{seed} {split}"))
        for name in ("pair", "sentence"):
            rows = "".join(json.dumps(dict(row)) + "\n" for row in found[name])
            atomic_text(folder / name / f"{split}.jsonl", rows)
        articles = []
        for id, (context, question, text, start) in enumerate(found["spans"]):
            asked = {"id": str(id), "question": question, "answers": [{"text": text, "answer_start": start}]}
            articles.append({"title": "", "paragraphs": [{"context": context, "qas": [asked]}]})
        atomic_json(folder / "spans" / f"{split}-v1.1.json", {"version": "1.1", "data": articles})
        texts = ("".join(f"{word} -X- O {tag}\n" for word, tag in rows) for rows in found["names"])
        atomic_text(folder / "names" / tagged, "".join(f"-DOCSTART- -X- O O\n\n{text}\n" for text in texts))


def _names(text: str) -> dict[str, str]:
    """Find the words of a book that are capitalised within sentences and never in lower case, with types."""
    total, people, places = Counter[str](), Counter[str](), Counter[str]()
    for before, word, behind in CAPITAL.findall(text):
        total[word] += word not in TITLES
        people[word] += before in TITLES or before in SPEECH or behind in SPEECH
        places[word] += before in AT_PLACES
    words = set(text.split())
    places = Counter({word: n for word, n in places.items() if n > max(total[word] / 4, people[word])})
    types = {word: "LOC" if word in places else "PER" if people[word] else "MISC" for word in total}
    return {word: kind for word, kind in types.items() if total[word] > 2 and word.lower() not in words}


def _drawn(pools: list[list[Any]], count: int, rng: random.Random) -> dict[str, list[Any]]:
    """Look at lines of chapters, from each pool in turn, until there are enough examples of each task."""
    found: dict[str, dict[Any, None]] = {"pair": {}, "sentence": {}, "spans": {}, "names": {}}
    for pool in islice(cycle(pools), 100 * count):
        for task, example in _examples(rng, *rng.choice(pool)):
            found[task][example] = None
        if min(map(len, found.values())) >= count:
            break
    return {task: [*examples][:count] for task, examples in found.items()}


def _examples(rng: random.Random, author: str, names: dict[str, str], lines: list[str]) -> Iterator[Any]:
    """Yield what a line of a chapter is good for, each with the name of its task."""
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    line, context = lines[at], " ".join(lines[max(0, at - BEFORE) : at])
    around = [*lines[at : at + 2], *lines[other : other + 2]]
    fit = [FEWEST <= len(one.split()) <= MOST and "_" not in one for one in around]
    if not fit[0]:
        return
    if abs(at - other) > 2 and fit == [True] * 4:  # both stand behind a line that fits: none tells by itself
        yield "pair", (("text", line), ("second", around[1]), ("label", "next"))
        yield "pair", (("text", line), ("second", around[3]), ("label", "elsewhere"))
    rows = []
    for is_named, run in groupby(WORD.findall(line), names.__contains__):
        words = list(run)  # names in a row are one, of the type of its last word
        rows += [(word.lower(), f"I-{names[words[-1]]}" if is_named else "O") for word in words]
    if any(tag != "O" for _, tag in rows):
        yield "names", tuple(rows)
    elif author in CLASSES:
        yield "sentence", (("text", line), ("label", author))
    places = {m[0]: m.start() for m in WORD.finditer(context) if m[0] in names}  # the last of each
    gaps = [m for m in WORD.finditer(line) if m[0] in places and line.count(m[0]) == 1]
    if len(places) > 1 and gaps and len(context.split()) <= MOST * BEFORE:
        gap = rng.choice(gaps)
        yield "spans", (context, f"{line[: gap.start()]}_{line[gap.end() :]}", gap[0], places[gap[0]])
