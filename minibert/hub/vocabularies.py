"""Find the vocabulary of a model, and check that it is the right one."""

from pathlib import Path

from minibert.base.errors import InputError, warn
from minibert.base.model_names import folder_of
from minibert.core.config import BertConfig
from minibert.tokenizer import Tokenizer

FEWEST = 0.9  # of the pieces of a model; a matrix may be padded to a round number of rows


def read_tokenizer(
    model: str | Path, config: BertConfig | None = None, lower_case: bool = False
) -> Tokenizer:
    """Load the tokenizer of a model, from its folder or from the folder of a checkpoint.

    Parameters
    ----------
    model : str or Path
        Name of the model, as for `hub.load`.
    config : BertConfig or None
        Configuration of the model; if given, the vocabulary must fit it.
    lower_case : bool, default False
        Lower-case text even if the tokenizer of the folder does not; accents stay if it keeps them.

    Returns
    -------
    Tokenizer
        The tokenizer in the folder, lower-casing if `lower_case` says so.

    Raises
    ------
    InputError
        When there is no tokenizer, or it has more pieces than the model.
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
    """Refuse a tokenizer with pieces that the model has never seen; warn of one with far fewer.

    Parameters
    ----------
    config : BertConfig
        Configuration of the model.
    tokenizer : Tokenizer
        The tokenizer; it may have fewer pieces than the model.
    folder : str or Path
        Folder of the vocabulary, for the error; by default the error does not name it.

    Raises
    ------
    InputError
        When the tokenizer has more than V pieces.
    """
    if tokenizer.vocab_size > config.V:
        place = f" in '{folder}'" if folder else ""
        raise InputError(
            f"The vocabulary{place} has {tokenizer.vocab_size:,} pieces, but the model was trained with "
            f"{config.V:,}; use the vocabulary that it came with."
        )
    if tokenizer.vocab_size < FEWEST * config.V:
        place = f" in '{folder}'" if folder else ""
        has = f"The vocabulary{place} has {tokenizer.vocab_size:,} pieces and the model {config.V:,}"
        warn(f"{has}; is it another model's?")
