"""What the options of every kind of run have in common: checked, stored, compared when a run goes on."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from minibert.errors import InputError, MissingFile
from minibert.files import atomic_text
from minibert.json_files import misfit_of, read_json

MOST = 2**31 - 1  # of what is counted: steps, sequences, pieces
DTYPES = ("auto", "float32", "bfloat16", "float64")
OPTIMIZERS = ("adamw", "lamb")
# LAMB's rate in AdamW's, where none is given: AdamW moves a weight by the rate, LAMB by the rate times what
# weights measure. ALBERT's authors advise it for fine-tuning; short runs of `tiny` do best at 10 to 15.
LAMB_RATE = 10
EXTRAS = {"devices": None, "fsdp": False, "recompute": False}  # of an engine that has many devices


class RunOptions:
    """Everything that a run is a function of; the options of one kind of run are a dataclass under this."""

    # What may differ when a run goes on, having no influence on the weights.
    FREE: ClassVar[frozenset[str]] = frozenset()
    # So may what computes, and in how many pieces: no more than the rounding of sums depends on it.
    MACHINE: ClassVar[frozenset[str]] = frozenset(
        {"backend", "threads", "accumulate", "devices", "fsdp", "recompute"}
    )

    def _make_plain(self) -> None:
        """Paths and NumPy's numbers as JSON has them, in every field."""
        for name, value in vars(self).items():
            if isinstance(value, Path | np.generic):
                object.__setattr__(self, name, str(value) if isinstance(value, Path) else value.item())

    def _require(self, what: str, holds: Callable[[Any], bool], *names: str) -> None:
        """Raise InputError when one of these fields is neither None nor what it should be."""
        for name in names:
            value = getattr(self, name)
            try:
                valid = value is None or holds(value)
            except (TypeError, ValueError):  # a string where a number should be
                valid = False
            if not valid:
                raise InputError(f"{name}={value!r} is not valid; give {what}.")

    def _require_spreadable(self) -> None:
        """Raise InputError when tensors are to be cut that the update needs whole."""
        whole = {"optimizer": self.optimizer == "lamb", "freeze": getattr(self, "freeze", None) is not None}
        for name, asked in whole.items():
            if self.fsdp and asked:
                raise InputError(
                    f"{name}={getattr(self, name)!r} can't be had with fsdp=True, which leaves each device a "
                    "piece of every tensor; leave one of them out."
                )

    def save(self, path: str | Path) -> None:
        """Write as JSON."""
        atomic_text(path, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            When there is no such file or it is not one of these.
        """
        try:
            found = read_json(path, advice="name the folder of a run")
        except MissingFile as error:
            raise InputError(
                f"{path} is missing: there is no run to go on with; leave out --resume."
            ) from error
        try:
            if wrong := misfit_of(cls, found):
                raise InputError(wrong)
            return cls(**cls._meant(found))
        except InputError as error:
            reason = str(error).rstrip(".")
            raise InputError(
                f"{path} does not hold the options of a run ({reason}); name the folder of one."
            ) from error

    @staticmethod
    def _meant(found: dict[str, Any]) -> dict[str, Any]:
        """Return what a file means that may be of a version with fewer options."""
        return found

    def resolved(self) -> Self:
        """The same with every `None` that a recipe answers filled in."""
        return self

    @property
    def extras(self) -> dict[str, Any]:
        """What is said to the one engine that hears it."""
        return {name: getattr(self, name) for name in EXTRAS}

    @property
    def update_rule(self) -> dict[str, Any]:
        """What the optimizer is made with, beside the parameters."""
        names = ("beta1", "beta2", "weight_decay", "clip_norm", "bias_correction")
        given = {name: getattr(self, name) for name in names}
        return {"kind": self.optimizer, "eps": self.adam_eps} | given

    @classmethod
    def resumed(cls, path: str | Path, **given: Any) -> Self:
        """The stored options of a run, with a new length or other upkeep where it is given.

        Parameters
        ----------
        path : the `training.json` or `finetune.json` of the run.
        given : what the user said explicitly.

        Raises
        ------
        InputError
            When something given differs from what is stored and the weights depend on it.
        """
        stored = cls.load(path)
        if given.get("dtype") == "auto":  # what it came to is stored
            given = {name: value for name, value in given.items() if name != "dtype"}
        if given.get("backend", stored.backend) != stored.backend:  # the other did not hear of these
            given = EXTRAS | given
        wished = dataclasses.replace(stored, **cls._instead(given)).resolved()
        wished.require_same_run(stored)
        return wished

    @staticmethod
    def _instead(given: dict[str, Any]) -> dict[str, Any]:
        """What is given, and what has to leave because of it."""
        return given

    def require_same_run(self, stored: Self) -> None:
        """Raise InputError when a run with the `stored` options can't go on with these."""
        free = self.FREE | self.MACHINE
        names = [field.name for field in dataclasses.fields(self) if field.name not in free]
        differing = [
            f"{name}={getattr(self, name)!r} (the run has {getattr(stored, name)!r})"
            for name in names
            if getattr(self, name) != getattr(stored, name)
        ]
        if differing:
            raise InputError(
                f"The run cannot go on with {', '.join(differing)}; leave that out, "
                "or start a new run in another folder."
            )
