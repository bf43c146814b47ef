"""The feature-based approach (Devlin et al. 2019, section 5.3): LSTMs, and a weighted sum of layers.

Time steps are computed one after another, each for all sequences of the batch together. For this, rows are
sorted by time step, and within a step by the length of their sequence, the longest first. Then the rows of a
step are contiguous, and the sequences that go on to the next step are the first of them.
"""

from collections import namedtuple
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops.blocks import Blocks
from minibert.core.ops.dropout_bits import Dropout

# What forward saves for backward. Gates, cells (before each step), tanhs (of the cells after it) and outputs
# are in time order.
LstmSaved = namedtuple("LstmSaved", "linear w_state cu_seqlens reverse gates cells tanhs outputs")
BilstmLayerSaved = namedtuple("BilstmLayerSaved", "left_to_right right_to_left dropout")
LayerMixSaved = namedtuple("LayerMixSaved", "layers shares")


class Recurrent(Blocks):
    """Operations over time and over layers."""

    # x (T,I)  w_in (I,4H)  w_state (H,4H)  bias (4H,) -> (T,H)
    def lstm(
        self,
        x: Array,
        w_in: Array,
        w_state: Array,
        bias: Array,
        cu_seqlens: Any,
        reverse: bool = False,
    ) -> tuple[Array, Saved]:
        """Run one direction of an LSTM (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

        The gates are in the order input, forget, candidate, output; every sequence starts from a state of
        zeros. There are weights for the input and for the previous output, and one bias for both.

        Parameters
        ----------
        x : (T,I)
            Input.
        w_in : (I,4H)
            Weights of the input.
        w_state : (H,4H)
            Weights of the previous output.
        bias : (4H,)
            Bias.
        cu_seqlens : (S+1,)
            First row of each sequence, then T.
        reverse : bool, default False
            Whether to read every sequence from its end.

        Returns
        -------
        y : (T,H)
        saved : Saved
            Gates, cells, tanh of the cells, and outputs of every step.
        """
        xp = self.xp
        H = w_state.shape[0]
        time = _time(cu_seqlens, reverse)
        from_input, saved_linear = self.linear(x[time.order], w_in, bias)
        # sigmoid(x) = (1 + tanh(x / 2)) / 2 cannot overflow, and lets one tanh compute all four gates.
        scale = self.cast(np.repeat([0.5, 0.5, 1.0, 0.5], H), from_input.real.dtype)
        h = c = xp.zeros((len(cu_seqlens) - 1, H), from_input.dtype)
        gates, cells, tanhs, outputs = [], [], [], []
        for begin, end in pairwise(time.borders):
            h = h[: end - begin]  # only the sequences that go on
            c = c[: end - begin]
            cells.append(c)
            z = from_input[begin:end] + self._product(h, w_state)
            gate = scale * xp.tanh(scale * z) + (1 - scale)
            i, f, g, o = (gate[:, j * H : (j + 1) * H] for j in range(4))
            c = f * c + i * g
            tanh_c = xp.tanh(c)
            h = o * tanh_c
            gates.append(gate)
            tanhs.append(tanh_c)
            outputs.append(h)
        gates, cells, tanhs, outputs = map(xp.concatenate, (gates, cells, tanhs, outputs))
        saved = LstmSaved(
            saved_linear, w_state, cu_seqlens, np.asarray(reverse), gates, cells, tanhs, outputs
        )
        return outputs[time.back], saved

    # h = o tanh(c),  c = f c_before + i g. Going back in time, dh is the gradient from above plus that from
    # the gates of the next step; dc is o (1 - tanh(c)^2) dh plus f dc of the next step. The
    # gradients before the activations of the gates are
    #   di = dc g i (1 - i),  df = dc c_before f (1 - f),  dg = dc i (1 - g^2),  do = dh tanh(c) o (1 - o)
    # The factors of dc and dh do not depend on them, so they are computed for all steps at once.
    # dy (T,H) -> dx (T,I)  dw_in (I,4H)  dw_state (H,4H)  dbias (4H,)
    def lstm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array, Array]:
        """Return the gradients of `lstm`, by backpropagation through time.

        Parameters
        ----------
        dy : (T,H)
            Gradient of y.
        saved : Saved
            What `lstm` kept.

        Returns
        -------
        dx : (T,I)
        dw_in : (I,4H)
        dw_state : (H,4H)
        dbias : (4H,)
        """
        time, d_gates, dw_state = self._gates_backward(dy, saved)
        dx, dw_in, dbias = self.linear_backward(d_gates, saved.linear)
        return dx[time.back], dw_in, dw_state, dbias

    # -> time, d_gates (T,4H) in time order, dw_state (H,4H)
    def _gates_backward(self, dy: Array, saved: Saved) -> tuple["_Time", Array, Array]:
        xp = self.xp
        w_state = saved.w_state
        tanhs = saved.tanhs
        H = w_state.shape[0]
        time = _time(saved.cu_seqlens, bool(saved.reverse))
        i, f, g, o = (saved.gates[:, j * H : (j + 1) * H] for j in range(4))
        slopes = [
            g * i * (1 - i),
            saved.cells * f * (1 - f),
            i * (1 - g * g),
            tanhs * o * (1 - o),
        ]
        slopes = xp.stack(slopes, axis=1)
        through = o * (1 - tanhs * tanhs)
        dy = dy[time.order]
        dh = dc = xp.zeros((0, H), dy.dtype)
        d_gates = []
        for begin, end in reversed(list(pairwise(time.borders))):
            # Going backward, sequences join at their last token, which gets no gradient from a later step.
            joining = xp.zeros((end - begin - len(dh), H), dy.dtype)
            dh = dy[begin:end] + xp.concatenate([dh, joining])
            dc = dh * through[begin:end] + xp.concatenate([dc, joining])
            d = xp.stack([dc, dc, dc, dh], axis=1) * slopes[begin:end]
            d = d.reshape(-1, 4 * H)
            dh = self._product(d, w_state.T)
            dc = dc * f[begin:end]
            d_gates.append(d)
        d_gates = xp.concatenate(d_gates[::-1])
        before = saved.outputs[time.previous]  # for all steps except the first
        dw_state = self._product(before.T, d_gates[time.borders[1] :])
        return time, d_gates, dw_state

    # x (T,I) -> (T,2W)
    def bilstm_block(
        self,
        x: Array,
        params: list[Params],
        cu_seqlens: np.ndarray,
        drop: Dropout | None,
        site: int,
    ) -> tuple[Array, Saved]:
        """Run stacked LSTMs in both directions, with dropout after each layer.

        A change of `saved`, or of the order of the layers, concerns `bilstm_block_backward` as well.

        Parameters
        ----------
        x : (T,I)
            Input of I features; an LSTM has W units in each direction.
        params : list of dict
            For each layer "left_to_right" and "right_to_left", each with `w_in`, `w_state` and `bias`.
        cu_seqlens : (S+1,)
            First row of each sequence, then T.
        drop : Dropout or None
            Source of dropout.
        site : int
            The number that keys the dropout mask after the first layer; layer k uses `site` + k. No other
            dropout of the model may have these numbers.

        Returns
        -------
        y : (T,2W)
        saved : Saved
            What the two directions and the dropout of each layer kept.
        """
        kept = []
        for number, layer in enumerate(params):
            left, saved_left = self.lstm(x, **layer["left_to_right"], cu_seqlens=cu_seqlens)
            right, saved_right = self.lstm(x, **layer["right_to_left"], cu_seqlens=cu_seqlens, reverse=True)
            y = self.xp.concatenate([left, right], axis=1)
            x, saved_drop = self._dropout(y, drop, site + number)
            kept.append(BilstmLayerSaved(saved_left, saved_right, saved_drop))
        return x, tuple(kept)

    # dy (T,2W) -> dx (T,I), grads
    def bilstm_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: list[Params],
        grads: list[Grads],
        frozen: bool = False,
    ) -> tuple[Array | None, list[Grads]]:
        """Add the gradients of `bilstm_block`; dx of each layer is the sum over both directions.

        Parameters
        ----------
        dy : (T,2W)
            Gradient of y.
        saved : Saved
            What `bilstm_block` kept.
        params : list of dict
            As for `bilstm_block`; not used here.
        grads : list of dict
            Accumulators by the same names, consumed.
        frozen : bool, default False
            Whether dx is not needed; None may then be returned instead.

        Returns
        -------
        dx : (T,I) or None
        grads : list of dict
            The accumulators with the gradients added.
        """
        finished = []
        for number, kept in reversed(list(enumerate(saved))):
            dy = self._dropout_backward(dy, kept.dropout)
            W = dy.shape[1] // 2
            unread = frozen and number == 0
            right, left = grads[number]["right_to_left"], grads[number]["left_to_right"]
            dx_right, right = self._lstm_backward(dy[:, W:], kept.right_to_left, right, unread)
            dx_left, left = self._lstm_backward(dy[:, :W], kept.left_to_right, left, unread)
            dy = None if dx_left is None else dx_left + dx_right
            finished.append({"left_to_right": left, "right_to_left": right})
        return dy, finished[::-1]

    # Where dx is not needed, the product d_gates w_in^T is skipped: it is a sixth to a quarter of what
    # forward and backward compute in this layer. An engine with another layout of rows computes it, and its
    # compiler drops it.
    def _lstm_backward(
        self,
        dy: Array,
        saved: Saved,
        grads: Grads,
        unread: bool,
    ) -> tuple[Array | None, Grads]:
        if unread and isinstance(saved, LstmSaved):
            _, d_gates, dw_state = self._gates_backward(dy, saved)
            dx = None
            dw_in = self._product(saved.linear.x.T, d_gates)
            dbias = d_gates.sum(0)
        else:
            dx, dw_in, dw_state, dbias = self.lstm_backward(dy, saved)
        return dx, self.add_gradients(grads, w_in=dw_in, w_state=dw_state, bias=dbias)

    # layers (N,T,H)  weights (N,) -> (T,H)
    def layer_mix(self, layers: Array, weights: Array) -> tuple[Array, Saved]:
        """Sum layers with weights softmax(weights) (Peters et al. 2018; the paper's Table 7).

        Parameters
        ----------
        layers : (N,T,H)
            The layers to mix.
        weights : (N,)
            Learnt weights, before the softmax.

        Returns
        -------
        y : (T,H)
        saved : Saved
            The layers, and their shares.
        """
        exponentials = self.xp.exp(weights - weights.real.max())
        shares = exponentials / exponentials.sum()
        return self.xp.tensordot(shares, layers, 1), LayerMixSaved(layers, shares)

    # dy (T,H) -> dlayers (N,T,H)  dweights (N,)
    def layer_mix_backward(self, dy: Array, saved: Saved, frozen: bool = False) -> tuple[Array, Array]:
        """Return the gradients of `layer_mix`: through the sum, and through the softmax of the weights.

        Parameters
        ----------
        dy : (T,H)
            Gradient of y.
        saved : Saved
            What `layer_mix` kept.
        frozen : bool, default False
            Whether dlayers is not needed; None is then returned instead.

        Returns
        -------
        dlayers : (N,T,H) or None
        dweights : (N,)
        """
        shares = saved.shares
        dshares = (saved.layers * dy).sum((1, 2))
        dweights = shares * (dshares - (dshares * shares).sum())
        dlayers = None if frozen else shares[:, None, None] * dy
        return dlayers, dweights


class _Time(NamedTuple):
    """The rows of a batch in time order."""

    order: np.ndarray  # (T,) rows of the batch, in time order
    back: np.ndarray  # (T,) index in time order of each row of the batch
    borders: list[int]  # index at which each time step begins, then T
    previous: np.ndarray  # (T-S,) for rows after the first step: index of the same sequence a step before


def _time(cu_seqlens: np.ndarray, reverse: bool) -> _Time:
    """Sort rows by time step, and within a step by the length of their sequence, the longest first."""
    lengths = np.diff(cu_seqlens)
    longest_first = np.argsort(-lengths, kind="stable")
    running = (lengths > np.arange(lengths.max())[:, None]).sum(1)  # sequences at each step
    borders = np.concatenate([[0], np.cumsum(running)])
    step = np.repeat(np.arange(len(running)), running)
    place = np.arange(len(step)) - borders[step]  # index within its step
    sequence = longest_first[place]
    if reverse:
        order = cu_seqlens[1:][sequence] - 1 - step
    else:
        order = cu_seqlens[sequence] + step
    later = step > 0
    previous = borders[step[later] - 1] + place[later]
    return _Time(order, np.argsort(order), borders.tolist(), previous)
