"""What sentence-transformers makes vectors of texts by: its files beside a BERT, read and written.

A folder lists modules in `modules.json`. The first is the BERT; it says how texts are read (most tokens,
lower case, a prompt before each). Those behind it make a vector of the hidden states of a text: a pool, dense
layers, LayerNorm, division by the length. Older folders have the BERT itself in a folder `0_Transformer` or
`0_BERT`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.base.model_names import MODULES_FILE, locate, modules_in
from minibert.base.reading import byte_pieces
from minibert.core.config import BertConfig
from minibert.hub.hugging_face import CONFIG_FILE, PICKLED_FILE, WEIGHTS_FILE, read_tensors

POOLING = "1_Pooling"  # the folder of the module that is written
POOLS = ("mean", "cls")  # what is written: what it has in common with `minibert features`
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
    """A module does what minibert does not; the text says what, as part of a sentence."""


@dataclass(frozen=True)
class Dense:
    """A linear layer on vectors, with a function on what comes out."""

    weight: np.ndarray  # (outputs, inputs)
    bias: np.ndarray | float
    activation: str  # one of `_ACTIVATIONS`
    residual: np.ndarray | None = None  # (outputs, inputs) of what goes around the layer; None: nothing does

    # x (S,inputs) -> (S,outputs)
    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the vectors that come of vectors."""
        out = _ACTIVATIONS[self.activation](x @ self.weight.T + self.bias)
        if self.residual is not None:
            out = out + x @ self.residual.T
        return out

    @property
    def width(self) -> int:
        """Numbers in a vector that comes out."""
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
    """Make the numbers of each vector of mean 0 and variance 1, then scale and shift them."""

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
    """How a folder of sentence-transformers has texts read, and what it makes of their hidden states.

    Attributes
    ----------
    max_length : int, most tokens of a text, [CLS] and [SEP] included; longer ones lose their end.
    lower_case : bool, whether text is lower-cased before the tokenizer sees it.
    prompt : str, what stands before every text; "" for nothing.
    pools : tuple of str, "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; what
        several give stands side by side.
    reads_prompt : bool, whether the tokens of the prompt count in the pools.
    layers : tuple of functions from vectors to vectors, in their order.
    not_done : tuple of str, what else the folder asks for, each as part of a sentence.
    """

    max_length: int
    lower_case: bool = False
    prompt: str = ""
    pools: tuple[str, ...] = ("mean",)
    reads_prompt: bool = True
    layers: tuple[Dense | Normalize | LayerNorm, ...] = ()
    not_done: tuple[str, ...] = ()

    def width(self, hidden_size: int) -> int:
        """Return how many numbers a vector has, of a BERT of some hidden size."""
        widths = [layer.width for layer in self.layers if isinstance(layer, Dense)]
        return widths[-1] if widths else hidden_size * len(self.pools)

    # hidden_states (T,H), cu_seqlens (S+1,) -> (S,width)
    def vectors(
        self, hidden_states: np.ndarray, cu_seqlens: np.ndarray, prompt_tokens: int = 0
    ) -> np.ndarray:
        """Return the vector of each sequence, as `SentenceTransformer.encode` does.

        Parameters
        ----------
        hidden_states : array (T,H), the last of the BERT, of all sequences end to end.
        cu_seqlens : array (S+1,) of int; sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].
        prompt_tokens : int, how many tokens at the beginning of each sequence, [CLS] included, belong to the
            prompt; left out of the pools where the folder says so.

        Returns
        -------
        array (S,width) of the same type.
        """
        skipped = 0 if self.reads_prompt else prompt_tokens
        dtype = hidden_states.dtype
        parts = []
        for begin, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
            first = skipped if skipped < end - begin else 0
            rows = hidden_states[begin:end].astype(np.float64)
            parts.append(np.concatenate([_pooled(rows, first, pool) for pool in self.pools]))
        found = np.stack(parts) if parts else np.empty((0, hidden_states.shape[1] * len(self.pools)))
        for layer in self.layers:
            found = layer(found)
        return found.astype(dtype)


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
    """Read what sentence-transformers makes vectors by from the folder of a model.

    Parameters
    ----------
    model : the folder that was named, which has `modules.json`.
    config : of the BERT in it.

    Returns
    -------
    SentenceModules, or None where the folder has no `modules.json`. What minibert does not do is in its
    `not_done`, and left out of what it computes.

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
    reading = next((read_json(encoder / name) for name in _encoder_files(encoder)), {})
    settings = read_json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    not_done: list[str] = []
    prompt = _default_prompt(settings)
    if (kind := listed[0][0]) not in ("Transformer", "BERT"):
        not_done.append(f"its first module, {kind}, is read as a plain BERT")
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
        except NotDone as error:  # what stands behind it expects what it gives
            not_done.append(f"its module {kind} {error}, so it and those behind it are left out")
            break
    if not pools:
        pools = ("mean",)
        if not not_done:
            not_done.append("it has no pool, and the mean of the tokens is taken")
    return SentenceModules(
        max_length=_max_length(encoder, reading, config),
        lower_case=bool(reading.get("do_lower_case", False)),
        prompt=prompt,
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
    folder : the one with `modules.json`; {} is returned where there is none.

    Returns
    -------
    dict of names, with / between folders, to what the files hold.

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
    found = {MODULES_FILE: b"".join(byte_pieces(folder / MODULES_FILE))}
    if encoder != folder:
        modules = _modules(folder)
        found[MODULES_FILE] = _json_bytes([modules[0] | {"path": ""}, *modules[1:]])
    settings = [(folder, SETTINGS_FILE), *((encoder, name) for name in _encoder_files(encoder)[:1])]
    for place, name in settings:
        if (place / name).is_file():
            found[name] = b"".join(byte_pieces(place / name))
    for _, path in listed[1:]:
        for file in sorted(path.rglob("*")) if path != folder else ():
            if file.is_file():
                found[file.relative_to(folder).as_posix()] = b"".join(byte_pieces(file))
    return found


def write_modules(folder: str | Path, length: int, pool: str = "mean") -> None:
    """Write what tells sentence-transformers how to use the model of a folder (any version from 0.3 on).

    The folder is one of `save_hf`; `config.json` says how wide its vectors are. The longest text has `length`
    tokens, [CLS] and [SEP] included; longer texts lose their end. The pool is "mean" of all tokens, also of
    these two, or the last hidden state of "cls". Raise InputError when it is another one, the folder has no
    `config.json`, or the model can't read so many tokens.
    """
    folder = Path(folder)
    if pool not in POOLS:
        raise InputError(f"$pool is not sentence-transformers'; choose {' or '.join(POOLS)}.", pool=pool)
    config = read_json(folder / CONFIG_FILE, {"hidden_size": int, "max_position_embeddings": int})
    if not 2 <= length <= (most := config["max_position_embeddings"]):
        raise InputError(f"$length is not possible; give 2 to the model's {most} positions.", length=length)
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate((("", "Transformer"), (POOLING, "Pooling")))
    ]
    atomic_json(folder / MODULES_FILE, modules)
    atomic_json(folder / ENCODER_FILE, {"max_seq_length": length, "do_lower_case": False})
    atomic_json(folder / SETTINGS_FILE, {"similarity_fn_name": "cosine"})
    pooling = {f"pooling_mode_{one}": one.split("_")[0] == pool for one in ("cls_token", "mean_tokens")}
    width = {"word_embedding_dimension": config["hidden_size"]}
    atomic_json(folder / POOLING / "config.json", pooling | width)


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
    prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    return prompt if isinstance(prompt, str) else ""


def _max_length(encoder: Path, reading: dict[str, Any], config: BertConfig) -> int:
    """Return most tokens of a text: as the module says, else the tokenizer, at most the positions."""
    length = reading.get("max_seq_length")
    if length is None and (path := encoder / "tokenizer_config.json").is_file():
        length = read_json(path).get("model_max_length")
    if not isinstance(length, int | float) or length < 2:
        return config.P
    return int(min(length, config.P))


def _gives_all_layers(encoder: Path) -> bool:
    """Tell whether the BERT hands on the hidden states of all its layers, by its configuration."""
    return bool(read_json(encoder / CONFIG_FILE).get("output_hidden_states"))


def _pools(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return the pools that a module asks for, in their order; raise NotDone for one that is not known."""
    asked = fields.get("pooling_mode")
    if asked is None:
        asked = [mode for field, mode in _MODES.items() if fields.get(field)] or ["mean"]
    pools = [asked] if isinstance(asked, str) else asked
    if not isinstance(pools, list) or not pools or not all(pool in _MODES.values() for pool in pools):
        raise NotDone(f"asks for the pool {short(asked)}")
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
        return LayerNorm(*(_shaped(path, tensors, f"norm.{name}", (width,)) for name in ("weight", "bias")))
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
    if name not in tensors or tensors[name].shape != shape:
        there = f"has shape {tensors[name].shape}" if name in tensors else "is missing"
        raise InputError(f"{path}: {name} {there}, and {shape} is expected; {AGAIN}.")
    found = np.asarray(tensors[name], np.float64)
    if not np.isfinite(found).all():
        raise InputError(f"{path}: {name} has values that are not finite numbers; {AGAIN}.")
    return found


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
