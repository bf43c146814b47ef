"""Update parameters from their gradients, over flat buffers."""

import math
from typing import NamedTuple

import numpy as np

from minibert.core.arrays import Array
from minibert.core.ops.primitives import Primitives

CHUNK = 1 << 16  # elements handled at a time, so that the temporaries stay in cache


class AdamRule(NamedTuple):
    """The hyperparameters of one step of Adam.

    The defaults are the paper's (appendix A.2), with the eps of its released code and the bias correction of
    Kingma and Ba.

    Attributes
    ----------
    lr : learning rate of this step.
    step : index of this step, from 1.
    beta1 : share of the first moment that is kept.
    beta2 : share of the second moment that is kept.
    eps : added outside the square root.
    weight_decay : decoupled: share of the parameter added to its update, before the rate.
    bias_correction : whether the moments are divided by 1 - beta^step, which BERT's released code does not.
    clip : factor of the gradients, applied first; 1 where their norm is within the limit.
    """

    lr: float
    step: int
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    clip: float = 1.0

    @property
    def corrections(self) -> tuple[float, float]:
        """Return the factors that correct m and v for starting at zero (Kingma & Ba 2015, Algorithm 1)."""
        if not self.bias_correction:
            return 1.0, 1.0
        return 1 / (1 - self.beta1**self.step), 1 / (1 - self.beta2**self.step)


class Updates(Primitives):
    """Optimizer arithmetic. Parameters and moments are consumed and returned: NumPy updates them in place.

    Gradients are consumed, too. Between an update and the next `zero` they belong to the engine, which may
    already have cleared them: neither read them nor add to them.
    """

    # grads (N,)
    def zero(self, grads: Array) -> None:
        """Set accumulators to zero in place, unless the update that consumed them already has.

        Parameters
        ----------
        grads : (N,) the accumulators.
        """
        grads.fill(0)

    # grads (N,) -> scalar
    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together.

        Parameters
        ----------
        grads : (N,) all gradients.

        Returns
        -------
        norm : scalar; the squares are summed in float64.
        """
        squares = (float(self._squares(grads[s])) for s in chunks(0, len(grads)))
        return math.sqrt(math.fsum(squares))

    # -> scalar
    def clip_factor(self, norm: Array, clip_norm: float) -> Array:
        """Return the factor that scales a gradient of norm `norm` down to at most `clip_norm`.

        This is clipping by the global norm (Pascanu et al. 2013); BERT's released code clips at 1.

        Parameters
        ----------
        norm : norm of the gradient.
        clip_norm : the largest norm allowed. 0: no limit.

        Returns
        -------
        factor : scalar, at most 1.
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
        m, v : (N,) first and second moments.
        decayed : (K,2) int64, the ranges [begin, end) that have weight decay, in order.
        rule : the hyperparameters of this step.

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

    # With Adam's direction r = m^ / (sqrt(v^) + eps), a tensor x moves along u = r + weight_decay x:
    #   x <- x - lr |x| / |u| u,
    # so lr is the size of the step relative to the norm of x, however large the gradient is.
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

        The authors' code excludes LayerNorm and biases from both weight decay and the scaling by norms, and
        so does this: a tensor without weight decay takes Adam's step. Other implementations scale every
        tensor; to reproduce them, let every tensor decay. Algorithm 2 includes bias correction.

        Parameters
        ----------
        params, grads : (N,) parameters and their gradients.
        m, v : (N,) first and second moments.
        tensors : (K,3) int64, a row [begin, end, decays] for each tensor in the buffers, in order.
        rule : the hyperparameters of this step.

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
            for s in chunks(begin, end):  # recomputed: to keep it would take the memory of a second embedding
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
        """Take one step of Muon on the matrices of the layers (Jordan et al. 2024), of AdamW on the rest.

        Parameters
        ----------
        params, grads : (N,) parameters and their gradients.
        m, v : (N,) moments. For a matrix that Muon updates, m is the momentum and v does not change.
        tensors : (K,5) int64, a row [begin, end, decays, rows, matrices] for each tensor in the buffers.
            `matrices` is how many matrices of `rows` rows it has side by side, or 0 where AdamW updates it.
        rule : the hyperparameters of this step.

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

    # A matrix with mean gradient U S V^T moves along U V^T, equally far in all directions, however rare.
    # The factor sqrt(max(M,N)) gives entries of size 1, as in Adam's first step, so one rate suits both.
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
        ahead = rule.beta1 * m + fresh  # Nesterov momentum
        ahead = ahead.reshape(rows, matrices, -1)
        scale = math.sqrt(max(rows, ahead.shape[2]))
        directions = [scale * self._orthogonal(ahead[:, i]) for i in range(matrices)]
        return self.xp.stack(directions, 1).reshape(grads.shape), m

    # X <- (a + b X X^T + c (X X^T)^2) X  maps every singular value s to a s + b s^3 + c s^5 and leaves the
    # singular vectors unchanged; five iterations bring all s above 0.002 to between 0.68 and 1.21.
    # x (M,N) -> (M,N)
    def _orthogonal(self, x: Array) -> Array:
        """Bring the singular values of a matrix near 1, by Newton-Schulz steps with Jordan's a, b and c."""
        wide = x if x.shape[0] <= x.shape[1] else x.T
        wide = wide / self.xp.maximum(self.xp.sqrt((wide * wide).sum()), 1e-7)
        for _ in range(5):
            square = self._product(wide, wide.T)
            change = -4.775 * square + 2.0315 * self._product(square, square)
            wide = 3.4445 * wide + self._product(change, wide)
        return wide if wide.shape == x.shape else wide.T

    # x (n,) -> scalar
    def _squares(self, x: Array) -> Array:
        """Sum squares in double precision; not by BLAS, whose rounding may depend on the address of x."""
        x = self.cast(x, np.float64)
        return (x * x).sum()

    # length update_length (...) -> (...)
    def _trust_ratio(self, length: Array, update_length: Array) -> Array:
        """Return the factor that scales an update of LAMB to the norm of the parameters; 1 if either is 0."""
        both = (length > 0) & (update_length > 0)
        return self.xp.where(both, length / self.xp.where(both, update_length, 1), 1)


def chunks(begin: int, end: int) -> list[slice]:
    """Cut the range [begin, end) into slices of `CHUNK` elements; the last may be shorter.

    Parameters
    ----------
    begin, end : indices in the buffer.
    """
    return [slice(low, min(low + CHUNK, end)) for low in range(begin, end, CHUNK)]


def spans(decayed: np.ndarray, count: int) -> list[tuple[int, int, bool]]:
    """Divide the whole buffer into ranges (begin, end, decays), given those that decay.

    Parameters
    ----------
    decayed : (K,2) the ranges that decay, in order, without overlap.
    count : elements of the buffer.

    Returns
    -------
    list of (begin, end, decays), in order, none of them empty.
    """
    result = []
    last = 0  # end of the previous range
    for begin, end in decayed.tolist():
        result.append((last, begin, False))
        result.append((begin, end, True))
        last = end
    result.append((last, count, False))
    return [span for span in result if span[1] > span[0]]
