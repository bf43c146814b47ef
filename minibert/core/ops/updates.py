"""Update parameters from their gradients, over flat buffers."""

import math
from typing import NamedTuple

import numpy as np

from minibert.core.arrays import Array
from minibert.core.ops.primitives import Primitives

CHUNK = 1 << 16  # elements handled at a time, so that the temporaries stay in cache


class AdamRule(NamedTuple):
    """The numbers of one step of Adam.

    Defaults: the paper's (appendix A.2), eps of its released code, Kingma and Ba's bias correction.
    """

    lr: float  # learning rate of this step
    step: int  # its number, from 1
    beta1: float = 0.9  # share of the first moment that is kept
    beta2: float = 0.999  # and of the second
    eps: float = 1e-6  # added outside the square root
    weight_decay: float = 0.01  # share of the parameters that would be subtracted at a learning rate of 1
    bias_correction: bool = True  # False gives the Adam of BERT's released code
    clip: float = 1.0  # factor of the gradients, applied first; 1 where their norm is within the limit

    @property
    def corrections(self) -> tuple[float, float]:
        """Return what corrects m and v for their start at zero (Kingma & Ba 2015, Algorithm 1)."""
        if not self.bias_correction:
            return 1.0, 1.0
        return 1 / (1 - self.beta1**self.step), 1 / (1 - self.beta2**self.step)


class Updates(Primitives):
    """Optimizer arithmetic. Parameters and moments are consumed and returned: in place for NumPy.

    Gradients are consumed, too: from an update to the next `zero` they belong to the engine, which may have
    cleared them early. Neither read them then nor add to them.
    """

    # grads (N,)
    def zero(self, grads: Array) -> None:
        """Set accumulators to zero, unless the update that consumed them has done so.

        Parameters
        ----------
        grads : (N,) the accumulators, in place.
        """
        grads.fill(0)

    # grads (N,) -> scalar
    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together.

        Parameters
        ----------
        grads : (N,).
        """
        squares = (float(self._squares(grads[s])) for s in chunks(0, len(grads)))
        return math.sqrt(math.fsum(squares))

    # -> scalar
    def clip_factor(self, norm: Array, clip_norm: float) -> Array:
        """Return what makes a gradient of length `norm` at most `clip_norm` long (0: no limit).

        Parameters
        ----------
        norm : length of the gradient.
        clip_norm : the largest length allowed. 0: no limit.
        """
        return clip_norm / norm if 0 < clip_norm < norm else 1.0

    # params grads m v (N,)  decayed (K,2) -> params m v (N,)
    def adamw(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        decayed: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of Adam (Kingma & Ba 2015) with decoupled weight decay (Loshchilov & Hutter 2019).

        Parameters
        ----------
        params, grads : (N,) parameters and their gradients.
        m, v : (N,) first and second moment.
        decayed : (K,2) int64, the ranges [begin, end) that have weight decay, in order.
        rule : the numbers of this step.

        Returns
        -------
        params, m, v : (N,).
        """
        m_scale, v_scale = rule.corrections
        for begin, end, decays in spans(decayed, len(params)):
            for s in chunks(begin, end):
                g = grads[s] * rule.clip
                m[s] = rule.beta1 * m[s] + (1 - rule.beta1) * g
                v[s] = rule.beta2 * v[s] + (1 - rule.beta2) * (g * g)
                direction = m_scale * m[s] / (np.sqrt(v_scale * v[s]) + rule.eps)
                if decays:
                    direction += rule.weight_decay * params[s]
                params[s] -= rule.lr * direction
        return params, m, v

    # With r = m^ / (sqrt(v^) + eps), Adam's direction, a tensor x goes along u = r + weight_decay x by
    #   x <- x - lr |x| / |u| u,
    # so that lr is the share of its own length by which it moves, however long its gradient is.
    # params grads m v (N,)  tensors (K,3) -> params m v (N,)
    def lamb(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        tensors: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of LAMB, Adam for large batches (You et al. 2020, Algorithm 2, phi the identity).

        The authors' code leaves LayerNorm and biases out of weight decay and of the scaling by lengths, both.
        So does this: what does not decay takes Adam's step. Other implementations scale every tensor, which
        is what comes out where every tensor decays. Algorithm 2 includes bias correction.

        Parameters
        ----------
        params, grads : (N,) parameters and their gradients.
        m, v : (N,) first and second moment.
        tensors : (K,3) int64, a row [begin, end, decays] for each tensor in the buffers, in order.
        rule : the numbers of this step.

        Returns
        -------
        params, m, v : (N,).
        """
        m_scale, v_scale = rule.corrections

        def update(s: slice, decays: int) -> Array:
            direction = m_scale * m[s] / (np.sqrt(v_scale * v[s]) + rule.eps)
            return direction + rule.weight_decay * params[s] if decays else direction

        for begin, end, decays in tensors.tolist():
            length = update_length = 0.0
            for s in chunks(begin, end):
                g = grads[s] * rule.clip
                m[s] = rule.beta1 * m[s] + (1 - rule.beta1) * g
                v[s] = rule.beta2 * v[s] + (1 - rule.beta2) * (g * g)
                if decays:
                    length = length + self._squares(params[s])
                    update_length = update_length + self._squares(update(s, decays))
            trust = self._trust_ratio(np.sqrt(length), np.sqrt(update_length)) if decays else 1.0
            rate = rule.lr * trust
            for s in chunks(begin, end):  # computed anew: all of an embedding's would be a second embedding
                params[s] -= self.cast(rate, params.dtype) * update(s, decays)
        return params, m, v

    # params grads m v (N,)  tensors (K,5) -> params m v (N,)
    def muon(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        tensors: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of Muon, in the matrices of the layers (Jordan et al. 2024), and elsewhere of AdamW.

        Parameters
        ----------
        params, grads : (N,) parameters and their gradients.
        m, v : (N,) moments. Of a matrix of Muon's m is the momentum, and v is left alone.
        tensors : (K,5) int64, a row [begin, end, decays, rows, matrices] for each tensor in the buffers: its
            rows, and how many matrices lie side by side in it, 0 where AdamW updates it.
        rule : the numbers of this step.

        Returns
        -------
        params, m, v : (N,).
        """
        for begin, end, decays, rows, matrices in tensors.tolist():
            s = slice(begin, end)
            if matrices:
                direction, m[s] = self._muon_direction(grads[s], m[s], rows, matrices, rule)
                params[s] -= rule.lr * (direction + rule.weight_decay * params[s])
            else:
                decayed = np.array([[0, end - begin]])[:decays]  # the whole tensor, or no range
                self.adamw(params[s], grads[s], m[s], v[s], decayed, rule)
        return params, m, v

    # A matrix whose mean gradient is U S V^T goes along U V^T, all directions alike, however rare they are.
    # sqrt(max(M,N)) gives it numbers of size 1, as Adam's first step has, so that one rate suits both.
    # grads m (N,) -> direction m (N,)
    def _muon_direction(
        self,
        grads: Array,
        m: Array,
        rows: int,
        matrices: int,
        rule: AdamRule,
    ) -> tuple[Array, Array]:
        """Return Muon's direction and the new momentum."""
        fresh = (1 - rule.beta1) * rule.clip * grads
        m = rule.beta1 * m + fresh
        ahead = rule.beta1 * m + fresh  # Nesterov's
        ahead = ahead.reshape(rows, matrices, -1)
        scale = math.sqrt(max(rows, ahead.shape[2]))
        directions = [scale * self._orthogonal(ahead[:, i]) for i in range(matrices)]
        return self.xp.stack(directions, 1).reshape(grads.shape), m

    # X <- (a + b X X^T + c (X X^T)^2) X  makes a s + b s^3 + c s^5 of every singular value s and leaves the
    # singular vectors as they are; five times over that brings all above 0.002 to between 0.68 and 1.21.
    # x (M,N) -> (M,N)
    def _orthogonal(self, x: Array) -> Array:
        """Bring the singular values of a matrix near 1, by Newton-Schulz iterations with Jordan's numbers."""
        wide = x if x.shape[0] <= x.shape[1] else x.T
        wide = wide / self.xp.maximum(self.xp.sqrt((wide * wide).sum()), 1e-7)
        for _ in range(5):
            square = self._product(wide, wide.T)
            change = -4.775 * square + 2.0315 * self._product(square, square)
            wide = 3.4445 * wide + self._product(change, wide)
        return wide if wide.shape == x.shape else wide.T

    # x (n,) -> scalar
    def _squares(self, x: Array) -> Array:
        """Sum squares in double precision: not by BLAS, whose bits may depend on where in memory x lies."""
        x = self.cast(x, np.float64)
        return (x * x).sum()

    # length update_length (...) -> (...)
    def _trust_ratio(self, length: Array, update_length: Array) -> Array:
        """Scale an update of LAMB to the length of the parameters; 1 where either of the lengths is 0."""
        both = (length > 0) & (update_length > 0)
        return self.xp.where(both, length / self.xp.where(both, update_length, 1), 1)


def chunks(begin: int, end: int) -> list[slice]:
    """Cut the range [begin, end) into slices of `CHUNK` elements, the last of them shorter.

    Parameters
    ----------
    begin, end : places in the buffer.
    """
    return [slice(low, min(low + CHUNK, end)) for low in range(begin, end, CHUNK)]


def spans(decayed: np.ndarray, count: int) -> list[tuple[int, int, bool]]:
    """List (begin, end, decays) of the whole buffer, in order, from the ranges that decay.

    Parameters
    ----------
    decayed : (K,2) the ranges that decay, in order, without overlap.
    count : elements of the buffer.

    Returns
    -------
    list of (begin, end, decays), none of them empty.
    """
    result = []
    last = 0  # where the range before ended
    for begin, end in decayed.tolist():
        result.append((last, begin, False))
        result.append((begin, end, True))
        last = end
    result.append((last, count, False))
    return [span for span in result if span[1] > span[0]]
