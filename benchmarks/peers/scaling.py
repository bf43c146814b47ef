"""A step of pre-training on many devices: its time, its traffic and its memory, as sums that fit on a page.

Data parallel: every device has the model, or with FSDP a share of it, and computes its part of the batch.

    step = computing + updating + what of the traffic is not hidden behind the backward pass
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minibert.config import BertConfig
from minibert.flops import encoder_operations, layer_operations, step_operations
from minibert.params import parameter_table

MASKED = 0.15
USABLE = 0.9  # of a device's memory; the rest is for workspaces, fragments and the runtime itself
FLOAT32 = 4  # bytes of what masters, gradients, moments, statistics and losses are kept in
STATE_BYTES = 4 * FLOAT32  # a parameter, its gradient, two moments
# Clipping reads the gradient; AdamW reads parameter, gradient and moments, and writes all but the gradient.
UPDATE_BYTES = (1 + 4 + 3) * FLOAT32


class Device(NamedTuple):
    """What a device can do at most."""

    title: str
    flops: float  # floating-point operations a second in matrix products, a multiply-add being two
    memory: float  # bytes
    bandwidth: float  # bytes a second of that memory
    source: str  # of the figures
    width: int = 2  # bytes of a number in matrix products and activations: bfloat16, or 4 for float32
    fused: bool = False  # whether the JAX engine has a kernel there that keeps no maps of attention


@dataclass(frozen=True)
class Plan:
    """Everything that is assumed.

    Attributes
    ----------
    config : the model.
    device : each of them.
    link : bytes a second that a device sends while it receives as many.
    mfu : useful operations / what the device could do in that time, for each sequence length; of forward and
        backward, without recomputation.
    fsdp : parameters, gradients and moments are divided among the devices, and layers recomputed: kept whole
        for backward, their weights would be all there again.
    recompute : a layer keeps its input alone, and is computed a second time in backward.
    overlap : share of the traffic that goes on while backward computes.
    """

    config: BertConfig
    device: Device
    link: float
    mfu: Mapping[int, float]
    fsdp: bool = False
    recompute: bool = False
    overlap: float = 0.0

    @property
    def repeats(self) -> bool:
        """Whether layers are computed a second time."""
        return self.recompute or self.fsdp


class Step(NamedTuple):
    """One step at one sequence length, on each device; seconds and bytes."""

    seq: int
    sequences: int  # of the device
    micro_batches: int  # 0: not even one sequence fits
    at_once: int  # sequences in a micro-batch
    memory: float
    computing: float
    updating: float
    traffic: float  # as if nothing else went on
    waiting: float  # what of it is not hidden

    @property
    def fits(self) -> bool:
        """Whether it can be done at all."""
        return self.micro_batches > 0

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.computing + self.updating + self.waiting


def masked_positions(seq: int) -> int:
    """Of one sequence."""
    return max(1, round(MASKED * seq))


def parameters(config: BertConfig) -> int:
    """Of the whole model, heads included."""
    return sum(entry.size for entry in parameter_table(config))


def layer_parameters(config: BertConfig) -> int:
    """Of one layer."""
    return sum(entry.size for entry in parameter_table(config) if entry.name.startswith("layers.0."))


def sequence_operations(config: BertConfig, seq: int) -> int:
    """Operations of one sequence: forward, backward, scores of its masked positions only.

    The last layer counts whole, as it does in what others report as their share of a peak.
    """
    lengths, masked = np.array([seq]), np.array([masked_positions(seq)])
    left_out = layer_operations(config, lengths) - layer_operations(config, lengths, masked + 1)
    return step_operations(config, lengths, masked) + 3 * left_out


def repeated_operations(config: BertConfig, seq: int) -> int:
    """What recomputation adds: the layers forward once more."""
    return encoder_operations(config, np.array([seq]))


def computing_seconds(plan: Plan, sequences: int, seq: int) -> float:
    """Forward and backward of a device's sequences."""
    operations = sequence_operations(plan.config, seq)
    operations += plan.repeats * repeated_operations(plan.config, seq)
    return sequences * operations / (plan.mfu[seq] * plan.device.flops)


def updating_seconds(n_parameters: float, bandwidth: float) -> float:
    """Clipping and AdamW: no arithmetic to speak of, everything once through memory."""
    return UPDATE_BYTES * n_parameters / bandwidth


# In a ring of d devices each cuts its array into d pieces and passes one on, d - 1 times, until every piece
# has been everywhere. Reducing and scattering is one such round, gathering is another; an all-reduce is both:
# 2 (d - 1)/d of the array goes through every link, however many devices there are.
def round_seconds(n_bytes: float, devices: int, link: float) -> float:
    """An all-gather or a reduce-scatter of an array of so many bytes in all."""
    return (devices - 1) / devices * n_bytes / link


def traffic_seconds(plan: Plan, devices: int, micro_batches: int) -> float:
    """All gradients to all, once a step. With FSDP every micro-batch brings each layer together twice and
    scatters all gradients; what is no layer is brought together once a step. All of it is float32."""
    n, layers = parameters(plan.config), plan.config.L * layer_parameters(plan.config)
    gradients = round_seconds(FLOAT32 * n, devices, plan.link)
    if not plan.fsdp:
        return 2 * gradients
    outside = round_seconds(FLOAT32 * (n - layers), devices, plan.link)
    return outside + micro_batches * (2 * round_seconds(FLOAT32 * layers, devices, plan.link) + gradients)


def waiting_seconds(traffic: float, computing: float, overlap: float) -> float:
    """What of the traffic the device stands still for; backward is two thirds of the computing."""
    return traffic - min(overlap * traffic, 2 / 3 * computing)


def state_bytes(plan: Plan, devices: int) -> float:
    """Parameters, gradients and moments in float32, and the weights as they are multiplied.

    With FSDP a device has its share of them, and whole, with their gradients, only one layer and what is no
    layer.
    """
    n, one = parameters(plan.config), layer_parameters(plan.config)
    copied = plan.device.width if plan.device.width < FLOAT32 else 0
    if plan.fsdp and devices > 1:
        whole = n - (plan.config.L - 1) * one
        return STATE_BYTES * n / devices + (2 * FLOAT32 + copied) * whole
    return (STATE_BYTES + copied) * n


class Kept(NamedTuple):
    """Numbers kept for backward."""

    narrow: float  # in the precision of activations
    single: float  # in float32, whatever that is

    def bytes(self, width: int) -> float:
        """All of them, `width` bytes each of the first."""
        return width * self.narrow + FLOAT32 * self.single


# Of each token the JAX engine keeps in a layer
#   attention     x (H)  q k v (3H)  its row of each map (A n), or where a kernel is fused the sum of it (A)
#                 what dropout is drawn from (2)  what it gives (H)  dropout (H)  LayerNorm's normal rows (H)
#                 and 1/deviation (1)
#   feed-forward  x (H)  W1 x (F)  gelu(W1 x) (F)  dropout (H)  LayerNorm's again (H, 1)
def kept_by_layer(config: BertConfig, seq: int, fused: bool) -> Kept:
    """Of one token; of the last layer it is less, which the plan leaves out of account."""
    return Kept(10 * config.H + 2 * config.F, config.A * (1 if fused else seq) + 4)


# The rest keeps
#   of each token   the embeddings' LayerNorm and dropout (2H, 1)  what leaves the encoder (H)
#   masked          x (H)  W x (H)  LayerNorm's (H, 1)  its result (H)  probabilities (V)
#   of a sequence   [CLS] and the pooled vector (2H)  probabilities (2)
def kept_by_ends(config: BertConfig, seq: int) -> Kept:
    """By embeddings and heads, of one sequence; all but what is multiplied is float32 there."""
    H, masked = config.H, masked_positions(seq)
    single = (2 * H + 1) * seq + (2 * H + 1 + config.V) * masked + 2
    return Kept(H * seq + 2 * H * masked + 2 * H, single)


def sequence_bytes(plan: Plan, seq: int) -> float:
    """In memory of one sequence when its forward pass is over and backward begins: then it is most.

    All that is kept, or with recomputation the inputs of all layers and what one of them keeps; and the
    gradient of the vocabulary's scores.
    """
    config, width = plan.config, plan.device.width
    layer = seq * kept_by_layer(config, seq, plan.device.fused).bytes(width)
    layers = config.L * width * config.H * seq + layer if plan.repeats else config.L * layer
    scores = FLOAT32 * config.V * masked_positions(seq)
    return layers + kept_by_ends(config, seq).bytes(width) + scores


def step(plan: Plan, devices: int, sequences: int, seq: int) -> Step:
    """A step of so many sequences in all, the same number on each device."""
    share = sequences // devices
    state, one = state_bytes(plan, devices), sequence_bytes(plan, seq)
    room = math.floor((USABLE * plan.device.memory - state) / one)
    micro_batches = math.ceil(share / room) if room > 0 else 0
    at_once = math.ceil(share / micro_batches) if micro_batches else 1
    computing = computing_seconds(plan, share, seq)
    traffic = traffic_seconds(plan, devices, max(1, micro_batches))
    n = parameters(plan.config) / (devices if plan.fsdp else 1)
    return Step(
        seq,
        share,
        micro_batches,
        at_once,
        state + at_once * one,
        computing,
        updating_seconds(n, plan.device.bandwidth),
        traffic,
        waiting_seconds(traffic, computing, plan.overlap),
    )


class Stage(NamedTuple):
    """Steps of a schedule that are alike."""

    seq: int
    sequences: int  # a step
    steps: float


def schedule_operations(config: BertConfig, stages: list[Stage]) -> float:
    """Useful operations of a whole training."""
    return sum(one.steps * one.sequences * sequence_operations(config, one.seq) for one in stages)


def implied_mfu(config: BertConfig, stages: list[Stage], devices: int, flops: float, seconds: float) -> float:
    """What share of so many devices a training used that took so long."""
    return schedule_operations(config, stages) / (devices * flops * seconds)
