"""Token shards wherever they are and in however many parts, opened as one."""

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

ELSEWHERE = "elsewhere.json"  # in a folder that stands for shards in another
COUNTS = ("documents", "sentences", "tokens")
NAMED = 6  # missing parts that are named one by one


def open_shards(folder: str | Path, tokenizer: Tokenizer | None = None) -> TokenShards:
    """Open what `write_shards` or `minibert data` made, all its parts, or what `link_shards` points at.

    A `tokenizer` is checked to be the one that the ids were made with. Raise InputError when there are no
    shards, a part is missing or damaged, or they belong to another vocabulary.
    """
    folder = Path(folder)
    if not os.path.exists(folder):  # unlike `Path.exists` of whatever name a link may hold
        advice = "make them with minibert data, or tell with --shards where they are."
        raise InputError(f"{folder} is not there, so it holds no token shards; {advice}")
    if (folder / ELSEWHERE).exists():
        recorded = _read_link(folder)
        place = Path(recorded["folder"])
        if os.path.exists(place / ELSEWHERE):  # `link_shards` never does that, and it may lead in a circle
            what = f"names {place}, which holds no shards but names another folder"
            raise InputError(f"{folder / ELSEWHERE} {what}; tell with --shards where they are.")
        shards = open_shards(place, tokenizer)
        _require_same(recorded, shards)
        return shards
    if parts := parts_in(folder):
        return JoinedShards(folder, parts, tokenizer)
    return TokenShards(folder, tokenizer)


def vocabulary_of(folder: str | Path) -> Tokenizer:
    """Load the tokenizer of shards that `minibert data` made."""
    folder = Path(folder)
    place = next(iter(parts_in(folder).values()), folder)
    if not (place / MANIFEST).exists():
        raise InputError(f"{folder} holds no token shards with a vocabulary; make them with minibert data.")
    return Tokenizer.from_pretrained(place)


def missing_parts(parts: Collection[Part]) -> str:
    """Name the parts that are not among some of them, for a person; "" when none is missing."""
    count = next(iter(parts)).parts
    every = (Part(number, count) for number in range(1, count + 1))
    return some_of([str(part) for part in every if part not in parts], NAMED)


class JoinedShards(TokenShards):
    """Parts of shards as one, one after another, each memory-mapped as it is."""

    def __init__(self, folder: Path, parts: dict[Part, Path], tokenizer: Tokenizer | None = None):
        self.folder = folder
        one, *others = {part.parts for part in parts}
        if others:
            raise InputError(f"{self.folder} holds parts of {one} and of {others[0]}; keep those of one N.")
        if missing := missing_parts(parts):
            advice = "make what is missing with minibert data --part, of the same corpus."
            raise InputError(f"{self.folder} lacks part {missing} of its token shards; {advice}")
        manifests = {place: Manifest.read(place) for place in parts.values()}
        first, *rest = manifests.items()
        for place, manifest in rest:
            first[1].require_same_source(manifest, place)
        opened = []  # those that have text
        for (part, place), manifest in zip(parts.items(), manifests.values(), strict=True):
            shards = TokenShards(place, tokenizer) if (place / META).exists() else None
            made = (shards.n_documents if shards else 0), *part
            if made != (manifest.documents, manifest.part, manifest.parts):
                raise self._damaged(f"{place / MANIFEST} is not of the part that lies beside it")
            opened += [shards] if shards else []
        if not opened:
            raise InputError(f"The {one} parts in {self.folder} hold no token; make them of files with text.")
        for shards in opened[1:]:
            if (shards.vocab_size, shards.vocab_sha256) != (opened[0].vocab_size, opened[0].vocab_sha256):
                raise self._damaged(f"{shards.folder} belongs to another vocabulary than {opened[0].folder}")
        self.n_documents, self.n_sentences, self.n_tokens = (
            sum(getattr(one, f"n_{name}") for one in opened) for name in COUNTS
        )
        self.vocab_size, self.vocab_sha256 = opened[0].vocab_size, opened[0].vocab_sha256
        self.tokens = EndToEnd([one.tokens for one in opened])
        self.sentence_lengths = EndToEnd([one.sentence_lengths for one in opened])
        self.token_ends = _continued([one.token_ends for one in opened])
        self.sentence_ends = _continued([one.sentence_ends for one in opened])


class EndToEnd:
    """Arrays (n,) as if they were one. A slice, or a list of places, is fetched from where it lies."""

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
                before = int(self.ends[number]) - len(self.arrays[number])
                return self.arrays[number][begin - before : end - before : step]
            where = np.arange(begin, end, step)
        found = np.empty(len(where), self.arrays[0].dtype)
        part = np.searchsorted(self.ends, where, "right")
        borders = np.flatnonzero(np.diff(part, prepend=-1, append=-1)).tolist()
        for begin, end in pairwise(borders):  # places in one array: a span of text at least, often many
            number = part[begin]
            array = self.arrays[number]
            found[begin:end] = array[where[begin:end] - (self.ends[number] - len(array))]
        return found


def _continued(ends: list[np.ndarray]) -> np.ndarray:  # each (n,) -> (sum of n,)
    """Count the ends of documents in each part on from the part before."""
    before = np.cumsum([0, *(one[-1] for one in ends[:-1])])
    return np.concatenate([one + start for one, start in zip(ends, before, strict=True)])


def link_shards(folder: Path, shards: TokenShards) -> None:
    """Let `open_shards(folder)` open shards that lie elsewhere, as long as they are the same."""
    recorded = _identity(shards) | {"folder": str(shards.folder.absolute())}
    if (folder / ELSEWHERE).exists():
        known = _read_link(folder)
        _require_same(known, shards)
        if known == recorded:
            return
    elif folder.exists():
        raise InputError(f"{folder} holds token shards of its own, so others can't take their place.")
    atomic_json(folder / ELSEWHERE, recorded)


def _read_link(folder: Path) -> dict[str, Any]:
    fields = dict.fromkeys(COUNTS, int) | {"vocab_sha256": str, "folder": str}
    recorded = read_json(folder / ELSEWHERE, fields, "remove it and say with --shards where token shards are")
    return {name: recorded[name] for name in fields}


def _identity(shards: TokenShards) -> dict[str, Any]:
    return {name: getattr(shards, f"n_{name}") for name in COUNTS} | {"vocab_sha256": shards.vocab_sha256}


def _require_same(recorded: dict[str, Any], shards: TokenShards) -> None:
    """Raise InputError when shards are not the recorded ones. It is their size that is compared."""
    if not _identity(shards).items() <= recorded.items():
        found = f"{counted(shards.n_documents, 'document')} and {counted(shards.n_tokens, 'token')}"
        known = f"{recorded['documents']:,} and {recorded['tokens']:,}, or another vocabulary"
        what = f"are not those that the run began with: {found}, where those were {known}"
        raise InputError(f"The token shards in {shards.folder} {what}; tell with --shards where those are.")
