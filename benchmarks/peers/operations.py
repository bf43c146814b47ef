"""The operations of BERT one by one: what goes into each, what it computes, what it has to move.

An operation is counted by what cannot be avoided: a multiply-add of the mathematics is two operations, every
argument is read once and every result is written once. What an implementation does beyond that is its affair.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from minibert.core.ops import dropout_bits

RATE = 0.1  # of dropout
SITE = 5  # where dropout stands in the network
EPS = 1e-12
TOKENS, VOCABULARY, HEAD = 4096, 30522, 64
STEP = {"lr": 1e-4, "step": 7, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.01}
FLOAT = 4  # bytes of a float32

Arrays = dict[str, Any]


class Case(NamedTuple):
    """One operation at one size.

    Attributes
    ----------
    op : its name, which is that of the method of everyone who does it.
    what : the same in words.
    sizes : letters of the core (docs/architecture.md) and their values; `n` is the length of every sequence.
    dropout : whether it has any.
    seq : length of sequences where that matters.
    """

    op: str
    what: str
    sizes: dict[str, Any]
    dropout: bool = False
    seq: int | None = None

    @property
    def title(self) -> str:
        """What the rows of tables are called."""
        if self.seq:
            return f"{self.what}, length {self.seq}"
        return f"{self.what}, " + " × ".join(f"{n}" for n in self.sizes.values() if not isinstance(n, str))

    @property
    def multiplies(self) -> bool:
        """Whether multiply-adds are its limit; memory is that of the others."""
        return self.op in ("gemm", "linear_gelu", "attention", "attention_backward")

    @property
    def operations(self) -> int:
        """Floating-point operations of what multiplies."""
        s = self.sizes
        if self.op in ("gemm", "linear_gelu"):
            return 2 * s["M"] * s["N"] * s["K"]
        products = {"attention": 2, "attention_backward": 4}.get(self.op, 0)
        return products and products * 2 * s["T"] * s["n"] * s["A"] * HEAD

    def moved(self, wide: int) -> int:
        """Bytes read and written, were everything in elements of so many bytes that can be."""
        s = self.sizes
        elements = math.prod(value for value in s.values() if not isinstance(value, str))
        count = {
            "gelu": 2,
            "gelu_backward": 3,
            "layer_norm": 2,
            "layer_norm_backward": 3,
            "residual_norm": 4,  # the sum is kept for backward
            "residual_norm_backward": 4,
            "cross_entropy": 2,
            "gather": 2,
            "scatter": 3,
            "adamw": 7,
            "global_norm": 1,
        }[self.op]
        if self.op in ("gather", "scatter"):
            elements = s["T"] * s["H"]
        return count * elements * (FLOAT if self.op in ALWAYS_FLOAT else wide)

    def comes_in(self, dtype: str) -> bool:
        """Whether there is anything to it that is of this type."""
        return dtype == "float32" or self.op not in ALWAYS_FLOAT

    def given(self, dtype: str) -> Arrays:
        """Arguments, the same for everyone.

        Parameters
        ----------
        dtype : of activations and weights; values are rounded to it, and float32 carries them.
        """
        found = ARGUMENTS[self.op](np.random.default_rng(3), self.sizes)
        if dtype == "bfloat16" and self.op not in ALWAYS_FLOAT:
            found |= {name: rounded(x) for name, x in found.items() if name not in STATISTICS}
        return found

    def drop(self) -> dropout_bits.Dropout | None:
        """minibert's dropout of this case."""
        if not self.dropout:
            return None
        T, n = self.sizes["T"], self.sizes.get("n", self.sizes["T"])
        rows = np.arange(T)
        return dropout_bits.Dropout(RATE, RATE, dropout_bits.row_keys(np, 11, 3, rows // n, rows % n))


ALWAYS_FLOAT = ("adamw", "global_norm", "gather", "scatter")
STATISTICS = ("gamma", "beta", "bias", "ids", "labels", "cu_seqlens", "decayed")


def rounded(x: np.ndarray) -> np.ndarray:
    """x (...) float32 to the nearest bfloat16, ties to even; still float32."""
    return (halves(x).astype(np.uint32) << 16).view(np.float32)


def halves(x: np.ndarray) -> np.ndarray:
    """x (...) float32 as bfloat16: the upper halves of the bits, uint16."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def _normal(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return generator.standard_normal(shape, np.float32) * np.float32(scale)


def _gemm(generator: np.random.Generator, s: dict) -> Arrays:
    """a (M,K)  b (K,N), either of them perhaps as the transpose of how it lies in memory."""
    a = _normal(generator, *((s["K"], s["M"]) if "a" in s["turned"] else (s["M"], s["K"])))
    b = _normal(generator, *((s["N"], s["K"]) if "b" in s["turned"] else (s["K"], s["N"])), scale=0.02)
    return {"a": a, "b": b}


def _linear(generator: np.random.Generator, s: dict) -> Arrays:
    """a (M,K)  b (K,N)  bias (N,)"""
    return _gemm(generator, s | {"turned": ""}) | {"bias": _normal(generator, s["N"])}


def _attention(generator: np.random.Generator, s: dict) -> Arrays:
    """qkv (T,3,A,D)  dy (T,A,D)"""
    T, A, n = s["T"], s["A"], s["n"]
    begins = np.arange(0, T + 1, n, dtype=np.int32)
    return {
        "qkv": _normal(generator, T, 3, A, HEAD),
        "dy": _normal(generator, T, A, HEAD),
        "cu_seqlens": begins,
    }


def _norm(generator: np.random.Generator, s: dict) -> Arrays:
    """x out dy (T,H)  gamma beta bias (H,)"""
    T, H = s["T"], s["H"]
    rows = {name: _normal(generator, T, H) for name in ("x", "out", "dy")}
    return rows | {name: 1 + _normal(generator, H, scale=0.1) for name in ("gamma", "beta", "bias")}


def _gelu(generator: np.random.Generator, s: dict) -> Arrays:
    return {"x": _normal(generator, s["T"], s["F"], scale=2), "dy": _normal(generator, s["T"], s["F"])}


def _cross_entropy(generator: np.random.Generator, s: dict) -> Arrays:
    """logits (M,V)  labels (M,)"""
    M, V = s["M"], s["V"]
    labels = generator.integers(0, V, M).astype(np.int32)
    return {"logits": _normal(generator, M, V, scale=3), "labels": labels}


def _table(generator: np.random.Generator, s: dict) -> Arrays:
    """table (V,H)  ids (T,), frequent ones often  rows (T,H)"""
    ids = np.exp(generator.random(s["T"]) * np.log(s["V"])).astype(np.int32).clip(0, s["V"] - 1)
    table = _normal(generator, s["V"], s["H"])
    return {"table": table, "ids": ids, "rows": _normal(generator, s["T"], s["H"])}


def _flat(generator: np.random.Generator, s: dict) -> Arrays:
    """params grads m v (N,)  decayed (2,2)"""
    N = s["N"]
    return {
        "params": _normal(generator, N, scale=0.02),
        "grads": _normal(generator, N, scale=1e-3),
        "m": _normal(generator, N, scale=1e-3),
        "v": _normal(generator, N, scale=1e-3) ** 2,
        "decayed": np.array([[0, N // 2], [N // 2 + 768, N - 768]]),
    }


ARGUMENTS = {
    "gemm": _gemm,
    "linear_gelu": _linear,
    "attention": _attention,
    "attention_backward": _attention,
    "layer_norm": _norm,
    "layer_norm_backward": _norm,
    "residual_norm": _norm,
    "residual_norm_backward": _norm,
    "gelu": _gelu,
    "gelu_backward": _gelu,
    "cross_entropy": _cross_entropy,
    "gather": _table,
    "scatter": _table,
    "adamw": _flat,
    "global_norm": _flat,
}


def _product(what: str, M: int, N: int, K: int, turned: str = "", weights: str = "b") -> Case:
    """weights : sides that stay float32 where activations are bfloat16; the engine rounds as it reads."""
    return Case("gemm", what, {"M": M, "N": N, "K": K, "turned": turned, "weights": weights})


def _of_attention(n: int, T: int, A: int, dropout: bool) -> list[Case]:
    words = "dropout 0.1" if dropout else "no dropout"
    return [
        Case(op, f"{what}, {words}", {"T": T, "n": n, "A": A}, dropout, n)
        for op, what in (("attention", "attention"), ("attention_backward", "attention's gradient"))
    ]


def plan(quick: bool) -> list[Case]:
    """Everything there is to measure; small and little of it when `quick`."""
    if quick:
        T, H, F, V, M, N, lengths = 128, 64, 256, 999, 20, 100_000, (16,)
        products = [_product("x W", 64, 96, 48), _product("xᵀ dy", 96, 48, 64, "a", "")]
        products.append(_product("dy Wᵀ", 64, 48, 96, "b"))
    else:
        T, H, F, V, M, N, lengths = (
            TOKENS,
            768,
            3072,
            VOCABULARY,
            600,
            11_000_000,
            (16, 32, 64, 128, 256, 512),
        )
        products = [
            _product("x W", 2048, 3072, 768),
            _product("x W", 2048, 768, 3072),
            _product("dy Wᵀ", 2048, 768, 3072, "b"),
            _product("xᵀ dy, gradient of W", 768, 3072, 2048, "a", ""),
            _product("xᵀ dy, gradient of W", 3072, 768, 2048, "a", ""),
            _product("xᵀ dy, gradient of W", 256, 1024, 4096, "a", ""),
            _product("x W", 4096, 1024, 256),
            _product("x W", 4096, 256, 1024),
            _product("decoder, x Eᵀ", M, V, 256, "b", "ab"),
            _product("decoder, dy E", M, 256, V),
            _product("decoder, dyᵀ x, gradient of E", V, 256, M, "a"),
        ]
    attention = [case for n in lengths for case in _of_attention(n, T, 4, True)]
    attention += [case for n in lengths[3:] for case in _of_attention(n, T, 4, False)]
    norm, inner, table = {"T": T, "H": H}, {"T": T // 2, "F": F}, {"T": T, "H": 256, "V": V}
    into = {"M": products[0].sizes["M"], "N": F, "K": H, "form": "erf"}
    return [
        *products,
        Case("linear_gelu", "gelu(x W + b)", into),
        *attention,
        Case("layer_norm", "LayerNorm", norm),
        Case("layer_norm_backward", "LayerNorm's gradient", norm),
        Case("residual_norm", "LayerNorm(x + dropout(out + b))", norm, True),
        Case("residual_norm_backward", "its gradient", norm, True),
        *(
            Case(op, f"GELU{what}, {form}", inner | {"form": form})
            for form in ("erf", "tanh")
            for op, what in (("gelu", ""), ("gelu_backward", "'s gradient"))
        ),
        Case("cross_entropy", "softmax cross-entropy and its gradient", {"M": M, "V": V}),
        Case("gather", "rows of a table", table),
        Case("scatter", "adding to rows of a table", table),
        Case("global_norm", "norm of all gradients", {"N": N}),
        Case("adamw", "AdamW", {"N": N}),
    ]
