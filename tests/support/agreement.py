"""What comparisons with other BERTs share: a model, batches, our numbers, and the distance between two."""

from pathlib import Path

import numpy as np
from objectives import update_once
from safetensors import safe_open

from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.optim import AdamW, warmup_linear
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise

STATES = 1e-10  # hidden states, attention maps, logits and the loss, in float64
GRADIENTS = 1e-8
STEPS = 1e-8  # losses over 50 updates, in which rounding errors grow
SCHEDULE = {"peak": 1e-3, "warmup": 5}


def config(**overrides) -> BertConfig:
    """Ugly sizes, no dropout."""
    sizes = {
        "vocab_size": 99,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 37,
        "max_position_embeddings": 40,
    }
    return BertConfig(**sizes | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} | overrides)


def parameters(config: BertConfig, seed: int = 1, spread: float = 0.15) -> Parameters:
    """Weights far from their initial values, biases and LayerNorms included; exact in float32."""
    params = initialise(config, seed)
    params.flat += np.random.default_rng(seed).normal(0, spread, params.flat.shape).astype(np.float32)
    return params.astype(np.float64)


def batch(config: BertConfig, seed: int = 2, lengths: tuple[int, ...] = (1, 2, 7, 24, 16, 11)) -> Batch:
    """Sequences of these lengths with labels; the default has 61 tokens.

    None of them is 0: that is [PAD], whose embedding learns nothing from the input in Hugging Face's BERT.
    """
    generator = np.random.default_rng(seed)

    def sequence(n: int) -> Sequence:
        masked = np.flatnonzero(generator.random(n) < 0.3)
        return Sequence(
            generator.integers(1, config.V, n),
            np.sort(generator.integers(0, config.type_vocab_size, n)),
            masked,
            generator.integers(0, config.V, len(masked)),
            int(generator.integers(2)),
        )

    return Batch.pack([sequence(n) for n in lengths])


def relative_error(ours, theirs) -> float:
    """The largest difference, in units of the largest value."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def gradient_errors(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> dict[str, float]:
    """Relative error of each tensor.

    One key bias adds the same to all scores of a query, which softmax does not see: its gradient is zero but
    for rounding, and is compared in units of the query bias's instead of its own.
    """
    assert ours.keys() == theirs.keys()
    units = {name: np.abs(theirs[name.replace("self.key.bias", "self.query.bias")]).max() for name in theirs}
    return {name: float(np.abs(ours[name] - theirs[name]).max() / units[name]) for name in theirs}


def stored_tensors(folder: Path) -> tuple[dict, dict]:
    """Names, types, shapes and bytes of a folder's tensors, and the strings beside them."""
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return {name: (one.dtype, one.shape, one.tobytes()) for name, one in tensors.items()}, file.metadata()


def loss_and_gradients(params: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Of the pre-training loss, by the reference."""
    ops, grads = Ops(), params.zeros_like()
    loss, saved = bert.pretraining_loss(ops, params.config, params.tree, batch)
    bert.pretraining_loss_backward(ops, params.config, saved, params.tree, grads.tree)
    return float(loss.loss), grads


def losses(params: Parameters, batches: list[Batch], *, peak: float, warmup: int) -> list[float]:
    """The loss before each of as many updates as there are batches."""
    params = params.astype(params.flat.dtype)
    optimizer = AdamW(params.flat, params.decayed, weight_decay=0.01, clip_norm=1.0, eps=1e-6)
    found = []
    for number, batch in enumerate(batches):
        loss, grads = loss_and_gradients(params, batch)
        update_once(
            optimizer, Ops(), params.flat, grads.flat, warmup_linear(number, len(batches), warmup, peak)
        )
        found.append(loss)
    return found
