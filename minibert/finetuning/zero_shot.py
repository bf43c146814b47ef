"""Classes that a model was never shown: hypotheses that a model of entailment judges (Yin et al. 2019)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert import engines
from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.tasks.cuts import Cuts, warn_of_cuts
from minibert.tasks.task import softmax


def zero_shot(
    model: Finetuned | str | Path,
    texts: Sequence[str],
    classes: Sequence[str],
    *,
    template: str = "This text is about {}.",
    several: bool = False,
    engine: str = "auto",
    threads: int | None = None,
    cuts: Cuts | None = None,
) -> list[dict[str, Any]]:
    """Choose among any classes by how much a text entails that it belongs to each.

    One class is chosen by the softmax of the scores of entailment over the classes. With `several`, each is
    judged by itself: by the softmax of its scores of entailment and contradiction (or the only other label).
    Return for each text `probabilities` by class, and the `label` of the highest; with `several` the `labels`
    of at least 0.5 in its place, the likeliest first. Raise InputError when the model does not know
    entailment, a class is empty or named twice or there is nothing to choose from, the template has no {}, or
    a text is empty.

    Parameters
    ----------
    model : a model of pairs of texts, one of whose labels begins with "entail", or its folder: of mnli, snli,
        sick, rte, scitail, or of a table of your own.
    texts : what to classify.
    classes : names to choose from; with `several` one may be enough.
    template : the hypothesis, with {} where the name of the class stands.
    several : whether several classes, or none, may be right.
    engine, threads, cuts : as of `finetuning.run.classify`.
    """
    texts, classes = (list(one) if isinstance(one, Iterator) else one for one in (texts, classes))
    for name, value in {"texts": texts, "classes": classes}.items():
        are_strings = isinstance(value, Iterable) and all(isinstance(one, str) for one in value)
        if isinstance(value, str) or not are_strings:
            raise InputError(f"{name}={short(value)} is no list of strings; give one.")
    classes = [one.strip() for one in classes]
    twice = next((one for number, one in enumerate(classes) if one in classes[:number]), "")
    for wrong, message in (
        ("" in classes, "has an empty name; give every class one"),
        (twice, f"has {twice!r} twice; give each class once"),
        (len(classes) < 2 - several, "leaves nothing to choose from; give at least two"),
    ):
        if wrong:
            raise InputError(f"$classes {message}.", classes=classes)
    if template.count("{}") != 1:
        raise InputError("$template needs {} once; write it where the class stands.", template=template)
    if not all(map(str.strip, texts)):
        raise InputError("A text is empty; give one with words in it.")
    if not isinstance(model, Finetuned):
        model = Finetuned.from_pretrained(model, engine, threads=threads)
    entailed, denied = _entailment(model)
    pairs = (TextExample(one, text, template.replace("{}", one), None) for text in texts for one in classes)
    features = model.features(list(pairs))
    counted = Cuts(model.max_length, long=model.task.long) if cuts is None else cuts
    for begin in range(0, len(features), len(classes)):  # a text counts once, with what costs it most
        asked = features[begin : begin + len(classes)]
        counted.add([max(asked, key=lambda one: sum(part.cut for part in one.sequences))])
    with engines.limited_threads(threads, model.ops):
        outputs = np.reshape(model.outputs(features), (len(texts), len(classes), len(model.labels)))
    if cuts is None:
        warn_of_cuts({"": counted}, model.config.P)
    found: list[dict[str, Any]] = []
    for scores in outputs:
        if several:
            chances = [float(softmax(one[[entailed, denied]])[0]) for one in scores]
        else:
            chances = softmax(scores[:, entailed]).tolist()
        by_class = dict(zip(classes, chances, strict=True))
        ordered = sorted(classes, key=lambda one: -by_class[one])
        likely = {"labels": [one for one in ordered if by_class[one] >= 0.5]}
        found.append((likely if several else {"label": ordered[0]}) | {"probabilities": by_class})
    return found


def _entailment(model: Finetuned) -> tuple[int, int]:
    """Return the numbers of the label of entailment and of the one that denies it."""
    names = [label.lower() for label in model.labels]
    entailing = [number for number, name in enumerate(names) if name.startswith("entail")]
    others = [number for number in range(len(names)) if number not in entailing]
    denying = [number for number in others if names[number].startswith("contradict")] or others
    if model.task.kind != "classify" or model.pair is False or len(entailing) != 1 or len(denying) != 1:
        texts = "single texts" if model.pair is False else "pairs"
        what = f"{texts} with the labels {', '.join(model.labels) or '-'}"
        trained = f"The model in {model.folder} was fine-tuned for {model.task.name} on {what}"
        why = "can't tell what a text entails from what it contradicts"
        raise InputError(f"{trained}, and {why}; use a model of mnli, snli or rte.")
    return entailing[0], denying[0]
