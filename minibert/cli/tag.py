"""Tag the words of a text, and list the entities in it.

Tags the words of a text with a model that was fine-tuned for this, and lists
the entities. Without TEXT, every line of --file or of the standard input is a
text.

examples:
  minibert tag --model runs/ner "Ishmael sailed from New Bedford."
  minibert tag --model runs/ner --file letters.txt.gz --json
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from minibert.base.errors import InputError
from minibert.base.terminal import aligned, printable
from minibert.base.texts import answers_in_place
from minibert.cli.shared.flags import JSON_EACH, add_engine, add_model, add_switches
from minibert.cli.shared.texts import add_texts, emit_answers, given_texts


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert tag --model MODEL [TEXT ... | --file FILE] [--json] [...]"
    add_model(parser, "a model fine-tuned for ner or tag, feature-based or not")
    add_texts(parser, "a sentence, or more")
    add_engine(parser)
    add_switches(parser, json=JSON_EACH)


def run(arguments: Namespace) -> None:
    """Print the tags of each text.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When the model was fine-tuned for something else.
    """
    from minibert.engines import limited_threads
    from minibert.finetuning.models import open_model
    from minibert.tasks.words import tag_texts

    texts = given_texts(arguments, "name it with --file FILE to tag its lines")
    model = open_model(arguments.model, arguments.engine, threads=arguments.threads)
    if model.task.kind != "tag":
        trained = f"The model in '{arguments.model}' was fine-tuned for {model.task.name}"
        raise InputError(f"{trained}, which tags no words; give one that was fine-tuned for ner or tag.")
    tag = partial(tag_texts, model)
    with limited_threads(arguments.threads, model.ops):
        emit_answers(
            answers_in_place(texts, tag, None),
            facts=dict,
            text=lambda tagged: "\n".join(_lines(tagged)),
            as_json=arguments.json,
        )


def _lines(tagged: dict[str, Any]) -> Iterator[str]:
    """Yield the words with their tags and, after an empty line, the entities, if any."""
    words = [(printable(word["word"]), printable(word["tag"])) for word in tagged["words"]]
    yield from aligned(words)
    if tagged["entities"]:
        yield ""
    entities = [(printable(entity["type"]), printable(entity["text"])) for entity in tagged["entities"]]
    yield from aligned(entities)
