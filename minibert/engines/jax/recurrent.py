"""LSTMs over rows, for the JAX engine: one column after another, each for all rows at once.

In the order of time, too, a row is its tokens followed by padding: if it is read from its end, its last token
comes first, and padding still comes last. So in the forward pass nothing flows from padding to tokens; in the
backward pass, gradients at padding are dropped.
"""

from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Array, Saved
from minibert.engines.jax.rows import Borders
from minibert.model.ops import Ops

JaxLstmSaved = namedtuple("JaxLstmSaved", "linear w_state cu_seqlens reverse gates cells tanhs outputs")


class RecurrentOverRows(Ops):
    """The LSTM of the reference, for batches in padded rows, whose `cu_seqlens` are `Borders`."""

    # x (R n,I)  w_in (I,4H)  w_state (H,4H)  bias (4H,) -> (R n,H)
    def lstm(
        self,
        x: Array,
        w_in: Array,
        w_state: Array,
        bias: Array,
        cu_seqlens: Any,
        reverse: bool = False,
    ) -> tuple[Array, Saved]:
        """Run one direction of an LSTM, as `Recurrent.lstm` does; over rows if the batch is in rows.

        Parameters
        ----------
        x : (R n,I) array
            Inputs.
        w_in : (I,4H) array
            Weights of the input, gates in the order input, forget, candidate, output.
        w_state : (H,4H) array
            Weights of the previous output.
        bias : (4H,) array
            The bias of the gates, one for input and previous output together.
        cu_seqlens : Borders or (S+1,) integers
            Where sequences begin. Given plain integers, this falls back to the reference.
        reverse : bool, default False
            Whether sequences are read from their end.

        Returns
        -------
        tuple of (R n,H) array and JaxLstmSaved
            Outputs, 0 at padding; gates, cells and outputs in the order of time.
        """
        if not isinstance(cu_seqlens, Borders):
            return super().lstm(x, w_in, w_state, bias, cu_seqlens, reverse)
        H = w_state.shape[0]
        from_input, saved_linear = self.linear(x, w_in, bias)
        # sigmoid(x) = (1 + tanh(x / 2)) / 2, as in the reference
        scale = self.cast(np.repeat([0.5, 0.5, 1.0, 0.5], H), from_input.dtype)

        # before: h c (R,H), column (R,4H)
        def step(before: tuple[Array, Array], column: Any) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
            h, c = before
            total = column + self._product(h, w_state)
            gate = scale * jnp.tanh(scale * total) + (1 - scale)
            i, f, g, o = jnp.split(gate, 4, axis=1)
            after = f * c + i * g
            tanh_c = jnp.tanh(after)
            h = o * tanh_c
            return (h, after), (gate, c, tanh_c, h)

        columns = _in_time(from_input, cu_seqlens, reverse)
        nothing = jnp.zeros((columns.shape[1], H), columns.dtype)
        _, kept = jax.lax.scan(step, (nothing, nothing), columns)
        outputs = kept[-1]
        real_outputs = jnp.where(_real(cu_seqlens), outputs, 0)
        y = _in_rows(real_outputs, cu_seqlens, reverse)
        return y, JaxLstmSaved(saved_linear, w_state, cu_seqlens, np.asarray(reverse), *kept)

    # dy (R n,H) -> dx (R n,I)  dw_in (I,4H)  dw_state (H,4H)  dbias (4H,)
    def lstm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array, Array]:
        """Return the gradients of `lstm`, by backpropagation through time.

        Parameters
        ----------
        dy : (R n,H) array
            Gradient of the outputs; ignored at padding.
        saved : JaxLstmSaved or LstmSaved
            What `lstm` kept.

        Returns
        -------
        tuple of four arrays
            Gradients of x (R n,I), w_in (I,4H), w_state (H,4H) and bias (4H,).
        """
        if not isinstance(saved, JaxLstmSaved):
            return super().lstm_backward(dy, saved)
        w_state, cu_seqlens = saved.w_state, saved.cu_seqlens
        cells, tanhs = saved.cells, saved.tanhs
        reverse = bool(saved.reverse)
        H = w_state.shape[0]
        i, f, g, o = jnp.split(saved.gates, 4, axis=2)
        slope_i = g * i * (1 - i)
        slope_f = cells * f * (1 - f)
        slope_g = i * (1 - g * g)
        slope_o = tanhs * o * (1 - o)
        slopes = jnp.stack([slope_i, slope_f, slope_g, slope_o], axis=2)
        through = o * (1 - tanhs * tanhs)
        real = _real(cu_seqlens)
        dy = jnp.where(real, _in_time(dy, cu_seqlens, reverse), 0)

        # later: dh dc (R,H)
        def step(later: tuple[Array, Array], column: tuple[Any, ...]) -> tuple[tuple[Array, Array], Any]:
            dh, dc = later
            dy, slopes, through, f = column
            dh = dy + dh
            dc = dh * through + dc
            d = jnp.stack([dc, dc, dc, dh], axis=1) * slopes
            d = d.reshape(-1, 4 * H)
            dh = self._product(d, w_state.T)
            return (dh, dc * f), d

        nothing = jnp.zeros(dy.shape[1:], dy.dtype)
        columns = (dy, slopes, through, f)
        _, d_gates = jax.lax.scan(step, (nothing, nothing), columns, reverse=True)
        before, after = (steps.reshape(-1, steps.shape[-1]) for steps in (saved.outputs[:-1], d_gates[1:]))
        dw_state = self._product(before.T, after)
        d_gates = _in_rows(d_gates, cu_seqlens, reverse)
        dx, dw_in, dbias = self.linear_backward(d_gates, saved.linear)
        return dx, dw_in, dw_state, dbias


# x (R n,K) -> (n,R,K)
def _in_time(x: Array, borders: Borders, reverse: bool) -> Array:
    """Put columns in the order in which they are read; in reverse, a row begins with its last token."""
    rows = x.reshape(len(borders.lengths), len(borders.columns), -1)
    if reverse:
        rows = _reversed(rows, borders)
    return rows.swapaxes(0, 1)


# x (n,R,K) -> (R n,K)
def _in_rows(x: Array, borders: Borders, reverse: bool) -> Array:
    """Undo `_in_time`."""
    rows = x.swapaxes(0, 1)
    if reverse:
        rows = _reversed(rows, borders)
    return rows.reshape(-1, x.shape[-1])


# rows (R,n,K) -> (R,n,K)
def _reversed(rows: Array, borders: Borders) -> Array:
    """Reverse the tokens of each row and leave its padding in place; this is its own inverse."""
    at = borders.columns
    lengths = borders.lengths[:, None]
    order = jnp.where(at < lengths, lengths - 1 - at, at)
    return jnp.take_along_axis(rows, order[..., None], axis=1)


# -> (n,R,1)
def _real(borders: Borders) -> Array:
    """Mark where there are tokens, in either order of time."""
    return (borders.columns[:, None] < borders.lengths)[..., None]
