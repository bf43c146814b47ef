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
from pathlib import Path
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, remove_unfinished, write_folder_atomically
from minibert.base.json_files import dataclass_error, read_json
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
        """Read a part as people write it, such as `2/3`.

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
        if not 1 <= part.number <= part.parts <= MOST:
            raise InputError(
                f"part={text!r} is not possible; "
                f"give I/N with I from 1 to N, such as 2/3, and at most {MOST:,} parts.",
                part=text,
            )
        return part

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def folder_in(self, folder: Path) -> Path:
        """Return where the part lies in a folder of shards.

        Parameters
        ----------
        folder : Path
            Of all parts.

        Returns
        -------
        Path
            The folder itself where it is the only part.
        """
        if self.parts == 1:
            return folder
        return folder / f"{self.number:05}-of-{self.parts:05}"


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
            When it is missing, damaged, or of another version.
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
        """Require that another part was made of what this one was made of.

        Parameters
        ----------
        other : Manifest
            Of the other part.
        folder : Path
            Where it stands.

        Raises
        ------
        InputError
            When the corpus, the layout or the tokenizer was another one.
        """
        for field, what in (
            ("corpus_sha256", "another corpus (other files, or other sizes of them)"),
            ("layout", f"the layout {other.layout} instead of {self.layout}"),
            ("tokenizer_sha256", "another vocabulary"),
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
        Which one.

    Returns
    -------
    list of Path
        In order, perhaps none.
    """
    sizes = [file.stat().st_size for file in files]
    total = max(1, sum(sizes))
    chosen = []
    end = 0  # bytes up to the end of the file
    for file, size in zip(files, sizes, strict=True):
        end += size
        middle = 2 * end - size  # in half bytes
        share = middle * part.parts // (2 * total)
        share = min(share, part.parts - 1)
        if share == part.number - 1:
            chosen.append(file)
    return chosen


def plan_part(
    files: Sequence[Path], part: Part, layout: str, tokenizer: Tokenizer
) -> tuple[Manifest, list[Path]]:
    """Return a part's manifest, its documents not counted yet, and the files to read.

    Parameters
    ----------
    files : sequence of Path
        Files of the whole corpus, in order.
    part : Part
        Which one is planned.
    layout : str
        How the files are written, a key of `corpus.LAYOUTS`.
    tokenizer : Tokenizer
        That the part will be made with.

    Returns
    -------
    Manifest
        With 0 documents.
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
        In order of the parts; {} where there are none.
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
    """Return the part that is planned, if a folder has it already.

    Parameters
    ----------
    folder : Path
        Of all parts; it need not be there.
    planned : Manifest
        As `plan_part` returns it.

    Returns
    -------
    Manifest or None
        With its documents counted; None where the part is still to be made.

    Raises
    ------
    InputError
        When the folder holds something else, parts of another number of parts, or of something else than
        what is planned.
    """
    part = Part(planned.part, planned.parts)
    if part.parts > 1:  # other parts of the same whole may be there, and nothing else
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
    """Count what a folder holds that is not hidden; a file in its place counts as 1."""
    if folder.is_dir():
        return sum(path.name[0] != "." for path in folder.iterdir())
    return 1 if folder.exists() else 0


def require_free(folder: Path) -> None:
    """Require that a folder is not there, or empty.

    Parameters
    ----------
    folder : Path
        Where something is to be written.

    Raises
    ------
    InputError
        When it holds something, or is a file.
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
    """Make a part as `plan_part` says, whole or not at all.

    Parameters
    ----------
    stream : iterable of str or None
        Sentences of the part's files, with None between documents.
    tokenizer : Tokenizer
        The one that was planned with; it is saved beside the shards.
    folder : Path
        Of all parts.
    planned : Manifest
        As `plan_part` returns it.

    Returns
    -------
    Manifest
        With its documents counted. One part of several may have none; an only one raises `EmptyCorpusError`.
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

    remove_unfinished(place)  # by a job that was killed
    write_folder_atomically(place, fill)
    return Manifest.read(place)
