"""The engine on JAX: the reference itself over `jax.numpy`, compiled as a whole, for accelerators.

Only what has to differ from the reference does: attention and LSTMs over padded rows, additions to rows of a
table, the precision of matrix products, and updates, which return new arrays instead of writing in place. How
a batch gets its static shape, what is compiled, and where parameters are stored: see `runtime.py` and
`training.py`.
"""

import math
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops import AdamRule, dropout_bits
from minibert.core.ops.primitives import LayerNormSaved, LinearSaved
from minibert.engines.jax import attention as jax_attention
from minibert.engines.jax.flash import HIDDEN, Plan
from minibert.engines.jax.fsdp import DATA
from minibert.engines.jax.recurrent import RecurrentOverRows
from minibert.engines.jax.rows import Borders
from minibert.engines.jax.runtime import JaxRuntime, Kept
from minibert.engines.jax.training import JaxSteps, LayersOnDevices

# What operations save for backward, where that differs from the reference. For attention: the queries in
# token order, and what `attention.forward` saves together with its plan. For segments: what a softmax over
# each row saves.
JaxGeluSaved = namedtuple("JaxGeluSaved", "x")
JaxLayerNormSaved = namedtuple("JaxLayerNormSaved", "x mean rstd gamma")
JaxAttentionSaved = namedtuple("JaxAttentionSaved", "q kept")
JaxSegmentsSaved = namedtuple("JaxSegmentsSaved", "rows")

# The vocabulary is padded to a multiple of this for the logits, by platform; 128 elsewhere. A GPU takes twice
# as long for products with a side that is not a multiple of 8, and its best kernels want 128.
MULTIPLES = {"cpu": 1}
CHUNK = 4096  # squares that are added up in one sum: a longer one in float32 loses digits


class JaxOps(LayersOnDevices, RecurrentOverRows):
    """Every operation of the reference, for XLA to compile; shapes are those of `minibert.core.ops`.

    Parameters
    ----------
    dtype : str
        "float32" (the default), "float64" or "bfloat16". With bfloat16, activations and their gradients have
        that type between sublayers; sums, statistics, losses and weights are float32.
    devices : int or None
        How many devices to train on; None, the default, for all that JAX sees.
    shard : bool, default False
        Whether parameters and moments are spread over the devices; the option `fsdp` of `registry.create`.
    recompute : bool, default False
        Whether only the input of each layer is kept for backward: less memory for a third more arithmetic.
        `shard` implies it.

    Raises
    ------
    InputError
        When there are fewer devices than that.
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
        super().__init__(JaxRuntime(devices, shard, JaxSteps), recompute)
        self._narrow = jnp.bfloat16 if dtype == "bfloat16" else None

    @property
    def _details(self) -> str:
        """Describe the devices, for the sentence about the engine."""
        kind = self.runtime.device.device_kind
        mesh = self.runtime.mesh
        if mesh is None:
            return f"on {kind}"
        return f"on {mesh.size} devices, {kind}"

    # The word embedding is padded for the logits. The added entries have a bias of -inf: they never win.

    def masked_lm_head(
        self,
        x: Array,
        rows: Array,
        labels: Array,
        params: Params,
        table: Array,
        config: Any,
    ) -> tuple[tuple[Array, Array], Saved]:
        """Return losses and guesses at the masked rows, as `Blocks.masked_lm_head` does.

        Parameters
        ----------
        x : (T,H) array
            The output of the encoder.
        rows, labels : (M,) arrays
            The rows whose token is to be predicted, and the id of the right token.
        params : dict
            `weight`, `bias`, `gamma`, `beta` and `output_bias`.
        table : (V,H) array
            The word embedding, whose weights the decoder shares.
        config : BertConfig
            Has `gelu_form` and `layer_norm_eps`.

        Returns
        -------
        tuple of two (M,) arrays, and MaskedLmHeadSaved
            -log probability of each label in nats, and the entry that scores highest; what backward needs.
        """
        bias = self._longer(params["output_bias"], -jnp.inf)
        params = params | {"output_bias": bias}
        return super().masked_lm_head(x, rows, labels, params, self._longer(table), config)

    def masked_lm_head_backward(
        self,
        dnll: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
        dtable: Array,
        config: Any,
    ) -> tuple[Array, Grads, Array]:
        """Add the gradients of `masked_lm_head`.

        Parameters
        ----------
        dnll : (M,) array
            Gradient of the losses.
        saved : MaskedLmHeadSaved
            What `masked_lm_head` kept.
        params, grads : dict
            Parameters of the head, and their gradient accumulators.
        dtable : (V,H) array
            The accumulator of the word embedding.
        config : BertConfig
            Has `gelu_form`.

        Returns
        -------
        tuple of (T,H) array, dict and (V,H) array
            Gradient of x; the accumulators of the head and of the word embedding.
        """
        V = len(dtable)
        longer = grads | {"output_bias": self._longer(grads["output_bias"])}
        dtable = self._longer(dtable)
        dx, grads, dtable = super().masked_lm_head_backward(dnll, saved, params, longer, dtable, config)
        dbias = grads["output_bias"][:V]
        return dx, grads | {"output_bias": dbias}, dtable[:V]

    # x (V,...) -> (V',...)
    def _longer(self, x: Array, fill: float = 0.0) -> Array:
        """Pad the vocabulary up to a multiple that suits the device."""
        padding = -len(x) % MULTIPLES.get(self.runtime.device.platform, 128)
        if not padding:
            return x
        unpadded = [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, ((0, padding), *unpadded), constant_values=fill)

    # Precision: with bfloat16, activations between the embeddings and the heads are narrow (bfloat16), and
    # everything else is wide (float32).

    def upcast(self, x: Array) -> Array:
        """Return activations in at least float32.

        Parameters
        ----------
        x : array
            Any shape.

        Returns
        -------
        array
            The array in float32 if it is bfloat16; otherwise the array itself.
        """
        return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x

    def _narrowed(self, x: Array) -> Array:
        """Return activations in the type that they are kept in."""
        return x if self._narrow is None else x.astype(self._narrow)

    def _product(self, a: Array, b: Array, dtype: Any = jnp.float32) -> Array:
        """Return a @ b, accumulated in at least float32; in `dtype`, where that saves memory traffic."""
        if self._narrow is None:
            return jnp.matmul(a, b, precision="highest")
        # Tensor cores accumulate in float32 whatever they write; a CPU accumulates in the type it writes.
        is_cpu = self.runtime.device.platform == "cpu"
        result = jnp.float32 if is_cpu else dtype
        a = self._narrowed(a)
        b = self._narrowed(b)
        return jnp.matmul(a, b, preferred_element_type=result)

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias, in the type of x.

        Parameters
        ----------
        x : (T,K) array
            Inputs.
        weight : (K,N) array
            The matrix.
        bias : (N,) array
            Added to every row.

        Returns
        -------
        tuple of (T,N) array and LinearSaved
            The result, in the type of x; x in the type of activations, and the weight.
        """
        product = self._product(x, weight, x.dtype)
        y = (product + bias).astype(x.dtype)
        return y, LinearSaved(self._narrowed(x), weight)

    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `linear`.

        Parameters
        ----------
        dy : (T,N) array
            Gradient of the result.
        saved : LinearSaved
            What `linear` kept.

        Returns
        -------
        tuple of three arrays
            Gradients of x (T,K), in the type of dy, and of weight (K,N) and bias (N,), in float32 at least.
        """
        dx = self._product(dy, saved.weight.T, dy.dtype).astype(dy.dtype)
        dweight = self._product(saved.x.T, dy)
        dbias = self.upcast(dy).sum(0)
        return dx, dweight, dbias

    # The device's own erf is faster. 1 - erf(x) loses digits in the tail, where GELU is within 1e-4 of zero.
    def _erfc(self, x: Array) -> Array:
        """Return the complementary error function."""
        return super()._erfc(x) if self._narrow is None else 1 - jax.lax.erf(x)

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), computed in float32 at least, as `Primitives.gelu` does; only x is kept.

        Parameters
        ----------
        x : array
            Any shape.
        form : str
            "erf" or "tanh".

        Returns
        -------
        tuple of array and JaxGeluSaved
            The result, in the type of x; x.
        """
        y, _ = super().gelu(self.upcast(x), form)
        return y.astype(x.dtype), JaxGeluSaved(x)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        """Return the gradient of `gelu`.

        Parameters
        ----------
        dy : array
            Gradient of the result.
        saved : JaxGeluSaved
            What `gelu` kept.
        form : str
            The form that `gelu` was called with.

        Returns
        -------
        array
            Gradient of x, in the type of dy.
        """
        # Without the barrier XLA would keep the wide intermediate values of the forward as well.
        x = jax.lax.optimization_barrier(saved.x)
        _, recomputed = super().gelu(self.upcast(x), form)
        return super().gelu_backward(self.upcast(dy), recomputed, form).astype(dy.dtype)

    # Saved are x itself and the statistics of its rows. If the normalised values were saved, XLA would still
    # compute them from x again, and sum dy x_hat over the columns by way of a float32 array.
    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        """Return gamma (x - mean) / sqrt(variance + eps) + beta, as `Primitives.layer_norm` does.

        Parameters
        ----------
        x : (T,H) array
            Rows to normalise.
        gamma, beta : (H,) arrays
            Scale and shift of every row.
        eps : float
            Added to the variance.

        Returns
        -------
        tuple of (T,H) array and JaxLayerNormSaved
            The result, in the type of x; x itself, and mean and 1 / deviation of each row.
        """
        wide = self.upcast(x)
        y, saved = super().layer_norm(wide, gamma, beta, eps)
        y = y.astype(x.dtype)
        mean = wide.mean(-1, keepdims=True)
        return y, JaxLayerNormSaved(x, mean, saved.rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `layer_norm`.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : JaxLayerNormSaved
            What `layer_norm` kept.

        Returns
        -------
        tuple of three arrays
            Gradients of x (T,H), in the type of dy, and of gamma (H,) and beta (H,).
        """
        x, mean, rstd, gamma = jax.lax.optimization_barrier(saved)
        x_hat = (self.upcast(x) - mean) * rstd
        saved = LayerNormSaved(x_hat, rstd, gamma)
        dx, dgamma, dbeta = super().layer_norm_backward(self.upcast(dy), saved)
        # Two consumers need dx. Without the barrier each would compute it for itself.
        dx = jax.lax.optimization_barrier(dx.astype(dy.dtype))
        return dx, dgamma, dbeta

    # Dropout is computed wide because bfloat16 would round the factor 1 / (1 - rate) to 8 bits.

    def _dropout(self, x: Array, drop: dropout_bits.Dropout | None, site: int) -> tuple[Array, Saved]:
        """Apply dropout in at least float32; the result has the type of x."""
        y, saved = super()._dropout(self.upcast(x), drop, site)
        return y.astype(x.dtype), saved

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        """Return the gradient of `_dropout`, in the type of dy."""
        dx = super()._dropout_backward(self.upcast(dy), saved)
        return dx.astype(dy.dtype)

    def embedding_block(
        self,
        batch: Any,
        params: Params,
        config: Any,
        drop: dropout_bits.Dropout | None,
    ) -> tuple[Array, Saved]:
        """Return dropout(LayerNorm(word + position + segment)); from here on activations may be bfloat16.

        Parameters
        ----------
        batch : Rows or Batch
            T tokens with their positions and segments.
        params : dict
            The three tables, `gamma` and `beta`.
        config : BertConfig
            Has `layer_norm_eps`.
        drop : Dropout or None
            The source of dropout; None for none.

        Returns
        -------
        tuple of (T,H) array and EmbeddingBlockSaved
            The result; what its backward needs.
        """
        y, saved = super().embedding_block(batch, params, config, drop)
        return self._narrowed(y), saved

    def embedding_block_backward(self, dy: Array, saved: Saved, params: Params, grads: Grads) -> Grads:
        """Add the gradients of the three tables and the LayerNorm, in float32 at least.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : EmbeddingBlockSaved
            What `embedding_block` kept.
        params, grads : dict
            Parameters of the block, and their gradient accumulators.

        Returns
        -------
        dict
            The new accumulators.
        """
        return super().embedding_block_backward(self.upcast(dy), saved, params, grads)

    # -> (R,n,2) uint32
    def _row_keys(self, batch: Any, seed: Any, step: Any) -> Array:
        """Return the key of every token: the bits of `dropout_bits.row_keys`, so the two change together."""
        shape = batch.positions.shape

        def fold(key: Array, word: Array) -> tuple[Array, None]:
            return dropout_bits.fold(jnp, key, word), None

        words = dropout_bits.words(jnp, seed, step)
        words.append(batch.token_sequences)
        words.append(batch.positions.astype(jnp.uint32))
        words_of_tokens = jnp.stack([jnp.broadcast_to(word, shape) for word in words])
        streams = jnp.asarray(dropout_bits.STREAMS, jnp.uint32)
        key = jnp.broadcast_to(streams, (*shape, 2))
        # The scan is a barrier. Without it, XLA inlines the keys into the masks: it computes a row's key
        # again for every element of a mask, and needs minutes to compile that.
        keys, _ = jax.lax.scan(fold, key, words_of_tokens)
        return keys

    # Updates return new arrays, because those of JAX can't be written to.

    def accumulate(self, total: Array, extra: Array) -> Array:
        """Add to an accumulator, which is not changed.

        Parameters
        ----------
        total : array
            The accumulator, of any shape.
        extra : array
            What to add.

        Returns
        -------
        array
            The sum, which takes the accumulator's place.
        """
        return total + extra

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table, total[ids[t]] += rows[t]; the table is not changed.

        Parameters
        ----------
        total : (V,H) array
            The table.
        ids : (T,) integers
            Indices of rows; an index may occur several times.
        rows : (T,H) array
            What to add.

        Returns
        -------
        (V,H) array
            The sums, in the type of the table.
        """
        return total.at[ids].add(rows.astype(total.dtype))

    def global_norm(self, grads: Array | list[Array]) -> Array:
        """Return the Euclidean norm of all gradients together.

        Parameters
        ----------
        grads : array or list of arrays
            The gradients, of any shapes; where they are sharded, this device's shards.

        Returns
        -------
        scalar
            The norm of all gradients, over all devices where they are sharded.
        """
        squares = sum(map(sum_of_squares, jax.tree.leaves(grads)))
        if self.runtime.layout is not None:
            squares = jax.lax.psum(squares, DATA)
        return jnp.sqrt(squares)

    def clip_factor(self, norm: Array, clip_norm: float) -> Array:
        """Return the factor that clips a gradient's norm, as `Updates.clip_factor` does.

        Parameters
        ----------
        norm : scalar
            The norm of the gradients.
        clip_norm : float
            The largest norm allowed; 0 for no limit.

        Returns
        -------
        scalar
            The factor of the gradients, at most 1.
        """
        if clip_norm > 0:
            return clip_norm / jnp.maximum(norm, clip_norm)
        return 1.0

    def adamw(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        decayed: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of Adam with decoupled weight decay, as `Updates.adamw` does.

        Parameters
        ----------
        params, grads : arrays
            Parameters and gradients, of any shape; where they are sharded, this device's shards (n,).
        m, v : arrays
            First and second moment, of that shape.
        decayed : (K,2) int64
            Ranges [begin, end) of elements, in row-major order, that have weight decay. Not read where
            parameters are sharded: their layout holds the ranges.
        rule : AdamRule
            The hyperparameters of this step.

        Returns
        -------
        tuple of three arrays
            New parameters and moments.
        """
        direction, m, v = _adam(grads, m, v, rule)
        layout = self.runtime.layout
        decays = _in_ranges(decayed, params.shape) if layout is None else layout.decaying()
        decay = jnp.where(decays, rule.weight_decay, 0)
        direction = direction + decay * params
        return params - rule.lr * direction, m, v

    def lamb(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        tensors: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of LAMB, as `Updates.lamb` does.

        It needs whole tensors; the options reject it together with sharding.

        Parameters
        ----------
        params, grads : arrays
            Parameters and gradients, of any shape.
        m, v : arrays
            First and second moment, of that shape.
        tensors : (K,3) int64
            A row [begin, end, decays] for each tensor; elements count in row-major order.
        rule : AdamRule
            The hyperparameters of this step.

        Returns
        -------
        tuple of three arrays
            New parameters and moments.
        """
        direction, m, v = _adam(grads, m, v, rule)
        flat = params.reshape(-1)
        u = direction.reshape(-1)
        parts = []
        at = 0
        for begin, end, decays in tensors.tolist():
            x = flat[begin:end]
            along = u[begin:end]
            if decays:
                along = along + rule.weight_decay * x
                trust = self._trust_ratio(length(x), length(along))
                along = trust.astype(along.dtype) * along
            parts.append(flat[at:begin])
            parts.append(x - rule.lr * along)
            at = end
        parts.append(flat[at:])
        return jnp.concatenate(parts).reshape(params.shape), m, v

    def muon(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        tensors: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of Muon on one tensor, as `Updates.muon` does.

        It needs whole tensors; the options reject it together with sharding.

        Parameters
        ----------
        params, grads : arrays
            Parameter and gradient, of any shape.
        m, v : arrays
            First and second moment, of that shape.
        tensors : (1,5) int64
            The row [begin, end, decays, rows, matrices] of this tensor.
        rule : AdamRule
            The hyperparameters of this step.

        Returns
        -------
        tuple of three arrays
            New parameter and moments.
        """
        [[begin, end, decays, rows, matrices]] = tensors.tolist()
        if not matrices:
            decayed = np.array([[begin, end]])[:decays]
            return self.adamw(params, grads, m, v, decayed, rule)
        direction, m = self._muon_direction(grads, m, rows, matrices, rule)
        return params - rule.lr * (direction + rule.weight_decay * params), m, v

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        cu_seqlens: Any,
        causal: bool = False,
        drop: dropout_bits.Dropout | None = None,
        site: int = 0,
    ) -> tuple[Array, Saved]:
        """Return softmax(q k^T / sqrt(D)) v, as `Attention.attention` does.

        Parameters
        ----------
        q, k, v : (T,A,D) arrays
            Queries, keys and values.
        cu_seqlens : Borders or (S+1,) integers
            Where sequences begin. Given plain integers, this falls back to the reference.
        causal : bool, default False
            Whether a token attends only to itself and the tokens before it.
        drop : Dropout or None
            The source of dropout on the probabilities; None, the default, for none.
        site : int, default 0
            The dropout site: a number that identifies this place in the network.

        Returns
        -------
        tuple of (T,A,D) array and JaxAttentionSaved
            The result; what the kernel of the device saves.
        """
        if not isinstance(cu_seqlens, Borders):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        rate, keys = 0.0, None
        if drop is not None and drop.attention_rate:
            rate = drop.attention_rate
            keys = dropout_bits.fold(jnp, drop.rows, *dropout_bits.words(jnp, site))
            keys = self._in_rows(keys, cu_seqlens)
        kernel = jax_attention.choose(self.runtime.device.platform, q.dtype)
        plan = Plan(causal, rate, kernel)
        queries, sources, values = (self._in_rows(x, cu_seqlens) for x in (q, k, v))
        y, saved = jax_attention.forward(plan, queries, sources, values, cu_seqlens.lengths, keys)
        return y.reshape(q.shape), JaxAttentionSaved(q, Kept(saved, plan))

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `attention`.

        Parameters
        ----------
        dy : (T,A,D) array
            Gradient of the result.
        saved : JaxAttentionSaved or AttentionSaved
            What `attention` kept.

        Returns
        -------
        tuple of three (T,A,D) arrays
            Gradients of q, k and v, parts of one array.
        """
        if not isinstance(saved, JaxAttentionSaved):
            return super().attention_backward(dy, saved)
        plan, kept = saved.kept.how, saved.kept.arrays
        gradients = jax_attention.backward(plan, dy.reshape(kept.q.shape), kept)
        # The next two products read dq, dk, dv as one matrix. The barrier stops XLA from concatenating them
        # once per product.
        T = len(dy)
        H = dy[0].size
        side_by_side = jnp.concatenate([gradient.reshape(T, H) for gradient in gradients], 1)
        whole = jax.lax.optimization_barrier(side_by_side)
        return tuple(whole[:, i * H : (i + 1) * H].reshape(dy.shape) for i in range(3))

    # x (R n,...) -> (R,n,...)
    def _in_rows(self, x: Array, borders: Borders) -> Array:
        """Reshape an array over tokens to the padded rows and columns of the batch."""
        return x.reshape(len(borders.lengths), len(borders.columns), *x.shape[1:])

    # scores (T,)  labels (S,) -> (S,)
    def segment_softmax_cross_entropy(
        self,
        scores: Array,
        cu_seqlens: Any,
        labels: Array,
    ) -> tuple[Array, Saved]:
        """Return -log softmax within each segment, as `Losses.segment_softmax_cross_entropy` does.

        Parameters
        ----------
        scores : (T,) array
            One score for each token; those of padding do not count.
        cu_seqlens : Borders or (S+1,) integers
            Rows with padding, each of which is a segment; or where segments begin, as plain integers, for
            which the reference is used. A row of nothing but padding has a loss that means nothing; the
            caller gives it the weight 0.
        labels : (S,) integers
            The right token of each segment, as an index within it.

        Returns
        -------
        tuple of (S,) array and JaxSegmentsSaved
            Losses in nats; what a softmax over each row saves.
        """
        if not isinstance(cu_seqlens, Borders):
            return super().segment_softmax_cross_entropy(scores, cu_seqlens, labels)
        real = cu_seqlens.columns < cu_seqlens.lengths[:, None]
        scores = jnp.where(real, self._in_rows(scores, cu_seqlens), HIDDEN)
        nll, saved = self.softmax_cross_entropy(scores, labels)
        return nll, JaxSegmentsSaved(saved)

    def segment_softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `segment_softmax_cross_entropy`, 0 at padding.

        Parameters
        ----------
        dnll : (S,) array
            Gradient of the losses.
        saved : JaxSegmentsSaved or SegmentsSaved
            What `segment_softmax_cross_entropy` kept.

        Returns
        -------
        (T,) array
            Gradient of the scores.
        """
        if not isinstance(saved, JaxSegmentsSaved):
            return super().segment_softmax_cross_entropy_backward(dnll, saved)
        dscores = self.softmax_cross_entropy_backward(dnll, saved.rows)
        return dscores.reshape(-1)


# ranges (K,2) -> shape, or a scalar
def _in_ranges(ranges: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Mark the elements of an array that are in ranges of row-major indices; one bool where all are alike."""
    inside = np.zeros(math.prod(shape), bool)
    for begin, end in ranges.tolist():
        inside[begin:end] = True
    if inside.all() == inside.any():
        return inside.all()
    return inside.reshape(shape)


# grads m v (...) -> direction m v (...)
def _adam(grads: Array, m: Array, v: Array, rule: AdamRule) -> tuple[Array, Array, Array]:
    """Return Adam's direction and the new moments."""
    beta1, beta2 = rule.beta1, rule.beta2
    grads = grads * rule.clip
    count = jnp.asarray(rule.step, m.dtype)
    m_correction = _correction(beta1, count) if rule.bias_correction else 1.0
    v_correction = _correction(beta2, count) if rule.bias_correction else 1.0
    m = beta1 * m + (1 - beta1) * grads
    v = beta2 * v + (1 - beta2) * (grads * grads)
    direction = (m / m_correction) / (jnp.sqrt(v / v_correction) + rule.eps)
    return direction, m, v


def _correction(beta: float, count: Array) -> Array:
    """Return 1 - beta^count, without cancellation: count is traced, in the precision of the parameters."""
    logarithm = math.log(beta) if beta else -math.inf
    return -jnp.expm1(count * logarithm)


# x (...) -> scalar
def length(x: Array) -> Array:
    """Return the Euclidean norm, scaled so that no square leaves the range of float32.

    Parameters
    ----------
    x : array
        Any shape.

    Returns
    -------
    scalar
        The square root of the sum of all squares.
    """
    largest = jnp.abs(x).max(initial=0)
    scaled = x / jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(sum_of_squares(scaled))


# x (...) -> scalar
def sum_of_squares(x: Array) -> Array:
    """Sum the squares row by row, then the sums of rows: one long sum in float32 loses digits.

    Parameters
    ----------
    x : array
        Any shape.

    Returns
    -------
    scalar
        The sum of all squares.
    """
    sums = jnp.square(x)
    if x.ndim > 1:
        sums = sums.sum(-1).reshape(-1)
    whole = len(sums) // CHUNK * CHUNK
    chunks = sums[:whole].reshape(-1, CHUNK)
    return chunks.sum(1).sum() + sums[whole:].sum()
