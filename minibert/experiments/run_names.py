"""Give runs that are compared short names, which say what tells them apart."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST = 24  # characters of a name in a legend


def short_names(folders: Sequence[Path], options: Mapping[str, Sequence[str]]) -> list[str]:
    """Name each run by the part of its path that differs or, if that is long, by the options that differ.

    Parameters
    ----------
    folders : sequence of Path
        Folders of the runs.
    options : mapping of str to sequence of str
        Options that differ, each with its value in every run.

    Returns
    -------
    list of str
        A name for each run, of at most LONGEST characters unless it would not be unique.

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
    if _is_short(names):
        return names
    by_options = []
    for values in zip(*options.values(), strict=True):
        pairs = zip(options, values, strict=True)
        by_options.append(", ".join(f"{name} {value}" for name, value in pairs))
    ends = [_shortened(name, at_end=True) for name in names]
    beginnings = [_shortened(name, at_end=False) for name in names]
    candidates = (by_options, ends, beginnings)
    return next((shorter for shorter in candidates if shorter and _is_short(shorter)), names)


def _differing_ends(folders: Sequence[Path]) -> list[str]:
    """Return as many last parts of each path as tell them apart, without those that all paths end with."""
    paths = [Path(os.path.abspath(folder)).parts for folder in folders]
    while all(len(parts) > 2 for parts in paths) and len({parts[-1] for parts in paths}) == 1:
        paths = [parts[:-1] for parts in paths]
    names: list[str] = []
    for count in range(1, 1 + max(map(len, paths))):
        names = ["/".join(parts[-count:]) for parts in paths]
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
