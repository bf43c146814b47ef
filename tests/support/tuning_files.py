"""Tiny files of downstream tasks in their official layouts, with a vocabulary and a model that know them."""

import json
from itertools import cycle, islice, product
from pathlib import Path

import small_entities
from small_entities import NAMES, PLACES

from minibert import Tokenizer

GOOD, BAD = ("good", "fine", "great"), ("bad", "dull", "poor")
THINGS = ("film", "book", "play", "song")
OTHERS = ("the", "a", "is", "was", "lives", "in", "who", "where", "?", ".", "and", "very", "here")
WORDS = (*NAMES, *PLACES, *GOOD, *BAD, *THINGS, *OTHERS)


def write_vocabulary(folder: Path) -> Tokenizer:
    """A tokenizer that knows all words of these files."""
    return small_entities.write_vocabulary(folder, WORDS)


def write_model(folder: Path) -> Path:
    """An untrained BERT of two layers with that vocabulary; its weights are wide, to learn in a few steps."""
    return small_entities.write_model(folder, WORDS, initializer_range=0.2)


def write_data(folder: Path) -> Path:
    """SST-2, MRPC, RTE, CoNLL-2003 and SQuAD 1.1, each with train and dev."""
    for split, count in (("train", 48), ("dev", 24)):
        write_table(folder / f"glue/SST-2/{split}.tsv", ("sentence", "label"), reviews(count))
        write_table(
            folder / f"glue/MRPC/{split}.tsv",
            ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            [(label, n, n + 1, one, other) for n, (one, other, label) in enumerate(pairs(count))],
        )
        named = ("not_entailment", "entailment")
        write_table(
            folder / f"glue/RTE/{split}.tsv",
            ("index", "sentence1", "sentence2", "label"),
            [(n, one, other, named[label]) for n, (one, other, label) in enumerate(pairs(count))],
        )
        write(folder / f"squad/{split}-v1.1.json", json.dumps(questions(split, count)))
    write(folder / "ner/eng.train", documents(9))
    write(folder / "ner/eng.testa", documents(3))
    return folder


def reviews(count: int) -> list[tuple[str, int]]:
    """Whether a thing is good, which one word tells."""
    every = product(THINGS, ("the", "a"), [*zip(GOOD, BAD, strict=True)], (1, 0))
    made = [(f"{article} {thing} is {two[1 - label]} .", label) for thing, article, two, label in every]
    return list(islice(cycle(made), count))


def pairs(count: int) -> list[tuple[str, str, int]]:
    """Whether somebody lives where the second sentence says."""
    every = product(NAMES, PLACES, PLACES)
    made = [
        (f"{name} lives in {place} .", f"{name} is in {other} .", int(place == other))
        for name, place, other in every
    ]
    return list(islice(cycle(made), count))


def questions(split: str, count: int) -> dict:
    """Who lives where: an article of one paragraph for each question, in the layout of SQuAD."""
    articles = []
    for n, (name, place) in enumerate(islice(cycle(product(NAMES, PLACES)), count)):
        more = n % 3 * " The film is dull ."
        context = f"The book is here . {name.title()} lives in {place.title()} and is very good .{more}"
        asked, answer = ((f"Where is {name.title()} ?", place), ("Who lives here ?", name))[n % 2]
        given = {"text": answer.title(), "answer_start": context.index(answer.title())}
        qas = [{"id": f"{split}{n}", "question": asked, "answers": [given]}]
        articles.append({"title": name, "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "1.1", "data": articles}


def documents(count: int) -> str:
    """Documents of three sentences in the columns of CoNLL-2003, tags in IOB1."""
    return small_entities.documents(islice(cycle(product(NAMES, PLACES)), count))


def write_table(path: Path, header: tuple, rows: list[tuple]) -> None:
    """Columns between tabs."""
    write(path, "".join("\t".join(map(str, row)) + "\n" for row in (header, *rows)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
