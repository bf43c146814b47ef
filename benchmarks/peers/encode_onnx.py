"""Sentences to hidden states by ONNX Runtime, from a graph made of its own fused operators.

Written by hand, so that it depends on no exporter: the graph that ONNX Runtime's optimizer makes of an
exported BERT has the same operators (`com.microsoft`: EmbedLayerNormalization, Attention,
SkipLayerNormalization, BiasGelu).
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.model.params import Parameters
from peers.work import Rectangle

UNTYPED = {"DefaultTensorType": TensorProto.FLOAT}  # what it cannot infer behind operators of its own
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


class OnnxRuntime:
    """One session on the CPU with all of its graph optimizations; float32, or int8 by quantize_dynamic."""

    def __init__(
        self, config: BertConfig, batch: Batch, flat: np.ndarray, threads: int, dtype: str = "float32"
    ) -> None:
        padded = Rectangle.of(batch)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = onnxruntime.InferenceSession(
            serialized(Parameters(config, flat), padded.has_padding, dtype),
            options,
            providers=["CPUExecutionProvider"],
        )
        self._real = padded.real
        self._inputs = {
            "input_ids": padded.input_ids.astype(np.int32),
            "segment_ids": padded.token_type_ids.astype(np.int32),
        }
        if padded.has_padding:
            self._inputs["lengths"] = padded.real.sum(1).astype(np.int32)

    def run(self) -> list[np.ndarray]:
        return self._session.run(["hidden", "pooled"], self._inputs)

    # -> (T,H) (S,H)
    def result(self) -> tuple[np.ndarray, np.ndarray]:
        hidden, pooled = self.run()
        return hidden[self._real], pooled


def serialized(params: Parameters, has_padding: bool, dtype: str) -> bytes:
    """The graph as a file has it; with weights of 8 bits, a scale for each column, for int8."""
    model = graph(params, has_padding)
    if dtype != "int8":
        return model.SerializeToString()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8, extra_options=UNTYPED)
        return path.read_bytes()


def graph(params: Parameters, has_padding: bool) -> onnx.ModelProto:
    """The encoder and the pooler; the input `lengths` is there where sequences are padded."""
    config = params.config
    unused = ("mlm.", "nsp.")
    tensors = [
        numpy_helper.from_array(value, name) for name, value in params.items() if not name.startswith(unused)
    ]
    tensors.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
    nodes = []

    def add(kind: str, inputs: list[str], output: str, domain: str = "", **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def fused(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        return add(kind, inputs, output, "com.microsoft", **attributes)

    eps = {"epsilon": config.layer_norm_eps}
    tables = [f"embeddings.{name}" for name in ("word", "position", "segment", "gamma", "beta")]
    embedding = ["input_ids", "segment_ids", *tables]
    nodes.append(
        helper.make_node(
            "EmbedLayerNormalization", embedding, ["x", "no_mask"], domain="com.microsoft", **eps
        )
    )
    x = "x"
    for i in range(config.L):
        at, ff = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        given = [x, f"{at}.qkv_weight", f"{at}.qkv_bias", *(["lengths"] if has_padding else [])]
        y = fused("Attention", given, f"{at}.y", num_heads=config.A)
        y = add("MatMul", [y, f"{at}.output_weight"], f"{at}.out")
        norm = [y, x, f"{at}.gamma", f"{at}.beta", f"{at}.output_bias"]
        x = fused("SkipLayerNormalization", norm, f"{at}.x", **eps)
        y = add("MatMul", [x, f"{ff}.in_weight"], f"{ff}.in")
        y = fused("BiasGelu", [y, f"{ff}.in_bias"], f"{ff}.gelu")
        y = add("MatMul", [y, f"{ff}.out_weight"], f"{ff}.out")
        norm = [y, x, f"{ff}.gamma", f"{ff}.beta", f"{ff}.out_bias"]
        last = "hidden" if i == config.L - 1 else f"{ff}.x"
        x = fused("SkipLayerNormalization", norm, last, **eps)
    first = add("Gather", [x, "first"], "cls", axis=1)
    add("Tanh", [add("Gemm", [first, "pooler.weight", "pooler.bias"], "pooler")], "pooled")

    def value(name: str, kind: int, *shape: object) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [
        value("input_ids", TensorProto.INT32, "S", "n"),
        value("segment_ids", TensorProto.INT32, "S", "n"),
    ]
    if has_padding:
        inputs.append(value("lengths", TensorProto.INT32, "S"))
    outputs = [
        value("hidden", TensorProto.FLOAT, "S", "n", config.H),
        value("pooled", TensorProto.FLOAT, "S", config.H),
    ]
    made = helper.make_graph(nodes, "bert", inputs, outputs, tensors)
    return helper.make_model(made, opset_imports=OPSETS, ir_version=8)
