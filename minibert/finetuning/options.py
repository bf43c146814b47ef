"""`FinetuneOptions`: everything a fine-tuning run is a function of, and the recipes of the paper's tasks."""

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

from minibert.errors import InputError
from minibert.options import DTYPES, LAMB_RATE, MOST, OPTIMIZERS, RunOptions

MOST_RUNS = 10_000  # of a sweep, which are listed before the first
SWEEP = (5e-5, 4e-5, 3e-5, 2e-5)  # learning rates of GLUE (Devlin et al. 2019, section 4.1)
TOKEN_BUDGET = 4096  # of a batch that is only predicted


class TaskRecipe(NamedTuple):
    """How the paper fine-tunes a task (sections 4.1 to 4.4)."""

    epochs: float = 3.0
    batch_size: int = 32
    learning_rate: float = 5e-5


GENERAL = TaskRecipe()
FEATURE_BASED = TaskRecipe(epochs=10.0, learning_rate=1e-3)  # ours: the paper says nothing of it
RECIPES = {
    "squad2": TaskRecipe(epochs=2.0, batch_size=48),
    "ner": TaskRecipe(batch_size=2),  # windows over documents: some 26 sentences, the nearest to 32
    "swag": TaskRecipe(batch_size=16, learning_rate=2e-5),
    "hellaswag": TaskRecipe(batch_size=16, learning_rate=2e-5),
    "hellaswag-dev": TaskRecipe(batch_size=16, learning_rate=2e-5),
}


@dataclass(frozen=True)
class FinetuneOptions(RunOptions):
    """Everything a fine-tuning run is a function of; stored in its folder as `finetune.json`.

    `None` means "what the task's recipe says" (`resolved` fills it in). Several learning rates or restarts
    are a sweep: a run for each rate and seed. Two runs with equal options, engine and threads end with the
    same bytes.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    task: str
    data: str  # folder of the task's official files, or of a table of one's own
    model: str  # folder to start from: a pre-training run, a BERT of Hugging Face's, or a fine-tuned model
    # data
    columns: tuple[tuple[str, str], ...] = ()  # of one's own table: ("text", "review")
    train_examples: int | None = None  # so many, always the same ones; None: all
    dev_examples: int | None = None
    split_dev: float | None = None  # there is one file only, of dev or train: measure on this share of it
    stratified: bool = True  # that share of each class, where examples have one
    max_length: int | None = None  # of a sequence, [CLS] and [SEP] included; None: the task's
    # length of the run
    epochs: float | None = None
    max_steps: int | None = None  # end the run there, the rate falling to zero
    # batches
    batch_size: int | None = None  # examples a step
    accumulate: int = 1
    # optimizer
    optimizer: str = "adamw"
    learning_rates: tuple[float, ...] | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    adam_eps: float = 1e-6
    bias_correction: bool = True  # without it small sets often fail to train
    google_decay: bool = False
    # model
    dropout: float = 0.1
    attention_dropout: float | None = None  # of attention probabilities; None: as the others
    freeze: int | None = None  # the embeddings and so many layers stay as they are; None: nothing does
    feature_based: str | None = None  # learn a BiLSTM on these frozen layers instead (section 5.3)
    width: int = 768  # of that BiLSTM, in each direction
    span_weight: float = 0.5  # of the losses of start and end: 0.5 their mean (Google's code), 1 their sum
    dtype: str = "float32"  # "bfloat16": of products and activations; "auto": that, where it is faster
    # the run
    seed: int = 0
    restarts: int = 1  # runs with the seeds that follow, for each learning rate
    backend: str = "auto"
    threads: int | None = None
    devices: int | None = None  # of JAX, that compute a step; None: all
    fsdp: bool = False  # each device keeps a part of the parameters and moments
    recompute: bool = False  # of a layer, when going back, what came after what entered it
    token_budget: int = TOKEN_BUDGET
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int = 0
    keep: int = 1

    FREE = frozenset({"keep", "checkpoint_seconds", "checkpoint_steps"})

    def __post_init__(self) -> None:
        self._make_plain()
        for name in ("data", "model"):  # whole paths, for a run is asked from anywhere
            object.__setattr__(self, name, os.path.abspath(getattr(self, name)))
        pairs = self.columns.items() if isinstance(self.columns, dict) else self.columns
        try:
            pairs = tuple((str(name), str(column)) for name, column in pairs)
        except (TypeError, ValueError):
            raise InputError(
                f"columns={self.columns!r} are not names with columns; give such as {{'text': 'review'}}."
            ) from None
        object.__setattr__(self, "columns", pairs)
        names = [name for name, _ in self.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"The columns name {twice[0]!r} twice; say once which column that is.")
        rates = self.learning_rates
        if rates is not None:
            rates = (rates,) if isinstance(rates, int | float) else tuple(rates)
            object.__setattr__(self, "learning_rates", rates)
        whole = ("train_examples", "dev_examples", "max_steps", "batch_size", "accumulate", "restarts")
        whole += ("threads", "devices", "token_budget", "width")
        self._require("a whole number of at least 1", lambda x: isinstance(x, int) and x >= 1, *whole)
        self._require(f"at most {MOST:,}", lambda x: x <= MOST, "max_length", "freeze", *whole)
        self._require("a whole number of at least 4", lambda x: isinstance(x, int) and x >= 4, "max_length")
        self._require("a number above 0 and at most 1,000,000", lambda x: 0 < x <= 1e6, "epochs")
        self._require("a finite number above 0", lambda x: 0 < x < math.inf, "adam_eps")
        self._require("finite numbers above 0, each once", _are_rates, "learning_rates")
        if (runs := (self.restarts or 1) * len(rates or (None,))) > MOST_RUNS:
            raise InputError(
                f"restarts={self.restarts} would make {runs:,} runs; give so few of them, or of the learning "
                f"rates, that a sweep has {MOST_RUNS:,} at most."
            )
        counts = ("seed", "keep", "checkpoint_steps", "freeze")
        self._require("a whole number, 0 or more", lambda x: isinstance(x, int) and x >= 0, *counts)
        self._require("0 or more", lambda x: x >= 0, "weight_decay", "clip_norm", "checkpoint_seconds")
        shares = ("dropout", "attention_dropout", "warmup", "beta1", "beta2")
        self._require("at least 0 and below 1", lambda x: 0 <= x < 1, *shares)
        self._require("above 0 and below 1", lambda x: 0 < x < 1, "split_dev")
        self._require("above 0 and at most 1", lambda x: 0 < x <= 1, "span_weight")
        self._require("the layers that LSTMs are to read, such as last", bool, "feature_based")
        self._require(f"one of {', '.join(DTYPES)}", lambda x: x in DTYPES, "dtype")
        self._require(f"one of {', '.join(OPTIMIZERS)}", lambda x: x in OPTIMIZERS, "optimizer")
        self._require_spreadable()
        if self.feature_based and self.freeze is not None:
            raise InputError(
                f"freeze={self.freeze} has no meaning where feature_based={self.feature_based!r} leaves the "
                "whole model as it is; leave one of them out."
            )

    @staticmethod
    def _meant(found: dict[str, Any]) -> dict[str, Any]:
        return {"stratified": False} | found  # which no run was whose file does not say so

    def resolved(self) -> "FinetuneOptions":
        """The same with every `None` that the recipe of the task answers filled in."""
        recipe = FEATURE_BASED if self.feature_based else RECIPES.get(self.task, GENERAL)
        answers = {
            "epochs": recipe.epochs,
            "batch_size": recipe.batch_size,
            "learning_rates": (recipe.learning_rate * (LAMB_RATE if self.optimizer == "lamb" else 1),),
        }
        return dataclasses.replace(self, **{n: v for n, v in answers.items() if getattr(self, n) is None})

    @property
    def learning_rate(self) -> float:
        """Of a single run."""
        (rate,) = self.learning_rates
        return rate

    def runs(self) -> list["FinetuneOptions"]:
        """The single runs of a sweep, rate by rate."""
        return [
            dataclasses.replace(self, learning_rates=(rate,), seed=self.seed + restart, restarts=1)
            for rate in self.learning_rates
            for restart in range(self.restarts)
        ]

    @property
    def run_name(self) -> str:
        """Of a single run in the folder of its sweep; rates that differ in their last digit differ in it."""
        rate = f"{self.learning_rate:g}"
        return f"lr{rate if float(rate) == self.learning_rate else self.learning_rate}-seed{self.seed}"

    def check_model(self, layers: int, positions: int, folder: str) -> None:
        """Raise InputError when the model in `folder` has fewer layers or positions than are asked for."""
        if self.freeze is not None and self.freeze > layers:
            raise InputError(
                f"freeze={self.freeze} is more than the {layers} layers of {folder}; give at most {layers}."
            )
        if self.max_length is not None and self.max_length > positions:
            raise InputError(
                f"max_length={self.max_length} is longer than the {positions} positions of {folder}; "
                f"give at most {positions}."
            )


def _are_rates(rates: tuple[float, ...]) -> bool:
    """Whether these are learning rates that can be tried one after another."""
    return 0 < len(set(rates)) == len(rates) and all(0 < rate < math.inf for rate in rates)
