"""`PretrainOptions`: everything a pre-training run is a function of."""

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from minibert.config import SIZES, BertConfig
from minibert.data.instances import InstanceOptions
from minibert.errors import InputError
from minibert.options import DTYPES, LAMB_RATE, MOST, OPTIMIZERS, RunOptions
from minibert.pretraining.recipes import (
    FURTHER,
    MINUTES,
    NEW_HEAD_RATE,
    RECIPES,
    SizeRecipe,
    Stage,
    parse_lengths,
    schedule_for,
)

PAIRS_FROM = 64  # tokens; what is left of a shorter sequence after cutting it in two has hardly any context
IN_SHARDS = ("corpus", "layout", "vocab", "vocab_size", "lower_case")  # what token shards have settled


@dataclass(frozen=True)
class PretrainOptions(RunOptions):
    """Everything a pre-training run is a function of; stored in its folder as `training.json`.

    `None` means "what the recipe says" (`resolved` fills it in): that of the size, or for weights from
    `init_from` without a size `recipes.FURTHER`. What only the run itself can decide stays None until then:
    `seq_length` where `minutes` have to be measured first, `learning_rate` until weights from `init_from`
    are known to have a masked-LM head. Two runs with equal options, engine, threads and number of steps end
    with the same bytes.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    # text
    corpus: tuple[str, ...] = ()  # files, folders or globs; none: the embedded books
    layout: str = "auto"
    vocab: str | None = None  # vocab.txt or a folder with one; None: learned from the corpus
    vocab_size: int = 8192
    lower_case: bool = True  # False: keep case and accents, whatever the vocabulary's folder says
    shards: str | None = None  # a folder of `minibert data`: text and vocabulary in place of all of these
    held_out: float = 0.05
    # model
    size: str | None = None  # None: "tiny", or the shape of `init_from`, which is kept in any case
    init_from: str | None = None  # folder of a trained model to start from, with its vocabulary
    hidden_act: str = "gelu"
    max_positions: int = 512
    dropout: float | None = None
    attention_dropout: float | None = None  # of attention probabilities; None: as the others
    unigram_bias: bool | None = None
    dtype: str = "float32"  # "bfloat16": of products and activations; "auto": that, where it is faster
    # length of the run: at most one of the two
    steps: int | None = None
    minutes: float | None = None
    # batches
    seq_length: str | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    # optimizer
    optimizer: str = "adamw"
    learning_rate: float | None = None
    warmup: float | None = None
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    adam_eps: float = 1e-6
    bias_correction: bool | None = None
    google_decay: bool | None = None
    # instances (Table 8 and the ablations of the paper)
    short_seq_prob: float = 0.1
    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int | None = None
    mask_rates: tuple[float, float, float] = (0.8, 0.1, 0.1)
    whole_word_mask: bool = False
    next_sentence: bool = True
    left_to_right: bool = False
    dupe_factor: int = 0
    # the run
    seed: int = 0
    backend: str = "auto"
    threads: int | None = None
    devices: int | None = None  # of JAX, that compute a step; None: all
    fsdp: bool = False  # each device keeps a part of the parameters and moments
    recompute: bool = False  # of a layer, when going back, what came after what entered it
    evaluations: int = 10  # looks at the held-out text on the way
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int = 0
    keep: int = 2

    # The length of a run may differ too. Shards may have been moved; that they are the same is checked when
    # they are opened.
    FREE = frozenset(
        {"steps", "minutes", "evaluations", "keep", "checkpoint_seconds", "checkpoint_steps", "shards"}
    )

    def __post_init__(self) -> None:
        self._make_plain()
        paths = [self.corpus] if isinstance(self.corpus, str | Path) else self.corpus
        object.__setattr__(self, "corpus", tuple(str(path) for path in paths))
        object.__setattr__(self, "mask_rates", tuple(self.mask_rates))
        self._check_shards()
        self._check_what_others_bring()
        if self.size is not None and self.size not in SIZES:
            raise InputError(f"size={self.size!r} is not a published size; use one of {', '.join(SIZES)}.")
        if self.steps is not None and self.minutes is not None:
            raise InputError(
                f"steps={self.steps} and minutes={self.minutes} are both given; give one of them."
            )
        whole = ("steps", "batch_size", "accumulate", "vocab_size", "max_positions", "threads", "devices")
        self._require("a whole number of at least 1", lambda x: isinstance(x, int) and x >= 1, *whole)
        self._require(f"at most {MOST:,}", lambda x: x <= MOST, "max_predictions_per_seq", *whole)
        positive = ("minutes", "learning_rate", "adam_eps")
        self._require("a finite number above 0", lambda x: 0 < x < math.inf, *positive)
        counts = ("seed", "keep", "checkpoint_steps", "evaluations")
        self._require("a whole number, 0 or more", lambda x: isinstance(x, int) and x >= 0, *counts)
        self._require("0 or more", lambda x: x >= 0, "clip_norm", "checkpoint_seconds")
        self._require("a finite number, 0 or more", lambda x: 0 <= x < math.inf, "weight_decay")
        shares = ("dropout", "attention_dropout", "warmup", "beta1", "beta2")
        self._require("at least 0 and below 1", lambda x: 0 <= x < 1, *shares)
        self._require("above 0 and below 1", lambda x: 0 < x < 1, "held_out")
        self._require(f"one of {', '.join(DTYPES)}", lambda x: x in DTYPES, "dtype")
        self._require(f"one of {', '.join(OPTIMIZERS)}", lambda x: x in OPTIMIZERS, "optimizer")
        self._require_spreadable()
        if self.seq_length is not None:
            object.__setattr__(self, "seq_length", str(self.seq_length))
        for length, _ in parse_lengths(self.seq_length or "128"):
            self.instance_options(length)  # complains of what no instance can be made with

    def _check_shards(self) -> None:
        """Shards bring text and vocabulary; from wherever the run goes on, they are where they were."""
        if self.shards is None:
            return
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name in IN_SHARDS if getattr(self, name) != fields[name]]
        if given:
            raise InputError(
                f"shards={self.shards!r} brings text and vocabulary, so {' and '.join(given)} can't be given "
                "beside it; leave one of them out."
            )
        object.__setattr__(self, "shards", os.path.abspath(self.shards))

    def _check_what_others_bring(self) -> None:
        """A vocabulary has its pieces, and trained weights their output bias."""
        source = "vocab" if self.vocab else "init_from"
        if (self.vocab or self.init_from) and self.vocab_size != PretrainOptions.vocab_size:
            raise InputError(
                f"vocab_size={self.vocab_size} is of a vocabulary that is learned, and "
                f"{source}={getattr(self, source)!r} brings one; leave one of them out."
            )
        if self.init_from and self.unigram_bias:
            raise InputError(
                f"unigram_bias=True sets the output bias, and init_from={self.init_from!r} brings a trained "
                "one; leave one of them out."
            )

    def resolved(self) -> "PretrainOptions":
        """The same with every `None` that the recipe answers filled in."""
        recipe, lamb = self.recipe, self.optimizer == "lamb"
        answers = {
            "size": None if self.init_from else "tiny",
            "learning_rate": None if recipe is FURTHER else self.rate_from(),
            "seq_length": recipe.seq_length,
            "batch_size": recipe.batch_size,
            "accumulate": recipe.accumulate,
            "warmup": recipe.warmup,
            "dropout": recipe.dropout,
            "unigram_bias": not recipe.paper and not self.init_from,
            "bias_correction": lamb or not recipe.paper,
            "google_decay": lamb or recipe.paper,
        }
        if self.steps is None and self.minutes is None:
            answers["minutes"] = MINUTES
        if self.steps and not recipe.seq_length:
            batch_size = self.batch_size or recipe.batch_size
            answers["seq_length"] = self.schedule_for(lambda longest: self.steps * batch_size * longest)
        return dataclasses.replace(self, **{n: v for n, v in answers.items() if getattr(self, n) is None})

    def schedule_for(self, tokens: Callable[[int], float]) -> str:
        """What `seq_length` becomes where nobody gave it; `tokens` as in `recipes.schedule_for`."""
        return self.recipe.seq_length or schedule_for(tokens, self.max_positions)

    def settled_as(self, stored: "PretrainOptions") -> "PretrainOptions":
        """The same with what only a run could decide as the run with the `stored` options did."""
        open_ones = [name for name in ("learning_rate", "seq_length") if getattr(self, name) is None]
        return dataclasses.replace(self, **{name: getattr(stored, name) for name in open_ones})

    def rate_from(self, new_head: bool = False) -> float:
        """The learning rate given, or the recipe's; `new_head`: for weights without a masked-LM head."""
        usual = NEW_HEAD_RATE if new_head and self.recipe is FURTHER else self.recipe.learning_rate
        return self.learning_rate or usual * (LAMB_RATE if self.optimizer == "lamb" else 1)

    @property
    def recipe(self) -> SizeRecipe:
        """What goes with the size; the other sizes of Table 6 are trained as base is."""
        if self.size is None:
            return FURTHER if self.init_from else RECIPES["tiny"]
        return RECIPES.get(self.size, RECIPES["base"])

    @property
    def lengths(self) -> list[tuple[int, float]]:
        """Sequence lengths and their shares of the steps, in order; until decided, those of most tokens."""
        return parse_lengths(self.seq_length or self.schedule_for(lambda longest: math.inf))

    @property
    def longest(self) -> int:
        """The longest sequence of the schedule."""
        return max(length for length, _ in self.lengths)

    @property
    def tokens_per_step(self) -> int:
        """Tokens a step, were every sequence full; the same in every stage."""
        return self.batch_size * self.longest

    @property
    def dropouts(self) -> dict[str, float]:
        """Both rates, as a model's configuration has them."""
        attention = self.dropout if self.attention_dropout is None else self.attention_dropout
        return {"hidden_dropout_prob": self.dropout, "attention_probs_dropout_prob": attention}

    @property
    def pairs(self) -> bool:
        """Whether next-sentence prediction is part of the task."""
        return self.next_sentence and not self.left_to_right

    def stages(self, total_steps: int) -> list[Stage]:
        """The schedule laid out over `total_steps`; the borders are rounded, the last stage ends the run."""
        passed = [round(total_steps * share) for share in accumulate(share for _, share in self.lengths)]
        borders = [0, *passed[:-1], total_steps]
        return [
            Stage(length, begin, end)
            for (length, _), begin, end in zip(self.lengths, borders, borders[1:], strict=False)
            if end > begin
        ]

    def pairs_at(self, seq_length: int) -> bool:
        """Whether sequences of this length are pairs: in short first stages they are not."""
        last = self.seq_length is None or seq_length == self.longest
        return self.pairs and (last or seq_length >= PAIRS_FROM)

    def instance_options(self, seq_length: int) -> InstanceOptions:
        """How instances of one stage are made."""
        own = {"seq_length": seq_length, "next_sentence": self.pairs_at(seq_length)}
        shared = {field.name for field in dataclasses.fields(InstanceOptions)} - own.keys()
        return InstanceOptions(**own, **{name: getattr(self, name) for name in shared})

    def model_config(self, vocab_size: int) -> BertConfig:
        """The shape of the model."""
        return BertConfig.from_size(
            self.size,
            vocab_size=vocab_size,
            hidden_act=self.hidden_act,
            **self.dropouts,
            max_position_embeddings=max(self.max_positions, self.longest),
            is_decoder=self.left_to_right,
        )

    @staticmethod
    def _instead(given: dict[str, Any]) -> dict[str, Any]:
        """A new number of steps takes the place of stored minutes, and the other way round."""
        if "steps" in given:
            return {"minutes": None, **given}
        return {"steps": None, **given} if "minutes" in given else given
