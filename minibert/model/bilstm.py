"""The tagger of the feature-based approach (Devlin et al. 2019, section 5.3), forward and backward.

The hidden states of a frozen encoder go through two bidirectional LSTMs and one linear layer:

    vectors (T,I), or N layers (N,T,I) mixed by learnt weights  ->  LSTMs (T,2W)  ->  tags (T,K)

All functions are pure, as in `heads.py`; the tagger has its own table of parameters.
"""

import dataclasses
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.heads import HeadLoss, LossSaved
from minibert.core.ops import Dropout
from minibert.core.params import Entry, FlatParameters, bias, reset, weight
from minibert.model.batch import VectorBatch
from minibert.model.ops import Ops
from minibert.model.params import lstm_table

MODEL_TYPE = "bilstm"  # in `config.json` and checkpoints
SITE = 0  # dropout site after the first LSTM

TaggerSaved = namedtuple("TaggerSaved", "mix lstm rows linear")  # mix: None without a mixture


@dataclass(frozen=True)
class BilstmConfig:
    """The configuration of a tagger: everything that determines its shapes.

    Parameters
    ----------
    inputs : int
        I, size of a vector.
    outputs : int
        K, number of tags.
    width : int, default 768
        W, outputs of each LSTM in each direction; by default the paper's.
    depth : int, default 2
        Number of stacked LSTMs; by default the paper's.
    mixed : int, default 0
        N, number of layers to mix by learnt weights; 0: no mixture.
    dropout : float, default 0.1
        Dropout rate after each LSTM.
    initializer_range : float, default 0.02
        Standard deviation of the linear layer's initial weights.

    Raises
    ------
    InputError
        When a field is out of range.
    """

    inputs: int  # I
    outputs: int  # K
    width: int = 768  # W
    depth: int = 2
    mixed: int = 0  # N
    dropout: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "width", "depth", "mixed"):
            value = getattr(self, name)
            least = 0 if name == "mixed" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name}={value!r} is not a whole number from {least} on; give one.")
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise InputError(f"dropout={self.dropout!r} is not a probability in [0, 1); 0.1 is usual.")
        if not isinstance(self.initializer_range, int | float) or not self.initializer_range > 0:
            raise InputError(f"initializer_range={self.initializer_range!r} is not positive; 0.02 is usual.")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BilstmConfig":
        """Read the fields that `to_dict` returns.

        Parameters
        ----------
        values : dict
            The fields, as read from JSON; others are ignored.

        Raises
        ------
        InputError
            When they are not those of a tagger, or a field is out of range.
        """
        model_type = values.get("model_type")
        if model_type != MODEL_TYPE or not {"inputs", "outputs"} <= values.keys():
            advice = f"expected {MODEL_TYPE!r} with inputs and outputs."
            raise InputError(f"model_type={model_type!r} is not a tagger of LSTMs; {advice}")
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return {"model_type": MODEL_TYPE, **dataclasses.asdict(self)}


class BilstmParameters(FlatParameters):
    """All parameters of one tagger.

    Parameters
    ----------
    config : BilstmConfig
        The shape of the tagger.
    flat : (N,), optional
        The buffer, which is not copied; zeros of `dtype` by default.
    dtype : dtype, default float32
        Precision of a new buffer.
    """

    def __init__(self, config: BilstmConfig, flat: np.ndarray | None = None, dtype: Any = np.float32) -> None:
        self.config = config
        super().__init__(parameter_table(config), flat, dtype)


def parameter_table(config: BilstmConfig) -> list[Entry]:
    """List every parameter, in the order of the buffer; mixed layers start with equal shares.

    Parameters
    ----------
    config : BilstmConfig
        The shape of the tagger.

    Returns
    -------
    list of Entry
    """
    mix = [bias("mix.weights", config.mixed)] if config.mixed else []
    return [
        *mix,
        *lstm_table(config.inputs, config.width, config.depth),
        weight("head.weight", 2 * config.width, config.outputs),
        bias("head.bias", config.outputs),
    ]


def initialise(config: BilstmConfig, seed: int, dtype: Any = np.float32) -> BilstmParameters:
    """Make an untrained tagger; see `params.reset` for its initial values.

    Parameters
    ----------
    config : BilstmConfig
        The shape of the tagger.
    seed : int
        Seed of all draws.
    dtype : dtype, default float32
        Precision of the parameters.
    """
    parameters = BilstmParameters(config, dtype=dtype)
    reset(parameters, parameters, seed)
    return parameters


# -> (N,K), one row for each of the batch's label_rows
def logits(
    ops: Ops,
    config: BilstmConfig,
    params: Params,
    batch: VectorBatch,
    drop: Dropout | None = None,
) -> tuple[Array, Saved]:
    """Score every tag at the rows that have one.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    params : dict
        Tree of parameters.
    batch : VectorBatch
        The vectors, and the indices of those that have a tag.
    drop : Dropout or None
        Source of dropout after each LSTM.

    Returns
    -------
    scores : (N,K)
    saved : Saved
        What the mixture, the LSTMs and the linear layer kept.
    """
    x = batch.vectors
    saved_mix = None
    if config.mixed:
        x, saved_mix = ops.layer_mix(x, params["mix"]["weights"])
    y, saved_lstm = ops.bilstm_block(x, params["lstm"], batch.cu_seqlens, drop, SITE)
    read, saved_rows = ops.take_rows(y, batch.label_rows)
    scores, saved_linear = ops.linear(read, params["head"]["weight"], params["head"]["bias"])
    return scores, TaggerSaved(saved_mix, saved_lstm, saved_rows, saved_linear)


def loss(
    ops: Ops,
    config: BilstmConfig,
    params: Params,
    batch: VectorBatch,
    drop: Dropout | None = None,
) -> tuple[HeadLoss, Saved]:
    """Compute the cross-entropy of the tags of one batch, weighted by its `label_weights`.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    params : dict
        Tree of parameters.
    batch : VectorBatch
        Vectors and tags, with the weights of the global batch.
    drop : Dropout or None
        Source of dropout, `ops.dropout(batch, config.dropout, 0.0, seed, step)`.

    Returns
    -------
    result : HeadLoss
        The loss, that of each tag, and the scores.
    saved : Saved
        What `logits` and the loss kept.
    """
    scores, saved = logits(ops, config, params, batch, drop)
    nll, saved_loss = ops.softmax_cross_entropy(scores, batch.labels)
    weights = ops.cast(batch.label_weights, scores.real.dtype)
    result = HeadLoss((weights * nll).sum(), nll, scores)
    return result, LossSaved(saved, saved_loss, weights)


# -> dvectors (T,I) or (N,T,I), grads
def loss_backward(
    ops: Ops,
    config: BilstmConfig,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: bool = False,
) -> tuple[Array | None, Grads]:
    """Return the gradient of the vectors, and add the gradients of the parameters to `grads`.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    saved : Saved
        What `loss` kept.
    params : dict
        Tree of parameters.
    grads : dict
        The accumulators, consumed.
    frozen : bool, default False
        Whether the gradient of the vectors is not needed; None is then returned instead.

    Returns
    -------
    dvectors : (T,I) or (N,T,I), or None
    grads : dict
        The accumulators with the gradients added.
    """
    saved_logits = saved.logits
    dlogits = ops.softmax_cross_entropy_backward(saved.dnll, saved.loss)
    d_read, dweight, dbias = ops.linear_backward(dlogits, saved_logits.linear)
    dy = ops.take_rows_backward(d_read, saved_logits.rows)
    unread = frozen and not config.mixed  # the weights of a mixture need the gradient of its result
    dx, lstm = ops.bilstm_block_backward(dy, saved_logits.lstm, params["lstm"], grads["lstm"], unread)
    head = ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    grads = grads | {"lstm": lstm, "head": head}
    if config.mixed:
        dx, d_weights = ops.layer_mix_backward(dx, saved_logits.mix, frozen)
        mix = ops.add_gradients(grads["mix"], weights=d_weights)
        grads = grads | {"mix": mix}
    return None if frozen else dx, grads


# -> (N,K)
def scores_of(
    ops: Ops,
    config: BilstmConfig,
    params: Params,
    batch: VectorBatch,
) -> Array:
    """Compute `logits` without keeping anything for backward.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    params : dict
        Tree of parameters.
    batch : VectorBatch
        The vectors, and the indices of those that have a tag.
    """
    scores, _ = logits(ops, config, params, batch)
    return scores
