"""Label a text, or a pair of texts, with a fine-tuned model.

Prints what a fine-tuned model says of a text, or of a pair of texts: every
class with its probability, or a number. Without TEXT it reads the lines of
--file or of the standard input, with a tab between the two texts of a pair, and
answers each at once. A line that is not a text (or pair) gets an empty answer,
and a message on the error stream; the exit status is then 1.

examples:
  minibert classify --model runs/sst2 "a charming and often affecting journey"
  minibert classify --model runs/rte "Dana Reeve has died." "Dana Reeve lives." --json
  minibert classify --model runs/sst2 --file reviews.txt
"""

import argparse
import sys
from functools import partial
from typing import Any

from minibert.cli.shared.flags import add_engine, add_json, add_model
from minibert.cli.shared.texts import add_texts, given_texts
from minibert.errors import InputError
from minibert.terminal import emit, json_text, printable

FILES_INSTEAD = (
    "use minibert predict --model MODEL --data FILE --out DIR for the rows of a table, or "
    "minibert classify --model MODEL --file FILE for lines of text"
)


def add(parser: Any) -> None:
    """Add the flags of the command."""
    add_model(parser, "a fine-tuned model")
    add_texts(parser, "a text, or the two of a pair", " or two with a tab between them")
    add_engine(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and print."""
    from minibert.finetuning.models import Finetuned
    from minibert.finetuning.run import classify
    from minibert.tasks.cuts import Cuts, warn_of_cuts

    given = len(arguments.texts)
    if given > 2:
        raise InputError(f"{given} texts are no pair; give one or two, or many with --file.")
    lines = given_texts(arguments, FILES_INSTEAD)
    pairs = [arguments.texts] if given else (line.split("\t", 1) for line in lines)
    model = Finetuned.from_pretrained(arguments.model, arguments.engine, arguments.threads)
    cuts = Cuts(model.max_length)
    ask = partial(classify, arguments.model, threads=arguments.threads, model=model, cuts=cuts)
    ask([])  # which complains of a model that has no classes
    status = 0
    for number, texts in enumerate(pairs, start=1):
        predicted = None
        try:
            (predicted,) = ask([(*texts, None)[:2]])
        except InputError as error:
            if given:
                raise
            emit(f"minibert: line {number:,}: {printable(str(error))}", file=sys.stderr)
            status = 1
        shown = json_text(predicted, indent=None) if arguments.json else _line(predicted, in_full=bool(given))
        emit(shown, flush=True)
    warn_of_cuts({"": cuts}, model.config.P)
    return status


def _line(predicted: dict[str, Any] | None, in_full: bool) -> str:
    """Format an answer: every class on a line of its own, or the chosen one in one line."""
    if predicted is None:
        return ""
    if "value" in predicted:
        return f"{predicted['value']:.3f}"
    chances = predicted["probabilities"]
    if not in_full:
        return f"{printable(predicted['label'])}\t{chances[predicted['label']]:.4f}"
    ordered = sorted(chances, key=lambda label: -chances[label])
    return "\n".join(f"{100 * chances[label]:6.2f}%  {printable(label)}" for label in ordered)
