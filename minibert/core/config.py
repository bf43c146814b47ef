"""The shape of a BERT: published sizes by name, fields named as in a Hugging Face `config.json`."""

import dataclasses
import sys
import warnings
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from minibert.core.errors import InputError

# Layers, hidden size, heads. tiny to medium: Turc et al. 2019; base and large: Devlin et al. 2019, section 3.
# Any other shape is called L-H-A, such as 3-768-12 in its Table 6, or 2-128-4, tiny with twice the heads.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
# From Hugging Face's names of the two GELU forms to those of `ops.gelu`.
GELU_FORMS = {"gelu": "erf", "gelu_python": "erf"} | dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast"), "tanh"
)


@dataclass(frozen=True)
class BertConfig:
    """Everything that determines the shapes and the arithmetic of a BERT.

    The defaults are those of BERT-BASE, uncased (Devlin et al. 2019, section 3). The one-letter properties
    are the letters of the shape comments throughout the package.

    Parameters
    ----------
    vocab_size : V, number of pieces in the vocabulary.
    hidden_size : H, width of the hidden states.
    num_hidden_layers : L, number of layers.
    num_attention_heads : A, number of attention heads in a layer; it divides H.
    intermediate_size : F, width of the feed-forward layers.
    hidden_act : form of GELU, by Hugging Face's name: "gelu" is exact, "gelu_new" the tanh approximation.
    hidden_dropout_prob : dropout rate of embeddings and sublayer outputs, in [0, 1).
    attention_probs_dropout_prob : dropout rate of attention probabilities, in [0, 1).
    max_position_embeddings : P, the number of positions, and so the longest possible sequence.
    type_vocab_size : number of segments that the model knows.
    initializer_range : standard deviation of the initial weights.
    layer_norm_eps : number added to the variance in a LayerNorm.
    is_decoder : whether attention is causal, as in the paper's left-to-right ablation.
    trained_length : length of the longest sequence in pre-training. None: unknown.

    Raises
    ------
    InputError
        When a field is out of range or the number of heads does not divide the hidden size.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    is_decoder: bool = False  # True: causal attention, the paper's left-to-right ablation
    trained_length: int | None = field(default=None, compare=False)  # None: unknown

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())  # a plain Python number, as in `config.json`
        counts = [field.name for field in dataclasses.fields(self) if field.type is int]
        if self.trained_length is not None:
            counts.append("trained_length")
        for name in counts:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name}={value!r} is not a positive whole number; give one.")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}; every head needs the same share of it."
            )
        if not isinstance(self.hidden_act, str) or self.hidden_act not in GELU_FORMS:
            known = ", ".join(GELU_FORMS)
            raise InputError(f"hidden_act={self.hidden_act!r} is not known; use one of {known}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise InputError(f"{name}={value!r} is not a probability in [0, 1); the paper uses 0.1.")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
                raise InputError(f"{name}={value!r} is not a positive, finite number; give one.")
        if not isinstance(self.is_decoder, bool):
            raise InputError(f"is_decoder={self.is_decoder!r} is neither true nor false; give one of them.")

    @classmethod
    def from_size(cls, name: str, **overrides: Any) -> "BertConfig":
        """Return the configuration for a size such as "tiny", or for a shape L-H-A such as "3-192-3".

        Parameters
        ----------
        name : one of `SIZES`, or three numbers: layers, hidden size, heads. The feed-forward size is 4H.
        **overrides : fields that differ from those of the size, or from the defaults.

        Returns
        -------
        BertConfig

        Raises
        ------
        InputError
            When the size does not exist, or H is not a multiple of A.
        """
        parts = str(name).split("-")
        is_shape = len(parts) == 3 and all(part.isdecimal() and len(part) < 7 for part in parts)
        shape = tuple(map(int, parts)) if is_shape else SIZES.get(name, (0, 0, 0))
        layers, hidden, heads = shape
        if not layers * hidden * heads:
            known = f"{', '.join(SIZES)}, or L-H-A such as 3-192-3, with H a multiple of A"
            meant = [size for size in SIZES if size in parts]  # of bert-base-uncased
            if meant:
                known = meant[0]
            raise InputError(f"size={name!r} is not a size of BERT; give {known}.", size=name)
        if hidden % heads:
            fitting = max(n for n in range(1, heads + 1) if hidden % n == 0)
            problem = f"size={name!r} has a hidden size of {hidden}, which is not a multiple of {heads} heads"
            raise InputError(f"{problem}; give one such as {layers}-{hidden}-{fitting}.", size=name)
        fields = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden,
        }
        return cls(**(fields | overrides))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BertConfig":
        """Read the fields of a Hugging Face `config.json`, ignoring those that do not concern a BERT encoder.

        Parameters
        ----------
        values : the fields, as read from JSON.

        Returns
        -------
        BertConfig

        Raises
        ------
        InputError
            When `model_type` is not "bert", the fields ask for arithmetic that is not BERT's, or one of them
            is out of range.
        """
        if not isinstance(values, dict):
            raise InputError(f"The configuration is a {type(values).__name__}, not a JSON object of fields.")
        if (kind := values.get("model_type", "bert")) != "bert":
            raise InputError(f"model_type={kind!r} is not a BERT; give a model with model_type 'bert'.")
        if (positions := values.get("position_embedding_type", "absolute")) != "absolute":
            raise InputError(f"position_embedding_type={positions!r} is not BERT's; it has to be 'absolute'.")
        if values.get("add_cross_attention"):
            raise InputError("add_cross_attention=true is not BERT's; give an encoder without it.")
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a `config.json` that `transformers` reads as a `BertForPreTraining`.

        Returns
        -------
        dict of values for JSON, by Hugging Face's names.
        """
        fields = {"architectures": ["BertForPreTraining"], "model_type": "bert", **dataclasses.asdict(self)}
        fields |= {"pad_token_id": 0, "tie_word_embeddings": True}
        return {name: value for name, value in fields.items() if value is not None}

    def warn_untrained(self, longest: int) -> None:
        """Warn, once per process, when a sequence is longer than any that the model was pre-trained on.

        Parameters
        ----------
        longest : number of tokens of the longest sequence.
        """
        if self.trained_length and longest > self.trained_length:
            _warn_untrained(self.trained_length)

    @property
    def size(self) -> str:
        """Return the name of this size, such as "tiny", or its shape L-H-A, such as "5-96-3"."""
        shape = (self.L, self.H, self.A)
        published = (name for name, other in SIZES.items() if other == shape and self.F == 4 * self.H)
        return next(published, "-".join(map(str, shape)))

    @property
    def gelu_form(self) -> str:
        """Return the form of GELU by its name in `ops.gelu`: "erf" or "tanh"."""
        return GELU_FORMS[self.hidden_act]

    L = property(attrgetter("num_hidden_layers"), doc="The number of layers.")
    H = property(attrgetter("hidden_size"), doc="The width of the hidden states.")
    A = property(attrgetter("num_attention_heads"), doc="The number of attention heads in a layer.")
    F = property(attrgetter("intermediate_size"), doc="The width of the feed-forward layers.")
    V = property(attrgetter("vocab_size"), doc="The number of pieces in the vocabulary.")
    P = property(attrgetter("max_position_embeddings"), doc="The number of positions.")

    @property
    def D(self) -> int:
        """Return the width of one attention head, H / A."""
        return self.hidden_size // self.num_attention_heads


@cache  # once per process
def _warn_untrained(trained_length: int) -> None:
    warnings.warn(
        f"This model was pre-trained on sequences of up to {trained_length} tokens and does worse on longer "
        "ones; shorten them, or pre-train it further on sequences as long as they are.",
        stacklevel=4,  # the code that made the batch being validated
    )
