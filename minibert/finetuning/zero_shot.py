"""Classify into classes that a model never saw, with a model of entailment (Yin et al. 2019)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert import engines
from minibert.base.errors import InputError
from minibert.base.texts import refuse_empty
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
    """Choose among any classes by how strongly a text entails that it belongs to each.

    One class is chosen by the softmax of the scores of entailment over the classes. With `several`, each
    class is judged by itself: by the softmax of its scores of entailment and contradiction (or the only other
    label).

    Parameters
    ----------
    model : Finetuned, str or Path
        A model of pairs of texts, one of whose labels begins with "entail", or its folder. It can be one for
        mnli, snli, sick, rte, scitail, or for a custom table.
    texts : sequence of str
        Texts to classify.
    classes : sequence of str
        Names to choose from. With `several` one is enough.
    template : str
        The hypothesis, with {} in place of the name of the class.
    several : bool, default False
        Whether several classes, or none, may be right.
    engine : str, default "auto"
        The engine, if a folder is given.
    threads : int, optional
        Number of threads of that engine, and of matrix products.
    cuts : Truncation, optional
        Counter for the texts that are cut, instead of a warning.

    Returns
    -------
    list of dict
        For each text the `probabilities` by class, and as `label` the most probable one. With `several` there
        are `labels` instead: the classes with a probability of at least 0.5, the most probable first.

    Raises
    ------
    InputError
        When the model does not know entailment, a class is empty or named twice, there is nothing to choose
        from, the template has no {}, or a text is empty.
    """
    texts = _strings("texts", texts)
    classes = [name.strip() for name in _strings("classes", classes)]
    _check_classes(classes, several)
    if template.count("{}") != 1:
        raise InputError(f"{template=} needs {{}} once; write it where the class stands.", template=template)
    refuse_empty(*texts)
    if not isinstance(model, Finetuned):
        model = Finetuned.from_pretrained(model, engine, threads=threads)
    entailed, denied = _entailment(model)
    hypotheses = {name: template.replace("{}", name) for name in classes}
    pairs = []
    for text in texts:
        pairs += [TextExample(name, text, hypotheses[name], None) for name in classes]
    features = model.features(pairs)
    counted = Truncation(model.max_length, long=model.task.long) if cuts is None else cuts
    # A text counts once: with the hypothesis for which most of it is cut.
    for begin in range(0, len(features), len(classes)):
        text_features = features[begin : begin + len(classes)]
        counted.add([max(text_features, key=_pieces_cut)])
    with engines.limited_threads(threads, model.ops):
        outputs = np.reshape(model.outputs(features), (len(texts), len(classes), len(model.labels)))
    if cuts is None:
        warn_of_truncation({"": counted}, model.config.P)
    choose = _several if several else _one
    return [choose(classes, scores[:, entailed], scores[:, denied]) for scores in outputs]


# entailed denied (K,)
def _one(classes: list[str], entailed: np.ndarray, denied: np.ndarray) -> Prediction:
    """Choose the class with the highest score of entailment."""
    by_class = dict(zip(classes, softmax(entailed).tolist(), strict=True))
    return {"label": max(classes, key=lambda name: by_class[name]), "probabilities": by_class}


# entailed denied (K,)
def _several(classes: list[str], entailed: np.ndarray, denied: np.ndarray) -> Prediction:
    """Choose every class that is entailed rather than denied, the most probable first."""
    by_class = {}
    for name, *scores in zip(classes, entailed, denied, strict=True):
        by_class[name] = float(softmax(np.array(scores))[0])
    likely = [name for name in classes if by_class[name] >= 0.5]
    likely.sort(key=lambda name: -by_class[name])
    return {"labels": likely, "probabilities": by_class}


def _strings(name: str, value: Any) -> list[str]:
    """Return an argument as a list of strings; raise InputError if it is something else."""
    if isinstance(value, Iterator):
        value = list(value)
    are_strings = isinstance(value, Iterable) and all(isinstance(item, str) for item in value)
    if isinstance(value, str) or not are_strings:
        raise InputError(f"{name}={short(value)} is not a list of strings; give one.", **{name: value})
    return list(value)


def _check_classes(classes: list[str], several: bool) -> None:
    """Raise InputError when there is nothing to choose from, or a name is empty or given twice."""
    twice = next((name for index, name in enumerate(classes) if name in classes[:index]), "")
    for wrong, message in (
        ("" in classes, "has an empty name; give every class one"),
        (twice, f"has {twice!r} twice; give each class once"),
        (len(classes) < 2 - several, "leaves no choice; give at least two"),
    ):
        if wrong:
            raise InputError(f"{classes=} {message}.", classes=classes)


def _pieces_cut(feature: Feature) -> int:
    """Return the number of pieces of a text that were cut."""
    return sum(sequence.cut for sequence in feature.sequences)


def _entailment(model: Finetuned) -> tuple[int, int]:
    """Return the indices of the label of entailment and of the opposite label."""
    names = [label.lower() for label in model.labels]
    entailing = [index for index, name in enumerate(names) if name.startswith("entail")]
    others = [index for index in range(len(names)) if index not in entailing]
    denying = [index for index in others if names[index].startswith("contradict")] or others
    if model.task.kind != "classify" or model.pair is False or len(entailing) != 1 or len(denying) != 1:
        trained = f"The model in '{model.folder}' was fine-tuned for {model.task.name}"
        if model.task.kind == "classify":
            texts = "single texts" if model.pair is False else "pairs"
            trained += f" on {texts} with the labels {', '.join(model.labels)}"
        why = "can't tell what a text entails from what it contradicts"
        raise InputError(f"{trained}, and {why}; use a model fine-tuned for mnli, snli or rte.")
    return entailing[0], denying[0]
