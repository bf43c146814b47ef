"""A model as ONNX, by way of transformers and PyTorch, which an extra of the package brings.

What is written is the model of transformers that a folder of `save_hf` holds: ids, a mask of what is not
padding and types of tokens go in, of any number of texts and tokens; what its class gives comes out. It is
run with onnxruntime and compared with what transformers computes.
"""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, RunError
from minibert.base.json_files import read_json
from minibert.hub.hugging_face import CONFIG_FILE

ONNX_FILE = "model.onnx"
LIBRARIES = ("torch", "transformers", "onnx", "onnxruntime")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17
TOLERANCE = 1e-5  # of numbers up to 1, and of larger ones in relation to the largest
# What the classes give out, in the order of their outputs; of all others it is "logits".
OUTPUTS = {
    "BertModel": ("last_hidden_state", "pooler_output"),
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
}
CHOICES = "BertForMultipleChoice"  # which reads (examples, choices, tokens)


def require_libraries() -> None:
    """Raise InputError, with what to install, where a library is missing."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            how = "pip install 'minibert-scratch[onnx]' brings it with the others"
            raise InputError(f"--onnx needs {name}, which is not installed; {how}.")


def write_onnx(folder: str | Path, has_pooler: bool = True) -> float:
    """Write `model.onnx` beside the model of a folder.

    Parameters
    ----------
    folder : one of `save_hf`, whose `config.json` names the class of transformers.
    has_pooler : bool, whether the pooler of a bare encoder was trained; its output is left out otherwise.

    Returns
    -------
    float, the largest difference between onnxruntime's numbers and those of transformers.

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
        outputs, more = outputs[:1], {"add_pooling_layer": False}
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    loaded = getattr(transformers, kind).from_pretrained(
        folder, attn_implementation="eager", local_files_only=True, **more
    )
    model = _Outputs.of(torch, loaded.float().eval(), outputs)
    asked = _inputs(torch, loaded.config, kind)
    names = ("texts", "choices", "tokens") if kind == CHOICES else ("texts", "tokens")
    axes: dict[str, dict[int, str]] = {name: dict(enumerate(names)) for name in INPUTS}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # what PyTorch says of tracing; the result is compared below
        right = [one.numpy() for one in model(*asked)]
        axes |= {name: _axes(name) for name in outputs}
        torch.onnx.export(
            model,
            asked,
            folder / ONNX_FILE,
            input_names=INPUTS,
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
        other = _inputs(torch, loaded.config, kind, texts=3, tokens=9)
        error = max(_difference(folder, asked, right), _difference(folder, other, _computed(model, other)))
    if not error <= TOLERANCE:
        raise RunError(f"{ONNX_FILE} computes something else than transformers: they differ by {error:.2g}.")
    return error


class _Outputs:
    """Makes a module of transformers give out a tuple of some of its outputs."""

    @staticmethod
    def of(torch: Any, model: Any, names: tuple[str, ...]) -> Any:
        class Outputs(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
                found = self.model(
                    input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
                )
                return tuple(found[name] for name in names)

        return Outputs().eval()


def _inputs(torch: Any, config: Any, kind: str, texts: int = 2, tokens: int = 7) -> tuple[Any, ...]:
    """Draw ids, a mask with padding at the end of the last text, and types, always the same."""
    draw = np.random.default_rng(tokens)
    tokens = min(tokens, config.max_position_embeddings)
    shape = (texts, 2, tokens) if kind == CHOICES else (texts, tokens)
    ids = draw.integers(0, config.vocab_size, shape)
    mask = np.ones(shape, np.int64)
    mask[-1, ..., tokens - tokens // 3 :] = 0
    types = np.sort(draw.integers(0, min(2, config.type_vocab_size), shape), axis=-1)
    return tuple(torch.tensor(one) for one in (ids, mask, types))


def _axes(output: str) -> dict[int, str]:
    """Name the axes of an output that depend on the input."""
    of_tokens = output in ("last_hidden_state", "prediction_logits", "start_logits", "end_logits")
    return {0: "texts", 1: "tokens"} if of_tokens else {0: "texts"}


def _computed(model: Any, asked: tuple[Any, ...]) -> list[np.ndarray]:
    return [one.numpy() for one in model(*asked)]


def _difference(folder: Path, asked: tuple[Any, ...], right: list[np.ndarray]) -> float:
    """Return how far the numbers of onnxruntime are from the right ones."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / ONNX_FILE, options, providers=["CPUExecutionProvider"])
    known = {one.name for one in session.get_inputs()}
    given = {name: one.numpy() for name, one in zip(INPUTS, asked, strict=True) if name in known}
    found = session.run(None, given)
    errors = [
        float(np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max()))
        for ours, theirs in zip(found, right, strict=True)
    ]
    return max(errors)
