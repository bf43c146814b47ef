"""What lies beside a model and says what it is for: `task.json`, or `tagger.json` beside LSTMs."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from minibert.errors import InputError
from minibert.files import atomic_text, read_text
from minibert.finetuning import registry
from minibert.params import OUTPUTS

TASK_FILE = "task.json"
OPTIONS_FILE = "finetune.json"
TAGGER_FILE = "tagger.json"  # of the feature-based approach

# What a field has to be, and how that is seen.
Expected = Mapping[str, tuple[str, Callable[[Any], bool]]]


def is_name(value: Any) -> bool:
    """Whether a value of JSON is a string."""
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_name, value)) and len(set(value)) == len(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@dataclass(frozen=True)
class Stored:
    """What all such files say; the subclasses have more fields and check them.

    Attributes
    ----------
    task, labels, max_length : what the model answers, and how it is asked.
    """

    task: str
    labels: tuple[str, ...]
    max_length: int

    FILE: ClassVar[str]
    AGAIN: ClassVar[str]  # what to do where it can't be read
    EXPECTED: ClassVar[Expected] = {
        "task": ("the name of a task", lambda x: is_name(x) and x in registry.TASKS),
        "labels": ("a list of names, each once", _are_names),
        "max_length": ("a whole number of at least 4", lambda x: type(x) is int and x >= 4),
    }

    def save(self, folder: Path) -> None:
        """Write it."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        atomic_text(folder / self.FILE, text + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read it.

        Raises
        ------
        InputError
            When the folder has none, or none that can be read.
        """
        path = folder / cls.FILE
        try:
            fields = json.loads(read_text(path))
        except FileNotFoundError as error:
            if (folder / OPTIONS_FILE).exists():
                advice = f"its fine-tuning is not finished: minibert finetune --resume --out {folder}"
            else:
                advice = "make one with minibert finetune"
            raise InputError(
                f"{folder} holds no fine-tuned model ({cls.FILE} is missing); {advice}."
            ) from error
        except OSError as error:
            raise InputError(f"{path} can't be read ({error.strerror}); check the file.") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} can't be read: it is no JSON ({error}); {cls.AGAIN}.") from error
        if wrong := cls._wrong(fields):
            raise InputError(f"{path} can't be read: {wrong}; {cls.AGAIN}.")
        return cls(**fields | {"labels": tuple(fields["labels"])})

    @classmethod
    def _wrong(cls, fields: Any) -> str | None:
        """What is wrong with what a file holds; None if nothing is."""
        has_default = {
            field.name
            for field in dataclasses.fields(cls)
            if (field.default, field.default_factory) != 2 * (dataclasses.MISSING,)
        }
        needed = [name for name in cls.EXPECTED if name not in has_default]
        if not isinstance(fields, dict):
            names = f"{', '.join(needed[:-1])} and {needed[-1]}"
            return f"it is {fields!r:.60}, expected an object with {names}"
        for name in fields:
            if name not in cls.EXPECTED:
                return f"{name!r} is none of {', '.join(cls.EXPECTED)}"
        for name, (what, holds) in cls.EXPECTED.items():
            if name not in fields:
                if name in needed:
                    return f"{name!r} is missing"
            elif not holds(fields[name]):
                return f"{name!r} is {fields[name]!r:.60}, expected {what}"
        try:
            task = registry.create(fields["task"], dict(fields.get("columns", ())))
        except InputError as error:
            return str(error).rstrip(".")
        if task.kind not in OUTPUTS and not fields["labels"]:
            return f"'labels' is [], expected a name for each class of {task.name}"
        return None

    def check_positions(self, folder: Path, positions: int) -> None:
        """Raise InputError when the model beside the file knows fewer positions than it asks for."""
        if self.max_length > positions:
            raise InputError(
                f"{folder / self.FILE} asks for sequences of {self.max_length} tokens, but the model has "
                f"{positions} positions; the two files belong to different models."
            )


@dataclass(frozen=True)
class TaskFile(Stored):
    """What `task.json` says about the model beside it."""

    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tuned: Mapping[str, float] = dataclasses.field(default_factory=dict)

    FILE = TASK_FILE
    AGAIN = "fine-tune the model again"
    EXPECTED = Stored.EXPECTED | {
        "columns": ("an object of names", lambda x: isinstance(x, dict) and all(map(is_name, x.values()))),
        "tuned": ("an object of numbers", lambda x: isinstance(x, dict) and all(map(_is_number, x.values()))),
    }
