"""The files of sentence-transformers beside a BERT, which say how to make vectors of texts.

A folder lists modules in `modules.json`. The first is the BERT; it says how texts are read (most tokens,
lower case, a prompt before each). Those after it make a vector of the hidden states of a text: a pool, dense
layers, LayerNorm, division by the length. Older folders have the BERT itself in a folder `0_Transformer` or
`0_BERT`.
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
from minibert.base.reading import byte_pieces
from minibert.core.config import BertConfig
from minibert.hub.hugging_face import PICKLED_FILE, read_tensors
from minibert.model.pools import POOLS, WRITTEN

POOLING = "1_Pooling"  # the folder of the module that is written
ENCODER_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
AGAIN = "copy the model's folder again"
# The fields of a pooling module that switch a pool on, in the order in which several stand side by side.
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
_LAYER_NORM_EPS = 1e-5  # PyTorch's, which that module does not change


class NotDone(Exception):
    """Say what a module does that minibert does not, as part of a sentence."""


@dataclass(frozen=True)
class Dense:
    """Apply a linear layer to vectors, and a function to what comes out.

    Attributes
    ----------
    weight : (outputs, inputs) float64
        PyTorch's layout.
    bias : (outputs,) float64, or 0.0
        Added before the function.
    activation : {"Identity", "Tanh", "ReLU", "Sigmoid", "SiLU"}
        The function.
    residual : (outputs, inputs) float64, or None
        Of what goes around the layer; None: nothing does.
    """

    weight: np.ndarray
    bias: np.ndarray | float
    activation: str
    residual: np.ndarray | None = None

    # x (S,inputs) -> (S,outputs)
    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the S vectors that come of S vectors."""
        out = _ACTIVATIONS[self.activation](x @ self.weight.T + self.bias)
        if self.residual is not None:
            out = out + x @ self.residual.T
        return out

    @property
    def width(self) -> int:
        """Return how many numbers a vector has that comes out."""
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
    """Give the numbers of each vector mean 0 and variance 1, then scale and shift them."""

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
        Most tokens of a text, [CLS] and [SEP] included; longer ones lose their end.
    lower_case : bool
        Whether text is lower-cased before the tokenizer sees it.
    prompt : str
        What stands before every text; "" for nothing.
    pools : tuple of str
        "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; what several give stands
        side by side.
    reads_prompt : bool
        Whether the tokens of the prompt count in the pools.
    layers : tuple of Dense, Normalize or LayerNorm
        Functions from vectors to vectors, in their order.
    not_done : tuple of str
        What else the folder asks for, each as part of a sentence.
    """

    max_length: int
    lower_case: bool = False
    prompt: str = ""
    pools: tuple[str, ...] = ("mean",)
    reads_prompt: bool = True
    layers: tuple[Dense | Normalize | LayerNorm, ...] = ()
    not_done: tuple[str, ...] = ()

    def width(self, hidden_size: int) -> int:
        """Return how many numbers the vector of a text has.

        Parameters
        ----------
        hidden_size : int
            H of the BERT.

        Returns
        -------
        int
            That of the last dense layer; without one, H for each pool.
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
            The last of the BERT, of all sequences end to end.
        cu_seqlens : (S+1,) int
            Sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].
        prompt_tokens : int, default 0
            How many tokens at the beginning of each sequence, [CLS] included, belong to the prompt; left out
            of the pools where the folder says so.

        Returns
        -------
        (S,width) float
            Of the type of the hidden states; computed in float64.
        """
        skipped = 0 if self.reads_prompt else prompt_tokens
        pooled_width = hidden_states.shape[1] * len(self.pools)
        vectors = np.empty((len(cu_seqlens) - 1, pooled_width))
        for number, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
            first = skipped if skipped < end - begin else 0
            rows = hidden_states[begin:end].astype(np.float64)
            pooled = [_pooled(rows, first, pool) for pool in self.pools]
            vectors[number] = np.concatenate(pooled)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors.astype(hidden_states.dtype)


# rows (n,H) -> (H,)
def _pooled(rows: np.ndarray, first: int, pool: str) -> np.ndarray:
    """Pool the tokens of one sequence from number `first` on."""
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
        The folder that was named, which has `modules.json`.
    config : BertConfig
        Configuration of the BERT in it.

    Returns
    -------
    SentenceModules or None
        None where the folder has no `modules.json`. What minibert does not do is in its `not_done`, and left
        out of what it computes.

    Raises
    ------
    InputError
        When a file is damaged, or names a place outside the folder.
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
        try:
            fields = read_json(path / CONFIG_FILE) if (path / CONFIG_FILE).is_file() else {}
            if kind == "Pooling" and not pools:
                pools = _pools(fields)
                width *= len(pools)
                reads_prompt = bool(fields.get("include_prompt", True))
            elif kind in ("Dense", "LayerNorm", "Normalize"):
                if not pools:
                    raise NotDone("works on tokens")
                _require_vectors(fields)
                layer = _layer(kind, path, fields, width)
                width = layer.width if isinstance(layer, Dense) else width
                layers.append(layer)
            elif kind == "WeightedLayerPooling" and _gives_all_layers(encoder):
                raise NotDone("mixes the layers")
            elif kind not in ("Dropout", "WeightedLayerPooling"):
                raise NotDone("is not known here")
        except NotDone as error:  # what stands after it expects what it gives
            not_done.append(f"its module {kind} {error}, so it and those behind it are left out")
            break
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


def module_files(folder: str | Path) -> dict[str, bytes]:
    """Return the files of the modules of a folder, by the names that they get beside its BERT elsewhere.

    A BERT in a folder of its own becomes that at the top, as newer versions have it.

    Parameters
    ----------
    folder : str or Path
        The one with `modules.json`.

    Returns
    -------
    dict of str to bytes
        Names, with / between folders, and what the files hold; {} where there is no `modules.json`.

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
        if path == folder:
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file():
                files[file.relative_to(folder).as_posix()] = _contents(file)
    return files


def _contents(file: Path) -> bytes:
    """Return what a file holds; raise InputError when it can't be read."""
    return b"".join(byte_pieces(file))


def write_modules(folder: str | Path, length: int, pool: str = "mean") -> None:
    """Write what tells sentence-transformers how to use the model of a folder (any version from 0.3 on).

    Parameters
    ----------
    folder : str or Path
        One of `save_hf`; its `config.json` says how wide its vectors are.
    length : int
        Most tokens of a text, [CLS] and [SEP] included; longer texts lose their end.
    pool : str, default "mean"
        One of `minibert.model.pools.WRITTEN`: the mean of the hidden states of all tokens, also of these two,
        or that of [CLS].

    Raises
    ------
    InputError
        When the pool is another one, the folder has no `config.json`, or the model can't read so many tokens.
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
    """Return the entries of `modules.json`; raise InputError when one names a place outside the folder."""
    entries = modules_in(folder)
    for entry in entries:
        path = PurePosixPath(entry["path"])
        if path.is_absolute() or ".." in path.parts:
            what = f"names the folder {entry['path']!r}, which is not one of its own"
            raise InputError(f"{folder / MODULES_FILE} {what}; get the model anew.")
    return entries


def _listed(folder: Path) -> list[tuple[str, Path]]:
    """Return the kind of each module, the last part of its type, and its folder."""
    return [(entry["type"].rpartition(".")[2], folder / entry["path"]) for entry in _modules(folder)]


def _encoder_files(encoder: Path) -> list[str]:
    """Return the names of the files that say how a BERT is used, the one that counts first."""
    names = sorted(path.name for path in encoder.glob("sentence_*_config.json"))
    return sorted(names, key=lambda name: name != ENCODER_FILE)


def _default_prompt(settings: dict[str, Any]) -> str:
    """Return what stands before every text that is encoded without more being said."""
    prompts = settings.get("prompts")
    name = settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not isinstance(name, str):
        return ""
    prompt = prompts.get(name)
    return prompt if isinstance(prompt, str) else ""


def _max_length(encoder: Path, reading: dict[str, Any], config: BertConfig) -> int:
    """Return most tokens of a text: as the module says, else the tokenizer, at most the positions."""
    length = reading.get("max_seq_length")
    tokenizer_file = encoder / TOKENIZER_CONFIG_FILE
    if length is None and tokenizer_file.is_file():
        length = read_json(tokenizer_file).get("model_max_length")
    if not isinstance(length, int | float) or length < 2:
        return config.P
    return int(min(length, config.P))


def _gives_all_layers(encoder: Path) -> bool:
    """Return whether the BERT hands on the hidden states of all its layers, by its configuration."""
    return bool(read_json(encoder / CONFIG_FILE).get("output_hidden_states"))


def _pools(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return the pools that a module asks for, in their order; raise NotDone for one that is not known."""
    mode = fields.get("pooling_mode")
    if mode is None:
        mode = [pool for field, pool in _MODES.items() if fields.get(field)] or ["mean"]
    pools = [mode] if isinstance(mode, str) else mode
    is_list = isinstance(pools, list) and len(pools) > 0
    if not is_list or not all(pool in _MODES.values() for pool in pools):
        raise NotDone(f"asks for the pool {short(mode)}")
    return tuple(pools)


def _require_vectors(fields: dict[str, Any]) -> None:
    """Raise NotDone when a module reads or writes something else than the vectors of texts."""
    name = "sentence_embedding"
    for field in ("module_input_name", "module_output_name"):
        if fields.get(field) not in (None, name):
            raise NotDone(f"has {field}={short(fields[field])}")


def _layer(kind: str, path: Path, fields: dict[str, Any], width: int) -> Dense | Normalize | LayerNorm:
    """Read one module that makes vectors of vectors with `width` numbers."""
    if kind == "Normalize":
        return Normalize()
    tensors = _tensors(path)
    if kind == "LayerNorm":
        gamma = _shaped(path, tensors, "norm.weight", (width,))
        beta = _shaped(path, tensors, "norm.bias", (width,))
        return LayerNorm(gamma, beta)
    name = fields.get("activation_function", "torch.nn.modules.activation.Tanh")
    library, _, activation = str(name).rpartition(".")
    if activation not in _ACTIVATIONS or not library.startswith("torch."):
        raise NotDone(f"has the activation {short(name)}")
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
        activation=activation,
        residual=residual,
    )


def _tensors(path: Path) -> dict[str, np.ndarray]:
    """Read the weights of a module."""
    if (path / WEIGHTS_FILE).is_file():
        return read_tensors(path / WEIGHTS_FILE)[0]
    if (path / PICKLED_FILE).is_file():
        from minibert.hub.pytorch.pickled import read_pickled

        return read_pickled(path / PICKLED_FILE)[0]
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
