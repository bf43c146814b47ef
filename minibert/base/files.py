"""Write files completely or not at all: to a temporary name, flushed to the disk, then renamed.

Also open files for reading: only regular files, and whole only up to a limit.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from minibert.base.errors import InputError, RunError
from minibert.base.paths import path_of
from minibert.core.arrays import Array

# How a pointer begins, which Git leaves in place of a file that has not been fetched from Git-LFS.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_POINTER_BYTES = 1024  # no pointer is larger
CHECKSUM_BYTES = 1 << 20  # read at once for a checksum
LARGEST_WHOLE = 1 << 30  # most bytes of a file that is read whole; longer text is read in pieces
LOCKED_SECONDS = 0.1  # after which a locked folder is tried once more
_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_SPECIAL |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
# NumPy's types, and what the format calls them.
SAFETENSORS = {"float64": "F64", "float32": "F32", "float16": "F16", "uint16": "BF16"}
# What a run fills or removes piece by piece in its folder; everything else is put there in one step.
FILLED_PIECEMEAL = ("checkpoints", "best", "shards", "activations", "tensorboard", "metrics.jsonl")
# All that runs write or remove. A run does not begin where another program's file has one of these names.
RUN_FILES = (
    *"config.json model.safetensors tokenizer_config.json vocab.txt tokenizer.json training.json".split(),
    *"finetune.json task.json tagger.json tagger.safetensors dev_predictions.json trained_texts.json".split(),
    "failed.json",
    *"report.html report.json trace.json trace-events.json explorer.html texts.jsonl".split(),
    *FILLED_PIECEMEAL,
)
RANDOM = "[a-z0-9_]{8}"  # in the names of temporary files
FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT")}


@contextmanager
def writing(path: str | Path, done: str = "written") -> Iterator[None]:
    """Turn an OSError in the block into a RunError with advice.

    Parameters
    ----------
    path : str or path
        What is written, for the message.
    done : str, default "written"
        What is done with it, such as "removed".

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
    """Let `write` fill a temporary file, then rename it to `path` in one step.

    Readers see the old file or the new one, never a part of it, whether the process crashes or the disk is
    full. If `write` raises an exception, nothing is left behind.

    Parameters
    ----------
    path : str or path
        The file; its folder is created if it does not exist.
    write : function of a path
        Fills the temporary file, which exists and is empty.

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
    """Check the name of a page that is to be written.

    Parameters
    ----------
    out : str or path
        The name as a user gave it.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When it is a folder, or does not end in .html or .htm.
    """
    path = path_of(out, "out")
    if path.is_dir():
        raise InputError(f"out={str(out)!r} is a folder; give the name of a page in it.", out=str(out))
    if path.suffix.lower() not in (".html", ".htm"):
        message = f"out={str(out)!r} is not the name of a page; give one that ends in .html."
        raise InputError(message, out=str(out))
    return path


def _temporary_for(path: Path) -> Path:
    """Choose a temporary name for `path`; before writing begins, so that the file is always removed."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def write_folder_atomically(folder: str | Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` put files into a temporary folder, then rename it to `folder` in one step.

    A folder that can't be replaced receives the files one by one, in the order in which they were written:
    the working folder, a mount point, or a folder whose parent is not writable. What killed processes left
    while they were making the same folder is removed first.

    Parameters
    ----------
    folder : str or path
        A name that is free, an empty folder, or a link to one.
    fill : function of a path
        Writes into the temporary folder. If it raises an exception, nothing is left behind.

    Raises
    ------
    RunError
        When the operating system refuses.
    """
    with writing(folder):
        folder = Path(os.path.realpath(folder))  # so that a link stays a link
        stays = _has_to_stay(folder)
        place = folder if stays else folder.parent
        temporary = _temporary_for(place / folder.name)
        new = _missing(place)
        remove_unfinished(place / folder.name)
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
                    _move_folder(temporary, folder)
                _flush_to_disk(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _remove_empty(new)


def _move_folder(source: Path, folder: Path) -> None:
    """Rename a folder; move its files into an existing folder where the system can't replace that one."""
    try:
        os.replace(source, folder)
    except PermissionError:
        if not folder.is_dir():
            raise
        _move_files(source, folder)  # Windows replaces no folder, not even an empty one


def _move_files(source: Path, folder: Path) -> None:
    """Move the files of a folder into another one, in the order in which they were written."""
    files = sorted(source.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in files:
        os.replace(file, folder / file.name)


def _has_to_stay(folder: Path) -> bool:
    """Return whether a folder can't be replaced by another."""
    if not folder.is_dir():
        return False
    is_working_folder = os.path.samefile(folder, os.curdir)  # the process would be left in a deleted folder
    return is_working_folder or os.path.ismount(folder) or not os.access(folder.parent, os.W_OK)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary folders of killed processes for `folder`, but not those in use.

    Parameters
    ----------
    folder : Path
        The folder that `write_folder_atomically` was making; a link is followed.
    """
    folder = Path(os.path.realpath(folder))
    temporary = re.compile(rf"\.{re.escape(folder.name)}\.{RANDOM}\.tmp")
    for path in folder.parent.glob(".*.tmp"):
        if temporary.fullmatch(path.name) and path.is_dir():
            with suppress(InputError, OSError), _locked(path):  # locked, or owned by somebody else
                shutil.rmtree(path, ignore_errors=True)


def _missing(folder: Path) -> list[Path]:
    """List the folder and its parents that do not exist yet, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty
            folder.rmdir()


def nearest_folder(folder: Path, instead: str) -> Path:
    """Find a folder, or its innermost parent that exists.

    Parameters
    ----------
    folder : Path
        The folder, which need not exist.
    instead : str
        What the error advises to choose.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When that is a file.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"'{existing}' is a file, not a folder; choose {instead}.")
    return existing


def require_folder(folder: str | Path, instead: str = "another `out`") -> None:
    """Check that files could be written into a folder, which need not exist; leave nothing behind.

    Parameters
    ----------
    folder : str or path
        The folder that a command will write into.
    instead : str, default "another `out`"
        What the error advises to choose.

    Raises
    ------
    InputError
        When the folder can't be made or written into, or is a file.
    """
    folder = Path(folder)
    existing = nearest_folder(folder, instead)
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=existing))
    except OSError as error:
        what = "written into" if existing == folder else f"made in '{existing}'"
        raise InputError(f"'{folder}' can't be {what} ({error.strerror}); choose {instead}.") from error


@contextmanager
def sole_writer(folder: str | Path) -> Iterator[None]:
    """Be the only process that writes into a folder, until the end of the block.

    The folder is created, and removed at the end if it is still empty. The lock is on the folder itself, so
    no file is left behind, and it ends with the process, however that ends. Systems without such locks
    (Windows, some network drives) don't keep other processes out.

    Parameters
    ----------
    folder : str or path
        The folder, which need not exist.

    Yields
    ------
    None

    Raises
    ------
    InputError
        When another process is writing into the folder, or it can't be written into.
    RunError
        At the end, when the folder was removed, moved or replaced in the meantime.
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
                # If the folder is gone, that is the cause, and the exception a consequence.
                require_same(folder, locked)
                raise
            require_same(folder, locked)
    finally:
        _remove_empty(made)


def is_in_use(folder: str | Path) -> bool:
    """Return whether another process, or another `sole_writer` of this one, is writing into a folder.

    Parameters
    ----------
    folder : str or path
        The folder.

    Returns
    -------
    bool
        False as well where that can't be told: on Windows, some network drives, and in unreadable folders.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def require_same(path: Path, opened: os.stat_result) -> None:
    """Check that a path still leads to the same file or folder.

    Parameters
    ----------
    path : Path
        The path.
    opened : os.stat_result
        What `os.stat` returned for it before.

    Raises
    ------
    RunError
        When the file or folder was removed, moved or replaced.
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
        import fcntl  # noqa: F401 (Windows has none)

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):  # Windows; a folder that is writable but not readable
        yield
        return
    try:
        try:
            _lock(handle)
        except BlockingIOError:
            message = f"Another process is writing into '{folder}'; wait for it, or choose another `out`."
            raise InputError(message) from None
        except OSError:  # a network drive without locks
            pass
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock an open folder; try twice, since `is_in_use` of another process may have it for a moment."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(LOCKED_SECONDS)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def open_file(path: str | Path, streams: bool = False) -> BinaryIO:
    """Open a file to read its bytes; refuse anything else, which might block for ever or never end.

    Parameters
    ----------
    path : str or path
        The file; links are followed.
    streams : bool, default False
        Open a pipe or a terminal as well, for text that is read once, from beginning to end.

    Returns
    -------
    binary file
        The caller closes it.

    Raises
    ------
    OSError
        When the file can't be opened, or is a named pipe, a socket or a device; `strerror` says which.
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
    """Raise InputError if an open file, of which nothing has been read, is a Git-LFS pointer.

    The error says how large the file itself is, and how to fetch it. The position in the file stays.
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


def pieces_of(file: BinaryIO | BufferedIOBase, size: int) -> Iterator[bytes]:
    """Yield what an open file gives from its position on, in pieces; `reading.byte_pieces` is built on it.

    Parameters
    ----------
    file : binary file
        The open file, which stays open.
    size : int
        Most bytes in a piece.

    Yields
    ------
    bytes
        Never empty.
    """
    while piece := file.read(size):
        yield piece


def crc32_of(path: str | Path) -> int:
    """Compute the checksum of a file, as shards and checkpoints store it.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    int
        The CRC-32, as `zlib.crc32` computes it.

    Raises
    ------
    InputError
        As `open_file`.
    """
    checksum = 0
    with open_file(path) as file:
        for piece in pieces_of(file, CHECKSUM_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def sha256_of(path: str | Path) -> str:
    """Compute the SHA-256 of a file, as `sha256sum` prints it.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    str
        64 hexadecimal digits in lower case.

    Raises
    ------
    InputError
        As `open_file`.
    """
    digest = hashlib.sha256()
    with open_file(path) as file:
        for piece in pieces_of(file, CHECKSUM_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def require_intact(folder: Path, checksums: Mapping[str, int], advice: str = "") -> None:
    """Check that the files of a finished folder are unchanged.

    Parameters
    ----------
    folder : Path
        The folder.
    checksums : mapping of str to int
        What `crc32_of` returned for each file, by its name.
    advice : str, optional
        The end of the error; by default, to remove the folder and continue with resume=True.

    Raises
    ------
    InputError
        When a file is missing or has changed.
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
        As `open_file` does, and when the file has more than `LARGEST_WHOLE` bytes.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_WHOLE:
            reason = f"it has {size:,} bytes, and at most {LARGEST_WHOLE:,} are expected of such a file"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read()


def remove_leftovers(*folders: Path) -> None:
    """Remove the temporary files of killed processes from some folders; nothing else has such names.

    Parameters
    ----------
    *folders : Path
        The folders to search; their subfolders are not searched.
    """
    temporary = re.compile(rf"\..+\.{RANDOM}\.tmp")
    for path in chain.from_iterable(folder.glob(".*") for folder in folders):
        if not temporary.fullmatch(path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def require_inside(folder: str | Path) -> None:
    """Check that a run's files are really inside its folder, and not behind a link.

    Parameters
    ----------
    folder : str or path
        The folder of the run, which may be a link itself.

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
        The new content.
    """

    def write(temporary: Path) -> None:
        temporary.write_text(text, "utf-8", "backslashreplace", newline="\n")

    write_atomically(path, write)


def atomic_json(path: str | Path, value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON, with non-ASCII letters as they are, completely or not at all.

    Parameters
    ----------
    path : str or path
        The file.
    value : object
        What `json.dumps` takes.
    indent : int, optional, default 2
        Spaces for each level; None: all on one line.
    """
    atomic_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def atomic_tensors(path: str | Path, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write contiguous arrays and strings of metadata as safetensors, completely or not at all.

    The bytes are the same as the library's. Its own writer makes a second temporary file, which is left
    behind when the process is killed, and does not know bfloat16, for which uint16 stands here.

    Parameters
    ----------
    path : str or path
        The file.
    tensors : dict of str to array
        The arrays, by name; their types are those in `SAFETENSORS`.
    metadata : dict of str to str
        The `__metadata__` of the header.
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
    is_folder = path.is_dir()
    try:
        # Windows only flushes files that are open for writing, and can't open folders.
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    except PermissionError:
        if is_folder:
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
