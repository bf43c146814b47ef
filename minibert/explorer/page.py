"""Make the explorer's page: one HTML file that contains styles, scripts and the models' weights."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minibert.api.base import Estimator
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.base.files import atomic_text, page_path
from minibert.explorer.packing import Model, packed_checkpoint, packed_size, packed_tokenizer, read_model
from minibert.reports.markup import framed, inert_json, rendered

STATIC = Path(__file__).with_name("static")
SCRIPTS = "data tokenizer bert backward state drawing flow pieces guesses attention".split()
SCRIPTS += "walk switches gradient hidden answer explorer".split()
LARGEST = 100_000_000  # the most characters that the weights of a page may take
# Kind of head -> the texts that the page starts with.
TEXTS: dict[str, tuple[str, str | None]] = {
    "pretraining": ("It was the best of times, it was the [MASK] of times.", None),
    "span": ("What does the page need?", "The page needs a browser, and neither a network nor Python."),
}
# Sentences with a [MASK] that one click puts into the page.
EXAMPLES = (
    "She was born in New [MASK] City.",
    "She looked at [MASK] own hands.",
    "They [MASK] born in London.",
)
SENTENCE = "A charming and often affecting journey."  # for all other heads


class Explorer(NamedTuple):
    """A page in which models run; a notebook displays it, `save` writes it to a file."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"Explorer({self.title!r}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        return framed(self.html, f"Explorer of {self.title}")

    def save(self, out: str | Path) -> int:
        """Write the page, which any browser opens.

        Parameters
        ----------
        out : path
            A name that ends in .html, or InputError is raised.

        Returns
        -------
        int
            Size of the file in bytes.
        """
        atomic_text(page_path(out), self.html)
        return len(self.html.encode())


def show(
    *models: str | os.PathLike[str] | Bert | Estimator,
    text: str | None = None,
    text_pair: str | None = None,
    int8: bool = False,
) -> Explorer:
    """Make a page in which a trained BERT runs: type, and see pieces, attention, guesses and more.

    The page contains the whole model, and so does the file of a notebook that displays the page.

    Parameters
    ----------
    *models : path, Run, Bert or Estimator
        A path is a folder or `RUN@STEP`; an estimator has to be fitted. With several models, such as
        checkpoints of a training, the page has a slider to choose one.
    text, text_pair : str, default None
        Texts that the page starts with; None: an example.
    int8 : bool, default False
        Store weights with 8 bits instead of 16. Several models are always stored with 8 bits.

    Returns
    -------
    Explorer

    Raises
    ------
    InputError
        When a model can't be read or shown, models differ in shape or vocabulary or are too large, only the
        second of two texts is given, or a second text is given to a model with a single segment.
    """
    if text is None and text_pair is not None:
        message = f"{text_pair=} is the second of two texts; give the first, too."
        raise InputError(message, text_pair=text_pair)
    if not models:
        raise InputError("There is no model to show; give a folder, a Run, a Bert or an estimator.")
    int8 = int8 or len(models) > 1
    read = [read_model(model) for model in models]
    first = read[0]
    config = first.params.config
    if text_pair is not None and config.type_vocab_size == 1:
        what = f"{first.name} knows one segment only (type_vocab_size=1), and {text_pair=} is a second"
        raise InputError(f"{what}; leave it out.", text_pair=text_pair)
    tables = packed_tokenizer(first.tokenizer)
    for model in read[1:]:
        same = model.tokenizer.vocab == first.tokenizer.vocab and packed_tokenizer(model.tokenizer) == tables
        if model.params.table != first.params.table or not same:
            differing = "size or head" if same else "vocabulary"
            raise InputError(f"{model.name} has another {differing} than {first.name}; show them apart.")
    _check_size(read, int8)
    # A model may have more embeddings than pieces; these get names that no piece has.
    without_piece = range(first.tokenizer.vocab_size, config.V)
    title = first.name
    if len(read) > 1:
        title = title.partition("@")[0]
    texts: tuple[str, str | None] = TEXTS.get(first.params.head.kind, (SENTENCE, None))
    if text is not None:
        texts = text, text_pair
    data = {
        "title": title,
        "text": texts,
        "examples": EXAMPLES if first.params.head.kind == "pretraining" else (),
        "checkpoints": [packed_checkpoint(model, int8) for model in read],
        "vocabulary": first.tokenizer.vocab + [f"[id {token_id}]" for token_id in without_piece],
        "tokenizer": tables,
    }
    css = (STATIC / "explorer.css").read_text("utf-8")
    js = "\n".join((STATIC / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    page = rendered("explorer.html.j2", STATIC, title=title, style=css, script=js, data=inert_json(data))
    return Explorer(title, page)


def _check_size(models: Sequence[Model], int8: bool) -> None:
    """Raise InputError if the weights of all models are too large for a page."""
    sizes = [packed_size(model, int8) for model in models]
    size = sum(sizes)
    if size <= LARGEST:
        return
    size_with_int8 = sum(packed_size(model, True) for model in models)
    most_models = 0  # stays 0 for a single model
    if len(models) > 1:
        most_models = LARGEST // sizes[0]
    if most_models:
        advice = f"name at most {most_models:,} of them"
    elif size_with_int8 <= LARGEST and not int8:
        advice = f"int8=True makes that {size_with_int8 / 1e6:,.0f} MB"
    else:
        advice = f"no page can hold {models[0].name}, show a smaller model"
    what = "the models" if len(models) > 1 else models[0].name
    raise InputError(f"{what} would take {size / 1e6:,.0f} MB of at most {LARGEST / 1e6:,.0f}; {advice}.")
