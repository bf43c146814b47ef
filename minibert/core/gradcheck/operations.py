"""Primitives, sublayers and the masked-LM head, each by itself."""

from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import Arrays, Case, Drop, Size, config_of, dropout_of, random_batch
from minibert.core.params import Parameters

TREE = object()  # in place of the parameters of a block, among what it is called with


def case_of(
    operation: str, variant: str, batch: Batch, inputs: Arrays, params: Arrays, *extra: Any, form: Any = ()
) -> Case:
    """Build the case of a method of `Ops`; what has parameters is called as a block is.

    Behind `inputs` the method takes `extra`: dropout where that is a function which draws it, and targets in
    the precision of the inputs. Its backward takes `form` behind all else.
    """

    def forward(ops: Any, inputs: Arrays, tree: Any) -> tuple[Any, Any]:
        def given(one: Any) -> Any:
            if one is TREE:
                return tree
            if callable(one):
                return one(ops, batch)
            is_target = isinstance(one, np.ndarray) and one.dtype == np.float64
            return ops.cast(one, next(iter(inputs.values())).real.dtype) if is_target else one

        return getattr(ops, operation)(*inputs.values(), *map(given, extra))

    def backward(ops: Any, dy: Any, saved: Any, tree: Any, grads: Any) -> tuple[Any, Any]:
        method = getattr(ops, f"{operation}_backward")
        if not params:
            return method(dy, saved, *form), grads
        gradients = method(dy, saved, tree, grads, *form)
        return gradients if inputs else ((), gradients)

    return Case(operation, variant, inputs, params, forward, backward)


def primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build primitives: those called with their inputs one after another, and those that are not."""
    T, S, A, H, F, V = batch.T, batch.S, size.A, size.H, size.F, size.V
    draw, cu_seqlens = rng.standard_normal, batch.cu_seqlens
    found = []

    def add(operation: str, variant: str, inputs: Arrays, *extra: Any, form: tuple[Any, ...] = ()) -> None:
        found.append(case_of(operation, variant, batch, inputs, {}, *extra, form=form))

    def dropped(ops: Any, x: Any) -> Any:
        return x * ops.dropout_mask(dropout_of(ops, batch), 2, x.shape[1], x.dtype)

    def dropped_backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Any) -> tuple[Any, Any]:
        return dropped(ops, dy), grads  # drawn anew: the same bits

    def embedding(ops: Any, _: Any, params: Any) -> tuple[Any, Any]:
        return ops.embedding(batch.input_ids, params["table"])

    def embedding_backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Any) -> tuple[Any, Any]:
        return (), {"table": ops.embedding_backward(dy, saved, grads["table"])}

    add("linear", "", {"x": draw((T, H)), "weight": draw((H, F)), "bias": draw(F)})
    for form in ("erf", "tanh"):
        add("gelu", form, {"x": 2 * draw((T, F))}, form, form=(form,))
    add("tanh", "", {"x": draw((T, H))})
    for variant, eps in (("", 1e-12), ("large eps", 0.5)):
        add("layer_norm", variant, {"x": draw((T, H)) + 1, "gamma": draw(H), "beta": draw(H)}, eps)
    plain = ("", ()), ("causal", (True,))
    dropping = ("dropout", (False, dropout_of, 4)), ("causal dropout", (True, dropout_of, 7))
    for variant, extra in (*plain, *dropping):
        add("attention", variant, {name: draw((T, A, H // A)) for name in "qkv"}, cu_seqlens, *extra)
    add("take_rows", "", {"x": draw((T, H))}, rng.integers(T, size=T))
    for variant, count in (("", T), ("one row", 1), ("no rows", 0)):
        add("softmax_cross_entropy", variant, {"logits": 3 * draw((count, V))}, rng.integers(V, size=count))
    labels = rng.integers(np.diff(cu_seqlens))
    add("segment_softmax_cross_entropy", "", {"scores": 3 * draw(T)}, cu_seqlens, labels)
    targets, applies = draw(S), (rng.random((S, F)) < 0.4) * rng.uniform(0.5, 2, (S, F))
    predictions, x, table = {"predictions": draw(S)}, {"x": draw((T, F))}, {"table": draw((V, H))}
    add("squared_error", "", predictions, targets)
    found += [
        Case("dropout_mask", "", x, {}, lambda ops, x, _: (dropped(ops, x["x"]), ()), dropped_backward),
        Case("embedding", "", {}, table, embedding, embedding_backward),
    ]
    add("sigmoid_cross_entropy", "", {"logits": 3 * draw((S, F))}, applies)
    return found


def sublayers(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """List the blocks of a layer, and layers in a row."""
    x = {"x": rng.standard_normal((batch.T, size.H))}

    def embedding(variant: str, drop: Drop) -> Case:
        params = _below(parameters, "embeddings")
        return case_of("embedding_block", variant, batch, {}, params, batch, TREE, plain, drop)

    def attention(variant: str, drop: Drop, config: BertConfig, rows: Any = None) -> Case:
        params, how = _below(parameters, "layers.1.attention"), (batch.cu_seqlens, config, drop, 1, rows)
        return case_of("attention_block", variant, batch, x, params, TREE, *how)

    def feed_forward(variant: str, drop: Drop, config: BertConfig) -> Case:
        params, how = _below(parameters, "layers.1.feed_forward"), (config, drop, 1)
        return case_of("feed_forward_block", variant, batch, x, params, TREE, *how, form=(config,))

    plain, causal = config_of(size), config_of(size, is_decoder=True)
    return [
        embedding("", None),
        embedding("dropout", dropout_of),
        attention("", None, plain),
        attention("dropout", dropout_of, plain),
        attention("causal dropout", dropout_of, causal),
        attention("some rows dropout", dropout_of, plain, np.unique([*batch.first_rows, *batch.masked_rows])),
        feed_forward("", None, plain),
        feed_forward("dropout", dropout_of, plain),
        feed_forward("tanh dropout", dropout_of, config_of(size, hidden_act="gelu_new")),
        _layers(x, parameters, plain),
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


def heads(size: Size, batch: Batch, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """List the pooler and the masked-LM head."""
    x, config = {"x": rng.standard_normal((batch.T, size.H))}, config_of(size)

    def masked_lm(variant: str, batch: Batch) -> Case:
        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            asked = batch.masked_rows, batch.masked_labels
            (nll, _), saved = ops.masked_lm_head(inputs["x"], *asked, params["mlm"], params["table"], config)
            return nll, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            totals = grads["mlm"], grads["table"]
            dx, mlm, table = ops.masked_lm_head_backward(dy, saved, params["mlm"], *totals, config)
            return dx, {"mlm": mlm, "table": table}

        params = {name: one for name, one in parameters.items() if name.startswith("mlm.")}
        params["table"] = parameters["embeddings.word"]
        return Case("masked_lm_head", variant, x, params, forward, backward)

    return [
        case_of("pooler", "", batch, x, _below(parameters, "pooler"), batch.first_rows, TREE),
        masked_lm("", batch),
        masked_lm("M=1", random_batch(size, 1, rng)),
        masked_lm("M=0", random_batch(size, 0, rng)),
    ]


def _below(parameters: Parameters, path: str) -> Arrays:
    """Return the parameters of one block, by their last name."""
    within = f"{path}."
    return {name[len(within) :]: one for name, one in parameters.items() if name.startswith(within)}
