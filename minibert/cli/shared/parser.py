"""The parser of the command line: the commands, which are the files of the folder, and errors in one line."""

import argparse
import pkgutil
import sys
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from minibert import __version__
from minibert.base.errors import Arguments, Differences, InputError, did_you_mean
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
        self.set_defaults(parser=self, status=0)  # the parser that knows the flags of the command

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or a version, and raise an OSError where that fails: argparse ignores it."""
        if getattr(file, "name", "") != "<stdout>":
            super()._print_message(message, file)
            return
        file.write(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, and remember them: one that is misspelt explains why a flag is missing."""
        self._words = args or []
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with 2, as for any other bad input."""
        flags = [word for word in self._words if word.startswith("--") and "are required: " in message]
        if strange := [word for word in flags if word.partition("=")[0] not in self._option_string_actions]:
            self.unknown(strange)
        if "required: --model" in message:
            message += "; until version 0.2 the model was the first word"
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Complain of commands without a list of them all; one may nearly have that name."""
        if isinstance(action, argparse._SubParsersAction) and value not in (known := action.choices or ()):
            if value in RENAMED and action.metavar == "COMMAND":
                self.error(f"{value} is now {RENAMED[value]} (version 0.2)")
            self.error(f"{value!r} is no {str(action.metavar).lower()}{_suggestion(value, known)}")
        super()._check_value(action, value)

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Exit with 2 because of words that are no flags of the command; name those that may be meant."""
        known = [flag for one in self._actions if one.help != SUPPRESS for flag in one.option_strings]
        given = [word.partition("=")[0] for word in words if word.startswith("-")]
        suggestion = next(filter(None, (_suggestion(flag, known) for flag in given)), "")
        self.error(f"{' '.join(words)} is not known here{suggestion}")

    def as_typed(self, error: InputError) -> str:
        """Return what an error says, with arguments as the command has them: `--batch-size 0`, `TASK x`."""
        flags = {one.dest: one for one in self._actions}

        def typed(name: str, value: Any) -> str:
            if isinstance(value, Differences):
                return ", ".join(dict.fromkeys(map(differing, value, *zip(*value.values(), strict=True))))
            if isinstance(value, Arguments):
                return ", ".join(typed(*one) for one in value.items())
            if name not in flags:
                return f"{name}={value!r}"
            flag = str(next(iter(flags[name].option_strings), flags[name].metavar))
            return flag if flags[name].nargs == 0 else f"{flag} {shell(value)}"

        def differing(name: str, wished: Any, stored: Any) -> str:
            if name in ("bias_correction", "google_decay"):  # both are --optimizer
                is_paper = (name == "google_decay") == bool(wished)
                name, wished, stored = "optimizer", *(("paper", "adamw") if is_paper else ("adamw", "paper"))
            return f"{typed(name, wished)} (the run has {shell(stored)})"

        return error.formatted(typed)


def _suggestion(word: str, known: Iterable[str]) -> str:
    """Ask whether the nearest of the known words was meant, if one is near."""
    bare = {one.lstrip("-"): one for one in known}  # without what all flags have in common
    question = did_you_mean(word.lstrip("-"), bare, cutoff=0.7)
    return f" ({question})" if question else ""


def shell(value: Any) -> str:
    """Return a value without the marks of Python: 0.1,0.2 for (0.1, 0.2), a=b for {'a': 'b'}."""
    if isinstance(value, dict):
        value = [f"{name}={one}" for name, one in value.items()]
    if value and isinstance(value, list | tuple):
        return ",".join(map(shell, value))
    return value if isinstance(value, str) and value and " " not in value else repr(value)


class PrintCompletion(argparse.Action):
    """Print what a shell reads to complete the words of a command, and exit."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        import shtab

        from minibert.tasks.registry import TASKS

        every = build_parser()
        waiting = [every]
        while waiting:
            for one in waiting.pop()._actions:
                if isinstance(one, argparse._SubParsersAction):
                    one.help = ""  # shtab, too, leaves out what help does not list
                    waiting += one.choices.values()
                elif one.metavar in PATHS:
                    one.complete = getattr(shtab, PATHS[str(one.metavar)])  # type: ignore[attr-defined]
                elif one.metavar == "TASK":
                    one.choices = tuple(TASKS)
        emit(shtab.complete(every, shell=values))
        parser.exit()


def commands() -> dict[str, str]:
    """Find the commands: each file of the folder is one, and the first line of its docstring its summary."""
    found = {}
    for name in sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"):
        # Read, not imported: the help of all commands comes at once.
        line = (pkgutil.get_data("minibert.cli", f"{name}.py") or b"").decode().partition("\n")[0]
        text = line.strip('"').removesuffix(".")
        found[name.replace("_", "-")] = text[:1].lower() + text[1:]
    return found


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the words of a command; `arguments.run` is the function to call with the result."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    command = next((word for word in words if word[:1] != "-"), "")
    arguments, left = build_parser(command).parse_known_args(words)
    # argparse takes words without a flag from one place only; those after a flag are left over.
    many = next((name for name in ("corpus", "texts", "runs") if name in arguments), "")
    if left and (any(word.startswith("-") for word in left) or not many):
        arguments.parser.unknown(left)
    if left:
        setattr(arguments, many, [*getattr(arguments, many), *left])
    for one in arguments.parser._actions:  # "", an unset variable of the shell, is the folder one is in
        given = getattr(arguments, one.dest, None) if one.metavar in PATHS else None
        if "" in (given, *(given if isinstance(given, list) else ())):
            name = (one.option_strings or [one.metavar])[0]
            arguments.parser.error(f"{name} '' names no file or folder; give one, or leave it out")
    return arguments


def build_parser(command: str | None = None) -> Parser:
    """Build the parser of all commands, with the flags of one or of all; the files of others stay closed."""
    known = commands()
    listed = "\n".join(f"  {name:<11}{summary}" for name, summary in known.items())
    about = "BERT from scratch: train one, see what it has learnt, check its mathematics."
    about += f"\n\ncommands:\n{listed}"
    parser = Parser(prog="minibert", usage="minibert COMMAND [...]", description=about, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"minibert {__version__}")
    text = "print what completes commands, flags and their values in this shell"
    parser.add_argument("--print-completion", choices=("bash", "zsh"), action=PrintCompletion, help=text)
    choices = parser.add_subparsers(prog="minibert", metavar="COMMAND", required=True, help=SUPPRESS)
    for name, summary in known.items():
        its = choices.add_parser(name, help=summary)
        if command in (name, None):
            module = import_module(f"minibert.cli.{name.replace('-', '_')}")
            its.set_defaults(run=module.run)
            about, mark, examples = (module.__doc__ or "").partition("examples:\n")
            its.description, its.epilog = about.partition("\n")[2], mark + examples
            module.add(its)
    return parser
