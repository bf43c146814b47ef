"""Give runs that are compared short names, which say what tells them apart."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LONGEST = 24  # characters of a name in a legend


def short_names(folders: Sequence[Path], options: Mapping[str, Sequence[str]]) -> list[str]:
    """Name each run by the part of its path that differs or, if that is long, by options that differ.

    The first of these that is short and tells the runs apart is taken: the part of the path, one option, the
    first options together, the end of the part of the path, its beginning.

    Parameters
    ----------
    folders : sequence of Path
        Folders of the runs.
    options : mapping of str to sequence of str
        Options that differ, each with its value in every run.

    Returns
    -------
    list of str
        A name for each run, of at most LONGEST characters unless none of these tells the runs apart; it is
        then the whole part of the path.

    Examples
    --------
    >>> short_names([Path("runs/mini/seed0"), Path("runs/tiny/seed0")], {})
    ['mini', 'tiny']
    >>> folders = [Path("minibert-mini-29-november-first"), Path("minibert-mini-29-november-second")]
    >>> short_names(folders, {"seed": ["0", "1"]})
    ['seed 0', 'seed 1']
    >>> short_names(folders, {})
    ['…-mini-29-november-first', '…mini-29-november-second']
    """
    names = _differing_ends(folders)
    ends = [_shortened(name, at_end=True) for name in names]
    beginnings = [_shortened(name, at_end=False) for name in names]
    candidates = (names, *_by_options(options), ends, beginnings)
    return next(filter(_is_short, candidates), names)


def _by_options(options: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield names of the runs by each option alone, then by more and more of the options together."""
    settings = []
    for name, values in options.items():
        settings.append([f"{name} {value}" for value in values])
    yield from settings
    for count in range(2, 1 + len(settings)):
        yield [", ".join(setting) for setting in zip(*settings[:count], strict=True)]


def _differing_ends(folders: Sequence[Path]) -> list[str]:
    """Return as many last parts of each path as tell them apart, without those that all paths end with."""
    paths = [Path(os.path.abspath(folder)).parts for folder in folders]
    while all(len(parts) > 2 for parts in paths) and len({parts[-1] for parts in paths}) == 1:
        paths = [parts[:-1] for parts in paths]
    names: list[str] = []
    for count in range(1, 1 + max(map(len, paths))):
        names = [Path(*parts[-count:]).as_posix() for parts in paths]
        if len({*names}) == len(names):
            break
    return names


def _is_short(names: Sequence[str]) -> bool:
    """Return whether names fit into a legend, and differ from each other."""
    return len({*names}) == len(names) and max(map(len, names)) <= LONGEST


def _shortened(name: str, at_end: bool) -> str:
    """Return the end or the beginning of a name that is too long."""
    if len(name) <= LONGEST:
        return name
    return f"…{name[1 - LONGEST :]}" if at_end else f"{name[: LONGEST - 1]}…"
