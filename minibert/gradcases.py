"""What a gradient check checks: every operation that has a backward, with inputs to call it with.

Sizes are ugly on purpose (nothing divides anything, sequences of one token, nothing masked), and every row of
a loss has a weight of its own: a fault must have nowhere to hide.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minibert import bert
from minibert.batch import Batch, Sequence
from minibert.config import BertConfig
from minibert.params import Parameters, parameter_table

Arrays = dict[str, Any]


class Size(NamedTuple):
    """A shape to check at: lengths of the sequences, and the letters of the model."""

    lengths: tuple[int, ...]
    H: int
    A: int
    F: int
    V: int
    M: int


SIZES = {
    "ugly": Size((1, 2, 7, 13, 7, 31), H=24, A=3, F=37, V=99, M=9),
    "aligned": Size((16, 16, 16, 16), H=32, A=2, F=64, V=128, M=8),
}


class Case(NamedTuple):
    """One operation, what it is called with, and how to call it and its backward."""

    operation: str  # a method of `Ops`, or a function of `bert`
    variant: str  # what is particular about this case
    inputs: Arrays  # float64; their gradients come back fresh
    params: Arrays  # float64, by name; their gradients are accumulated
    forward: Callable[..., tuple[Any, Any]]  # (ops, inputs, tree of params) -> y, saved
    backward: Callable[..., tuple[Any, Any]]  # (ops, dy, saved, params, grads) -> gradients of inputs, grads

    @property
    def label(self) -> str:
        """As the proof sheet names it."""
        return f"{self.operation} {self.variant}".strip()

    @property
    def arguments(self) -> Arrays:
        """Inputs and parameters together."""
        return self.inputs | self.params


def cases(size: Size, seed: int = 0) -> list[Case]:
    """Every operation at one size, with inputs drawn from `seed`."""
    rng = np.random.default_rng(seed)
    batch = random_batch(size, size.M, rng)
    parameters = random_parameters(config_of(size), rng)
    return [
        *_primitives(size, batch, rng),
        *_sublayers(size, batch, parameters, rng),
        *_heads(size, batch, parameters, rng),
        *_whole_losses(size, parameters, rng),
    ]


def random_batch(size: Size, M: int, rng: np.random.Generator, next_sentence: bool = True) -> Batch:
    """Random tokens with M masked positions; in turn sequences are not asked, IsNext and NotNext."""
    T, begins = sum(size.lengths), np.cumsum([0, *size.lengths])
    masked = rng.permutation(T)[:M]
    sequences = []
    for number, (begin, length) in enumerate(zip(begins, size.lengths, strict=False)):
        positions = np.sort(masked[(masked >= begin) & (masked < begin + length)]) - begin
        sequences.append(
            Sequence(
                input_ids=rng.integers(size.V, size=length),
                token_type_ids=np.arange(length) * 2 // length,
                masked_positions=positions,
                masked_labels=rng.integers(size.V, size=len(positions)),
                next_sentence_label=number % 3 - 1 if next_sentence else -1,
            )
        )
    batch = Batch.pack(sequences)
    return dataclasses.replace(
        batch,
        masked_weights=batch.masked_weights * rng.uniform(0.5, 1.5, batch.M),
        next_sentence_weights=batch.next_sentence_weights * rng.uniform(0.5, 1.5, batch.S),
    )


def config_of(size: Size, **fields: Any) -> BertConfig:
    """Two layers of that size."""
    return BertConfig(
        vocab_size=size.V,
        hidden_size=size.H,
        num_hidden_layers=2,
        num_attention_heads=size.A,
        intermediate_size=size.F,
        max_position_embeddings=max(size.lengths),
        **fields,
    )


def random_parameters(config: BertConfig, rng: np.random.Generator) -> Parameters:
    """Parameters in general position: no bias is zero, no scale is one, activations are of order one."""
    parameters = Parameters(config, dtype=np.float64)
    parameters.flat[:] = 0.3 * rng.standard_normal(len(parameters.flat))
    for entry in parameter_table(config):
        if entry.initial == "ones":
            parameters[entry.name][...] += 1
    return parameters


def dropout_of(ops: Any, batch: Batch) -> Any:
    """Dropout of a batch at two rates, which differ so that they can't be mixed up unnoticed."""
    return ops.dropout(batch, 0.1, 0.2, seed=3, step=11)


def _primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    T, S, M, A, H, F, V = batch.T, batch.S, size.M, size.A, size.H, size.F, size.V
    draw, cu_seqlens = rng.standard_normal, batch.cu_seqlens
    found = []

    def add(operation: str, variant: str, inputs: Arrays, *extra: Any, form: tuple = ()) -> None:
        def forward(ops: Any, inputs: Arrays, _: Any) -> tuple[Any, Any]:
            more = (dropout_of(ops, batch) if one is dropout_of else one for one in extra)
            return getattr(ops, operation)(*inputs.values(), *more)

        def backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Arrays) -> tuple[Any, Arrays]:
            return getattr(ops, f"{operation}_backward")(dy, saved, *form), grads

        found.append(Case(operation, variant, inputs, {}, forward, backward))

    add("linear", "", {"x": draw((T, H)), "weight": draw((H, F)), "bias": draw(F)})
    for form in ("erf", "tanh"):
        add("gelu", form, {"x": 2 * draw((T, F))}, form, form=(form,))
    add("tanh", "", {"x": draw((T, H))})
    for variant, eps in (("", 1e-12), ("large eps", 0.5)):
        add("layer_norm", variant, {"x": draw((T, H)) + 1, "gamma": draw(H), "beta": draw(H)}, eps)
    for variant, extra in (
        ("", ()),
        ("causal", (True,)),
        ("dropout", (False, dropout_of, 4)),
        ("causal dropout", (True, dropout_of, 7)),
    ):
        add("attention", variant, {name: draw((T, A, H // A)) for name in "qkv"}, cu_seqlens, *extra)
    add("take_rows", "", {"x": draw((T, H))}, rng.integers(T, size=T))
    for variant, count in (("", T), ("one row", 1), ("no rows", 0)):
        add("softmax_cross_entropy", variant, {"logits": 3 * draw((count, V))}, rng.integers(V, size=count))
    labels = rng.integers(np.diff(cu_seqlens))
    add("segment_softmax_cross_entropy", "", {"scores": 3 * draw(T)}, cu_seqlens, labels)
    for variant in ("", "reverse"):
        weights = {"w_in": draw((H, 4 * M)) / 4, "w_state": draw((M, 4 * M)) / 3, "bias": draw(4 * M)}
        add("lstm", variant, {"x": draw((T, H)), **weights}, cu_seqlens, bool(variant))
    add("layer_mix", "", {"layers": draw((3, T, H)), "weights": draw(3)})

    def dropped(ops: Any, x: Any) -> Any:
        return x * ops.dropout_mask(dropout_of(ops, batch), 2, x.shape[1], x.dtype)

    targets = draw(S)
    return [
        *found,
        Case(
            "mean_squared_error",
            "",
            {"predictions": draw(S)},
            {},
            lambda ops, inputs, _: ops.mean_squared_error(
                inputs["predictions"], ops.cast(targets, inputs["predictions"].dtype)
            ),
            lambda ops, dy, saved, _, grads: (ops.mean_squared_error_backward(dy, saved), grads),
        ),
        Case(
            "dropout_mask",
            "",
            {"x": draw((T, F))},
            {},
            lambda ops, inputs, _: (dropped(ops, inputs["x"]), ()),
            lambda ops, dy, saved, _, grads: (dropped(ops, dy), grads),  # drawn anew: the same bits
        ),
        Case(
            "embedding",
            "",
            {},
            {"table": draw((V, H))},
            lambda ops, _, params: ops.embedding(batch.input_ids, params["table"]),
            lambda ops, dy, saved, _, grads: (
                (),
                {"table": ops.embedding_backward(dy, saved, grads["table"])},
            ),
        ),
    ]


def _sublayers(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    x = {"x": rng.standard_normal((batch.T, size.H))}

    def embedding(variant: str, drop: Callable) -> Case:
        return Case(
            "embedding_block",
            variant,
            {},
            _below(parameters, "embeddings"),
            lambda ops, _, params: ops.embedding_block(batch, params, config_of(size), drop(ops, batch)),
            lambda ops, dy, saved, params, grads: (
                (),
                ops.embedding_block_backward(dy, saved, params, grads),
            ),
        )

    def attention(variant: str, drop: Callable, config: BertConfig) -> Case:
        return Case(
            "attention_block",
            variant,
            x,
            _below(parameters, "layers.1.attention"),
            lambda ops, inputs, params: ops.attention_block(
                inputs["x"], params, batch.cu_seqlens, config, drop(ops, batch), 1
            ),
            lambda ops, dy, saved, params, grads: ops.attention_block_backward(dy, saved, params, grads),
        )

    def feed_forward(variant: str, drop: Callable, config: BertConfig) -> Case:
        return Case(
            "feed_forward_block",
            variant,
            x,
            _below(parameters, "layers.1.feed_forward"),
            lambda ops, inputs, params: ops.feed_forward_block(
                inputs["x"], params, config, drop(ops, batch), 1
            ),
            lambda ops, dy, saved, params, grads: ops.feed_forward_block_backward(
                dy, saved, params, grads, config
            ),
        )

    plain, causal = config_of(size), config_of(size, is_decoder=True)
    tanh = config_of(size, hidden_act="gelu_new")
    return [
        embedding("", _no_dropout),
        embedding("dropout", dropout_of),
        attention("", _no_dropout, plain),
        attention("dropout", dropout_of, plain),
        attention("causal dropout", dropout_of, causal),
        feed_forward("", _no_dropout, plain),
        feed_forward("dropout", dropout_of, plain),
        feed_forward("tanh dropout", dropout_of, tanh),
        _layers(x, parameters, plain),
    ]


def _layers(x: Arrays, parameters: Parameters, config: BertConfig) -> Case:
    """Feed-forward blocks in a row."""

    def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
        def layer(x: Any, one: Any, number: Any) -> tuple[Any, Any]:
            return ops.feed_forward_block(x, one["feed_forward"], config, None, number)

        return ops.layers(layer, params["layers"], inputs["x"])

    def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
        def layer(dy: Any, kept: Any, one: Any, total: Any) -> tuple[Any, Any]:
            one, total = one["feed_forward"], total["feed_forward"]
            dx, total = ops.feed_forward_block_backward(dy, kept, one, total, config)
            return dx, {"feed_forward": total}

        dx, layers = ops.layers_backward(layer, dy, saved, params["layers"], grads["layers"])
        return dx, {"layers": layers}

    params = {name: one for name, one in parameters.items() if ".feed_forward." in name}
    return Case("layers", "", x, params, forward, backward)


def _heads(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    x = {"x": rng.standard_normal((batch.T, size.H))}
    config = config_of(size)

    def masked_lm(variant: str, batch: Batch) -> Case:
        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            (nll, _), saved = ops.masked_lm_head(
                inputs["x"], batch.masked_rows, batch.masked_labels, params["mlm"], params["table"], config
            )
            return nll, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            dx, mlm, table = ops.masked_lm_head_backward(
                dy, saved, params["mlm"], grads["mlm"], grads["table"], config
            )
            return dx, {"mlm": mlm, "table": table}

        params = {name: one for name, one in parameters.items() if name.startswith("mlm.")}
        params["table"] = parameters["embeddings.word"]
        return Case("masked_lm_head", variant, x, params, forward, backward)

    return [
        Case(
            "pooler",
            "",
            x,
            _below(parameters, "pooler"),
            lambda ops, inputs, params: ops.pooler(inputs["x"], batch.cu_seqlens[:-1], params),
            lambda ops, dy, saved, params, grads: ops.pooler_backward(dy, saved, params, grads),
        ),
        masked_lm("", batch),
        masked_lm("M=1", random_batch(size, 1, rng)),
        masked_lm("M=0", random_batch(size, 0, rng)),
    ]


def _whole_losses(size: Size, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    def loss(variant: str, batch: Batch, drop: Callable = dropout_of, **fields: Any) -> Case:
        config = config_of(size, **fields)

        def forward(ops: Any, _: Arrays, params: Any) -> tuple[Any, Any]:
            laid_out = ops.prepare(batch)
            result, saved = bert.pretraining_loss(ops, config, params, laid_out, drop(ops, laid_out))
            return result.loss, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            return (), bert.pretraining_loss_backward(ops, config, saved, params, grads)

        return Case("pretraining_loss", variant, {}, dict(parameters.items()), forward, backward)

    T = sum(size.lengths)
    return [
        loss("", random_batch(size, size.M, rng), _no_dropout),
        loss("dropout", random_batch(size, size.M, rng)),
        loss("tanh dropout", random_batch(size, size.M, rng), hidden_act="gelu_new"),
        loss("left to right dropout", random_batch(size, T, rng, next_sentence=False), is_decoder=True),
        loss("M=1 dropout", random_batch(size, 1, rng)),
        loss("M=0 dropout", random_batch(size, 0, rng)),
    ]


def _no_dropout(ops: Any, batch: Batch) -> None:
    return None


def _below(parameters: Parameters, path: str) -> Arrays:
    """The parameters of one block, by their last name."""
    within = f"{path}."
    return {name[len(within) :]: one for name, one in parameters.items() if name.startswith(within)}
