"""Split text into pieces, with their ids and offsets.

Splits text into WordPiece pieces and shows each piece, its id, and its position
in the text, counted in characters: offset 3:7 is text[3:7] in Python. Each
TEXT, and each line of a file or of the standard input, is a separate text.

examples:
  minibert tokenize "It came to pass."
  minibert tokenize --vocab runs/books "It came to pass."
  minibert tokenize --vocab vocab.txt --file articles.txt.xz --ids --max-length 128
  zcat questions.gz | minibert tokenize --vocab bert-base-cased --cased --pair --json
"""

import os
import sys
import unicodedata
from argparse import ArgumentParser, Namespace
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.reading import byte_pieces, whole_lines
from minibert.base.terminal import emit, json_text, printable
from minibert.base.texts import is_blank
from minibert.cli.shared.flags import (
    IN_PACKAGE,
    KEEP_ACCENTS,
    add_core,
    add_flag,
    add_switches,
    invalid_text,
    model_or_default,
    selected,
)
from minibert.cli.shared.texts import (
    ONE_A_LINE,
    STANDARD_INPUT,
    add_texts,
    announce_typed_input,
    as_utf8,
    refuse_folders,
)
from minibert.tokenizer import COMPAT, TRUNCATION, BatchEncoding, Encoding, Tokenizer, text_rules
from minibert.tokenizer.encoding import LongPair
from minibert.tokenizer.unicode import NONSPACING, flags

GROUP_BYTES = 1 << 20  # bytes of lines that are encoded together
PART = 1 << 16  # pieces that are printed together
FIELDS = ("tokens", "ids", "token_type_ids", "offsets", "word_ids", "special_tokens_mask")  # of --json
WIDTHS = (14, 6)  # least widths of pieces and ids, so that most texts fit under one header
LONGEST_SHOWN = 60  # characters of the text that are shown for one piece
LENIENT = ", or leave out --strict"


class Block(NamedTuple):
    """Texts that are encoded together."""

    texts: list[bytes]
    pairs: list[bytes] | None  # the second half of each
    first: int  # number of texts before it
    name: str = ""  # the file; "" for texts on the command line
    line: int = 0  # number of lines before it in the file

    def place(self, number: int) -> str:
        """Say where a text or pair is from.

        Parameters
        ----------
        number : int
            Index of the text or pair in the block.

        Returns
        -------
        str
            The beginning of an error.
        """
        return f"Line {self.line + number + 1:,} of {self.name}" if self.name else f"Pair {number + 1:,}"


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage line.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = "minibert tokenize [TEXT ...] [--vocab PATH] [--file FILE] [--json | --ids] [...]"
    text = "a vocab.txt or tokenizer.json, or a folder with one, whose tokenizer_config.json is used too "
    add_flag(parser, "--vocab PATH", text + IN_PACKAGE)
    add_texts(parser, blank="a blank line has no pieces")
    output = parser.add_argument_group("what is printed").add_mutually_exclusive_group()
    add_switches(output, json="everything, one JSON object per line", ids="only the ids, one line per text")
    group = parser.add_argument_group("what is encoded")
    add_switches(group, pair="two TEXTs, or a line divided at its first tab, are a pair")
    add_switches(group, bare="leave out [CLS] before and [SEP] after each text")
    text = "split [MASK] and other special tokens in the text like ordinary text"
    add_switches(group, split_special_tokens=text)
    group.add_argument(
        "--cased",
        dest="lower_case",
        action="store_false",
        help="keep case and accents, whatever the folder says",
    )
    add_switches(group, keep_accents=KEEP_ACCENTS)
    text = "whose rules to follow (default: what the folder says, or else google)"
    add_flag(group, "--compat", text, choices=COMPAT)
    add_flag(group, "--max-length N", "most ids for a text, including [CLS] and [SEP]")
    add_flag(group, "--truncation", "which text of a pair to cut", TRUNCATION[0], choices=TRUNCATION)
    add_flag(group, "--stride N", "instead of cutting, make windows that share N pieces")
    add_switches(group, strict="stop at the first byte that is not UTF-8")
    add_core(parser)


def run(arguments: Namespace) -> None:
    """Print the pieces of each text.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags contradict each other, or a line can't be encoded.
    """
    if arguments.texts and arguments.file:
        raise InputError("Texts and --file were both given; give one of them.")
    if arguments.pair and len(arguments.texts) % 2:
        raise InputError(
            f"--pair takes texts two by two, not {len(arguments.texts)}; give every first text a second one."
        )
    options = text_rules(not arguments.lower_case, arguments.keep_accents)
    if arguments.compat:
        options = options | {"compat": arguments.compat}
    refuse_folders(arguments.texts, arguments.vocab, "a vocabulary with --vocab")
    vocab = model_or_default(arguments.vocab, "--vocab")
    tokenizer = Tokenizer.from_pretrained(vocab, core=arguments.core, **options)
    how = selected(arguments, "max_length truncation stride threads")
    if arguments.split_special_tokens:
        how |= {"special": False}
    how |= {"offsets": not arguments.ids, "add_special_tokens": not arguments.bare}
    n_invalid = 0
    for block in _of_arguments(arguments) if arguments.texts else _of_files(arguments):
        try:
            batch = tokenizer.encode_batch(block.texts, block.pairs, **how)
        except LongPair as error:
            raise InputError(f"{block.place(error.pair)} {error.reason}", **error.arguments) from error
        n_invalid += batch.n_invalid
        for part in _id_lines(batch) if arguments.ids else _in_full(batch, block, arguments.json):
            emit(part, end="")
        emit(end="", flush=True)
    if n_invalid:
        warn(invalid_text(n_invalid))


def _of_arguments(arguments: Namespace) -> Iterator[Block]:
    """Yield the texts of the command line, as the bytes that the shell passed."""
    texts = [os.fsencode(text) for text in arguments.texts]
    if arguments.strict:
        for number, text in enumerate(texts, 1):
            as_utf8(text, f"text {number}", instead=LENIENT)
    if arguments.pair:
        yield Block(texts[::2], texts[1::2], 0)
    else:
        yield Block(texts, None, 0)


def _of_files(arguments: Namespace) -> Iterator[Block]:
    """Yield the lines of files, about GROUP_BYTES at a time; from a slow source, those that have arrived."""
    first = 0  # texts so far
    for file in arguments.file or [STANDARD_INPUT]:
        name = file
        if file == STANDARD_INPUT:  # whatever has arrived, so that a line is answered at once
            name = "the standard input"
            announce_typed_input(ONE_A_LINE)
            pieces = iter(partial(cast(Any, sys.stdin.buffer).read1, GROUP_BYTES), b"")
        else:
            pieces = byte_pieces(Path(file), GROUP_BYTES)
        begin = 0  # bytes of the file so far
        n_lines = 0
        for data in whole_lines(pieces, name, returns=False):
            if arguments.strict:
                as_utf8(data, name, begin, LENIENT)
            text = data if begin else data.removeprefix(BOM_UTF8)
            lines = text.removesuffix(b"\n").split(b"\n")
            texts = [line.removesuffix(b"\r") for line in lines]
            pairs = None
            if arguments.pair:
                texts, pairs = _halves(texts, name, n_lines)
            yield Block(texts, pairs, first, name, n_lines)
            begin += len(data)
            n_lines += len(texts)
            first += len(texts)


def _halves(lines: list[bytes], name: str, n_lines: int) -> tuple[list[bytes], list[bytes]]:
    """Divide lines at their first tab, blank ones into blank halves; `n_lines` precede them in the file."""
    firsts = []
    seconds = []
    for number, line in enumerate(lines, n_lines + 1):
        first, tab, second = line.partition(b"\t")
        if not tab and not is_blank(line.decode(errors="replace")):
            raise InputError(f"Line {number:,} of {name} has no tab; --pair needs one between two texts.")
        firsts.append(first)
        seconds.append(second)
    return firsts, seconds


def _id_lines(batch: BatchEncoding) -> Iterator[str]:
    """Yield the ids of each text in parts, then a line end."""
    for begin, end in pairwise(batch.cu_seqlens.tolist()):
        for first in range(begin, end, PART):
            last = min(first + PART, end)
            if first > begin:
                yield " "
            yield " ".join(map(str, batch.ids[first:last].tolist()))
        yield "\n"


def _in_full(batch: BatchEncoding, block: Block, as_json: bool) -> Iterator[str]:
    """Yield everything about each text, in parts: a line of JSON, or a table."""
    for number, (encoding, source) in enumerate(zip(batch, batch.source.tolist(), strict=True)):
        if as_json:
            yield from _json(encoding, block.first + source)
            continue
        if block.first or number:
            yield "\n"
        else:
            yield f"{_cells('piece', 'id', WIDTHS)}  {'offset':<9}  text\n"
        texts = [block.texts[source]]
        if block.pairs:
            texts.append(block.pairs[source])
        yield from _table(encoding, [text.decode(errors="replace") for text in texts])


def _json(encoding: Encoding, source: int) -> Iterator[str]:
    """Yield one line, in parts, as a text may have millions of pieces."""
    yield f'{{"source": {source}'
    for name in FIELDS:
        values = getattr(encoding, name)
        yield f', "{name}": ['
        for begin in range(0, len(values), PART):
            part = values[begin : begin + PART]
            listed = part if isinstance(part, list) else part.astype(np.int32).tolist()
            if begin > 0:
                yield ", "
            yield json_text(listed, indent=None)[1:-1]
        yield "]"
    yield "}\n"


def _table(encoding: Encoding, texts: list[str]) -> Iterator[str]:
    """Yield a line for each piece; for a special token, only the piece and its id."""
    pieces = dict(zip(encoding.ids.tolist(), encoding.tokens, strict=True))
    longest_id = len(str(max(pieces, default=0)))
    widest_piece = max(map(_columns, pieces.values()), default=0)
    widths = (max(WIDTHS[0], widest_piece), max(WIDTHS[1], longest_id))
    beginnings = {number: _cells(piece, str(number), widths) for number, piece in pieces.items()}
    digits = len(str(encoding.offsets.max(initial=0)))
    rows = np.column_stack(
        [encoding.ids, encoding.offsets, encoding.token_type_ids, encoding.special_tokens_mask]
    )
    for first in range(0, len(rows), PART):
        for number, begin, end, segment, is_special in rows[first : first + PART].tolist():
            if is_special:
                yield beginnings[number] + "\n"
                continue
            shown = printable(texts[segment][begin : min(end, begin + LONGEST_SHOWN)])
            if end - begin > LONGEST_SHOWN:
                shown += "…"
            offsets = f"{begin:>{digits}}:{end}"
            yield f"{beginnings[number]}  {offsets:<9}  {shown}\n"


def _cells(piece: str, number: str, widths: Sequence[int]) -> str:
    """Return a piece and its id, in columns of these widths."""
    piece = printable(piece)
    spaces = " " * (widths[0] - _columns(piece))
    return f"{piece}{spaces} {number:>{widths[1]}}"


def _columns(text: str) -> int:
    """Return the width of a text on a terminal."""
    if text.isascii():
        return len(text)
    n_wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    n_unseen = sum(bool(flags(ord(character)) & NONSPACING) for character in text)
    return len(text) + n_wide - n_unseen
