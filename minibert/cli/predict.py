"""Write a task's official files with one model, or several averaged.

Predicts a split with a fine-tuned model and writes the task's official files
(those for GLUE's server; predictions, n best and null odds for SQuAD), and
every prediction as a line of JSON. The predictions of several models are
averaged, as in the paper's ensembles. If the split has labels, it prints the
official metrics. A table of your own needs no labels; its texts are written
next to the predictions.

examples:
  minibert predict --model runs/rte --data glue --split test --out submission
  minibert predict --model runs/a --model runs/b --data squad --split dev --out ensemble
  minibert predict --model runs/reviews --data new_reviews.csv --out answers
"""

from argparse import ArgumentParser, Namespace

from minibert.base.terminal import emit, json_text
from minibert.cli.shared.flags import JSON, add_engine, add_flag, add_model, add_switches
from minibert.cli.shared.measured import add_measured, measured_as


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    add_model(parser, "a fine-tuned model; repeat the flag to average several", action="append")
    add_flag(parser, "--out DIR", "folder for the files", required=True)
    add_measured(parser)
    add_switches(parser, majority="predict the most frequent class everywhere, as the paper does for WNLI")
    add_engine(parser)
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Write the files of predictions, and print a summary.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.finetuning.run import predict, predicted_text

    how = measured_as(arguments)
    how["majority"] = arguments.majority
    how["show"] = not arguments.quiet
    report = predict(arguments.model, out=arguments.out, **how)
    emit(json_text(report) if arguments.json else predicted_text(report))
