"""List what a pickle asks for, without unpickling it: every name that it would import, and so may call.

A pickle is a program for a stack machine, which runs nothing here: of each instruction, only the name that it
imports is kept.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from pickletools import OpcodeInfo
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import open_file
from minibert.hub.pytorch.pickled import DAMAGED
from minibert.hub.pytorch.unpickling import ALLOWED, StackMachine

LARGEST = 1 << 26  # bytes of a pickle that are read; that of a BERT-large has some 60,000
MOST_INSTRUCTIONS = 1 << 20  # in a file
MOST_MEMBERS = 16  # pickles in an archive
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # that PyTorch reads
READ = 5  # pickles that PyTorch reads of a file in its older layout, before the numbers
COMPUTED = "a name that is computed"  # so that it can't be told without running the pickle
OWN = {f"{module}.{name}" for module, name in ALLOWED}  # names that stored tensors need


class TooLong(Exception):
    """Report a file of which only the beginning is listed."""


class Listing(NamedTuple):
    """What the pickles in a file ask for."""

    names: tuple[str, ...]  # in the order of the file, each once
    unread: str = ""  # why a part of the file is not listed; "" if all of it is

    @property
    def foreign(self) -> tuple[str, ...]:
        """Return the names that stored tensors do not need."""
        return tuple(name for name in self.names if name not in OWN)


def list_names(path: Path) -> Listing:
    """List the names that unpickling a file would import.

    Parameters
    ----------
    path : Path
        A pickle, or a file of `torch.save` in either layout.

    Returns
    -------
    Listing

    Raises
    ------
    InputError
        When the file can't be read, or is not a pickle.
    """
    found = _Names()
    unread = ""
    try:
        with open_file(path) as file:
            is_archive = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            pickles = _members(file) if is_archive else iter([file.read(LARGEST + 1)])
            for data in pickles:
                found.add_all(data)
    except InputError:  # already says what the file is
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the file.") from error
    except TooLong as error:
        return Listing(tuple(found.names), str(error))
    except (*DAMAGED, zlib.error) as error:
        unread = str(error)[:200]
    if not found.names and not found.complete:
        what = f"is not a pickle ({unread or 'it holds none'})"
        raise InputError(f"{path} {what}; copy it again, or name its folder if it is part of a model.")
    return Listing(tuple(found.names), unread)


def _members(file: Any) -> Iterator[bytes]:
    """Yield the beginnings of the pickles in an archive, which may unfold to any size."""
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".pkl")]
        for member in members[:MOST_MEMBERS]:
            if member.compress_type not in COMPRESSIONS:
                raise ValueError(f"{member.filename[:100]} is compressed in a way that PyTorch does not read")
            with archive.open(member) as opened:
                yield opened.read(LARGEST + 1)
        if len(members) > MOST_MEMBERS:
            raise TooLong(f"it has {len(members):,} pickles")


class _Names(StackMachine):
    """Collect the names in some pickles; ValueError or TooLong says why the rest of a pickle can't be listed.

    On the stack it keeps only arguments, of which strings are parts of names; results of calls are None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}
        self.complete = 0  # pickles
        self.instructions = 0
        self._found = self.names  # of the current pickle

    def add_all(self, data: bytes) -> None:
        """Add the names of the pickles that follow one another in some bytes.

        PyTorch's older layout has `READ`, and then numbers; of what follows, only complete pickles count.
        """
        file = io.BytesIO(data)
        number = 0
        while file.tell() < len(data):
            number += 1
            self._found = self.names if number <= READ else {}
            try:
                self.run(file)
            except ValueError as error:
                if number > READ:  # numbers, or something else that is not a pickle
                    return
                if len(data) > LARGEST:
                    raise TooLong(f"it has more than {LARGEST >> 20} MiB") from error
                raise
            self.names |= self._found
            self.complete += 1

    def _step(self, opcode: OpcodeInfo, argument: Any) -> None:
        self.instructions += 1
        if self.instructions > MOST_INSTRUCTIONS:
            raise TooLong(f"it has more than {MOST_INSTRUCTIONS:,} instructions")
        super()._step(opcode, argument)

    def _result(self, name: str, argument: Any, take: Callable[[], list[Any]]) -> Any:
        taken = take()
        if name in ("GLOBAL", "INST"):
            self._found[str(argument).replace(" ", ".", 1)] = None
        elif name == "STACK_GLOBAL":
            is_plain = all(type(part) is str for part in taken)
            self._found[".".join(taken) if is_plain else COMPUTED] = None
        elif name.startswith("EXT"):
            self._found[f"number {argument} of copyreg's registry"] = None
        elif name == "DUP":
            return taken[0]
        elif name.endswith("GET"):
            return self._memo.get(argument)
        return None if taken else argument

    def _underflow(self) -> None:
        """Go on: what the stack lacks can't be a part of a name."""
