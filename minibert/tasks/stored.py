"""The file in a model's folder that describes its task: `task.json`, or `tagger.json` for LSTMs."""

import dataclasses
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import ClassVar, Self

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import atomic_json
from minibert.base.json_files import dataclass_error, read_json
from minibert.model.head_kinds import KINDS
from minibert.tasks import registry
from minibert.tasks.long_texts import LongTexts

TASK_FILE = "task.json"
OPTIONS_FILE = "finetune.json"
TAGGER_FILE = "tagger.json"  # written by the feature-based approach


@dataclass(frozen=True)
class Stored:
    """The fields that both files share; the subclasses have more fields, and check them."""

    task: str
    labels: tuple[str, ...]
    max_length: int
    # Every subclass has a field `columns`: names of columns by their role.

    FILE: ClassVar[str]
    ADVICE: ClassVar[str]  # what to do if it can't be read

    def save(self, folder: Path) -> None:
        """Write the file, without the field `long` if that is empty.

        Parameters
        ----------
        folder : Path
            Folder of the model.
        """
        fields = dataclasses.asdict(self)
        if "long" in fields and not fields["long"]:
            del fields["long"]
        atomic_json(folder / self.FILE, fields)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the file in a model's folder.

        Parameters
        ----------
        folder : Path
            Folder of the model.

        Returns
        -------
        Stored
            A validated instance of this class.

        Raises
        ------
        InputError
            When there is no such file, or it can't be read. The error says what is wrong and what to do.
        """
        path = folder / cls.FILE
        try:
            fields = read_json(path, advice=cls.ADVICE)
        except MissingFile as error:
            if (folder / OPTIONS_FILE).exists():
                command = f"minibert finetune --resume --out {shlex.quote(str(folder))}"
                advice = f"its fine-tuning is not finished: {command}"
            else:
                advice = "make one with minibert finetune"
            raise InputError(f"'{folder}' holds no fine-tuned model (no {cls.FILE}); {advice}.") from error
        wrong = dataclass_error(cls, fields)
        if not wrong:
            labels = tuple(fields["labels"])
            stored = cls(**fields | {"labels": labels})
            wrong = stored._wrong()
        if wrong:
            raise InputError(f"{path} can't be read: {wrong}; {cls.ADVICE}.")
        return stored

    def _wrong(self) -> str | None:
        """Describe what is wrong with values that have the right types; None if nothing is."""
        if len(set(self.labels)) < len(self.labels):
            return f"'labels' is {short(list(self.labels))}, expected each name once"
        if self.max_length < 4:
            return f"'max_length' is {self.max_length}, expected at least 4"
        try:
            task = registry.create(self.task, dict(vars(self)["columns"]))
        except InputError as error:
            return str(error).rstrip(".")
        if KINDS[task.kind].outputs is None and not self.labels:
            return f"'labels' is [], expected a name for each class of {task.name}"
        return None

    def check_positions(self, folder: Path, positions: int) -> None:
        """Refuse a model with fewer positions than the file needs.

        Parameters
        ----------
        folder : Path
            Folder of both, for the message.
        positions : int
            Number of the model's positions.

        Raises
        ------
        InputError
            When `max_length` is larger.
        """
        if self.max_length > positions:
            lengths = f"sequences of {self.max_length} tokens, but the model has {positions} positions"
            advice = "the two files belong to different models."
            raise InputError(f"{folder / self.FILE} asks for {lengths}; {advice}")


@dataclass(frozen=True)
class TaskFile(Stored):
    """What `task.json` says about the model in its folder."""

    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    tuned: dict[str, float] = dataclasses.field(default_factory=dict)
    long: dict[str, int | str] = dataclasses.field(default_factory=dict)  # fields of `LongTexts`

    FILE = TASK_FILE
    ADVICE = "fine-tune the model again"

    def _wrong(self) -> str | None:
        """Return what is wrong with the tuned values or the windows, or else with the other fields."""
        if not all(map(math.isfinite, self.tuned.values())):
            return f"'tuned' is {short(self.tuned)}, expected finite numbers"
        try:
            if self.long_texts:
                self.long_texts.resolved(self.max_length)
        except (TypeError, InputError):
            return f"'long' is {short(self.long)}, expected pool, stride and most_windows of windows"
        return super()._wrong()

    @property
    def pair(self) -> bool:
        """Whether the model reads pairs of texts, by its task or by the table that it was trained on."""
        pair = registry.create(self.task, dict(self.columns)).pair
        return "second" in self.columns if pair is None else pair

    @property
    def long_texts(self) -> LongTexts | None:
        """How long texts are split into windows; None if they are cut."""
        return LongTexts(**self.long) if self.long else None  # type: ignore[arg-type]
