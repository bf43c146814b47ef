"""Flags that several commands have, and those that are fields of a run's options."""

import argparse
import dataclasses
from functools import partial
from types import UnionType
from typing import Any, get_args, get_type_hints

from minibert.base.errors import InputError
from minibert.base.options import OPTIMIZERS, RunOptions
from minibert.data.corpus import LAYOUTS
from minibert.engines import DEVICES, ENGINES

JSON = "print one JSON object instead of text"  # the help of --json
QUIET, QUIET_REPORT = "show no progress", "show no progress, only the report"  # and of --quiet
THREADS = "number of threads (default: one for each core)"


def add_flag(group: Any, flag: str, help: str, default: Any = None, **shown: Any) -> None:
    """Add a flag as its help shows it, such as "--out FILE"; N is a whole number, or as its default is."""
    name, _, metavar = flag.partition(" ")
    if default is not None:
        help += f" (default: {default})"
        shown |= {"type": type(default)}
    elif metavar == "N":
        shown = {"type": int} | shown
    group.add_argument(name, metavar=metavar or None, default=default, help=help, **shown)


class Renamed(argparse.Action):
    """A flag of an earlier version: an error that names the one of now."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        parser.error(f"{flag} is now {self.const} (version 0.2)")


def renamed(group: Any, old: str, new: str) -> None:
    """Let a flag of an earlier version say what it is called now."""
    hidden = argparse.SUPPRESS
    group.add_argument(old, action=Renamed, const=new, nargs="?", dest=hidden, help=hidden)


def flag_of(name: str) -> str:
    """Return the flag of a field: --seq-length of seq_length."""
    return "--" + name.replace("_", "-")


KEEP_ACCENTS = "lower-case, but keep accents and the vowel signs that are stripped with them, as in Hindi"
SEGMENTED = "spaces part the words of the text, in Chinese too: whole words there, no single ideographs"


def add_switches(group: Any, **helps: str) -> None:
    """Add flags without a value, by the texts of their help."""
    for name, text in helps.items():
        group.add_argument(flag_of(name), action="store_true", help=text)


def add_corpus(parser: Any) -> None:
    """Add CORPUS, the text that a command reads."""
    text = "text files, folders or globs: one sentence a line with a blank line between documents, prose, "
    text += ".jsonl, .csv, .tsv or a dump of Wikipedia (.xml), compressed too (default: the books in the "
    text += "package)"
    parser.add_argument("corpus", nargs="*", metavar="CORPUS", help=text)


def add_layout(group: Any, default: str | None = "auto") -> None:
    """Add --layout; `default=None` for a command that has to know whether it was given."""
    text = "how the text is laid out (default: auto, found from the text)"
    group.add_argument("--layout", choices=LAYOUTS, default=default, help=text)


def add_column(group: Any, default: str | None = "text") -> None:
    """Add --column; `default=None` for a command that has to know whether it was given."""
    text = "where JSON lines and tables have their text (default: text)"
    group.add_argument("--column", metavar="NAME", default=default, help=text)


def add_model(parser: Any, text: str, **shown: Any) -> None:
    """Add --model, for a command that can't do without one."""
    add_flag(parser, "--model MODEL", text, required=True, **shown)


def add_engine(group: Any, default: str | None = "auto", device: bool = True, **shown: Any) -> None:
    """Add --engine, --threads and, where an engine is chosen to compute with, --device."""
    shown = {"default": default, "help": "the engine that computes (default: auto)"} | shown
    group.add_argument("--engine", choices=("auto", *ENGINES), **shown)
    renamed(group, "--backend", "--engine")
    if device:
        text = "kind of device for the engine jax (default: the best that JAX finds)"
        group.add_argument("--device", choices=DEVICES, help=text)
    add_flag(group, "--threads N", THREADS)


def add_optimizer(group: Any, default: str, lamb: str) -> None:
    """Add --optimizer; `lamb` says what LAMB is for."""
    text = "paper: as in Google's code, without bias correction and with the rate falling from step 0"
    text += f"; lamb: {lamb}; muon: Muon for the matrices of the layers, AdamW for the rest"
    text += f" (default: {default})"
    group.add_argument("--optimizer", choices=("paper", *OPTIMIZERS), help=text)


def add_core(group: Any) -> None:
    """Add --core and --threads of what a tokenizer does."""
    text = "c, or python: the same result, slower (default: auto, c where it is installed)"
    group.add_argument("--core", choices=("auto", "c", "python"), default="auto", help=text)
    renamed(group, "--engine", "--core")
    add_flag(group, "--threads N", THREADS)


def add_config(group: Any, stored: str) -> None:
    """Add --config, the options of a run in a file such as `stored`, which every run has in its folder."""
    text = f"read options from a JSON file, such as the {stored} of a run; flags count for more"
    add_flag(group, "--config FILE", text)


def invalid_text(count: int) -> str:
    """Return the warning about bytes that were not UTF-8, of a command with --strict."""
    places = "one place" if count == 1 else f"{count:,} places"
    return f"The text is not UTF-8 in {places}; the bytes there were left out, --strict stops at the first."


def add_options(group: Any, options: type[RunOptions], names: str) -> None:
    """Add flags that are fields of a run's options, as these describe them.

    The flags have no defaults of their own: what is not given stays None, and the options decide. That is
    also how --resume tells what was asked for from what was not. The help shows the default of the field.
    """
    hints = get_type_hints(options)
    for name in names.split():
        about, default, hint = options.about(name), getattr(options, name), hints[name]
        kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
        shown: dict[str, Any] = {"metavar": about.get("metavar", "N")}
        if kind is bool:
            shown = {"action": argparse.BooleanOptionalAction}  # None where neither is given
            if not about.get("both_ways"):
                shown = {"action": "store_const", "const": not default}
        elif "choices" in about:
            shown = {"choices": about["choices"], "metavar": "NAME"}
        elif "numbers" in about:
            shown["type"] = partial(_numbers, about["numbers"], (get_args(kind) or (kind,))[0])
        elif kind is not str:
            shown["type"] = kind
        usual = f"{default:g}" if kind is float and default is not None else default
        usual = about.get("default", options.UNDECIDED if default is None and kind is not str else usual)
        has_usual = usual not in (None, "") and (kind is not bool or "default" in about)
        text = about["help"] + f" (default: {usual})" * has_usual
        group.add_argument(about.get("flag", flag_of(name)), dest=name, help=text, **shown)


def _numbers(what: str, kind: Any, text: str) -> tuple[float, ...]:
    """Parse `5e-5,3e-5`; which numbers these may be is checked where they are used."""
    try:
        return tuple(kind(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}, nor several between commas") from None


def given(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return some of the arguments by name, as a function takes them."""
    return {name: getattr(arguments, name) for name in names.split()}


def given_fields(options: type[RunOptions], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a run's options that a command line gives, by its flags or by --config."""
    names = {field.name for field in dataclasses.fields(options)}
    chosen = {n: value for n, value in vars(arguments).items() if n in names and value not in (None, [])}
    if (kind := chosen.get("optimizer")) in ("adamw", "paper"):
        chosen |= {"optimizer": "adamw", "bias_correction": kind == "adamw", "google_decay": kind == "paper"}
    if (file := getattr(arguments, "config", None)) is None:
        return chosen
    if arguments.resume:
        raise InputError("--config is for a new run, and --resume has the options of its own; leave one out.")
    return options.configured(file, chosen)
