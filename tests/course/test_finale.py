"""What goes into the last run: the reader's vocabulary, masks and batches; and where routes stand."""

import ast
from collections import Counter

import numpy as np
import pytest
from course import execute, notebooks

from minibert import course
from minibert.core.batch import Batch, Sequence
from minibert.core.wordpiece import gain, learn, neighbours, split_words
from minibert.course import mine
from minibert.course.exercises import exercises
from minibert.course.finale import learn_pieces, masked_and_packed
from minibert.course.judging import is_on_sheet
from minibert.course.routes import ROUTES, library_step

TEXT = "the whale rams the ship and the sailor hails the other whale hooray banana bananas " * 3
CHAINS = ("05", "06", "10")


def pairs_of(text):
    found = Counter()
    for pieces, n in text:
        for pair in neighbours(pieces):
            found[pair] += n
    return found


def gain_of(counts, pair, n):
    return gain(pair, n, Counter(counts))


def test_pieces_are_those_of_the_core_if_every_pair_is_asked():
    words = Counter(split_words(TEXT))
    assert learn_pieces(words, 60, pairs_of, gain_of, asked=10**6) == learn(words, 60)
    assert learn_pieces(words, 10**6, pairs_of, gain_of) == learn(words, 10**6, min_frequency=2)


def test_a_custom_gain_decides_what_is_joined():
    words = {"ab": 5, "cd": 9}
    found = [learn_pieces(words, 14, pairs_of, one)[-1] for one in (lambda c, p, n: n, lambda c, p, n: -n)]
    assert found == ["cd", "ab"]


def batch_of_two():
    return Batch.pack(
        [
            Sequence(np.array([2, 9, 4, 3]), np.zeros(4, int), np.array([2]), np.array([8])),
            Sequence(np.array([2, 7, 6, 5, 3]), np.zeros(5, int), np.array([1, 3]), np.array([7, 5])),
        ]
    )


def test_targets_are_hidden_and_batches_laid_out_by_the_functions_given():
    def mask_tokens(ids, chosen, draw, random_ids, mask_id):
        assert random_ids.max() < 12 and 0 <= draw.min() and draw.max() < 1
        return np.where(chosen, mask_id, ids), ids[chosen]

    def pack(sequences):
        lengths = [len(one) for one in sequences]
        return np.concatenate(sequences), np.arange(sum(lengths)), np.cumsum([0, *lengths])

    batch, rng = batch_of_two(), np.random.default_rng(0)
    same = masked_and_packed(batch, 4, 12, rng)
    assert same is batch
    found = masked_and_packed(batch, 4, 12, rng, mask_tokens, pack)
    assert found.input_ids.tolist() == [2, 9, 4, 3, 2, 4, 6, 4, 3]
    assert found.masked_labels.tolist() == [8, 7, 5]
    assert found.positions.tolist() == list(range(9)) and found.cu_seqlens.tolist() == [0, 4, 9]
    assert found.input_ids.dtype == batch.input_ids.dtype
    assert batch.input_ids.tolist() == [2, 9, 4, 3, 2, 7, 6, 5, 3]


def written(code, **names):
    namespace = {"__name__": "__main__", "np": np, **names}
    execute(code, namespace)
    return [one for one in namespace.values() if getattr(one, "__module__", "") == "__main__"][-1]


def test_a_tool_of_the_last_run_is_kept_and_the_next_chapter_has_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lesson = course.begin("10")
    assert lesson.tool("train_step") is None
    assert "minibert's own stands in, for exercise 10.2" in capsys.readouterr().out
    head = "def train_step(ops, config, flat, m, v, batch, number, rate):\n"
    helper = "def helped(*args):\n    return kept(*args)\n"
    body = "    return helped(ops, config, flat, m, v, batch, number, rate)\n"
    step = written(f"{helper}{head}{body}", kept=library_step)
    lesson.check(step)
    assert lesson.verdicts[-1].state == "passed"
    again = course.begin("10")
    assert list(again.tools) == ["train_step"] and not again.mine
    assert again.tool("train_step") is again.tools["train_step"]
    assert "train_step: yours, from exercise 10.2." in capsys.readouterr().out
    again.keep()
    assert list(course.begin("10").tools) == ["train_step"]
    wrong = written(f"{head}    return flat, m, v, 0.0\n")
    again.check(wrong)
    assert again.verdicts[-1].state == "failed" and not again.tools


def test_tools_are_asked_for_by_the_exercise_that_is_named():
    asked = {name: one.number for path in notebooks() for one in exercises(path) for name in one.functions}
    assert {name: asked[name] for name in mine.TOOLS} == mine.TOOLS


@pytest.mark.parametrize("number", CHAINS)
def test_routes_stand_in_the_package_and_not_in_the_notebook(number):
    path = next(one for one in notebooks() if one.name.startswith(number))
    for exercise in exercises(path):
        calls = [f"lesson.check({name})" for name in exercise.functions]
        assert [ast.unparse(node) for node in ast.parse(exercise.check).body] == calls, exercise.number
        assert all(is_on_sheet(name) != (name in ROUTES) for name in exercise.functions), exercise.number
