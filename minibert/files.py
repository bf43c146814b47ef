"""Files that appear whole or not at all: written beside their place, flushed to the disk, then renamed."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from minibert.errors import InputError, RunError


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then give it the name `path` in one step.

    A reader, a crash or a full disk sees the old file or the new one, never a part of it.

    Parameters
    ----------
    path : the name that the finished file gets; its folder is made if it does not exist.
    write : called with the temporary path; whatever it raises removes the temporary file and new folders.

    Raises
    ------
    RunError
        When the operating system refuses (disk full, no permission); nothing is left behind.
    """
    path = Path(path)
    try:
        with _made(path.parent), _temporary_file(path) as temporary:
            write(temporary)
            _flush_to_disk(temporary)
            os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files; a run folder is for sharing
            os.replace(temporary, path)
            _flush_to_disk(path.parent)
    except OSError as error:
        raise _refused(path, error) from error


@contextmanager
def _temporary_file(path: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        os.close(handle)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def write_folder_atomically(folder: str | Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` put files into a temporary folder, then give it the name `folder` in one step.

    An empty folder that can't be replaced gets the files one by one, in the order in which they were written:
    the one in which the process works, one where a drive is mounted, and one whose parent is closed.

    Parameters
    ----------
    folder : a name that is free, or an empty folder, or a link to one; its parent is made if it does not
        exist.
    fill : called with the temporary folder; whatever it raises removes that folder and what is in it.

    Raises
    ------
    RunError
        When the operating system refuses (disk full, no permission, name taken); nothing is left behind.
    """
    named = folder
    try:
        folder = Path(os.path.realpath(named))  # a link stays one
        stays = _has_to_stay(folder)
        place = folder if stays else folder.parent
        with _made(place), _temporary_folder(folder.name, place) as temporary:
            fill(temporary)
            for file in temporary.iterdir():
                _flush_to_disk(file)
            _flush_to_disk(temporary)
            if stays:
                for file in sorted(temporary.iterdir(), key=lambda file: file.stat().st_mtime_ns):
                    os.replace(file, folder / file.name)
            else:
                os.chmod(temporary, 0o777 & ~_umask())
                os.replace(temporary, folder)
            _flush_to_disk(place)
    except OSError as error:
        raise _refused(named, error) from error


def _has_to_stay(folder: Path) -> bool:
    """Whether no other folder can be put in the place of this one."""
    if not folder.is_dir():
        return False
    is_here = os.path.samefile(folder, os.curdir)  # whoever works in it would be left in one that is gone
    return is_here or os.path.ismount(folder) or not os.access(folder.parent, os.W_OK)


@contextmanager
def _temporary_folder(name: str, place: Path) -> Iterator[Path]:
    """A folder in `place` for what will be called `name`, locked as long as it is filled."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=place))
    try:
        with _locked(temporary):
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left of `folder`; what another process is filling now stays."""
    folder = Path(os.path.realpath(folder))
    ours = re.compile(rf"\.{re.escape(folder.name)}\.[a-z0-9_]{{8}}\.tmp")  # as `tempfile` makes names
    for left in folder.parent.glob(".*.tmp"):
        if ours.fullmatch(left.name) and left.is_dir():
            with suppress(InputError, OSError), _locked(left):  # it is locked, or another person's
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; the new ones are gone again at the end if they are empty then."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for path in new:
            with suppress(OSError):  # there is something in it
                path.rmdir()


def require_folder(folder: str | Path) -> None:
    """See that files could be written into a folder, be it there yet or not; nothing is left behind.

    Raises
    ------
    InputError
        When it is no folder, can't be made, or can't be written into.
    """
    folder = Path(folder)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=there))
    except OSError as error:
        what = "written into" if there == folder else f"made in {there}"
        raise InputError(
            f"{folder} can't be {what} ({error.strerror}); choose another folder as --out."
        ) from error


@contextmanager
def sole_writer(folder: str | Path) -> Iterator[None]:
    """Be the only process that writes into a folder, until the end of the block.

    The folder is made, and is gone again at the end if nothing was put into it. It is the folder itself that
    is locked, so nothing is left behind, and the lock ends with the process however that ends. Where the
    system has no such locks (Windows, some network drives) nobody is kept out.

    Raises
    ------
    InputError
        When another process writes there; when it is no folder, can't be made, or can't be written into.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder as --out.")
    require_folder(folder)
    with _made(folder), _locked(folder):
        yield


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
            raise InputError(
                f"Another process is writing into {folder}; wait until it ends, or choose another --out."
            ) from None
        except OSError:  # a network drive without locks
            pass
        yield
    finally:
        os.close(handle)


def require_readable(file: str | Path) -> None:
    """Raise OSError when a file can't be opened; safetensors says only that it is not there."""
    with open(file, "rb"):
        pass


def remove_leftovers(folder: str | Path) -> None:
    """Remove what a killed process was writing into `folder` when it ended; nothing else looks like it."""
    for path in Path(folder).glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def atomic_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all.

    Half of a pair of surrogates, which JSON may hold and a name of a file that is not UTF-8, is written as
    JSON has it, `\\ud83d`.
    """
    write_atomically(path, lambda temporary: temporary.write_text(text, "utf-8", "backslashreplace"))


def _refused(path: Path, error: OSError) -> RunError:
    reason = error.strerror or str(error)
    return RunError(f"{path} could not be written: {reason}; free some space or choose another folder.")


def atomic_tensors(path: str | Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write contiguous arrays, and strings beside them, as safetensors to `path`, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # the library's own name for "No space left on device"
            raise OSError(str(error)) from error

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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
