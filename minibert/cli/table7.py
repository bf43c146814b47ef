"""Make Table 7 of the paper (frozen layers for NER) from a checkpoint."""

import argparse
from typing import Any

from minibert.cli.shared.flags import add_engine, add_json
from minibert.errors import InputError
from minibert.terminal import emit, json_text

ROWS = (
    "fine-tuned",
    "embeddings",
    "second-to-last",
    "last",
    "sum-last-4",
    "concat-last-4",
    "sum-all",
)


def add(parser: Any) -> None:
    """Add the flags of the command."""
    parser.describe(
        usage="minibert table7 --data DIR --model MODEL --out DIR [--width N] [--train-sentences N] [...]",
        description="""
Makes Table 7 of the paper from a checkpoint: F1 of named entities on dev, by
fine-tuning and by LSTMs on six combinations of frozen layers, with several
seeds. The table is printed, and written to table7.txt and table7.json. The same
command continues where it was stopped. A training that diverges is marked in
the table, the others continue, and the exit status is 1.
""",
        epilog="""
examples:
  minibert table7 --data conll2003 --model all-MiniLM-L6-v2 --out runs/table7
  minibert table7 --data conll2003 --model runs/books --out t7 --width 128 --train-sentences 4680
""",
    )
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of CoNLL-2003")
    parser.add_argument("--model", metavar="MODEL", required=True, help="a BERT to start from")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the table and its runs")
    parser.add_argument(
        "--width",
        type=int,
        default=768,
        metavar="N",
        help="units of an LSTM in each direction (default: 768)",
    )
    parser.add_argument(
        "--train-sentences",
        dest="train_examples",
        type=int,
        metavar="N",
        help="learn from about this many (default: all)",
    )
    parser.add_argument(
        "--dev-sentences",
        dest="dev_examples",
        type=int,
        metavar="N",
        help="measure on about this many (default: all)",
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="trainings in each row (default: 3)"
    )
    parser.add_argument(
        "--row",
        action="append",
        choices=ROWS,
        metavar="ROW",
        help=f"only this one of {', '.join(ROWS)}; repeat the flag for more (default: all)",
    )
    parser.add_argument(
        "--epochs", type=float, metavar="N", help="epochs of each training (default: those of its recipe)"
    )
    parser.add_argument(
        "--task",
        default="ner",
        choices=("ner", "ner-sentences"),
        help="with the document around a sentence, or without (default: ner)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_engine(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, and print the table; 1 when a training has failed."""
    from minibert.experiments.table7 import cells, table7, table_text
    from minibert.finetuning.options import FinetuneOptions
    from minibert.training.runlog import say

    if arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds} leaves nothing to train; give at least 1.")
    options = FinetuneOptions(
        task=arguments.task,
        data=arguments.data,
        model=arguments.model,
        width=arguments.width,
        train_examples=arguments.train_examples,
        dev_examples=arguments.dev_examples,
        epochs=arguments.epochs,
        engine=arguments.engine,
        threads=arguments.threads,
    )
    try:
        results = table7(
            options,
            arguments.out,
            seeds=range(arguments.seeds),
            rows=arguments.row or ROWS,
            show=not arguments.quiet,
        )
    except KeyboardInterrupt:
        if not arguments.quiet:
            say("The same command goes on where it was stopped.")
        raise
    emit(json_text(results) if arguments.json else table_text(results))
    asked = [cell.name for cell in cells(arguments.row or ROWS, range(arguments.seeds))]
    return int(any("failed" in results["cells"][name] for name in asked))
