"""The parser of the command line: the commands, which are the files of the folder, and errors in one line."""

import argparse
import os
import pkgutil
import sys
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from minibert import __version__
from minibert.base.errors import did_you_mean
from minibert.base.foreign_names import name_here
from minibert.base.terminal import emit, printable

FOLDER = Path(__file__).parent.parent
# What help calls the arguments that name a file or a folder, and what shtab completes them by.
PATHS = {"DIR": "DIRECTORY", "MODEL": "DIRECTORY", "RUN": "DIRECTORY"}
PATHS |= dict.fromkeys(("CORPUS", "FILE", "GOLD", "PATH", "PREDICTIONS"), "FILE")
RENAMED = {"convert": "export", "warmup": "info --warm-up"}  # commands of version 0.1
EXAMPLES = """
examples:
  minibert pretrain
  minibert fill-mask --model runs/books "the heaven and the [MASK]."

`minibert COMMAND --help` explains a command. Exit status: 0 done, 1 the work
failed, 2 something on the command line can't be used, 130 Ctrl-C, 143 SIGTERM,
129 SIGHUP (the terminal was closed).
"""


class Parser(argparse.ArgumentParser):
    """Shows descriptions and examples line by line as they stand in the source; complains in one line."""

    def __init__(self, **kwargs: Any) -> None:
        # A wider first column than argparse's, so that most flags keep their text beside them.
        form = partial(argparse.RawDescriptionHelpFormatter, max_help_position=31)
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=form)
        self._words: Sequence[str] = []
        self.typed: dict[str, tuple[Any, str]] = {}  # of each argument its value, and how it was typed
        self.set_defaults(parser=self, status=0)  # the parser that knows the flags of the command

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or a version, and raise an OSError where that fails: argparse ignores it."""
        if getattr(file, "name", "") != "<stdout>":
            super()._print_message(message, file)
            return
        file.write(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, and remember them: one that is misspelt explains why a flag is missing.

        Parameters
        ----------
        args : sequence of str, optional
            The words; None: none.
        namespace : Namespace, optional
            Which gets the values.

        Returns
        -------
        (Namespace, list of str)
            The values, and the words that are left.
        """
        self._words = args or []
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with 2, as for any other bad input.

        Parameters
        ----------
        message : str
            Argparse's, or one of ours, without a period.
        """
        if "are required: " in message:
            # A misspelt flag comes first: it is why another one is missing, perhaps.
            typed = [word for word in self._words if word.startswith("--")]
            flags = self._option_string_actions
            unknown = [word for word in typed if word.partition("=")[0] not in flags]
            if unknown:
                self.unknown(unknown)
        if "required: --model" in message:
            message += "; until version 0.2 the model was the first word"
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        """Return what some words mean, and remember them: errors show a value as it was typed."""
        value = super()._get_values(action, words)
        if len(words) == 1:
            self.typed[action.dest] = (value, words[0])
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command, naming the one with the nearest name; argparse would list them all."""
        choices = action.choices or ()
        is_command = isinstance(action, argparse._SubParsersAction)
        if not is_command or value in choices:
            super()._check_value(action, value)
            return
        if value in RENAMED and action.metavar == "COMMAND":
            self.error(f"{value} is now {RENAMED[value]} (version 0.2)")
        what = str(action.metavar).lower()
        self.error(f"{value!r} is not a {what}{_suggestion(value, choices)}")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Exit with 2 because of words that are not flags of the command; name those that may be meant.

        Parameters
        ----------
        words : sequence of str
            As they were typed.
        """
        flags: dict[str, str] = {}  # the first of each argument, by its name in Python
        every_flag: list[str] = []
        for action in self._actions:
            if action.help != SUPPRESS and action.option_strings:
                flags[action.dest] = action.option_strings[0]
                every_flag += action.option_strings
        suggestion = ""
        for word in words:
            if word.startswith("-") and not suggestion:
                flag = word.partition("=")[0]
                elsewhere = name_here(flag.lstrip("-"), flags)
                suggestion = _suggestion(flag, every_flag)
                if elsewhere:
                    suggestion = f" (did you mean {flags[elsewhere]}?)"
        self.error(f"{' '.join(words)} is not known here{suggestion}")


def _suggestion(word: str, names: Iterable[str]) -> str:
    """Return a question in brackets, whether the nearest of some names was meant; "" where none is near."""
    by_bare_name = {name.lstrip("-"): name for name in names}  # the hyphens of all flags would make them near
    question = did_you_mean(word.lstrip("-"), by_bare_name, cutoff=0.7)
    if not question:
        return ""
    return f" ({question})"


class PrintCompletion(argparse.Action):
    """Print what a shell reads to complete the words of a command, and exit."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        import shtab

        from minibert.tasks.registry import TASKS

        whole = build_parser()
        waiting = [whole]
        while waiting:
            for action in waiting.pop()._actions:
                if isinstance(action, argparse._SubParsersAction):
                    action.help = ""  # shtab, too, leaves out what help does not list
                    waiting += action.choices.values()
                elif action.metavar in PATHS:
                    action.complete = getattr(shtab, PATHS[str(action.metavar)])  # type: ignore[attr-defined]
                elif action.metavar == "TASK":
                    action.choices = tuple(TASKS)
        emit(shtab.complete(whole, shell=values))
        parser.exit()


def commands() -> dict[str, str]:
    """Find the commands: each file of the folder is one, and the first line of its docstring its summary."""
    summaries = {}
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    for name in names:
        # Read, not imported: the help of all commands comes at once.
        source = pkgutil.get_data("minibert.cli", f"{name}.py") or b""
        line = source.decode().partition("\n")[0]
        text = line.strip('"').removesuffix(".")
        summaries[name.replace("_", "-")] = text[:1].lower() + text[1:]
    return summaries


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the words of a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after `minibert`; those of this process when left out. None at all ask for help.

    Returns
    -------
    Namespace
        Whose `run` is the function to call with it.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    command = next((word for word in words if word[:1] != "-"), "")
    arguments, left = build_parser(command).parse_known_args(words)
    if left:
        # argparse takes words without a flag from one place only; those after a flag are left over.
        many = next((name for name in ("corpus", "texts", "runs", "folders") if name in arguments), "")
        if not many or any(word.startswith("-") for word in left):
            arguments.parser.unknown(left)
        setattr(arguments, many, [*getattr(arguments, many), *left])
    for action in arguments.parser._actions:
        if action.metavar in PATHS:
            _refuse_empty(arguments, action)
            _expand_home(arguments, action)
    return arguments


def _refuse_empty(arguments: argparse.Namespace, action: argparse.Action) -> None:
    """Exit with 2 for "" as a path, an unset variable of the shell: it would be the folder one is in."""
    given = getattr(arguments, action.dest, None)
    values = [given, *given] if isinstance(given, list) else [given]
    if "" in values:
        name = action.option_strings[0] if action.option_strings else action.metavar
        arguments.parser.error(f"{name} '' names no file or folder; give one, or leave it out")


def _expand_home(arguments: argparse.Namespace, action: argparse.Action) -> None:
    """Expand ~ in a path, which a shell leaves as it is in --out=~/runs."""
    given = getattr(arguments, action.dest, None)
    if isinstance(given, str):
        setattr(arguments, action.dest, os.path.expanduser(given))
    if isinstance(given, list):
        setattr(arguments, action.dest, list(map(os.path.expanduser, given)))


def build_parser(command: str | None = None) -> Parser:
    """Build the parser of all commands, with the flags of one or of all; the files of others stay closed.

    Parameters
    ----------
    command : str, optional
        The one whose flags are wanted; None: all.

    Returns
    -------
    Parser
    """
    known = commands()
    listed = "\n".join(f"  {name:<11}{summary}" for name, summary in known.items())
    about = "BERT from scratch: train one, see what it has learnt, check its mathematics."
    about += f"\n\ncommands:\n{listed}"
    parser = Parser(prog="minibert", usage="minibert COMMAND [...]", description=about, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"minibert {__version__}")
    text = "print a script that lets this shell complete commands, flags and their values"
    parser.add_argument("--print-completion", choices=("bash", "zsh"), action=PrintCompletion, help=text)
    choices = parser.add_subparsers(prog="minibert", metavar="COMMAND", required=True, help=SUPPRESS)
    for name, summary in known.items():
        subparser = choices.add_parser(name, help=summary)
        if command not in (name, None):
            continue
        module = import_module(f"minibert.cli.{name.replace('-', '_')}")
        subparser.set_defaults(run=module.run)
        about, mark, examples = (module.__doc__ or "").partition("examples:\n")
        subparser.description = about.partition("\n")[2]
        subparser.epilog = mark + examples
        module.add(subparser)
    return parser
