"""Cases of the operations outside the core: pooled windows, LSTMs and mixed layers."""

from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.gradcheck.cases import Arrays, Case, Drop, Size, dropout_of
from minibert.core.gradcheck.operations import case_of
from minibert.model.params import lstm_table


def primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build cases of the primitives.

    Parameters
    ----------
    size : Size
        The shape to check at.
    batch : Batch
        A batch of that shape, from which the number of tokens and the starts of sequences are used.
    rng : np.random.Generator
        Source of all inputs.

    Returns
    -------
    list of Case
    """
    T, M, H = batch.T, size.M, size.H
    draw = rng.standard_normal
    cases = []
    for variant in ("", "reverse"):
        weights = {
            "w_in": draw((H, 4 * M)) / 4,
            "w_state": draw((M, 4 * M)) / 3,
            "bias": draw(4 * M),
        }
        inputs = {"x": draw((T, H)), **weights}
        is_reversed = variant == "reverse"
        cases.append(case_of("lstm", variant, batch, inputs, {}, batch.cu_seqlens, is_reversed))
    layers = {
        "layers": draw((3, T, H)),
        "weights": draw(3),
    }
    cases.append(case_of("layer_mix", "", batch, layers, {}))
    for how in ("mean", "max"):
        cases.append(_pooled(how, {"x": draw((6, H))}))
    with_query = {
        "x": draw((6, H)),
        "query": draw(H),
    }
    cases.append(_pooled("attention", with_query))
    return cases


def _pooled(how: str, inputs: Arrays) -> Case:
    """Build a case of pooling six windows, of which three examples have two, one and three."""
    windows = np.array([[0, 1, -1], [2, -1, -1], [3, 4, 5]])

    def forward(ops: Any, inputs: Arrays, _: Any) -> tuple[Any, Any]:
        return ops.pool_windows(inputs["x"], windows, how, inputs.get("query"))

    def backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Any) -> tuple[Any, Any]:
        dx, dquery = ops.pool_windows_backward(dy, saved)
        if dquery is None:
            return dx, grads
        return (dx, dquery), grads

    return Case(
        "pool_windows",
        how,
        inputs=inputs,
        params={},
        forward=forward,
        backward=backward,
    )


def sublayers(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build cases of the LSTM block.

    Parameters
    ----------
    size : Size
        The shape to check at.
    batch : Batch
        A batch of that shape.
    rng : np.random.Generator
        Source of all inputs.

    Returns
    -------
    list of Case
    """
    x = rng.standard_normal((batch.T, size.H))

    def lstms(variant: str, drop: Drop) -> Case:
        params = {}
        for parameter in lstm_table(size.H, size.M):
            params[parameter.name] = 0.3 * rng.standard_normal(parameter.shape)

        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            dropped = drop and drop(ops, batch)
            lstm = params["lstm"]
            return ops.bilstm_block(inputs["x"], lstm, batch.cu_seqlens, dropped, 7)

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            lstm = params["lstm"]
            dx, dlstm = ops.bilstm_block_backward(dy, saved, lstm, grads["lstm"])
            return dx, {"lstm": dlstm}

        return Case(
            "bilstm_block",
            variant,
            inputs={"x": x},
            params=params,
            forward=forward,
            backward=backward,
        )

    return [lstms("", None), lstms("dropout", dropout_of)]
