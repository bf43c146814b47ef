"""Make Table 7 of the paper (frozen layers for NER) from a checkpoint.

Makes Table 7 of the paper from a checkpoint: F1 of named entities on dev, by
fine-tuning and by LSTMs on six combinations of frozen layers, with several
seeds. The table is printed, and written to table7.txt and table7.json. The same
command continues where it was stopped. A training that diverges is marked in
the table, the others continue, and the exit status is 1.

examples:
  minibert table7 --data conll2003 --model all-MiniLM-L6-v2 --out runs/table7
  minibert table7 --data conll2003 --model runs/books --out t7 --width 128 --train-sentences 4680
"""

import argparse
from typing import Any

from minibert.cli.shared import flags
from minibert.errors import InputError
from minibert.terminal import emit, json_text

ROWS = ("fine-tuned", "embeddings", "second-to-last", "last", "sum-last-4", "concat-last-4", "sum-all")


def add(parser: Any) -> None:
    parser.usage = (
        "minibert table7 --data DIR --model MODEL --out DIR [--width N] [--train-sentences N] [...]"
    )
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of CoNLL-2003")
    parser.add_argument("--model", metavar="MODEL", required=True, help="a BERT to start from")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the table and its runs")
    flags.add_flag(parser, "--width", "units of an LSTM in each direction", 768)
    text = "learn from about this many (default: all)"
    flags.add_number(parser, "--train-sentences", text, dest="train_examples")
    text = "measure on about this many (default: all)"
    flags.add_number(parser, "--dev-sentences", text, dest="dev_examples")
    flags.add_flag(parser, "--seeds", "trainings in each row", 3)
    text = f"only this one of {', '.join(ROWS)}; repeat the flag for more (default: all)"
    parser.add_argument("--row", action="append", choices=ROWS, metavar="ROW", help=text)
    flags.add_number(parser, "--epochs", "epochs of each training (default: those of its recipe)", type=float)
    text = "with the document around a sentence, or without"
    flags.add_flag(parser, "--task", text, "ner", choices=("ner", "ner-sentences"))
    flags.add_switches(parser, quiet="show no progress")
    flags.add_engine(parser)
    flags.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from minibert.experiments.table7 import cells, table7, table_text
    from minibert.finetuning.options import FinetuneOptions
    from minibert.training.runlog import say

    if arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds} leaves nothing to train; give at least 1.")
    options = FinetuneOptions(**flags.given_fields(FinetuneOptions, arguments))
    rows, seeds = arguments.row or ROWS, range(arguments.seeds)
    try:
        results = table7(options, arguments.out, seeds=seeds, rows=rows, show=not arguments.quiet)
    except KeyboardInterrupt:
        if not arguments.quiet:
            say("The same command goes on where it was stopped.")
        raise
    emit(json_text(results) if arguments.json else table_text(results))
    return int(any("failed" in results["cells"][cell.name] for cell in cells(rows, seeds)))
