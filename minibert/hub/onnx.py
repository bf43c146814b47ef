"""Write a model as ONNX, with transformers and PyTorch, which an extra of the package installs.

The model is the one that transformers loads from a folder of `save_hf`. Its inputs are ids, a mask of padding
and types of tokens, for any number of texts and tokens; its outputs are those of its class. It is run with
onnxruntime, and the results are compared with those of transformers.
"""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, RunError
from minibert.base.json_files import read_json
from minibert.base.model_names import CONFIG_FILE

ONNX_FILE = "model.onnx"
LIBRARIES = ("torch", "transformers", "onnx", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17
TOLERANCE = 1e-5  # absolute, or relative to the largest number if that is above 1
# The outputs of each class, in order; all other classes have "logits".
OUTPUTS = {
    "BertModel": ("last_hidden_state", "pooler_output"),
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
}
CHOICES = "BertForMultipleChoice"  # its inputs are (examples, choices, tokens)


def require_libraries() -> None:
    """Check that the libraries are installed, without importing them.

    Raises
    ------
    InputError
        When one is missing; the error says what to install.
    """
    for name in LIBRARIES:
        if find_spec(name) is None:
            how = "pip install '.[onnx]' brings it with the others"
            raise InputError(f"ONNX needs {name}, which is not installed; {how}.")


def write_onnx(folder: str | Path, has_pooler: bool = True) -> float:
    """Write `model.onnx` into the folder of a model.

    Parameters
    ----------
    folder : str or Path
        A folder of `save_hf`; its `config.json` names the class of transformers.
    has_pooler : bool, default True
        Whether the pooler of a bare encoder was trained; otherwise its output is left out.

    Returns
    -------
    float
        The largest difference between the numbers of onnxruntime and of transformers, divided by the largest
        number if that is above 1.

    Raises
    ------
    InputError
        When a library is missing.
    RunError
        When the two differ by more than 1e-5.
    """
    require_libraries()
    import torch
    import transformers

    folder = Path(folder)
    kind = read_json(folder / CONFIG_FILE, {"architectures": tuple[str, ...]})["architectures"][0]
    outputs = OUTPUTS.get(kind, ("logits",))
    more: dict[str, Any] = {}
    if kind == "BertModel" and not has_pooler:
        outputs = outputs[:1]
        more["add_pooling_layer"] = False
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    loaded = getattr(transformers, kind).from_pretrained(
        folder, attn_implementation="eager", local_files_only=True, **more
    )
    model = _Outputs.of(torch, loaded.float().eval(), outputs)
    inputs = _inputs(torch, loaded.config, kind)
    names = ("texts", "choices", "tokens") if kind == CHOICES else ("texts", "tokens")
    axes: dict[str, dict[int, str]] = {}
    for name in INPUTS:
        axes[name] = dict(enumerate(names))
    for name in outputs:
        axes[name] = _axes(name)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # PyTorch warns about tracing; the result is compared below
        expected = _computed(model, inputs)
        torch.onnx.export(
            model,
            inputs,
            folder / ONNX_FILE,
            input_names=INPUTS,
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
        error = _difference(folder, inputs, expected)
        # A second batch of another size shows that the axes are free.
        larger = _inputs(torch, loaded.config, kind, texts=3, tokens=9)
        error = max(error, _difference(folder, larger, _computed(model, larger)))
    if not error <= TOLERANCE:
        raise RunError(f"{ONNX_FILE} computes something else than transformers: they differ by {error:.2g}.")
    return error


class _Outputs:
    """Make a module of transformers return a tuple of some of its outputs."""

    @staticmethod
    def of(torch: Any, model: Any, names: tuple[str, ...]) -> Any:
        """Return a module around a model that returns the named outputs."""

        class Outputs(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
                outputs = self.model(
                    input_ids=input_ids,
                    attention_mask=attention_mask,
                    token_type_ids=token_type_ids,
                )
                return tuple(outputs[name] for name in names)

        return Outputs().eval()


def _inputs(torch: Any, config: Any, kind: str, texts: int = 2, tokens: int = 7) -> tuple[Any, ...]:
    """Draw ids, a mask with padding at the end of the last text, and types; the draws are always the same."""
    draw = np.random.default_rng(tokens)
    tokens = min(tokens, config.max_position_embeddings)
    shape: tuple[int, ...] = (texts, tokens)
    if kind == CHOICES:
        shape = (texts, 2, tokens)
    ids = draw.integers(0, config.vocab_size, shape)
    mask = np.ones(shape, np.int64)
    n_padding = tokens // 3
    mask[-1, ..., tokens - n_padding :] = 0
    n_types = min(2, config.type_vocab_size)
    types = np.sort(draw.integers(0, n_types, shape), axis=-1)
    return torch.tensor(ids), torch.tensor(mask), torch.tensor(types)


def _axes(output: str) -> dict[int, str]:
    """Name the axes of an output that depend on the input."""
    if output in ("last_hidden_state", "prediction_logits", "start_logits", "end_logits"):
        return {0: "texts", 1: "tokens"}
    return {0: "texts"}


def _computed(model: Any, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    """Return the outputs of a module of PyTorch as arrays."""
    return [output.numpy() for output in model(*inputs)]


def _difference(folder: Path, inputs: tuple[Any, ...], expected: list[np.ndarray]) -> float:
    """Return how far the numbers of onnxruntime are from the expected ones."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / ONNX_FILE, options, providers=["CPUExecutionProvider"])
    used = {node.name for node in session.get_inputs()}  # some inputs may have been optimised away
    feed = {}
    for name, tensor in zip(INPUTS, inputs, strict=True):
        if name in used:
            feed[name] = tensor.numpy()
    errors = []
    for ours, theirs in zip(session.run(None, feed), expected, strict=True):
        scale = max(1.0, np.abs(theirs).max())
        errors.append(float(np.abs(ours - theirs).max() / scale))
    return max(errors)
