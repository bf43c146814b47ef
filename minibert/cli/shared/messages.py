"""Show errors and warnings on the command line: with flags in place of Python's arguments."""

import argparse
import re
from ast import literal_eval
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from minibert.base.errors import OtherOptions

# name=value in a sentence; the value is a dictionary, a quoted string, a number or a word.
WITH_VALUE = re.compile(r"""(?<![\w.='"`/-])([a-z]\w*)=(\{[^{}]*\}|'[^']*'|"[^"]*"|[\w.]*\w)(?![\w(\[])""")
ALONE = re.compile(r"`([a-z]\w*)`")


def on_command_line(problem: BaseException | Warning, parser: argparse.ArgumentParser) -> str:
    """Return the sentence of an error or a warning, with flags where it names arguments.

    Parameters
    ----------
    problem : exception or warning
        An InputError, InputWarning or RunError; its sentence names arguments as `name` in backticks or as
        name=value. Names that are not arguments of the command stay as they are.
    parser : ArgumentParser
        Parser of the command.

    Returns
    -------
    str
        Such as "--batch-size 0 is not valid" for "batch_size=0 is not valid".
    """
    flags = {action.dest: action for action in parser._actions}
    flags |= {name: flags[flag] for name, flag in getattr(parser, "also_named", {}).items()}
    if isinstance(problem, OtherOptions):
        problem = OtherOptions(_as_chosen(problem.differing))
    arguments: Mapping[str, Any] = getattr(problem, "arguments", {})
    values = {f"{name}={value!r}": value for name, value in arguments.items() if name in flags}
    typed_values = getattr(parser, "typed", {})

    def flag(match: re.Match[str]) -> str:
        name, _, text = match[0].strip("`").partition("=")
        if name not in flags:
            return match[0]
        if match[0].startswith("`"):
            return flag_of_action(flags[name])
        if match[0] not in values:
            value: Any = text
            with suppress(ValueError, SyntaxError):  # a word
                value = literal_eval(text)
            return with_value(flags[name], value)
        value, typed = typed_values.get(name, (None, ""))
        is_typed = values[match[0]] == value or (values[match[0]],) == value
        if is_typed and isinstance(value, int | float | tuple) and flags[name].nargs is None:
            return f"{flag_of_action(flags[name])} {typed}"
        return with_value(flags[name], values[match[0]])

    # Values that the error carries as data are found literally, whatever they contain; values in advice have
    # to be parsed. One pass does both, so that nothing is replaced inside a replacement.
    given = [rf"(?<![\w.]){re.escape(text)}(?!\w)" for text in values]
    pattern = "|".join((*given, WITH_VALUE.pattern, ALONE.pattern))
    text = re.sub(pattern, flag, str(problem))
    if isinstance(problem, OtherOptions):
        for name, (_, stored) in problem.differing.items():
            shown = shell(stored)
            if name in flags and flags[name].nargs == 0:  # a switch
                shown = with_value(flags[name], stored)
            elif name in flags and not flags[name].option_strings:
                shown = repr(stored)
            text = text.replace(f"(the run has {stored!r})", f"(the run has {shown})", 1)
    return text


def flag_of_action(action: argparse.Action) -> str:
    """Return how a person types an argument: its first flag or, if it has none, its placeholder.

    Parameters
    ----------
    action : Action
        Action of a parser.
    """
    return str(next(iter(action.option_strings), action.metavar))


def with_value(action: argparse.Action, value: Any) -> str:
    """Return how a person types an argument with its value.

    Parameters
    ----------
    action : Action
        Action of a parser; a switch has no value of its own.
    value : object
        The value in Python.

    Returns
    -------
    str
        For example "--lr 0.1,0.2" for (0.1, 0.2), "TASK 'sst2'" for an argument without a flag, and
        "no --cased" for the value that results from leaving the flag out.
    """
    flag = flag_of_action(action)
    if not action.option_strings and isinstance(value, str):
        return f"{flag} {value!r}"
    if isinstance(action, argparse.BooleanOptionalAction) and value is False:
        return action.option_strings[-1]  # --no-fsdp
    if value is None or (action.nargs == 0 and value != (action.const is not False)):
        return f"no {flag}"
    if action.nargs == 0:
        return flag
    if isinstance(value, dict):
        value = [f"{name}={part}" for name, part in value.items()]
    if isinstance(action, argparse._AppendAction) and isinstance(value, list | tuple):
        return " ".join(f"{flag} {shell(part)}" for part in value)
    if action.nargs in ("*", "+") and isinstance(value, list | tuple):
        shown = shell if action.option_strings else repr
        return " ".join((flag, *map(shown, value)))
    return f"{flag} {shell(value)}"


def shell(value: Any) -> str:
    """Return a value as it is typed in a shell, without Python's punctuation: 0.1,0.2 for (0.1, 0.2).

    Parameters
    ----------
    value : object
        The value of a flag.

    Returns
    -------
    str
        A string that contains a space is in quotation marks.
    """
    if value is None:
        return "none"
    if value and isinstance(value, list | tuple):
        return ",".join(map(shell, value))
    if isinstance(value, str) and value and " " not in value:
        return value
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return repr(value)


def _as_chosen(differing: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Replace the two options that "--optimizer paper" sets by that flag, among options that differ."""
    chosen = dict(differing)
    for name in ("bias_correction", "google_decay"):
        if name in chosen:
            wanted, _ = chosen.pop(name)
            is_paper = (name == "google_decay") == bool(wanted)
            chosen.setdefault("optimizer", ("paper", "adamw") if is_paper else ("adamw", "paper"))
    return chosen
