"""Answer a question about a text of any length.

Prints the most likely answers to a question about a text of any length. Each
answer comes with its probability, relative to the best candidates, and with the
passage that it is in. A model of SQuAD 2.0 may say that there is no answer.

examples:
  minibert answer --model runs/squad1 "Who was Ishmael's friend?" --file moby-dick.txt
  minibert answer --model runs/squad2 "When was it built?" --file article.txt --top 5 --json
"""

import codecs
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import LARGEST_WHOLE
from minibert.base.reading import byte_pieces, too_much
from minibert.base.terminal import emit, json_text, printable
from minibert.cli.shared.flags import JSON, QUIET, add_engine, add_flag, add_model, add_switches
from minibert.cli.shared.texts import STANDARD_INPUT, announce_typed_input, as_utf8, refuse_file


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert answer --model MODEL QUESTION [TEXT | --file FILE] [--top N] [--json] [...]"
    add_model(parser, "a model fine-tuned for squad1, squad2, triviaqa or qa")
    parser.add_argument("question", metavar="QUESTION", help="the question, in one sentence")
    text = "the text (default: all of the standard input)"
    parser.add_argument("texts", nargs="*", default=[], metavar="TEXT", help=text)
    add_flag(parser, "--file FILE", "a file with the text; compressed files too", action="append")
    add_flag(parser, "--top N", "answers to print", 1)
    add_switches(parser, quiet=QUIET)
    add_engine(parser)
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Print the answers to a question.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When --top is out of range, several texts are given, or a text or the question is the name of a file.
    """
    from minibert import engines
    from minibert.finetuning.models import Finetuned
    from minibert.tasks.answering import Answering, answer

    if not 1 <= arguments.top <= Answering.n_best:
        raise InputError(f"--top {arguments.top} is not possible; choose from 1 to {Answering.n_best}.")
    refuse_file(arguments.question, "give the question itself, and --file FILE to ask about that")
    files = arguments.file or []
    if len(arguments.texts) + len(files) > 1:
        raise InputError("A question is asked of one text; give one, or one --file.")
    for text in arguments.texts:
        refuse_file(text, "name it with --file FILE to ask about that")
    text = arguments.texts[0] if arguments.texts else _text(files[0] if files else STANDARD_INPUT)
    model = Finetuned.from_pretrained(arguments.model, arguments.engine, threads=arguments.threads)
    with engines.limited_threads(arguments.threads, model.ops):
        best = answer(model, arguments.question, text, show=not (arguments.json or arguments.quiet))
    # The chosen answer comes first, even if another one has a higher probability.
    chosen = best["begin"], best["end"]
    answers = sorted(best["n_best"], key=lambda entry: (entry["begin"], entry["end"]) != chosen)
    answers = answers[: arguments.top]
    if arguments.json:
        kept = {name: value for name, value in best.items() if name not in ("id", "n_best")}
        emit(json_text({"question": arguments.question, **kept, "answers": answers}))
    else:
        emit("\n".join(_answer_text(entry, text) for entry in answers))


def _text(file: str) -> str:
    """Read the whole text that the question is about."""
    if file == STANDARD_INPUT:
        announce_typed_input("the text from the terminal")
        name = "the standard input"
        data = sys.stdin.buffer.read(LARGEST_WHOLE + 1)
        if len(data) > LARGEST_WHOLE:
            raise too_much(name, LARGEST_WHOLE)
    else:
        name = file
        data = b"".join(byte_pieces(Path(file), in_memory=True))
    return as_utf8(data.removeprefix(codecs.BOM_UTF8), name)


def _answer_text(entry: dict[str, Any], text: str) -> str:
    """Format an answer with its probability and, below, the passage that it is in."""
    from minibert.tasks.answering import passage

    percent = f"{100 * entry['probability']:5.1f}%"
    if entry["begin"] is None:
        return f"{percent}  no answer"
    before, words, after = map(printable, passage(text, entry["begin"], entry["end"]))
    # Don't break long words or at hyphens: `textwrap` takes quadratic time for that.
    marked = f"{before}>>{words}<<{after}"
    form = textwrap.TextWrapper(78, " " * 8, " " * 8, break_long_words=False, break_on_hyphens=False)
    return f"{percent}  {words}\n{form.fill(marked)}"
