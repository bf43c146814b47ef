"""Label a text, or a pair of texts, with a fine-tuned model.

Prints a fine-tuned model's answer for a text or a pair of texts: every class
with its probability, or a number. If several classes may apply, a star marks
those that do, and the threshold of each is in brackets.
Without TEXT, it answers the lines of --file or of the standard input one by
one; a tab separates the two texts of a pair, and | several classes in an
answer. A blank line has an empty answer; another line that is not a text (or
pair) has one as well, and a message on the error stream, and the exit status is
then 1.

Whether a model reads single texts or pairs was decided when it was trained. The
files of one that was trained with transformers do not say it, so two TEXTs for
such a model are a pair only with --pair.

With --classes, a model of entailment (mnli, snli, rte) chooses among classes
that you name, without having been trained on them: it judges whether a text
entails the --template with each class filled in. Two TEXTs are then two texts,
not a pair.

examples:
  minibert classify --model runs/sst2 "a charming and often affecting journey"
  minibert classify --model runs/rte "Dana Reeve has died." "Dana Reeve lives." --json
  minibert classify --model runs/sst2 --file reviews.txt
  minibert classify --model runs/snli "The team won the cup." --classes politics,sport
"""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.reading import suffix_of
from minibert.base.terminal import printable
from minibert.cli.shared.flags import JSON_EACH, add_engine, add_flag, add_model, add_switches, selected
from minibert.cli.shared.texts import LINES_AT_ONCE, add_texts, answers, emit_answers, given_texts
from minibert.data.lines import JSON_LINES


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    add_model(parser, "a fine-tuned model")
    add_texts(parser, "a text, or the two of a pair", ", or a pair with a tab in between")
    text = "the two TEXTs are a pair (for a model of transformers, which does not say so)"
    add_switches(parser, pair=text)
    group = parser.add_argument_group("classes of your own")
    add_flag(group, "--classes NAMES", "the classes to choose from, separated by commas")
    text = "the sentence to judge; {} stands for the class (default: This text is about {}.)"
    add_flag(group, "--template TEXT", text)
    add_switches(group, several="judge each class by itself: several may apply, or none")
    add_engine(parser)
    add_switches(parser, json=JSON_EACH)


def run(arguments: Namespace) -> None:
    """Print the class of each text.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags contradict each other, more than two texts are given without --classes, or one is a file.
    """
    from minibert.finetuning.models import Finetuned
    from minibert.finetuning.run import classify
    from minibert.finetuning.zero_shot import zero_shot
    from minibert.tasks.multilabel import ManyLabels
    from minibert.tasks.truncation import Truncation, warn_of_truncation

    n_texts = len(arguments.texts)
    has_classes = arguments.classes is not None
    settings = {name: value for name, value in selected(arguments, "template several").items() if value}
    if settings and not has_classes:
        raise InputError(f"--{next(iter(settings))} is for --classes; give those as well, or leave it out.")
    if n_texts > 2 and not has_classes:
        advice = "put quotation marks around a text with spaces, or give many texts with --file."
        raise InputError(f"{n_texts} texts are not a pair; {advice}")
    instead = "use minibert predict --model MODEL --data FILE --out DIR for the rows of a table, or "
    instead += "minibert classify --model MODEL --file FILE for lines of text"
    if arguments.pair and (has_classes or n_texts != 2):
        why = "a line of a file is a pair if it has a tab; leave it out."
        if n_texts == 1:
            why = "one was given; give the second as well."
        if has_classes:
            why = "with --classes every TEXT is a text by itself; leave it out."
        raise InputError(f"--pair is for two TEXTs, and {why}")
    lines = given_texts(arguments, instead)
    for file in arguments.file or ():
        if suffix_of(Path(file)) in (".csv", *JSON_LINES):
            advice = f"for its columns use minibert predict --data {shlex.quote(file)}."
            warn(f"'{file}' is read line by line, as texts; {advice}")
    pairs = [arguments.texts] if n_texts else (line and line.split("\t", 1) for line in lines)
    model = Finetuned.from_pretrained(arguments.model, arguments.engine, threads=arguments.threads)
    if n_texts == 2 and model.task.command == "classify" and not has_classes:
        _require_pairs(model, arguments.pair)
    cuts = Truncation(model.max_length, long=model.task.long)
    counting: Any = {"threads": arguments.threads, "cuts": cuts}
    thresholds: dict[str, float] = {}
    if isinstance(model.task, ManyLabels) and not has_classes:
        thresholds = model.task.thresholds(model.labels, model.tuned)
    if has_classes:
        settings["classes"] = arguments.classes.split(",")
        texts: Any = lines
        ask: Any = partial(zero_shot, model, **settings, **counting)
        at_once = LINES_AT_ONCE
    else:
        texts = (pair and (*pair, None)[:2] for pair in pairs)
        ask = partial(classify, model, **counting)
        at_once = 1
    is_below_text = n_texts > 1 and has_classes

    def shown(answer: tuple[Any, Mapping[str, Any]]) -> str:
        text, predicted = answer
        lines = _line(predicted, n_texts > 0, thresholds)
        return f"{printable(text)}\n{lines}" if is_below_text else lines

    predictions = answers(arguments, texts, lambda some: zip(some, ask(some), strict=True), at_once)
    emit_answers(predictions, _with_texts, shown, arguments.json, separated=n_texts > 0)
    warn_of_truncation({"": cuts}, model.config.P)


def _require_pairs(model: Any, is_pair: bool) -> None:
    """Refuse two texts of the command line if they are not, or may not be, a pair."""
    advice = "put quotation marks around a text with spaces, or give many texts with --file."
    if model.pair is False:
        trained = f"The model in '{model.folder}' was fine-tuned for single texts"
        raise InputError(f"{trained}, and two were given; {advice}")
    if model.pair is None and not is_pair:
        unknown = f"The model in '{model.folder}' does not say whether it reads single texts or pairs"
        raise InputError(f"{unknown}; give --pair if the two texts are a pair, else {advice}")


def _with_texts(answer: tuple[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what --json prints: the text, or both of a pair, and the answer."""
    text, predicted = answer
    first, second = (text, None) if isinstance(text, str) else text
    texts = {"text": first} if second is None else {"text": first, "second": second}
    return texts | dict(predicted)


def _line(predicted: Mapping[str, Any], in_full: bool, thresholds: Mapping[str, float]) -> str:
    """Format an answer: every class on a line of its own, or only the chosen one."""
    if "value" in predicted:
        return f"{predicted['value']:.3f}"
    probabilities = predicted["probabilities"]
    several = predicted.get("labels", ())
    if not in_full and "labels" in predicted:
        return "|".join(map(printable, several))
    if not in_full:
        label = predicted["label"]
        return f"{printable(label)}\t{probabilities[label]:.4f}"
    lines = []
    for name, probability in sorted(probabilities.items(), key=lambda item: -item[1]):
        mark = " *" if name in several else ""
        threshold = f"  (from {100 * thresholds[name]:.2f}%)" if name in thresholds else ""
        lines.append(f"{100 * probability:6.2f}%  {printable(name)}{mark}{threshold}")
    return "\n".join(lines)
