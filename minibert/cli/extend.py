"""Add your own words to a trained BERT.

Appends new pieces to the vocabulary of a model: words from a file, or pieces
learnt from a text as `minibert vocab` does, starting from the present
vocabulary; and special tokens. Old pieces keep their ids and embeddings. The
embedding of a new piece starts as the mean of the pieces that it replaces.
Words in which no new piece occurs are split as before, and the model computes
the same for them; words that begin with a new piece are split differently, and
the report shows them. Train further with `minibert pretrain --model DIR`.

examples:
  minibert extend --model runs/books --words terms.txt --out runs/terms
  minibert extend --model runs/books --special-token '[DRUG]' --out runs/drug
  minibert extend --model runs/books --learn-from papers/ --n 500 --out runs/papers --measure-on new/
  minibert pretrain papers/ --model runs/papers --steps 2000 --out runs/papers-more
  minibert evaluate --model runs/papers-more new/ --per-byte
"""

from argparse import ArgumentParser, Namespace

from minibert.base.terminal import emit, json_text
from minibert.cli.shared.flags import (
    JSON,
    QUIET_REPORT,
    add_any_model,
    add_engine,
    add_flag,
    add_switches,
    model_or_default,
    selected,
)


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert extend [--model MODEL] --out DIR [--words FILE | --learn-from CORPUS ...] [...]"
    add_any_model(parser, "a pre-training run, RUN@STEP, or a Hugging Face BERT")
    add_flag(parser, "--out DIR", "a folder that does not exist yet, or is empty", required=True)
    where = parser.add_mutually_exclusive_group()
    add_flag(where, "--words FILE", "the new words, one per line; those that already are pieces are left out")
    text = "learn new pieces from this text: files, folders or globs"
    where.add_argument("--learn-from", metavar="CORPUS", nargs="+", default=[], help=text)
    add_flag(parser, "--n N", "pieces to learn (default: 500)")
    text = "a string that becomes one piece wherever it occurs, such as [DRUG]; repeat the flag for more"
    add_flag(parser, "--special-token TOKEN", text, dest="special_tokens", action="append")
    text = "other text, to evaluate both vocabularies and models on"
    parser.add_argument("--measure-on", metavar="CORPUS", nargs="+", default=[], help=text)
    add_engine(parser)
    add_switches(parser, quiet=QUIET_REPORT, json=JSON)


def run(arguments: Namespace) -> None:
    """Write the extended model, and print the report.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.pretraining.extension import extend, report_text

    how = selected(arguments, "words learn_from n measure_on engine threads")
    how["special_tokens"] = arguments.special_tokens or []
    how["show"] = not (arguments.quiet or arguments.json)
    report = extend(model_or_default(arguments.model), arguments.out, **how)
    emit(json_text(report) if arguments.json else report_text(report))
