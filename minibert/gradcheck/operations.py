"""Operations that only the product has: pooled windows, LSTMs and mixed layers."""

from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.gradcheck.cases import Arrays, Case, Drop, Size, dropout_of
from minibert.core.gradcheck.operations import case_of
from minibert.model.params import lstm_table


def primitives(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build the primitives."""
    T, M, H = batch.T, size.M, size.H
    draw, cu_seqlens = rng.standard_normal, batch.cu_seqlens
    cases = []

    def pooled(how: str, inputs: Arrays) -> Case:
        def forward(ops: Any, inputs: Arrays, _: Any) -> tuple[Any, Any]:
            windows = np.array([[0, 1, -1], [2, -1, -1], [3, 4, 5]])
            return ops.pool_windows(inputs["x"], windows, how, inputs.get("query"))

        def backward(ops: Any, dy: Any, saved: Any, _: Any, grads: Any) -> tuple[Any, Any]:
            dx, dquery = ops.pool_windows_backward(dy, saved)
            return dx if dquery is None else (dx, dquery), grads

        return Case("pool_windows", how, inputs, {}, forward, backward)

    for variant in ("", "reverse"):
        weights = {"w_in": draw((H, 4 * M)) / 4, "w_state": draw((M, 4 * M)) / 3, "bias": draw(4 * M)}
        inputs = {"x": draw((T, H)), **weights}
        cases.append(case_of("lstm", variant, batch, inputs, {}, cu_seqlens, bool(variant)))
    layers = {"layers": draw((3, T, H)), "weights": draw(3)}
    cases.append(case_of("layer_mix", "", batch, layers, {}))
    cases += [pooled(how, {"x": draw((6, H))}) for how in ("mean", "max")]
    cases.append(pooled("attention", {"x": draw((6, H)), "query": draw(H)}))
    return cases


def sublayers(size: Size, batch: Batch, rng: np.random.Generator) -> list[Case]:
    """Build the blocks of LSTMs."""
    x = {"x": rng.standard_normal((batch.T, size.H))}

    def lstms(variant: str, drop: Drop) -> Case:
        params = {one.name: 0.3 * rng.standard_normal(one.shape) for one in lstm_table(size.H, size.M)}

        def forward(ops: Any, inputs: Arrays, params: Any) -> tuple[Any, Any]:
            dropped = drop and drop(ops, batch)
            return ops.bilstm_block(inputs["x"], params["lstm"], batch.cu_seqlens, dropped, 7)

        def backward(ops: Any, dy: Any, saved: Any, params: Any, grads: Any) -> tuple[Any, Any]:
            dx, lstm = ops.bilstm_block_backward(dy, saved, params["lstm"], grads["lstm"])
            return dx, {"lstm": lstm}

        return Case("bilstm_block", variant, x, params, forward, backward)

    return [lstms("", None), lstms("dropout", dropout_of)]
