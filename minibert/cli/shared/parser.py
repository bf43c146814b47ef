"""The parser of the command line: finds the commands, and answers each misuse in one sentence."""

import argparse
import os
import pkgutil
import re
import shlex
import sys
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from minibert import __version__
from minibert.base.errors import InputWarning, did_you_mean
from minibert.base.foreign_names import advice_for, name_here
from minibert.base.terminal import emit, listed, printable
from minibert.cli.shared.messages import flag_of_action, on_command_line

FOLDER = Path(__file__).parent.parent
# The placeholders of arguments that name a file or a folder, and how shtab completes them.
PATHS = dict.fromkeys(("DIR", "DIR|CHAPTER", "MODEL", "RUN"), "DIRECTORY")
PATHS |= dict.fromkeys(("CORPUS", "FILE", "GOLD", "PATH", "PREDICTIONS"), "FILE")
# The commands by purpose, as `minibert --help` lists them; docs/command-line.md has the same table.
PURPOSES = {
    "train": "pretrain finetune vocab data extend",
    "ask a model": "fill-mask classify tag answer predict features score-text show",
    "measure and check": "evaluate score compare doctor verify reproduce gradcheck",
    "more": "tokenize export info course",
}
EXAMPLES = """
examples:
  minibert pretrain
  minibert fill-mask --model runs/books "the heaven and the [MASK]."

`minibert COMMAND --help` explains a command. Exit status: 0 success, 1 the work
failed, 2 something on the command line can't be used, 130 Ctrl-C, 143 SIGTERM,
129 SIGHUP (the terminal was closed).
"""

# What other programs call a command or the value of a flag, and its names here; the first of them that is one
# of the choices is meant.
ELSEWHERE = {
    "train": ("pretrain or finetune",),
    "fit": ("finetune",),
    **dict.fromkeys(("encode", "embed", "embeddings", "vectors", "similarity", "search"), ("features",)),
    **dict.fromkeys(("fill", "unmask", "mask", "mlm"), ("fill-mask",)),
    "ner": ("tag",),
    **dict.fromkeys(("qa", "ask"), ("answer",)),
    **dict.fromkeys(("perplexity", "ppl", "likelihood"), ("score-text",)),
    **dict.fromkeys(("plot", "explore", "visualize", "serve"), ("show",)),
    **dict.fromkeys(("prepare", "preprocess"), ("data",)),
    "train-tokenizer": ("vocab",),
    "test": ("evaluate",),
    **dict.fromkeys(("convert", "onnx"), ("export",)),
    **dict.fromkeys(("eval", "val", "validation"), ("dev", "evaluate")),
    **dict.fromkeys(("cuda", "gpu"), ("gpu", "jax")),
    **dict.fromkeys(("fp16", "half", "mixed", "float16"), ("float16", "bfloat16")),
    "bf16": ("bfloat16",),
    "fp32": ("float32",),
    "adam": ("adamw",),
}
# What to give instead of a flag or, for "", instead of a word that a command does not take.
_ASK = "give the question and the text without flags: minibert answer --model MODEL QUESTION TEXT"
_FORMAT = "--onnx writes model.onnx as well; the model itself is in Hugging Face's format"
_SHOWN = "progress is shown unless --quiet is given; leave it out"
INSTEAD = {
    **dict.fromkeys((("minibert", "-v"), ("minibert", "-V")), "did you mean --version?"),
    ("minibert", "version"): "did you mean --version?",
    ("minibert", "help"): "did you mean --help?",
    **dict.fromkeys((("pretrain", "--verbose"), ("finetune", "--verbose")), _SHOWN),
    ("classify", "--input"): "did you mean --file?",
    ("classify", "--text"): "give the text without a flag: minibert classify --model MODEL TEXT",
    ("answer", "--question"): _ASK,
    ("answer", "--context"): _ASK,
    **dict.fromkeys((("export", "--format"), ("export", "--to")), _FORMAT),
    ("classify", "--data"): "for a table: minibert predict --model MODEL --data FILE --out DIR",
    ("predict", ""): "predict reads a file; for one text: minibert classify --model MODEL TEXT",
}
# What one letter is elsewhere.
SHORT = {"o": "--out", "m": "--model", "e": "--epochs", "b": "--batch-size", "t": "--task"}
_FLAG = re.compile(r"--|-[A-Za-z]")  # and no negative number
# What argparse says, and what we say.
SENTENCES = {
    r"argument (\S+): not allowed with argument (\S+)": r"\2 and \1 can't be given together; leave one out",
    r"argument (\S+): expected one argument": r"\1 needs a value",
    r"argument (\S+): expected at least one argument": r"\1 needs a value, or more",
    r"argument (\S+)/(\S+): ignored explicit argument .*": r"\1 takes no value; give \1 or \2 alone",
    r"argument (\S+): ignored explicit argument .*": r"\1 takes no value; give \1 alone",
    r"one of the arguments (\S+) (\S+) is required": r"\1 and \2 are missing; give one of them",
    r"the following arguments are required: (\S+)": r"\1 is missing",
    r"the following arguments are required: (.+), (\S+)": r"\1 and \2 are missing",
    r"argument (\S+): (.+)": r"\1: \2",
}
NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


class Parser(argparse.ArgumentParser):
    """Shows descriptions and examples line by line, as written in the source; complains in one line."""

    def __init__(self, **kwargs: Any) -> None:
        # A wider first column than argparse's, so that most flags have their text next to them.
        form = partial(argparse.RawDescriptionHelpFormatter, max_help_position=31)
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=form)
        # By default, argparse takes "-1" for a value but "-1e-3" and "-1,-2" for flags.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self._words: Sequence[str] = []
        self.also_named: dict[str, str] = {}  # a second name of an argument in the library -> its flag's
        self.typed: dict[str, tuple[Any, str]] = {}  # each argument's value, and how it was typed
        self.set_defaults(parser=self, status=0)  # the parser that knows the flags of the command

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version; unlike argparse, let an OSError through."""
        if getattr(file, "name", "") != "<stdout>":
            super()._print_message(message, file)
            return
        file.write(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, and remember them: a misspelt one may explain why a flag is missing.

        Parameters
        ----------
        args : sequence of str, optional
            The words; None: none.
        namespace : Namespace, optional
            Receives the values.

        Returns
        -------
        (Namespace, list of str)
            The values, and the words that are left over.
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
            # A misspelt flag comes first: it may be why another one is missing.
            before = takewhile(lambda word: word != "--", self._words)  # no flags come after it
            typed = [word for word in before if _FLAG.match(word)]
            flags = self._option_string_actions
            unknown = [word for word in typed if word.partition("=")[0] not in flags]
            if unknown:
                self.unknown(unknown)
        for theirs, ours in SENTENCES.items():
            if match := re.fullmatch(theirs, message):
                message = match.expand(ours)
                break
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        """Return what some words mean, and remember them: errors show a value as it was typed."""
        value = super()._get_values(action, words)
        if len(words) == 1:
            self.typed[action.dest] = (value, words[0])
        return value

    def _get_value(self, action: argparse.Action, word: str) -> Any:
        """Convert a word to the type of its argument; refuse what is not a number where one is needed."""
        try:
            return super()._get_value(action, word)
        except argparse.ArgumentError as error:
            if action.type not in NUMBERS:
                raise
            advice = "give one"
            if action.type is int and re.fullmatch(r"\d+(\.0*)?(e\d)?", word):
                advice += f", such as {float(word):.0f}"
            message = f"{flag_of_action(action)} {word} is not {NUMBERS[action.type]}; {advice}"
            raise argparse.ArgumentError(None, message) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not one of the choices; list them, or name the one that may be meant."""
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        wrong = f"{flag_of_action(action)} {value} is not valid"
        if not action.option_strings:
            wrong = f"{value!r} is not a {str(action.metavar).lower()}"
        suggestion = _named_elsewhere(value, choices)
        if isinstance(action, argparse._SubParsersAction):  # whose choices --help lists
            suggestion = suggestion or INSTEAD.get(("minibert", value), "")
            suggestion = suggestion or did_you_mean(value, choices, cutoff=0.7)
            self.error(wrong + _in_brackets(suggestion))
        verb = "choose from" if len(choices) > 1 else "give"
        self.error(f"{wrong}{_in_brackets(suggestion)}; {verb} {', '.join(map(str, choices))}")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Exit with 2 because of words that the command does not take; say what may be meant.

        Parameters
        ----------
        words : sequence of str
            As they were typed: flags, perhaps with their values, or words alone.
        """
        flags = list(dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("-")))
        if not flags:
            self.error(f"{words[0]!r} is not expected here ({self._advice_for_word(words)})")
        text, *others = dict.fromkeys(filter(None, map(self._advice_for_flag, flags))) or [""]  # each once
        for advice in others:
            end = "" if text.endswith(("?", ".")) else "."
            text += f"{end} {advice[:1].upper()}{advice[1:]}"
        are = "is" if len(flags) == 1 else "are"
        self.error(f"{listed(flags, 'and')} {are} not known here{_in_brackets(text)}")

    def _advice_for_flag(self, flag: str) -> str:
        """Return what to give instead of a flag that is not known; "" if nothing is similar."""
        if instead := INSTEAD.get((self._command, flag)):
            return instead
        by_name: dict[str, str] = {}  # the flag for each name in Python
        by_bare_name: dict[str, str] = {}  # hyphens would make all flags similar
        for action in self._actions:
            if action.option_strings:
                by_bare_name |= {option.lstrip("-"): option for option in action.option_strings}
                if action.const is not False:  # --cased, for lower_case, means the opposite
                    by_name[action.dest] = action.option_strings[0]
        name = flag.lstrip("-").replace("-", "_")
        if name in by_name:
            return f"did you mean {by_name[name]}?"
        if short := next((flag for flag in by_bare_name.values() if SHORT.get(name) == flag), ""):
            return f"did you mean {short}?"
        if advice := advice_for(name, by_name):
            return on_command_line(InputWarning(advice), self)
        without_flag = {each.dest: each.metavar for each in self._actions if not each.option_strings}
        place = name if name in without_flag else name_here(name, without_flag)
        if place:
            return f"give {without_flag[place] or place} without a flag"
        return did_you_mean(flag.lstrip("-"), by_bare_name, cutoff=0.7)

    def _advice_for_word(self, words: Sequence[str]) -> str:
        """Return what to do with words that are left over, without a flag among them."""
        typed: list[str] = []  # what was typed, with --flag=value as two words
        for word in self._words:
            typed += word.split("=", 1) if word.startswith("--") else [word]
        before = typed[: typed.index(words[0])]
        flag, value = before[-2:] if len(before) > 1 else ("", "")
        action = self._option_string_actions.get(flag)
        given = [value, *words]
        if action and isinstance(action.type, partial) and all(map(_is_number, given)):
            return f"put commas between several values: {flag} {','.join(given)}"
        if "--data" in self._option_string_actions and os.path.exists(words[0]):
            return f"did you mean --data {shlex.quote(words[0])}?"
        if "--data" not in typed and (instead := INSTEAD.get((self._command, ""))):
            return instead
        if action and action.nargs is None and action.type is None:
            return f"put quotation marks around a value with spaces: {flag} {shlex.quote(' '.join(given))}"
        return "leave it out"

    @property
    def _command(self) -> str:
        return self.prog.rpartition(" ")[2]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _in_brackets(advice: str) -> str:
    return f" ({advice})" if advice else ""


def _named_elsewhere(word: str, choices: Iterable[str]) -> str:
    """Ask whether a choice was meant that other programs call by this word; "" if there is none."""
    for name in ELSEWHERE.get(word, ()):
        if name.partition(" ")[0] in choices:
            return f"did you mean {name}?"
    return ""


class PrintCompletion(argparse.Action):
    """Print the script by which a shell completes the words of a command, and exit."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        import shtab

        from minibert.tasks.registry import TASKS

        whole = build_parser()
        waiting = [whole]
        while waiting:
            for action in waiting.pop()._actions:
                if isinstance(action, argparse._SubParsersAction):
                    action.help = ""  # hidden from help, but not from shtab
                    waiting += action.choices.values()
                elif action.metavar in PATHS:
                    action.complete = getattr(shtab, PATHS[str(action.metavar)])  # type: ignore[attr-defined]
                elif action.metavar == "TASK":
                    action.choices = tuple(TASKS)
        emit(shtab.complete(whole, shell=values))
        parser.exit()


def commands() -> dict[str, str]:
    """Find the commands and their summaries: each file of the folder, and the first line of its docstring."""
    summaries = {}
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    for name in names:
        # Read, not imported: the help that lists all commands appears at once.
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
        The words after `minibert`; by default, those of this process. An empty list asks for help.

    Returns
    -------
    Namespace
        Its `run` is the function to call with it.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    command = next((word for word in words if word[:1] != "-"), "")
    parser = build_parser(command)
    _require_command_first(parser, words)
    arguments, left = parser.parse_known_args(words)
    if left:
        # argparse takes words without a flag from one place only; those after a flag are left over.
        many = next(
            (name for name in ("corpus", "texts", "runs", "folders", "models") if name in arguments), ""
        )
        if not many or any(word.startswith("-") for word in left):
            arguments.parser.unknown(left)
        setattr(arguments, many, [*getattr(arguments, many), *left])
    for action in arguments.parser._actions:
        if action.metavar in PATHS:
            _expand_paths(arguments, action)
    return arguments


def _require_command_first(parser: Parser, words: Sequence[str]) -> None:
    """Exit with 2 if the first word is a flag of some command."""
    flag = words[0].partition("=")[0]
    if flag[:1] != "-" or flag in parser._option_string_actions:
        return
    command = next((word for word in words if word in commands()), "")
    if command and flag != "--":
        parser.error(f"the command comes first, and {flag} after it: minibert {command} {flag} [...]")
    parser.unknown([flag])


def _expand_paths(arguments: argparse.Namespace, action: argparse.Action) -> None:
    """Expand ~ in paths, as a shell does not in --out=~/runs; exit with 2 for an empty path.

    An empty path, perhaps an unset variable of the shell, would mean the working folder. Commands open many
    files themselves, so all paths are expanded here; `base.paths` expands those that come from Python.
    """
    given = getattr(arguments, action.dest, None)
    if not isinstance(given, str | list):
        return
    paths = [given] if isinstance(given, str) else given
    if "" in paths:
        name = flag_of_action(action)
        # argparse calls an argument that takes any number of words required.
        or_not = "" if action.required and action.nargs != "*" else ", or leave it out"
        arguments.parser.error(f"{name} '' names no file or folder; give one{or_not}")
    paths = [os.path.expanduser(path) for path in paths]
    setattr(arguments, action.dest, paths[0] if isinstance(given, str) else paths)


def build_parser(command: str | None = None) -> Parser:
    """Build the parser of all commands, with the flags of one or of all; other commands are not imported.

    Parameters
    ----------
    command : str, optional
        The command to add the flags of; None: all.

    Returns
    -------
    Parser
    """
    known = commands()
    about = "BERT from scratch: train one, see what it has learnt, check its mathematics."
    for purpose, names in PURPOSES.items():
        lines = "\n".join(f"  {name:<11}{known[name]}" for name in names.split())
        about += f"\n\n{purpose}:\n{lines}"
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
