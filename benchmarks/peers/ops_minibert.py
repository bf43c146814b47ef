"""Single operations by minibert's engines: NumPy and Numba as the blocks call them, C++ by its kernels.

Every method takes a case and its arguments and returns a function that does the operation once and returns
what it found. What can be laid out ahead is laid out ahead.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minibert import engines
from minibert.core.ops import AdamRule, dropout_bits
from minibert.model.ops import Ops
from peers.operations import EPS, SITE, STEP, Arrays, Case, halves

Run = Callable[[], tuple]


class Contestant:
    """What every way of doing it has: a case that is chosen, then run."""

    def __init__(self, dtype: str, threads: int) -> None:
        self._dtype, self._threads, self._run = dtype, threads, None

    def choose(self, case: Case) -> None:
        """Lay the arguments of a case out."""
        self._run = None  # lets go of the memory first
        self._run = getattr(self, case.op)(case, case.given(self._dtype))

    def run(self) -> None:
        self._run()

    def result(self) -> list[np.ndarray]:
        """What the operation finds, float32; right for the first run, as some work in place."""
        return [self.plain(x) for x in self._run()]

    def plain(self, x: Any) -> np.ndarray:
        """An array of this library as one of NumPy."""
        return x


class Reference(Contestant):
    """The primitives of NumPy, or of Numba where it has its own."""

    def __init__(self, threads: int, engine: str = "numpy", dtype: str = "float32") -> None:
        super().__init__("float32", threads)
        engines.keep_freed_memory()
        self._ops: Ops = engines.create(engine, threads)
        self._limits = engines.limited_threads(threads, self._ops)
        self._float = np.dtype(dtype)

    def choose(self, case: Case, rounded_to: str = "float32") -> None:
        """Lay the arguments out in this precision; their values may be those of a smaller one."""
        given = case.given(rounded_to)
        wide = {name: x.astype(self._float) if x.dtype == np.float32 else x for name, x in given.items()}
        self._run = None
        self._run = getattr(self, case.op)(case, wide)

    def gemm(self, case: Case, given: Arrays) -> Run:
        a, b = turned(case, given)
        if self._ops.name == "numba":
            return self._numba_gemm(a, b.T)
        c = np.empty((a.shape[0], b.shape[1]), self._float)
        return lambda: (np.matmul(a, b, out=c),)

    # a (M,K)  b (N,K)
    def _numba_gemm(self, a: np.ndarray, b: np.ndarray) -> Run:
        """The engine's own product, which it uses for few rows; large ones are the library's."""
        from minibert.engines.numba import products as numba_products
        from minibert.engines.numba.jit import Threads, cut

        c, threads = np.empty((len(a), len(b)), self._float), Threads(self._threads)
        ranges = cut(len(b), a.size // 16, numba_products.TILE)

        def run() -> tuple:
            threads.run(numba_products.matmul, ranges, a, b, c)
            return (c,)

        return run

    def linear_gelu(self, case: Case, given: Arrays) -> Run:
        def run() -> tuple:
            u, _ = self._ops.linear(given["a"], given["b"], given["bias"])
            return u, self._ops.gelu(u, case.sizes["form"])[0]

        return run

    def attention(self, case: Case, given: Arrays) -> Run:
        q, k, v = given["qkv"].swapaxes(0, 1)
        drop = case.drop()
        return lambda: self._ops.attention(q, k, v, given["cu_seqlens"], False, drop, SITE)[:1]

    def attention_backward(self, case: Case, given: Arrays) -> Run:
        q, k, v = given["qkv"].swapaxes(0, 1)
        _, saved = self._ops.attention(q, k, v, given["cu_seqlens"], False, case.drop(), SITE)
        return lambda: self._ops.attention_backward(given["dy"], saved)

    def layer_norm(self, case: Case, given: Arrays) -> Run:
        return lambda: self._ops.layer_norm(given["x"], given["gamma"], given["beta"], EPS)[:1]

    def layer_norm_backward(self, case: Case, given: Arrays) -> Run:
        _, saved = self._ops.layer_norm(given["x"], given["gamma"], given["beta"], EPS)
        return lambda: self._ops.layer_norm_backward(given["dy"], saved)

    def residual_norm(self, case: Case, given: Arrays) -> Run:
        drop = case.drop()
        return lambda: self._residual_norm(given, drop)[:1]

    def _residual_norm(self, given: Arrays, drop: dropout_bits.Dropout | None) -> tuple:
        out, dropped = self._ops._dropout(given["out"] + given["bias"], drop, SITE)
        y, saved = self._ops.layer_norm(given["x"] + out, given["gamma"], given["beta"], EPS)
        return y, saved, dropped

    def residual_norm_backward(self, case: Case, given: Arrays) -> Run:
        _, saved, dropped = self._residual_norm(given, case.drop())

        def run() -> tuple:
            dx, dgamma, dbeta = self._ops.layer_norm_backward(given["dy"], saved)
            d_out = self._ops._dropout_backward(dx, dropped)
            return dx, d_out, dgamma, dbeta, d_out.sum(0)

        return run

    def gelu(self, case: Case, given: Arrays) -> Run:
        return lambda: self._ops.gelu(given["x"], case.sizes["form"])[:1]

    def gelu_backward(self, case: Case, given: Arrays) -> Run:
        form = case.sizes["form"]
        _, saved = self._ops.gelu(given["x"], form)
        return lambda: (self._ops.gelu_backward(given["dy"], saved, form),)

    def cross_entropy(self, case: Case, given: Arrays) -> Run:
        def run() -> tuple:
            nll, saved = self._ops.softmax_cross_entropy(given["logits"], given["labels"])
            return nll, self._ops.softmax_cross_entropy_backward(np.ones_like(nll), saved)

        return run

    def gather(self, case: Case, given: Arrays) -> Run:
        return lambda: self._ops.embedding(given["ids"], given["table"])[:1]

    def scatter(self, case: Case, given: Arrays) -> Run:
        return lambda: (self._ops.scatter_add(given["table"], given["ids"], given["rows"]),)

    def global_norm(self, case: Case, given: Arrays) -> Run:
        return lambda: (np.array([self._ops.global_norm(given["grads"])]),)

    def adamw(self, case: Case, given: Arrays) -> Run:
        buffers = [given[name] for name in ("params", "grads", "m", "v")]
        return lambda: self._ops.adamw(*buffers, given["decayed"], AdamRule(**STEP))


class Cpp(Contestant):
    """The kernels of csrc/kernels, called one by one with results laid out ahead."""

    def __init__(self, threads: int, dtype: str = "float32") -> None:
        from minibert.engines.cpp import _kernels

        super().__init__(dtype, threads)
        self._narrow = dtype == "bfloat16"
        self._empty = partial(_kernels.empty, narrow=self._narrow)
        self._floats = _kernels.empty
        self._engine = _kernels.Engine("", threads, self._narrow)

    def _wide(self, x: np.ndarray) -> np.ndarray:
        """What flows through the network: float32, or bfloat16 as uint16."""
        return halves(x) if self._narrow else x

    def _empties(self, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
        return [self._empty(shape) for _ in range(count)]

    def plain(self, x: np.ndarray) -> np.ndarray:
        """float32 from either."""
        return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x

    @staticmethod
    def _dropped(case: Case) -> tuple:
        drop = case.drop()
        if drop is None:
            return ()
        return drop.rows, np.array([SITE, dropout_bits.threshold(drop.rate)], np.uint32)

    def gemm(self, case: Case, given: Arrays) -> Run:
        weights = case.sizes["weights"]
        a, b = turned(case, {name: x if name in weights else self._wide(x) for name, x in given.items()})
        c = self._floats((a.shape[0], b.shape[1]))
        return lambda: (self._engine.gemm(a, b, c, False), (c,))[1]

    def linear_gelu(self, case: Case, given: Arrays) -> Run:
        x, weight, bias = self._wide(given["a"]), given["b"], given["bias"]
        u, y = self._empties((len(x), len(bias)), 2)
        tanh_form = case.sizes["form"] == "tanh"
        return lambda: (self._engine.linear_gelu(x, weight, bias, tanh_form, u, y), (u, y))[1]

    def attention(self, case: Case, given: Arrays) -> Run:
        q, k, v = self._wide(given["qkv"]).swapaxes(0, 1)
        y, softmax = self._empty(q.shape), np.empty((q.shape[0] * q.shape[1], 2), np.float32)
        rest = (given["cu_seqlens"], False, self._dropped(case), y, softmax)
        return lambda: (self._engine.attention(q, k, v, *rest), (y,))[1]

    def attention_backward(self, case: Case, given: Arrays) -> Run:
        q, k, v = self._wide(given["qkv"]).swapaxes(0, 1)
        y, softmax = self._empty(q.shape), np.empty((q.shape[0] * q.shape[1], 2), np.float32)
        rest = (given["cu_seqlens"], False, self._dropped(case), y, softmax)
        self._engine.attention(q, k, v, *rest)
        dy, found = self._wide(given["dy"]), self._empties(q.shape, 3)
        return lambda: (self._engine.attention_backward(dy, q, k, v, *rest, *found), found)[1]

    def layer_norm(self, case: Case, given: Arrays) -> Run:
        x, y, mean, inverse = self._normalised(given)
        gamma, beta = given["gamma"], given["beta"]
        return lambda: (self._engine.layer_norm(x, gamma, beta, EPS, y, mean, inverse), (y,))[1]

    def _normalised(self, given: Arrays) -> tuple[np.ndarray, ...]:
        """x (T,H) and room for y (T,H), mean and inverse (T,)."""
        x = self._wide(given["x"])
        return x, self._empty(x.shape), *np.empty((2, len(x)), np.float32)

    def layer_norm_backward(self, case: Case, given: Arrays) -> Run:
        x, y, mean, inverse = self._normalised(given)
        self._engine.layer_norm(x, given["gamma"], given["beta"], EPS, y, mean, inverse)
        dy, (dgamma, dbeta) = given["dy"], np.empty((2, x.shape[1]), np.float32)
        rest = (dy, x, mean, inverse, given["gamma"], y, dgamma, dbeta, False)
        return lambda: (self._engine.layer_norm_backward(*rest), (y, dgamma, dbeta))[1]

    def residual_norm(self, case: Case, given: Arrays) -> Run:
        rest, y, *_ = self._residual_norm(case, given)
        return lambda: (self._engine.dropout_residual_layer_norm(*rest), (y,))[1]

    def _residual_norm(self, case: Case, given: Arrays) -> tuple:
        x, y, mean, inverse = self._normalised(given)
        out, total = given["out"], self._empty(x.shape)
        dropped, gamma = self._dropped(case), given["gamma"]
        rest = (x, out, given["bias"], dropped, gamma, given["beta"], EPS, total, y, mean, inverse)
        return rest, y, (total, mean, inverse, gamma, dropped)

    def residual_norm_backward(self, case: Case, given: Arrays) -> Run:
        forward, _, kept = self._residual_norm(case, given)
        self._engine.dropout_residual_layer_norm(*forward)
        shape, sums = given["dy"].shape, np.zeros((3, given["dy"].shape[1]), np.float32)
        dx = self._floats(shape)
        d_out = self._empty(shape) if case.dropout or self._narrow else None

        def run() -> tuple:  # gradients of parameters are added to what is there
            self._engine.dropout_residual_layer_norm_backward(given["dy"], *kept, dx, d_out, *sums)
            return dx, dx if d_out is None else d_out, *sums

        return run

    def gelu(self, case: Case, given: Arrays) -> Run:
        x, tanh_form = given["x"], case.sizes["form"] == "tanh"
        y = self._floats(x.shape)
        return lambda: (self._engine.gelu(x, y, tanh_form), (y,))[1]

    def gelu_backward(self, case: Case, given: Arrays) -> Run:
        x, dy, tanh_form = given["x"], given["dy"], case.sizes["form"] == "tanh"
        dx = self._floats(x.shape)
        return lambda: (self._engine.gelu_backward(dy, x, dx, tanh_form), (dx,))[1]

    def cross_entropy(self, case: Case, given: Arrays) -> Run:
        """In place, float32 in either dtype: runs after the first see other logits, which costs the same."""
        wide, labels = given["logits"], given["labels"]
        M, V = wide.shape
        logits = self._floats((M, -(-V // 16) * 16))[:, :V]  # rows begin where vectors do
        logits[:] = wide
        nll, best = np.empty(M, np.float32), np.empty(M, np.int32)

        def run() -> tuple:
            self._engine.softmax_cross_entropy(logits, labels, nll, best)
            return nll, logits

        return run

    def gather(self, case: Case, given: Arrays) -> Run:
        table = given["table"]
        y = self._floats((case.sizes["T"], table.shape[1]))
        return lambda: (self._engine.gather(given["ids"], table, y), (y,))[1]

    def scatter(self, case: Case, given: Arrays) -> Run:
        ids, rows, table = given["ids"], given["rows"], given["table"]
        return lambda: (self._engine.scatter_add(ids, rows, table), (table,))[1]

    def global_norm(self, case: Case, given: Arrays) -> Run:
        return lambda: (np.array([self._engine.global_norm(given["grads"])]),)

    def adamw(self, case: Case, given: Arrays) -> Run:
        buffers = [given[name] for name in ("params", "grads", "m", "v")]
        betas = STEP["beta1"], STEP["beta2"]
        scales = [1 / (1 - beta ** STEP["step"]) for beta in betas]
        rest = (given["decayed"], STEP["lr"], *betas, STEP["eps"], STEP["weight_decay"], *scales, 1.0)
        found = [buffers[i] for i in (0, 2, 3)]
        return lambda: (self._engine.adamw(*buffers, *rest), found)[1]


# -> (M,K) (K,N), views
def turned(case: Case, given: Arrays) -> tuple[Any, Any]:
    """Both sides of a product as it reads them, whatever way they lie in memory."""
    a, b = given["a"], given["b"]
    return a.T if "a" in case.sizes["turned"] else a, b.T if "b" in case.sizes["turned"] else b
