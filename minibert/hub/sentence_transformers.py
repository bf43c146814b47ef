"""Read and write the files that tell sentence-transformers how to turn texts into vectors with a BERT.

A folder lists modules in `modules.json`. The first is the BERT, with settings of how it reads texts (the
longest text, lower case, a prompt). The modules after it turn the hidden states of a text into one vector: a
pool, dense layers, LayerNorm, division by the length. Older folders keep the BERT in a subfolder,
`0_Transformer` or `0_BERT`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.base.model_names import (
    CONFIG_FILE,
    MODULES_FILE,
    TOKENIZER_CONFIG_FILE,
    WEIGHTS_FILE,
    locate,
    modules_in,
)
from minibert.base.paths import is_too_long
from minibert.base.reading import byte_pieces
from minibert.core.config import BertConfig
from minibert.hub.hugging_face import PICKLED_FILE, read_tensors
from minibert.model.pools import POOLS, WRITTEN

POOLING = "1_Pooling"  # the folder of the module that is written
ENCODER_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
AGAIN = "copy the model's folder again"
LAYERS = ("Dense", "LayerNorm", "Normalize")  # modules that turn vectors into vectors
# The fields of a pooling module that switch a pool on. The results of several are concatenated in this order.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
}
_DEFAULT_ACTIVATION = "torch.nn.modules.activation.Tanh"
_LAYER_NORM_EPS = 1e-5  # PyTorch's default, which the module of sentence-transformers keeps
_VECTORS = "sentence_embedding"  # the name of the vectors of texts in the dictionary that modules hand on


@dataclass(frozen=True)
class Dense:
    """Apply a linear layer and an activation function to vectors.

    Attributes
    ----------
    weight : (outputs, inputs) float64
        In PyTorch's layout.
    bias : (outputs,) float64, or 0.0
        Added before the activation function.
    activation : {"Identity", "Tanh", "ReLU", "Sigmoid", "SiLU"}
        The activation function.
    residual : (outputs, inputs) float64, or None
        Weight of the residual connection around layer and activation; None without one.
    """

    weight: np.ndarray
    bias: np.ndarray | float
    activation: str
    residual: np.ndarray | None = None

    # x (S,inputs) -> (S,outputs)
    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the transformed vectors."""
        out = _ACTIVATIONS[self.activation](x @ self.weight.T + self.bias)
        if self.residual is not None:
            out = out + x @ self.residual.T
        return out

    @property
    def width(self) -> int:
        """Return the size of the vectors that come out."""
        return len(self.weight)


@dataclass(frozen=True)
class Normalize:
    """Divide each vector by its length."""

    # x (S,H) -> (S,H)
    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return vectors of length 1."""
        lengths = np.sqrt(np.sum(x * x, axis=-1, keepdims=True))
        return x / np.maximum(lengths, 1e-12)


@dataclass(frozen=True)
class LayerNorm:
    """Normalise each vector to mean 0 and variance 1, then scale and shift it."""

    gamma: np.ndarray  # (H,)
    beta: np.ndarray  # (H,)

    # x (S,H) -> (S,H)
    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return vectors of the same width."""
        centred = x - x.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + _LAYER_NORM_EPS) * self.gamma + self.beta


@dataclass(frozen=True)
class SentenceModules:
    """Describe how a folder of sentence-transformers reads texts and pools their hidden states.

    Attributes
    ----------
    max_length : int
        Most tokens of a text, [CLS] and [SEP] included; a longer text loses its end.
    lower_case : bool
        Whether text is lower-cased before the tokenizer sees it.
    prompt : str
        Text put before every text; "" for none.
    pools : tuple of str
        "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; the results of several
        are concatenated.
    reads_prompt : bool
        Whether the tokens of the prompt count in the pools.
    layers : tuple of Dense, Normalize or LayerNorm
        Functions from vectors to vectors, in the order in which they are applied.
    not_done : tuple of str
        What the folder asks for and minibert does not do, each as a clause of a sentence.
    """

    max_length: int
    lower_case: bool = False
    prompt: str = ""
    pools: tuple[str, ...] = ("mean",)
    reads_prompt: bool = True
    layers: tuple[Dense | Normalize | LayerNorm, ...] = ()
    not_done: tuple[str, ...] = ()

    def width(self, hidden_size: int) -> int:
        """Return the size of the vector of a text.

        Parameters
        ----------
        hidden_size : int
            H of the BERT.

        Returns
        -------
        int
            The number of outputs of the last dense layer; without one, H times the number of pools.
        """
        width = hidden_size * len(self.pools)
        for layer in self.layers:
            if isinstance(layer, Dense):
                width = layer.width
        return width

    # hidden_states (T,H), cu_seqlens (S+1,) -> (S,width)
    def vectors(
        self, hidden_states: np.ndarray, cu_seqlens: np.ndarray, prompt_tokens: int = 0
    ) -> np.ndarray:
        """Return the vector of each sequence, as `SentenceTransformer.encode` does.

        Parameters
        ----------
        hidden_states : (T,H) float
            Outputs of the last layer of the BERT, for all sequences end to end.
        cu_seqlens : (S+1,) int
            Sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].
        prompt_tokens : int, default 0
            How many tokens at the beginning of each sequence, [CLS] included, belong to the prompt; the pools
            leave them out if the folder says so.

        Returns
        -------
        (S,width) float
            In the dtype of the hidden states, though computed in float64.
        """
        skipped = 0 if self.reads_prompt else prompt_tokens
        pooled_width = hidden_states.shape[1] * len(self.pools)
        vectors = np.empty((len(cu_seqlens) - 1, pooled_width))
        for index, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
            first = skipped if skipped < end - begin else 0
            rows = hidden_states[begin:end].astype(np.float64)
            pooled = [_pooled(rows, first, pool) for pool in self.pools]
            vectors[index] = np.concatenate(pooled)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors.astype(hidden_states.dtype)


# rows (n,H) -> (H,)
def _pooled(rows: np.ndarray, first: int, pool: str) -> np.ndarray:
    """Pool the tokens of one sequence from index `first` on."""
    read = rows[first:]
    if pool == "cls":
        return read[0]
    if pool == "lasttoken":
        return read[-1]
    if pool == "max":
        return read.max(0)
    if pool == "mean_sqrt_len_tokens":
        return read.sum(0) / np.sqrt(len(read))
    if pool == "weightedmean":
        weights = np.arange(first + 1, len(rows) + 1)[:, None]
        return (read * weights).sum(0) / weights.sum()
    return read.mean(0)


def read_modules(model: str | Path, config: BertConfig) -> SentenceModules | None:
    """Read from the folder of a model how sentence-transformers makes vectors.

    Parameters
    ----------
    model : str or Path
        The folder that has `modules.json`, even if the BERT is in a subfolder.
    config : BertConfig
        Configuration of the BERT in it.

    Returns
    -------
    SentenceModules or None
        None if the folder has no `modules.json`. What minibert can't do is listed in `not_done`, and left out
        of what it computes.

    Raises
    ------
    InputError
        When a file is damaged, or names a path outside the folder.
    """
    folder = Path(model)
    listed = _listed(folder)
    if not listed:
        return None
    encoder = locate(folder).folder
    encoder_files = _encoder_files(encoder)
    reading = read_json(encoder / encoder_files[0]) if encoder_files else {}
    settings = read_json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    not_done: list[str] = []
    first_kind = listed[0][0]
    if first_kind not in ("Transformer", "BERT"):
        not_done.append(f"its first module, {first_kind}, is read as a plain BERT")
    if settings.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        not_done.append(f"it is a {settings['model_type']}, whose vectors are of another kind")
    pools: tuple[str, ...] = ()
    reads_prompt = True
    layers: list[Dense | Normalize | LayerNorm] = []
    width = config.H
    for kind, path in listed[1:]:
        fields = read_json(path / CONFIG_FILE) if (path / CONFIG_FILE).is_file() else {}
        reason = _why_not(kind, fields, encoder, is_pooled=bool(pools))
        if reason:  # the modules after it expect its results
            not_done.append(f"its module {kind} {reason}, so it and those after it are left out")
            break
        if kind == "Pooling":
            pools = _pools(fields)
            width *= len(pools)
            reads_prompt = bool(fields.get("include_prompt", True))
        elif kind in LAYERS:
            layer = _layer(kind, path, fields, width)
            width = layer.width if isinstance(layer, Dense) else width
            layers.append(layer)
    if not pools:
        pools = ("mean",)
        if not not_done:
            not_done.append("it has no pool, and the mean of the tokens is taken")
    return SentenceModules(
        max_length=_max_length(encoder, reading, config),
        lower_case=bool(reading.get("do_lower_case", False)),
        prompt=_default_prompt(settings),
        pools=pools,
        reads_prompt=reads_prompt,
        layers=tuple(layers),
        not_done=tuple(not_done),
    )


def _why_not(kind: str, fields: dict[str, Any], encoder: Path, is_pooled: bool) -> str:
    """Return why minibert can't do what a module after the BERT does, as a predicate; "" if it can."""
    if kind == "Dropout":
        return ""
    if kind == "WeightedLayerPooling":
        return "mixes the layers" if _gives_all_layers(encoder) else ""
    if kind == "Pooling" and not is_pooled:
        return "" if _pools(fields) else f"asks for the pool {short(_pooling_mode(fields))}"
    if kind not in LAYERS:
        return "is not known here"
    if not is_pooled:
        return "works on tokens"
    for field in ("module_input_name", "module_output_name"):
        if fields.get(field) not in (None, _VECTORS):
            return f"has {field}={short(fields[field])}"
    if kind == "Dense" and not _activation(fields):
        return f"has the activation {short(fields['activation_function'])}"
    return ""


def module_files(folder: str | Path) -> dict[str, bytes]:
    """Return the module files to copy when the model is saved, keyed by their path in the new folder.

    A BERT in a subfolder moves to the top of the new folder, where newer versions of the library keep it.

    Parameters
    ----------
    folder : str or Path
        The folder that has `modules.json`.

    Returns
    -------
    dict of str to bytes
        Contents of the files by path, with / between folders; {} if there is no `modules.json`.

    Raises
    ------
    InputError
        When a file is damaged or can't be read.
    """
    folder = Path(folder)
    listed = _listed(folder)
    if not listed:
        return {}
    encoder = locate(folder).folder
    files = {MODULES_FILE: _contents(folder / MODULES_FILE)}
    if encoder != folder:
        first, *others = _modules(folder)
        files[MODULES_FILE] = _json_bytes([first | {"path": ""}, *others])
    settings = [folder / SETTINGS_FILE]
    settings += [encoder / name for name in _encoder_files(encoder)[:1]]
    for file in settings:
        if file.is_file():
            files[file.name] = _contents(file)
    for _, path in listed[1:]:
        # A module without files of its own, such as Normalize, may have the path "": the whole model.
        if path == folder:
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file():
                files[file.relative_to(folder).as_posix()] = _contents(file)
    return files


def _contents(file: Path) -> bytes:
    """Return the bytes of a file; raise InputError when it can't be read."""
    return b"".join(byte_pieces(file))


def write_modules(folder: str | Path, length: int, pool: str = "mean") -> None:
    """Write the files that tell sentence-transformers, from version 0.3 on, how to use the model of a folder.

    Parameters
    ----------
    folder : str or Path
        A folder that `save_hf` wrote; its `config.json` has the size of the vectors.
    length : int
        Most tokens of a text, [CLS] and [SEP] included; a longer text loses its end.
    pool : str, default "mean"
        One of `minibert.model.pools.WRITTEN`: the mean of the hidden states of all tokens, including [CLS]
        and [SEP], or the hidden state of [CLS].

    Raises
    ------
    InputError
        When `pool` is not in `WRITTEN`, the folder has no `config.json`, or the model has fewer positions
        than `length`.
    """
    folder = Path(folder)
    if pool not in WRITTEN:
        raise InputError(f"{pool=} is not sentence-transformers'; choose {' or '.join(WRITTEN)}.", pool=pool)
    config = read_json(folder / CONFIG_FILE, {"hidden_size": int, "max_position_embeddings": int})
    most = config["max_position_embeddings"]
    if not 2 <= length <= most:
        raise InputError(f"{length=} is not possible; give 2 to the model's {most} positions.", length=length)
    modules = [_module(0, "", "Transformer"), _module(1, POOLING, "Pooling")]
    pooling: dict[str, Any] = {POOLS[name].written_as: name == pool for name in WRITTEN}
    pooling["word_embedding_dimension"] = config["hidden_size"]
    atomic_json(folder / MODULES_FILE, modules)
    atomic_json(folder / ENCODER_FILE, {"max_seq_length": length, "do_lower_case": False})
    atomic_json(folder / SETTINGS_FILE, {"similarity_fn_name": "cosine"})
    atomic_json(folder / POOLING / CONFIG_FILE, pooling)


def _module(number: int, path: str, kind: str) -> dict[str, Any]:
    """Return an entry of `modules.json`."""
    return {
        "idx": number,
        "name": str(number),
        "path": path,
        "type": f"sentence_transformers.models.{kind}",
    }


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of `modules.json`; raise InputError when one names a path outside the folder."""
    entries = modules_in(folder)
    for entry in entries:
        path = PurePosixPath(entry["path"])
        if path.is_absolute() or ".." in path.parts or is_too_long(folder / path):
            what = f"names the folder {short(entry['path'])}, which is not one of its own"
            raise InputError(f"{folder / MODULES_FILE} {what}; get the model again.")
    return entries


def _listed(folder: Path) -> list[tuple[str, Path]]:
    """Return for each module its kind, which is the last part of its type, and its folder."""
    return [(entry["type"].rpartition(".")[2], folder / entry["path"]) for entry in _modules(folder)]


def _encoder_files(encoder: Path) -> list[str]:
    """Return the names of the files that say how a BERT is used; the first takes precedence."""
    names = sorted(path.name for path in encoder.glob("sentence_*_config.json"))
    return sorted(names, key=lambda name: name != ENCODER_FILE)


def _default_prompt(settings: dict[str, Any]) -> str:
    """Return the prompt put before every text unless the caller names another; "" for none."""
    prompts = settings.get("prompts")
    name = settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not isinstance(name, str):
        return ""
    prompt = prompts.get(name)
    return prompt if isinstance(prompt, str) else ""


def _max_length(encoder: Path, reading: dict[str, Any], config: BertConfig) -> int:
    """Return the most tokens of a text: what the module says, or else the tokenizer, up to the positions."""
    length = reading.get("max_seq_length")
    tokenizer_file = encoder / TOKENIZER_CONFIG_FILE
    if length is None and tokenizer_file.is_file():
        length = read_json(tokenizer_file).get("model_max_length")
    if not isinstance(length, int | float) or not length >= 2:  # NaN is not less either
        return config.P
    return int(min(length, config.P))


def _gives_all_layers(encoder: Path) -> bool:
    """Return whether the configuration of the BERT makes it return the hidden states of all its layers."""
    return bool(read_json(encoder / CONFIG_FILE).get("output_hidden_states"))


def _pooling_mode(fields: dict[str, Any]) -> Any:
    """Return the pool or list of pools that a pooling module asks for, whatever is in its file."""
    mode = fields.get("pooling_mode")
    if mode is None:
        return [pool for field, pool in _MODES.items() if fields.get(field)] or ["mean"]
    return mode


def _pools(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return the pools that a pooling module asks for, in order; () if one of them is not known."""
    mode = _pooling_mode(fields)
    pools = [mode] if isinstance(mode, str) else mode
    if not isinstance(pools, list) or not all(pool in _MODES.values() for pool in pools):
        return ()
    return tuple(pools)


def _activation(fields: dict[str, Any]) -> str:
    """Return the key in `_ACTIVATIONS` of a dense module's activation function; "" if it is not known."""
    name = fields.get("activation_function", _DEFAULT_ACTIVATION)
    library, _, activation = str(name).rpartition(".")
    return activation if activation in _ACTIVATIONS and library.startswith("torch.") else ""


def _layer(kind: str, path: Path, fields: dict[str, Any], width: int) -> Dense | Normalize | LayerNorm:
    """Read one module of a kind in `LAYERS`; the vectors that it reads have `width` numbers."""
    if kind == "Normalize":
        return Normalize()
    tensors = _tensors(path)
    if kind == "LayerNorm":
        gamma = _shaped(path, tensors, "norm.weight", (width,))
        beta = _shaped(path, tensors, "norm.bias", (width,))
        return LayerNorm(gamma, beta)
    weight = tensors.get("linear.weight")
    outputs = weight.shape[0] if weight is not None and weight.ndim == 2 else 1
    residual = None
    if fields.get("use_residual"):
        residual = np.eye(width)
        if outputs != width:
            residual = _shaped(path, tensors, "residual.weight", (outputs, width))
    return Dense(
        weight=_shaped(path, tensors, "linear.weight", (outputs, width)),
        bias=_shaped(path, tensors, "linear.bias", (outputs,)) if fields.get("bias", True) else 0.0,
        activation=_activation(fields),
        residual=residual,
    )


def _tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of a module by name; safetensors take precedence over a pickled file."""
    if (path / WEIGHTS_FILE).is_file():
        tensors, _ = read_tensors(path / WEIGHTS_FILE)
        return tensors
    if (path / PICKLED_FILE).is_file():
        from minibert.hub.pytorch.pickled import read_pickled

        tensors, _ = read_pickled(path / PICKLED_FILE)
        return tensors
    raise InputError(f"{path} has no {WEIGHTS_FILE} or {PICKLED_FILE}; {AGAIN}.")


def _shaped(path: Path, tensors: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tensor of a module in float64; raise InputError when it has another shape or is not finite."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape:
        there = "is missing" if tensor is None else f"has shape {tensor.shape}"
        raise InputError(f"{name} {there}, and {shape} is expected; {AGAIN}.", where=str(path))
    values = np.asarray(tensor, np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{name} has values that are not finite numbers; {AGAIN}.", where=str(path))
    return values


def _json_bytes(value: Any) -> bytes:
    """Return JSON as `atomic_json` writes it."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
