"""Classify into classes that a model never saw: a model of entailment judges hypotheses (Yin et al. 2019)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert import engines
from minibert.base.errors import InputError
from minibert.core.batch import Feature
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.reports.contents import Prediction
from minibert.tasks.task import softmax
from minibert.tasks.truncation import Truncation, warn_of_truncation


def zero_shot(
    model: Finetuned | str | Path,
    texts: Sequence[str],
    classes: Sequence[str],
    *,
    template: str = "This text is about {}.",
    several: bool = False,
    engine: str = "auto",
    threads: int | None = None,
    cuts: Truncation | None = None,
) -> list[Prediction]:
    """Choose among any classes by how much a text entails that it belongs to each.

    One class is chosen by the softmax of the scores of entailment over the classes. With `several`, each is
    judged by itself: by the softmax of its scores of entailment and contradiction (or the only other label).

    Parameters
    ----------
    model : Finetuned, str or Path
        A model of pairs of texts, one of whose labels begins with "entail", or its folder: of mnli, snli,
        sick, rte, scitail, or of a custom table.
    texts : sequence of str
        What to classify.
    classes : sequence of str
        Names to choose from; with `several` one may be enough.
    template : str
        The hypothesis, with {} where the name of the class stands.
    several : bool, default False
        Whether several classes, or none, may be right.
    engine : str, default "auto"
        What computes, where a folder is given.
    threads : int, optional
        Of that engine, and of matrix products.
    cuts : Truncation, optional
        Counts what is cut of the texts, in place of a warning.

    Returns
    -------
    list of dict
        For each text `probabilities` by class, and the `label` of the highest; with `several` the `labels` of
        at least 0.5 in its place, the likeliest first.

    Raises
    ------
    InputError
        When the model does not know entailment, a class is empty or named twice or there is nothing to choose
        from, the template has no {}, or a text is empty.
    """
    texts = _strings("texts", texts)
    classes = [name.strip() for name in _strings("classes", classes)]
    _check_classes(classes, several)
    if template.count("{}") != 1:
        raise InputError(f"{template=} needs {{}} once; write it where the class stands.", template=template)
    if not all(map(str.strip, texts)):
        raise InputError("A text is empty; give one with words in it.")
    if not isinstance(model, Finetuned):
        model = Finetuned.from_pretrained(model, engine, threads=threads)
    entailed, denied = _entailment(model)
    hypotheses = {name: template.replace("{}", name) for name in classes}
    pairs = []
    for text in texts:
        pairs += [TextExample(name, text, hypotheses[name], None) for name in classes]
    features = model.features(pairs)
    counted = Truncation(model.max_length, long=model.task.long) if cuts is None else cuts
    for begin in range(0, len(features), len(classes)):  # a text counts once, with what costs it most
        of_text = features[begin : begin + len(classes)]
        counted.add([max(of_text, key=_pieces_cut)])
    with engines.limited_threads(threads, model.ops):
        outputs = np.reshape(model.outputs(features), (len(texts), len(classes), len(model.labels)))
    if cuts is None:
        warn_of_truncation({"": counted}, model.config.P)
    answers: list[Prediction] = []
    for scores in outputs:
        if several:
            both = scores[:, [entailed, denied]]
            probabilities = [float(softmax(pair)[0]) for pair in both]
        else:
            probabilities = softmax(scores[:, entailed]).tolist()
        by_class = dict(zip(classes, probabilities, strict=True))
        ordered = sorted(classes, key=lambda name: -by_class[name])
        if several:
            likely = [name for name in ordered if by_class[name] >= 0.5]
            answers.append({"labels": likely, "probabilities": by_class})
        else:
            answers.append({"label": ordered[0], "probabilities": by_class})
    return answers


def _strings(name: str, value: Any) -> list[str]:
    """Return an argument as a list; raise InputError where it is not one of strings."""
    if isinstance(value, Iterator):
        value = list(value)
    are_strings = isinstance(value, Iterable) and all(isinstance(item, str) for item in value)
    if isinstance(value, str) or not are_strings:
        raise InputError(f"{name}={short(value)} is not a list of strings; give one.", **{name: value})
    return list(value)


def _check_classes(classes: list[str], several: bool) -> None:
    """Raise InputError when there is nothing to choose from, or a class has no name of its own."""
    twice = next((name for number, name in enumerate(classes) if name in classes[:number]), "")
    for wrong, message in (
        ("" in classes, "has an empty name; give every class one"),
        (twice, f"has {twice!r} twice; give each class once"),
        (len(classes) < 2 - several, "leaves no choice; give at least two"),
    ):
        if wrong:
            raise InputError(f"{classes=} {message}.", classes=classes)


def _pieces_cut(feature: Feature) -> int:
    return sum(sequence.cut for sequence in feature.sequences)


def _entailment(model: Finetuned) -> tuple[int, int]:
    """Return the numbers of the label of entailment and of the one that denies it."""
    names = [label.lower() for label in model.labels]
    entailing = [number for number, name in enumerate(names) if name.startswith("entail")]
    others = [number for number in range(len(names)) if number not in entailing]
    denying = [number for number in others if names[number].startswith("contradict")] or others
    if model.task.kind != "classify" or model.pair is False or len(entailing) != 1 or len(denying) != 1:
        texts = "single texts" if model.pair is False else "pairs"
        what = f"{texts} with the labels {', '.join(model.labels) or '-'}"
        trained = f"The model in '{model.folder}' was fine-tuned for {model.task.name} on {what}"
        why = "can't tell what a text entails from what it contradicts"
        raise InputError(f"{trained}, and {why}; use a model fine-tuned for mnli, snli or rte.")
    return entailing[0], denying[0]
