"""Which examples of a task are predicted or measured, and how: flags of `predict` and `evaluate`."""

import argparse
from typing import Any

from minibert.cli.shared.flags import QUIET, add_flag, add_options, add_switches, given
from minibert.finetuning.options import FinetuneOptions
from minibert.tasks.task import SPLITS


def add_measured(parser: Any, split: str | None = "dev") -> None:
    """Add these flags.

    Parameters
    ----------
    parser : ArgumentParser or argument group
        Which gets them.
    split : str, optional, default "dev"
        None for a command that has to know whether it was given.
    """
    text = "folder of the task's files, or a file (default: those it was fine-tuned on)"
    add_flag(parser, "--data PATH", text)
    parser.add_argument("--split", default=split, choices=SPLITS, help="which examples (default: dev)")
    text = "another task whose answers mean the same, such as mnli-mm or ax for a model of mnli "
    add_flag(parser, "--task TASK", text + "(default: the model's own)")
    add_options(parser, FinetuneOptions, "dtype")
    add_switches(parser, quiet=QUIET)


def measured_as(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was given of it.

    Parameters
    ----------
    arguments : Namespace
        Arguments of the command.

    Returns
    -------
    dict
        As `predict` and `evaluate` of `finetuning.run` take it.
    """
    named = given(arguments, "data split task engine threads")
    return named | {"dtype": arguments.dtype or FinetuneOptions.dtype}
