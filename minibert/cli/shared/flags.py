"""Flags that several commands have, and flags for the options of a run."""

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from types import UnionType
from typing import Any, get_args, get_type_hints

from minibert.base.bundled_models import DEFAULT, bundled_folder
from minibert.base.errors import InputError
from minibert.base.options import RunOptions, metadata_of
from minibert.base.terminal import emit
from minibert.cli.shared.messages import ALONE
from minibert.core.optim import KINDS
from minibert.data.corpus import LAYOUTS
from minibert.engines import DEVICES, ENGINES

IN_PACKAGE = f"(default: {DEFAULT}, the one in the package)"
# The help of --json, of a command with one result, of one that makes a run, and of one that answers texts.
JSON = "print one JSON object instead of text"
JSON_REPORT = "print the report as JSON, as in report.json, instead of text"
JSON_EACH = "print a JSON object for each text instead"
QUIET, QUIET_REPORT = "show no progress", "show no progress, only the report"  # the help of --quiet
THREADS = "number of threads (default: one for each core)"


def add_flag(group: Any, flag: str, help: str, default: Any = None, **shown: Any) -> None:
    """Add a flag, written as in its help: "--out FILE".

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives the flag.
    flag : str
        The flag, a space and a placeholder for its value. N is a whole number, unless the default is not.
    help : str
        Its help; the default is appended.
    default : object, optional
        Also determines the type of the value.
    **shown
        Further arguments of `add_argument`.
    """
    name, _, metavar = flag.partition(" ")
    if default is not None:
        help += f" (default: {default})"
        shown["type"] = type(default)
    elif metavar == "N":
        shown = {"type": int} | shown
    group.add_argument(name, metavar=metavar or None, default=default, help=help, **shown)


def flag_of(name: str) -> str:
    """Return the flag for a field: --seq-length for seq_length.

    Parameters
    ----------
    name : str
        Name of the field.

    Returns
    -------
    str
    """
    return "--" + name.replace("_", "-")


KEEP_ACCENTS = "lower-case, but keep accents and the vowel signs that are stripped with them, as in Hindi"
SEGMENTED = "spaces separate the words, in Chinese too, so that pieces can be longer than one ideograph"


def add_switches(group: Any, **helps: str) -> None:
    """Add flags without a value.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives them.
    **helps : str
        The help of each, by the name of its field.
    """
    for name, text in helps.items():
        group.add_argument(flag_of(name), action="store_true", help=text)


def add_corpus(parser: Any) -> None:
    """Add CORPUS, the files of text that a command reads.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    """
    text = "text files, folders or globs: one sentence per line with a blank line between documents, prose, "
    text += ".jsonl, .csv, .tsv or a Wikipedia dump (.xml); compressed files too (default: the books in "
    text += "the package)"
    parser.add_argument("corpus", nargs="*", metavar="CORPUS", help=text)


def add_layout(group: Any, default: str | None = "auto") -> None:
    """Add --layout.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives it.
    default : str, optional, default "auto"
        None for a command that needs to know whether the flag was given.
    """
    text = "how the text is laid out (default: auto, recognised from the text)"
    group.add_argument("--layout", choices=LAYOUTS, default=default, help=text)


def add_column(group: Any) -> None:
    """Add --column.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives it.
    """
    text = "the key (JSON lines) or column (tables) with the text (default: text)"
    group.add_argument("--column", metavar="NAME", default="text", help=text)


def named_pair(text: str, form: str) -> tuple[str, str]:
    """Split `text=review` into a pair.

    Parameters
    ----------
    text : str
        What was typed.
    form : str
        What is expected, for the error.

    Returns
    -------
    tuple of str

    Raises
    ------
    ArgumentTypeError
        When a side is missing.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    return name, value


role_and_column = partial(named_pair, form="NAME=COLUMN, such as text=review")


def add_model(parser: Any, text: str, **shown: Any) -> None:
    """Add --model, for a command that requires it: it needs a head that was trained for a task.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    text : str
        Its help.
    **shown
        Further arguments of `add_argument`.
    """
    add_flag(parser, "--model MODEL", text, required=True, **shown)


def add_any_model(parser: Any, text: str, **shown: Any) -> None:
    """Add --model, for a command that takes any BERT: without the flag, that in the package.

    Parameters
    ----------
    parser : ArgumentParser or argument group
        Receives the flag.
    text : str
        Its help; the default is appended.
    **shown
        Further arguments of `add_argument`.
    """
    add_flag(parser, "--model MODEL", f"{text} {IN_PACKAGE}", **shown)


def model_or_default(name: str | None, how: str = "--model") -> str:
    """Return the model that a command was given, or else the one in the package, and say so on stderr.

    Parameters
    ----------
    name : str or None
        The model that the command line names, if any.
    how : str, default "--model"
        How the command line names another.

    Returns
    -------
    str
        For the model in the package, its folder; its name if this installation lacks it, for which loading
        has the error.
    """
    if name is not None:
        return name
    folder = bundled_folder(DEFAULT)
    if folder is None:
        return DEFAULT
    emit(f"minibert: the model is {DEFAULT}, which is in the package; {how} names another", file=sys.stderr)
    return str(folder)


def add_engine(group: Any, default: str | None = "auto", device: bool = True, **shown: Any) -> None:
    """Add --engine, --threads and, where an engine is chosen to compute with, --device.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives them.
    default : str, optional, default "auto"
        The engine; None for a command that needs to know whether the flag was given.
    device : bool, default True
        Add --device.
    **shown
        Further arguments of `add_argument` for --engine; they may replace its default and help.
    """
    shown = {"default": default, "help": "the engine that computes (default: auto)"} | shown
    group.add_argument("--engine", choices=("auto", *ENGINES), **shown)
    if device:
        text = "kind of device for the engine jax (default: the best one that JAX finds)"
        group.add_argument("--device", choices=DEVICES, help=text)
    add_flag(group, "--threads N", THREADS)


def add_optimizer(group: Any, default: str, **about: str) -> None:
    """Add --optimizer.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives it.
    default : str
        The default in words, for the help.
    **about : str
        What an optimizer is for, by its name, where this command words it differently from the table.
    """
    text = "paper: as in Google's code, without bias correction and with the rate falling from step 0 on"
    for name, kind in KINDS.items():
        text += f"; {name}: {about.get(name, kind.ABOUT)}"
    text += f" (default: {default})"
    group.add_argument("--optimizer", choices=("paper", *KINDS), help=text)


def add_core(group: Any) -> None:
    """Add --core and --threads, for work with a tokenizer.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives them.
    """
    text = "c, or python: the same result, slower (default: auto, c if it is installed)"
    group.add_argument("--core", choices=("auto", "c", "python"), default="auto", help=text)
    add_flag(group, "--threads N", THREADS)


def add_config(group: Any, stored: str) -> None:
    """Add --config, a file with options of a run.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives it.
    stored : str
        The file of this kind that every run leaves in its folder, for the help.
    """
    text = f"read options from a JSON or TOML file, such as the {stored} of a run; flags override it"
    add_flag(group, "--config FILE", text)


def invalid_text(count: int) -> str:
    """Return the warning about bytes that were not UTF-8, for a command with --strict.

    Parameters
    ----------
    count : int
        Number of places with such bytes.

    Returns
    -------
    str
    """
    places = "one place" if count == 1 else f"{count:,} places"
    return f"The text is not UTF-8 in {places}; the bytes there were left out, --strict stops at the first."


def add_options(group: Any, options: type[RunOptions], names: str) -> None:
    """Add flags for fields of a run's options, as the fields describe them.

    The flags have no defaults of their own: a flag that is not given is None, and the options decide. This is
    also how --resume knows what was asked for. The help shows the default of the field.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Receives them.
    options : type
        A subclass of `RunOptions`.
    names : str
        The fields, separated by spaces.
    """
    hints = get_type_hints(options)
    for name in names.split():
        metadata = metadata_of(options, name)
        default = getattr(options, name)
        hint = hints[name]
        kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint  # float of `float | None`
        text = metadata["help"] + _default_in_help(options, metadata, kind, default)
        text = ALONE.sub(lambda match: flag_of_field(options, match[1]), text)  # `name` -> --name
        parsing = _parsing(metadata, kind, default)
        group.add_argument(flag_of_field(options, name), dest=name, help=text, **parsing)


def add_others(group: Any, parser: argparse.ArgumentParser, options: type[RunOptions]) -> None:
    """Add a flag for every field of a run's options that has none yet, in the order of declaration.

    So a new option gets its flag automatically; `add_options` only chooses a better position in the help.

    Parameters
    ----------
    group : argument group
        Receives them.
    parser : ArgumentParser
        Parser of the command, with all other flags.
    options : type
        A subclass of `RunOptions`. A field declared with `flag=""` gets none.
    """
    flagged = {action.dest for action in parser._actions}
    names = [field.name for field in dataclasses.fields(options) if field.name not in flagged]
    add_options(group, options, " ".join(name for name in names if flag_of_field(options, name)))


def flag_of_field(options: type[RunOptions], name: str) -> str:
    """Return the flag for a field of a run's options.

    Parameters
    ----------
    options : type
        A subclass of `RunOptions`.
    name : str
        The field.

    Returns
    -------
    str
        "" if it has none.
    """
    return str(metadata_of(options, name).get("flag", flag_of(name)))


def _parsing(metadata: Mapping[str, Any], kind: Any, default: Any) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a field, except its name and help."""
    if kind is bool:
        if metadata.get("both_ways"):
            return {"action": argparse.BooleanOptionalAction}  # None if neither is given
        return {"action": "store_const", "const": not default}
    if "choices" in metadata:
        return {"choices": metadata["choices"], "metavar": "NAME"}
    parsing: dict[str, Any] = {"metavar": metadata.get("metavar", "N")}
    if "numbers" in metadata:
        kind_of_number = (get_args(kind) or (kind,))[0]
        parsing["type"] = partial(_numbers, metadata["numbers"], kind_of_number)
    elif kind is not str:
        parsing["type"] = kind
    return parsing


def _default_in_help(options: type[RunOptions], metadata: Mapping[str, Any], kind: Any, default: Any) -> str:
    """Return the end of the help of a field, such as " (default: 32)"; "" if there is nothing to say."""
    if "default" in metadata:
        shown = metadata["default"]
    elif kind is bool:
        shown = ""  # a switch is off unless it is given
    elif default is None:
        shown = "" if kind is str else options.UNDECIDED
    elif kind is float:
        shown = f"{default:g}"
    else:
        shown = default
    return "" if shown in (None, "") else f" (default: {shown})"


def _numbers(what: str, kind: Any, text: str) -> tuple[float, ...]:
    """Parse numbers such as `5e-5,3e-5`; their range is checked where they are used."""
    try:
        return tuple(kind(number) for number in text.split(","))
    except ValueError:
        wanted = "give a number, or several separated by commas"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}; {wanted}") from None


def selected(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """Select some arguments by name, as keyword arguments of a function.

    Parameters
    ----------
    arguments : Namespace
        Arguments of the command.
    names : str
        The names, separated by spaces.

    Returns
    -------
    dict
    """
    return {name: getattr(arguments, name) for name in names.split()}


def given_fields(options: type[RunOptions], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a run that a command line gives, by flags or by --config.

    Parameters
    ----------
    options : type
        A subclass of `RunOptions`.
    arguments : Namespace
        Arguments of a command with --resume.

    Returns
    -------
    dict
        Options by name; flags override the file of --config. The optimizer "paper" sets several fields.

    Raises
    ------
    InputError
        When --config is given with --resume, or its file can't be used.
    """
    names = {field.name for field in dataclasses.fields(options)}
    chosen = {}
    for name, value in vars(arguments).items():
        if name in names and value not in (None, []):  # [] is CORPUS left out
            chosen[name] = value
    # "adamw" and "paper" are one optimizer with different settings, which `messages._as_chosen` turns back
    # into the flag for errors. LAMB and Muon leave these settings to the recipe of the run.
    optimizer = chosen.get("optimizer")
    if optimizer in ("adamw", "paper"):
        chosen["optimizer"] = "adamw"
        chosen["bias_correction"] = optimizer == "adamw"
        chosen["google_decay"] = optimizer == "paper"
    file = getattr(arguments, "config", None)
    if file is None:
        return chosen
    if arguments.resume:
        raise InputError("--config is for a new run, and --resume keeps the old ones; leave one of them out.")
    return options.configured(file, chosen)
