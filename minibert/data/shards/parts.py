"""Token shards of one corpus made in N parts, by as many jobs on whatever machines, and read as one.

A part is a share of the corpus's files, in their order, about equal to the others in bytes. A file ends its
document, so that no document lies in two parts, and what the parts hold together doesn't depend on N. One
part alone is the folder itself; of several, each has a folder of its own in it:

    00002-of-00003/  part.json    which part of what corpus, and its files with their sizes
                     vocab.txt    and the rest of the tokenizer
                     meta.json, tokens.bin, ...  as in `store.py`; none when there is no text
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, remove_unfinished, write_folder_atomically
from minibert.base.json_files import misfit_of, read_json
from minibert.data.corpus import EmptyCorpusError
from minibert.data.shards.store import Stream, fill_with_shards
from minibert.tokenizer import Tokenizer

FORMAT, VERSION = "minibert-part", 1
MANIFEST = "part.json"
MOST = 99_999  # parts
_FOLDER = re.compile(r"(\d{5,})-of-(\d{5,})")


class Part(NamedTuple):
    """Part `number` (from 1 on) of `parts`."""

    number: int = 1
    parts: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Read `2/3`."""
        found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
        part = cls(*map(int, found.groups())) if found else cls(0, 0)
        if not 1 <= part.number <= part.parts <= MOST:
            what = f"give I/N with I from 1 to N, such as 2/3, and at most {MOST:,} parts."
            raise InputError(f"$part is not possible; {what}", part=text)
        return part

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def folder_in(self, folder: Path) -> Path:
        return folder if self.parts == 1 else folder / f"{self.number:05}-of-{self.parts:05}"


@dataclass(frozen=True)
class Manifest:
    """What a part was made of; files go by name and size, as machines may see them in different places."""

    part: int
    parts: int
    layout: str
    corpus_sha256: str  # of the names and sizes of all files, those of the other parts too
    tokenizer_sha256: str  # of the vocabulary and of how words are made
    files: tuple[tuple[str, int], ...]  # of this part: names and bytes
    documents: int = 0

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / MANIFEST
        again = f"make that part again with minibert data, elsewhere or without its files in {folder}"
        fields = read_json(path, advice=again)
        if (fields.pop("format", None), fields.pop("version", None)) != (FORMAT, VERSION):
            raise InputError(f"{path} is of another format or version; {again}.")
        if wrong := misfit_of(cls, fields):
            raise InputError(f"{path} can't be read: {wrong}; {again}.")
        return cls(**fields | {"files": tuple(map(tuple, fields["files"]))})

    def require_same_source(self, other: "Manifest", folder: Path) -> None:
        """Raise InputError when `other`, which stands in `folder`, was made of something else than this."""
        for field, what in (
            ("corpus_sha256", "another corpus (other files, or other sizes of them)"),
            ("layout", f"--layout {other.layout} instead of {self.layout}"),
            ("tokenizer_sha256", "another vocabulary"),
        ):
            if getattr(self, field) != getattr(other, field):
                advice = "make all parts with one corpus, layout and vocabulary, or choose another --out."
                raise InputError(f"{folder} was made with {what}; {advice}")


def files_of_part(files: Sequence[Path], part: Part) -> list[Path]:
    """Choose the files of one part, perhaps none: those whose middle byte lies in its share of all bytes."""
    sizes = [file.stat().st_size for file in files]
    total = max(1, sum(sizes))
    middles = [2 * end - size for size, end in zip(sizes, accumulate(sizes), strict=True)]  # in half bytes
    shares = [min(middle * part.parts // (2 * total), part.parts - 1) for middle in middles]
    return [file for file, share in zip(files, shares, strict=True) if share == part.number - 1]


def plan_part(
    files: Sequence[Path], part: Part, layout: str, tokenizer: Tokenizer
) -> tuple[Manifest, list[Path]]:
    """Return a part's manifest, its documents not counted yet, and the files to read."""
    own = files_of_part(files, part)
    made_with = {name: value for name, value in tokenizer.__getstate__().items() if name != "core"}
    every, chosen = ([(file.name, file.stat().st_size) for file in some] for some in (files, own))
    manifest = Manifest(
        *part, layout, corpus_sha256=_sha256(every), tokenizer_sha256=_sha256(made_with), files=tuple(chosen)
    )
    return manifest, own


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8")).hexdigest()


def parts_in(folder: Path) -> dict[Part, Path]:
    """Find the folders of parts in a folder, in order."""
    names = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = {path: _FOLDER.fullmatch(path.name) for path in names}
    return dict(sorted((Part(*map(int, match.groups())), path) for path, match in found.items() if match))


def finished_part(folder: Path, planned: Manifest) -> Manifest | None:
    """Return the part that is planned, if `folder` has it already."""
    part = Part(planned.part, planned.parts)
    if part.parts > 1:  # other parts of the same whole may be there, and nothing else
        parts = parts_in(folder)
        visible = [path for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else [folder]
        if folder.exists() and len(visible) > len(parts):
            what = "something else than parts of token shards"
            raise InputError(f"{folder} holds {what}; choose another --out.")
        for other, beside in parts.items():
            if other.parts != planned.parts:
                both = f"{other}, which can't stand beside part {planned.part}/{planned.parts}"
                advice = "make all parts with the same N, or choose another --out."
                raise InputError(f"{folder} holds part {both}; {advice}")
            planned.require_same_source(Manifest.read(beside), beside)
    elif not (folder / MANIFEST).exists():
        require_free(folder)
    place = part.folder_in(folder)
    if not (place / MANIFEST).exists():
        return None
    made = Manifest.read(place)
    planned.require_same_source(made, place)
    return made


def require_free(folder: Path) -> None:
    """Raise InputError when a folder holds something."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if parts := parts_in(folder):
        held = f"parts of token shards ({len(parts)} of {next(iter(parts)).parts})"
        raise InputError(f"{folder} holds {held}; go on with --part, or choose another --out.")
    raise InputError(f"{folder} is there and is no empty folder; choose another --out.")


def write_part(stream: Stream, tokenizer: Tokenizer, folder: Path, planned: Manifest) -> Manifest:
    """Make a part as `plan_part` says, whole or not at all. One of several may be empty."""
    place = Part(planned.part, planned.parts).folder_in(folder)

    def fill(temporary: Path) -> None:
        try:
            documents = fill_with_shards(stream, tokenizer, temporary)
        except EmptyCorpusError:
            if planned.parts == 1:
                raise
            documents = 0
            for path in temporary.iterdir():
                path.unlink()
        tokenizer.save_pretrained(temporary)
        made = asdict(replace(planned, documents=documents))
        atomic_json(temporary / MANIFEST, {"format": FORMAT, "version": VERSION, **made})

    remove_unfinished(place)  # by a job that was killed
    write_folder_atomically(place, fill)
    return Manifest.read(place)
