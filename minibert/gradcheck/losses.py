"""Cases of the losses outside the core: LSTMs, windows, similarity, and the tagger on frozen features."""

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
    """Build cases of the losses of fine-tuning, with an encoder of one layer, and of the tagger's loss.

    Parameters
    ----------
    size : Size
        The shape to check at.
    rng : np.random.Generator
        Source of parameters and batches.
    prepare : callable
        Prepares a batch for an engine.

    Returns
    -------
    list of Case
    """

    def loss(variant: str, head: Head, drop: Drop = None, **fields: Any) -> Case:
        config = config_of(size, num_hidden_layers=1, **fields)
        parameters = cases.random_parameters(config, rng, head, Parameters)
        batch = random_task_batch(size, head, rng)
        return head_case(
            batches.functions_of(head),
            variant,
            config=config,
            head=head,
            parameters=parameters,
            batch=batch,
            drop=drop,
            span_weight=0.5,
            prepare=prepare,
        )

    classify = Head("classify", 3)
    regress = Head("regress", 1)
    multilabel = Head("multilabel", 4)
    tag = Head("tag", 5)
    cosine = Head("cosine", 0)
    contrastive = Head("contrastive", 0)
    pooled_lstm = classify._replace(lstm=True, pool="attention")
    return [
        loss("LSTM dropout", classify._replace(lstm=True), dropout_of),
        loss("mean windows dropout", classify._replace(pool="mean"), dropout_of),
        loss("max windows dropout", classify._replace(pool="max"), dropout_of),
        loss("attention windows", regress._replace(pool="attention")),
        loss("attention windows causal LSTM dropout", pooled_lstm, dropout_of, is_decoder=True),
        loss("causal LSTM dropout", tag._replace(lstm=True), dropout_of, is_decoder=True),
        loss("LSTM dropout", multilabel._replace(lstm=True), dropout_of),
        loss("", cosine),
        loss("dropout", cosine, dropout_of),
        loss("", contrastive),
        loss("dropout", contrastive, dropout_of),
        _tagger("", size, rng),
        _tagger("dropout", size, rng, dropout_of),
        _tagger("mixed dropout", size, rng, dropout_of, mixed=3),
    ]


def _tagger(
    variant: str,
    size: Size,
    rng: np.random.Generator,
    drop: Drop = None,
    mixed: int = 0,
) -> Case:
    """Build a case of the loss of the LSTM tagger, in which the input vectors have a gradient as well."""
    config = bilstm.BilstmConfig(
        inputs=size.H,
        outputs=5,
        width=size.M,
        mixed=mixed,
    )
    parameters = bilstm.BilstmParameters(config, dtype=np.float64)
    parameters = cases.in_general_position(parameters, rng)
    rows = [np.flatnonzero(rng.random(n) < 0.6) for n in size.lengths]
    vectors = []
    for n in size.lengths:
        shape: tuple[int, ...] = (n, size.H)
        if mixed:
            shape = (mixed, *shape)
        vectors.append(rng.standard_normal(shape))
    labels = [rng.integers(5, size=len(tagged)) for tagged in rows]
    batch = VectorBatch.pack_vectors(vectors, labels, rows)
    batch = cases.unevenly_weighted(batch, rng, "label_weights")

    def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
        moved = dataclasses.replace(batch, vectors=inputs["vectors"])
        dropped = drop and drop(ops, moved)
        result, saved = bilstm.loss(ops, config, params, moved, dropped)
        return result.loss, saved

    def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
        return bilstm.loss_backward(ops, config, saved, params, grads)

    return Case(
        "tagger_loss",
        variant,
        inputs={"vectors": batch.vectors},
        params=dict(parameters.items()),
        forward=forward,
        backward=backward,
    )
