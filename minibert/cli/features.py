"""Write vectors of texts or of their tokens, from any layers.

Writes what a BERT makes of every text, a line of --file or of the standard
input: one vector for each, or for each of its tokens. A .npy file is one array
with a row for each text; with --pool none a row for each token, and beside it
NAME.cu_seqlens.npy says at which row each text begins. A .jsonl file has a line
for each text.

examples:
  minibert features --model runs/books --file questions.txt --out questions.npy
  minibert features --model all-MiniLM-L6-v2 --layers -1,-2,-3,-4 --pool none --out t.jsonl
"""

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.cli.shared.flags import add_engine, add_flag, add_json, add_model, add_number, add_switches
from minibert.cli.shared.parser import renamed
from minibert.cli.shared.texts import add_texts, given_texts
from minibert.errors import InputError
from minibert.files import require_folder
from minibert.terminal import counted, emit, json_text


def add(parser: Any) -> None:
    parser.usage = "minibert features --model MODEL --out FILE [TEXT ... | --file FILE] [--layers N] [...]"
    # To argparse "-1" is a value and "-1,-2" a flag.
    parser._negative_number_matcher = re.compile(r"-\d+(,-?\d+)*$")
    add_model(parser, "a folder with a BERT, fine-tuned or not, or RUN@STEP")
    add_texts(parser)
    renamed(parser, "--text", "--file")
    parser.add_argument("--out", metavar="FILE", required=True, help="a .npy or .jsonl file to write")
    text = "the layers to put side by side: numbers separated by commas, 0 for the embeddings, -1 for the "
    text += "last; or all; or embeddings"
    add_flag(parser, "--layers", text, "-1", metavar="LAYERS")
    text = "what stands for a line: [CLS], mean or maximum of its tokens, the pooler's output, or every token"
    add_flag(parser, "--pool", text, "mean", choices=("cls", "mean", "max", "pooled", "none"))
    add_switches(
        parser,
        normalize="make each vector of length 1: products are then cosines",
        pair="the first tab in each text stands between the two of a pair",
    )
    add_number(
        parser, "--max-length", "longest sequence; longer lines are cut (default: the model's positions)"
    )
    add_switches(parser, quiet="show no progress")
    add_engine(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from minibert.engines import limited_threads
    from minibert.frozen.features import Extractor, check_format, load_encoder, write_features
    from minibert.training.runlog import Progress

    out = Path(arguments.out)
    check_format(out)
    require_folder(out.parent)
    read = [file for file in arguments.file or () if not arguments.texts and os.path.exists(file)]
    if out.exists() and any(os.path.samefile(out, file) for file in read):
        raise InputError("$out is the file that is read; name another.", out=str(out))
    model, tokenizer = load_encoder(arguments.model, arguments.pool, arguments.engine, arguments.threads)
    how = arguments.layers, arguments.pool, arguments.max_length, arguments.normalize
    extractor = Extractor(model, tokenizer, *how)
    files = [] if arguments.texts else list(map(Path, arguments.file or ()))
    size = sum(file.stat().st_size for file in files) if files and all(map(Path.is_file, files)) else None
    with (
        limited_threads(arguments.threads, model.ops),
        Progress(size, "bytes" if size else "lines", not arguments.quiet) as progress,
    ):
        texts = _watched(arguments, progress, size is not None)
        written = write_features(extractor, _pairs(texts) if arguments.pair else texts, out)
    facts = {**written, "out": str(out)}
    nouns = {"texts": "line", "tokens": "token", "width": "number"}
    sizes = ", ".join(counted(written[name], noun) for name, noun in nouns.items())
    emit(json_text(facts) if arguments.json else f"{sizes} in a vector: {out}")


def _pairs(texts: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts, 1):
        first, tab, second = text.partition("\t")
        if not tab:
            raise InputError(f"Text {number:,} has no tab; --pair needs one between two texts.")
        yield first, second


def _watched(arguments: argparse.Namespace, progress: Any, by_bytes: bool) -> Iterator[str]:
    """Yield texts, and show as progress what was read of the files, or the number of texts."""
    place = 0

    def add(now: int) -> None:
        nonlocal place
        progress.add(now - place if now >= place else now)  # a second file begins at 0
        place = now

    for text in given_texts(arguments, progress=add if by_bytes else None):
        yield text
        if not by_bytes:
            progress.add(1)
