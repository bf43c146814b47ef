"""What a metric is made of, example by example: put together it is the metric that the task reports."""

import random

import numpy as np
import pytest
from real_data import FIXTURES

from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.experiments import runner
from minibert.experiments.outcomes import measured, outcomes
from minibert.experiments.verdicts import Outcomes
from minibert.tasks.metrics.entities import chunks
from minibert.tasks.registry import create

RNG = random.Random(0)


def labelled(n=40):
    return [TextExample(str(k), "a", "b", RNG.choice("01")) for k in range(n)]


@pytest.mark.parametrize("name", ["sst2", "mrpc", "qqp", "rte", "classify"])
def test_accuracy_is_the_mean_of_what_is_right(name):
    task = create(name)
    examples = labelled()
    names = task.official or ("0", "1")
    examples = [one._replace(label=names[int(one.label)]) for one in examples]
    predictions = [{"label": RNG.choice(names)} for _ in examples]
    kind, values = outcomes(task, examples, predictions)
    assert kind == "mean" and set(values) == {0.0, 1.0}
    assert np.mean(values) == task.score(examples, predictions)["accuracy"]


def test_accuracy_of_choices():
    task = create("swag")
    examples = task.read(FIXTURES / "swag", "train")
    predictions = [{"choice": number % 2} for number, _ in enumerate(examples)]
    kind, values = outcomes(task, examples, predictions)
    assert (kind, values) == ("mean", [float(e.label == n % 2) for n, e in enumerate(examples)])
    assert np.mean(values) == task.score(examples, predictions)["accuracy"]


@pytest.mark.parametrize(("name", "split"), [("squad1", "train"), ("squad2", "dev")])
def test_f1_of_answers_is_the_mean_of_that_of_each_question(name, split):
    task = create(name)
    examples = task.read(FIXTURES / "squad", split)
    predictions = [
        {"id": one.id, "text": " ".join(one.context.split()[n : n + 3])} for n, one in enumerate(examples)
    ]
    first = next(number for number, one in enumerate(examples) if one.answers)
    predictions[first]["text"] = f"{examples[first].answers[0].text} besides"
    kind, values = outcomes(task, examples, predictions)
    assert kind == "mean" and any(0 < value < 1 for value in values)
    assert np.mean(values) == pytest.approx(task.score(examples, predictions)["f1"], rel=1e-14)


@pytest.mark.parametrize("tags", [("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC"), ("NN", "VB", "DT")])
def test_f1_of_entities_is_that_of_the_sums(tags):
    task = create("tag" if "NN" in tags else "ner")
    examples = [TaggedSentence(("w",) * 12, tuple(RNG.choices(tags, k=12)), n) for n in range(30)]
    predictions = [[tag if RNG.random() < 0.7 else RNG.choice(tags) for tag in one.tags] for one in examples]
    kind, values = outcomes(task, examples, predictions)
    right, found, expected = np.sum(values, axis=0)
    assert kind == "f1" and 0 < right < found
    assert 2 * right / (found + expected) == pytest.approx(task.score(examples, predictions)["f1"], rel=1e-14)
    if "O" in tags:
        first = set(chunks(examples[0].tags)), set(chunks(predictions[0]))
        assert values[0] == [len(first[0] & first[1]), len(first[1]), len(first[0])]


@pytest.mark.parametrize(
    ("documents", "groups"),
    [([0, 0, 0, 1, 2, 2], (3, 1, 2)), ([0, 1, 2, 3, 4, 5], ()), ([0, 1, 0, 2, 2, 2], ())],
    ids=["documents", "sentences alone", "in another order"],
)
def test_sentences_of_one_document_are_a_group(documents, groups):
    examples = [TaggedSentence(("w",), ("B-PER",), number) for number in documents]
    assert measured(create("ner"), examples, [["B-PER"]] * 6).groups == groups


def test_pairs_with_one_first_text_and_questions_about_one_paragraph_are_a_group():
    pairs = [TextExample(str(n), f"premise {n // 3}", f"h {n}", "0") for n in range(7)]
    answers = [{"label": "0"}] * 7
    entailed = [one._replace(label="entailment") for one in pairs]
    assert measured(create("rte"), entailed, answers).groups == (3, 3, 1)
    singles = [one._replace(second=None, label="0", first="same") for one in pairs]
    assert measured(create("sst2"), singles, answers).groups == ()
    apart = [pairs[number]._replace(label="entailment") for number in (0, 3, 1, 4, 2, 5, 6)]
    assert measured(create("rte"), apart, answers).groups == ()
    scored = [one._replace(label=float(number)) for number, one in enumerate(pairs)]
    found = measured(create("stsb"), scored, [{"value": float(number % 3)} for number in range(7)])
    assert found.groups == () and Outcomes.from_json(found.to_json()) == found
    task = create("squad1")
    asked = [one for one in task.read(FIXTURES / "squad", "train") for _ in range(2)]
    found = measured(task, asked, [{"id": one.id, "text": "the"} for one in asked]).groups
    contexts = [one.context for one in asked]
    assert found == tuple(contexts.count(one) for one in dict.fromkeys(contexts)) and len(found) < len(asked)


def test_a_correlation_has_no_such_parts():
    assert outcomes(create("cola"), labelled(), [{"label": "1"}] * 40) == ("", [])
    assert outcomes(
        create("stsb"), [one._replace(label=1.0) for one in labelled()], [{"value": 1.0}] * 40
    ) == ("", [])


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"failed": "No memory."}, "given up. No memory."),
        ({"dev": Outcomes("mean", np.array([1.0, 0.0, 1.0, 1.0])).to_json()}, "75.0 on dev"),
        ({"dev": Outcomes("mean", np.ones(4)).to_json(), "baseline": "lengths"}, "100.0 on dev by lengths"),
        ({"loss": 1.23456}, "held-out loss 1.235"),
        ({}, "done"),
    ],
)
def test_what_became_of_a_cell_is_told(result, told):
    assert runner._outcome(result) == told
