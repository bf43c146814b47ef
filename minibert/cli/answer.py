"""`minibert answer`: a question about a text of any length, answered by a fine-tuned model."""

import argparse
import codecs
import sys
import textwrap
from pathlib import Path
from typing import Any

from minibert.cli.flags import add_engine, add_json
from minibert.cli.lines import STANDARD_INPUT, refuse_file
from minibert.errors import InputError
from minibert.files import LARGEST_WHOLE
from minibert.reading import byte_pieces, too_much
from minibert.terminal import emit, json_text, printable

WIDTH = 78  # of the passages that are printed
MARKS = ">>", "<<"  # around an answer in its passage


def add_answer(commands: Any) -> None:
    """The command's parser."""
    parser = commands.add_parser(
        "answer",
        usage="minibert answer RUN QUESTION [--text FILE] [--top N] [--json] [...]",
        description="""
Answers a question about one text, however long: the likeliest answers, each
with its probability among the best ones and the passage that it stands in. A
model of SQuAD 2.0 may say that there is no answer.
""",
        epilog="""
examples:
  minibert answer runs/squad1 "Who was Ishmael's friend?" --text moby-dick.txt
  minibert answer runs/squad2 "When was it built?" --text article.txt --top 5 --json
""",
    )
    parser.set_defaults(run=run_answer)
    parser.add_argument("folder", metavar="RUN", help="a model fine-tuned for squad1, squad2, triviaqa or qa")
    parser.add_argument("question", metavar="QUESTION", help="the question, in one sentence")
    parser.add_argument(
        "--text",
        default=STANDARD_INPUT,
        metavar="FILE",
        help="the text, .gz and .xz too (default: all of the standard input)",
    )
    parser.add_argument("--top", type=int, default=1, metavar="N", help="answers to print (default: 1)")
    add_engine(parser)
    add_json(parser)


def run_answer(arguments: argparse.Namespace) -> int:
    """Answer, and print."""
    from minibert import backends
    from minibert.finetuning.answering import Answering, answer
    from minibert.finetuning.models import Finetuned

    if not 1 <= arguments.top <= Answering.n_best:
        raise InputError(f"--top {arguments.top} is not possible; choose from 1 to {Answering.n_best}.")
    refuse_file(arguments.question, "give the question itself, and --text FILE to ask about that")
    text = _text(arguments.text)
    backends.limit_threads(arguments.threads)
    model = Finetuned.from_pretrained(arguments.folder, arguments.backend, arguments.threads)
    found = answer(model, arguments.question, text, show=not arguments.json)
    # What was decided stands first, whatever has the highest probability.
    decided = found["begin"], found["end"]
    answers = sorted(found["n_best"], key=lambda one: (one["begin"], one["end"]) != decided)[: arguments.top]
    if arguments.json:
        told = {name: value for name, value in found.items() if name not in ("id", "n_best")}
        emit(json_text({"question": arguments.question, **told, "answers": answers}))
    else:
        emit("\n".join(_told(one, text) for one in answers))
    return 0


def _text(file: str) -> str:
    """What a file, or the standard input, says."""
    name = "the standard input" if file == STANDARD_INPUT else file
    if file == STANDARD_INPUT:
        data = sys.stdin.buffer.read(LARGEST_WHOLE + 1)
        if len(data) > LARGEST_WHOLE:
            raise too_much(name, LARGEST_WHOLE)
    else:
        data = b"".join(byte_pieces(Path(file), kept=True))
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start:,}; "
            "convert it, e.g. with iconv -t UTF-8."
        ) from None


def _told(one: dict[str, Any], text: str) -> str:
    """An answer with its probability, and below it the passage that it stands in."""
    from minibert.finetuning.answering import passage

    chance = f"{100 * one['probability']:5.1f}%"
    if one["begin"] is None:
        return f"{chance}  no answer"
    before, words, behind = map(printable, passage(text, one["begin"], one["end"]))
    shown = textwrap.fill(
        f"{before}{MARKS[0]}{words}{MARKS[1]}{behind}",
        WIDTH,
        initial_indent=" " * 8,
        subsequent_indent=" " * 8,
        break_long_words=False,  # nor at hyphens: `textwrap` takes quadratic time for that
        break_on_hyphens=False,
    )
    return f"{chance}  {words}\n{shown}"
