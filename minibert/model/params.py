"""Add heads with LSTMs or pooled windows to the core's, and the parameters of a BERT with any of them."""

from typing import Any, NamedTuple

import numpy as np

from minibert.core import params as core
from minibert.core.arrays import Array
from minibert.core.config import BertConfig
from minibert.core.errors import InputError
from minibert.core.head_kinds import SEQUENCES, HeadKind
from minibert.core.params import Entry, encoder_table, head_table, reset, weight
from minibert.model.head_kinds import KINDS, OF_TEXTS, POOLS


class Head(NamedTuple):
    """The output layer on the encoder, as `core.params.PlainHead`, and the layers between the two.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    outputs : int
        Outputs for each sequence or token; 0 with "pretraining".
    lstm : bool
        Whether two bidirectional LSTMs are between encoder and head: "+ BiLSTM" of the paper's Table 5.
    pool : str
        One of `POOLS` if an example is several windows; "" if it is one sequence.

    Examples
    --------
    >>> Head("classify", 3).pooled, Head("span", 2).pooled
    (True, False)
    """

    kind: str
    outputs: int
    lstm: bool = False
    pool: str = ""

    @property
    def spec(self) -> HeadKind:
        """Return the properties of all heads of this kind."""
        return KINDS[self.kind]

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled [CLS], and so has a pooler below it."""
        return self.spec.reads == SEQUENCES


PRETRAINING = Head("pretraining", 0)


def check_head(head: Head) -> None:
    """Check that a head is one that exists.

    Parameters
    ----------
    head : Head

    Raises
    ------
    InputError
        When its kind does not exist, or can't have its outputs, its LSTMs or its pool.
    """
    core.check_head(head, KINDS)
    if head.lstm and head.kind == "pretraining":
        raise InputError("Pre-training has no LSTM between encoder and heads; leave lstm=True to a task.")
    if head.pool and (head.pool not in POOLS or head.kind not in OF_TEXTS):
        raise InputError(f"A head of kind {head.kind!r} has no pool={head.pool!r}; leave it out.")


def parameter_table(config: BertConfig, head: Head = PRETRAINING) -> list[Entry]:
    """List every parameter of encoder, LSTMs, pooler and head, in the order of the buffer.

    LSTMs on the encoder have H outputs as well, half of them in each direction.

    Parameters
    ----------
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on the encoder; by default the heads of pre-training.

    Returns
    -------
    list of Entry

    Raises
    ------
    InputError
        When there is no such head, or it has LSTMs and the hidden size is odd.
    """
    check_head(head)
    H = config.H
    if head.lstm and H % 2:
        raise InputError(f"hidden_size={H} is odd; an LSTM needs an even one, half for each direction.")
    table = encoder_table(config)
    if head.lstm:
        table += lstm_table(H, H // 2)
    table += head_table(config, head)
    if head.pool == "attention":
        table.append(weight("head.query", H))
    return table


def lstm_table(inputs: int, width: int, depth: int = 2) -> list[Entry]:
    """List the parameters of a stack of bidirectional LSTMs.

    Parameters
    ----------
    inputs : int
        Size of the vectors that the first LSTM reads.
    width : int
        Outputs of each LSTM in each direction.
    depth : int, default 2
        Number of LSTMs.

    Returns
    -------
    list of Entry
    """
    table = []
    for i in range(depth):
        for direction in ("left_to_right", "right_to_left"):
            path = f"lstm.{i}.{direction}"
            table += [
                Entry(f"{path}.w_in", (inputs, 4 * width), uniform, True),
                Entry(f"{path}.w_state", (width, 4 * width), uniform, True),
                Entry(f"{path}.bias", (4 * width,), lstm_bias, False),
            ]
        inputs = 2 * width
    return table


# -> (shape)
def uniform(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> np.ndarray:
    """Draw the weights of an LSTM, for its four gates, uniformly from +-1/sqrt(outputs) as PyTorch does.

    Parameters
    ----------
    generator : Generator
        Source of the draws.
    shape : tuple of int
        Shape of the values; the last axis holds the four gates.
    spread : float
        Not used.

    Returns
    -------
    array of `shape`, float64
    """
    outputs = shape[-1] // 4
    return generator.uniform(-1, 1, shape) / outputs**0.5


# -> (shape)
def lstm_bias(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> np.ndarray:
    """Return the first bias of an LSTM: 1 for the forget gate, so that a cell remembers at first, else 0.

    The order of the gates is input, forget, candidate, output (Gers et al. 2000; Jozefowicz et al. 2015).

    Parameters
    ----------
    generator : Generator
        Not used.
    shape : tuple of int
        Shape of the values, (4 width,).
    spread : float
        Not used.

    Returns
    -------
    array of `shape`, bool
    """
    outputs = shape[-1] // 4
    return np.arange(4 * outputs) // outputs == 1


class Parameters(core.Parameters):
    """All parameters of one BERT and of its head, in one flat buffer.

    Parameters
    ----------
    config : BertConfig
        The shape of the encoder.
    flat : (N,) optional
        The buffer, which is not copied; by default a new one of zeros.
    dtype : dtype, default float32
        Precision of a new buffer.
    head : Head
        The head on the encoder; by default the heads of pre-training.

    Attributes
    ----------
    decoder : (V,H) or None
        The decoder of a masked-LM head if it is not the word embeddings; None if it is, as in BERT. Only a
        loaded model can have one. It is not part of the buffer, and nothing trains it.
    """

    head: Head
    decoder: np.ndarray | None = None

    def __init__(
        self,
        config: BertConfig,
        flat: Array = None,
        dtype: Any = np.float32,
        head: Head = PRETRAINING,
    ) -> None:
        super().__init__(config, flat, dtype, head)

    @staticmethod
    def table_of(config: BertConfig, head: Head) -> list[Entry]:  # type: ignore[override]
        """List the parameters of a BERT with this head.

        Parameters
        ----------
        config : BertConfig
            The shape of the encoder.
        head : Head
            The head on the encoder.
        """
        return parameter_table(config, head)

    @property
    def description(self) -> dict[str, Any]:
        """Return the JSON that a checkpoint stores, from which the same table can be made."""
        stored = list(self.head)
        if not self.head.pool:
            stored = stored[:3]  # the same as in checkpoints from before there were pools
        return super().description | {"head": stored}


def precision_for(arithmetic: str) -> np.dtype:
    """Return the dtype of parameters, gradients and moments for products computed in `arithmetic`.

    Parameters
    ----------
    arithmetic : str
        "float32", "float64" or "bfloat16", whose parameters are float32.

    Returns
    -------
    dtype

    Examples
    --------
    >>> precision_for("bfloat16")
    dtype('float32')
    """
    return np.dtype("float32" if arithmetic == "bfloat16" else arithmetic)


def initialise(
    config: BertConfig,
    seed: int,
    dtype: Any = "float32",
    head: Head = PRETRAINING,
) -> Parameters:
    """Draw the paper's initial values, as `core.params.initialise` does, for any head of the product.

    Parameters
    ----------
    config : BertConfig
        The shape of the encoder.
    seed : int
        Seed of all draws.
    dtype : dtype, default "float32"
        Precision of the parameters.
    head : Head
        The head on the encoder; by default the heads of pre-training.

    Returns
    -------
    parameters : Parameters
        In one new buffer.
    """
    parameters = Parameters(config, dtype=dtype, head=head)
    reset(parameters, parameters, seed)
    return parameters
