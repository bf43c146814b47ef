"""`minibert tag`: words of a text with their tags, and what is named in it."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from minibert.cli.flags import add_engine
from minibert.cli.lines import STANDARD_INPUT, refuse_file, text_lines
from minibert.errors import InputError
from minibert.terminal import emit, json_text, printable


def add_tag(commands: Any) -> None:
    """The parser of `minibert tag`."""
    parser = commands.add_parser(
        "tag",
        usage="minibert tag RUN [TEXT ... | --text FILE] [--json] [...]",
        description="""
Tags the words of a text with a model that was fine-tuned for it, and lists the
entities. Without TEXT every line of a file or of the standard input is a text.
""",
        epilog="""
examples:
  minibert tag runs/ner "Ishmael sailed from New Bedford."
  minibert tag runs/ner --text letters.txt.gz --json
""",
    )
    parser.set_defaults(run=run_tag)
    parser.add_argument(
        "folder", metavar="RUN", help="a model fine-tuned for ner or tag, feature-based or not"
    )
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="a sentence or more (default: the lines of --text)"
    )
    parser.add_argument(
        "--text", metavar="FILE", help="a file of texts, .gz and .xz too (default: the standard input)"
    )
    add_engine(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each text instead")


def run_tag(arguments: argparse.Namespace) -> int:
    """Tag, and print."""
    from minibert.backends import limited_threads
    from minibert.finetuning.words import tag_texts

    if arguments.texts and arguments.text:
        raise InputError(f"--text {arguments.text} is in place of {arguments.texts[0]!r}; give one of them.")
    for text in arguments.texts:
        refuse_file(text, "name it with --text FILE to tag its lines")
    model = load_tagging_model(arguments.folder, arguments.backend, arguments.threads)
    texts: Iterable[str] = arguments.texts or text_lines(arguments.text or STANDARD_INPUT)
    with limited_threads(arguments.threads, model.ops):
        for number, found in enumerate(tag_texts(model, texts)):
            if arguments.json:
                emit(json_text(found, indent=None))
            else:
                emit("\n" * (number > 0) + "\n".join(_lines(found)))
    return 0


def load_tagging_model(folder: str, backend: str, threads: int | None) -> Any:
    """The model in a folder, fine-tuned or feature-based.

    Raises
    ------
    InputError
        When there is none, or it does not tag words.
    """
    from minibert.finetuning.models import load

    model = load(folder, backend, threads)
    if model.task.kind != "tag":
        raise InputError(
            f"The model in {folder} was fine-tuned for {model.task.name}, which tags no words; "
            "give one that was for ner or tag."
        )
    return model


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """A word a line with its tag, then the entities."""
    yield from _columns((word["word"], word["tag"]) for word in found["words"])
    if found["entities"]:
        yield ""
    yield from _columns((entity["type"], entity["text"]) for entity in found["entities"])


def _columns(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    shown = [(printable(first), printable(second)) for first, second in rows]
    width = max((len(first) for first, _ in shown), default=0)
    return (f"{first:<{width}}  {second}" for first, second in shown)
