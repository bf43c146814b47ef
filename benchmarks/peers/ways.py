"""Everyone who does a pre-training step or encodes, and the classes in `peers` that do."""

from typing import Any, NamedTuple

from minibert import engines

REFERENCE = "numpy"
GPU_ONLY = ("Hugging Face tuned",)


class Way(NamedTuple):
    """Who does it, in which precision."""

    engine: str
    dtype: str
    factory: str  # "module:class" in `peers`
    options: dict[str, Any] = {}
    on_gpu: dict[str, Any] | None = None  # options to add there; None where it can't go

    @property
    def title(self) -> str:
        return f"{self.engine}, {self.dtype}"


def on(device: str, found: list[Way]) -> list[Way]:
    """Those of the ways that can go on "cpu" or "gpu", as they go there."""
    if device == "cpu":
        return [way for way in found if way.engine not in GPU_ONLY]
    return [
        way._replace(options=way.options | way.on_gpu) if way.on_gpu is not None else way
        for way in found
        if way.on_gpu is not None or way.engine == REFERENCE
    ]


def _minibert(factory: str) -> list[Way]:
    return [
        Way(name, dtype, factory, {"engine": name, "dtype": dtype}, {"devices": 1} if name == "jax" else None)
        for name, engine in engines.TABLE.items()
        for dtype in ("float32", "bfloat16")
        if dtype in engine.dtypes
    ]


def training() -> list[Way]:
    """Every engine of minibert's, then every peer."""
    found, cuda = _minibert("train_minibert:Minibert"), {"device": "cuda"}
    for dtype in ("float32", "bfloat16"):
        own, compiled = {"dtype": dtype}, {"dtype": dtype, "compiled": True}
        found += [
            Way("Hugging Face", dtype, "train_pytorch:HuggingFace", own, cuda),
            Way("Hugging Face tuned", dtype, "train_pytorch:HuggingFaceTuned", compiled, cuda),
            Way("PyTorch tuned", dtype, "train_pytorch:Tuned", own, cuda),
            Way("PyTorch compiled", dtype, "train_pytorch:Tuned", compiled, cuda),
        ]
    return [*found, Way("JAX", "float32", "train_jax:Jax", {}, {})]


def encoding() -> list[Way]:
    """The same for sentences to hidden states."""
    found = _minibert("encode_minibert:Minibert")
    for dtype in ("float32", "bfloat16"):
        found += [
            Way("PyTorch", dtype, "encode_pytorch:PyTorch", {"dtype": dtype}),
            Way("PyTorch compiled", dtype, "encode_pytorch:PyTorch", {"dtype": dtype, "compiled": True}),
        ]
    int8 = {"dtype": "int8"}
    return [
        *found,
        Way("ONNX Runtime", "float32", "encode_onnx:OnnxRuntime"),
        Way("cpp", "int8", "encode_minibert:Minibert", {"engine": "cpp", **int8}),
        Way("PyTorch", "int8", "encode_pytorch:PyTorch", int8),
        Way("ONNX Runtime", "int8", "encode_onnx:OnnxRuntime", int8),
    ]
