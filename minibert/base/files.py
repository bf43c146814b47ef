"""Write files completely or not at all: beside their place, flushed to the disk, then renamed.

And what opens them for reading: only what is a file, and whole only what has the size of one.
"""

import errno
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from minibert.base.errors import InputError, RunError
from minibert.base.paths import path_of
from minibert.core.arrays import Array

# As a pointer begins, which Git leaves in place of a file that Git-LFS keeps where nobody has fetched it.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_POINTER_BYTES = 1024  # which no pointer exceeds
LARGEST_WHOLE = 1 << 30  # bytes of a file that is read as one; text of any length is read in pieces
_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_SPECIAL |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
SAFETENSORS = {"float64": "F64", "float32": "F32", "float16": "F16", "uint16": "BF16"}  # its names of types
# What a run fills or removes in its folder piece by piece; all else it puts there in one step.
FILLED_PIECEMEAL = ("checkpoints", "best", "shards", "activations", "tensorboard", "metrics.jsonl")
# All that runs write or remove: where another program's file has such a name, no run begins.
RUN_FILES = (
    *"config.json model.safetensors tokenizer_config.json vocab.txt tokenizer.json training.json".split(),
    *"finetune.json task.json tagger.json tagger.safetensors dev_predictions.json failed.json".split(),
    *"report.html report.json trace.json trace-events.json explorer.html texts.jsonl".split(),
    *FILLED_PIECEMEAL,
)
RANDOM = "[a-z0-9_]{8}"  # in the names of temporary files, ours and those of `tempfile`, which made them once
FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT")}


@contextmanager
def writing(path: str | Path, done: str = "written") -> Iterator[None]:
    """Raise RunError with advice in place of an OSError of the block.

    Parameters
    ----------
    path : str or path
        What the message says could not be written.
    done : str, default "written"
        What was to be done with it, such as "removed".

    Yields
    ------
    None

    Raises
    ------
    RunError
        With the system's reason, and what to do about it.
    """
    try:
        yield
    except OSError as error:
        reason, advice = error.strerror or error, "choose another folder"
        if error.errno in FULL:
            advice = f"free some space or {advice}"
        elif isinstance(error, IsADirectoryError):
            reason, advice = "a folder has this name", "move it away"
        raise RunError(f"{path} could not be {done}: {reason}; {advice}.") from error


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then give it the name `path` in one step.

    A reader, a crash or a full disk sees the old file or the new one, never a part of it. Whatever `write`
    raises leaves nothing behind.

    Parameters
    ----------
    path : str or path
        The file; its folder is made if it does not exist.
    write : function of a path
        Fills the temporary file, which is there and empty.

    Raises
    ------
    RunError
        When the operating system refuses: the disk is full, or permission is denied.
    """
    path = Path(path)
    with writing(path):
        temporary = _temporary_for(path)
        new = _missing(path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(exist_ok=False)
            write(temporary)
            _flush_to_disk(temporary)
            os.replace(temporary, path)
            _flush_to_disk(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
            _remove_empty(new)


def page_path(out: str | Path) -> Path:
    """Return where a page is to be written.

    Parameters
    ----------
    out : str or path
        As a user gave it.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When that is a folder, or does not end in .html or .htm.
    """
    path = path_of(out, "out")
    if path.is_dir():
        raise InputError(f"out={str(out)!r} is a folder; give the name of a page in it.", out=str(out))
    if path.suffix.lower() not in (".html", ".htm"):
        message = f"out={str(out)!r} is not the name of a page; give one that ends in .html."
        raise InputError(message, out=str(out))
    return path


def _temporary_for(path: Path) -> Path:
    """Return the temporary name for `path`, known before writing begins, so that it is always removed."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def write_folder_atomically(folder: str | Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` put files into a temporary folder, then give it the name `folder` in one step.

    A folder that can't be replaced gets the files one by one, in the order in which they were written: the
    one in which the process works, one where a drive is mounted, and one whose parent is closed.

    Parameters
    ----------
    folder : str or path
        A free name, or that of an empty folder, or of a link to one.
    fill : function of a path
        Writes into the temporary folder. Whatever it raises leaves nothing behind.

    Raises
    ------
    RunError
        When the operating system refuses.
    """
    with writing(folder):
        folder = Path(os.path.realpath(folder))  # a link stays one
        stays = _has_to_stay(folder)
        place = folder if stays else folder.parent
        temporary = _temporary_for(place / folder.name)
        new = _missing(place)
        try:
            place.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            with _locked(temporary):
                fill(temporary)
                for file in temporary.iterdir():
                    _flush_to_disk(file)
                _flush_to_disk(temporary)
                if stays:
                    _move_files(temporary, folder)
                else:
                    os.replace(temporary, folder)
                _flush_to_disk(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _remove_empty(new)


def _move_files(source: Path, folder: Path) -> None:
    """Move the files of a folder into another one, in the order in which they were written."""
    files = sorted(source.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in files:
        os.replace(file, folder / file.name)


def _has_to_stay(folder: Path) -> bool:
    """Return whether this folder can't be replaced by another."""
    if not folder.is_dir():
        return False
    is_here = os.path.samefile(folder, os.curdir)  # whoever works in it would be left in one that is gone
    return is_here or os.path.ismount(folder) or not os.access(folder.parent, os.W_OK)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files that killed processes left for `folder`, but not those in use.

    Parameters
    ----------
    folder : Path
        Which `write_folder_atomically` was to make; a link is followed.
    """
    folder = Path(os.path.realpath(folder))
    temporary = re.compile(rf"\.{re.escape(folder.name)}\.{RANDOM}\.tmp")
    for path in folder.parent.glob(".*.tmp"):
        if temporary.fullmatch(path.name) and path.is_dir():
            with suppress(InputError, OSError), _locked(path):  # it is locked, or another person's
                shutil.rmtree(path, ignore_errors=True)


def _missing(folder: Path) -> list[Path]:
    """Return which of a folder and its parents do not exist yet, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # there is something in it
            folder.rmdir()


def nearest_folder(folder: Path, instead: str) -> Path:
    """Return a folder, or its innermost parent that exists.

    Parameters
    ----------
    folder : Path
        There yet or not.
    instead : str
        What the error advises to choose.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When what is there is a file.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"'{there}' is a file, not a folder; choose {instead}.")
    return there


def require_folder(folder: str | Path, instead: str = "another `out`") -> None:
    """Check that files could be written into a folder, which may not exist yet; nothing is left behind.

    Parameters
    ----------
    folder : str or path
        Where a command is to write.
    instead : str, default "another `out`"
        What the error advises to choose.

    Raises
    ------
    InputError
        When it can't be made or written into, or a file is in its place.
    """
    folder = Path(folder)
    there = nearest_folder(folder, instead)
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=there))  # nothing remains
    except OSError as error:
        what = "written into" if there == folder else f"made in '{there}'"
        raise InputError(f"'{folder}' can't be {what} ({error.strerror}); choose {instead}.") from error


@contextmanager
def sole_writer(folder: str | Path) -> Iterator[None]:
    """Be the only process that writes into a folder, until the end of the block.

    The folder is made, and is gone again at the end if nothing was put into it. It is the folder itself that
    is locked, so nothing is left behind, and the lock ends with the process however that ends. Where the
    system has no such locks (Windows, some network drives) nobody is kept out.

    Parameters
    ----------
    folder : str or path
        There yet or not.

    Yields
    ------
    None

    Raises
    ------
    InputError
        When another process is writing into it, or nobody can.
    RunError
        At the end, when the folder has been removed, moved or replaced meanwhile.
    """
    folder = Path(folder)
    require_folder(folder)
    made = _missing(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            locked = os.stat(folder)
            try:
                yield
            except Exception:
                # Files were missing, perhaps because the folder is gone: then that is what went wrong.
                require_same(folder, locked)
                raise
            require_same(folder, locked)
    finally:
        _remove_empty(made)


def require_same(path: Path, opened: os.stat_result) -> None:
    """Check that a name still leads to the file or folder that it led to.

    Parameters
    ----------
    path : Path
        The name.
    opened : os.stat_result
        What `os.stat` said of it before.

    Raises
    ------
    RunError
        When it was removed, moved or replaced.
    """
    try:
        same = os.path.samestat(os.stat(path), opened)
    except OSError:
        same = False
    if not same:
        what = f"{path} was removed, moved or replaced while a run was writing into it"
        advice = "continue with resume=True if the checkpoints are there, or start again."
        raise RunError(f"{what}, so that what is there now is incomplete; {advice}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):  # Windows; a folder that may be written into but not read
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another process is writing into '{folder}'; wait for it, or choose another `out`."
            raise InputError(message) from None
        except OSError:  # a network drive without locks
            pass
        yield
    finally:
        os.close(handle)


def open_file(path: str | Path, streams: bool = False) -> BinaryIO:
    """Open a file to read its bytes; refuse what is not a file, which may block for ever or never end.

    Parameters
    ----------
    path : str or path
        The file; links are followed.
    streams : bool, default False
        Open a pipe or a terminal too, for text that is read once, from front to back.

    Returns
    -------
    binary file
        At its beginning; the caller closes it.

    Raises
    ------
    OSError
        When the file can't be opened, or is a named pipe, a socket or a device: `strerror` says so.
    InputError
        When it is a pointer of Git-LFS in place of the file.
    """
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind not in _SPECIAL:
        file = open(path, "rb")  # noqa: SIM115
        try:
            _refuse_pointer(path, file)
        except BaseException:
            file.close()
            raise
        return file
    if streams and kind == stat.S_IFIFO:
        return open(path, "rb")
    if streams and kind == stat.S_IFCHR:
        file = open(path, "rb")  # noqa: SIM115
        if file.isatty():
            return file
        file.close()
    raise OSError(errno.EINVAL, f"it is {_SPECIAL[kind]}, and a file is expected", str(path))


def _refuse_pointer(path: str | Path, file: BufferedReader) -> None:
    """Raise InputError when an open file, which is read from its beginning again, is a Git-LFS pointer.

    Parameters
    ----------
    path : of the file, for the message.
    file : opened, nothing of it read.

    Raises
    ------
    InputError
        When it is one: how large the file itself is, and how to fetch it.
    """
    head = file.peek(LFS_POINTER_BYTES)[:LFS_POINTER_BYTES]
    if not head.startswith(LFS_POINTER):
        return
    stated = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
    size = f" of {int(stated[1]):,} bytes" if stated else ""
    fetch = f"run git lfs pull in the repository that {Path(path).name} lies in"
    raise InputError(
        f"{path} is a Git-LFS pointer in place of the file{size}, which was not fetched; {fetch} (git lfs "
        "install once before), or download the model with hf download."
    )


def crc32_of(path: str | Path) -> int:
    """Return the checksum of a file, read piece by piece; raise what `open_file` does.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    int
        Its CRC-32, as `zlib.crc32` has it.
    """
    checksum = 0
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def require_intact(folder: Path, checksums: Mapping[str, int], advice: str = "") -> None:
    """Check that the files of a finished folder are as they were written.

    Parameters
    ----------
    folder : Path
        Where they lie.
    checksums : mapping of str to int
        Their names, and what `crc32_of` gave for each.
    advice : str, optional
        How the error ends; by default, to remove the folder and continue with resume=True.

    Raises
    ------
    InputError
        When a file is gone or altered.
    """
    advice = advice or f"remove '{folder}' and continue with resume=True, which makes it again."
    for name, expected in checksums.items():
        path = folder / name
        if not os.path.isfile(path):
            raise InputError(f"{path} is missing; {advice}")
        if crc32_of(path) != expected:
            raise InputError(f"{path} is damaged: its checksum differs; {advice}")


def read_bytes(path: str | Path) -> bytes:
    """Read a file whole.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    bytes

    Raises
    ------
    OSError
        As `open_file` does, and when it has more bytes than `LARGEST_WHOLE`.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_WHOLE:
            reason = f"it has {size:,} bytes, and at most {LARGEST_WHOLE:,} are expected of such a file"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read()


def remove_leftovers(*folders: Path) -> None:
    """Remove what killed processes were writing into some folders; nothing else has such names.

    Parameters
    ----------
    *folders : Path
        Those that are looked through, without the folders in them.
    """
    # As `tempfile` makes names, and as safetensors does, with which the first versions wrote.
    temporary = re.compile(rf"\..+\.{RANDOM}\.tmp|\.tmp[A-Za-z0-9]{{6}}")
    for path in chain.from_iterable(folder.glob(".*") for folder in folders):
        if not temporary.fullmatch(path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def require_inside(folder: str | Path) -> None:
    """Check that a run's files are really inside of its folder, and not behind a link.

    Parameters
    ----------
    folder : str or path
        Folder of the run; it may be a link itself.

    Raises
    ------
    InputError
        When one of `FILLED_PIECEMEAL` leads out of it.
    """
    home = Path(os.path.realpath(folder))
    for name in FILLED_PIECEMEAL:
        place = Path(os.path.realpath(home / name))
        if not place.is_relative_to(home):
            what = (
                f"a link to '{place}', outside the run's folder, where the run would write and remove files"
            )
            raise InputError(f"{Path(folder) / name} is {what}; remove it or choose another `out`.")


def atomic_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8, completely or not at all; lone surrogates are escaped as in JSON.

    Parameters
    ----------
    path : str or path
        The file.
    text : str
        What it is to hold.
    """
    write_atomically(path, lambda temporary: temporary.write_text(text, "utf-8", "backslashreplace"))


def atomic_json(path: str | Path, value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON, with letters of all languages as they are, completely or not at all.

    Parameters
    ----------
    path : str or path
        The file.
    value : object
        What `json.dumps` takes.
    indent : int, optional, default 2
        Blanks for each level; None: all on one line.
    """
    atomic_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def atomic_tensors(path: str | Path, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write contiguous arrays, and metadata strings, as safetensors, completely or not at all.

    The bytes are those of the library, whose own writer makes a second temporary file, which stays where a
    process is killed, and knows no bfloat16: here that is what uint16 stands for.

    Parameters
    ----------
    path : str or path
        The file.
    tensors : dict of str to array
        By name; of the types in `SAFETENSORS`.
    metadata : dict of str to str
        What the header has as `__metadata__`.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in ordered:
        begin = end
        end += array.nbytes
        header[name] = {
            "dtype": SAFETENSORS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, array in ordered:
                little_endian = array.dtype.newbyteorder("<")
                file.write(array.astype(little_endian, copy=False))

    write_atomically(path, write)


def _flush_to_disk(path: Path) -> None:
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)  # Windows flushes what it may write
    except PermissionError:
        if folder:  # and opens no folder
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
