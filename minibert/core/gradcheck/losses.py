"""Cases of whole losses: those of pre-training, and of every head of fine-tuning."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from minibert.core import bert, heads
from minibert.core.batch import Batch, TaskBatch
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import (
    Arrays,
    Case,
    Drop,
    Size,
    config_of,
    dropout_of,
    random_batch,
    random_parameters,
    random_task_batch,
)
from minibert.core.params import Parameters, PlainHead

Prepare: TypeAlias = Callable[[Any, Any], Any]  # (ops, batch) -> the batch as the engine takes it


def as_it_is(ops: Any, batch: Any) -> Any:
    """Lay out a batch as NumPy takes it.

    Parameters
    ----------
    ops, batch : the engine, which is not used, and the batch.
    """
    return batch


# For each kind of head, parameters that add the same to all inputs of its softmax, so the loss ignores them.
UNSEEN = {"choice": ("head.bias",), "span": ("head.bias", "layers.0.feed_forward.beta")}


def pretraining_losses(
    size: Size,
    parameters: Parameters,
    rng: np.random.Generator,
    prepare: Prepare = as_it_is,
) -> list[Case]:
    """Build the losses of pre-training, on an encoder of two layers.

    Parameters
    ----------
    size : the shape to check at.
    parameters : parameters of that shape, in general position.
    rng : source of the batches.
    prepare : function that lays out a batch as the engine takes it.
    """

    def loss(variant: str, batch: Batch, drop: Drop = dropout_of, **fields: Any) -> Case:
        config = config_of(size, **fields)

        def forward(ops: Any, _: Arrays, params: Any) -> tuple[Any, Any]:
            laid_out = prepare(ops, batch)
            dropped = drop and drop(ops, laid_out)
            result, saved = bert.pretraining_loss(ops, config, params, laid_out, dropped)
            return result.loss, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            grads = bert.pretraining_loss_backward(ops, config, saved, params, grads)
            return (), grads

        tensors = dict(parameters.items())
        return Case("pretraining_loss", variant, {}, tensors, forward, backward)

    T = sum(size.lengths)
    return [
        loss("", random_batch(size, size.M, rng), None),
        loss("dropout", random_batch(size, size.M, rng)),
        loss("tanh dropout", random_batch(size, size.M, rng), hidden_act="gelu_new"),
        loss("left to right dropout", random_batch(size, T, rng, next_sentence=False), is_decoder=True),
        loss("M=1 dropout", random_batch(size, 1, rng)),
        loss("M=0 dropout", random_batch(size, 0, rng)),
    ]


def task_losses(
    size: Size,
    rng: np.random.Generator,
    prepare: Prepare = as_it_is,
) -> list[Case]:
    """Build the losses of fine-tuning, on an encoder of one layer.

    Parameters
    ----------
    size : the shape to check at.
    rng : source of parameters and batches.
    prepare : function that lays out a batch as the engine takes it.
    """

    def loss(variant: str, head: PlainHead, drop: Drop = None, summed: bool = False, **fields: Any) -> Case:
        config = config_of(size, num_hidden_layers=1, **fields)
        tagged = 0 if "no rows" in variant else 0.4
        parameters = random_parameters(config, rng, head)
        batch = random_task_batch(size, head, rng, tagged)
        span_weight = 1 if summed else 0.5
        return head_case(heads, variant, config, head, parameters, batch, drop, span_weight, prepare)

    classify = PlainHead("classify", 3)
    regress = PlainHead("regress", 1)
    choice = PlainHead("choice", 1)
    span = PlainHead("span", 2)
    tag = PlainHead("tag", 5)
    multilabel = PlainHead("multilabel", 4)
    return [
        loss("", classify),
        loss("dropout", classify, dropout_of),
        loss("causal dropout", classify, dropout_of, is_decoder=True),
        loss("", regress),
        loss("dropout", regress, dropout_of),
        loss("", choice),
        loss("causal dropout", choice, dropout_of, is_decoder=True),
        loss("", span),
        loss("sum dropout", span, dropout_of, summed=True),
        loss("causal dropout", span, dropout_of, is_decoder=True),
        loss("", tag),
        loss("dropout", tag, dropout_of),
        loss("no rows dropout", tag, dropout_of),
        loss("", multilabel),
    ]


def head_case(
    functions: Any,
    variant: str,
    config: BertConfig,
    head: Any,
    parameters: Parameters,
    batch: TaskBatch,
    drop: Drop,
    span_weight: float,
    prepare: Prepare,
) -> Case:
    """Build the case of a loss of fine-tuning.

    Parameters
    ----------
    functions : module with the functions `loss` and `loss_backward` to check.
    variant : what is particular about the case.
    config, head, parameters : the model.
    batch : the batch, with labels for the head.
    drop : function that draws dropout. None: no dropout.
    span_weight : as for `heads.loss`.
    prepare : function that lays out a batch as the engine takes it.
    """

    def forward(ops: Any, _: Arrays, params: Any) -> tuple[Any, Any]:
        laid_out = prepare(ops, batch)
        dropped = drop and drop(ops, laid_out)
        result, saved = functions.loss(ops, config, head, params, laid_out, dropped, span_weight)
        return result.loss, saved

    def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
        return (), functions.loss_backward(ops, config, head, saved, params, grads)

    label = f"{head.kind} {variant}".strip()
    return Case(
        "head_loss", label, {}, dict(parameters.items()), forward, backward, UNSEEN.get(head.kind, ())
    )
