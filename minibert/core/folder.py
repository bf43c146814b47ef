"""Write a model as a folder that `minibert.load` and Hugging Face's transformers can read.

The layouts differ in two ways. Hugging Face's linear weights are (outputs, inputs), ours (inputs, outputs);
Hugging Face has three matrices for query, key and value, which we keep side by side in one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from minibert.core.config import BertConfig
from minibert.core.params import Parameters

# Our names, and Hugging Face's. * is the index of a layer; {} is replaced by query, key and value.
_LAYER = "bert.encoder.layer.*"
NAMES = {
    "embeddings.word": "bert.embeddings.word_embeddings.weight",
    "embeddings.position": "bert.embeddings.position_embeddings.weight",
    "embeddings.segment": "bert.embeddings.token_type_embeddings.weight",
    "embeddings.gamma": "bert.embeddings.LayerNorm.weight",
    "embeddings.beta": "bert.embeddings.LayerNorm.bias",
    "layers.*.attention.qkv_weight": f"{_LAYER}.attention.self.{{}}.weight",
    "layers.*.attention.qkv_bias": f"{_LAYER}.attention.self.{{}}.bias",
    "layers.*.attention.output_weight": f"{_LAYER}.attention.output.dense.weight",
    "layers.*.attention.output_bias": f"{_LAYER}.attention.output.dense.bias",
    "layers.*.attention.gamma": f"{_LAYER}.attention.output.LayerNorm.weight",
    "layers.*.attention.beta": f"{_LAYER}.attention.output.LayerNorm.bias",
    "layers.*.feed_forward.in_weight": f"{_LAYER}.intermediate.dense.weight",
    "layers.*.feed_forward.in_bias": f"{_LAYER}.intermediate.dense.bias",
    "layers.*.feed_forward.out_weight": f"{_LAYER}.output.dense.weight",
    "layers.*.feed_forward.out_bias": f"{_LAYER}.output.dense.bias",
    "layers.*.feed_forward.gamma": f"{_LAYER}.output.LayerNorm.weight",
    "layers.*.feed_forward.beta": f"{_LAYER}.output.LayerNorm.bias",
    "pooler.weight": "bert.pooler.dense.weight",
    "pooler.bias": "bert.pooler.dense.bias",
    "mlm.weight": "cls.predictions.transform.dense.weight",
    "mlm.bias": "cls.predictions.transform.dense.bias",
    "mlm.gamma": "cls.predictions.transform.LayerNorm.weight",
    "mlm.beta": "cls.predictions.transform.LayerNorm.bias",
    "mlm.output_bias": "cls.predictions.bias",
    "nsp.weight": "cls.seq_relationship.weight",
    "nsp.bias": "cls.seq_relationship.bias",
}


def hugging_face_names(name: str) -> list[str]:
    """Return Hugging Face's names for one of our tensors: three for attention's joint projection, else one.

    Parameters
    ----------
    name : path in the tree of parameters, such as "layers.0.attention.qkv_weight".

    Returns
    -------
    list of names, in the order of the parts within our tensor.
    """
    number = re.search(r"\d+", name)
    theirs = NAMES[re.sub(r"\d+", "*", name)]
    if number:
        theirs = theirs.replace("*", number[0])
    if "{}" not in theirs:
        return [theirs]
    return [theirs.format(part) for part in ("query", "key", "value")]


def hugging_face_tensors(parameters: Parameters) -> dict[str, np.ndarray]:
    """Return the parameters of a pre-trained BERT under Hugging Face's names and in its layout.

    Parameters
    ----------
    parameters : the model's, including the two heads of pre-training.

    Returns
    -------
    dict of arrays by name; they are views, not copies.
    """
    tensors = {}
    for name, array in parameters.items():
        theirs = hugging_face_names(name)
        parts = np.split(array, len(theirs), axis=-1)
        for their_name, part in zip(theirs, parts, strict=True):
            tensors[their_name] = part.T if name.endswith("weight") else part
    return tensors


def save_folder(
    folder: str | Path,
    config: BertConfig,
    parameters: Parameters,
    vocab: Sequence[str],
) -> None:
    """Write `config.json`, `vocab.txt` and `model.safetensors`, creating the folder if needed.

    Parameters
    ----------
    folder : where to write; files with these names are replaced.
    config, parameters : the pre-trained model, in float32.
    vocab : list of pieces; the index of a piece is its id.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config.to_dict(), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8", newline="\n")
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8", newline="\n")
    write_safetensors(folder / "model.safetensors", hugging_face_tensors(parameters))


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 tensors: the length of a JSON header in eight bytes, the header, then all numbers.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    tensors : floating-point arrays by name; all are written as float32.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.size * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, "<f4").tobytes())
