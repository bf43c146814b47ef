"""PyTorch's scaled_dot_product_attention alone, whatever kernel it chooses."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from peers.children import seconds_of


class PyTorch:
    """Forward and backward for one case at a time."""

    def __init__(self, threads: int) -> None:
        self._on = "cuda" if torch.cuda.is_available() else "cpu"

    def device(self) -> str:
        return f"{torch.cuda.get_device_name() if self._on == 'cuda' else 'cpu'}, torch {torch.__version__}"

    def prepare(self, dtype: str, given: np.ndarray, keys: np.ndarray, rate: float, sweep: bool) -> list[str]:
        """Put the case on the device; the name of what there is."""
        self._rate = rate
        # (R,n,A,D), which the kernels read with strides
        made = [torch.from_numpy(one).to(self._on, getattr(torch, dtype)) for one in given]
        *self._qkv, self._dy = [one.transpose(1, 2) for one in made]
        self._qkv = [one.requires_grad_() for one in self._qkv]
        return ["PyTorch"]

    def _forward(self) -> torch.Tensor:
        return F.scaled_dot_product_attention(*self._qkv, dropout_p=self._rate)

    def _backward(self, y: torch.Tensor) -> Any:
        return torch.autograd.grad(y, self._qkv, self._dy, retain_graph=True)

    def results(self, name: str, rows: int) -> list[np.ndarray]:
        """y dq dk dv of the first rows."""
        y = self._forward()
        found = [y, *self._backward(y)]
        return [one[:rows].transpose(1, 2).double().cpu().detach().numpy() for one in found]

    def times(self, name: str) -> dict[str, float]:
        """Seconds of a call."""
        y = self._forward()
        calls = {"forward": self._forward, "backward": lambda: self._backward(y)}
        return {way: seconds_of(call, self._wait) for way, call in calls.items()}

    def _wait(self, _: Any) -> None:
        if self._on == "cuda":
            torch.cuda.synchronize()
