"""What fine-tuned models say of examples: one model, or several whose outputs are averaged."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError, naming
from minibert.finetuning.models import Finetuned
from minibert.tasks import similarity_losses
from minibert.tasks.batches import lengths
from minibert.tasks.cuts import Cuts
from minibert.tasks.registry import same_answers
from minibert.training.runlog import Progress

CHUNK = 2048  # examples whose features are in memory at a time


def predict_examples(
    models: Sequence[Finetuned],
    examples: Sequence[Any],
    show: bool = False,
    source: str = "",
    cuts: Cuts | None = None,
) -> Iterator[Any]:
    """Yield the prediction of each example, in their order, made as they are asked for.

    Outputs of several models are averaged (the paper's ensemble; see `check_ensemble`), as is what each has
    chosen on dev, such as a threshold. Errors name the `source` of the examples; `cuts` counts what is cut.
    """
    first = models[0]
    tuned = {name: sum(model.tuned[name] for model in models) / len(models) for name in first.tuned}
    with Progress(len(examples), "examples", show) as progress:
        for part in chunks(examples, len(examples) if first.task.together else CHUNK):
            with naming(source):
                features = first.features(part)
            if cuts is not None:
                cuts.add(features)
            share = _share(progress, len(part), len(models) * int(lengths(features).sum()))
            each_outputs = [model.outputs(features, done=share) for model in models]
            outputs = [np.mean(each, axis=0) for each in zip(*each_outputs, strict=True)]
            yield from first.task.predict(part, features, outputs, first.labels, tuned)


def _share(progress: Progress, examples: int, tokens: int) -> Callable[[int], None]:
    """Return what tells the progress of whole examples when so many tokens are done."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        progress.add(examples * done // tokens - examples * before // tokens)

    return add


def chunks(examples: Sequence[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """Yield examples some `size` at a time; those of one document, which is their context, stay together."""
    begin = 0
    while begin < len(examples):
        end = min(begin + size, len(examples))
        document = getattr(examples[end - 1], "document", None)
        while document is not None and end < len(examples) and examples[end].document == document:
            end += 1
        yield list(examples[begin:end])
        begin = end


def check_ensemble(models: Sequence[Finetuned]) -> None:
    """Raise InputError when the outputs of these models do not stand for the same things."""
    first = models[0]
    task = first.task.name
    if len(models) > 1 and first.head.kind in similarity_losses.KINDS:
        raise InputError(f"{task} compares vectors, which differ between models and have no mean; give one.")
    vocabulary = {**first.tokenizer.__getstate__(), "core": ""}
    for other in models[1:]:
        for what, one, another in (
            ("approach (LSTMs on frozen layers are averaged only with such)", type(first), type(other)),
            ("task", True, same_answers(task, other.task.name)),
            ("texts, single or in pairs", *(getattr(one, "pair", None) for one in (first, other))),
            ("output layer", first.head, other.head),
            ("labels", first.labels, other.labels),
            ("length of sequences", first.max_length, other.max_length),
            ("windows of long texts", first.task.long, other.task.long),
            ("tuned values", first.tuned.keys(), other.tuned.keys()),
            ("vocabulary", vocabulary, {**other.tokenizer.__getstate__(), "core": ""}),
        ):
            if one != another:
                both = f"{first.folder} and {other.folder} can't be averaged: they differ in their {what}"
                advice = "give models that were fine-tuned for the same task from the same vocabulary."
                raise InputError(f"{both}; {advice}")
