"""The vocabulary that goes with a model: where it lies, and whether it is the right one."""

from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.model_names import folder_of
from minibert.core.config import BertConfig
from minibert.tokenizer import Tokenizer


def read_tokenizer(
    model: str | Path, config: BertConfig | None = None, lower_case: bool = False
) -> Tokenizer:
    """Load the tokenizer of a model: from its folder, or beside a checkpoint that is named by a path.

    Parameters
    ----------
    model : its name, as of `hub.load`.
    config : of the model, whose vocabulary the tokenizer's must fit; not checked when left out.
    lower_case : whether text is lower-cased before the tokenizer of the folder sees it; accents stay if they
        did. False leaves all as the folder says.

    Returns
    -------
    Tokenizer.

    Raises
    ------
    InputError
        When there is none, or it has more pieces than the model with this `config`.
    """
    folder = folder_of(model)
    tokenizer = Tokenizer.from_pretrained(folder)
    if lower_case and not tokenizer.lower_case:
        keeps = not tokenizer.basic_tokenizer.strip_accents
        tokenizer = Tokenizer.from_pretrained(folder, lower_case=True, strip_accents=not keeps)
    if config is not None:
        check_vocabulary(config, tokenizer, model)
    return tokenizer


def check_vocabulary(config: BertConfig, tokenizer: Tokenizer, folder: str | Path = "") -> None:
    """Raise InputError when the tokenizer has pieces that the model has never seen."""
    if tokenizer.vocab_size > config.V:
        found = f"The vocabulary{f' in {folder}' if folder else ''} has {tokenizer.vocab_size:,} pieces"
        advice = "use the vocabulary that it came with."
        raise InputError(f"{found}, but the model was trained with {config.V:,}; {advice}")
