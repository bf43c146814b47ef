"""Types of what reports hold: every report has the fields that its type says, and no others."""

import json
from typing import get_args, get_origin, get_type_hints, is_typeddict

import pytest
from small_corpus import write_corpus
from small_tasks import reviews, write_model, write_sst2

import minibert
from minibert.base.json_files import fits
from minibert.finetuning import run as finetuning
from minibert.reports.contents import (
    Evaluation,
    FilledGap,
    FinetuneReport,
    HeldOutMetrics,
    Prediction,
    PretrainReport,
)

FAST = dict(engine="numpy", batch_size=16, max_steps=2)


def is_of(value, kind):
    """Whether a value of JSON is of a type that may have typed dictionaries in it."""
    options = [option for option in get_args(kind) if is_typeddict(option)]
    if get_origin(kind) is list and options:
        return all(is_of(part, options[0]) for part in value)
    if options and value is not None:  # or None
        return is_of(value, options[0])
    if not is_typeddict(kind):
        return value is None if options else fits(value, kind)
    hints = get_type_hints(kind)
    return kind.__required_keys__ <= value.keys() <= hints.keys() and all(
        is_of(part, hints[name]) for name, part in value.items() if "Any" not in str(hints[name])
    )


def stored(report):
    return json.loads(json.dumps(report))


@pytest.mark.parametrize(
    ("value", "kind", "holds"),
    [
        ({"label": "a", "probabilities": {"a": 1.0}}, Prediction, True),
        ({"label": 1}, Prediction, False),
        ({"colour": "a"}, Prediction, False),
        ({"text": "a", "answer": None, "guesses": [["a", 0.5]]}, FilledGap, True),
        ({"text": "a", "guesses": []}, FilledGap, False),
        ([{"text": "a", "answer": None, "guesses": [["a", "b"]]}], list[FilledGap], False),
        (None, HeldOutMetrics | None, True),
        ({}, HeldOutMetrics | None, False),
    ],
)
def test_the_check_of_types_finds_wrong_and_missing_fields(value, kind, holds):
    assert is_of(value, kind) is holds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contents")
    write_model(folder / "model")
    write_sst2(folder / "sst2")
    return folder


def test_reports_of_fine_tuning_and_evaluations_are_what_their_types_say(folder):
    names = [str(folder / name) for name in ("sst2", "model")]
    run = minibert.finetune("sst2", *names, out=folder / "run", show=False, **FAST)
    assert is_of(stored(run.report), FinetuneReport)
    assert is_of(stored(minibert.Run.open(folder / "run").report), FinetuneReport)
    evaluation = finetuning.evaluate(folder / "run", engine="numpy")
    assert is_of(stored(evaluation), Evaluation) and evaluation["models"] == [str(folder / "run")]
    predictions = finetuning.classify(folder / "run", ["a fine film"], engine="numpy")
    assert all(is_of(stored(prediction), Prediction) for prediction in predictions)


@pytest.mark.parametrize("labels", ["classes", "numbers", "several"])
def test_evaluations_of_estimators_are_what_their_types_say(folder, labels):
    texts, classes = zip(*reviews(40, 1), strict=True)
    kind, y = {
        "classes": (minibert.TextClassifier, list(classes)),
        "numbers": (
            minibert.TextRegressor,
            [float(label) + len(text) for text, label in zip(texts, classes, strict=True)],
        ),
        "several": (
            minibert.MultilabelClassifier,
            [["a"] if label == "1" else ["a", "b"] for label in classes],
        ),
    }[labels]
    estimator = kind(folder / "model", **FAST).fit(texts, y)
    evaluation = stored(estimator.evaluate(texts, y))
    assert is_of(evaluation, Evaluation)
    assert ("constant" in evaluation) == (labels == "numbers")
    assert ("untuned" in evaluation) == (labels == "several")
    places = {"folder": "f", "page": "p"}  # which those of `fit` do not have
    assert is_of(stored(estimator.report_) | places, FinetuneReport)
    assert str(estimator.evaluate(texts, y)).startswith(evaluation["title"])


def test_reports_of_pre_training_are_what_their_type_says(folder):
    corpus = str(write_corpus(folder / "animals.txt"))
    small = dict(vocab_size=120, seq_length="16", batch_size=8, max_positions=16, engine="numpy", show=False)
    run = minibert.pretrain(corpus, steps=2, out=folder / "pretrained", **small)
    assert is_of(stored(run.report), PretrainReport)
    assert is_of(stored(run.report["held_out"]), HeldOutMetrics)
    assert is_of(stored(minibert.Run.open(folder / "pretrained").report), PretrainReport)
