"""Open token shards as one, wherever they are and in however many parts."""

import os
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.base.terminal import counted, some_of
from minibert.data.shards.parts import MANIFEST, Manifest, Part, parts_in
from minibert.data.shards.store import META, TokenShards
from minibert.tokenizer import Tokenizer

ELSEWHERE = "elsewhere.json"  # the link, in a folder that refers to shards in another folder
COUNTS = ("documents", "sentences", "tokens")
NAMED = 6  # an error names so many missing parts one by one


def open_shards(folder: str | Path, tokenizer: Tokenizer | None = None) -> TokenShards:
    """Open shards that `write_shards` or `minibert data` made, with all parts, or that a link refers to.

    Parameters
    ----------
    folder : str or Path
        A folder of shards, of their parts, or with a link to another folder.
    tokenizer : Tokenizer, optional
        If given, its vocabulary must be the one that the ids were made with.

    Returns
    -------
    TokenShards
        The shards; parts are joined in order.

    Raises
    ------
    InputError
        When there are no shards, a part is missing or damaged, they belong to another vocabulary, or a link
        leads to another link or to other shards than those that it was made for.
    """
    folder = Path(folder)
    if not os.path.exists(folder):  # a link may hold any name; `Path.exists` raises an error for some
        advice = "make them with minibert data, or name their folder with `shards`."
        raise InputError(f"'{folder}' is not there, so it holds no token shards; {advice}")
    if (folder / ELSEWHERE).exists():
        recorded = _read_link(folder)
        place = Path(recorded["folder"])
        if os.path.exists(place / ELSEWHERE):  # `link_shards` never does that, and it may lead in a circle
            raise InputError(
                f"{folder / ELSEWHERE} names '{place}', which holds no shards but names another folder; "
                "name their folder with `shards`."
            )
        shards = open_shards(place, tokenizer)
        _require_same(recorded, shards)
        return shards
    if parts := parts_in(folder):
        return JoinedShards(folder, parts, tokenizer)
    return TokenShards(folder, tokenizer)


def vocabulary_of(folder: str | Path) -> Tokenizer:
    """Load the tokenizer of shards that `minibert data` made.

    Parameters
    ----------
    folder : str or Path
        A folder of shards, or of their parts, which all have the same tokenizer.

    Returns
    -------
    Tokenizer
        The tokenizer that was saved with the shards.

    Raises
    ------
    InputError
        When the folder holds no shards with a tokenizer.
    """
    folder = Path(folder)
    places = parts_in(folder).values()
    place = next(iter(places), folder)
    if not (place / MANIFEST).exists():
        raise InputError(f"'{folder}' holds no token shards with a vocabulary; make them with minibert data.")
    return Tokenizer.from_pretrained(place)


def missing_parts(parts: Collection[Part]) -> str:
    """Name the missing parts, for an error or a report.

    Parameters
    ----------
    parts : collection of Part
        The existing parts, at least one, all with the same N.

    Returns
    -------
    str
        The names of the first few; "" if none is missing.
    """
    count = next(iter(parts)).parts
    missing = []
    for number in range(1, count + 1):
        part = Part(number, count)
        if part not in parts:
            missing.append(str(part))
    return some_of(missing, NAMED)


class JoinedShards(TokenShards):
    """The parts of token shards as one, in order, each mapped into memory where it is.

    Parameters
    ----------
    folder : Path
        The folder that holds the parts.
    parts : dict from Part to Path
        The parts in order, each with its folder, as `parts_in` finds them.
    tokenizer : Tokenizer, optional
        If given, its vocabulary must be the one that the ids were made with.

    Raises
    ------
    InputError
        When a part is missing or damaged, parts do not belong together, or none has text.
    """

    def __init__(self, folder: Path, parts: dict[Part, Path], tokenizer: Tokenizer | None = None):
        self.folder = folder
        count, *others = {part.parts for part in parts}
        if others:
            raise InputError(
                f"'{self.folder}' holds parts of {count} and of {others[0]}; keep those of one N."
            )
        if missing := missing_parts(parts):
            advice = "make what is missing with minibert data --part, of the same corpus."
            raise InputError(f"'{self.folder}' lacks part {missing} of its token shards; {advice}")
        opened = self._open(parts, tokenizer)
        if not opened:
            raise InputError(
                f"The {count} parts in '{self.folder}' hold no token; make them of files with text."
            )
        first = opened[0]
        for shards in opened[1:]:
            if (shards.vocab_size, shards.vocab_sha256) != (first.vocab_size, first.vocab_sha256):
                raise self._damaged(f"{shards.folder} belongs to another vocabulary than {first.folder}")
        self.n_documents = sum(shards.n_documents for shards in opened)
        self.n_sentences = sum(shards.n_sentences for shards in opened)
        self.n_tokens = sum(shards.n_tokens for shards in opened)
        self.vocab_size = first.vocab_size
        self.vocab_sha256 = first.vocab_sha256
        self.tokens = EndToEnd([shards.tokens for shards in opened])
        self.sentence_lengths = EndToEnd([shards.sentence_lengths for shards in opened])
        self.token_ends = _continued([shards.token_ends for shards in opened])
        self.sentence_ends = _continued([shards.sentence_ends for shards in opened])

    def _open(self, parts: dict[Part, Path], tokenizer: Tokenizer | None) -> list[TokenShards]:
        """Open the parts that have text, after checking that all come from the same source."""
        manifests = {part: Manifest.read(place) for part, place in parts.items()}
        first, *rest = parts
        for part in rest:
            manifests[first].require_same_source(manifests[part], parts[part])
        opened = []
        for part, place in parts.items():
            documents = 0
            if (place / META).exists():
                shards = TokenShards(place, tokenizer)
                documents = shards.n_documents
                opened.append(shards)
            manifest = manifests[part]
            if (documents, *part) != (manifest.documents, manifest.part, manifest.parts):
                raise self._damaged(f"{place / MANIFEST} is not of the part that lies beside it")
        return opened


class EndToEnd:
    """Several arrays (n,), indexed as if they were one; only the elements that are asked for are copied.

    Parameters
    ----------
    arrays : sequence of (n,)
        At least one array; all have the same dtype.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        self.ends = np.cumsum([len(array) for array in arrays])

    def __len__(self) -> int:
        return int(self.ends[-1])

    # where (m,) from 0 on, or a slice -> (m,)
    def __getitem__(self, where: slice | np.ndarray) -> np.ndarray:
        if isinstance(where, slice):
            begin, end, step = where.indices(len(self))
            number = int(np.searchsorted(self.ends, begin, "right"))
            if begin < end <= self.ends[number]:  # all of it is in one array
                array = self.arrays[number]
                before = int(self.ends[number]) - len(array)
                return array[begin - before : end - before : step]
            where = np.arange(begin, end, step)
        values = np.empty(len(where), self.arrays[0].dtype)
        number_of = np.searchsorted(self.ends, where, "right")  # (m,) the array of each index
        changes = np.diff(number_of, prepend=-1, append=-1)
        borders = np.flatnonzero(changes).tolist()
        for begin, end in pairwise(borders):  # a run of indices in one array: a span of text or more
            number = number_of[begin]
            array = self.arrays[number]
            before = self.ends[number] - len(array)
            values[begin:end] = array[where[begin:end] - before]
        return values


def _continued(ends: list[np.ndarray]) -> np.ndarray:  # each (n,) -> (sum of n,)
    """Concatenate the ends of documents of all parts, each counted on from the part before."""
    totals = [part_ends[-1] for part_ends in ends[:-1]]
    before = np.cumsum([0, *totals])
    return np.concatenate([part_ends + start for part_ends, start in zip(ends, before, strict=True)])


def link_shards(folder: Path, shards: TokenShards) -> None:
    """Make `open_shards(folder)` open shards in another folder, as long as these stay the same.

    Parameters
    ----------
    folder : Path
        Made if it does not exist; the link is a file in it.
    shards : TokenShards
        The shards in the other folder.

    Raises
    ------
    InputError
        When the folder holds shards of its own, or a link to shards that are not the same.
    """
    recorded = _identity(shards) | {"folder": str(shards.folder.absolute())}
    if (folder / ELSEWHERE).exists():
        existing = _read_link(folder)
        _require_same(existing, shards)
        if existing == recorded:
            return
    elif folder.exists():
        raise InputError(f"'{folder}' holds token shards of its own, so others can't take their place.")
    atomic_json(folder / ELSEWHERE, recorded)


def _read_link(folder: Path) -> dict[str, Any]:
    fields = dict.fromkeys(COUNTS, int) | {"vocab_sha256": str, "folder": str}
    recorded = read_json(folder / ELSEWHERE, fields, "remove it, and name the token shards with `shards`")
    return {name: recorded[name] for name in fields}


def _identity(shards: TokenShards) -> dict[str, Any]:
    return {
        "documents": shards.n_documents,
        "sentences": shards.n_sentences,
        "tokens": shards.n_tokens,
        "vocab_sha256": shards.vocab_sha256,
    }


def _require_same(recorded: dict[str, Any], shards: TokenShards) -> None:
    """Raise InputError unless shards have the recorded sizes and vocabulary."""
    if not _identity(shards).items() <= recorded.items():
        documents = counted(shards.n_documents, "document")
        tokens = counted(shards.n_tokens, "token")
        raise InputError(
            f"The token shards in '{shards.folder}' are not those that the run began with: {documents} and "
            f"{tokens}, where those were {recorded['documents']:,} and {recorded['tokens']:,}, or another "
            "vocabulary; name the folder of those with `shards`."
        )
