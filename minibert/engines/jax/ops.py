"""The engine on JAX: the reference itself over `jax.numpy`, compiled whole, for accelerators.

What differs from the reference is what has to: attention and LSTMs over rows, additions to rows of a table,
the precision of matrix products, and updates that write to no array. How a batch gets its
static shape, what is compiled and where parameters lie is in `runtime.py` and `training.py`.
"""

import math
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops import AdamRule, random
from minibert.core.ops.primitives import LayerNormSaved, LinearSaved
from minibert.engines.jax import attention as jax_attention
from minibert.engines.jax.flash import HIDDEN, Plan
from minibert.engines.jax.fsdp import DATA
from minibert.engines.jax.recurrent import RecurrentOverRows
from minibert.engines.jax.rows import Borders
from minibert.engines.jax.runtime import JaxRuntime, Kept
from minibert.engines.jax.training import JaxSteps, LayersOnDevices

# What is kept where it is not what the reference keeps. Of attention: the queries in the order of tokens, and
# what `attention.forward` keeps with its plan; of segments: what a softmax over each row keeps.
JaxGeluSaved = namedtuple("JaxGeluSaved", "x")
JaxLayerNormSaved = namedtuple("JaxLayerNormSaved", "x mean rstd gamma")
JaxAttentionSaved = namedtuple("JaxAttentionSaved", "q kept")
JaxSegmentsSaved = namedtuple("JaxSegmentsSaved", "rows")

# Of what the entries that logits are computed for are a multiple: a GPU takes twice as long for products of
# which a side is none of 8, and its best kernels want 128. Elsewhere than on a CPU it is 128.
MULTIPLES = {"cpu": 1}
CHUNK = 4096  # squares that are added up directly: one long sum in float32 loses digits


class JaxOps(LayersOnDevices, RecurrentOverRows):
    """Every operation of the reference, for XLA to compile; shapes are those of `minibert.core.ops`.

    Arguments are those of `registry.create`, `shard` being its `fsdp`. With bfloat16, activations and their
    gradients are kept so between sublayers; sums, statistics, losses and weights are float32. To `recompute`
    takes less memory for a third more arithmetic; `shard` does so in any case.
    """

    name = "jax"

    def __init__(
        self, dtype: str = "float32", devices: int | None = None, shard: bool = False, recompute: bool = False
    ) -> None:
        if dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        super().__init__(JaxRuntime(devices, shard, JaxSteps), recompute)
        self._narrow = jnp.bfloat16 if dtype == "bfloat16" else None

    @property
    def _details(self) -> str:
        kind, mesh = self.runtime.device.device_kind, self.runtime.mesh
        return f"on {kind}" if mesh is None else f"on {mesh.size} devices, {kind}"

    # The table of words is made longer for the logits, by entries that are never the word.

    def masked_lm_head(
        self, x: Array, rows: Array, labels: Array, params: Params, table: Array, config: Any
    ) -> tuple[tuple[Array, Array], Saved]:
        params = params | {"output_bias": self._longer(params["output_bias"], -jnp.inf)}
        return super().masked_lm_head(x, rows, labels, params, self._longer(table), config)

    def masked_lm_head_backward(
        self, dnll: Array, saved: Saved, params: Params, grads: Grads, dtable: Array, config: Any
    ) -> tuple[Array, Grads, Array]:
        V, longer = len(dtable), grads | {"output_bias": self._longer(grads["output_bias"])}
        dtable = self._longer(dtable)
        dx, grads, dtable = super().masked_lm_head_backward(dnll, saved, params, longer, dtable, config)
        return dx, grads | {"output_bias": grads["output_bias"][:V]}, dtable[:V]

    # x (V,...) -> (V',...)
    def _longer(self, x: Array, fill: float = 0.0) -> Array:
        behind = -len(x) % MULTIPLES.get(self.runtime.device.platform, 128)
        return jnp.pad(x, ((0, behind), *[(0, 0)] * (x.ndim - 1)), constant_values=fill) if behind else x

    # Precision: rows between the embeddings and the heads are narrow, everything else is wide.

    def upcast(self, x: Array) -> Array:
        return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x

    def _narrowed(self, x: Array) -> Array:
        return x if self._narrow is None else x.astype(self._narrow)

    def _product(self, a: Array, b: Array, dtype: Any = jnp.float32) -> Array:
        """Return a @ b, added up in float32 at least; as `dtype`, where that saves memory traffic."""
        if self._narrow is None:
            return jnp.matmul(a, b, precision="highest")
        # Tensor cores add up in float32 whatever they write; a CPU adds up in what it writes.
        result = jnp.float32 if self.runtime.device.platform == "cpu" else dtype
        return jnp.matmul(self._narrowed(a), self._narrowed(b), preferred_element_type=result)

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias, as precise as x."""
        y = (self._product(x, weight, x.dtype) + bias).astype(x.dtype)
        return y, LinearSaved(self._narrowed(x), weight)

    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        dx = self._product(dy, saved.weight.T, dy.dtype).astype(dy.dtype)
        return dx, self._product(saved.x.T, dy), self.upcast(dy).sum(0)

    # The device's own erf is faster; 1 - erf(x) loses digits in the tail, where results are 0 in bfloat16.
    def _erfc(self, x: Array) -> Array:
        return super()._erfc(x) if self._narrow is None else 1 - jax.lax.erf(x)

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), in float32 at least; only x is kept."""
        y, _ = super().gelu(self.upcast(x), form)
        return y.astype(x.dtype), JaxGeluSaved(x)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        x = jax.lax.optimization_barrier(saved.x)  # else XLA keeps the wide values in between as well
        _, again = super().gelu(self.upcast(x), form)
        return super().gelu_backward(self.upcast(dy), again, form).astype(dy.dtype)

    # What is kept is x itself with what is known of its rows. From normal values XLA would go back to x all
    # the same, and add up dy x_hat over the columns by way of an array of wide numbers.
    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        wide = self.upcast(x)
        y, saved = super().layer_norm(wide, gamma, beta, eps)
        return y.astype(x.dtype), JaxLayerNormSaved(x, wide.mean(-1, keepdims=True), saved.rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        x, mean, rstd, gamma = jax.lax.optimization_barrier(saved)
        saved = LayerNormSaved((self.upcast(x) - mean) * rstd, rstd, gamma)
        dx, dgamma, dbeta = super().layer_norm_backward(self.upcast(dy), saved)
        # Two need dx, and each would compute it for itself.
        return jax.lax.optimization_barrier(dx.astype(dy.dtype)), dgamma, dbeta

    # The factor 1 / (1 - rate) is not to be rounded to 8 bits.

    def _dropout(self, x: Array, drop: random.Dropout | None, site: int) -> tuple[Array, Saved]:
        y, saved = super()._dropout(self.upcast(x), drop, site)
        return y.astype(x.dtype), saved

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        return super()._dropout_backward(self.upcast(dy), saved).astype(dy.dtype)

    def embedding_block(
        self, batch: Any, params: Params, config: Any, drop: random.Dropout | None
    ) -> tuple[Array, Saved]:
        """Return dropout(LayerNorm(word + position + segment)); from here on activations may be bfloat16."""
        y, saved = super().embedding_block(batch, params, config, drop)
        return self._narrowed(y), saved

    def embedding_block_backward(self, dy: Array, saved: Saved, params: Params, grads: Grads) -> Grads:
        return super().embedding_block_backward(self.upcast(dy), saved, params, grads)

    def _row_keys(self, batch: Any, seed: Any, step: Any) -> Array:
        words = *random.words(jnp, seed, step), batch.token_sequences, batch.positions.astype(jnp.uint32)
        words = jnp.stack([jnp.broadcast_to(word, batch.positions.shape) for word in words])
        key = jnp.broadcast_to(jnp.asarray(random.STREAMS, jnp.uint32), (*batch.positions.shape, 2))
        # A loop is what XLA does not merge with the masks: it made the key of a row anew for every element,
        # and took minutes to compile that.
        return jax.lax.scan(lambda key, word: (random.fold(jnp, key, word), None), key, words)[0]

    # Arrays that can't be written to.

    def accumulate(self, total: Array, extra: Array) -> Array:
        return total + extra

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        return total.at[ids].add(rows.astype(total.dtype))

    def global_norm(self, grads: Array | list[Array]) -> Array:
        """Return the Euclidean norm of all gradients together, in one array or in several."""
        squares = sum(map(sum_of_squares, jax.tree.leaves(grads)))
        return jnp.sqrt(squares if self.runtime.layout is None else jax.lax.psum(squares, DATA))

    def clip_factor(self, norm: Array, clip_norm: float) -> Array:
        return clip_norm / jnp.maximum(norm, clip_norm) if clip_norm > 0 else 1.0

    def adamw(
        self, params: Array, grads: Array, m: Array, v: Array, decayed: np.ndarray, rule: AdamRule
    ) -> tuple[Array, Array, Array]:
        """Take one step of Adam with decoupled weight decay, on arrays of any shape."""
        direction, m, v = _adam(grads, m, v, rule)
        layout = self.runtime.layout
        decays = _in_ranges(decayed, params.shape) if layout is None else layout.decaying()
        direction = direction + jnp.where(decays, rule.weight_decay, 0) * params
        return params - rule.lr * direction, m, v

    def lamb(
        self, params: Array, grads: Array, m: Array, v: Array, tensors: np.ndarray, rule: AdamRule
    ) -> tuple[Array, Array, Array]:
        """Take one step of LAMB. It needs tensors whole; options refuse it where they would be spread."""
        direction, m, v = _adam(grads, m, v, rule)
        x, u, changed, at = params.reshape(-1), direction.reshape(-1), [], 0
        for begin, end, decays in tensors.tolist():
            own, along = x[begin:end], u[begin:end]
            if decays:
                along = along + rule.weight_decay * own
                along = self._trust_ratio(length(own), length(along)).astype(along.dtype) * along
            changed += [x[at:begin], own - rule.lr * along]
            at = end
        return jnp.concatenate([*changed, x[at:]]).reshape(params.shape), m, v

    def muon(
        self, params: Array, grads: Array, m: Array, v: Array, tensors: np.ndarray, rule: AdamRule
    ) -> tuple[Array, Array, Array]:
        """Take one step of Muon, in one tensor; options refuse it where tensors would be spread."""
        ((begin, end, decays, rows, matrices),) = tensors.tolist()
        if not matrices:
            return self.adamw(params, grads, m, v, np.array([[begin, end]])[:decays], rule)
        direction, m = self._muon_direction(grads, m, rows, matrices, rule)
        return params - rule.lr * (direction + rule.weight_decay * params), m, v

    def attention(
        self, q: Array, k: Array, v: Array, cu_seqlens: Any, causal: bool = False,
        drop: random.Dropout | None = None, site: int = 0,
    ) -> tuple[Array, Saved]:  # fmt: skip
        """Return softmax(q k^T / sqrt(D)) v, over rows if the batch was laid out so."""
        if not isinstance(cu_seqlens, Borders):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        rate, keys = 0.0, None
        if drop is not None and drop.attention_rate:
            rate = drop.attention_rate
            keys = self._in_rows(random.fold(jnp, drop.rows, *random.words(jnp, site)), cu_seqlens)
        plan = Plan(causal, rate, jax_attention.choose(self.runtime.device.platform, q.dtype))
        queries, sources, values = (self._in_rows(one, cu_seqlens) for one in (q, k, v))
        y, saved = jax_attention.forward(plan, queries, sources, values, cu_seqlens.lengths, keys)
        return y.reshape(q.shape), JaxAttentionSaved(q, Kept(saved, plan))

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        if not isinstance(saved, JaxAttentionSaved):
            return super().attention_backward(dy, saved)
        plan, kept = saved.kept.how, saved.kept.arrays
        gradients = jax_attention.backward(plan, dy.reshape(kept.q.shape), kept)
        # The three side by side are what is multiplied next, twice: made once, and not for each product.
        T, H = len(dy), dy[0].size
        whole = jax.lax.optimization_barrier(jnp.concatenate([one.reshape(T, H) for one in gradients], 1))
        return tuple(whole[:, i * H : (i + 1) * H].reshape(dy.shape) for i in range(3))

    # x (R n,...) -> (R,n,...)
    def _in_rows(self, x: Array, borders: Borders) -> Array:
        return x.reshape(len(borders.lengths), len(borders.columns), *x.shape[1:])

    # scores (T,)  labels (S,) -> (S,)
    def segment_softmax_cross_entropy(
        self, scores: Array, cu_seqlens: Any, labels: Array
    ) -> tuple[Array, Saved]:
        if not isinstance(cu_seqlens, Borders):
            return super().segment_softmax_cross_entropy(scores, cu_seqlens, labels)
        real = cu_seqlens.columns < cu_seqlens.lengths[:, None]
        scores = jnp.where(real, self._in_rows(scores, cu_seqlens), HIDDEN)
        nll, saved = self.softmax_cross_entropy(scores, labels)
        return nll, JaxSegmentsSaved(saved)

    def segment_softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        if not isinstance(saved, JaxSegmentsSaved):
            return super().segment_softmax_cross_entropy_backward(dnll, saved)
        return self.softmax_cross_entropy_backward(dnll, saved.rows).reshape(-1)


# ranges (K,2) -> shape, or a scalar
def _in_ranges(ranges: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Tell which elements of an array are in ranges, counted row by row; one answer where all are alike."""
    inside = np.zeros(math.prod(shape), bool)
    for begin, end in ranges.tolist():
        inside[begin:end] = True
    return inside.all() if inside.all() == inside.any() else inside.reshape(shape)


# grads m v (...) -> direction m v (...)
def _adam(grads: Array, m: Array, v: Array, rule: AdamRule) -> tuple[Array, Array, Array]:
    """Return Adam's direction and the new moments."""
    grads, betas = grads * rule.clip, (rule.beta1, rule.beta2)
    # 1 - beta^t without cancellation: t is traced, so this is done in the precision of the parameters.
    count = jnp.asarray(rule.step, m.dtype)
    logarithms = [math.log(beta) if beta else -math.inf for beta in betas]
    own = [-jnp.expm1(count * one) if rule.bias_correction else 1.0 for one in logarithms]
    m = betas[0] * m + (1 - betas[0]) * grads
    v = betas[1] * v + (1 - betas[1]) * (grads * grads)
    return (m / own[0]) / (jnp.sqrt(v / own[1]) + rule.eps), m, v


# x (...) -> scalar
def length(x: Array) -> Array:
    """Return the Euclidean norm; no square leaves the range of float32."""
    largest = jnp.abs(x).max(initial=0)
    return largest * jnp.sqrt(sum_of_squares(x / jnp.where(largest > 0, largest, 1)))


# x (...) -> scalar
def sum_of_squares(x: Array) -> Array:
    """Sum the squares, as sums of the sums of rows."""
    sums = jnp.square(x)
    if x.ndim > 1:
        sums = sums.sum(-1).reshape(-1)
    whole = len(sums) // CHUNK * CHUNK
    return sums[:whole].reshape(-1, CHUNK).sum(1).sum() + sums[whole:].sum()
