"""AdamW, the paper's variant of it (Devlin et al. 2019, A.2), LAMB and Muon, and learning-rate schedules.

The arithmetic, over one flat buffer, is in `ops.updates`. This file holds the state that lasts from one step
to the next: the moments and the number of updates.
"""

import copy
from typing import Any, ClassVar

import numpy as np

from minibert.core.errors import InputError
from minibert.core.ops.updates import AdamRule

NUMBERS = ("beta1", "beta2", "eps", "weight_decay", "bias_correction")  # the same in every update


class Optimizer:
    """Base class of the optimizers, which keep two moments of the gradient and clip it by its norm.

    Parameters
    ----------
    flat : (N,) the parameters; only their shape and dtype are used.
    ranges : (K,2+) int64, ranges [begin, end) of the buffer, with further columns that a subclass needs.
    beta1, beta2 : decay of the running means of the gradient and of its square.
    eps : added to the square root of the second moment, not under it.
    weight_decay : decoupled weight decay: this share of a parameter is added to its update, which is then
        multiplied by the rate.
    clip_norm : largest norm of the gradient, which is scaled down if it is larger. 0: no limit.
    bias_correction : divide the moments by 1 - beta^t, which the paper's code does not.
    begin : parameters before this index in the buffer are frozen, and their gradients are ignored.

    Attributes
    ----------
    m, v : (N,) first and second moment, in the dtype of the parameters.
    updates : number of updates so far.
    ranges : the given ranges, limited to the trained part and counted from `begin`.
    """

    KIND: ClassVar[str]  # set by a subclass: the function of `ops` that does the update
    RANGES: ClassVar[str]  # the property of `FlatParameters` that gives its `ranges`
    ABOUT: ClassVar[str]  # a few words for the list of optimizers
    RATE: ClassVar[float] = 1  # default learning rate, as a multiple of AdamW's
    WHOLE: ClassVar[bool] = True  # whether an update needs whole tensors rather than parts of them

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
        """Return the trained part of a buffer: all of it, unless layers are frozen.

        Parameters
        ----------
        buffer : (N,) parameters, gradients or moments.
        """
        return buffer[self.begin :] if self.begin else buffer

    def within(self, begin: int, end: int) -> "Optimizer":
        """Return an optimizer that updates only elements [begin, end) of the buffer, all of them trained.

        Parameters
        ----------
        begin, end : indices in the whole buffer.

        Returns
        -------
        a copy, which shares the moments with this optimizer.
        """
        part = copy.copy(self)
        part.ranges = _within(self.ranges, begin - self.begin, end - self.begin)
        return part

    def rule(self, number: Any, rate: Any, clip: Any) -> AdamRule:
        """Return the hyperparameters of one update.

        Parameters
        ----------
        number : index of the update, counted from 1.
        rate : learning rate of the update.
        clip : factor of the gradients, as `ops.clip_factor` returns it.
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
        m, v : (n,) the trained parts of the moments.
        rule : the hyperparameters of this update.

        Returns
        -------
        params, m, v : (n,).
        """
        return getattr(ops, self.KIND)(params, grads, m, v, self.ranges, rule)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return everything except the moments: optimizers with equal identities compute the same updates."""
        numbers = (getattr(self, name) for name in NUMBERS)
        return type(self), self.begin, self.ranges.tobytes(), self.clip_norm, *numbers


# ranges (K,2+) -> (k,2+)
def _within(ranges: np.ndarray, begin: int, end: int | None = None) -> np.ndarray:
    """Clip ranges to [begin, end), drop the empty ones, and count from `begin`."""
    places = np.clip(ranges[:, :2], begin, end) - begin
    inside = places[:, 0] < places[:, 1]
    return np.concatenate([places[inside], ranges[inside, 2:]], axis=1)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019).

    With `bias_correction=False` it is the optimizer of Google's released code: the moments are not corrected
    for starting at zero, and the warm-up makes up for it.

    Its arguments are those of `Optimizer`; `ranges` (K,2) are those with weight decay.
    """

    KIND, RANGES, WHOLE = "adamw", "decayed", False
    ABOUT = "with bias correction"


class Lamb(Optimizer):
    """LAMB, for batches of thousands of sequences (You et al. 2020, Algorithm 2).

    Each tensor with weight decay moves by the learning rate times its own norm. In the authors' BERT the
    projections to queries, keys and values are three tensors; here they are one, with one norm.

    Its arguments are those of `Optimizer`; `ranges` (K,3) are the tensors in the buffer: begin, end, whether
    the tensor has weight decay.
    """

    KIND, RANGES = "lamb", "tensors"
    ABOUT = "for large batches"
    # AdamW moves a weight by the rate, LAMB by the rate times the size of the weights, so its rate is larger.
    # ALBERT's authors advise this for fine-tuning; short runs of `tiny` do best at 10 to 15.
    RATE = 10


class Muon(Optimizer):
    """Muon for the matrices of the layers, AdamW for everything else (Jordan et al. 2024).

    AdamW updates embeddings, heads, biases and LayerNorm. For the matrices, `m` is the running mean of the
    gradients and `v` is not used; their momentum is `beta1`, too, where others use 0.95.

    Its arguments are those of `Optimizer`; `ranges` (K,5) are the tensors in the buffer: begin, end, whether
    the tensor has weight decay, and for the weights of a layer their rows and the number of matrices side by
    side.
    """

    KIND, RANGES = "muon", "matrices"
    ABOUT = "Muon for the matrices of the layers, AdamW for the rest"


# All optimizers, by the name that options, command line and traces use.
KINDS: dict[str, type[Optimizer]] = {kind.KIND: kind for kind in (AdamW, Lamb, Muon)}


def optimizer_for(params: Any, kind: str, **given: Any) -> Optimizer:
    """Make an optimizer for the parameters of a model.

    Parameters
    ----------
    params : `FlatParameters`, whose table says which tensors have weight decay.
    kind : name of the optimizer: "adamw", "lamb" or "muon".
    **given : further arguments, as for `Optimizer`.

    Returns
    -------
    Optimizer, with moments of zero.

    Raises
    ------
    InputError
        When the optimizer does not exist, or is Muon and no matrix of a layer is trained.
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
    """Return the learning rate of update `step`: a linear rise to `peak`, then a linear decay to zero.

    The schedule is that of the paper (Devlin et al. 2019, A.2). Two conventions share the warm-up, in which
    update 0 has rate 0. In Google's code the decay counts from update 0, so the rate drops a little at the
    end of the warm-up; in Hugging Face's it counts from the end of the warm-up, and so begins at `peak`.

    Parameters
    ----------
    step : number of updates done so far.
    total : number of updates of the whole run; from then on the rate is 0.
    warmup : number of updates over which the rate rises.
    peak : the largest rate.
    google : whether to use Google's convention instead of Hugging Face's.

    Returns
    -------
    float, from 0 to `peak`.

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
