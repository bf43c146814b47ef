"""Which examples of a task are predicted or measured, and how: flags of `predict` and `evaluate`."""

import argparse
from typing import Any

from minibert.cli.shared.flags import add_options, add_quiet
from minibert.finetuning.options import FinetuneOptions
from minibert.tasks.task import SPLITS


def add_measured(parser: Any, split: str | None = "dev") -> None:
    """Add these flags; `split=None` for a command that has to know whether it was given."""
    text = "folder of the task's files, or a file (default: those it was fine-tuned on)"
    parser.add_argument("--data", metavar="PATH", help=text)
    parser.add_argument("--split", default=split, choices=SPLITS, help="which examples (default: dev)")
    text = "another task whose answers mean the same, such as mnli-mm or ax for a model of mnli "
    parser.add_argument("--task", metavar="TASK", help=text + "(default: the model's own)")
    add_options(parser, FinetuneOptions, "dtype")
    add_quiet(parser)


def measured_as(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was given of it, as `predict` and `evaluate` of `finetuning.run` take it."""
    given = {name: getattr(arguments, name) for name in ("data", "split", "task", "engine", "threads")}
    return given | {"dtype": arguments.dtype or FinetuneOptions.dtype}
