"""Flags of `predict` and `evaluate`: which examples of a task to use, and how."""

import argparse
from typing import Any

from minibert.cli.shared.flags import QUIET, add_flag, add_options, add_switches, role_and_column, selected
from minibert.finetuning.options import FinetuneOptions, require_different
from minibert.tasks.task import SPLITS

TRAINED_COLUMNS = "as in finetune (default: those of the training); repeat the flag for more"


def add_measured(parser: Any, split: str | None = "dev", column: bool = True) -> None:
    """Add --data, --column, --split, --task, --dtype and --quiet.

    Parameters
    ----------
    parser : ArgumentParser or argument group
        Receives them.
    split : str, optional, default "dev"
        None for a command that needs to know whether the flag was given.
    column : bool, default True
        Whether to add --column.
    """
    text = "folder of the task's files, or a file (default: what the model was fine-tuned on)"
    add_flag(parser, "--data PATH", text)
    if column:
        text = f"a column of the table of --data, {TRAINED_COLUMNS}"
        add_flag(parser, "--column NAME=COLUMN", text, dest="columns", type=role_and_column, action="append")
    parser.add_argument("--split", default=split, choices=SPLITS, help="which examples (default: dev)")
    text = "another task whose answers mean the same, such as mnli-mm or ax for a model of mnli "
    add_flag(parser, "--task TASK", text + "(default: the model's own)")
    add_options(parser, FinetuneOptions, "dtype")
    add_switches(parser, quiet=QUIET)


def measured_as(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of these flags, and of --engine and --threads.

    Parameters
    ----------
    arguments : Namespace
        Arguments of the command.

    Returns
    -------
    dict
        Keyword arguments of `predict` and `evaluate` in `finetuning.run`.

    Raises
    ------
    InputError
        When a column is named twice.
    """
    values = selected(arguments, "data split task engine threads")
    columns = arguments.columns or ()
    require_different([role for role, _ in columns])
    values["columns"] = dict(columns)
    return values | {"dtype": arguments.dtype or FinetuneOptions.dtype}
