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

from argparse import ArgumentParser, Namespace
from pathlib import Path

from minibert.base.terminal import emit, json_text, printable, some_of
from minibert.cli.shared.flags import JSON, add_any_model, add_flag, add_switches, model_or_default, selected
from minibert.hub.precisions import STORED
from minibert.model.pools import WRITTEN
from minibert.reports.contents import ExportReport


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
    add_flag(parser, "--dtype TYPE", "float32, float16 or bfloat16", "float32", choices=STORED)
    text = "also write files for sentence-transformers: the vector of a text is its mean, or that of [CLS]"
    add_flag(parser, "--sentence-transformers", text, choices=WRITTEN)
    text = "also write model.onnx with transformers and PyTorch, and check it in onnxruntime; this needs the "
    add_switches(parser, onnx=text + "extra minibert-scratch[onnx]")
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Write the folder, and print what was read, changed and written.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    from minibert.api.exporting import export

    options = selected(arguments, "out dtype sentence_transformers onnx")
    report = export(model_or_default(arguments.model), **options)
    emit(json_text(report) if arguments.json else _text(report, Path(arguments.out)))


def _text(report: ExportReport, dest: Path) -> str:
    """Format what was read and written, in lines that begin with a title."""
    sizes = "layers {layers}, hidden size {hidden_size}, heads {heads}, vocabulary {vocab_size:,}"
    head = report["head"]
    if report["labels"]:
        head += f" ({', '.join(report['labels'])})"
    missing = report["missing"]
    if report["head"] == "none":  # an encoder alone, which is nothing unusual
        missing = [name for name in missing if not name.startswith("cls.")]
        missing.append("the heads of pre-training")
    rows = [
        ("read", f"{report['source']}: {sizes.format_map(report)}; head: {head}"),
        ("missing", f"{some_of(missing)}, left out" if missing else "nothing"),
        ("unused", some_of(report["unused"]) if report["unused"] else "nothing"),
    ]
    rows += [("note", sentence) for sentence in report["notes"]]
    for name, size in report["written"].items():
        rows.append(("written", f"{dest / name}  {size / 1e6:,.1f} MB"))
    return "\n".join(f"{title:<9}{printable(text)}" for title, text in rows)
