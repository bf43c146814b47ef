"""Primitives, sublayers and the masked-LM head, each by itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minibert.gradcheck.shapes import (
    Arrays,
    Case,
    Size,
    config_of,
    dropout_of,
    no_dropout,
    random_batch,
)
from minibert.model.batch import Batch
from minibert.model.config import BertConfig
from minibert.model.params import Parameters, lstm_table


def primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build primitives: those called with their inputs one after another, and those that are not."""
    return [*_called_alike(size, batch, rng), *_called_otherwise(size, batch, rng)]


def _called_alike(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    T, M, A, H, F, V = batch.T, size.M, size.A, size.H, size.F, size.V
    draw, cu_seqlens = rng.standard_normal, batch.cu_seqlens
    found = []

    def add(operation: str, variant: str, inputs: Arrays, *extra: Any, form: tuple[Any, ...] = ()) -> None:
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
    return found


def _called_otherwise(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """List what is compared with targets, what has no backward, and a table's gradient, added to it."""
    T, S, H, F, V = batch.T, batch.S, size.H, size.F, size.V
    draw = rng.standard_normal

    def dropped(ops: Any, x: Any) -> Any:
        return x * ops.dropout_mask(dropout_of(ops, batch), 2, x.shape[1], x.dtype)

    targets = draw(S)
    return [
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


def sublayers(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """List the blocks of a layer, layers in a row, and LSTMs."""
    x = {"x": rng.standard_normal((batch.T, size.H))}

    def embedding(variant: str, drop: Callable[..., Any]) -> Case:
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

    def attention(variant: str, drop: Callable[..., Any], config: BertConfig, rows: Any = None) -> Case:
        return Case(
            "attention_block",
            variant,
            x,
            _below(parameters, "layers.1.attention"),
            lambda ops, inputs, params: ops.attention_block(
                inputs["x"], params, batch.cu_seqlens, config, drop(ops, batch), 1, rows
            ),
            lambda ops, dy, saved, params, grads: ops.attention_block_backward(dy, saved, params, grads),
        )

    def feed_forward(variant: str, drop: Callable[..., Any], config: BertConfig) -> Case:
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
        embedding("", no_dropout),
        embedding("dropout", dropout_of),
        attention("", no_dropout, plain),
        attention("dropout", dropout_of, plain),
        attention("causal dropout", dropout_of, causal),
        attention("some rows dropout", dropout_of, plain, np.unique([*batch.first_rows, *batch.masked_rows])),
        feed_forward("", no_dropout, plain),
        feed_forward("dropout", dropout_of, plain),
        feed_forward("tanh dropout", dropout_of, tanh),
        _layers(x, parameters, plain),
        _bilstm(x, size, batch, rng, "", no_dropout),
        _bilstm(x, size, batch, rng, "dropout", dropout_of),
    ]


def _layers(x: Arrays, parameters: Parameters, config: BertConfig) -> Case:
    """Put feed-forward blocks in a row."""

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


def _bilstm(
    x: Arrays, size: Size, batch: Batch, rng: np.random.Generator, variant: str, drop: Callable[..., Any]
) -> Case:
    """Stack two bidirectional LSTMs."""
    table = lstm_table(size.H, size.M)
    return Case(
        "bilstm_block",
        variant,
        x,
        {entry.name: 0.3 * rng.standard_normal(entry.shape) for entry in table},
        lambda ops, inputs, params: ops.bilstm_block(
            inputs["x"], params["lstm"], batch.cu_seqlens, drop(ops, batch), 7
        ),
        lambda ops, dy, saved, params, grads: _under(
            "lstm", ops.bilstm_block_backward(dy, saved, params["lstm"], grads["lstm"])
        ),
    )


def _under(name: str, gradients: tuple[Any, Any]) -> tuple[Any, Any]:
    dx, grads = gradients
    return dx, {name: grads}


def heads(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """List the pooler and the masked-LM head."""
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


def _below(parameters: Parameters, path: str) -> Arrays:
    """Return the parameters of one block, by their last name."""
    within = f"{path}."
    return {name[len(within) :]: one for name, one in parameters.items() if name.startswith(within)}
