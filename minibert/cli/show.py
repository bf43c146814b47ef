"""Write a page that shows a BERT at work, to explore by typing.

Writes one HTML file that contains the whole model: vocabulary, weights, and a
tokenizer and a forward pass in JavaScript. It needs neither network nor Python;
open it in a browser and type. It shows pieces, attention, hidden states,
guesses at [MASK] after every layer, the answer of a fine-tuned model, and what
changes when a head, a layer or a word is switched off. A picture of the whole
flow leads to all of these, and a walk through one head to its equations. With
several models, such as checkpoints of a run, it has a slider over training.

Weights are rounded to float16, or to 8 bits for several models; the page says
how much accuracy that costs. Models that need more than 100 MB are refused.

examples:
  minibert show
  minibert show runs/books --out books.html
  minibert show runs/books@1000 runs/books@4000 runs/books --out training.html
  minibert show all-MiniLM-L6-v2 --int8 --text "A man is eating food." --out minilm.html
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from minibert.base.bundled_models import DEFAULT
from minibert.base.terminal import emit, json_text
from minibert.cli.shared.flags import (
    IN_PACKAGE,
    JSON,
    add_flag,
    add_switches,
    model_or_default,
    selected,
)
from minibert.cli.shared.texts import refuse_file


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert show [MODEL ...] [--out FILE] [--text TEXT] [--int8] [...]"
    text = "a run folder, RUN@STEP, or a Hugging Face BERT; several need the same shape and vocabulary "
    text += IN_PACKAGE
    parser.add_argument("models", nargs="*", metavar="MODEL", help=text)
    add_flag(parser, "--out FILE", "the .html file to write (default: the name of the first MODEL, here)")
    add_flag(parser, "--text TEXT", "the text that the page begins with (default: an example)")
    add_flag(parser, "--text-pair TEXT", "the second text, or the context of a question")
    add_switches(parser, int8="keep 8 bits of each weight, for half the size", json=JSON)


def run(arguments: Namespace) -> None:
    """Write the page, and print its size.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.base.files import page_path, require_folder
    from minibert.explorer import show

    models = arguments.models or [model_or_default(None, "MODEL")]
    out = arguments.out or f"{Path(os.path.abspath(models[0])).name}.html"
    require_folder(page_path(out).parent)  # before the work
    for text in (arguments.text, arguments.text_pair):
        refuse_file(text, "give its words, or type them into the page")
    page = show(*models, **selected(arguments, "text text_pair int8"))
    size = page.save(out)
    if arguments.json:
        emit(json_text({"out": out, "bytes": size, "models": arguments.models or [DEFAULT]}))
        return
    text = f"{size / 1e6:,.1f} MB: {out}"
    if len(models) > 1:
        text = f"{len(models)} models, {text}"
    emit(text)
