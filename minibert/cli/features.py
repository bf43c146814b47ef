"""Write vectors of texts, or of their tokens, from any layers.

Writes the vectors that a BERT computes for texts: one for each text, or one for
each of its tokens. Without TEXT, every line of --file or of the standard input
is a text. A .npy file is one array with a row for each text; with --pool none,
it has a row for each token, and NAME.cu_seqlens.npy says in which row each text
begins. A .jsonl file has a line for each text. For a sentence-transformers
folder, the vectors are those of SentenceTransformer.encode, unless --pool or
--layers asks for others.

examples:
  minibert features --file questions.txt --out questions.npy
  minibert features --model runs/books --file questions.txt --out questions.npy
  minibert features --model all-MiniLM-L6-v2 --layers -1,-2,-3,-4 --pool none --out t.jsonl
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import require_folder
from minibert.base.terminal import counted, emit, json_text, listed
from minibert.cli.shared import flags
from minibert.cli.shared.texts import add_texts, given_texts, refuse_folders
from minibert.model.pools import POOLS


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert features [--model MODEL] --out FILE [TEXT ... | --file FILE] [...]"
    flags.add_any_model(parser, "a folder with a BERT, fine-tuned or not, or RUN@STEP")
    add_texts(parser)
    flags.add_flag(parser, "--out FILE", "a .npy or .jsonl file to write", required=True)
    text = "the layers to concatenate: numbers separated by commas (0: the embeddings, -1: the last layer), "
    flags.add_flag(parser, "--layers LAYERS", text + "all, or embeddings", "-1")
    text = f"the vector of a line: {listed([pool.about for pool in POOLS.values()], 'or')}"
    text += " (default: mean, or what a folder of sentence-transformers makes of the last layer)"
    flags.add_flag(parser, "--pool", text, choices=tuple(POOLS))
    flags.add_switches(parser, normalize="scale each vector to length 1, so that dot products are cosines")
    flags.add_switches(parser, pair="each text is a pair, divided at its first tab")
    text = "tokens in the longest sequence; longer lines are cut (default: what the folder says, or the "
    text += "number of the model's positions)"
    flags.add_flag(parser, "--max-length N", text)
    flags.add_switches(parser, quiet=flags.QUIET)
    flags.add_engine(parser)
    flags.add_switches(parser, json=flags.JSON)


def run(arguments: Namespace) -> None:
    """Write the vectors, and print how many.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When the file to write is also read, or can't be written.
    """
    from minibert.ask.inference import Bert
    from minibert.engines import limited_threads
    from minibert.finetuning.frozen.features import Extractor, check_format, write_features
    from minibert.training.runlog import Progress

    out = Path(arguments.out)
    check_format(out)
    require_folder(out.parent)
    files = [] if arguments.texts else [Path(file) for file in arguments.file or ()]
    for file in files:
        if out.exists() and os.path.exists(file) and os.path.samefile(out, file):
            raise InputError(f"--out {out} is the file that is read; name another.")
    refuse_folders(arguments.texts, arguments.model)
    name = flags.model_or_default(arguments.model)
    model = Bert.from_pretrained(name, arguments.engine, threads=arguments.threads)
    extractor = Extractor(model, **flags.selected(arguments, "layers pool max_length normalize"))
    size = None
    if files and all(map(Path.is_file, files)):
        size = sum(file.stat().st_size for file in files)
    unit = "bytes" if size else "lines"
    with limited_threads(arguments.threads, model.ops), Progress(size, unit, not arguments.quiet) as progress:
        texts = _watched(arguments, progress, size is not None)
        inputs = _pairs(texts) if arguments.pair else texts
        written = write_features(extractor, inputs, out)
    if arguments.json:
        emit(json_text({**written, "out": str(out)}))
    else:
        lines = counted(written["texts"], "line")
        tokens = counted(written["tokens"], "token")
        width = counted(written["width"], "number")
        blank = f" ({written['blank']:,} of them blank)" if written["blank"] else ""
        emit(f"{lines}{blank}, {tokens}, {width} in a vector: {out}")


def _pairs(texts: Iterator[str | None]) -> Iterator[tuple[str, str] | None]:
    for number, text in enumerate(texts, 1):
        if text is None:
            yield None
            continue
        first, tab, second = text.partition("\t")
        if not tab:
            raise InputError(f"Text {number:,} has no tab; --pair needs one between two texts.")
        yield first, second


def _watched(arguments: Namespace, progress: Any, by_bytes: bool) -> Iterator[str | None]:
    """Yield texts; show as progress how much of the files was read, or the number of texts."""
    position = 0

    def add(now: int) -> None:
        nonlocal position
        progress.add(now - position if now >= position else now)  # a second file begins at 0
        position = now

    for text in given_texts(arguments, progress=add if by_bytes else None):
        yield text
        if not by_bytes:
            progress.add(1)
