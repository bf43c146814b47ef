"""Finished cells of a long benchmark as small files: what was predicted, and who is making which of them."""

import json
import os
import re
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError

try:
    import fcntl
except ImportError:  # Windows, where one process at a time has to do
    fcntl = None

LETTERS = string.ascii_letters  # in place of the names of classes and tags
DIGITS = 5  # after the point of a number that was predicted


def compact(predictions: Sequence[Any]) -> dict[str, Any]:
    """What of the predictions of a task is scored, as JSON; texts of the examples are not in it.

    Returns
    -------
    stored : of answers `texts`, one for each question; of numbers `values`; of classes, or of the tags of all
        words one after another, `names`, and `runs` in which the first of them is a, the second b, and the
        number before a letter says how often it follows: 12a2ba.
    """
    first = predictions[0]
    if isinstance(first, list):
        return _runs([tag for tags in predictions for tag in tags])
    if "label" in first:
        return _runs([one["label"] for one in predictions])
    if "value" in first:
        return {"values": [round(one["value"], DIGITS) for one in predictions]}
    return {"texts": [one["text"] for one in predictions]}


def read(path: Path) -> dict[str, Any]:
    """What a file holds of a cell.

    Raises
    ------
    InputError
        When it is damaged, or of another time.
    """
    try:
        stored = json.loads(path.read_text("utf-8"))
        whole = all(isinstance(stored[name], dict) for name in ("recipe", "scores", "predictions"))
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise InputError(f"{path} is not a finished cell; remove it to make it anew.")
    return stored


def restored(stored: dict[str, Any], examples: Sequence[Any]) -> list[Any] | None:
    """The predictions of examples from what `compact` made of them; None where they are too many or few."""
    if "names" not in stored:
        [(name, found)] = stored.items()
        if len(found) != len(examples):
            return None
        if name == "values":
            return [{"value": value} for value in found]
        return [{"id": one.id, "text": text} for one, text in zip(examples, found, strict=True)]
    items = names_of(stored)
    if not hasattr(examples[0], "tags"):
        return [{"label": name} for name in items] if len(items) == len(examples) else None
    if len(items) != sum(len(one.words) for one in examples):
        return None
    rest = iter(items)
    return [[next(rest) for _ in one.words] for one in examples]


def _runs(items: list[str]) -> dict[str, Any]:
    names = sorted(set(items))
    letters = dict(zip(names, LETTERS, strict=False))
    counted = ((name, len(list(group))) for name, group in groupby(items))
    return {
        "names": names,
        "runs": "".join(f"{count if count > 1 else ''}{letters[name]}" for name, count in counted),
    }


def names_of(stored: dict[str, Any]) -> list[str]:
    """The classes or tags that `runs` stands for."""
    names = dict(zip(LETTERS, stored["names"], strict=False))
    found = re.findall(r"(\d*)([a-zA-Z])", stored["runs"])
    return [names[letter] for count, letter in found for _ in range(int(count or 1))]


@contextmanager
def turn(path: Path) -> Iterator[bool]:
    """Whether this process may make the file `path`; False while another one is making it.

    The lock is a hidden file beside it with the number of the process. The system holds it, so that it ends
    with the process, however that ends; the file that is then left over is taken by the next.
    """
    if fcntl is None:
        yield True
        return
    lock = path.with_name(f".{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        if not lock.exists() or not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            yield False  # the other one has ended and removed it just now
            return
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield True
        finally:
            lock.unlink()
