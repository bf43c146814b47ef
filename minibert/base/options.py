"""Check, store and compare the options of a run, whatever its kind."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar, Self, get_args, get_type_hints

import numpy as np

from minibert.base.errors import InputError, MissingFile, OtherOptions, did_you_mean
from minibert.base.files import atomic_json
from minibert.base.foreign_names import advice_for
from minibert.base.json_files import dataclass_error, read_json, read_toml, schema_error
from minibert.base.terminal import listed
from minibert.core.config import BertConfig
from minibert.core.optim import KINDS

MOST = 2**31 - 1  # largest number of steps, sequences or pieces
DTYPES = ("auto", "float32", "bfloat16", "float64")
OPTIMIZERS = tuple(KINDS)
PRETRAINING_FILE = "training.json"  # the options in the folder of a pre-training run
STORED = {PRETRAINING_FILE: "pretrain", "finetune.json": "finetune"}  # the command whose options each holds
ALWAYS_STORED = {"pretrain": "corpus", "finetune": "task"}  # an option that only this command has
EXTRAS = {"devices": None, "fsdp": False, "recompute": False}  # options of an engine with many devices


def is_number(value: Any) -> bool:
    """Return whether a value is a number; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, int) and is_number(value)


# Conditions on a value, each in words and as a test.
Rules = tuple[tuple[str, Callable[[Any], bool]], ...]
AT_MOST: Rules = ((f"at most {MOST:,}", lambda x: x <= MOST),)
COUNT: Rules = (("a whole number, 0 or more", lambda x: is_whole(x) and x >= 0),)
WHOLE: Rules = (("a whole number of at least 1", lambda x: is_whole(x) and x >= 1), *AT_MOST)
POSITIVE: Rules = (("a finite number above 0", lambda x: is_number(x) and 0 < x < math.inf),)
NOT_NEGATIVE: Rules = (("a number, 0 or more", lambda x: is_number(x) and x >= 0),)
REAL: Rules = (("a number", is_number),)
FINITE: Rules = (("a finite number, 0 or more", lambda x: is_number(x) and 0 <= x < math.inf),)
RATE: Rules = (("a number of at least 0 and below 1", lambda x: is_number(x) and 0 <= x < 1),)
SHARE: Rules = (("a number above 0 and below 1", lambda x: is_number(x) and 0 < x < 1),)


def one_of(names: tuple[str, ...]) -> Rules:
    """Make the rule that a value is one of several names.

    Parameters
    ----------
    names : tuple of str
        In the order in which an error lists them.

    Returns
    -------
    Rules
    """
    what = f"one of {', '.join(names)}" if len(names) > 1 else repr(names[0])
    return ((what, lambda x: x in names),)


def option(default: Any, help: str, rules: Rules = (), /, **shown: Any) -> Any:
    """Declare a field of a run's options, once for Python and for the command line.

    Parameters
    ----------
    default : object
        Default of the field.
    help : str
        Description, for --help and docstrings.
    rules : Rules, default ()
        Conditions on the value.
    **shown
        How the flag looks, where name, type and default do not say it: `flag` ("": there is none), `metavar`,
        `choices`, `both_ways` (--flag and --no-flag), `numbers` (the flag takes several; what one is called),
        `default` in words; `in_python`, the description of the argument where the flag means the opposite.

    Returns
    -------
    dataclasses.Field
        A field with all of this as metadata.
    """
    metadata = {"help": help, "rules": rules, **shown}
    return dataclasses.field(default=default, metadata=metadata)


def metadata_of(kind: type, name: str) -> Mapping[str, Any]:
    """Return the metadata that `option` gave a field, in a class or its nearest base class.

    Parameters
    ----------
    kind : type
        A dataclass.
    name : str
        Name of the field.

    Returns
    -------
    mapping
        Empty for a field that was not declared by `option`.
    """
    for part in kind.__mro__:
        field = getattr(part, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata:
            return field.metadata
    return {}


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingArguments:
    """Options of all training, common to runs and estimators, each declared once.

    Runs (`RunOptions`) check and store these fields, and never change them; estimators (`api.base.Estimator`)
    let them be changed until `fit`. So this class has only the fields.
    """

    # model
    attention_dropout: float | None = option(
        None,
        "dropout rate of the attention probabilities alone; 0 lets the engine jax use the fastest kernel on "
        "a GPU",
        RATE,
        default="that of `dropout`, or of the model if neither is given",
    )
    extend_positions: int | None = option(
        None,
        "give the trained model this many positions, more than it has, to read longer texts: new ones begin "
        "as copies of the old ones and are trained with the rest",
        WHOLE,
        default="",
    )
    dtype: str = option(
        "float32",
        "precision: float32 or float64 throughout; bfloat16 for products and activations, with weights, sums "
        "and losses in float32 (engines cpp and jax); auto: the faster one, bfloat16 on processors with "
        "AMX or (AMD) AVX512-BF16 and with jax on a GPU or TPU",
        one_of(DTYPES),
        choices=DTYPES,
    )
    # batches and optimizer
    accumulate: int | None = option(
        None, "micro-batches that a step is split into: the same result with less memory", WHOLE
    )
    optimizer: str | None = option(None, listed(OPTIMIZERS, "or"), one_of(OPTIMIZERS))
    warmup: float | None = option(
        None, "share of the steps in which the learning rate rises; after that it falls to zero", RATE
    )
    weight_decay: float = option(0.01, "weight decay of everything but biases and LayerNorm", FINITE)
    clip_norm: float = option(1.0, "largest norm of the gradient; 0: no limit", NOT_NEGATIVE)
    beta1: float = option(0.9, "decay rate of the mean of the gradients", RATE)
    beta2: float = option(0.999, "decay rate of the mean of their squares", RATE)
    adam_eps: float = option(1e-6, "epsilon: added to the root of the mean of squares", POSITIVE)
    bias_correction: bool | None = option(
        None, "correct the bias of Adam's means, which Google's code does not", flag=""
    )
    google_decay: bool | None = option(
        None, "let the learning rate fall from step 0 on, as in Google's code", flag=""
    )
    # the run
    engine: str = option("auto", "the engine that computes: auto, cpp, numba, numpy or jax")
    threads: int | None = option(None, "number of threads", WHOLE, default="one for each core")
    devices: int | None = option(
        None,
        "number of devices, each of which computes a part of the batch; the result is the same as with one",
        WHOLE,
        default="all that JAX finds",
    )
    fsdp: bool = option(
        False,
        "keep only a part of the parameters and moments on each device, for models that don't fit on one",
        both_ways=True,
    )
    recompute: bool = option(
        False,
        "keep only the input of each layer and recompute the rest in the backward pass: much less memory "
        "for a third more arithmetic",
        both_ways=True,
    )
    checkpoint_steps: int = option(
        0, "steps between checkpoints; 0: only by `checkpoint_seconds`", COUNT, flag="--save-every"
    )
    checkpoint_seconds: float = option(
        300.0, "seconds between checkpoints", NOT_NEGATIVE, flag="--save-seconds"
    )
    keep: int = option(1, "checkpoints to keep; 0: all", COUNT)

    UNDECIDED: ClassVar[str] = ""  # what the command line calls a default that is None


@dataclass(kw_only=True)
class RunOptions(TrainingArguments):
    """The options that determine a run; each kind of run has a dataclass that inherits from this.

    Instances do not change; `dataclasses.replace` makes a changed copy.
    """

    seed: int = option(0, "seed of all random numbers", COUNT)

    COMMAND: ClassVar[str] = ""  # one of the commands in STORED
    ALWAYS: ClassVar[tuple[str, ...]] = ()  # fields that every run has stored
    # Options that may change when a run is resumed, because they have no influence on the weights.
    FREE: ClassVar[frozenset[str]] = frozenset({"keep", "checkpoint_seconds", "checkpoint_steps"})
    # These may change as well: they only affect how sums are rounded.
    MACHINE: ClassVar[frozenset[str]] = frozenset("engine threads accumulate devices fsdp recompute".split())

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field for the first time, as `__init__` does."""
        if name in vars(self) or name not in self.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _make_plain(self) -> None:
        """Convert paths and NumPy's types to those of JSON, before `_check` reads them.

        Raise InputError for None in a field that has no None in its type, and for anything but a string in a
        field of type `str`, or anything but True and False (and None) in one that takes these.
        """
        for field in dataclasses.fields(self):
            name = field.name
            value = _plain(getattr(self, name))
            kinds = get_args(field.type) or (field.type,)
            is_none = value is None and type(None) not in kinds
            is_typed = field.type is str or bool in kinds  # rules check other types
            if is_none or (is_typed and not isinstance(value, kinds)):
                rules = metadata_of(type(self), name).get("rules", ())
                of_type = "True or False" if bool in kinds else "a string"
                wanted = next((what for what, _ in rules), of_type)
                if hasattr(value, "__len__") and not isinstance(value, str | bytes):  # a whole table, perhaps
                    raise InputError(f"{name} is a {type(value).__name__}; give {wanted}.")
                raise InputError(f"{name}={value!r} is not valid; give {wanted}.", **{name: value})
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        """Raise InputError when a field is neither None nor what its rules say."""
        for name, value in vars(self).items():
            for what, holds in metadata_of(type(self), name).get("rules", ()):
                try:
                    valid = value is None or holds(value)
                except (AttributeError, TypeError, ValueError):  # a string where a number should be
                    valid = False
                if not valid:
                    raise InputError(f"{name}={value!r} is not valid; give {what}.", **{name: value})
        # fsdp splits every tensor, and some updates need whole ones.
        needs_whole = {
            "optimizer": self.optimizer is not None and KINDS[self.optimizer].WHOLE,
            "freeze": getattr(self, "freeze", None) is not None,
        }
        for name, needs_it in needs_whole.items():
            if self.fsdp and needs_it:
                why = "which leaves each device a piece of every tensor; leave one of them out."
                value = getattr(self, name)
                what = f"{name}={value!r} can't be had with fsdp=True"
                raise InputError(f"{what}, {why}", **{name: value, "fsdp": True})

    def save(self, path: str | Path) -> None:
        """Write as JSON.

        Parameters
        ----------
        path : str or path
            The file, such as training.json in the folder of the run.
        """
        atomic_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        RunOptions
            An instance of this class.

        Raises
        ------
        InputError
            When the file is missing, or does not hold such options.
        """
        try:
            stored = read_json(path, advice="name the folder of a run")
        except MissingFile as error:
            raise cls._nothing_to_resume(Path(path)) from error
        try:
            wrong = dataclass_error(cls, stored)
            if not wrong:
                missing = (f"{name!r} is missing" for name in cls.ALWAYS if name not in stored)
                wrong = next(missing, None)
            if wrong:
                raise InputError(wrong)
            return cls(**stored)
        except InputError as error:
            what = f"{path} does not hold the options of a run ({str(error).rstrip('.')})"
            raise InputError(f"{what}; name the folder of one.") from error

    @classmethod
    def _nothing_to_resume(cls, path: Path) -> InputError:
        """Return the error for a folder without stored options, or with those of a run of another kind."""
        command = other_command(path)
        if command:
            what = f"'{path.parent}' holds a run of minibert {command}"
            return InputError(f"{what}; resume it with that, or choose another `out`.")
        return InputError(f"There is no run in '{path.parent}'; check `out`, or leave out `resume`.")

    @classmethod
    def configured(cls, path: str | Path, given: dict[str, Any]) -> dict[str, Any]:
        """Read options from a file; those given elsewhere take precedence.

        A value that is the default anyway is left out, as if nobody had chosen it.

        Parameters
        ----------
        path : str or path
            The file: TOML where its name ends in .toml, and JSON otherwise.
        given : dict
            Options from elsewhere; they override those of the file.

        Returns
        -------
        dict
            The options, by name.

        Raises
        ------
        InputError
            When the file can't be read, has a name that is not an option, or a value of the wrong type.
        """
        is_toml = Path(path).suffix == ".toml"
        advice = "give a JSON file, or TOML in a file whose name ends in .toml"
        configured = read_toml(path) if is_toml else read_json(path, advice=advice)
        cls._require_names(path, configured)
        kinds = get_type_hints(cls)
        wrong = schema_error(configured, {name: kinds[name] for name in configured})
        if wrong:
            raise InputError(f"{wrong}; correct it.", where=str(path))
        chosen = {name: value for name, value in configured.items() if value != getattr(cls, name, ...)}
        return chosen | cls._instead(given)

    @classmethod
    def _require_names(cls, path: str | Path, configured: Mapping[str, Any]) -> None:
        """Raise InputError for a name in a file that is not an option; suggest a similar one."""
        fields = {field.name: repr(field.name) for field in dataclasses.fields(cls)}
        by_flag = {}  # a file may have the name of the flag, where that differs from the field
        for name, shown in fields.items():
            flag = metadata_of(cls, name).get("flag")
            if flag:
                by_flag[flag.lstrip("-")] = shown
        unknown = sorted(configured.keys() - fields.keys())
        command = STORED.get(Path(path).name, cls.COMMAND)
        if unknown and command != cls.COMMAND:
            expected = next(name for name in STORED if STORED[name] == cls.COMMAND)
            raise InputError(f"{path} holds the options of minibert {command}; give a {expected}.")
        for name in unknown:
            ours = name.replace("-", "_")
            advice = did_you_mean(ours, fields | by_flag, "leave it out.")
            if name not in by_flag and ours not in fields:  # perhaps a name that other libraries have for it
                advice = advice_for(name, fields) or advice
            raise InputError(f"{short(name)} is not an option of this command; {advice}", where=str(path))

    def resolved(self) -> Self:
        """Return a copy in which a recipe replaces every `None`."""
        return self

    @property
    def dropouts(self) -> dict[str, Any]:
        """Both rates, as a model's configuration has them."""
        rate = vars(self)["dropout"]  # which every subclass has
        attention = rate if self.attention_dropout is None else self.attention_dropout
        return {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": attention}

    def dropouts_of(self, model: BertConfig) -> dict[str, Any]:
        """Return answers for the rates that are left open: those of a trained model.

        Parameters
        ----------
        model : BertConfig
            Its configuration.

        Returns
        -------
        dict
            Both fields, by name; {} if `dropout` was given, which stands for both.
        """
        rate, attention = model.hidden_dropout_prob, model.attention_probs_dropout_prob
        if vars(self)["dropout"] is not None:
            return {}
        return {"dropout": rate, "attention_dropout": None if attention == rate else attention}

    @property
    def extras(self) -> dict[str, Any]:
        """The options that only one engine has."""
        return {name: getattr(self, name) for name in EXTRAS}

    @property
    def update_rule(self) -> dict[str, Any]:
        """The arguments of the optimizer, except the parameters."""
        names = ("beta1", "beta2", "weight_decay", "clip_norm", "bias_correction")
        rule = {"kind": self.optimizer, "eps": self.adam_eps}
        return rule | {name: getattr(self, name) for name in names}

    def with_defaults(self, answers: Mapping[str, Any]) -> Self:
        """Return a copy in which answers replace fields that are None.

        Parameters
        ----------
        answers : mapping of str to object
            The values, by the name of the field.

        Returns
        -------
        RunOptions
        """
        open_answers = {name: value for name, value in answers.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **open_answers)

    @classmethod
    def resumed(cls, path: str | Path, **given: Any) -> Self:
        """Load the stored options of a run, with a new length or other allowed changes.

        Parameters
        ----------
        path : str or path
            The file that `save` wrote.
        **given
            Options that the user gives, by name.

        Returns
        -------
        RunOptions
            Resolved options of this class.

        Raises
        ------
        InputError
            When an option that the weights depend on differs from the stored one.
        """
        stored = cls.load(path)
        if given.get("dtype") == "auto":  # what auto was resolved to is stored
            given = {name: value for name, value in given.items() if name != "dtype"}
        if given.get("engine", stored.engine) != stored.engine:  # these belong to the other engine
            given = EXTRAS | given
        wanted = dataclasses.replace(stored, **cls._instead(given)).resolved()
        wanted.require_same_run(stored)
        return wanted

    @staticmethod
    def _instead(given: dict[str, Any]) -> dict[str, Any]:
        """Return the given options, with the changes to other options that they entail."""
        return given

    def require_same_run(self, stored: Self) -> None:
        """Check that a run can be resumed with these options.

        Parameters
        ----------
        stored : RunOptions
            The options of the run so far.

        Raises
        ------
        InputError
            When options that the weights depend on differ; the message lists them, first those that only this
            kind of run has.
        """
        common = RunOptions.__dataclass_fields__
        fields = list(vars(self))
        names = sorted(fields, key=lambda name: (name in common, fields.index(name)))
        differing = {}
        for name in names:
            if name in self.FREE or name in self.MACHINE:
                continue
            wanted = getattr(self, name)
            before = getattr(stored, name)
            if wanted != before:
                differing[name] = (wanted, before)
        if differing:
            raise OtherOptions(differing)


def other_command(path: Path) -> str:
    """Return which other command made the run in a folder.

    Parameters
    ----------
    path : Path
        Where one command stores its options in the folder; the file need not exist.

    Returns
    -------
    str
        "pretrain" or "finetune"; "" if the folder holds no run of another command.
    """
    for name, command in STORED.items():
        if name == path.name:
            continue
        with suppress(InputError):
            stored = read_json(path.parent / name)
            if isinstance(stored, dict) and ALWAYS_STORED[command] in stored:
                return command
    return ""


def _plain(value: Any) -> Any:
    """Convert paths to strings, and NumPy's numbers and arrays to Python's; inside containers as well."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return os.fsdecode(value) if isinstance(value, os.PathLike) else value
