"""What the feature-based approach adds (Devlin et al. 2019, section 5.3): LSTM, weighted sum of layers."""

from typing import Any

import numpy as np

from minibert.ops.primitives import Primitives, Saved


class Recurrent(Primitives):
    """Operations over time and over layers."""

    # x (T,I)  w_in (I,4H)  w_state (H,4H)  bias (4H,) -> (T,H)
    def lstm(
        self, x: Any, w_in: Any, w_state: Any, bias: Any, cu_seqlens: np.ndarray, reverse: bool = False
    ) -> tuple[Any, Saved]:
        """One direction of an LSTM (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

        Gates stand in the order input, forget, candidate, output; every sequence starts from zero state.

        Parameters
        ----------
        x : flat tokens.
        w_in, w_state, bias : weights of the input, of the previous output, and one bias for both.
        cu_seqlens : (S+1,) where sequences begin.
        reverse : read every sequence from its end.
        """
        xp, (H, _) = self.xp, w_state.shape
        steps, back = _time_steps(cu_seqlens, reverse)
        from_input = x @ w_in + bias
        h = c = xp.zeros((len(steps[0]), H), x.dtype)
        outputs, kept = [], []
        for rows in steps:  # sequences by falling length, so the ones still running are always the first
            h, c = h[: len(rows)], c[: len(rows)]
            gates = from_input[rows] + h @ w_state
            i, f, o = (self._sigmoid(gates[:, j * H : (j + 1) * H]) for j in (0, 1, 3))
            g = xp.tanh(gates[:, 2 * H : 3 * H])
            before, h_before = c, h
            c = f * before + i * g
            tanh_c = xp.tanh(c)
            h = o * tanh_c
            outputs.append(h)
            kept.append((i, f, g, o, before, tanh_c, h_before))
        return xp.concatenate(outputs)[back], (x, w_in, w_state, cu_seqlens, np.asarray(reverse), tuple(kept))

    # h = o tanh(c),  c = f c_before + i g. Going back in time, dh is what comes from above plus what the next
    # step's gates send, dc collects o (1 - tanh(c)^2) dh and the next step's f dc. Then
    #   di = dc g i (1 - i),  df = dc c_before f (1 - f),  dg = dc i (1 - g^2),  do = dh tanh(c) o (1 - o)
    # dy (T,H) -> dx (T,I)  dw_in (I,4H)  dw_state (H,4H)  dbias (4H,)
    def lstm_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any, Any]:
        """Backward through time."""
        xp = self.xp
        x, w_in, w_state, cu_seqlens, reverse, kept = saved
        steps, back = _time_steps(cu_seqlens, bool(reverse))
        dh = dc = xp.zeros((0, w_state.shape[0]), dy.dtype)
        dw_state = xp.zeros_like(w_state)
        d_gates = []
        for rows, (i, f, g, o, before, tanh_c, h_before) in zip(reversed(steps), reversed(kept), strict=True):
            # Going backward, sequences join at their last token: nothing comes to them from a later step.
            starting = xp.zeros((len(rows) - len(dh), dh.shape[1]), dy.dtype)
            dh = dy[rows] + xp.concatenate([dh, starting])
            dc = dh * o * (1 - tanh_c * tanh_c) + xp.concatenate([dc, starting])
            d = xp.concatenate(
                [
                    dc * g * i * (1 - i),
                    dc * before * f * (1 - f),
                    dc * i * (1 - g * g),
                    dh * tanh_c * o * (1 - o),
                ],
                axis=1,
            )
            dw_state = dw_state + h_before.T @ d
            dh, dc = d @ w_state.T, dc * f
            d_gates.append(d)
        d_all = xp.concatenate(d_gates[::-1])[back]
        return d_all @ w_in.T, x.T @ d_all, dw_state, d_all.sum(0)

    def _sigmoid(self, x: Any) -> Any:
        return 0.5 + 0.5 * self.xp.tanh(0.5 * x)  # cannot overflow

    # layers (N,T,H)  weights (N,) -> (T,H)
    def layer_mix(self, layers: Any, weights: Any) -> tuple[Any, Saved]:
        """Sum of layers with weights softmax(weights) (Peters et al. 2018; the paper's Table 7)."""
        exponentials = self.xp.exp(weights - weights.real.max())
        shares = exponentials / exponentials.sum()
        return self.xp.tensordot(shares, layers, 1), (layers, shares)

    # dy (T,H) -> dlayers (N,T,H)  dweights (N,)
    def layer_mix_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any]:
        """Gradients of `layer_mix`: through the sum, and through the softmax of the weights."""
        layers, shares = saved
        dshares = (layers * dy).sum((1, 2))
        return shares[:, None, None] * dy, shares * (dshares - (dshares * shares).sum())


def _time_steps(cu_seqlens: np.ndarray, reverse: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows to handle at each time step, longest sequences first, and the order back to the flat batch."""
    lengths = np.diff(cu_seqlens)
    longest_first = np.argsort(-lengths, kind="stable")
    steps = []
    for t in range(int(lengths.max())):
        running = longest_first[lengths[longest_first] > t]
        steps.append(cu_seqlens[running + 1] - 1 - t if reverse else cu_seqlens[running] + t)
    return steps, np.argsort(np.concatenate(steps))
