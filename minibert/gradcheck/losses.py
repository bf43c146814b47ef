"""Losses that only the product has: LSTMs, windows, pairs by their vectors, the tagger on frozen features."""

import dataclasses
from typing import Any

import numpy as np

from minibert.core.gradcheck import cases
from minibert.core.gradcheck.cases import Arrays, Case, Drop, Size, config_of, dropout_of
from minibert.core.gradcheck.losses import Prepare, head_case
from minibert.gradcheck.drawn import random_task_batch
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.params import Head, Parameters
from minibert.tasks import batches


def task_losses(size: Size, rng: np.random.Generator, prepare: Prepare) -> list[Case]:
    """Build the losses of fine-tuning, on an encoder of one layer."""

    def loss(variant: str, head: Head, drop: Drop = None, **fields: Any) -> Case:
        config = config_of(size, num_hidden_layers=1, **fields)
        parameters = cases.random_parameters(config, rng, head, Parameters)
        batch = random_task_batch(size, head, rng)
        functions = batches.functions_of(head)
        return head_case(functions, variant, config, head, parameters, batch, drop, 0.5, prepare)

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

    classify, regress, multilabel = Head("classify", 3), Head("regress", 1), Head("multilabel", 4)
    tag = Head("tag", 5)
    pooled_lstm = classify._replace(lstm=True, pool="attention")
    return [
        loss("LSTM dropout", classify._replace(lstm=True), dropout_of),
        loss("mean windows dropout", classify._replace(pool="mean"), dropout_of),
        loss("max windows dropout", classify._replace(pool="max"), dropout_of),
        loss("attention windows", regress._replace(pool="attention")),
        loss("attention windows causal LSTM dropout", pooled_lstm, dropout_of, is_decoder=True),
        loss("causal LSTM dropout", tag._replace(lstm=True), dropout_of, is_decoder=True),
        loss("LSTM dropout", multilabel._replace(lstm=True), dropout_of),
        loss("", Head("cosine", 0)),
        loss("dropout", Head("cosine", 0), dropout_of),
        loss("", Head("contrastive", 0)),
        loss("dropout", Head("contrastive", 0), dropout_of),
        tagger(""),
        tagger("dropout", dropout_of),
        tagger("mixed dropout", dropout_of, mixed=3),
    ]
