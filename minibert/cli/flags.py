"""What the commands' parsers share: help as it was typed, one-line errors, flags that several have."""

import argparse
import dataclasses
import functools
import re
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from minibert.backends import DEVICES, ENGINES
from minibert.data.corpus import LAYOUTS
from minibert.terminal import printable

BOTH_WAYS = argparse.BooleanOptionalAction  # --flag and --no-flag; None where neither is said
TOKENIZER_ENGINES = ("auto", "c", "python")
CORPUS_HELP = (
    "text files, folders or globs, .gz and .xz too: one sentence a line with a blank line between documents, "
    "or prose (default: the books in the package)"
)


# An argument as the library's messages name it, `batch_size=0`; not within a path or quotation marks.
VALUE = r"('[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|[^\s,;()]*[^\s,;().:])"
ASSIGNED = re.compile(rf"(?<![\w'\"/.=-])([a-z]\w*)={VALUE}(?: \(the run has {VALUE}\))?")
# What --optimizer paper is two fields of the options of.
PAPER = re.compile(
    r"(bias_correction|google_decay)=(True|False) \(the run has (?:True|False)\)"
    r"(?:, google_decay=\w+ \(the run has \w+\))?"
)

# A wider first column than argparse's, so that most flags keep their text beside them.
HELP = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=31)


class Parser(argparse.ArgumentParser):
    """Shows descriptions and examples line by line as they stand in the source; complains in one line."""

    def __init__(self, **kwargs: Any) -> None:
        for name in ("description", "epilog"):
            kwargs[name] = textwrap.dedent(kwargs.get(name) or "").strip()
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=HELP)
        self.set_defaults(parser=self)  # the one that knows the flags of the command

    def error(self, message: str) -> NoReturn:
        """Exit with 2, as for any other bad input."""
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def as_typed(self, message: str) -> str:
        """A message of the library with arguments as the command has them: `--batch-size 0`, `TASK x`."""
        names = {one.dest: one.option_strings or [one.metavar] for one in self._actions}
        bare = {one.dest for one in self._actions if one.nargs == 0}  # flags without a value

        def typed(found: re.Match[str]) -> str:
            field, value, there = found.groups()
            if field not in names:
                return found[0]
            name = names[field][0] if field in bare else f"{names[field][0]} {_as_typed(value)}"
            return f"{name} (the run has {_as_typed(there)})" if there else name

        return ASSIGNED.sub(typed, PAPER.sub(_optimizers, message))


def _as_typed(value: str) -> str:
    """A value without the marks of Python: (0.1, 0.2) as 0.1,0.2 and {'text': 'review'} as text=review."""
    if value[0] in "([{":
        value = value[1:-1].rstrip(",").replace(", ", ",").replace(": ", "=").replace("'", "") or value
    plain = value[1:-1] if value[0] in "'\"" else value
    return plain if plain and " " not in plain else value


def _optimizers(found: re.Match[str]) -> str:
    """A difference in what --optimizer stands for."""
    is_paper = (found[1] == "google_decay") == (found[2] == "True")
    asked, there = ("paper", "adamw") if is_paper else ("adamw", "paper")
    return f"--optimizer {asked} (the run has {there})"


def add_corpus(parser: Any) -> None:
    """Positional CORPUS, and how it is laid out."""
    parser.add_argument("corpus", nargs="*", metavar="CORPUS", help=CORPUS_HELP)


def add_layout(group: Any, default: str | None = "auto") -> None:
    """--layout; `default=None` for a command that has to know whether it was said."""
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=default,
        help="how the text is laid out (default: auto, found from the text)",
    )


def add_engine(group: Any, default: str | None = "auto", device: bool = True) -> None:
    """--backend, --threads and, where one engine is asked for, --device."""
    group.add_argument(
        "--backend",
        choices=("auto", *ENGINES),
        default=default,
        help="the engine that computes (default: auto)",
    )
    if device:
        group.add_argument(
            "--device",
            choices=DEVICES,
            help="kind of device for the engine jax (default: the best that JAX finds)",
        )
    group.add_argument(
        "--threads", type=int, metavar="N", help="number of threads (default: one for each core)"
    )


def add_optimizer(group: Any, default: str, lamb: str) -> None:
    """--optimizer; what to say of LAMB differs."""
    group.add_argument(
        "--optimizer",
        choices=("adamw", "paper", "lamb"),
        help="paper: as in Google's code, without bias correction and with the rate falling from step 0; "
        f"lamb: {lamb} (default: {default})",
    )


def add_attention_dropout(group: Any) -> None:
    """--attention-dropout."""
    group.add_argument(
        "--attention-dropout",
        type=float,
        metavar="N",
        help="dropout rate of the attention probabilities alone; 0 lets --backend jax use the fastest kernel "
        "on a GPU (default: that of --dropout)",
    )


def add_tokenizer_engine(group: Any) -> None:
    """--engine and --threads of what a tokenizer does."""
    group.add_argument(
        "--engine",
        choices=TOKENIZER_ENGINES,
        default="auto",
        help="c, or python: the same result, slower (default: auto, c where it is installed)",
    )
    group.add_argument(
        "--threads", type=int, metavar="N", help="number of threads (default: one for each core)"
    )


def add_json(group: Any) -> None:
    """--json."""
    group.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def invalid_text(count: int) -> str:
    """The warning about bytes that were not UTF-8, of a command with --strict."""
    places = "one place" if count == 1 else f"{count:,} places"
    return f"The text is not UTF-8 in {places}; the bytes there were left out, --strict stops at the first."


class OptionFlags:
    """Flags that are fields of a run's options: they have no defaults of their own, the help shows theirs.

    Parameters
    ----------
    options : the class of the options.
    undecided : what the help says of a default that is None.
    """

    def __init__(self, options: type, undecided: str) -> None:
        self._options, self._undecided = options, undecided

    def number(self, group: Any, flag: str, kind: type, text: str, field: str | None = None) -> None:
        """A number."""
        field = field or flag[2:].replace("-", "_")
        text = f"{text} (default: {self.default(field)})"
        group.add_argument(flag, dest=field, type=kind, metavar="N", help=text)

    def choice(self, group: Any, flag: str, names: Iterable[str], text: str) -> None:
        """One of several names."""
        text = f"{text} (default: {self.default(flag[2:].replace('-', '_'))})"
        group.add_argument(flag, choices=tuple(names), metavar="NAME", help=text)

    def constant(self, group: Any, flag: str, field: str, value: bool, text: str) -> None:
        """A flag without a value."""
        group.add_argument(flag, dest=field, action="store_const", const=value, help=text)

    def default(self, field: str) -> str:
        """Of a field, as the help shows it."""
        value = getattr(self._options, field)
        return self._undecided if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def said_fields(options: type, arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a run's options that a command line says something about."""
    names = {field.name for field in dataclasses.fields(options)}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    said = {name: value for name, value in given.items() if value is not None and value != []}
    if (kind := said.get("optimizer")) in ("adamw", "paper"):
        said |= {"optimizer": "adamw", "bias_correction": kind == "adamw", "google_decay": kind == "paper"}
    return said
