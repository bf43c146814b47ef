"""Tasks made from the books: each example is held against the books themselves."""

import json
import re
from itertools import groupby

import pytest
from paths import PACKAGE

from minibert.data.corpus import SentenceStream, embedded_corpus
from minibert.experiments import smoke_tasks
from minibert.tasks.registry import create

SIZES = {"train": 160, "dev": 80}
TASKS = {
    "pair": ("classify", {"second": "second"}),
    "sentence": ("classify", {}),
    "spans": ("squad1", {}),
    "names": ("ner-sentences", {}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    smoke_tasks.make(folder, **SIZES)
    return folder


@pytest.fixture(scope="module")
def chapters():
    parts = groupby(SentenceStream(embedded_corpus(), "sentences"), lambda line: line is None)
    return [list(lines) for is_mark, lines in parts if not is_mark]


def read(made, name, split):
    task, columns = TASKS[name]
    return create(task, columns).read(made / name, split)


@pytest.mark.representatives(name="pair")
@pytest.mark.parametrize("name", TASKS)
def test_tasks_read_as_many_examples_as_were_asked_for_and_none_twice(made, name):
    for split, count in SIZES.items():
        examples = [
            one._replace(**{"document" if name == "names" else "id": 0}) for one in read(made, name, split)
        ]
        assert len(set(examples)) == len(examples) == count


@pytest.mark.thorough
def test_the_same_arguments_give_the_same_bytes_and_another_seed_others(made, tmp_path):
    smoke_tasks.make(tmp_path / "again", **SIZES)
    smoke_tasks.make(tmp_path / "other", seed=1, **SIZES)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    assert len(files) == 8
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (made / file).read_bytes()
        assert (tmp_path / "other" / file).read_bytes() != (made / file).read_bytes()


def test_borders_of_the_books_are_those_of_their_page():
    rows = [
        line.split("|")[1:-1]
        for line in (PACKAGE / "corpora/README.md").read_text().split("\n")
        if "|" in line
    ]
    rows = [[cell.strip() for cell in row] for row in rows[2:]]
    expected = [("Bible" if "Bible" in row[0] else row[1].split()[-1], int(row[4])) for row in rows]
    assert list(smoke_tasks.CHAPTERS) == expected


def where(chapters, text):
    """Numbers of the chapters in which some lines stand one behind the other."""
    return {number for number, lines in enumerate(chapters) if f"\n{text}\n" in "\n".join(["", *lines, ""])}


@pytest.mark.thorough
def test_half_of_the_pairs_follow_and_the_others_are_of_the_same_chapter(made, chapters):
    for split in SIZES:
        pairs = read(made, "pair", split)
        assert sum(one.label == "next" for one in pairs) / len(pairs) == pytest.approx(0.5, abs=0.03)
        for one in pairs:
            follows = where(chapters, f"{one.first}\n{one.second}")
            assert bool(follows) == (one.label == "next"), one
            assert where(chapters, one.first) & where(chapters, one.second), one


@pytest.mark.thorough
def test_no_chapter_is_in_train_and_dev_and_both_are_of_all_authors(made, chapters):
    found = {}
    for split in SIZES:
        places = (where(chapters, f"{e.first}\n{e.second}") for e in read(made, "pair", split))
        found[split] = {place.pop() for place in places if len(place) == 1}
    assert not found["train"] & found["dev"]
    ends = (129, 1007, 1018, 1030, 1078, 1110, 1232, 1244, 1272, 1381)  # the last chapter of each author's
    for places in found.values():
        of = [next(n for n, end in enumerate(ends) if place < end) for place in places]
        assert len(set(of)) >= 8


@pytest.mark.thorough
def test_sentences_are_by_the_author_who_is_their_label(made, chapters):
    first = {
        "Austen": (0, 129),
        "Chesterton": (1030, 1078),
        "Edgeworth": (1078, 1110),
        "Melville": (1110, 1232),
    }
    examples = read(made, "sentence", "train")
    assert {one.label for one in examples} == set(first)
    for one in examples:
        begin, end = first[one.label]
        assert any(begin <= place < end for place in where(chapters, one.first))
        assert not re.search(r"Emma|Ahab|Turnbull|Piedro", one.first)


@pytest.mark.thorough
def test_the_answer_fills_the_gap_with_a_name_of_the_sentences_before(made, chapters):
    whole = [" ".join(lines) for lines in chapters]
    for one in read(made, "spans", "dev"):
        [(text, start)] = one.answers
        assert one.context[start : start + len(text)] == text and text.istitle()
        assert one.question.count("_") == 1 and text not in one.question
        printed = f"{one.context} {one.question.replace('_', text)}"
        assert any(printed in chapter for chapter in whole), printed


@pytest.mark.thorough
def test_names_have_the_types_a_reader_would_give(made, chapters):
    printed = {re.sub(r"\s", "", line.lower()) for lines in chapters for line in lines}
    known = {
        "alice": "PER",
        "emma": "PER",
        "ahab": "PER",
        "david": "PER",
        "london": "LOC",
        "jerusalem": "LOC",
    }
    found = {}
    for one in read(made, "names", "train"):
        assert "".join(one.words) in printed
        found |= dict(zip(one.words, one.tags, strict=True))
    assert {tag[2:] for tag in found.values()} == {"", "PER", "LOC", "MISC"}
    seen = {word: found[word][2:] for word in known if word in found}
    assert len(seen) > 2 and seen == {word: known[word] for word in seen}


@pytest.mark.thorough
def test_files_are_in_the_official_layouts(made):
    first = (made / "names/eng.train").read_text().split("\n")[:3]
    assert first[:2] == ["-DOCSTART- -X- O O", ""] and re.fullmatch(
        r"\S+ -X- O (O|I-(PER|LOC|MISC))", first[2]
    )
    assert json.loads((made / "spans/dev-v1.1.json").read_text())["version"] == "1.1"
