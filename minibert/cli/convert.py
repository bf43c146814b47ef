"""Write a checkpoint in Hugging Face's or TensorFlow's format.

Writes a BERT in another format. MODEL is a folder with
  config.json       and model.safetensors, or pytorch_model.bin: its pickle is
                    read as data, nothing in it is run
  bert_config.json  and bert_model.ckpt.*, Google's checkpoint, read without
                    TensorFlow; each tensor's check sum is verified
and may have any head: of pre-training, or for classes, tags, spans, choices.
Says which tensors were missing, unused or changed. What was missing is not
invented. The vocabulary is copied too, and so is the file that says which task
a model was fine-tuned for. What Google's code would compute differently is
noted. The folder --out appears whole or not at all.

examples:
  minibert convert --model uncased_L-12_H-768_A-12 --out bert-base
  minibert convert --model runs/books --out books-tf --to tf
  minibert convert --model bert-base --out half --dtype bfloat16
"""

import argparse
import json
from pathlib import Path
from typing import Any

from minibert.cli.shared.flags import add_flag, add_json, add_model
from minibert.errors import InputError
from minibert.files import write_folder_atomically
from minibert.reading import byte_pieces
from minibert.terminal import emit, json_text, printable

SHOWN = 8  # names of tensors in one line
# What goes with a vocabulary, in any format.
TOKENIZER_FILES = (
    "vocab.txt tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json".split()
)
# What makes it a model that minibert answers with: its task, or the LSTMs that stand on it.
TASK_FILES = ("task.json", "tagger.json", "tagger.safetensors")


def add(parser: Any) -> None:
    """Add the flags of the command."""
    parser.usage = "minibert convert --model MODEL --out DIR [--to FORMAT] [--dtype TYPE] [--json]"
    add_model(parser, "a folder, RUN@STEP, or TensorFlow's DIR/bert_model.ckpt")
    text = "a folder that does not exist yet, or is empty"
    parser.add_argument("--out", metavar="DIR", required=True, help=text)
    text = "hf, with model.safetensors; tf, with bert_model.ckpt.*"
    add_flag(parser, "--to", text, "hf", choices=("hf", "tf"), metavar="FORMAT")
    dtypes, text = ("float32", "float16", "bfloat16"), "float32, float16 or bfloat16"
    add_flag(parser, "--dtype", text, "float32", choices=dtypes, metavar="TYPE")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, write, and say what was found."""
    from minibert import hub
    from minibert.model_names import folder_of

    source, dest = Path(arguments.model), Path(arguments.out)
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise InputError(f"{dest} exists and is not empty; choose another --out.")
    weights = hub.weights_of(source)
    config, params, report = hub.load(source)
    assert weights is not None  # they are read
    folder = folder_of(source)
    labels = hub.load_labels(folder) if params.head.kind in hub.LABELLED else ()
    save = hub.save_tf if arguments.to == "tf" else hub.save_hf
    beside = _files_beside(folder)  # before the folder is begun: an error of reading is not one of writing
    notes = hub.google_differences(config) if arguments.to == "tf" else []
    notes += _complete_tokenizer(beside, folder)

    def fill(temporary: Path) -> None:
        save(temporary, config, params, labels, dtype=arguments.dtype, omit=report.missing)
        for name, data in beside.items():
            (temporary / name).write_bytes(data)

    write_folder_atomically(dest, fill)
    written = {path.name: path.stat().st_size for path in sorted(dest.iterdir())}
    heads = [name for name in hub.to_hf(params) if name.startswith("cls.")]
    has_none = bool(heads) and {*heads} <= {*report.missing}
    facts = {
        "source": str(weights),
        "layers": config.L,
        "hidden_size": config.H,
        "heads": config.A,
        "vocab_size": config.V,
        "head": "none" if has_none else params.head.kind,
        "labels": list(labels),
        "missing": list(report.missing),
        "unused": list(report.unused),
        "notes": [*report.changed, *notes],
        "written": written,
    }
    emit(json_text(facts) if arguments.json else _text(facts, dest))
    return 0


def _files_beside(folder: Path) -> dict[str, bytes]:
    """Read what is to go along with a model, by the names of files."""
    names = (name for name in (*TOKENIZER_FILES, *TASK_FILES) if (folder / name).is_file())
    return {name: b"".join(byte_pieces(folder / name)) for name in names}


def _complete_tokenizer(files: dict[str, bytes], folder: Path) -> list[str]:
    """Add what the vocabulary of a folder lacks; sentences about what had to be guessed."""
    if "vocab.txt" not in files:
        return [] if "tokenizer.json" in files else [f"{folder} has no vocabulary to go along"]
    if "tokenizer_config.json" in files or "tokenizer.json" in files:
        return []
    from minibert.tokenizer.formats import is_cased

    # Google's folders tell by their names alone whether text is to be lower-cased.
    cased = is_cased(files["vocab.txt"].decode(errors="replace").split("\n"))
    options = {"tokenizer_class": "BertTokenizer", "do_lower_case": not cased}
    files["tokenizer_config.json"] = (json.dumps(options, indent=2) + "\n").encode()
    case = "capital letters: text keeps its case" if cased else "no capital letters: text is lower-cased"
    return [f"tokenizer_config.json is new; the vocabulary has {case}"]


def _text(facts: dict[str, Any], dest: Path) -> str:
    sizes = "layers {layers}, hidden size {hidden_size}, heads {heads}, vocabulary {vocab_size:,}"
    head = facts["head"] + (f" ({', '.join(facts['labels'])})" if facts["labels"] else "")
    missing = facts["missing"]
    if facts["head"] == "none":  # a bare encoder, which is nothing odd
        missing = [*(name for name in missing if not name.startswith("cls.")), "the heads of pre-training"]
    rows = [
        ("read", f"{facts['source']}: {sizes.format_map(facts)}; head: {head}"),
        ("missing", f"{_names(missing)}, left out" if missing else "nothing"),
        ("unused", _names(facts["unused"]) if facts["unused"] else "nothing"),
        *(("note", sentence) for sentence in facts["notes"]),
        *(("written", f"{dest / name}  {size / 1e6:,.1f} MB") for name, size in facts["written"].items()),
    ]
    return "\n".join(f"{title:<9}{printable(text)}" for title, text in rows)


def _names(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
