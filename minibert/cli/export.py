"""Write a model into a folder to share; convert checkpoints.

Writes a BERT into a folder that you can share: weights, configuration,
vocabulary, the task that it was fine-tuned for, and README.md, a model card in
Hugging Face's format, made from the run. Checkpoints, shards and paths of this
machine are left out. MODEL is a run, or a folder with
  config.json       and model.safetensors or pytorch_model.bin; the pickle is
                    read as data, and no code in it runs
  bert_config.json  and bert_model.ckpt.*, Google's checkpoint, read without
                    TensorFlow; each tensor's checksum is verified
with any head: of pre-training, or for classes, tags, spans or choices. The
command lists the tensors that were missing, unused or changed, and makes none
up. A model card by another author is copied as it is; in one by minibert, only
the instructions for use are rewritten. The folder --out is written completely
or not at all.

examples:
  minibert export --model runs/books --out books-bert
  minibert export --model runs/books --out vectors --sentence-transformers mean
  minibert export --model uncased_L-12_H-768_A-12 --out bert-base --dtype bfloat16
  minibert export --model runs/reviews --out reviews-onnx --onnx
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import require_folder, write_folder_atomically
from minibert.base.json_files import read_json
from minibert.base.model_names import (
    MODULES_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    folder_of,
)
from minibert.base.options import STORED
from minibert.base.reading import byte_pieces
from minibert.base.terminal import emit, json_text, printable, some_of
from minibert.cli.shared.flags import JSON, add_any_model, add_flag, add_switches, model_or_default
from minibert.model.pools import WRITTEN

# The files of a tokenizer.
TOKENIZER = (
    VOCABULARY_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
)
# What minibert needs for answers: the task, or the LSTMs on top of the model.
TASK_FILES = ("task.json", "tagger.json", "tagger.safetensors", "estimator.json")
# Fields of tokenizer_config.json in which other tools note where they read it from.
ORIGINS = ("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file")


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert export [--model MODEL] --out DIR [--dtype TYPE] [...]"
    add_any_model(parser, "a folder, RUN@STEP, or TensorFlow's DIR/bert_model.ckpt")
    add_flag(parser, "--out DIR", "a folder that does not exist yet, or is empty", required=True)
    dtypes = ("float32", "float16", "bfloat16")
    add_flag(parser, "--dtype TYPE", "float32, float16 or bfloat16", "float32", choices=dtypes)
    text = "also write files for sentence-transformers: the vector of a text is its mean, or that of [CLS]"
    add_flag(parser, "--sentence-transformers", text, choices=WRITTEN, dest="pool")
    text = "also write model.onnx with transformers and PyTorch, and check it in onnxruntime; this needs the "
    add_switches(parser, onnx=text + "extra minibert-scratch[onnx]")
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Write the folder, and print what was read, changed and written.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags contradict each other or the model, the folder is not free, or the model can't be read.
    """
    from minibert import hub
    from minibert.hub.onnx import write_onnx
    from minibert.hub.sentence_transformers import module_files, write_modules
    from minibert.reports.card import Exported

    source = Path(model_or_default(arguments.model))
    dest = Path(arguments.out)
    _check(arguments, dest)
    weights = hub.weights_of(source)
    config, params, report = hub.load(source)
    assert weights is not None  # they have been read
    if config.is_decoder and arguments.pool == "cls":
        raise InputError("--sentence-transformers cls: left to right [CLS] sees only itself; choose mean.")
    folder = folder_of(source)
    labels = hub.load_labels(folder) if params.head.kind in hub.LABELLED else ()
    # Read before writing begins, so that an error of reading is not taken for one of writing.
    named = source if source.is_dir() else folder  # in older sentence-transformers, the parent of `folder`
    modules = module_files(named)
    files = _accompanying_files(folder, named)
    if not arguments.pool:
        files |= modules
    notes = _complete_tokenizer(files, folder)
    missing = list(report.missing)
    if params.decoder is not None:
        notes.append(
            "the decoder of the masked LM is not the word embeddings; only Bert guesses with it here"
        )
        missing = [name for name in missing if not name.startswith("cls.predictions.")]
    if modules and arguments.pool:
        what = f"the modules of sentence-transformers in {named}"
        notes.append(f"{what} are replaced by the pool {arguments.pool}")
    pools_last = config.is_decoder and params.head.pooled and params.head.kind != "pretraining"
    if pools_last:
        notes.append("transformers pools [CLS], this model its last token: only minibert can ask it")

    if arguments.onnx and (pools_last or params.head.lstm or params.head.pool):
        what = "its last token, LSTMs or windows, which transformers does not know"
        raise InputError(f"--onnx: the head of '{source}' reads {what}; leave it out.")
    head = _kind_of_head(params, missing)
    is_step = folder != weights.parent
    name = dest.resolve().name
    about = Exported(name, config, params.count(), head, labels, not pools_last, is_step, arguments.pool)
    _add_card(files, folder, about, missing)

    def fill(temporary: Path) -> None:
        hub.save_hf(temporary, config, params, labels, dtype=arguments.dtype, omit=missing)
        _write_files(temporary, files)
        if arguments.onnx:
            has_pooler = not any("pooler" in name for name in missing)
            error = write_onnx(temporary, has_pooler)
            notes.append(f"model.onnx differs from transformers by {error:.1e} at most, in onnxruntime")
        if arguments.pool:
            write_modules(temporary, config.trained_length or config.P, arguments.pool)

    write_folder_atomically(dest, fill)
    facts = _facts(weights, about, missing)
    facts["unused"] = list(report.unused)
    facts["notes"] = [*report.changed, *notes]
    facts["written"] = _sizes(dest)
    emit(json_text(facts) if arguments.json else _text(facts, dest))


def _facts(weights: Path, about: Any, missing: list[str]) -> dict[str, Any]:
    """Return facts about the model that was read, for JSON; `about` is an `Exported`."""
    config = about.config
    return {
        "source": str(weights),
        "layers": config.L,
        "hidden_size": config.H,
        "heads": config.A,
        "vocab_size": config.V,
        "head": about.head,
        "labels": list(about.labels),
        "missing": missing,
    }


def _kind_of_head(params: Any, missing: list[str]) -> str:
    """Return the kind of the head: "none" if all heads of pre-training are missing."""
    from minibert.hub import to_hf

    heads = {name for name in to_hf(params) if name.startswith("cls.")}
    if heads and heads <= set(missing):
        return "none"
    return params.head.kind


def _check(arguments: Namespace, dest: Path) -> None:
    """Raise InputError if the folder can't be written, or libraries for --onnx are missing."""
    from minibert.hub.onnx import require_libraries

    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise InputError(f"'{dest}' exists and is not empty; choose another --out.")
    require_folder(dest)
    if arguments.onnx:
        require_libraries()


def _add_card(files: dict[str, bytes], folder: Path, about: Any, missing: list[str]) -> None:
    """Add the model card to the files that accompany a model, unless another author has written one.

    These files complete `about`, an `Exported`; `missing` are the tensors that the model lacks.
    """
    from minibert.reports.card import CARD, is_minibert_card, model_card, renewed
    from minibert.tasks.stored import TaskFile

    before = files.get(CARD, b"").decode(errors="replace")
    if CARD in files and not is_minibert_card(before):
        return
    if not about.pool and MODULES_FILE in files:
        about = replace(about, pool="mean")
    if "tagger.json" in files:  # LSTMs on top, which only minibert knows
        about = replace(about, head="tag", for_transformers=False)
    if about.head == "pretraining" and any(name.startswith("cls.predictions") for name in missing):
        about = replace(about, head="none")  # a head for the next sentence alone guesses no words
    if TASK_FILES[0] in files:
        about = replace(about, pair=TaskFile.load(folder).pair)
    elif about.head == "choice":
        about = replace(about, choices="swag")
    has_vocabulary = VOCABULARY_FILE in files or TOKENIZER_FILE in files
    card = model_card(folder, replace(about, vocabulary=has_vocabulary))
    files[CARD] = (renewed(before, card) if before else card).encode()


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, by their paths in it."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the sizes in bytes of all files in a folder, by their paths in it."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return sizes


def _accompanying_files(folder: Path, named: Path) -> dict[str, bytes]:
    """Read the files that accompany a model, by name; the model card is in the folder `named`."""
    wanted = [folder / name for name in (*TOKENIZER, *TASK_FILES)]
    is_run = any((folder / name).exists() for name in STORED)  # its card is written by this command
    if not is_run:
        wanted.append(named / "README.md")
    files = {}
    for path in wanted:
        if path.is_file():
            files[path.name] = b"".join(byte_pieces(path))
    name = TOKENIZER_CONFIG_FILE
    if name in files:
        fields = read_json(folder / name)
        if not fields.keys().isdisjoint(ORIGINS):
            files[name] = _json_file(_without(fields, ORIGINS))
    name = "estimator.json"
    if name in files:
        fields = read_json(folder / name, {"parameters": {}}, "save it again")
        parameters = _without(fields["parameters"], ("model", "out"))
        files[name] = _json_file(fields | {"parameters": parameters})
    return files


def _without(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _json_file(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _complete_tokenizer(files: dict[str, bytes], folder: Path) -> list[str]:
    """Add what the vocabulary lacks; return sentences about what had to be guessed."""
    if VOCABULARY_FILE not in files:
        return [] if TOKENIZER_FILE in files else [f"{folder} has no vocabulary"]
    if TOKENIZER_CONFIG_FILE in files or TOKENIZER_FILE in files:
        return []
    from minibert.tokenizer.formats import is_cased

    # In Google's models, only the name of the folder says whether text is lower-cased.
    cased = is_cased(files[VOCABULARY_FILE].decode(errors="replace").split("\n"))
    options = {"tokenizer_class": "BertTokenizer", "do_lower_case": not cased}
    files[TOKENIZER_CONFIG_FILE] = _json_file(options)
    case = "capital letters: text keeps its case" if cased else "no capital letters: text is lower-cased"
    return [f"{TOKENIZER_CONFIG_FILE} is new; the vocabulary has {case}"]


def _text(facts: dict[str, Any], dest: Path) -> str:
    """Format what was read and written, in lines that begin with a title."""
    sizes = "layers {layers}, hidden size {hidden_size}, heads {heads}, vocabulary {vocab_size:,}"
    head = facts["head"]
    if facts["labels"]:
        head += f" ({', '.join(facts['labels'])})"
    missing = facts["missing"]
    if facts["head"] == "none":  # an encoder alone, which is nothing unusual
        missing = [name for name in missing if not name.startswith("cls.")]
        missing.append("the heads of pre-training")
    rows = [
        ("read", f"{facts['source']}: {sizes.format_map(facts)}; head: {head}"),
        ("missing", f"{some_of(missing)}, left out" if missing else "nothing"),
        ("unused", some_of(facts["unused"]) if facts["unused"] else "nothing"),
    ]
    rows += [("note", sentence) for sentence in facts["notes"]]
    for name, size in facts["written"].items():
        rows.append(("written", f"{dest / name}  {size / 1e6:,.1f} MB"))
    return "\n".join(f"{title:<9}{printable(text)}" for title, text in rows)
