"""Flags that several commands have, and those that are fields of a run's options."""

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from functools import partial
from types import UnionType
from typing import Any, get_args, get_type_hints

from minibert.base.bundled_models import DEFAULT
from minibert.base.errors import InputError
from minibert.base.options import RunOptions, metadata_of
from minibert.base.terminal import emit
from minibert.cli.shared.messages import ALONE
from minibert.core.optim import KINDS
from minibert.data.corpus import LAYOUTS
from minibert.engines import DEVICES, ENGINES

IN_PACKAGE = f"(default: {DEFAULT}, the one in the package)"
JSON = "print one JSON object instead of text"  # the help of --json
QUIET, QUIET_REPORT = "show no progress", "show no progress, only the report"  # and of --quiet
THREADS = "number of threads (default: one for each core)"


def add_flag(group: Any, flag: str, help: str, default: Any = None, **shown: Any) -> None:
    """Add a flag as its help shows it, such as "--out FILE".

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets the flag.
    flag : str
        The flag, a blank and what stands for its value; N is a whole number, or as its default is.
    help : str
        What it is; the default is added to it.
    default : object, optional
        Its type is that of the flag.
    **shown
        What `add_argument` takes besides.
    """
    name, _, metavar = flag.partition(" ")
    if default is not None:
        help += f" (default: {default})"
        shown["type"] = type(default)
    elif metavar == "N":
        shown = {"type": int} | shown
    group.add_argument(name, metavar=metavar or None, default=default, help=help, **shown)


class Renamed(argparse.Action):
    """A flag of an earlier version: an error that names the one of now."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        parser.error(f"{flag} is now {self.const} (version 0.2)")


def renamed(group: Any, old: str, new: str) -> None:
    """Let a flag of an earlier version say what it is called now.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets the flag, hidden from its help.
    old : str
        The flag of then.
    new : str
        The flag of now.
    """
    hidden = argparse.SUPPRESS
    group.add_argument(old, action=Renamed, const=new, nargs="?", dest=hidden, help=hidden)


def flag_of(name: str) -> str:
    """Return the flag of a field: --seq-length of seq_length.

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
        Which gets them.
    **helps : str
        The texts of their help, by the names of their fields.
    """
    for name, text in helps.items():
        group.add_argument(flag_of(name), action="store_true", help=text)


def add_corpus(parser: Any) -> None:
    """Add CORPUS, the text that a command reads.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    """
    text = "text files, folders or globs: one sentence per line with a blank line between documents, prose, "
    text += ".jsonl, .csv, .tsv or a dump of Wikipedia (.xml), also compressed (default: the books in the "
    text += "package)"
    parser.add_argument("corpus", nargs="*", metavar="CORPUS", help=text)


def add_layout(group: Any, default: str | None = "auto") -> None:
    """Add --layout.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets it.
    default : str, optional, default "auto"
        None for a command that has to know whether it was given.
    """
    text = "how the text is laid out (default: auto, recognised from the text)"
    group.add_argument("--layout", choices=LAYOUTS, default=default, help=text)


def add_column(group: Any, default: str | None = "text") -> None:
    """Add --column.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets it.
    default : str, optional, default "text"
        None for a command that has to know whether it was given.
    """
    text = "the key (JSON lines) or column (tables) that has the text (default: text)"
    group.add_argument("--column", metavar="NAME", default=default, help=text)


def add_model(parser: Any, text: str, **shown: Any) -> None:
    """Add --model, for a command that can't do without one.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    text : str
        Its help.
    **shown
        What `add_argument` takes besides.
    """
    add_flag(parser, "--model MODEL", text, required=True, **shown)


def tell_default(how: str) -> None:
    """Tell on the error stream that the model in the package answers, as none was named.

    Parameters
    ----------
    how : str
        How the command line names another.
    """
    emit(f"minibert: the model is {DEFAULT}, which is in the package; {how} names another", file=sys.stderr)


def add_engine(group: Any, default: str | None = "auto", device: bool = True, **shown: Any) -> None:
    """Add --engine, --threads and, where an engine is chosen to compute with, --device.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets them.
    default : str, optional, default "auto"
        The engine; None for a command that has to know whether it was given.
    device : bool, default True
        Add --device.
    **shown
        What `add_argument` takes for --engine besides, or in place of its default and help.
    """
    shown = {"default": default, "help": "the engine that computes (default: auto)"} | shown
    group.add_argument("--engine", choices=("auto", *ENGINES), **shown)
    renamed(group, "--backend", "--engine")
    if device:
        text = "kind of device for the engine jax (default: the best one that JAX finds)"
        group.add_argument("--device", choices=DEVICES, help=text)
    add_flag(group, "--threads N", THREADS)


def add_optimizer(group: Any, default: str, **about: str) -> None:
    """Add --optimizer.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets it.
    default : str
        In words, for its help.
    **about : str
        What an optimizer is for, where this command says it otherwise than the table.
    """
    text = "paper: as in Google's code, without bias correction and with the rate falling from step 0"
    for name, kind in KINDS.items():
        text += f"; {name}: {about.get(name, kind.ABOUT)}"
    text += f" (default: {default})"
    group.add_argument("--optimizer", choices=("paper", *KINDS), help=text)


def add_core(group: Any) -> None:
    """Add --core and --threads of what a tokenizer does.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets them.
    """
    text = "c, or python: the same result, slower (default: auto, c where it is installed)"
    group.add_argument("--core", choices=("auto", "c", "python"), default="auto", help=text)
    renamed(group, "--engine", "--core")
    add_flag(group, "--threads N", THREADS)


def add_config(group: Any, stored: str) -> None:
    """Add --config, the options of a run in a file.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets it.
    stored : str
        The file of that kind that every run has in its folder, for the help.
    """
    text = f"read options from a JSON or TOML file, such as the {stored} of a run; flags override it"
    add_flag(group, "--config FILE", text)


def invalid_text(count: int) -> str:
    """Return the warning about bytes that were not UTF-8, of a command with --strict.

    Parameters
    ----------
    count : int
        Places where such bytes stand.

    Returns
    -------
    str
    """
    places = "one place" if count == 1 else f"{count:,} places"
    return f"The text is not UTF-8 in {places}; the bytes there were left out, --strict stops at the first."


def add_options(group: Any, options: type[RunOptions], names: str) -> None:
    """Add flags that are fields of a run's options, as these describe them.

    The flags have no defaults of their own: what is not given stays None, and the options decide. That is
    also how --resume tells what was asked for from what was not. The help shows the default of the field.

    Parameters
    ----------
    group : ArgumentParser or argument group
        Which gets them.
    options : type
        A dataclass under `RunOptions`.
    names : str
        The fields, with blanks between.
    """
    hints = get_type_hints(options)
    for name in names.split():
        about = metadata_of(options, name)
        default = getattr(options, name)
        hint = hints[name]
        kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
        shown = _shown(about, kind, default)
        text = about["help"]
        usual = _usual(options, about, kind, default)
        if usual not in (None, "") and (kind is not bool or "default" in about):
            text += f" (default: {usual})"
        text = ALONE.sub(lambda match: flag_of_field(options, match[1]), text)
        group.add_argument(flag_of_field(options, name), dest=name, help=text, **shown)


def add_others(group: Any, parser: argparse.ArgumentParser, options: type[RunOptions]) -> None:
    """Add a flag for every field of a run's options that has none yet, in the order of their declaration.

    So a new option has its flag without a word about it here; `add_options` only chooses a better place.

    Parameters
    ----------
    group : argument group
        Which gets them.
    parser : ArgumentParser
        Parser of the command, with all other flags.
    options : type
        A dataclass under `RunOptions`. A field declared with `flag=""` gets none.
    """
    flagged = {action.dest for action in parser._actions}
    names = [field.name for field in dataclasses.fields(options) if field.name not in flagged]
    add_options(group, options, " ".join(name for name in names if flag_of_field(options, name)))


def flag_of_field(options: type[RunOptions], name: str) -> str:
    """Return the flag that a field of a run's options has.

    Parameters
    ----------
    options : type
        A dataclass under `RunOptions`.
    name : str
        The field.

    Returns
    -------
    str
        "" where it has none.
    """
    return str(metadata_of(options, name).get("flag", flag_of(name)))


def _shown(about: Mapping[str, Any], kind: Any, default: Any) -> dict[str, Any]:
    """Return what `add_argument` takes for a field of a type, beside its name and help."""
    if kind is bool:
        if about.get("both_ways"):
            return {"action": argparse.BooleanOptionalAction}  # None where neither is given
        return {"action": "store_const", "const": not default}
    if "choices" in about:
        return {"choices": about["choices"], "metavar": "NAME"}
    shown: dict[str, Any] = {"metavar": about.get("metavar", "N")}
    if "numbers" in about:
        kind_of_number = (get_args(kind) or (kind,))[0]
        shown["type"] = partial(_numbers, about["numbers"], kind_of_number)
    elif kind is not str:
        shown["type"] = kind
    return shown


def _usual(options: type[RunOptions], about: Mapping[str, Any], kind: Any, default: Any) -> Any:
    """Return what the help of a field calls its default."""
    if "default" in about:
        return about["default"]
    if default is None:
        return None if kind is str else options.UNDECIDED
    return f"{default:g}" if kind is float else default


def _numbers(what: str, kind: Any, text: str) -> tuple[float, ...]:
    """Parse `5e-5,3e-5`; which numbers these may be is checked where they are used."""
    try:
        return tuple(kind(number) for number in text.split(","))
    except ValueError:
        wanted = "give a number, or several separated by commas"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}; {wanted}") from None


def given(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return some of the arguments by name, as a function takes them.

    Parameters
    ----------
    arguments : Namespace
        Arguments of the command.
    names : str
        With blanks between.

    Returns
    -------
    dict
    """
    return {name: getattr(arguments, name) for name in names.split()}


def given_fields(options: type[RunOptions], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a run's options that a command line gives, by its flags or by --config.

    Parameters
    ----------
    options : type
        A dataclass under `RunOptions`.
    arguments : Namespace
        Arguments of a command with --resume.

    Returns
    -------
    dict
        Flags count for more than the file of --config. The optimizer "paper" is several fields.

    Raises
    ------
    InputError
        When --config stands beside --resume, or its file can't be used.
    """
    names = {field.name for field in dataclasses.fields(options)}
    chosen = {}
    for name, value in vars(arguments).items():
        if name in names and value not in (None, []):  # [] is CORPUS left out
            chosen[name] = value
    # "adamw" and "paper" are one optimizer with two settings, which `messages._as_chosen` turns back for
    # errors. LAMB and Muon leave both settings to the recipe of the run.
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
