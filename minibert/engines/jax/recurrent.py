"""LSTMs over rows, for the JAX engine: a column of all rows at once, one column after another.

In time, too, a row is its tokens and then its pads: read from its end, its last token comes first and the
pads stay behind. So nothing flows from pads to tokens going forward; going back, what comes in at pads is put
aside.
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
    """The LSTM of the reference where `cu_seqlens` are the borders of rows."""

    # x (R n,I)  w_in (I,4H)  w_state (H,4H)  bias (4H,) -> (R n,H)
    def lstm(
        self, x: Array, w_in: Array, w_state: Array, bias: Array, cu_seqlens: Any, reverse: bool = False
    ) -> tuple[Array, Saved]:
        """Run one direction of an LSTM, over rows if the batch was laid out so; 0 at pads."""
        if not isinstance(cu_seqlens, Borders):
            return super().lstm(x, w_in, w_state, bias, cu_seqlens, reverse)
        H = w_state.shape[0]
        from_input, saved_linear = self.linear(x, w_in, bias)
        # sigmoid(x) = (1 + tanh(x / 2)) / 2, as in the reference
        scale = self.cast(np.repeat([0.5, 0.5, 1.0, 0.5], H), from_input.dtype)

        # before: h c (R,H), column (R,4H)
        def one(before: tuple[Array, Array], column: Any) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
            h, c = before
            gate = scale * jnp.tanh(scale * (column + self._product(h, w_state))) + (1 - scale)
            i, f, g, o = jnp.split(gate, 4, axis=1)
            after = f * c + i * g
            tanh_c = jnp.tanh(after)
            h = o * tanh_c
            return (h, after), (gate, c, tanh_c, h)

        columns = _in_time(from_input, cu_seqlens, reverse)
        nothing = jnp.zeros((columns.shape[1], H), columns.dtype)
        _, kept = jax.lax.scan(one, (nothing, nothing), columns)
        y = _in_rows(jnp.where(_real(cu_seqlens), kept[-1], 0), cu_seqlens, reverse)
        return y, JaxLstmSaved(saved_linear, w_state, cu_seqlens, np.asarray(reverse), *kept)

    # dy (R n,H) -> dx (R n,I)  dw_in (I,4H)  dw_state (H,4H)  dbias (4H,)
    def lstm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array, Array]:
        if not isinstance(saved, JaxLstmSaved):
            return super().lstm_backward(dy, saved)
        w_state, cu_seqlens, tanhs = saved.w_state, saved.cu_seqlens, saved.tanhs
        reverse, H = bool(saved.reverse), w_state.shape[0]
        i, f, g, o = jnp.split(saved.gates, 4, axis=2)
        slopes = [g * i * (1 - i), saved.cells * f * (1 - f), i * (1 - g * g), tanhs * o * (1 - o)]
        slopes = jnp.stack(slopes, axis=2)
        through = o * (1 - tanhs * tanhs)
        dy = jnp.where(_real(cu_seqlens), _in_time(dy, cu_seqlens, reverse), 0)

        # later: dh dc (R,H)
        def one(later: tuple[Array, Array], column: tuple[Any, ...]) -> tuple[tuple[Array, Array], Any]:
            (dh, dc), (dy, slopes, through, f) = later, column
            dh = dy + dh
            dc = dh * through + dc
            d = (jnp.stack([dc, dc, dc, dh], axis=1) * slopes).reshape(-1, 4 * H)
            return (self._product(d, w_state.T), dc * f), d

        nothing = jnp.zeros(dy.shape[1:], dy.dtype)
        _, d_gates = jax.lax.scan(one, (nothing, nothing), (dy, slopes, through, f), reverse=True)
        before, after = (kept.reshape(-1, kept.shape[-1]) for kept in (saved.outputs[:-1], d_gates[1:]))
        dw_state = self._product(before.T, after)
        dx, dw_in, dbias = self.linear_backward(_in_rows(d_gates, cu_seqlens, reverse), saved.linear)
        return dx, dw_in, dw_state, dbias


# x (R n,K) -> (n,R,K)
def _in_time(x: Array, borders: Borders, reverse: bool) -> Array:
    """Lay columns out in the order in which they are read; from its end, a row begins with its last token."""
    rows = x.reshape(len(borders.lengths), len(borders.columns), -1)
    return (_reversed(rows, borders) if reverse else rows).swapaxes(0, 1)


# x (n,R,K) -> (R n,K)
def _in_rows(x: Array, borders: Borders, reverse: bool) -> Array:
    """Undo `_in_time`."""
    rows = x.swapaxes(0, 1)
    return (_reversed(rows, borders) if reverse else rows).reshape(-1, x.shape[-1])


# rows (R,n,K) -> (R,n,K)
def _reversed(rows: Array, borders: Borders) -> Array:
    """Reverse the tokens of each row and leave its pads where they are; its own inverse."""
    at, lengths = borders.columns, borders.lengths[:, None]
    return jnp.take_along_axis(rows, jnp.where(at < lengths, lengths - 1 - at, at)[..., None], axis=1)


# -> (n,R,1)
def _real(borders: Borders) -> Array:
    """Tell where there are tokens, in either order of time."""
    return (borders.columns[:, None] < borders.lengths)[..., None]
