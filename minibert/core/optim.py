"""AdamW, the paper's variant of it (Devlin et al. 2019, A.2), LAMB and Muon, and schedules of the rate.

The arithmetic is in `ops.updates`, on a host over one flat buffer; this file keeps what lasts from one step
to the next: the moments and the number of updates.
"""

import copy
from typing import Any, ClassVar

import numpy as np

from minibert.core.errors import InputError
from minibert.core.ops.updates import AdamRule

NUMBERS = ("beta1", "beta2", "eps", "weight_decay", "bias_correction")  # of every update alike


class Optimizer:
    """What optimizers by two moments of the gradient have in common, clipping by norm included.

    Parameters
    ----------
    flat : (N,) the parameters; only their shape and dtype are used.
    ranges : (K,2+) int64, rows [begin, end) of the buffer, with what a subclass has to know of each.
    beta1, beta2 : decay of the running means of the gradient and of its square.
    eps : added to the square root of the second moment, not under it.
    weight_decay : decoupled: this share of a parameter is added to its update, before the rate is applied.
    clip_norm : the largest norm that a gradient may have; a larger one is scaled down to it. 0: no limit.
    bias_correction : divide the moments by 1 - beta^t. The paper's code does not.
    begin : parameters before this place in the buffer are frozen, and their gradients do not count.

    Attributes
    ----------
    m, v : (N,) first and second moment, in the dtype of the parameters.
    updates : how often the parameters have been changed.
    ranges : as given, of what is trained, counted from `begin`.
    """

    KIND: ClassVar[str]  # of a subclass: the function of `ops` that updates
    RANGES: ClassVar[str]  # those of `FlatParameters` that it takes
    ABOUT: ClassVar[str]  # what it is for
    RATE: ClassVar[float] = 1  # its learning rate in AdamW's, where none is given
    WHOLE: ClassVar[bool] = True  # whether an update needs whole tensors, not pieces of them

    def __init__(
        self,
        flat: Any,
        ranges: np.ndarray,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        clip_norm: float = 1.0,
        bias_correction: bool = True,
        begin: int = 0,
    ) -> None:
        self.ranges = _within(ranges, begin)
        self.begin = begin
        self.beta1 = beta1
        self.beta2 = beta2
        self.eps = eps
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        self.m = np.zeros_like(flat)
        self.v = np.zeros_like(flat)
        self.updates = 0

    # buffer (N,) -> (n,)
    def trained(self, buffer: Any) -> Any:
        """Return the trained part of a buffer: the whole array itself, unless layers are frozen.

        Parameters
        ----------
        buffer : (N,) parameters, gradients or moments.
        """
        return buffer[self.begin :] if self.begin else buffer

    def within(self, begin: int, end: int) -> "Optimizer":
        """Return an optimizer that updates elements [begin, end) of the buffer alone, all of them trained.

        Parameters
        ----------
        begin, end : places in the whole buffer.

        Returns
        -------
        a copy; it shares the moments with this one.
        """
        part = copy.copy(self)
        part.ranges = _within(self.ranges, begin - self.begin, end - self.begin)
        return part

    def rule(self, number: Any, rate: Any, clip: Any) -> AdamRule:
        """Return the numbers of an update.

        Parameters
        ----------
        number : of the update, counted from 1.
        rate : its learning rate.
        clip : factor of the gradients, as `ops.clip_factor` gives it.
        """
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return AdamRule(lr=rate, step=number, clip=clip, **numbers)

    # params grads m v (n,) -> params m v (n,)
    def update(
        self,
        ops: Any,
        params: Any,
        grads: Any,
        m: Any,
        v: Any,
        rule: AdamRule,
    ) -> tuple[Any, ...]:
        """Update the trained parts of parameters and moments, which are consumed and returned.

        Parameters
        ----------
        ops : the engine.
        params, grads : (n,) the trained parts of parameters and gradients.
        m, v : (n,) those of the moments.
        rule : the numbers of this update.

        Returns
        -------
        params, m, v : (n,).
        """
        return getattr(ops, self.KIND)(params, grads, m, v, self.ranges, rule)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return everything but the moments: optimizers that agree in it compute the same."""
        numbers = (getattr(self, name) for name in NUMBERS)
        return type(self), self.begin, self.ranges.tobytes(), self.clip_norm, *numbers


# ranges (K,2+) -> (k,2+)
def _within(ranges: np.ndarray, begin: int, end: int | None = None) -> np.ndarray:
    """Cut ranges to those parts that lie between two places, and count from the first of these."""
    places = np.clip(ranges[:, :2], begin, end) - begin
    inside = places[:, 0] < places[:, 1]
    return np.concatenate([places[inside], ranges[inside, 2:]], axis=1)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019).

    With `bias_correction=False` it is the optimizer of Google's released code: the moments are used without
    correction for their start at zero, which the warm-up makes up for.

    Its `ranges` are those that have weight decay, (K,2).
    """

    KIND, RANGES, WHOLE = "adamw", "decayed", False
    ABOUT = "with bias correction"


class Lamb(Optimizer):
    """LAMB, for batches of thousands of sequences (You et al. 2020, Algorithm 2).

    Each tensor with weight decay moves by the learning rate times its own length. In the authors' BERT the
    projections to queries, keys and values are three tensors; here they are one, with one length.

    Its `ranges` are the tensors in the buffer, (K,3): begin, end, whether it has weight decay.
    """

    KIND, RANGES = "lamb", "tensors"
    ABOUT = "for large batches"
    # AdamW moves a weight by the rate, LAMB by the rate times what weights measure. ALBERT's authors advise
    # it for fine-tuning; short runs of `tiny` do best at 10 to 15.
    RATE = 10


class Muon(Optimizer):
    """Muon for the matrices of the layers, AdamW for everything else (Jordan et al. 2024).

    Embeddings, heads, biases and LayerNorm are AdamW's. Of the matrices, `m` is the mean of gradients and `v`
    is not used; their momentum is `beta1` as well, where others take 0.95.

    Its `ranges` are the tensors in the buffer, (K,5): begin, end, whether it has weight decay, and of a
    layer's weights the rows and how many matrices lie side by side.
    """

    KIND, RANGES = "muon", "matrices"
    ABOUT = "Muon for the matrices of the layers, AdamW for the rest"


# All there are: options, command line and traces know an optimizer by its place in this table.
KINDS: dict[str, type[Optimizer]] = {kind.KIND: kind for kind in (AdamW, Lamb, Muon)}


def optimizer_for(params: Any, kind: str, **given: Any) -> Optimizer:
    """Make an optimizer for the parameters of a model.

    Parameters
    ----------
    params : `FlatParameters`, whose table says which of them have weight decay.
    kind : one of the `KINDS`.
    **given : as for `Optimizer`.

    Raises
    ------
    InputError
        When there is no such optimizer, or Muon has no matrix of a layer to train.
    """
    if kind not in KINDS:
        raise InputError(f"optimizer={kind!r} does not exist; use one of {', '.join(KINDS)}.", optimizer=kind)
    optimizer_class = KINDS[kind]
    ranges = getattr(params, optimizer_class.RANGES)
    optimizer = optimizer_class(params.flat, ranges, **given)
    if optimizer_class is Muon and not optimizer.ranges[:, 4].any():
        message = f"optimizer={kind!r} updates matrices of layers, and none is trained here; use adamw."
        raise InputError(message, optimizer=kind)
    return optimizer


def warmup_linear(
    step: float,
    total: int,
    warmup: int,
    peak: float,
    google: bool = False,
) -> float:
    """Return the learning rate of update number `step`: up to `peak` in a straight line, then down to zero.

    Two conventions share the warm-up, in which update 0 has rate 0. Google's code counts the decay from
    update 0, so the rate drops a little where it takes over; Hugging Face's counts it from the end of the
    warm-up, where it starts from `peak`.

    Parameters
    ----------
    step : updates done so far.
    total : updates of the whole run; from then on the rate is 0.
    warmup : updates over which the rate rises.
    peak : the largest rate.
    google : use Google's convention; Hugging Face's otherwise.

    Raises
    ------
    InputError
        When `total` is less than 1, or `warmup` or `step` is negative.

    Examples
    --------
    >>> [round(warmup_linear(step, total=8, warmup=2, peak=1.0), 3) for step in range(9)]
    [0.0, 0.5, 1.0, 0.833, 0.667, 0.5, 0.333, 0.167, 0.0]
    >>> [round(warmup_linear(step, total=8, warmup=2, peak=1.0, google=True), 3) for step in range(4)]
    [0.0, 0.5, 0.75, 0.625]
    """
    if total < 1 or warmup < 0 or step < 0:
        advice = "give at least one step in all and no negative number."
        raise InputError(f"step={step}, total={total}, warmup={warmup} is not a schedule; {advice}")
    if step < warmup:
        return peak * step / warmup
    begin = 0 if google else warmup
    return peak * max(0.0, (total - step) / max(1, total - begin))
