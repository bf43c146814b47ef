"""`minibert features`: lines of text to vectors, in a file."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.cli.flags import add_engine, add_json
from minibert.cli.lines import STANDARD_INPUT, text_lines
from minibert.terminal import emit, json_text


def add_features(commands: Any) -> None:
    """The parser of `minibert features`."""
    parser = commands.add_parser(
        "features",
        usage="minibert features RUN --out FILE [--text FILE] [--layers LAYERS] [--pool POOL] [...]",
        description="""
Writes what a BERT makes of every line of a text: one vector for each line, or
for each of its tokens. A .npy file is one array with a row for each line; with
--pool none a row for each token, and beside it NAME.cu_seqlens.npy says at
which row each line begins. A .jsonl file has a line for each line.
""",
        epilog="""
examples:
  minibert features runs/books --text questions.txt --out questions.npy
  minibert features all-MiniLM-L6-v2 --layers -1,-2,-3,-4 --pool none --out t.jsonl
""",
    )
    # To argparse "-1" is a value and "-1,-2" a flag.
    parser._negative_number_matcher = re.compile(r"-\d+(,-?\d+)*$")
    parser.set_defaults(run=run_features)
    parser.add_argument("folder", metavar="RUN", help="a folder with a BERT, fine-tuned or not")
    parser.add_argument("--out", metavar="FILE", required=True, help="a .npy or .jsonl file to write")
    parser.add_argument(
        "--text",
        default=STANDARD_INPUT,
        metavar="FILE",
        help="a file of texts, .gz and .xz too (default: the standard input)",
    )
    parser.add_argument(
        "--layers",
        default="-1",
        metavar="LAYERS",
        help="the layers to put side by side: numbers separated by commas, 0 for the embeddings, -1 for the "
        "last; or all; or embeddings (default: -1)",
    )
    parser.add_argument(
        "--pool",
        default="mean",
        choices=("cls", "mean", "pooled", "none"),
        help="what stands for a line: [CLS], the mean of its tokens, the pooler's output, or every token "
        "(default: mean)",
    )
    parser.add_argument(
        "--max-length", type=int, metavar="N", help="longer lines are cut at the end (default: as the model)"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_engine(parser)
    add_json(parser)


def run_features(arguments: argparse.Namespace) -> int:
    """Compute, write, and say what was written."""
    from minibert.backends import limited_threads
    from minibert.finetuning.features import Extractor, check_format, load_encoder, write_features
    from minibert.finetuning.progress import Progress

    out = Path(arguments.out)
    check_format(out)
    model, tokenizer = load_encoder(arguments.folder, arguments.pool, arguments.backend, arguments.threads)

    extractor = Extractor(model, tokenizer, arguments.layers, arguments.pool, arguments.max_length)
    is_file = arguments.text != STANDARD_INPUT
    size = Path(arguments.text).stat().st_size if is_file and Path(arguments.text).is_file() else None
    with (
        limited_threads(arguments.threads, model.ops),
        Progress(size, "bytes" if is_file else "lines", not arguments.quiet) as progress,
    ):
        found = write_features(extractor, _watched(arguments.text, progress), out)
    found |= {"out": str(out)}
    if arguments.json:
        emit(json_text(found))
    else:
        emit(
            f"{found['texts']:,} lines, {found['tokens']:,} tokens, "
            f"{found['width']:,} numbers in a vector: {out}"
        )
    return 0


def _watched(file: str, progress: Any) -> Iterator[str]:
    """Lines, with what was read of the file told as progress; of the standard input their number."""
    place = 0

    def told(now: int) -> None:
        nonlocal place
        progress.add(now - place)
        place = now

    for line in text_lines(file, told):
        yield line
        if file == STANDARD_INPUT:
            progress.add(1)
