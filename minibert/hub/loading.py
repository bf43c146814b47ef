"""Turn tensors with Hugging Face's names, from any kind of file, into the parameters of a BERT."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, MissingFile, warn
from minibert.base.json_files import fits, read_json
from minibert.base.machine import cores
from minibert.base.options import STORED
from minibert.base.terminal import counted, some_of
from minibert.core.config import BertConfig
from minibert.core.params import reset
from minibert.hub.names import (
    DECODER,
    LSTM,
    MASKED_LM,
    POOL_QUERY,
    REPLACEABLE,
    SPELLINGS,
    TIED,
    head_names,
    parts,
    shapes,
    to_hf,
)
from minibert.model.head_kinds import KINDS
from minibert.model.params import PRETRAINING, Head, Parameters, check_head, parameter_table

Tensors = dict[str, np.ndarray]

# Classes of transformers that have some of the heads of pre-training, or none.
_PRETRAINED = ("BertModel", "BertForMaskedLM", "BertForNextSentencePrediction", "BertLMHeadModel")
# Prefixes of names in other architectures. In TensorFlow, the names of ALBERT begin with bert/, as BERT's do.
_FOREIGN = {
    "roberta.": "RoBERTa", "distilbert.": "DistilBERT", "electra.": "ELECTRA",
    "albert.": "ALBERT", "bert.encoder.transformer.": "ALBERT",
}  # fmt: skip
COPY_AGAIN = "copy the model's folder again"
# Names of BERT classes in `transformers`, for PyTorch, TensorFlow and Flax. Classes of BertGeneration belong
# to another architecture.
_BERT_CLASS = re.compile(r"(TF|Flax)?Bert(?!Generation)")


class LoadReport(NamedTuple):
    """List the differences between a checkpoint and the model that was made from it."""

    # Tensors of pooler and head, by Hugging Face's names, that the file lacks and that have initial values. A
    # masked-LM head whose decoder is not the word embeddings counts as missing: only `Bert` can use that
    # decoder, from `params.decoder`.
    missing: tuple[str, ...]
    unused: tuple[str, ...]  # tensors of the file that minibert can't use, by their names in the file
    changed: tuple[str, ...] = ()  # sentences about tensors that were changed when they were read


class Source(NamedTuple):
    """Hold the contents of a model's folder."""

    path: Path  # the file of the weights, for errors
    config_path: Path
    fields: dict[str, Any]  # the fields of the configuration
    tensors: Tensors  # tensors with Hugging Face's names and layout
    others: dict[str, str]  # types by name of tensors that are not read, since they are not floating-point


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of a configuration.

    Parameters
    ----------
    path : Path
        The `config.json` or `bert_config.json`.

    Returns
    -------
    dict
        The fields as the file has them.

    Raises
    ------
    InputError
        When the file is missing or damaged; for an unfinished run, it says how to resume it.
    """
    try:
        return read_json(path, advice=COPY_AGAIN)
    except MissingFile as error:
        advice = "give the folder of a BERT"
        for file, command in STORED.items():  # which a run has before there is a model
            if (path.parent / file).exists():
                out = shlex.quote(str(path.parent))
                advice = f"the run there is not finished: minibert {command} --resume --out {out}"
                break
        raise InputError(f"{path} is missing; {advice}.") from error


def config_of(fields: dict[str, Any]) -> BertConfig:
    """Return the shape of a BERT from the fields of its configuration, refusing those of other models.

    Parameters
    ----------
    fields : dict
        Fields of a `config.json`.

    Returns
    -------
    BertConfig

    Raises
    ------
    InputError
        As `BertConfig.from_dict`; also when there is no `model_type`, as before 2020, and `architectures`
        names classes, none of which is a BERT of any framework.
    """
    _require_bert_class(fields)
    return BertConfig.from_dict(fields)


def _require_bert_class(fields: dict[str, Any]) -> None:
    """Raise InputError when a configuration without `model_type` names the classes of another architecture.

    If `model_type` is "bert", the names don't matter: people give their own BERT classes any name.
    """
    names = fields.get("architectures")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if "model_type" in fields or not names:
        return
    if not any(_BERT_CLASS.match(name) for name in names):
        raise InputError(
            f"architectures={names!r} without a model_type are not a BERT's; give a BERT, or a model of its "
            'architecture such as MiniLM or TinyBERT; if it is one, add "model_type": "bert" to config.json.'
        )


def labels_of(fields: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Return the labels of a configuration.

    Parameters
    ----------
    fields : dict
        Fields of the configuration.
    path : Path
        The file of the configuration, for errors.

    Returns
    -------
    tuple of str
        Labels in the order of their numbers; () if the configuration has none.

    Raises
    ------
    InputError
        When labels are not strings, or are not numbered from 0 on.
    """
    stored = fields.get("id2label")
    if stored is None:
        return ()
    numbers = [str(number) for number in range(len(stored))] if fits(stored, dict[str, str]) else None
    if numbers is None or stored.keys() != set(numbers):
        raise InputError(
            f"id2label={short(stored)} does not number strings from 0 on; {COPY_AGAIN}.", where=str(path)
        )
    return tuple(stored[number] for number in numbers)


def load_source(
    source: Source, dtype: Any, head: Head | None, seed: int
) -> tuple[BertConfig, Parameters, LoadReport]:
    """Check everything against the configuration, then fill the parameters.

    Parameters
    ----------
    source : Source
        Configuration and tensors; the tensors are removed from it, to save memory.
    dtype : NumPy dtype
        Precision of the parameters.
    head : Head or None
        The head to put on the encoder; None for the saved one.
    seed : int
        Seed of the initial values of missing tensors.

    Returns
    -------
    tuple of BertConfig, Parameters and LoadReport
        As from `hub.load`.

    Raises
    ------
    InputError
        When configuration and tensors do not match, or a weight is not a finite number.
    """
    try:
        config = config_of(source.fields)
    except InputError as error:
        raise InputError(str(error), where=str(source.config_path)) from error
    tensors, decoder = _canonical(source.path, source.tensors)
    head, of_another_head = _choose_head(source, config, tensors, head)
    missing = _check(source, config, head, tensors)
    params = Parameters(config, dtype=dtype, head=head)
    _fill_all(source.path, params, tensors)
    reset(params, [ours for ours, _ in missing], seed)
    beyond = sorted(name for name in tensors if name.startswith("bert.encoder."))
    if beyond:
        warn(
            f"'{source.path}' has {counted(len(beyond), 'tensor')} of the encoder for which the BERT of "
            f"{source.config_path.name} has no place, the first is {beyond[0]}; "
            "without what is left out it computes something else."
        )
    lacking = [theirs for _, theirs in missing]
    if decoder is not None and head == PRETRAINING:
        untied = np.empty(decoder.shape, params.flat.dtype)
        _fill(source.path, DECODER, untied, decoder)
        untied.flags.writeable = False
        params.decoder = untied
        lacking += [name for name in to_hf(params) if name.startswith(MASKED_LM) and name not in lacking]
    elif decoder is not None:
        tensors[DECODER] = decoder
    unused = sorted([*tensors, *of_another_head])
    return config, params, LoadReport(tuple(lacking), tuple(unused))


def _fill_all(path: Path, params: Parameters, tensors: Tensors) -> None:
    """Fill the parameters with several threads; tensors that were used are removed from `tensors`."""
    fills = []
    for _, theirs, part in parts(params):
        if theirs in tensors:
            fills.append((theirs, part, tensors.pop(theirs)))
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda fill: _fill(path, *fill), fills))  # an error in a thread is raised by reading


def _canonical(path: Path, tensors: Tensors) -> tuple[Tensors, np.ndarray | None]:
    """Rename tensors to their full modern names, keeping tied ones once; `tensors` is emptied to save memory.

    Return them, and the decoder of the masked-LM head if it is not equal to the word embeddings.
    """
    renamed: Tensors = {}
    decoder: np.ndarray | None = None
    while tensors:
        name, tensor = tensors.popitem()
        name = full_name(name)
        if name in renamed:
            raise InputError(f"{path} has {name} twice, under two spellings; remove one of them.")
        renamed[name] = tensor
    for second, first in TIED.items():
        if second not in renamed:
            continue
        tensor = renamed.pop(second)
        other = renamed.setdefault(first, tensor)
        if other.shape != tensor.shape:
            shapes_ = f"{tensor.shape} and {other.shape}"
            raise InputError(
                f"{second} differs from {first} in its shape, {shapes_}; {COPY_AGAIN}.", where=str(path)
            )
        if np.array_equal(other, tensor):
            continue
        if second == DECODER:
            decoder = tensor
        else:
            renamed[first] = tensor  # the one that transformers computes with
    for beginning, kind in _FOREIGN.items():
        if any(name.startswith(beginning) for name in renamed):
            advice = "give a BERT, or a model of its architecture such as MiniLM or TinyBERT."
            raise InputError(f"{path} holds weights of {kind}, which computes differently; {advice}")
    return renamed, decoder


def full_name(name: str) -> str:
    """Return the modern name of a tensor, with the prefix of a whole model.

    Parameters
    ----------
    name : str
        Name of a tensor in a file.
    """
    for pattern, replacement in SPELLINGS:
        name = pattern.sub(replacement, name)
    return name


def _choose_head(
    source: Source, config: BertConfig, tensors: Tensors, wanted: Head | None
) -> tuple[Head, Tensors]:
    """Return the head to load, and the tensors of another head, which are removed from `tensors`."""
    stored, is_certain = _stored_head(source, tensors)
    if wanted is None:
        if stored is None:
            what = f"problem_type={source.fields.get('problem_type')!r} with several outputs"
            advice = "only its encoder can be used: fine-tune from it, or load it with Bert.from_pretrained."
            place = str(source.config_path)
            raise InputError(f"{what} is not one of minibert's tasks; {advice}", where=place)
        return stored, {}
    check_head(wanted)
    if stored is not None and wanted.pool in ("mean", "max"):  # these pools have no tensors to recognise
        stored = stored._replace(pool=wanted.pool)
    if wanted == stored or wanted.kind == "pretraining":
        return wanted, {}
    weight, bias = head_names(wanted)
    if not is_certain and weight in tensors and tensors[weight].shape == (wanted.outputs, config.H):
        return wanted, {}
    return wanted, {name: tensors.pop(name) for name in (weight, bias) if name in tensors}


def _stored_head(source: Source, tensors: Tensors) -> tuple[Head | None, bool]:
    """Return the head that was saved (None if minibert has no loss for it), and whether that is certain."""
    has_lstm = any(name.startswith(LSTM) for name in tensors)
    architecture = _architecture(source.fields)
    if architecture in (KINDS["pretraining"].architecture, *_PRETRAINED):
        return PRETRAINING, True
    for kind, row in KINDS.items():
        if architecture == row.architecture and row.outputs is not None and not row.names_outputs:
            return Head(kind, row.outputs, has_lstm), True
    outputs = _outputs(source, tensors)
    pool = "attention" if POOL_QUERY in tensors else ""
    whole_text = Head("regress" if outputs == 1 else "classify", outputs, has_lstm, pool)
    tagger = Head("tag", outputs, has_lstm)
    if architecture == KINDS["tag"].architecture:
        return tagger, True
    if architecture == KINDS["classify"].architecture:
        problem = source.fields.get("problem_type")
        if problem == KINDS["multilabel"].problem_type:
            return Head("multilabel", outputs, has_lstm), True
        if outputs > 1 and problem == "regression":
            return None, True
        return whole_text, True
    if "qa_outputs.weight" in tensors:
        return Head("span", 2, has_lstm), False
    if "classifier.weight" not in tensors:
        return PRETRAINING, False
    has_pooler = "bert.pooler.dense.weight" in tensors
    return whole_text if has_pooler else tagger, False


def _architecture(fields: dict[str, Any]) -> Any:
    """Return the first class of transformers that a configuration names; None if it names none."""
    names = fields.get("architectures")
    return names[0] if isinstance(names, list) and names else None


def kind_named(fields: dict[str, Any]) -> str | None:
    """Return the kind of head that belongs to the class of transformers that a configuration names.

    Parameters
    ----------
    fields : dict
        Fields of a `config.json`.

    Returns
    -------
    str or None
        One of `KINDS`, with "classify" for all three that answer for a whole text; None if the configuration
        names no class, or a custom one.
    """
    architecture = _architecture(fields)
    if architecture in _PRETRAINED:
        return PRETRAINING.kind
    for kind, row in KINDS.items():
        if architecture == row.architecture:  # if several kinds share a class, the first represents them
            return kind
    return None


def _outputs(source: Source, tensors: Tensors) -> int:
    """Return the number of outputs: the rows of the classifier or, if it is missing, the labels."""
    labels = len(labels_of(source.fields, source.config_path))
    weight = tensors.get("classifier.weight")
    if weight is None or weight.ndim != 2 or not len(weight):
        return labels or 2  # 2 is the default of transformers
    if labels and labels != len(weight):
        rows = counted(len(weight), "row")
        names = counted(labels, "label")
        both = f"has {rows}, {source.config_path.name} names {names}; take both files from one model."
        raise InputError(f"'{source.path}': classifier.weight {both}")
    return len(weight)


def _check(source: Source, config: BertConfig, head: Head, tensors: Tensors) -> list[tuple[str, str]]:
    """Compare with the configuration before allocating memory; return both names of missing tensors."""
    path = source.path
    file = source.config_path.name
    count = len(tensors) + len(source.others)
    if config.L > count:
        few = f"{counted(count, 'tensor')}, too few for num_hidden_layers={config.L} of {file}"
        raise InputError(f"{path} has {few}; give the folder of one complete model.")
    missing = []
    for ours, theirs, shape in shapes(parameter_table(config, head), head):
        if theirs not in tensors:
            missing.append((ours, theirs))
        elif tensors[theirs].shape != shape:
            both = f"has shape {tensors[theirs].shape}, {file} asks for {shape}"
            raise InputError(f"{theirs} {both}; take both files from one model.", where=str(path))
    others = {full_name(name): kind for name, kind in source.others.items()}
    for _, theirs in missing:
        if theirs in others:
            advice = "save the model with weights in float32, float16 or bfloat16."
            raise InputError(f"{path} holds {theirs} as {others[theirs]}, which is not read; {advice}")
    lost = [theirs for ours, theirs in missing if not ours.startswith(REPLACEABLE)]
    if lost:
        raise InputError(f"{path} lacks these weights of the encoder: {some_of(lost)}; give a complete BERT.")
    return missing


def _fill(path: Path, theirs: str, part: np.ndarray, tensor: np.ndarray) -> None:
    """Copy a tensor into its part of the parameters; raise InputError when a number is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # a number too large for float32 is refused below
        part[...] = tensor
        row = part.ravel("K")
        is_finite = np.isfinite(row @ row) or np.isfinite(row).all()  # the first is quick, but may overflow
    if not is_finite:
        raise InputError(f"{theirs} has values that are not finite numbers; {COPY_AGAIN}.", where=str(path))
