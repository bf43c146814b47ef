"""Everyone who does a pre-training step or encodes, and the classes in `peers` that do."""

from typing import Any, NamedTuple

from minibert import backends


class Way(NamedTuple):
    """Who does it, in which precision."""

    engine: str
    dtype: str
    factory: str  # "module:class" in `peers`
    options: dict[str, Any] = {}

    @property
    def title(self) -> str:
        return f"{self.engine}, {self.dtype}"


def _minibert(factory: str) -> list[Way]:
    return [
        Way(name, dtype, factory, {"engine": name, "dtype": dtype})
        for name, engine in backends.TABLE.items()
        for dtype in ("float32", "bfloat16")
        if dtype in engine.dtypes
    ]


def training() -> list[Way]:
    """Every engine of minibert's, then every peer."""
    found = _minibert("train_minibert:Minibert")
    for dtype in ("float32", "bfloat16"):
        found += [
            Way("Hugging Face", dtype, "train_pytorch:HuggingFace", {"dtype": dtype}),
            Way("PyTorch tuned", dtype, "train_pytorch:Tuned", {"dtype": dtype}),
            Way("PyTorch compiled", dtype, "train_pytorch:Tuned", {"dtype": dtype, "compiled": True}),
        ]
    return [*found, Way("JAX", "float32", "train_jax:Jax")]


def encoding() -> list[Way]:
    """The same for sentences to hidden states."""
    found = _minibert("encode_minibert:Minibert")
    for dtype in ("float32", "bfloat16"):
        found += [
            Way("PyTorch", dtype, "encode_pytorch:PyTorch", {"dtype": dtype}),
            Way("PyTorch compiled", dtype, "encode_pytorch:PyTorch", {"dtype": dtype, "compiled": True}),
        ]
    return [*found, Way("ONNX Runtime", "float32", "encode_onnx:OnnxRuntime")]
