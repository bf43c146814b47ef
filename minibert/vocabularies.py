"""The vocabulary that goes with a model: where it lies, and whether it is the right one."""

from pathlib import Path

from minibert.errors import InputError
from minibert.model.config import BertConfig
from minibert.model_names import folder_of
from minibert.tokenizer import Tokenizer


def read_tokenizer(model: str | Path, config: BertConfig | None = None) -> Tokenizer:
    """Load the tokenizer of a model: from its folder, or beside a checkpoint that is named by a path.

    Raise InputError when it has more pieces than the model with this `config`.
    """
    tokenizer = Tokenizer.from_pretrained(folder_of(model))
    if config is not None:
        check_vocabulary(config, tokenizer, model)
    return tokenizer


def check_vocabulary(config: BertConfig, tokenizer: Tokenizer, folder: str | Path = "") -> None:
    """Raise InputError when the tokenizer has pieces that the model has never seen."""
    if tokenizer.vocab_size > config.V:
        found = f"The vocabulary{f' in {folder}' if folder else ''} has {tokenizer.vocab_size:,} pieces"
        advice = "use the vocabulary that it came with."
        raise InputError(f"{found}, but the model was trained with {config.V:,}; {advice}")
