"""`FinetuneOptions`: everything that determines a fine-tuning run, and the recipes for the paper's tasks."""

import dataclasses
import math
import os
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.model_names import on_disk
from minibert.base.options import (
    AT_MOST,
    COUNT,
    OPTIMIZERS,
    RATE,
    SHARE,
    WHOLE,
    Rules,
    RunOptions,
    TrainingArguments,
    is_number,
    is_whole,
    one_of,
    option,
)
from minibert.base.paths import path_of
from minibert.base.terminal import counted, listed
from minibert.core.config import BertConfig
from minibert.core.optim import KINDS
from minibert.model.head_kinds import POOLS
from minibert.model.positions import check_extension

MOST_RUNS = 10_000  # most runs of a sweep: all are listed before the first begins
SWEEP = (5e-5, 4e-5, 3e-5, 2e-5)  # learning rates for GLUE (Devlin et al. 2019, section 4.1)
LONG = ("cut", "windows")
MOST_WINDOWS = 8
BALANCED = "balanced"  # value of `class_weights` and of `sampling`
TOKEN_BUDGET = 4096  # most tokens of a batch in prediction
SWEPT = ("batch_size", "learning_rates", "epochs")  # options of which several values make a sweep


class TaskRecipe(NamedTuple):
    """How the paper fine-tunes a task (sections 4.1 to 4.4)."""

    epochs: float = 3.0
    batch_size: int = 32
    learning_rate: float = 5e-5


# The recipes are for the paper's models, of widths 768 and 1,024. Narrower ones learn little in three epochs
# with AdamW at 5e-5, and have these rates instead; the narrowest have Muon, and learn more with it
# (docs/fine-tuning.md has the measurements). Between two widths the logarithms are interpolated; beyond the
# first and the last the rate is constant. LAMB's rates are ten times AdamW's.
PAPER_WIDTH = 768
PAPER_RATE = 5e-5
MUON_BELOW = 384  # from this width on, Muon is no better
USUAL_OPTIMIZER = f"muon for models narrower than {MUON_BELOW}, else adamw"  # for help
RATES_BY_WIDTH = {
    "adamw": {128: 5e-4, 192: 2e-4, MUON_BELOW: 2e-4, PAPER_WIDTH: PAPER_RATE},
    "muon": {32: 3e-3, 128: 1e-3, 192: 5e-4, MUON_BELOW: 2e-4},
}


def rate_for_width(rate: float, width: int, optimizer: str = "adamw") -> float:
    """Scale a learning rate meant for AdamW and the width of BERT base to another model and optimizer.

    Parameters
    ----------
    rate : float
        Learning rate of a recipe.
    width : int
        The model's hidden size.
    optimizer : {"adamw", "lamb", "muon"}, default "adamw"
        The optimizer.

    Returns
    -------
    float
        With AdamW, `rate` itself for a width of 768 and more. Other rates are higher, rounded to one digit.

    Examples
    --------
    >>> rate_for_width(5e-5, 128), rate_for_width(5e-5, 384), rate_for_width(5e-5, 768)
    (0.0005, 0.0002, 5e-05)
    >>> rate_for_width(5e-5, 192, "muon")
    0.0005
    """
    if optimizer == "adamw" and width >= PAPER_WIDTH:
        return rate
    rates = RATES_BY_WIDTH.get(optimizer, RATES_BY_WIDTH["adamw"])
    interpolated = np.exp(np.interp(np.log(width), np.log(list(rates)), np.log(list(rates.values()))))
    factor = interpolated / PAPER_RATE * KINDS[optimizer].RATE
    return float(f"{rate * factor:.0e}")


FEATURE_BASED = TaskRecipe(epochs=10.0, learning_rate=1e-3)  # our choice: the paper gives no recipe
LSTM_DROPOUT = 0.1
RECIPES = {
    "squad2": TaskRecipe(epochs=2.0, batch_size=48),
    "ner": TaskRecipe(batch_size=2),  # two windows over documents: some 26 sentences, close to 32
    **dict.fromkeys(("swag", "hellaswag", "hellaswag-dev"), TaskRecipe(batch_size=16, learning_rate=2e-5)),
    # The paper has no such tasks: these are recipes of sentence-transformers.
    "stsb-similarity": TaskRecipe(epochs=4.0, batch_size=16, learning_rate=2e-5),
    "similarity": TaskRecipe(epochs=4.0, batch_size=16, learning_rate=2e-5),
    "similar-pairs": TaskRecipe(epochs=1.0, batch_size=64, learning_rate=2e-5),
}


def _each(rules: Rules) -> Rules:
    """Turn rules for one value into rules for several values."""
    one_by_one = ((what, lambda x, holds=holds: all(map(holds, _listed(x)))) for what, holds in rules)
    once = "each value once, at least one", lambda x: 0 < len(set(_listed(x))) == len(_listed(x))
    return *one_by_one, once


@dataclass(kw_only=True, eq=False, repr=False)
class WindowArguments:
    """How to read texts that are longer than the model, for tasks with one answer per text or pair."""

    long: str = option(
        "cut",
        "what to do with texts longer than `max_length`: cut their ends, or read them in overlapping windows "
        "(only for tasks with one answer per text or pair)",
        one_of(LONG),
        choices=LONG,
        in_python='"cut" cuts the ends of texts longer than `max_length`, "windows" reads these texts in '
        "overlapping windows (only for tasks with one answer per text or pair)",
    )
    stride: int | None = option(
        None, "pieces that a window shares with the one before it", COUNT, default="a quarter of a window"
    )
    pool: str | None = option(
        None,
        "how the vectors of a text's windows become one: mean, max, or trained attention",
        one_of(POOLS),
        choices=POOLS,
        default="mean",
        in_python='how the vectors of a text\'s windows become one: "mean", "max", or "attention", which is '
        "trained",
    )
    most_windows: int | None = option(
        None, "the most windows per text; what they have no room for is cut", WHOLE, default=f"{MOST_WINDOWS}"
    )


@dataclass(kw_only=True, eq=False, repr=False)
class BalanceArguments:
    """How to give more weight to rare classes."""

    class_weights: str | dict[str, float] | None = option(
        None,
        "weights of the classes in the loss: balanced, the inverse of each class's frequency, or "
        "NAME=WEIGHT,... with 1 for the others; the same as in PyTorch's CrossEntropyLoss(weight=...), whose "
        "mean is weighted too (multilabel: pos_weight of BCEWithLogitsLoss)",
        (("balanced, or NAME=WEIGHT,... with finite weights above 0, each once", lambda x: _are_weights(x)),),
        metavar="WEIGHTS",
        default="",
        in_python='weights of the classes in the loss: "balanced", the inverse of each class\'s frequency, '
        'or a dictionary such as {"spam": 5}, with 1 for the others; the same as in PyTorch\'s '
        "CrossEntropyLoss(weight=...), whose mean is weighted too (multilabel: pos_weight of "
        "BCEWithLogitsLoss)",
    )
    sampling: str | None = option(
        None,
        "balanced: each epoch draws the same number of examples from every class, rare ones several times "
        "(multilabel: a text counts as its rarest class)",
        one_of((BALANCED,)),
        choices=(BALANCED,),
        default="",
        in_python='"balanced" draws the same number of examples from every class for each epoch, rare ones '
        "several times (multilabel: a text counts as its rarest class)",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class SpanArguments:
    """The options for finding answers in a text."""

    span_weight: float = option(
        0.5,
        "weight of the losses of the answer's start and end: 0.5 for their mean, 1 for their sum",
        (("a number above 0 and at most 1", lambda x: is_number(x) and 0 < x <= 1),),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class FinetuneArguments(TrainingArguments):
    """The options that all runs and all estimators of fine-tuning share."""

    # data
    max_length: int | None = option(
        None,
        "the most tokens in a sequence, including [CLS] and [SEP]",
        (*AT_MOST, ("a whole number of at least 4", lambda x: is_whole(x) and x >= 4)),
    )
    token_budget: int = option(TOKEN_BUDGET, "tokens in a batch during evaluation", WHOLE)
    # length of the run
    epochs: float | tuple[float, ...] | None = option(
        None,
        "passes over the training examples, or several numbers to try in turn, such as the paper's 2,3,4",
        _each((("a number above 0 and at most 1,000,000", lambda x: is_number(x) and 0 < x <= 1e6),)),
        numbers="number of epochs",
    )
    patience: int | None = option(
        None, "stop after this many epochs in a row without a better result on dev", WHOLE, default=""
    )
    max_steps: int | None = option(
        None,
        "stop after this many steps at the latest; the learning rate falls to zero by then",
        WHOLE,
        default="",
    )
    # model
    dropout: float | None = option(
        None,
        "dropout rate of embeddings, sublayers, attention and before the output layer",
        RATE,
        default="that of the model's configuration, 0.1 for BERT's; 0.1 for LSTMs on frozen vectors",
    )
    freeze: int | None = option(
        None, "don't train the embeddings and the lowest N layers", (*AT_MOST, *COUNT), default=""
    )
    bilstm: bool = option(
        False,
        "put two bidirectional LSTMs between the model and the output layer, and train them with it; only "
        "minibert can read such a model, not transformers",
    )
    # batches and optimizer
    batch_size: int | tuple[int, ...] | None = option(
        None,
        "examples in a step, or several numbers to try in turn, such as the paper's 16,32",
        _each(WHOLE),
        numbers="batch size",
    )
    accumulate: int = 1
    optimizer: str | None = option(
        None,
        listed(OPTIMIZERS, "or"),
        one_of(OPTIMIZERS),
        default=USUAL_OPTIMIZER,
    )
    learning_rates: float | tuple[float, ...] | None = option(
        None,
        "the highest learning rate, or several to try in turn, such as the paper's "
        + ",".join(f"{rate:.0e}".replace("e-0", "e-") for rate in SWEEP),
        _each((("finite numbers above 0", lambda x: is_number(x) and 0 < x < math.inf),)),
        flag="--lr",
        metavar="RATES",
        default="by task and by the width of the model",
        numbers="learning rate",
    )
    warmup: float = 0.1
    bias_correction: bool = True  # without it, training on small data sets often fails
    google_decay: bool = False
    # the run
    restarts: int = option(1, "runs of each setting, each with the next seed", WHOLE)

    UNDECIDED = "by task"


@dataclass
class FinetuneOptions(FinetuneArguments, WindowArguments, BalanceArguments, SpanArguments, RunOptions):
    """Everything that determines a fine-tuning run; stored in its folder as `finetune.json`.

    `None` means "what the task's recipe says"; `resolved` fills it in. Several batch sizes, learning rates,
    numbers of epochs or restarts are a sweep: a run for each combination and each seed. Two runs with equal
    options, engine and threads end with the same bytes.

    `help(minibert.finetune)` describes each option.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    task: str = field(
        metadata={"help": "the task, such as sst2, or classify, regress, tag or qa for your own table"}
    )
    data: str = field(
        metadata={
            "help": "a folder with the task's official files or your own tables, or one table",
            "rules": (("a file or a folder; for data in memory there is TextClassifier('MODEL').fit", bool),),
        }
    )
    model: str = field(
        metadata={
            "help": "a pre-training run, a Hugging Face BERT, or a fine-tuned model to train further",
            "rules": (("the folder of a model", bool),),
        }
    )
    _: KW_ONLY
    # data
    columns: tuple[tuple[str, str], ...] | dict[str, str] = option(
        (), 'the columns of your table, such as {"text": "review"}'
    )
    also: tuple[tuple[str, str], ...] | dict[str, str] = option(
        (), 'other tasks to train together with this one, and their folders, such as {"snli": "pairs"}'
    )
    also_examples: int | None = option(
        None, "train on N examples of each task in `also`, always the same ones", WHOLE, default="all"
    )
    train_examples: int | None = option(
        None,
        "train on N examples, always the same ones; on more where that keeps documents whole",
        WHOLE,
        default="all",
    )
    dev_examples: int | None = option(
        None, "evaluate on N examples, always the same ones", WHOLE, default="all"
    )
    split_dev: float | None = option(
        None,
        "if only one file has labels: evaluate on this share of it, and of each class, and train on the rest "
        "(pairs with the same first text stay together)",
        SHARE,
        metavar="SHARE",
        default="",
    )
    stratified: bool = option(True, "take that share of each class, if examples have classes", flag="")
    # model
    feature_based: str | None = option(
        None,
        "freeze the whole model and train LSTMs on these layers: embeddings, second-to-last, last, "
        "sum-last-4, concat-last-4, sum-all (ner, tag)",
        (("the layers that LSTMs are to read, such as last", bool),),
        metavar="LAYERS",
        default="",
    )
    width: int = option(768, "units of these LSTMs in each direction", WHOLE)

    COMMAND = "finetune"

    def __post_init__(self) -> None:
        self._make_plain()
        self._normalise()
        self._check()
        self._check_sweep()
        if self.also_examples is not None and not self.also:
            advice = "name them in `also`, or leave it out."
            message = f"also_examples={self.also_examples!r} is for examples of other tasks; {advice}"
            raise InputError(message, also_examples=self.also_examples)
        if self.long == "cut":
            self._refuse_window_options()
        if self.feature_based:
            self._refuse_what_trains_the_model()

    def _check_sweep(self) -> None:
        """Raise InputError for a sweep of too many runs, or of runs that would all be the same."""
        settings = math.prod(len(_listed(getattr(self, name))) for name in SWEPT)
        runs = (self.restarts or 1) * settings
        if runs > MOST_RUNS:
            what = (
                f"restarts={self.restarts!r} would make {runs:,} runs, and a sweep has at most {MOST_RUNS:,}"
            )
            message = f"{what}; give fewer restarts, or fewer values to try."
            raise InputError(message, restarts=self.restarts)
        if self.max_steps is not None and isinstance(self.epochs, tuple):
            both: dict[str, Any] = {"max_steps": self.max_steps, "epochs": self.epochs}
            ends = f"max_steps={self.max_steps!r} ends every run after the same step"
            shown = f"{ends}, so that epochs={self.epochs!r} would make no difference"
            raise InputError(f"{shown}; leave one of them out.", **both)

    def _refuse_window_options(self) -> None:
        """Raise InputError for options of windows, since long texts are cut."""
        for name in ("stride", "pool", "most_windows"):
            value = getattr(self, name)
            if value is not None:
                advice = "ask for windows with long='windows', or leave it out."
                message = f"{name}={value!r} is for windows, but long texts are cut; {advice}"
                raise InputError(message, **{name: value, "long": self.long})

    def _refuse_what_trains_the_model(self) -> None:
        """Raise InputError for options of training a whole model, since LSTMs are trained on a frozen one."""
        if self.long != "cut":
            reading = f"long={self.long!r} is for tasks with one answer per text"
            message = f"{reading}, not for feature_based={self.feature_based!r}; leave it out."
            raise InputError(message, long=self.long, feature_based=self.feature_based)
        for name in ("freeze", "bilstm", "class_weights", "sampling", "extend_positions"):
            value = getattr(self, name)
            if value != getattr(FinetuneOptions, name):
                both = {name: value, "feature_based": self.feature_based}
                why = f"with feature_based={self.feature_based!r}, which trains no part of the model itself"
                message = f"{name}={value!r} has no effect {why}; leave one of them out."
                raise InputError(message, **both)

    def _normalise(self) -> None:
        """Bring each option that can be given in several forms to the one form that is stored."""
        columns = self._pairs_of_strings("columns", "columns; give such as {'text': 'review'}")
        require_different([role for role, _ in columns])
        # Absolute paths, so that the run can be used from any working directory.
        also = []
        for task, path in self._pairs_of_strings("also", "folders; give such as {'snli': 'pairs'}"):
            also.append((task, os.path.abspath(path_of(path, "also"))))
        stored: dict[str, Any] = {
            "data": os.path.abspath(path_of(self.data, "data")),
            "model": os.path.abspath(on_disk(self.model, "model")),
            "columns": columns,
            "also": tuple(also),
        }
        if self.class_weights is not None and not isinstance(self.class_weights, str):
            stored["class_weights"] = _weights_as_text(self.class_weights)
        for name in SWEPT:
            stored[name] = self._single_or_swept(name)
        for name, value in stored.items():
            object.__setattr__(self, name, value)

    def _pairs_of_strings(self, name: str, expected: str) -> tuple[tuple[str, str], ...]:
        """Return an option that was given as a dictionary, or as pairs, as pairs of strings."""
        value = getattr(self, name)
        pairs = value.items() if isinstance(value, dict) else value
        try:
            return tuple((str(key), str(item)) for key, item in pairs)
        except (TypeError, ValueError):
            raise InputError(f"{name}={value!r} are not names with {expected}.", **{name: value}) from None

    def _single_or_swept(self, name: str) -> Any:
        """Return the one value that an option of `SWEPT` was given, or else a tuple of its values.

        Learning rates are a tuple even if there is only one, unless that is None.
        """
        values = _listed(getattr(self, name))
        if len(values) != 1:  # none at all is refused by `_check`
            return values
        (value,) = values
        is_always_tuple = name == "learning_rates" and value is not None
        return values if is_always_tuple else value

    def resolved(self, model: BertConfig | None = None) -> "FinetuneOptions":
        """Return a copy in which the recipe of the task, and what suits the model, replace every `None`.

        A narrow model is fine-tuned with Muon, which teaches it much more in as many steps. One that was
        pre-trained without dropout is fine-tuned without it: with a rate of 0.1, a small one learns little
        about pairs of texts (docs/fine-tuning.md).

        Parameters
        ----------
        model : BertConfig or None, default None
            The model's configuration: its width decides the optimizer and the learning rate. None for one of
            the paper's.
        """
        model = model or BertConfig()
        optimizer = self.optimizer or ("muon" if self._suits_muon(model) else "adamw")
        if self.feature_based:  # LSTMs of any width, on vectors that are not trained
            recipe = FEATURE_BASED
            rate = recipe.learning_rate * KINDS[optimizer].RATE
            dropouts: dict[str, Any] = {"dropout": LSTM_DROPOUT}
        else:
            recipe = RECIPES.get(self.task, TaskRecipe())
            rate = rate_for_width(recipe.learning_rate, model.hidden_size, optimizer)
            dropouts = self.dropouts_of(model)
        answers: dict[str, Any] = {
            "epochs": recipe.epochs,
            "batch_size": recipe.batch_size,
            "optimizer": optimizer,
            "learning_rates": (rate,),
            **dropouts,
        }
        if self.long == "windows":
            answers |= {"pool": POOLS[0], "most_windows": MOST_WINDOWS}
        return self.with_defaults(answers)

    def _suits_muon(self, model: BertConfig) -> bool:
        """Tell whether a model is narrow, and matrices of its layers are trained, each of them whole."""
        trains_layers = not self.feature_based and (self.freeze or 0) < model.num_hidden_layers
        return trains_layers and not self.fsdp and model.hidden_size < MUON_BELOW

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of a single run."""
        (rate,) = _listed(self.learning_rates)
        return rate

    @property
    def varied(self) -> dict[str, Any]:
        """Return the options, other than the learning rate, that have several values."""
        candidates = {"batch_size": self.batch_size, "epochs": self.epochs}
        return {name: values for name, values in candidates.items() if isinstance(values, tuple)}

    def runs(self) -> dict[str, "FinetuneOptions"]:
        """Return the single runs of a sweep by the names of their folders, one setting after another."""
        runs = {}
        varied = self.varied
        seeds = range(self.seed, self.seed + self.restarts)
        for size, rate, epochs, seed in product(*(_listed(getattr(self, name)) for name in SWEPT), seeds):
            name = f"lr{_exact(rate)}"
            if "batch_size" in varied:
                name += f"-batch{size}"
            if "epochs" in varied:
                name += f"-epochs{_exact(epochs)}"
            name += f"-seed{seed}"
            setting = {"batch_size": size, "learning_rates": (rate,), "epochs": epochs, "seed": seed}
            runs[name] = dataclasses.replace(self, **setting, restarts=1)
        return runs

    def extended(self, config: BertConfig) -> BertConfig:
        """Return the model's configuration with as many positions as `extend_positions` says.

        Parameters
        ----------
        config : BertConfig
            Configuration of the model to start from.

        Returns
        -------
        BertConfig

        Raises
        ------
        InputError
            When the model has more positions already.
        """
        positions = self.extend_positions or config.P
        check_extension(config, positions, self.model)
        return dataclasses.replace(config, max_position_embeddings=positions)

    def check_model(self, layers: int, positions: int, source: str) -> None:
        """Check that a model has enough layers and positions for these options.

        Parameters
        ----------
        layers, positions : int
            How many the model has.
        source : str
            What the error calls the model: its folder, or the argument that names it.

        Raises
        ------
        InputError
            When there are too few.
        """
        if self.freeze is not None and self.freeze > layers:
            problem = f"freeze={self.freeze!r} is too many: '{source}' has {counted(layers, 'layer')}"
            raise InputError(f"{problem}; give at most {layers}.", freeze=self.freeze)
        if self.max_length is not None and self.max_length > positions:
            problem = f"max_length={self.max_length!r} is longer than the {positions} positions of '{source}'"
            advice = f"give at most {positions}"
            if not self.feature_based:  # with it, the model stays as it is
                advice += f", or give the model more with extend_positions={self.max_length}"
            raise InputError(f"{problem}; {advice}.", max_length=self.max_length)


def weights_by_name(text: str) -> dict[str, float]:
    """Read weights of classes, such as `spam=5,ham=1`.

    Parameters
    ----------
    text : str
        Names and weights, separated by commas.

    Returns
    -------
    dict of str to float

    Raises
    ------
    ValueError
        When the text has another form, or names a class twice.
    """
    pairs = [pair.rpartition("=") for pair in text.split(",")]
    weights = {name.strip(): float(weight) for name, _, weight in pairs}
    if "" in weights or len(weights) < len(pairs):
        raise ValueError(text)
    return weights


def _are_weights(text: str) -> bool:
    """Return whether a text gives valid weights of classes."""
    if text == BALANCED:
        return True
    return all(0 < weight < math.inf for weight in weights_by_name(text).values())


def _require_weights(weights: Any) -> None:
    """Raise InputError for weights that Python gives in another form than a dictionary of numbers."""
    try:
        is_valid = isinstance(weights, dict) and bool(weights)
        is_valid = is_valid and all(0 < float(weight) < math.inf for weight in weights.values())
    except (TypeError, ValueError):  # one of them is not a number
        is_valid = False
    if not is_valid:
        advice = "give 'balanced', or a number above 0 for each class, such as {'spam': 5}."
        raise InputError(f"class_weights={weights!r} is not valid; {advice}", class_weights=weights)


def _weights_as_text(weights: Any) -> str:
    """Return weights of classes that Python gives as the text that the command line has: `spam=5,ham=1`."""
    _require_weights(weights)
    return ",".join(f"{name}={weight}" for name, weight in weights.items())


def require_different(roles: list[str]) -> None:
    """Refuse a column that is named twice.

    Parameters
    ----------
    roles : list of str
        Roles of columns, such as "text", as often as they are named.

    Raises
    ------
    InputError
        When a role is there more than once.
    """
    twice = [name for name in roles if roles.count(name) > 1]
    if twice:
        raise InputError(f"`columns` names {twice[0]!r} twice; name it once.")


def _listed(value: Any) -> tuple[Any, ...]:
    """Return a value, or several, as a tuple."""
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return tuple(value)
    return (value,)


def _exact(value: float) -> str:
    """Write a number in the fewest digits that distinguish it from every other."""
    text = f"{value:g}"
    return text if float(text) == value else str(value)
