"""The tagger of the feature-based approach (Devlin et al. 2019, section 5.3), forward and backward.

What a frozen encoder makes of each token goes through two bidirectional LSTMs and one linear layer:

    vectors (T,I), or N layers (N,T,I) mixed by learnt weights  ->  LSTMs (T,2W)  ->  tags (T,K)

Pure functions, as in `heads.py`, and a table of parameters of its own.
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

MODEL_TYPE = "bilstm"  # as `config.json` and checkpoints have it
SITE = 0  # of dropout after the first LSTM

TaggerSaved = namedtuple("TaggerSaved", "mix lstm rows linear")  # mix: None where no layers are mixed


@dataclass(frozen=True)
class BilstmConfig:
    """The configuration of a tagger: all that determines its shapes.

    Parameters
    ----------
    inputs : int
        I, numbers in a vector.
    outputs : int
        K, tags.
    width : int
        W, outputs of each LSTM in each direction; the paper's.
    depth : int, default 2
        LSTMs one upon another; the paper's.
    mixed : int, default 0
        N, layers to be mixed by learnt weights; 0: vectors come as they are.
    dropout : float, default 0.1
        Behind each LSTM.
    initializer_range : float, default 0.02
        Standard deviation of the linear layer's initial weights.

    Raises
    ------
    InputError
        When a field is out of range.
    """

    inputs: int  # I, numbers in a vector
    outputs: int  # K, tags
    width: int = 768  # W, outputs of each LSTM in each direction; the paper's
    depth: int = 2  # LSTMs one upon another; the paper's
    mixed: int = 0  # N, layers to be mixed by learnt weights; 0: vectors come as they are
    dropout: float = 0.1  # after each LSTM
    initializer_range: float = 0.02  # standard deviation of the linear layer's initial weights

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
        """Read what `to_dict` gave.

        Parameters
        ----------
        values : dict
            The fields, as JSON has them; others are ignored.

        Raises
        ------
        InputError
            When it is something else, or a field is out of range.
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
        Its shape.
    flat : (N,) optional
        The buffer, which is not copied; zeros of `dtype` when left out.
    dtype : dtype, default float32
        Precision of a new buffer.
    """

    def __init__(self, config: BilstmConfig, flat: np.ndarray | None = None, dtype: Any = np.float32) -> None:
        self.config = config
        super().__init__(parameter_table(config), flat, dtype)


def parameter_table(config: BilstmConfig) -> list[Entry]:
    """List every parameter, in the order of the buffer; mixed layers have equal shares to begin with.

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
        Of all draws.
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
        Its parameters, as a tree.
    batch : VectorBatch
        The vectors, and which of them have a tag.
    drop : Dropout or None
        Behind each LSTM.

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
        Its parameters, as a tree.
    batch : VectorBatch
        Vectors and tags, with the weights of the global batch.
    drop : Dropout or None
        `ops.dropout(batch, config.dropout, 0.0, seed, step)`.

    Returns
    -------
    result : HeadLoss
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
    """Compute the gradients of `loss`: of the vectors afresh, of the parameters added to `grads`.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    saved : Saved
        What `loss` kept.
    params : dict
        Its parameters, as a tree.
    grads : dict
        The accumulators, consumed.
    frozen : bool, default False
        Nothing learns from the gradient of the vectors: None comes in its place.

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
    unread = frozen and not config.mixed  # from what is mixed the weights of the mixture learn
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
    """Compute `logits` and keep nothing for backward.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        The shape of the tagger.
    params : dict
        Its parameters, as a tree.
    batch : VectorBatch
        The vectors, and which of them have a tag.
    """
    scores, _ = logits(ops, config, params, batch)
    return scores
