"""Score how likely texts are to a pre-trained model.

Prints the pseudo-log-likelihood of a text in nats (Salazar et al. 2020): each
piece is masked in turn, and the log probabilities that the model gives to the
right pieces are added up. Less negative is more likely. For a TEXT, it also
shows every word, and the pieces of words that have several. For every line of
--file or of the standard input, it prints the sum, the mean per piece, the
pseudo-perplexity exp(-mean), and the text, separated by tabs. A blank line has
an empty answer; another line that can't be scored has one as well, and a
message on the error stream, and the exit status is then 1. A left-to-right
model is scored by the chain rule.

examples:
  minibert score-text "She drank a cup of tea." "She drank a cup of sea."
  minibert score-text --model runs/books "the whale swam." "the whale swum."
  minibert score-text --model runs/books --file sentences.txt > scores.tsv
  minibert score-text --model runs/books --within-word l2r --json "Call me Ishmael."
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from minibert.base.terminal import counted, emit, json_text, printable
from minibert.cli.shared.flags import (
    JSON_EACH,
    QUIET,
    add_any_model,
    add_engine,
    add_flag,
    add_switches,
    model_or_default,
)
from minibert.cli.shared.texts import add_texts, answers, given_texts, refuse_folders

ONE_LINE = "{log_probability:.4f}\t{mean:.4f}\t{perplexity:.2f}\t"
SUMS = "{log_probability:9.3f}  in all: {pieces}, mean {mean:.3f}, pseudo-perplexity {perplexity:.2f}"


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    add_any_model(parser, "a run folder, RUN@STEP, or a Hugging Face BERT")
    add_texts(parser)
    text = "how to mask words of several pieces: one at a time (token), or with those to its right (l2r)"
    add_flag(parser, "--within-word", text, "token", choices=("token", "l2r"))
    add_switches(parser, json=JSON_EACH, quiet=QUIET)
    add_engine(parser)


def run(arguments: Namespace) -> None:
    """Print how likely each text is.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.ask.inference import Bert
    from minibert.ask.scoring import score_texts
    from minibert.engines import limited_threads
    from minibert.training.runlog import Progress

    refuse_folders(arguments.texts, arguments.model)
    texts = given_texts(arguments)
    name = model_or_default(arguments.model)
    model = Bert.from_pretrained(name, arguments.engine, threads=arguments.threads)
    ask = partial(score_texts, model, within_word=arguments.within_word)
    # A progress bar would be in the way of scores on a terminal.
    watched = not (arguments.texts or arguments.quiet or os.isatty(1))  # the standard output
    with limited_threads(arguments.threads, model.ops), Progress(None, "texts", watched) as progress:
        for number, score in enumerate(answers(arguments, texts, ask)):
            progress.add(1)
            facts: Any = score and score.to_dict()
            if arguments.json:
                emit(json_text(facts, indent=None), flush=True)
            elif arguments.texts:
                lines = list(_in_full(facts))
                if len(arguments.texts) > 1:
                    lines.insert(0, printable(facts["text"]))
                if number > 0:
                    lines.insert(0, "")
                emit("\n".join(lines))
            elif facts:
                emit(ONE_LINE.format_map(facts) + printable(facts["text"]), flush=True)
            else:
                emit("", flush=True)


def _in_full(facts: Any) -> Iterator[str]:
    """Yield a line for each word of a text, with its pieces if there are several, and one for the sums."""
    for word in facts["words"]:
        detail = ""
        if len(word["pieces"]) > 1:
            pieces = "  ".join(f"{printable(piece)} {value:.3f}" for piece, value in word["pieces"])
            detail = f"  ({pieces})"
        yield f"{word['log_probability']:9.3f}  {printable(word['word'])}{detail}"
    n_pieces = counted(facts["tokens"], "piece")
    yield SUMS.format_map(facts | {"pieces": n_pieces})
