"""Cases of single operations: primitives, sublayers, the pooler and the masked-LM head."""

from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import Arrays, Case, Drop, Size, config_of, dropout_of, random_batch
from minibert.core.params import Parameters

TREE = object()  # placeholder for the parameters of a block, among its arguments


def case_of(
    operation: str,
    variant: str,
    batch: Batch,
    inputs: Arrays,
    params: Arrays,
    *extra: Any,
    form: Any = (),
) -> Case:
    """Build the case of a method of `Ops`; one with parameters is called like a block.

    Parameters
    ----------
    operation : name of the method; its backward has the suffix "_backward".
    variant : what is particular about the case.
    batch : the batch for which dropout is drawn.
    inputs, params : arrays by name, with respect to which the result is differentiated.
    *extra : arguments of the method after `inputs`: a function that draws dropout, targets, which are cast to
        the precision of the inputs, `TREE` for the parameters, or anything else, passed unchanged.
    form : last arguments of the backward.
    """

    def forward(ops: Any, inputs: Arrays, tree: Any) -> tuple[Any, Any]:
        def given(argument: Any) -> Any:
            if argument is TREE:
                return tree
            if callable(argument):
                return argument(ops, batch)
            is_target = isinstance(argument, np.ndarray) and argument.dtype == np.float64
            if not is_target:
                return argument
            first_input = next(iter(inputs.values()))
            return ops.cast(argument, first_input.real.dtype)

        method = getattr(ops, operation)
        return method(*inputs.values(), *map(given, extra))

    def backward(ops: Any, dy: Any, saved: Any, tree: Any, grads: Any) -> tuple[Any, Any]:
        method = getattr(ops, f"{operation}_backward")
        if not params:
            return method(dy, saved, *form), grads
        gradients = method(dy, saved, tree, grads, *form)
        return gradients if inputs else ((), gradients)

    return Case(operation, variant, inputs, params, forward, backward)


def primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build the cases of the primitives.

    Parameters
    ----------
    size : the shape to check at.
    batch : a batch of that shape.
    rng : source of all inputs.
    """
    T, S = batch.T, batch.S
    A, H, F, V = size.A, size.H, size.F, size.V
    draw = rng.standard_normal
    cu_seqlens = batch.cu_seqlens
    cases = []

    def add(operation: str, variant: str, inputs: Arrays, *extra: Any, form: tuple[Any, ...] = ()) -> None:
        cases.append(case_of(operation, variant, batch, inputs, {}, *extra, form=form))

    def dropped(ops: Any, x: Any) -> Any:
        drop = dropout_of(ops, batch)
        return x * ops.dropout_mask(drop, 2, x.shape[1], x.dtype)

    def dropped_backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Any) -> tuple[Any, Any]:
        return dropped(ops, dy), grads  # drawn again: the same bits

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

    attentions: dict[str, tuple[Any, ...]] = {
        "": (),
        "causal": (True,),
        "dropout": (False, dropout_of, 4),
        "causal dropout": (True, dropout_of, 7),
    }
    for variant, extra in attentions.items():
        qkv = {name: draw((T, A, H // A)) for name in "qkv"}
        add("attention", variant, qkv, cu_seqlens, *extra)
    x, rows = draw((T, H)), rng.integers(T, size=T)
    add("take_rows", "", {"x": x}, np.append(rows, rows[0]))  # T + 1 rows: one at least is taken twice

    for variant, count in (("", T), ("one row", 1), ("no rows", 0)):
        logits = 3 * draw((count, V))
        labels = rng.integers(V, size=count)
        add("softmax_cross_entropy", variant, {"logits": logits}, labels)
    labels = rng.integers(np.diff(cu_seqlens))
    add("segment_softmax_cross_entropy", "", {"scores": 3 * draw(T)}, cu_seqlens, labels)
    targets = draw(S)
    applies = rng.random((S, F)) < 0.4
    weights = applies * rng.uniform(0.5, 2, (S, F))
    add("squared_error", "", {"predictions": draw(S)}, targets)
    cases += [
        Case(
            "dropout_mask",
            "",
            {"x": draw((T, F))},
            {},
            lambda ops, x, _: (dropped(ops, x["x"]), ()),
            dropped_backward,
        ),
        Case("embedding", "", {}, {"table": draw((V, H))}, embedding, embedding_backward),
    ]
    add("sigmoid_cross_entropy", "", {"logits": 3 * draw((S, F))}, weights)
    return cases


def sublayers(
    size: Size,
    batch: Batch,
    parameters: Parameters,
    rng: np.random.Generator,
) -> list[Case]:
    """Build the cases of the embeddings, of the blocks of a layer, and of several layers.

    Parameters
    ----------
    size : the shape to check at.
    batch, parameters : a batch and parameters of that shape.
    rng : source of all inputs.
    """
    x = {"x": rng.standard_normal((batch.T, size.H))}

    def embedding(variant: str, drop: Drop) -> Case:
        params = _below(parameters, "embeddings")
        return case_of("embedding_block", variant, batch, {}, params, batch, TREE, plain, drop)

    def attention(variant: str, drop: Drop, config: BertConfig, rows: Any = None) -> Case:
        params = _below(parameters, "layers.1.attention")
        options = batch.cu_seqlens, config, drop, 1, rows
        return case_of("attention_block", variant, batch, x, params, TREE, *options)

    def feed_forward(variant: str, drop: Drop, config: BertConfig) -> Case:
        params = _below(parameters, "layers.1.feed_forward")
        options = config, drop, 1
        return case_of("feed_forward_block", variant, batch, x, params, TREE, *options, form=(config,))

    plain = config_of(size)
    causal = config_of(size, is_decoder=True)
    tanh = config_of(size, hidden_act="gelu_new")
    some_rows = np.unique([*batch.first_rows, *batch.masked_rows])
    return [
        embedding("", None),
        embedding("dropout", dropout_of),
        attention("", None, plain),
        attention("dropout", dropout_of, plain),
        attention("causal dropout", dropout_of, causal),
        attention("some rows dropout", dropout_of, plain, some_rows),
        feed_forward("", None, plain),
        feed_forward("dropout", dropout_of, plain),
        feed_forward("tanh dropout", dropout_of, tanh),
        _layers(x, parameters, plain),
    ]


def _layers(x: Arrays, parameters: Parameters, config: BertConfig) -> Case:
    """Build the case of `layers`, with a feed-forward block for each layer."""

    def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
        def layer(x: Any, tree: Any, number: Any) -> tuple[Any, Any]:
            return ops.feed_forward_block(x, tree["feed_forward"], config, None, number)

        return ops.layers(layer, params["layers"], inputs["x"])

    def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
        def layer(dy: Any, kept: Any, tree: Any, totals: Any) -> tuple[Any, Any]:
            weights = tree["feed_forward"]
            total = totals["feed_forward"]
            dx, total = ops.feed_forward_block_backward(dy, kept, weights, total, config)
            return dx, {"feed_forward": total}

        dx, layers = ops.layers_backward(layer, dy, saved, params["layers"], grads["layers"])
        return dx, {"layers": layers}

    params = {}
    for name, array in parameters.items():
        if ".feed_forward." in name:
            params[name] = array
    return Case("layers", "", x, params, forward, backward)


def heads(
    size: Size,
    batch: Batch,
    parameters: Parameters,
    rng: np.random.Generator,
) -> list[Case]:
    """Build the cases of the pooler and of the masked-LM head.

    Parameters
    ----------
    size : the shape to check at.
    batch, parameters : a batch and parameters of that shape.
    rng : source of all inputs.
    """
    x = {"x": rng.standard_normal((batch.T, size.H))}
    config = config_of(size)

    def masked_lm(variant: str, batch: Batch) -> Case:
        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            rows, labels = batch.masked_rows, batch.masked_labels
            mlm, table = params["mlm"], params["table"]
            (nll, _), saved = ops.masked_lm_head(inputs["x"], rows, labels, mlm, table, config)
            return nll, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            dx, mlm, table = ops.masked_lm_head_backward(
                dy, saved, params["mlm"], grads["mlm"], grads["table"], config
            )
            return dx, {"mlm": mlm, "table": table}

        params = {name: array for name, array in parameters.items() if name.startswith("mlm.")}
        params["table"] = parameters["embeddings.word"]
        return Case("masked_lm_head", variant, x, params, forward, backward)

    return [
        case_of("pooler", "", batch, x, _below(parameters, "pooler"), batch.first_rows, TREE),
        masked_lm("", batch),
        masked_lm("M=1", random_batch(size, 1, rng)),
        masked_lm("M=0", random_batch(size, 0, rng)),
    ]


def _below(parameters: Parameters, path: str) -> Arrays:
    """Return the parameters of one block, by their names in the block."""
    within = f"{path}."
    block = {}
    for name, array in parameters.items():
        if name.startswith(within):
            block[name.removeprefix(within)] = array
    return block
