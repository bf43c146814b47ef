"""Predict with fine-tuned models: one, or several whose outputs are averaged."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError, naming
from minibert.model.head_kinds import SIMILARITY
from minibert.tasks.batches import lengths
from minibert.tasks.registry import same_answers
from minibert.tasks.task import TrainedModel
from minibert.tasks.truncation import Truncation
from minibert.training.runlog import Progress

CHUNK = 2048  # number of examples whose features are in memory at the same time


def predict_examples(
    models: Sequence[TrainedModel],
    examples: Sequence[Any],
    show: bool = False,
    source: str = "",
    cuts: Truncation | None = None,
) -> Iterator[Any]:
    """Yield the prediction for each example, in order. Predictions are made as they are asked for.

    The outputs of several models are averaged (the paper's ensemble; see `check_ensemble`), and so are the
    values that each model chose on dev, such as a threshold.

    Parameters
    ----------
    models : sequence of TrainedModel
        At least one model.
    examples : sequence
        Examples of the models' task.
    show : bool, default False
        Whether to show progress on the error stream.
    source : str, default ""
        Where the examples come from; errors name it.
    cuts : Truncation, optional
        Counter for the texts that are cut.

    Yields
    ------
    Any
        A prediction, see `Task.predict`.
    """
    first = models[0]
    tuned = averaged_tuned(models)
    size = len(examples) if first.task.needs_all_examples else CHUNK
    with Progress(len(examples), "examples", show) as progress:
        for part in chunks(examples, size):
            with naming(source):
                features = first.features(part)
            if cuts is not None:
                cuts.add(features)
            tokens = len(models) * int(lengths(features).sum())
            share = _share(progress, len(part), tokens)
            each_outputs = [model.outputs(features, done=share) for model in models]
            outputs = [np.mean(each, axis=0) for each in zip(*each_outputs, strict=True)]
            yield from first.task.predict(part, features, outputs, first.labels, tuned)


def averaged_tuned(models: Sequence[TrainedModel]) -> dict[str, float]:
    """Return the values that models chose on dev, averaged.

    Parameters
    ----------
    models : sequence of TrainedModel
        At least one model; all have chosen the same values.

    Returns
    -------
    dict of str to float
        Such as the threshold of each class.
    """
    return {name: sum(model.tuned[name] for model in models) / len(models) for name in models[0].tuned}


def _share(progress: Progress, examples: int, tokens: int) -> Callable[[int], None]:
    """Return a function that is called with numbers of tokens, and shows the progress in examples."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        before = examples * done // tokens
        done += count
        progress.add(examples * done // tokens - before)

    return add


def chunks(examples: Sequence[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """Yield about `size` examples at a time, without dividing documents, as their sentences need each other.

    Parameters
    ----------
    examples : sequence
        Examples in order. If they have an attribute `document`, those of one document follow one another.
    size : int
        How many examples to yield; more to keep a document whole.

    Yields
    ------
    list
    """
    begin = 0
    while begin < len(examples):
        end = min(begin + size, len(examples))
        document = getattr(examples[end - 1], "document", None)
        while document is not None and end < len(examples) and examples[end].document == document:
            end += 1
        yield list(examples[begin:end])
        begin = end


def check_ensemble(models: Sequence[TrainedModel]) -> None:
    """Check that the outputs of several models mean the same.

    Parameters
    ----------
    models : sequence of TrainedModel
        At least one model.

    Raises
    ------
    InputError
        When two models differ in task, labels, lengths, vocabulary or approach, or their outputs can't be
        averaged.
    """
    first = models[0]
    task = first.task.name
    if len(models) > 1 and first.head.kind in SIMILARITY:
        raise InputError(f"{task} compares vectors, which can't be averaged over models; give one model.")
    vocabulary = {**first.tokenizer.__getstate__(), "core": ""}
    for other in models[1:]:
        for what, value, other_value in (
            ("approach (LSTMs on frozen layers are averaged only with such)", type(first), type(other)),
            ("task", True, same_answers(task, other.task.name)),
            ("texts, single or in pairs", first.pair, other.pair),
            ("output layer", first.head, other.head),
            ("labels", first.labels, other.labels),
            ("length of sequences", first.max_length, other.max_length),
            ("windows of long texts", first.task.long, other.task.long),
            ("tuned values", first.tuned.keys(), other.tuned.keys()),
            ("vocabulary", vocabulary, {**other.tokenizer.__getstate__(), "core": ""}),
        ):
            if value != other_value:
                both = f"'{first.folder}' and '{other.folder}' can't be averaged: they differ in their {what}"
                advice = "give models that were fine-tuned for the same task from the same vocabulary."
                raise InputError(f"{both}; {advice}")
