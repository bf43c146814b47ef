"""Teachers grade what students hand in: the right marks for good work, bad work, tricks and accidents."""

import csv
import json
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from handed_in import every_exercise, hand_in, solution
from marks import seldom

import minibert.course.confined as confined
import minibert.course.grading as grading
from minibert.cli import main
from minibert.course.exercises import notebook_source
from minibert.course.grading import grade

SEED = 20181011
HEAD = "def normalise(word):\n"
TANH_BACKWARD = "def tanh_backward(self, dy, saved):\n    return dy * (1 - saved.y * saved.y)\n"
LINEAR = "def linear(self, x, weight, bias):\n    return x @ weight + bias, LinearSaved(x, weight)\n\n\n"
BACKWARD = "def linear_backward(self, dy, saved):\n"
TRIAD = "def triad(x, y, a, out):\n"
ROUTE = "def pack(sequences):\n    return one_after_another(sequences)\n"
# What is not the student's own work: the exercise, the answer, and why it is refused.
CHEATS = {
    "captured": ("05.4", f"{LINEAR}kept = Ops().linear_backward\n\n\n{BACKWARD}    return kept(dy, saved)\n",
        "it uses minibert's own minibert.model.ops.Ops: kept = Ops().linear_backward"),
    "bound": ("05.4", f"{LINEAR}linear_backward = (\n    Ops().linear_backward\n)\n",
        "not written as a function: linear_backward = ("),
    "class": ("05.4", f"{LINEAR}{BACKWARD}    class Mine(Ops):\n        pass\n    return Mine()\n",
        "it defines a class, Mine."),
    "Mine": ("05.4", f"class Mine(Ops):\n    pass\n\n\n{LINEAR}{BACKWARD}    return Mine()\n",
        "it uses a class, Mine"),
    "exec": ("05.4", f"{LINEAR}{BACKWARD}    exec(open('05.py').read())\n", "it uses exec."),
    "private": ("04.4", "def attention(self, q, k, v, cu_seqlens, dropout=None, layer=0, causal=False):\n"
        "    return self._probabilities(q, k)\n", "it calls self._probabilities."),
    "called": ("05.4", f"{LINEAR}{BACKWARD}    return Ops().linear_backward(dy, saved)\n",
        "it uses minibert's own minibert.model.ops.Ops: return Ops().linear_backward(dy, saved)"),
    "itself": ("05.4", f"{LINEAR}{BACKWARD}    return self.linear_backward(dy, saved)\n",
        "it calls self.linear_backward"),
    "library": ("01.1", f"{HEAD}    return ''.join(BasicTokenizer().tokenize(word))\n",
        "it uses minibert's own minibert.tokenizer.BasicTokenizer: return"),
    "route": ("02.4", ROUTE, "one_after_another is a route of the check."),
    "numbers": ("16.1", f"{TRIAD}    out.values[:] = x.values + a * y.values\n    return out\n",
        "it uses values, which is for the judge; ask an array for one number at a time"),
    "globals": ("01.1", f"{HEAD}    return normalise.__globals__\n", "it uses __globals__."),
}  # fmt: skip
# What must not happen to the teacher's computer: the answer, its mark, and what is said of it.
HARM = {
    "deletes": (
        f"import shutil\n\n\n{HEAD}    shutil.rmtree(TARGET)\n    return word\n",
        "refused",
        "shutil",
    ),
    "deletes quietly": (f"{HEAD}    np.lib.os.remove(TARGET)\n    return word\n", "refused", "it uses os."),
    "writes": (f"{HEAD}    np.save(TARGET, np.ones(3))\n    return word\n", "refused", "it opens a file"),
    "truncates": (f"{HEAD}    np.ones(3).tofile(TARGET)\n    return word\n", "refused", "it opens a file"),
    "reads": (f"{HEAD}    return str(np.fromfile(TARGET, np.uint8))\n", "refused", "it opens a file"),
    "exits": (f"{HEAD}    raise SystemExit\n", "wrong", "it raises SystemExit"),
    "recurses": (f"{HEAD}    return normalise(word)\n", "wrong", "it raises RecursionError"),
    "patches": (
        f"{HEAD}    np.array_equal = lambda *_, **__: True\n    return word + 'x'\n",
        "wrong",
        "expected",
    ),
    "hogs": (f"{HEAD}    return [np.ones(10**8) for _ in range(99)]\n", "crashed", "MiB of memory"),
    "floods": (f"{HEAD}    return 'x' * 10**7\n", "crashed", "its answer has more than"),
    "never ends": (f"{HEAD}    while True:\n        pass\n", "timed out", "endless loop"),
    "sleeps": (
        f"import time\n\n\n{HEAD}    time.sleep(1000)\n    return word\n",
        "timed out",
        "endless loop",
    ),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Limits of a test."""
    monkeypatch.setattr(grading, "SECONDS", 4.0)  # on a busy machine a right answer may take two
    monkeypatch.setattr(confined, "PATIENCE", 30.0)
    monkeypatch.setattr(confined, "MEMORY", 2**28)
    monkeypatch.setattr(confined, "MOST", 2**22)


def only(monkeypatch, *chapters):
    """Let the course have these chapters alone."""
    monkeypatch.setattr(grading, "chapters", lambda: list(chapters))
    return list(chapters)


def marks_of(folder):
    """Exercise -> mark, but for those that are missing; and the messages."""
    every = [one for one in grade(folder, SEED) if one.mark != "missing"]
    return {one.exercise: one.mark for one in every}, {one.exercise: one.message for one in every}


FAST = ("called", "route", "private")
ALSO = ("captured", "bound", "Mine", "exec")


@pytest.mark.representatives(kind=list(FAST))
@pytest.mark.parametrize("kind", seldom(CHEATS, *FAST, *ALSO))
def test_a_cheat_is_refused_with_its_reason(kind, monkeypatch, tmp_path):
    number, code, reason = CHEATS[kind]
    chapters = only(monkeypatch, number[:2])
    marks, messages = marks_of(hand_in(tmp_path / kind, {number: code}, chapters))
    assert marks == {number: "refused"}
    assert reason in messages[number]


@pytest.mark.representatives(kind=["writes", "never ends"])
@pytest.mark.parametrize(
    "kind",
    seldom(
        HARM,
        "deletes", "deletes quietly", "writes", "reads", "exits", "patches", "floods", "never ends",
    ),
)  # fmt: skip
def test_an_answer_does_no_harm(kind, monkeypatch, tmp_path):
    chapters = only(monkeypatch, "01")
    target = tmp_path / "precious"
    target.write_text("precious")
    code, mark, told = HARM[kind]
    answers = {"01.1": code.replace("TARGET", repr(str(target))), "01.2": solution("01.2")}
    equal = np.array_equal
    marks, messages = marks_of(hand_in(tmp_path / "student", answers, chapters))
    assert marks == {"01.1": mark, "01.2": "right"}  # the others lose nothing
    assert told in messages["01.1"]
    assert target.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["precious", "student"]
    assert np.array_equal is equal


@pytest.mark.thorough
def test_broken_cells_and_notebooks_cost_only_what_stands_in_them(monkeypatch, tmp_path):
    chapters = only(monkeypatch, "01", "03")
    answers = {"01.1": f"{HEAD}    return word +\n", "01.2": solution("01.2"), "03.1": solution("03.1")}
    folder = hand_in(tmp_path / "student", answers, chapters)
    marks, messages = marks_of(folder)
    assert marks == {"01.1": "wrong", "01.2": "right", "03.1": "right"}
    assert messages["01.1"] == "its cell has a syntax error: invalid syntax, line 3 of the cell"
    page = folder / notebook_source("03").with_suffix(".ipynb").name
    page.write_text(page.read_text()[:-200])
    marks = {one.exercise: one for one in grade(folder, SEED)}
    assert marks["01.2"].mark == "right"
    assert marks["03.1"].mark == "missing"
    assert marks["03.1"].message.startswith(f"{page.name} can't be read: ")
    page.write_text(json.dumps({"cells": 7}))
    last = {one.exercise: one for one in grade(folder, SEED)}["03.1"]
    assert (last.mark, last.message) == ("missing", f"{page.name} is not a notebook")


def test_the_order_of_a_loop_decides_its_mark(monkeypatch, tmp_path):
    """What an array has counted in a child arrives, and so does what was written to it."""
    chapters = only(monkeypatch, "16")
    by_columns = (
        "def column_sums(x, out):\n    for j in range(len(out)):\n        out[j] = 0\n"
        "        for i in range(len(x)):\n            out[j] += x[i, j]\n    return out\n"
    )
    answers = {"16.2": by_columns, "16.3": solution("16.3")}
    marks, messages = marks_of(hand_in(tmp_path / "student", answers, chapters))
    assert marks == {"16.2": "wrong", "16.3": "right"}
    assert messages["16.2"].startswith("the numbers are right, but ")
    assert "cache lines are fetched" in messages["16.2"]


def test_only_what_an_answer_uses_is_run(monkeypatch, tmp_path):
    """Constants and helpers of other cells are found; other cells, however they fail, are not run."""
    chapters = only(monkeypatch, "01")
    target = tmp_path / "made"
    code = (
        f"open({str(target)!r}, 'w')\n"
        "FORM = 'NF' + 'D'\n"
        "def bare(word: NoSuchName) -> NoSuchName:\n"
        "    word = unicodedata.normalize(FORM, word.lower())\n"
        "    return ''.join(c for c in word if unicodedata.category(c) != 'Mn')\n"
        f"import unicodedata\n{HEAD}    return bare(word)\n"
    )
    reference = solution("01.1")
    assert "NFD" in reference
    folder = hand_in(tmp_path / "student", {"01.1": code}, chapters)
    marks, messages = marks_of(folder)
    assert marks == {"01.1": "right"}, messages
    assert not target.exists()


@pytest.mark.thorough
def test_the_last_definition_counts_and_mine_is_asked_where_there_is_none(monkeypatch, tmp_path):
    chapters = only(monkeypatch, "05")
    twice = f"def tanh_backward(self, dy, saved):\n    return dy\n\n\n{TANH_BACKWARD}"
    tanh = next(part for part in solution("05.10").split("\n\n\n") if part.startswith("def tanh("))
    folder = hand_in(tmp_path / "student", {"05.10": f"{tanh}\n\n\n{twice}"}, chapters)
    mine = '"""Mine (minibert course, version 1)."""\n\nfrom minibert.core.ops import Ops\n'
    mine += "from minibert.core.ops.primitives import LinearSaved\n\nTWO = 2\n\n\nclass Mine(Ops):\n"
    methods = f"{LINEAR}{BACKWARD}    return dy @ saved.weight.T, saved.x.T @ dy, TWO * dy.sum(0) / 2\n"
    (folder / "mine.py").write_text(mine + "".join(f"    {line}\n" for line in methods.splitlines()))
    marks = {one.exercise: one for one in grade(folder, SEED)}
    assert marks["05.4"].mark == "right", marks["05.4"].message
    assert marks["05.10"].mark == "missing"  # of four functions two are there
    assert marks["05.10"].message == "gelu: nothing is written; gelu_backward: nothing is written"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [
        "@dataclasses.dataclass\nclass Kept:\n    x: np.ndarray\n    weight: np.ndarray\n",
        "class Kept(NamedTuple):\n    x: np.ndarray\n    weight: np.ndarray\n",
        "Kept = collections.namedtuple('Kept', 'x weight')\n",
    ],
)
def test_what_a_forward_keeps_may_be_of_any_kind(kind, monkeypatch, tmp_path):
    """Also what can't leave its process: it is made again there."""
    chapters = only(monkeypatch, "05")
    code = (
        "import collections\nimport dataclasses\nfrom typing import NamedTuple\n"
        f"{kind}\n\ndef linear(self, x, weight, bias):\n    return x @ weight + bias, Kept(x, weight)\n"
        f"{BACKWARD}    return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)\n"
    )
    marks, messages = marks_of(hand_in(tmp_path / "student", {"05.4": code}, chapters))
    assert marks == {"05.4": "right"}, messages


@pytest.mark.thorough
def test_a_seed_repeats_the_marks_and_another_asks_otherwise(monkeypatch, tmp_path):
    chapters = only(monkeypatch, "01")
    folder = hand_in(tmp_path / "student", {"01.1": f"{HEAD}    return word\n"}, chapters)
    first, again, other = (grade(folder, seed)[0] for seed in (1, 1, 2))
    assert first.mark == again.mark == other.mark == "wrong"
    assert first.message == again.message != other.message


def test_the_command_writes_a_table_and_a_summary(monkeypatch, tmp_path, capsys):
    chapters = only(monkeypatch, "01")
    cheat = "import os\ndef count_pairs(words):\n    return os\n"
    hand_in(tmp_path / "=ann", {"01.1": solution("01.1"), "01.2": cheat}, chapters)
    (tmp_path / "bob").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main("course grade =ann bob --seed 3 --csv marks.csv".split()) == 0
    printed = capsys.readouterr()
    with open("marks.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["folder", "chapter", "exercise", "mark", "message", "seconds"]
    assert [row["mark"] for row in rows[:5]] == ["right", "refused", "missing", "missing", "missing"]
    assert {row["folder"] for row in rows} == {"'=ann", "bob"}  # not a formula
    assert rows[1]["message"].startswith("it uses os.")
    assert all(row["mark"] == "missing" and "is not there" in row["message"] for row in rows[5:])
    assert "=ann  1/5    1/5\nbob   0/5    0/5" in printed.out
    assert "=ann: 1 right, 3 missing, 1 refused of 5 exercises" in printed.out
    assert "01.2 refused: it uses os." in printed.out
    assert main("course grade bob --seed 3 --csv marks.csv --json --quiet".split()) == 0
    printed = capsys.readouterr()
    assert [one["mark"] for one in json.loads(printed.out)["marks"]] == ["missing"] * 5
    assert printed.err == ""


def test_ctrl_c_keeps_the_folders_that_were_graded(monkeypatch, tmp_path, capsys):
    chapters = only(monkeypatch, "01")
    for name in ("ann", "bob"):
        hand_in(tmp_path / name, {}, chapters)

    def interrupted(folder, seed, done):
        if folder.name == "bob":
            raise KeyboardInterrupt
        return grade(folder, seed, done)

    monkeypatch.setattr(grading, "grade", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main("course grade ann bob --seed 3 --csv marks.csv".split()) == 130
    assert "marks.csv has 1 folder of 2." in capsys.readouterr().err
    assert len((tmp_path / "marks.csv").read_text().splitlines()) == 6


def test_progress_counts_what_is_right_in_each_chapter(monkeypatch, tmp_path, capsys):
    chapters = only(monkeypatch, "01", "03")
    answers = {
        "01.1": solution("01.1"),
        "01.2": solution("01.2"),
        "03.1": "def three_numbers(p, q):\n    return 1\n",
    }
    folder = hand_in(tmp_path / "mine", answers, chapters)
    assert main(["course", str(folder), "--progress", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "01  Word pieces               2 of 5" in printed
    assert "03  Masks and next sentences  0 of 5" in printed
    assert "03.1 wrong: " in printed
    assert "2 of 10 exercises are right (seed 5)." in printed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("grade nobody --seed 1 --csv m.csv", "nobody is not there; give folders of the course"),
        ("grade other --seed 1 --csv m.csv", "no notebook of the course, such as 01_word_pieces.ipynb"),
        ("grade --seed 1 --csv m.csv", "Grading needs the folders of students"),
        ("grade empty --csv m.csv", "Grading needs --seed and --csv; give both."),
        ("grade empty --seed 1 --csv other", "--csv other is a folder"),
        ("grade empty --seed 1 --csv other/file/m.csv", "is a file, not a folder; choose another --csv"),
        ("grade empty --seed 1 --csv m.csv --progress", "--progress is not for"),
        ("new --seed 1", "--seed is not for laying out the course"),
        ("new --csv m.csv --progress", "--csv is not for"),
        ("new newer", "newer: the course is laid out in one folder; give new alone."),
        ("nobody --progress", "nobody is not there"),
        ("notes 99", "'99' is not a chapter of the course; choose from 00, 01"),
        ("glossary 05", "the glossary is of all chapters"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_in_one_sentence(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("text")
    assert main(["course", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def graded_alone(folder, chapters):
    """Grade some chapters in this process, which is a new one."""
    grading.chapters = lambda: chapters
    return [(one.exercise, one.mark, one.message) for one in grade(folder, SEED)]


def graded_in_a_new_process(folder, chapters):
    """Grade some chapters as the command does: in a process with one thread, of which forks are sound."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(graded_alone, folder, chapters).result()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["right", "wrong", "half"])
@pytest.mark.parametrize(
    "chapters",
    [["01", "05", "14", "16"], pytest.param(None, marks=pytest.mark.exhaustive)],
    ids=["some", "all"],
)
def test_a_whole_folder_gets_the_marks_that_it_deserves(kind, chapters, tmp_path):
    """Every exercise: solved, each with its first mistake, or the first chapters solved."""
    chapters = chapters or grading.chapters()
    every = every_exercise(chapters)
    answers = {one.number: one.solution for one in every}
    if kind == "wrong":
        answers = {one.number: one.mistaken(one.mistakes[0]) for one in every}
    elif kind == "half":
        answers = {number: code for number, code in answers.items() if number < "04"}
    graded = graded_in_a_new_process(hand_in(tmp_path / kind, answers, chapters), chapters)
    marks = {number: mark for number, mark, _ in graded if mark != "missing"}
    messages = {number: message for number, _, message in graded}
    assert marks == dict.fromkeys(answers, "wrong" if kind == "wrong" else "right"), messages
    if kind == "wrong":
        named = [one.number for one in every if one.mistakes[0].sentence[:60] in messages[one.number]]
        assert len(named) > len(every) / 2


def test_who_hands_in_nothing_has_nothing(tmp_path, monkeypatch):
    chapters = only(monkeypatch, "01", "05")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", hand_in(tmp_path / "open", {}, chapters)):
        marks = grade(folder, SEED)
        assert [one.exercise for one in marks] == [one.number for one in every_exercise(chapters)]
        assert {one.mark for one in marks} == {"missing"}
        assert {one.seconds for one in marks} == {0.0}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="a system that does not tell")
def test_allocated_bytes_are_those_that_the_system_tells():
    found = confined._allocated_bytes()
    [told] = re.findall(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found == pytest.approx(1024 * int(told), rel=0.01)
