"""What happens to parameters once their gradients are known, over flat buffers."""

import math
from typing import Any

import numpy as np

from minibert.ops.primitives import Primitives

CHUNK = 1 << 16  # elements handled at a time, so that the temporaries stay in cache


class Updates(Primitives):
    """Optimizer arithmetic. Parameters and moments are consumed and returned: in place for NumPy."""

    # grads (N,) -> scalar
    def global_norm(self, grads: Any) -> Any:
        """Euclidean norm of all gradients together."""
        parts = (grads[i : i + CHUNK] for i in range(0, len(grads), CHUNK))
        return math.sqrt(math.fsum(float(part @ part) for part in parts))

    # params grads m v (N,)  decayed (K,2) -> params m v (N,)
    def adamw(
        self,
        params: Any,
        grads: Any,
        m: Any,
        v: Any,
        decayed: np.ndarray,
        *,
        lr: float,
        step: int,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        clip: float = 1.0,
    ) -> tuple[Any, Any, Any]:
        """One step of Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019).

        Parameters
        ----------
        params, grads, m, v : flat buffers; m and v are the moments.
        decayed : ranges [begin, end) of the buffers that have weight decay.
        lr : learning rate of this step.
        step : number of this step, from 1.
        eps : added outside the square root.
        bias_correction : False gives the Adam of BERT's released code.
        clip : what gradients are multiplied with first, 1 where they are short enough.
        """
        if bias_correction:
            lr_scale, v_scale = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
        else:
            lr_scale = v_scale = 1.0
        for begin, end, decays in spans(decayed, len(params)):
            for low in range(begin, end, CHUNK):
                s = slice(low, min(low + CHUNK, end))
                g = grads[s] * clip
                m[s] = beta1 * m[s] + (1 - beta1) * g
                v[s] = beta2 * v[s] + (1 - beta2) * (g * g)
                direction = lr_scale * m[s] / (np.sqrt(v_scale * v[s]) + eps)
                if decays:
                    direction += weight_decay * params[s]
                params[s] -= lr * direction
        return params, m, v


def spans(decayed: np.ndarray, count: int) -> list[tuple[int, int, bool]]:
    """(begin, end, decays) of the whole buffer, in order, from the ranges that decay."""
    result, at = [], 0
    for begin, end in decayed.tolist():
        result += [(at, begin, False), (begin, end, True)]
        at = end
    return [span for span in [*result, (at, count, False)] if span[1] > span[0]]
