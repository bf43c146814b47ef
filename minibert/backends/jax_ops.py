"""The engine on JAX: the reference itself over `jax.numpy`, compiled whole, for accelerators.

What differs from the reference is what has to: attention and LSTMs over rows, additions to rows of a table,
the precision of matrix products, and updates that write to no array. Everything else here are the hooks: how
a batch gets its static shape, what is compiled, and where parameters lie.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert.backends import jax_attention, jax_errors, jax_rows, jax_updates
from minibert.backends.jax_recurrent import RecurrentOverRows
from minibert.backends.jax_training import DATA, JaxTraining, Kept
from minibert.backends.jax_updates import CHUNK
from minibert.ops import AdamRule, random
from minibert.ops.primitives import Saved
from minibert.ops.updates import spans


class JaxOps(JaxTraining, RecurrentOverRows):
    """Every operation of the reference, for XLA to compile.

    Parameters
    ----------
    dtype : of the operands of matrix products, "float32", "bfloat16" or "float64". With bfloat16, activations
        and their gradients are kept so between sublayers; sums, statistics, losses and weights are float32.
    devices : to train on; all there are when left out.
    shard : spread parameters and moments over the devices, for models that do not fit into each.
    recompute : keep of each layer only what enters it, and compute the rest again when going back: less
        memory for a third more arithmetic. `shard` does so in any case.
    """

    name = "jax"

    def __init__(
        self,
        dtype: str = "float32",
        devices: int | None = None,
        shard: bool = False,
        recompute: bool = False,
    ) -> None:
        if dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        super().__init__(devices, shard, recompute)
        self._narrow = jnp.bfloat16 if dtype == "bfloat16" else None

    @property
    def _details(self) -> str:
        kind = self._device.device_kind
        return f"on {kind}" if self._mesh is None else f"on {self._mesh.size} devices, {kind}"

    # Precision: rows between the embeddings and the heads are narrow, everything else is wide.

    def widen(self, x: Any) -> Any:
        """Activations as float32 at least."""
        return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x

    def _narrowed(self, x: Any) -> Any:
        return x if self._narrow is None else x.astype(self._narrow)

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Any, b: Any, dtype: Any = jnp.float32) -> Any:
        """a @ b, added up in float32 at least; a result of `dtype`, where that saves memory traffic."""
        if self._narrow is None:
            return jnp.matmul(a, b, precision="highest")
        # Tensor cores add up in float32 whatever they write; a CPU adds up in what it writes.
        result = jnp.float32 if self._device.platform == "cpu" else dtype
        return jnp.matmul(self._narrowed(a), self._narrowed(b), preferred_element_type=result)

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Saved]:
        """x @ weight + bias, as precise as x."""
        y = (self._product(x, weight, x.dtype) + bias).astype(x.dtype)
        return y, (self._narrowed(x), weight)

    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `linear`."""
        x, weight = saved
        dx = self._product(dy, weight.T, dy.dtype).astype(dy.dtype)
        return dx, self._product(x.T, dy), self.widen(dy).sum(0)

    # x (...) -> (...)
    def gelu(self, x: Any, form: str) -> tuple[Any, Saved]:
        """x Phi(x), in float32 at least; only x is kept."""
        y, _ = super().gelu(self.widen(x), form)
        return y.astype(x.dtype), (x,)

    def gelu_backward(self, dy: Any, saved: Saved, form: str) -> Any:
        """Gradient of `gelu`."""
        x = jax.lax.optimization_barrier(saved[0])  # else XLA keeps the wide values in between as well
        _, again = super().gelu(self.widen(x), form)
        return super().gelu_backward(self.widen(dy), again, form).astype(dy.dtype)

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> tuple[Any, Saved]:
        """gamma (x - mean) / sqrt(variance + eps) + beta over each row, in float32 at least."""
        y, (normal, inverse, _) = super().layer_norm(self.widen(x), gamma, beta, eps)
        return y.astype(x.dtype), (normal.astype(x.dtype), inverse, gamma)

    # dy (T,H) -> dx (T,H)  dgamma (H,)  dbeta (H,)
    def layer_norm_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `layer_norm`."""
        normal, inverse, gamma = saved
        dx, dgamma, dbeta = super().layer_norm_backward(self.widen(dy), (self.widen(normal), inverse, gamma))
        return dx.astype(dy.dtype), dgamma, dbeta

    # input_ids token_type_ids positions (T,) -> (T,H)
    def embedding_block(
        self, batch: Any, params: dict, config: Any, drop: random.Dropout | None
    ) -> tuple[Any, Saved]:
        """dropout(LayerNorm(word + position + segment)); from here on activations may be bfloat16."""
        y, saved = super().embedding_block(batch, params, config, drop)
        return self._narrowed(y), saved

    # dy (T,H) -> grads
    def embedding_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> dict:
        """Gradients of the three tables and the LayerNorm."""
        return super().embedding_block_backward(self.widen(dy), saved, params, grads)

    # -> row keys (T,2)
    def dropout(
        self, batch: Any, rate: float, attention_rate: float, seed: Any, step: Any
    ) -> random.Dropout | None:
        """The source of a batch's dropout at one training step, or None when both rates are zero."""
        if not rate and not attention_rate:
            return None
        words = *random.words(jnp, seed, step), batch.token_sequences, batch.positions.astype(jnp.uint32)
        words = jnp.stack([jnp.broadcast_to(word, batch.positions.shape) for word in words])
        key = jnp.broadcast_to(jnp.asarray(random.STREAMS, jnp.uint32), (*batch.positions.shape, 2))
        # A loop is what XLA does not merge with the masks: it made the key of a row anew for every element,
        # and took minutes to compile that.
        rows, _ = jax.lax.scan(lambda key, word: (random.fold(jnp, key, word), None), key, words)
        return random.Dropout(rate, attention_rate, rows)

    # Arrays that can't be written to.

    def accumulate(self, total: Any, extra: Any) -> Any:
        """The sum, a new array."""
        return total + extra

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Any, ids: Any, rows: Any) -> Any:
        """total[ids[t]] + rows[t] for every t, equal ids adding up."""
        return total.at[ids].add(rows.astype(total.dtype))

    # grads (N,) -> scalar
    def global_norm(self, grads: Any) -> Any:
        """Euclidean norm of all gradients together."""
        whole = len(grads) // CHUNK * CHUNK  # sums of sums: one long sum in float32 loses digits
        squares = jnp.square(grads[:whole]).reshape(-1, CHUNK).sum(1).sum()
        squares = squares + jnp.square(grads[whole:]).sum()
        return jnp.sqrt(squares if self._layout is None else jax.lax.psum(squares, DATA))

    # -> scalar
    def clip_factor(self, norm: Any, clip_norm: float) -> Any:
        """What makes a gradient of length `norm` at most `clip_norm` long (0: no limit)."""
        return clip_norm / jnp.maximum(norm, clip_norm) if clip_norm > 0 else 1.0

    # params grads m v (N,)  decayed (K,2) -> params m v (N,)
    def adamw(
        self, params: Any, grads: Any, m: Any, v: Any, decayed: np.ndarray, rule: AdamRule
    ) -> tuple[Any, Any, Any]:
        """One step of Adam with decoupled weight decay."""
        direction, m, v = _adam(grads, m, v, rule)
        if self._layout is not None:
            direction = direction + jnp.where(self._layout.decaying(DATA), rule.weight_decay, 0) * params
            return params - rule.lr * direction, m, v
        changed = params - rule.lr * (direction + rule.weight_decay * params)
        for begin, end, decays in spans(decayed, len(params)):
            if not decays:  # biases and LayerNorms: some small stretches, put right one by one
                changed = changed.at[begin:end].set(params[begin:end] - rule.lr * direction[begin:end])
        return changed, m, v

    # params grads m v (N,)  tensors (K,3) -> params m v (N,)
    def lamb(
        self, params: Any, grads: Any, m: Any, v: Any, tensors: np.ndarray, rule: AdamRule
    ) -> tuple[Any, Any, Any]:
        """One step of LAMB. It needs tensors whole; options refuse it where they would be spread."""
        direction, m, v = _adam(grads, m, v, rule)
        given = {"lr": rule.lr, "weight_decay": rule.weight_decay, "trust_ratio": self._trust_ratio}
        return jax_updates.lamb(params, direction, tensors, **given), m, v

    # q k v (T,A,D) -> (T,A,D)
    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        cu_seqlens: Any,
        causal: bool = False,
        drop: random.Dropout | None = None,
        site: Any = 0,
    ) -> tuple[Any, Saved]:
        """softmax(q k^T / sqrt(D)) v, over rows if the batch was laid out so."""
        if not isinstance(cu_seqlens, jax_rows.Borders):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        rate, keys = drop.attention_rate if drop is not None else 0.0, None
        if rate:
            keys = self._in_rows(random.fold(jnp, drop.rows, *random.words(jnp, site)), cu_seqlens)
        plan = self._plan(q, causal, rate)
        rows = (self._in_rows(one, cu_seqlens) for one in (q, k, v))
        y, saved = jax_attention.forward(plan, *rows, cu_seqlens.lengths, keys)
        return y.reshape(q.shape), (q, Kept(saved, plan))

    def attention_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `attention`."""
        *_, kept = saved
        if not isinstance(kept, Kept):
            return super().attention_backward(dy, saved)
        gradients = jax_attention.backward(kept.how, dy.reshape(kept.arrays[0].shape), kept.arrays)
        return tuple(one.reshape(dy.shape) for one in gradients)

    def _plan(self, q: Any, causal: bool, rate: float) -> jax_attention.Plan:
        kernel = jax_attention.choose(self._device.platform, q.dtype, causal, rate, q.shape[-1])
        return jax_attention.Plan(causal, rate, kernel)

    # x (R n,...) -> (R,n,...)
    def _in_rows(self, x: Any, borders: jax_rows.Borders) -> Any:
        return x.reshape(len(borders.lengths), len(borders.columns), *x.shape[1:])

    # scores (T,)  labels (S,) -> (S,)
    def segment_softmax_cross_entropy(self, scores: Any, cu_seqlens: Any, labels: Any) -> tuple[Any, Saved]:
        """-log softmax within each segment at its label."""
        if not isinstance(cu_seqlens, jax_rows.Borders):
            return super().segment_softmax_cross_entropy(scores, cu_seqlens, labels)
        scores = self._in_rows(scores, cu_seqlens)
        real = cu_seqlens.columns < cu_seqlens.lengths[:, None]
        shifted = scores - jnp.where(real, scores, scores.min()).max(-1, keepdims=True)
        exponentials = jnp.where(real, jnp.exp(jnp.where(real, shifted, 0)), 0)
        total = jnp.maximum(exponentials.sum(-1, keepdims=True), jnp.finfo(scores.dtype).tiny)  # 0 in pads
        nll = jnp.log(total) - jnp.take_along_axis(shifted, labels[:, None], 1)
        return nll[:, 0], Kept((exponentials / total, labels), "rows")

    # dnll (S,) -> dscores (T,)
    def segment_softmax_cross_entropy_backward(self, dnll: Any, saved: Saved) -> Any:
        """Gradient of `segment_softmax_cross_entropy`."""
        if not isinstance(saved, Kept):
            return super().segment_softmax_cross_entropy_backward(dnll, saved)
        return self.softmax_cross_entropy_backward(dnll, saved.arrays).reshape(-1)

    # How batches come in.

    def prepare(self, batch: Any) -> jax_rows.Rows:
        """A batch as rows, on the device."""
        return jax.device_put(jax_rows.lay_out(batch, jax_rows.shape_of(batch)), self._device)

    def restored(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """What was computed from rows, in the order of the batch."""
        values = np.asarray(values)
        if per == "tokens":
            return values[jax_rows.places(batch, jax_rows.shape_of(batch).columns)]
        count = {"sequences": batch.S, "masked": batch.M}
        return values[: count[per] if per in count else len(batch.label_rows)]

    def place(self, tree: Any) -> Any:
        """A tree of arrays on the device."""
        return jax.device_put(tree, self._device)

    def call(self, function: Callable, static: tuple, *arrays: Any) -> Any:
        """The function, compiled."""
        with jax_errors.translated():
            return jax.block_until_ready(self._jitted(function, len(static))(self, *static, *arrays))

    def _jitted(self, function: Callable, static: int, **options: Any) -> Callable:
        if function not in self._compiled:
            numbers = tuple(range(1 + static))
            self._compiled[function] = jax.jit(function, static_argnums=numbers, **options)
        return self._compiled[function]


# grads m v (N,) -> direction m v (N,)
def _adam(grads: Any, m: Any, v: Any, rule: AdamRule) -> tuple[Any, Any, Any]:
    """What Adam goes along, and the moments after these gradients."""
    grads, betas = grads * rule.clip, (rule.beta1, rule.beta2)
    # 1 - beta^t without cancellation: t is traced, so this is done in the precision of the parameters.
    count = jnp.asarray(rule.step, m.dtype)
    logarithms = [math.log(beta) if beta else -math.inf for beta in betas]
    own = [-jnp.expm1(count * one) if rule.bias_correction else 1.0 for one in logarithms]
    m = betas[0] * m + (1 - betas[0]) * grads
    v = betas[1] * v + (1 - betas[1]) * (grads * grads)
    return (m / own[0]) / (jnp.sqrt(v / own[1]) + rule.eps), m, v
