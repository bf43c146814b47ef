"""Make the token shards of one corpus in N parts, by N jobs on any machines; they are read as one.

A part is a share of the corpus's files, in order, with about as many bytes as the others. The end of a file
ends its document, so no document lies in two parts, and what the parts hold together doesn't depend on N. A
single part is the folder itself; of several, each has a subfolder:

    00002-of-00003/  part.json    which part of which corpus, and its files with their sizes
                     vocab.txt    and the rest of the tokenizer
                     meta.json, tokens.bin, ...  as in `store.py`; missing if the part has no text
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, write_folder_atomically
from minibert.base.json_files import dataclass_error, read_json
from minibert.data.corpus import EmptyCorpusError
from minibert.data.shards.store import Stream, fill_with_shards
from minibert.tokenizer import Tokenizer

FORMAT, VERSION = "minibert-part", 1
MANIFEST = "part.json"
MOST_PARTS = 99_999
_FOLDER = re.compile(r"(\d{5,})-of-(\d{5,})")


class Part(NamedTuple):
    """Part `number` (from 1 on) of `parts`."""

    number: int = 1
    parts: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Read a part as a user writes it, such as `2/3`.

        Parameters
        ----------
        text : str
            "I/N" with I from 1 to N, and N up to 99,999.

        Returns
        -------
        Part

        Raises
        ------
        InputError
            For any other text.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
        part = cls(0, 0)
        if match:
            part = cls(int(match[1]), int(match[2]))
        if not 1 <= part.number <= part.parts <= MOST_PARTS:
            raise InputError(
                f"part={text!r} is not possible; "
                f"give I/N with I from 1 to N, such as 2/3, and at most {MOST_PARTS:,} parts.",
                part=text,
            )
        return part

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def folder_in(self, folder: Path) -> Path:
        """Return the folder of the part within a folder of shards.

        Parameters
        ----------
        folder : Path
            The folder of all parts.

        Returns
        -------
        Path
            A subfolder, or the folder itself if there is only one part.
        """
        if self.parts == 1:
            return folder
        return folder / f"{self.number:05}-of-{self.parts:05}"


@dataclass(frozen=True)
class Manifest:
    """A record of what a part is made of.

    `plan_part` makes it, `write_part` stores it with the part, and `finished_part` compares the two. Files
    are identified by name and size, since their folders may differ between machines.
    """

    part: int
    parts: int
    layout: str
    corpus_sha256: str  # the hash of the names and sizes of all files, including those of the other parts
    tokenizer_sha256: str  # the hash of the vocabulary and of the rules by which words are cut
    files: tuple[tuple[str, int], ...]  # names and bytes of the files of this part
    documents: int = 0

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a part.

        Parameters
        ----------
        folder : Path
            Folder of the part.

        Returns
        -------
        Manifest

        Raises
        ------
        InputError
            When the manifest is missing, damaged, or of another version.
        """
        path = folder / MANIFEST
        again = f"make that part again with minibert data, elsewhere or without its files in '{folder}'"
        fields = read_json(path, advice=again)
        if (fields.pop("format", None), fields.pop("version", None)) != (FORMAT, VERSION):
            raise InputError(f"{path} is of another format or version; {again}.")
        if wrong := dataclass_error(cls, fields):
            raise InputError(f"{path} can't be read: {wrong}; {again}.")
        fields["files"] = tuple(map(tuple, fields["files"]))  # JSON has lists
        return cls(**fields)

    def require_same_source(self, other: "Manifest", folder: Path) -> None:
        """Check that another part was made from the same corpus, with the same layout and tokenizer.

        Parameters
        ----------
        other : Manifest
            Manifest of the other part.
        folder : Path
            Folder of the other part, for the error.

        Raises
        ------
        InputError
            When the corpus, the layout or the tokenizer differs.
        """
        for field, what in (
            ("corpus_sha256", "another corpus (other files, or other sizes of them)"),
            ("layout", f"the layout {other.layout} instead of {self.layout}"),
            ("tokenizer_sha256", "another vocabulary, or with other rules for splitting text"),
        ):
            if getattr(self, field) != getattr(other, field):
                advice = "make all parts with one corpus, layout and vocabulary, or choose another `out`."
                raise InputError(f"'{folder}' was made with {what}; {advice}")


def files_of_part(files: Sequence[Path], part: Part) -> list[Path]:
    """Choose the files of one part: those whose middle byte lies in its share of all bytes.

    Parameters
    ----------
    files : sequence of Path
        Files of the whole corpus, in order.
    part : Part
        The part.

    Returns
    -------
    list of Path
        The files of the part, in order; there may be none.
    """
    sizes = [file.stat().st_size for file in files]
    total = max(1, sum(sizes))
    chosen = []
    end = 0  # bytes up to the end of the file
    for file, size in zip(files, sizes, strict=True):
        end += size
        middle = 2 * end - size  # twice the middle, which is a whole number
        share = middle * part.parts // (2 * total)
        share = min(share, part.parts - 1)
        if share == part.number - 1:
            chosen.append(file)
    return chosen


def plan_part(
    files: Sequence[Path], part: Part, layout: str, tokenizer: Tokenizer
) -> tuple[Manifest, list[Path]]:
    """Return a part's manifest, with its documents not counted yet, and the files to read.

    Parameters
    ----------
    files : sequence of Path
        Files of the whole corpus, in order.
    part : Part
        The part to plan.
    layout : str
        How the files are written, a key of `corpus.LAYOUTS`.
    tokenizer : Tokenizer
        The tokenizer that the part will be made with.

    Returns
    -------
    Manifest
        The manifest, with 0 documents.
    list of Path
        The files of the part.
    """
    files_to_read = files_of_part(files, part)
    made_with = {name: value for name, value in tokenizer.__getstate__().items() if name != "core"}
    manifest = Manifest(
        part=part.number,
        parts=part.parts,
        layout=layout,
        corpus_sha256=_sha256(_names_and_sizes(files)),
        tokenizer_sha256=_sha256(made_with),
        files=tuple(_names_and_sizes(files_to_read)),
    )
    return manifest, files_to_read


def _names_and_sizes(files: Sequence[Path]) -> list[tuple[str, int]]:
    return [(file.name, file.stat().st_size) for file in files]


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8")).hexdigest()


def parts_in(folder: Path) -> dict[Part, Path]:
    """Find the folders of parts in a folder.

    Parameters
    ----------
    folder : Path
        It need not be there.

    Returns
    -------
    dict from Part to Path
        Their folders, in the order of the parts; {} if there are none.
    """
    if not folder.is_dir():
        return {}
    parts = []
    for path in folder.iterdir():
        match = _FOLDER.fullmatch(path.name)
        if match and path.is_dir():
            parts.append((Part(int(match[1]), int(match[2])), path))
    return dict(sorted(parts))


def finished_part(folder: Path, planned: Manifest) -> Manifest | None:
    """Return the manifest of a planned part if it has been made already.

    Parameters
    ----------
    folder : Path
        The folder of all parts; it need not exist.
    planned : Manifest
        As `plan_part` returns it.

    Returns
    -------
    Manifest or None
        The manifest, with documents counted; None if the part is still to be made.

    Raises
    ------
    InputError
        When the folder holds anything except parts of the same corpus, divided into as many parts.
    """
    part = Part(planned.part, planned.parts)
    if part.parts > 1:  # the folder may hold other parts of the same corpus, but nothing else
        parts = parts_in(folder)
        if _visible_in(folder) > len(parts):
            raise InputError(
                f"'{folder}' holds something else than parts of token shards; choose another `out`."
            )
        for other, beside in parts.items():
            if other.parts != planned.parts:
                raise InputError(
                    f"'{folder}' holds part {other}, which can't stand beside part {part}; "
                    "make all parts with the same N, or choose another `out`."
                )
            planned.require_same_source(Manifest.read(beside), beside)
    elif not (folder / MANIFEST).exists():
        require_free(folder)
    place = part.folder_in(folder)
    if not (place / MANIFEST).exists():
        return None
    made = Manifest.read(place)
    planned.require_same_source(made, place)
    return made


def _visible_in(folder: Path) -> int:
    """Count the entries of a folder that are not hidden; a file instead of a folder counts as 1."""
    if folder.is_dir():
        return sum(path.name[0] != "." for path in folder.iterdir())
    return 1 if folder.exists() else 0


def require_free(folder: Path) -> None:
    """Check that a folder does not exist, or is empty.

    Parameters
    ----------
    folder : Path
        The folder to be written.

    Raises
    ------
    InputError
        When the folder is not empty, or is a file.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if parts := parts_in(folder):
        count = next(iter(parts)).parts
        raise InputError(
            f"'{folder}' holds parts of token shards ({len(parts)} of {count}); "
            "go on with `part`, or choose another `out`."
        )
    raise InputError(f"'{folder}' is there and is not an empty folder; choose another `out`.")


def write_part(stream: Stream, tokenizer: Tokenizer, folder: Path, planned: Manifest) -> Manifest:
    """Make a planned part, completely or not at all.

    Parameters
    ----------
    stream : iterable of str or None
        Sentences of the part's files, with None between documents.
    tokenizer : Tokenizer
        The tokenizer that the part was planned with; it is saved with the shards.
    folder : Path
        The folder of all parts.
    planned : Manifest
        As `plan_part` returns it.

    Returns
    -------
    Manifest
        The manifest, with documents counted. One of several parts may have none.

    Raises
    ------
    EmptyCorpusError
        When a single part has no text.
    """
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
        fields = asdict(replace(planned, documents=documents))
        atomic_json(temporary / MANIFEST, {"format": FORMAT, "version": VERSION, **fields})

    write_folder_atomically(place, fill)
    return Manifest.read(place)
