"""The command line: `minibert COMMAND`. The only reader of argv and of the environment.

Each command is its parser and, below it, the few lines that call the library. Exit status: 0 done, 1 the work
failed, 2 something that was given can't be used, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from minibert import __version__, backends
from minibert.cli.answer import add_answer
from minibert.cli.convert import add_convert
from minibert.cli.data import add_data
from minibert.cli.experiments import add_table7
from minibert.cli.features import add_features
from minibert.cli.finetune import (
    add_classify,
    add_finetune,
    add_measured,
    add_predict,
    run_evaluate_task,
)
from minibert.cli.flags import Parser, add_engine, add_json, add_layout
from minibert.cli.pretrain import add_pretrain
from minibert.cli.score import add_score
from minibert.cli.tag import add_tag
from minibert.cli.text import add_vocab
from minibert.cli.tokenize import add_tokenize
from minibert.cli.warmup import add_warmup
from minibert.errors import STOPPED_BY, InputError, RunError, handle_signals, restore_signals
from minibert.terminal import emit, json_text, printable, write_what_can_be_written

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# What help calls the arguments that name a file or a folder.
PATHS = ("CORPUS", "DEST", "DIR", "FILE", "FOLDER", "GOLD", "PATH", "PREDICTIONS", "RUN", "SOURCE")
COMMANDS = {
    "pretrain": "train a BERT on text, or on the books in the package",
    "vocab": "learn a WordPiece vocabulary, or measure one on a text",
    "tokenize": "cut text into pieces, with their ids and offsets",
    "data": "write text as token shards, in one job or in parts by many",
    "finetune": "teach a trained BERT a task: GLUE, SQuAD, NER, SWAG, your own",
    "predict": "write a task's official files with one model, or several averaged",
    "classify": "label a text, or a pair of texts, with a fine-tuned model",
    "evaluate": "measure a pre-training run, or a fine-tuned model on its task",
    "answer": "answer a question about a text of any length",
    "tag": "tag the words of a text, and list the entities in it",
    "features": "write vectors of texts or of their tokens, from any layers",
    "score": "score predictions as the official scorers do: SQuAD, CoNLL, GLUE",
    "fill-mask": "let a trained BERT guess the words at [MASK]",
    "table7": "make Table 7 of the paper (frozen layers for NER) from a checkpoint",
    "convert": "write a checkpoint in Hugging Face's or TensorFlow's format",
    "gradcheck": "check every hand-written gradient: the proof sheet",
    "warmup": "compile the loops of the engine numba in advance",
    "info": "show what this machine and this installation offer",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : the words after `minibert`; those of this process when left out.

    Returns
    -------
    The exit status. What was wrong stands in one line on the error stream.
    """
    with _stopped_as_by_ctrl_c():
        return _run(argv)


@contextmanager
def _stopped_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does, unless somebody else handles or ignores them."""

    def stop(number: int, _: Any) -> NoReturn:
        if (name := signal.Signals(number).name) == "SIGHUP":  # a terminal that is closed may send it twice
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(name)

    before = handle_signals(STOPPED_BY, stop, replaces=lambda handler: handler is signal.SIG_DFL)
    try:
        yield
    finally:
        restore_signals(before)


def _run(argv: Sequence[str] | None) -> int:
    write_what_can_be_written()
    arguments = parse_arguments(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _complain(arguments.parser.as_typed(str(message)))
            if isa := os.environ.get("MINIBERT_ISA"):
                if (known := backends.instruction_sets()) and isa not in known:
                    raise InputError(f"MINIBERT_ISA={isa!r} can't run here; choose from {', '.join(known)}.")
                backends.force_isa(isa)
            backends.force_device(getattr(arguments, "device", None))
            status = arguments.run(arguments)
            sys.stdout.flush()  # while a broken pipe can still be caught
            return status
    except InputError as error:
        return _complain(arguments.parser.as_typed(str(error)), BAD_INPUT)
    except PermissionError as error:  # of a folder that may not be looked into
        where = error.filename or "A file"
        return _complain(
            f"{where} is closed to you ({error.strerror}); change its permissions or name another.", BAD_INPUT
        )
    except BrokenPipeError:  # whoever read the output, `head` perhaps, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (RunError, MemoryError) as error:
        return _complain(str(error) or "there is not enough memory", FAILED)
    except OSError as error:
        where = f"{error.filename} could" if error.filename else "The output, or a file, could"
        return _complain(f"{where} not be read or written: {error.strerror or error}.", FAILED)
    except KeyboardInterrupt as stop:
        return next((STOPPED_BY[name] for name in stop.args if name in STOPPED_BY), INTERRUPTED)


def _complain(message: Any, status: int = DONE) -> int:
    text = " ".join(str(message).split()) or type(message).__name__
    emit(f"minibert: {printable(text)}", file=sys.stderr)
    return status


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What the words of a command mean; `arguments.run` is the function to call with it."""
    arguments, left = build_parser().parse_known_args(argv)
    # argparse takes words without a flag from one place only; those after a flag are left over.
    many = next((name for name in ("corpus", "texts") if name in arguments), None)
    if left and (any(word.startswith("-") for word in left) or many is None):
        arguments.parser.error(f"{' '.join(left)} is not known here")
    if left:
        setattr(arguments, many, [*getattr(arguments, many), *left])
    for one in arguments.parser._actions:  # "", an unset variable of the shell, is the folder one is in
        given = getattr(arguments, one.dest, None) if one.metavar in PATHS else None
        if "" in (given, *(given if isinstance(given, list) else ())):
            name = (one.option_strings or [one.metavar])[0]
            arguments.parser.error(f"{name} '' names no file or folder; give one, or leave it out")
    return arguments


def build_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="minibert",
        usage="minibert COMMAND [...]",
        description="\n".join(
            [
                "BERT from scratch: train one, see what it has learnt, check its mathematics.",
                "\ncommands:",
                *(f"  {name:<11}{text}" for name, text in COMMANDS.items()),
            ]
        ),
        epilog="""
examples:
  minibert pretrain
  minibert fill-mask runs/books "the heaven and the [MASK]."

`minibert COMMAND --help` explains a command. Exit status: 0 done, 1 the work
failed, 2 something on the command line can't be used, 130 Ctrl-C, 143 SIGTERM,
129 SIGHUP (the terminal was closed).
""",
    )
    parser.add_argument("--version", action="version", version=f"minibert {__version__}")
    commands = parser.add_subparsers(
        prog="minibert", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for add in (
        add_pretrain,
        add_vocab,
        add_tokenize,
        add_data,
        add_finetune,
        add_predict,
        add_classify,
        add_evaluate,
        add_answer,
        add_tag,
        add_features,
        add_score,
        add_fill_mask,
        add_table7,
        add_convert,
        add_gradcheck,
        add_warmup,
        add_info,
    ):
        add(commands)
    return parser


def add_evaluate(commands: Any) -> None:
    """The parser of `minibert evaluate`."""
    parser = commands.add_parser(
        "evaluate",
        description="""
Measures a model. After pre-training: masked-LM loss, perplexity and accuracy
on positions that show [MASK], and next-sentence accuracy. Beside the loss stand
the unigram entropies of those targets and of the whole text, the best that a
guess without context can do, and the loss with the words of the context
shuffled. After fine-tuning: the official figures of its task, with a bootstrap
interval.
""",
        epilog="""
examples:
  minibert evaluate runs/books
  minibert evaluate runs/books letters/*.txt --json
  minibert evaluate runs/sst2 --data glue/SST-2
""",
    )
    parser.set_defaults(run=run_evaluate)
    parser.add_argument("folder", metavar="RUN", help="a run folder, or with CORPUS any Hugging Face BERT")
    masked = parser.add_argument_group("after pre-training")
    masked.add_argument(
        "corpus",
        nargs="*",
        metavar="CORPUS",
        help="text to measure on; next sentences only where there are several documents of several "
        "sentences (default: the held-out documents)",
    )
    masked.add_argument(
        "--seq-length", type=int, metavar="N", help="tokens in a sequence (default: the longest of the run)"
    )
    masked.add_argument(
        "--targets", type=int, default=20000, metavar="N", help="[MASK]s to score (default: 20000)"
    )
    add_layout(masked)
    add_measured(parser.add_argument_group("after fine-tuning"))
    add_engine(parser)
    add_json(parser)


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Measure, and print."""
    from minibert.finetuning.models import is_finetuned

    if is_finetuned(arguments.folder):
        return run_evaluate_task(arguments)
    if arguments.data or arguments.task or arguments.dtype:
        raise InputError(
            f"{arguments.folder} holds no fine-tuned model, which --data, --task and --dtype are for."
        )
    from minibert.pretrain import figures_text
    from minibert.pretraining.predict import evaluate

    plain, shuffled = evaluate(
        arguments.folder,
        tuple(arguments.corpus),
        layout=arguments.layout,
        seq_length=arguments.seq_length,
        targets=arguments.targets,
        backend=arguments.backend,
        threads=arguments.threads,
    )
    figures = plain.to_dict() | {"shuffled_loss": shuffled and shuffled.loss}
    emit(json_text(figures) if arguments.json else figures_text(figures))
    return DONE


def add_fill_mask(commands: Any) -> None:
    """The parser of `minibert fill-mask`."""
    parser = commands.add_parser(
        "fill-mask",
        description="Prints the likeliest pieces at every [MASK] in a text, with their probabilities.",
        epilog="""
examples:
  minibert fill-mask runs/books "it came to [MASK]."
  minibert fill-mask ~/models/bert-base-uncased "Paris is the [MASK] of [MASK]." --top 3
""",
    )
    parser.set_defaults(run=run_fill_mask)
    parser.add_argument("folder", metavar="RUN", help="a run folder, or a Hugging Face BERT")
    parser.add_argument("text", metavar="TEXT", help="text with [MASK] in it")
    parser.add_argument(
        "--top", type=int, default=5, metavar="N", help="guesses for each [MASK] (default: 5)"
    )
    add_engine(parser)
    add_json(parser)


def run_fill_mask(arguments: argparse.Namespace) -> int:
    """Guess, and print."""
    from minibert.pretraining.predict import fill_mask

    backends.limit_threads(arguments.threads)
    masks = fill_mask(arguments.folder, arguments.text, arguments.top, arguments.backend, arguments.threads)
    if arguments.json:
        emit(json_text([dict(guesses) for guesses in masks]))
        return DONE
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            emit(f"[MASK] {number}")
        for piece, probability in guesses:
            emit(f"{100 * probability:6.2f}%  {printable(piece)}")
    return DONE


def add_gradcheck(commands: Any) -> None:
    """The parser of `minibert gradcheck`."""
    parser = commands.add_parser(
        "gradcheck",
        description="""
Checks every operation of an engine, forward and backward, at awkward sizes: in
float64 against the complex-step derivative of the reference, which is exact to
rounding, and in float32 against float64. Prints a line for each operation,
precision and size with its error, the bound and the verdict. Exit status 1 if
one fails.
""",
        epilog="""
examples:
  minibert gradcheck
  minibert gradcheck --operation attention --operation layer_norm --json
""",
    )
    parser.set_defaults(run=run_gradcheck)
    parser.add_argument(
        "--operation",
        action="append",
        metavar="NAME",
        help="only this operation; repeat the flag for more (default: all)",
    )
    parser.add_argument("--dtype", choices=("float64", "float32"), help="only this precision (default: both)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of inputs and directions (default: 0)"
    )
    add_engine(parser)
    add_json(parser)


def run_gradcheck(arguments: argparse.Namespace) -> int:
    """Check, and print the sheet."""
    from minibert import gradcheck

    if arguments.seed < 0:
        raise InputError(f"seed={arguments.seed} is negative; give 0 or more.")
    backends.limit_threads(arguments.threads or 1)  # small matrices only suffer from more
    rows = gradcheck.proof_sheet(
        [backends.create(arguments.backend, arguments.threads)],
        dtypes=(arguments.dtype,) if arguments.dtype else ("float64", "float32"),
        operations=arguments.operation,
        seed=arguments.seed,
    )
    emit(json_text([row._asdict() for row in rows]) if arguments.json else gradcheck.format_sheet(rows))
    return FAILED if any(row.verdict != "ok" for row in rows) else DONE


def add_info(commands: Any) -> None:
    """The parser of `minibert info`."""
    parser = commands.add_parser(
        "info",
        description="""
Prints versions, cores, the matrix library, the engines, the tokenizer and the
optional libraries; for one engine also its instruction set, its threads, and
the machine's peak rate of floating-point operations with so many threads.
""",
        epilog="""
examples:
  minibert info
  minibert info --threads 1 --json
""",
    )
    parser.set_defaults(run=run_info)
    add_engine(parser, device=False)
    add_json(parser)


def run_info(arguments: argparse.Namespace) -> int:
    """Look around, and print."""
    from minibert.cli.info import information

    facts = information(arguments.backend, arguments.threads)
    if arguments.json:
        emit(json_text(facts))
        return DONE
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [f"{n}: {v}" for n, v in value.items()] if isinstance(value, dict) else [value]
        for first, line in zip([name] + [""] * len(lines), lines, strict=False):
            emit(f"{first:<{width}}  {line}")
    return DONE
