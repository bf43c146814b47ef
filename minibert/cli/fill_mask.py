"""Let a trained BERT guess the words at [MASK].

Prints the likeliest pieces at every [MASK] in a text, with their probabilities.
Without TEXT every line of the standard input, or of --file, is a text.

examples:
  minibert fill-mask --model runs/books "it came to [MASK]."
  minibert fill-mask --model ~/models/bert-base-uncased "Paris is the [MASK] of [MASK]." --top 3
"""

import argparse
from collections.abc import Iterator
from typing import Any

from minibert.cli.shared.flags import add_engine, add_flag, add_model
from minibert.cli.shared.texts import add_texts, given_texts
from minibert.terminal import emit, json_text, printable


def add(parser: Any) -> None:
    """Add the flags of the command."""
    add_model(parser, "a run folder, or a Hugging Face BERT")
    add_texts(parser, "a text with [MASK] in it, or more")
    add_flag(parser, "--top", "guesses for each [MASK]", 5)
    add_engine(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON array for each text instead")


def run(arguments: argparse.Namespace) -> int:
    """Guess, and print."""
    from minibert.engines import limited_threads
    from minibert.inference import Bert
    from minibert.pretraining.predict import fill_masks
    from minibert.tokenizer import Tokenizer

    texts = given_texts(arguments)
    model = Bert.from_pretrained(arguments.model, arguments.engine, threads=arguments.threads)
    tokenizer = Tokenizer.from_pretrained(arguments.model)
    with limited_threads(arguments.threads, model.ops):
        for number, text in enumerate(texts):
            masks = fill_masks(model, tokenizer, text, arguments.top)
            if arguments.json:
                emit(json_text([dict(guesses) for guesses in masks], indent=None))
            else:
                emit("\n" * (number > 0) + "\n".join(_lines(masks)))
    return 0


def _lines(masks: Any) -> Iterator[str]:
    """Yield the guesses, a line each; where there are several [MASK]s, under their numbers."""
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            yield f"[MASK] {number}"
        for piece, probability in guesses:
            yield f"{100 * probability:6.2f}%  {printable(piece)}"
