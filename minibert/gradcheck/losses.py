"""Whole losses: of pre-training, of every head of fine-tuning, and of the tagger of LSTMs."""

import dataclasses
from typing import Any

import numpy as np

from minibert.core import bert
from minibert.core.batch import Batch
from minibert.model.batch import VectorBatch
from minibert.model.params import Head, Parameters
from minibert.engines.runtime import runtime_of
from minibert.gradcheck import cases
from minibert.gradcheck.cases import Arrays, Case, Drop, Size, config_of, dropout_of, random_batch
from minibert.model import bilstm
from minibert.tasks import batches

# These add the same to everything that a softmax compares: choices, tokens as starts and ends.
UNSEEN = {"choice": ("head.bias",), "span": ("head.bias", "layers.0.feed_forward.beta")}


def pretraining_losses(size: Size, parameters: Parameters, rng: np.random.Generator) -> list[Case]:
    """List losses of pre-training, on an encoder of two layers."""

    def loss(variant: str, batch: Batch, drop: Drop = dropout_of, **fields: Any) -> Case:
        config = config_of(size, **fields)

        def forward(ops: Any, _: Arrays, params: Any) -> tuple[Any, Any]:
            laid_out = runtime_of(ops).prepare(batch)
            result, saved = bert.pretraining_loss(ops, config, params, laid_out, drop and drop(ops, laid_out))
            return result.loss, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            return (), bert.pretraining_loss_backward(ops, config, saved, params, grads)

        return Case("pretraining_loss", variant, {}, dict(parameters.items()), forward, backward)

    return [
        loss("", random_batch(size, size.M, rng), None),
        loss("dropout", random_batch(size, size.M, rng)),
        loss("tanh dropout", random_batch(size, size.M, rng), hidden_act="gelu_new"),
        loss("left to right dropout", random_batch(size, sum(size.lengths), rng, False), is_decoder=True),
        loss("M=1 dropout", random_batch(size, 1, rng)),
        loss("M=0 dropout", random_batch(size, 0, rng)),
    ]


def task_losses(size: Size, rng: np.random.Generator) -> list[Case]:
    """Build the losses of fine-tuning, on an encoder of one layer."""

    def loss(variant: str, head: Head, drop: Drop = None, summed: bool = False, **fields: Any) -> Case:
        config = config_of(size, num_hidden_layers=1, **fields)
        parameters = cases.random_parameters(config, rng, head)
        batch = cases.random_task_batch(size, head, rng, tagged=0 if "no rows" in variant else 0.4)
        span_weight, own = 1 if summed else 0.5, batches.functions_of(head)

        def forward(ops: Any, _: Arrays, params: Any) -> tuple[Any, Any]:
            laid_out = runtime_of(ops).prepare(batch)
            dropped = drop and drop(ops, laid_out)
            result, saved = own.loss(ops, config, head, params, laid_out, dropped, span_weight)
            return result.loss, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            return (), own.loss_backward(ops, config, head, saved, params, grads)

        tree, unseen = dict(parameters.items()), UNSEEN.get(head.kind, ())
        return Case("head_loss", f"{head.kind} {variant}".strip(), {}, tree, forward, backward, unseen)

    def tagger(variant: str, drop: Drop = None, mixed: int = 0) -> Case:
        """Build the loss of the tagger of LSTMs; its vectors have a gradient as well."""
        config = bilstm.BilstmConfig(inputs=size.H, outputs=5, width=size.M, mixed=mixed)
        parameters = cases.in_general_position(bilstm.BilstmParameters(config, dtype=np.float64), rng)
        shapes = [(mixed, n, size.H) if mixed else (n, size.H) for n in size.lengths]
        rows = [np.flatnonzero(rng.random(n) < 0.6) for n in size.lengths]
        vectors = [rng.standard_normal(shape) for shape in shapes]
        batch = VectorBatch.pack_vectors(vectors, [rng.integers(5, size=len(own)) for own in rows], rows)
        batch = cases.unevenly_weighted(batch, rng, "label_weights")

        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            moved = dataclasses.replace(batch, vectors=inputs["vectors"])
            result, saved = bilstm.loss(ops, config, params, moved, drop and drop(ops, moved))
            return result.loss, saved

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            return bilstm.loss_backward(ops, config, saved, params, grads)

        tree, inputs = dict(parameters.items()), {"vectors": batch.vectors}
        return Case("tagger_loss", variant, inputs, tree, forward, backward)

    classify, regress, choice = Head("classify", 3), Head("regress", 1), Head("choice", 1)
    pooled_lstm = classify._replace(lstm=True, pool="attention")
    span, tag, multilabel = Head("span", 2), Head("tag", 5), Head("multilabel", 4)
    return [
        loss("", classify),
        loss("dropout", classify, dropout_of),
        loss("causal dropout", classify, dropout_of, is_decoder=True),
        loss("LSTM dropout", classify._replace(lstm=True), dropout_of),
        loss("", regress),
        loss("dropout", regress, dropout_of),
        loss("mean windows dropout", classify._replace(pool="mean"), dropout_of),
        loss("max windows dropout", classify._replace(pool="max"), dropout_of),
        loss("attention windows", regress._replace(pool="attention")),
        loss("attention windows causal LSTM dropout", pooled_lstm, dropout_of, is_decoder=True),
        loss("", choice),
        loss("causal dropout", choice, dropout_of, is_decoder=True),
        loss("", span),
        loss("sum dropout", span, dropout_of, summed=True),
        loss("causal dropout", span, dropout_of, is_decoder=True),
        loss("", tag),
        loss("dropout", tag, dropout_of),
        loss("causal LSTM dropout", tag._replace(lstm=True), dropout_of, is_decoder=True),
        loss("no rows dropout", tag, dropout_of),
        loss("", Head("cosine", 0)),
        loss("dropout", Head("cosine", 0), dropout_of),
        loss("", Head("contrastive", 0)),
        loss("dropout", Head("contrastive", 0), dropout_of),
        tagger(""),
        tagger("dropout", dropout_of),
        tagger("mixed dropout", dropout_of, mixed=3),
        loss("", multilabel),
        loss("LSTM dropout", multilabel._replace(lstm=True), dropout_of),
    ]
