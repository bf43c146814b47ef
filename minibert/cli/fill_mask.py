"""Let a trained BERT guess the words at [MASK].

Prints the most likely pieces at every [MASK] in a text, with their
probabilities; below the text, unless one TEXT was given. Without TEXT, every
line of --file or of the standard input is a text. A blank line has an empty
answer; another line that can't be answered has one as well, and a message on
the error stream, and the exit status is then 1.

With --targets, it compares only these words. A word of k pieces, from --targets
or found with --pieces, stands for k [MASK]s; its probability is the product of
the probabilities of its pieces, filled in from left to right.

examples:
  minibert fill-mask "She was born in New [MASK] City."
  minibert fill-mask --model runs/books "it came to [MASK]."
  minibert fill-mask --model ~/models/bert-base-uncased "Paris is the [MASK] of [MASK]." --top 3
  minibert fill-mask --model runs/books "the [MASK] swam." --targets whale,ship,leviathan
  minibert fill-mask --model runs/books --file gaps.txt --pieces 3 --json
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from minibert.base.terminal import printable
from minibert.cli.shared.flags import (
    JSON_EACH,
    add_any_model,
    add_engine,
    add_flag,
    add_switches,
    model_or_default,
    selected,
)
from minibert.cli.shared.texts import add_texts, answers, emit_answers, given_texts, refuse_folders


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    add_any_model(parser, "a run folder, RUN@STEP, or a Hugging Face BERT")
    add_texts(parser, "a text with [MASK] in it, or more")
    add_flag(parser, "--top N", "guesses for each [MASK]", 5)
    text = "compare only these words, separated by commas"
    parser.add_argument("--targets", metavar="WORDS", type=lambda words: words.split(","), help=text)
    add_flag(parser, "--pieces N", "most pieces in a guess", 1)
    add_engine(parser)
    add_switches(parser, json=JSON_EACH)


def run(arguments: Namespace) -> None:
    """Print the guesses for each text.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.ask.gaps import fill_texts
    from minibert.ask.inference import Bert
    from minibert.engines import limited_threads

    refuse_folders(arguments.texts, arguments.model)
    texts = given_texts(arguments)
    name = model_or_default(arguments.model)
    model = Bert.from_pretrained(name, arguments.engine, threads=arguments.threads)
    with_text = len(arguments.texts) != 1
    in_full = bool(arguments.targets) or arguments.pieces > 1
    fill: Any = partial(fill_texts, model, **selected(arguments, "top targets pieces"))
    with limited_threads(arguments.threads, model.ops):
        filled = answers(arguments, texts, lambda some: zip(some, fill(some), strict=True))
        emit_answers(
            filled,
            facts=_facts,
            text=lambda answer: "\n".join(_lines(answer, with_text, in_full)),
            as_json=arguments.json,
        )


def _facts(answer: tuple[str, Any]) -> dict[str, Any]:
    """Return what --json prints for a text and the guesses for each of its [MASK]s."""
    text, masks = answer
    return {"text": text, "masks": [dict(guesses) for guesses in masks]}


def _lines(answer: tuple[str, Any], with_text: bool, in_full: bool) -> Iterator[str]:
    """Yield a line for each guess; if there are several [MASK]s, below a line with its number."""
    text, masks = answer
    if with_text:
        yield printable(text)
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            yield f"[MASK] {number}"
        for guess in guesses:
            shown = f"{100 * guess.probability:6.2f}%  {printable(guess.token)}"
            yield f"{shown}  (log p {guess.log_probability:.3f})" if in_full else shown
