"""The command line: `minibert COMMAND`. The only reader of argv and of the environment.

Each command is its parser and, below it, the few lines that call the library. Exit status: 0 done, 1 the work
failed, 2 something that was given can't be used, 130 Ctrl-C.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from minibert import __version__
from minibert.cli.flags import Parser, add_corpus, add_engine, add_json, add_layout
from minibert.cli.pretrain import add_pretrain
from minibert.errors import InputError, RunError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "pretrain": "train a BERT on text, or on the books in the package",
    "vocab": "learn a WordPiece vocabulary",
    "data": "write text as token shards; look at training instances",
    "evaluate": "measure a run on held-out documents or other text",
    "fill-mask": "let a trained BERT guess the words at [MASK]",
    "gradcheck": "prove every hand-written gradient: the proof sheet",
    "info": "what this machine and this installation offer",
}
NEXT_SENTENCE = {0: "  (B follows A)", 1: "  (B is from elsewhere)", -1: ""}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : the words after `minibert`; those of this process when left out.

    Returns
    -------
    The exit status. What was wrong stands in one line on the error stream.
    """
    arguments = parse_arguments(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _complain(message)
            status = arguments.run(arguments)
            sys.stdout.flush()  # while a broken pipe can still be caught
            return status
    except InputError as error:
        return _complain(error, BAD_INPUT)
    except BrokenPipeError:  # whoever read the output, `head` perhaps, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (RunError, OSError, MemoryError) as error:
        return _complain(error or "there is not enough memory", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _complain(message: Any, status: int = DONE) -> int:
    text = " ".join(str(message).split()) or type(message).__name__
    print(f"minibert: {text}", file=sys.stderr)
    return status


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What the words of a command mean; `arguments.run` is the function to call with it."""
    arguments, left = build_parser().parse_known_args(argv)
    # argparse takes words without a flag from one place only; those after a flag are left over.
    if left and (any(word.startswith("-") for word in left) or "corpus" not in arguments):
        arguments.parser.error(f"{' '.join(left)} is not known here")
    if left:
        arguments.corpus = [*arguments.corpus, *left]
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
failed, 2 something that was given can't be used, 130 Ctrl-C.
""",
    )
    parser.add_argument("--version", action="version", version=f"minibert {__version__}")
    commands = parser.add_subparsers(
        prog="minibert", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for add in (add_pretrain, add_vocab, add_data, add_evaluate, add_fill_mask, add_gradcheck, add_info):
        add(commands)
    return parser


def add_vocab(commands: Any) -> None:
    """The parser of `minibert vocab`."""
    parser = commands.add_parser(
        "vocab",
        description="""
Learns a WordPiece vocabulary. It begins with the characters and joins two
neighbouring pieces again and again: those that raise the likelihood of the
text most, or the most frequent ones as byte-pair encoding does. Writes
vocab.txt and tokenizer_config.json, which `transformers` reads as well.
""",
        epilog="""
examples:
  minibert vocab --out vocabulary
  minibert vocab articles/ --vocab-size 30000 --cased --out vocabulary
""",
    )
    parser.set_defaults(run=run_vocab)
    add_corpus(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to write into")
    for flag, default, text in (
        ("--vocab-size", 8192, "pieces to learn"),
        ("--alphabet-limit", 1000, "characters to keep, the most frequent ones"),
        ("--min-frequency", 2, "rarer neighbours are never joined"),
        ("--unused", 0, "reserved pieces [unused0], [unused1], ..."),
    ):
        parser.add_argument(flag, type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    parser.add_argument(
        "--objective", choices=("likelihood", "frequency"), default="likelihood", help="(default: likelihood)"
    )
    parser.add_argument("--cased", action="store_true", help="keep case and accents")
    add_layout(parser)


def run_vocab(arguments: argparse.Namespace) -> int:
    """Learn, and write down."""
    from minibert.pretraining.preparation import learn_tokenizer

    out = Path(arguments.out)
    if any((out / name).exists() for name in ("training.json", "config.json")):
        raise InputError(f"{out} holds a model, to which its vocabulary belongs; choose another --out.")
    tokenizer = learn_tokenizer(
        _sentences(arguments),
        arguments.vocab_size,
        not arguments.cased,
        objective=arguments.objective,
        alphabet_limit=arguments.alphabet_limit,
        min_frequency=arguments.min_frequency,
        unused=arguments.unused,
    )
    tokenizer.save_pretrained(out)
    print(f"{tokenizer.vocab_size:,} pieces in {out / 'vocab.txt'}")
    return DONE


def add_data(commands: Any) -> None:
    """The parser of `minibert data`."""
    parser = commands.add_parser(
        "data",
        description="""
Turns text into token shards: a folder that minibert.data.shards.TokenShards
maps into memory, about two bytes a token, however large the text. With --show
it prints training instances made from them, as the model meets them: two
spans, masked words, and in braces what stood there. `minibert pretrain` does
all of this by itself; this command is for looking, and for your own programs.
""",
        epilog="""
examples:
  minibert data --vocab runs/books --out shards
  minibert data notes.txt --vocab vocabulary --out shards --show 3 --seq-length 64
""",
    )
    parser.set_defaults(run=run_data)
    add_corpus(parser)
    parser.add_argument("--vocab", metavar="PATH", required=True, help="a vocab.txt, or a folder with one")
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to write; it must not exist")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="instances to print (default: 0)")
    parser.add_argument("--seq-length", type=int, default=32, metavar="N", help="of those (default: 32)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of those (default: 0)")
    add_layout(parser)


def run_data(arguments: argparse.Namespace) -> int:
    """Write shards, say what is in them, show some instances."""
    from minibert.data.instances import InstanceOptions, Instances
    from minibert.data.shards import write_shards
    from minibert.pretraining.preparation import watched
    from minibert.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_pretrained(arguments.vocab)
    if arguments.show < 0:
        raise InputError(f"show={arguments.show} is not a number of instances; give 0 or more.")
    options = InstanceOptions(seq_length=arguments.seq_length)
    shards = write_shards(watched(_sentences(arguments), "writing shards", True), tokenizer, arguments.out)
    size = sum(path.stat().st_size for path in Path(arguments.out).iterdir())
    print(
        f"{shards.n_documents:,} documents, {shards.n_sentences:,} sentences, {shards.n_tokens:,} tokens, "
        f"{size / shards.n_tokens:.2f} bytes a token in {arguments.out}"
    )
    if arguments.show:
        instances = Instances(shards, range(shards.n_documents), tokenizer, options, arguments.seed)
        for text in _shown(instances, tokenizer, arguments.show):
            print(f"\n{text}")
    return DONE


def _shown(instances: Any, tokenizer: Any, count: int) -> Iterator[str]:
    """Some training instances as text: pieces with what is to be predicted in braces behind them."""
    for sequence, _ in islice(instances.stream(), count):
        pieces = [tokenizer.vocab[piece] for piece in sequence.input_ids]
        for position, label in zip(sequence.masked_positions, sequence.masked_labels, strict=True):
            pieces[position] += "{" + tokenizer.vocab[label] + "}"
        yield " ".join(pieces) + NEXT_SENTENCE[sequence.next_sentence_label]


def add_evaluate(commands: Any) -> None:
    """The parser of `minibert evaluate`."""
    parser = commands.add_parser(
        "evaluate",
        description="""
Measures a trained BERT: masked-LM loss, perplexity and accuracy on positions
that show [MASK], and next-sentence accuracy. Beside the loss stand the unigram
entropy of the same targets, the best that a guess without context can do, and
the loss with the words of the context shuffled.
""",
        epilog="""
examples:
  minibert evaluate runs/books
  minibert evaluate runs/books letters/*.txt --json
""",
    )
    parser.set_defaults(run=run_evaluate)
    parser.add_argument("folder", metavar="RUN", help="a run folder, or with CORPUS any Hugging Face BERT")
    parser.add_argument(
        "corpus", nargs="*", metavar="CORPUS", help="text to measure on (default: the held-out documents)"
    )
    parser.add_argument(
        "--seq-length", type=int, metavar="N", help="of sequences (default: the longest of the run)"
    )
    parser.add_argument(
        "--targets", type=int, default=20000, metavar="N", help="[MASK]s to score (default: 20000)"
    )
    add_layout(parser)
    add_engine(parser)
    add_json(parser)


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Measure, and print."""
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
    figures = plain.to_dict() | {"shuffled_loss": shuffled.loss}
    print(json.dumps(figures, indent=2) if arguments.json else figures_text(figures))
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
    parser.add_argument("--top", type=int, default=5, metavar="N", help="guesses for each (default: 5)")
    add_engine(parser)
    add_json(parser)


def run_fill_mask(arguments: argparse.Namespace) -> int:
    """Guess, and print."""
    from minibert import backends
    from minibert.pretraining.predict import fill_mask

    backends.limit_threads(arguments.threads)
    masks = fill_mask(arguments.folder, arguments.text, arguments.top, arguments.backend)
    if arguments.json:
        print(json.dumps([dict(guesses) for guesses in masks], ensure_ascii=False, indent=2))
        return DONE
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            print(f"[MASK] {number}")
        for piece, probability in guesses:
            print(f"{100 * probability:6.2f}%  {piece}")
    return DONE


def add_gradcheck(commands: Any) -> None:
    """The parser of `minibert gradcheck`."""
    parser = commands.add_parser(
        "gradcheck",
        description="""
Checks every operation of an engine, forward and backward, at ugly sizes: in
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
        help="only this one; repeat it for more (default: all)",
    )
    parser.add_argument("--dtype", choices=("float64", "float32"), help="only this precision (default: both)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of inputs and directions (default: 0)"
    )
    add_engine(parser)
    add_json(parser)


def run_gradcheck(arguments: argparse.Namespace) -> int:
    """Check, and print the sheet."""
    from minibert import backends, gradcheck

    backends.limit_threads(arguments.threads or 1)  # small matrices only suffer from more
    rows = gradcheck.proof_sheet(
        [backends.create(arguments.backend)],
        dtypes=(arguments.dtype,) if arguments.dtype else ("float64", "float32"),
        operations=arguments.operation,
        seed=arguments.seed,
    )
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        print(gradcheck.format_sheet(rows))
    return FAILED if any(row.verdict != "ok" for row in rows) else DONE


def add_info(commands: Any) -> None:
    """The parser of `minibert info`."""
    parser = commands.add_parser(
        "info",
        description="Prints versions, cores, the matrix library and its threads, engines, extras.",
        epilog="""
examples:
  minibert info
  minibert info --json
""",
    )
    parser.set_defaults(run=run_info)
    add_json(parser)


def run_info(arguments: argparse.Namespace) -> int:
    """Look around, and print."""
    from minibert.cli.info import information

    facts = information()
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return DONE
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [f"{n}: {v}" for n, v in value.items()] if isinstance(value, dict) else [value]
        for first, line in zip([name] + [""] * len(lines), lines, strict=False):
            print(f"{first:<{width}}  {line}")
    return DONE


def _sentences(arguments: argparse.Namespace) -> Any:
    """The sentences of the corpus that was named, or of the books in the package."""
    from minibert.data.corpus import embedded_corpus, sentences

    return sentences(arguments.corpus or embedded_corpus(), arguments.layout)
